"""How the cost of parsing, verifying, printing, cloning and of every pass grows from 10,000 to 100,000 ops.

    python benchmarks/scaling.py [--largest 100000] [--only parse,verify,...]

Processor time, the least of up to three runs, so that a busy machine does not bend the curve. Linear work takes ten times as long
for ten times the ops. A step that takes less than 0.05 s for the smaller program is too short for a ratio with a bound: its times
are printed all the same.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from programs import transformer
from report import Row, report

import neuron_ir
from neuron_ir.core import Module
from neuron_ir.passmanager import PassManager
from neuron_ir.pipeline import find_pass, pass_names

MOST = 12.0  # times the time for ten times the ops
FLOOR = 0.05  # seconds: below it the clock's steps and what is made once count as much as the work
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
    steps = CORE | {name: _pass_step(name) for name in pass_names()}
    wanted = [name for name in steps if not chosen.only or name in chosen.only.split(",")]
    small, large = (_program(size) for size in (chosen.largest // 10, chosen.largest))
    rows = [_row(name, steps[name], small, large) for name in wanted]
    return report(f"processor time for ten times the ops: {small.ops:,} and {large.ops:,}", rows)


@dataclass(frozen=True)
class Program:
    """One program as objects and as text."""

    module: Module
    text: str
    ops: int


def _program(size: int) -> Program:
    module = transformer(size)
    return Program(module, module.text(), sum(1 for _ in module.walk()))


def _pass_step(name: str) -> Step:
    """The pass on a copy of the module, made before the clock starts."""

    def step(module: Module, text: str) -> Callable[[], Any]:
        copy, manager = module.clone(), PassManager([find_pass(name)()])
        return lambda: manager.run(copy)

    return step


def _row(name: str, step: Step, small: Program, large: Program) -> Row:
    """One step's times for both programs; without a bound where the smaller is too short to divide by."""
    tiny = _program(100)
    step(tiny.module, tiny.text)()  # what is made once
    short, long = (_least(step, program) for program in (small, large))
    measured = short >= FLOOR
    note = "" if measured else f", under {FLOOR} s: no bound"
    return Row(name + note, f"{long:.3f} s", f"{short:.3f} s", long / short if short else 0.0, most=MOST if measured else None)


def _least(step: Step, program: Program) -> float:
    """The least of up to three runs, fewer once they have taken four seconds together."""
    times: list[float] = []
    while len(times) < 3 and sum(times) < 4:
        times.append(_processor_seconds(step(program.module, program.text)))
    return min(times)


def _processor_seconds(run: Callable[[], Any]) -> float:
    gc.collect()
    start = time.process_time()
    run()
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
