"""What every benchmark shares: interleaved timing, and a table of ours, peer, ratio, bound and verdict."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Row", "Times", "interleaved", "paired", "report", "seconds"]


@dataclass(frozen=True)
class Row:
    """One figure. ``ratio`` must be at least ``least`` or at most ``most``, whichever is given."""

    what: str
    ours: str
    peer: str
    ratio: float
    least: float | None = None
    most: float | None = None

    @property
    def bound(self) -> str:
        return f">= {self.least:g}" if self.least is not None else f"<= {self.most:g}" if self.most is not None else ""

    @property
    def passed(self) -> bool:
        return (self.least is None or self.ratio >= self.least) and (self.most is None or self.ratio <= self.most)


def report(title: str, rows: Sequence[Row]) -> int:
    """Print the table; gives the exit code: 1 where a row misses its bound."""
    cells = [("", "ours", "peer", "ratio", "bound", "")]
    cells += [(r.what, r.ours, r.peer, f"{r.ratio:.2f}", r.bound, _verdict(r)) for r in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(6)]
    print(title)
    for row in cells:
        print("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0 if all(r.passed for r in rows) else 1


def _verdict(row: Row) -> str:
    return "" if not row.bound else "pass" if row.passed else "FAIL"


def seconds(run: Callable[[], Any], repeats: int = 3) -> float:
    """The least time of ``repeats`` runs: what the work costs when nothing else takes the core."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


@dataclass(frozen=True)
class Times:
    """Medians in seconds: what the clock on the wall shows, and what the processors spent on this process, all threads together."""

    wall: float
    processor: float


def interleaved(runs: Mapping[str, Callable[[], Any]], repeats: int, warmups: int = 2) -> dict[str, Times]:
    """The median times of each, run in turn, so that a busy moment of the machine meets all of them."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for number in range(warmups + repeats):
        for name, run in runs.items():
            wall, processor = time.perf_counter(), time.process_time()
            run()
            if number >= warmups:
                taken[name].append((time.perf_counter() - wall, time.process_time() - processor))
    return {name: Times(*map(statistics.median, zip(*times, strict=True))) for name, times in taken.items()}


def paired(ours: Callable[[], Any], peer: Callable[[], Any], rounds: int, warmups: int = 2) -> tuple[float, float, float]:
    """The median times of both in seconds, and the median over rounds of how many times as fast ours was as the peer.

    A round runs the peer before and after ours and takes its mean, so that a machine that speeds up or slows down bends nothing.
    """
    taken: list[tuple[float, float]] = []
    for number in range(warmups + rounds):
        before, mine, after = (_wall(run) for run in (peer, ours, peer))
        if number >= warmups:
            taken.append((mine, (before + after) / 2))
    mine, theirs = (statistics.median(t) for t in zip(*taken, strict=True))
    return mine, theirs, statistics.median(b / a for a, b in taken)


def _wall(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
