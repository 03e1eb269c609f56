"""Command-line tools, the one place that composes front ends, passes and backends."""
