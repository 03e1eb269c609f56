"""How the cost of parsing, verifying, printing, cloning and of every pass grows from 1,000 to 100,000 ops.

    python benchmarks/scaling.py [--largest 100000] [--only parse,verify,...]

Processor time, the least of three, so that a busy machine does not bend the curve. Linear work takes ten times as long for ten
times the ops.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

from programs import transformer
from report import Row, report

import neuron_ir
from neuron_ir.core import Module
from neuron_ir.passmanager import PassManager
from neuron_ir.pipeline import find_pass, pass_names

MOST = 12.0  # times the time for ten times the ops
Step = Callable[[Module, str], Callable[[], Any]]

CORE: dict[str, Step] = {
    "parse": lambda module, text: lambda: neuron_ir.parse(text),
    "verify": lambda module, text: module.verify,
    "print": lambda module, text: module.text,
    "clone": lambda module, text: module.clone,
}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--largest", type=int, default=100_000)
    options.add_argument("--only", default="", help="names, separated by commas")
    chosen = options.parse_args()
    sizes = [chosen.largest // 100, chosen.largest // 10, chosen.largest]
    steps = CORE | {name: _pass_step(name) for name in pass_names()}
    rows = [
        row for name, step in steps.items() if not chosen.only or name in chosen.only.split(",") for row in _rows(name, step, sizes)
    ]
    return report("processor time for ten times the ops", rows)


def _pass_step(name: str) -> Step:
    """The pass on a copy of the module, made before the clock starts."""

    def step(module: Module, text: str) -> Callable[[], Any]:
        copy, manager = module.clone(), PassManager([find_pass(name)()])
        return lambda: manager.run(copy)

    return step


def _rows(name: str, step: Step, sizes: list[int]) -> list[Row]:
    """One row per step from a size to the next."""
    times = {}
    for size in sizes:
        module = transformer(size)
        text = module.text()
        small = transformer(100)
        step(small, small.text())()  # what is made once
        times[size] = min(_processor_seconds(step(module, text)) for _ in range(3))
    return [
        Row(
            f"{name}, {small:,} to {large:,} ops",
            f"{times[large]:.3f} s",
            f"{times[small]:.3f} s",
            times[large] / times[small],
            most=MOST,
        )
        for small, large in itertools.pairwise(sizes)
    ]


def _processor_seconds(run: Callable[[], Any]) -> float:
    gc.collect()
    start = time.process_time()
    run()
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
