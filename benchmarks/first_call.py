"""The first call of GPT-2's forward pass, from the exported program to the logits: import, passes, compilation, run.

    python benchmarks/first_call.py [--torch-compile]

In a process of its own that has exported the program and loaded the Python packages before the clock starts; a row of its own tells
how long loading ours and JAX took, as torch's is not counted either. Once with the passes of -O1, once with those of -O2, which may
take a second, and a tenth of the whole. The peer is torch.compile's default backend with an empty
cache, from the model to the logits; without it the row has no ratio to a peer.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from report import Row, report

BOUND = 5.0  # seconds
MOST_PASSES, MOST_SHARE = 1.0, 0.1  # seconds of -O2, and their share of the first call


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--torch-compile", action="store_true")
    options.add_argument("--measure", choices=("O1", "O2", "peer"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.measure:
        _peer() if chosen.measure == "peer" else _ours(chosen.measure)
        return 0
    rows = []
    for level in ("O1", "O2"):
        total, *stages, processor, loading = _in_process(level)
        names = ("import", f"passes ({level})", "compile and run")
        bound = BOUND if level == "O1" else None
        rows.append(Row(f"first call, {level}, seconds", f"{total:.2f} s", f"processor {processor:.2f} s", total, most=bound))
        rows += [Row(f"  {name}", f"{t:.2f} s", "", t / total) for name, t in zip(names, stages, strict=True)]
        rows.append(Row("loading the packages before it", f"{loading:.2f} s", "", loading / total))
    passes = stages[1]
    rows.append(Row("passes of O2, seconds", f"{passes:.2f} s", "", passes, most=MOST_PASSES))
    rows.append(Row("passes of O2, of the first call", f"{passes:.2f} s", f"{total:.2f} s", passes / total, most=MOST_SHARE))
    if chosen.torch_compile:
        peer = _in_process("peer")[0]
        rows.append(Row("against torch.compile", f"{total:.2f} s", f"{peer:.2f} s", total / peer, most=1.0))
    return report("GPT-2 first call, batch 1 x 128, f32", rows)


def _in_process(which: str) -> list[float]:
    with tempfile.TemporaryDirectory() as cache:
        env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache, "NEURON_IR_CACHE": "off"}
        command = [sys.executable, str(Path(__file__)), "--measure", which]
        out = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [float(word) for word in out.split()]


def _ours(level: str) -> None:
    from gpt2 import exported, model_and_ids

    model, ids = model_and_ids()
    program = exported(model, ids)
    start = time.perf_counter()
    import jax  # noqa: F401

    import neuron_ir
    import neuron_ir.backends.jax_cpu.program
    import neuron_ir.frontends.torch.importer

    loading = time.perf_counter() - start
    start, processor = time.perf_counter(), time.process_time()
    module, imported = _timed(lambda: neuron_ir.from_torch(program))
    _, passes = _timed(lambda: neuron_ir.run_passes(module, level))
    _, compiled = _timed(lambda: neuron_ir.compile(module)(ids))
    print(time.perf_counter() - start, imported, passes, compiled, time.process_time() - processor, loading)


def _timed(run: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    value = run()
    return value, time.perf_counter() - start


def _peer() -> None:
    import torch
    from gpt2 import model_and_ids

    model, ids = model_and_ids()
    with torch.no_grad():
        print(_timed(lambda: torch.compile(model)(ids))[1])


if __name__ == "__main__":
    sys.exit(main())
