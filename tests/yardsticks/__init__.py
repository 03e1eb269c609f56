"""Yardsticks: suites that others wrote, run through the whole path; each prints a table and can write it to ``specs/coverage/``."""
