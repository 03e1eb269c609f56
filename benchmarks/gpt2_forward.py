"""GPT-2's forward pass, batch 1 x 128 tokens, f32: ours, the same model by hand in JAX, torch eager, and torch.compile.

    python benchmarks/gpt2_forward.py [--runs 30] [--no-torch-compile]

The median of runs taken in turn, after two to warm up, on two threads. Processor time is of all threads together: other work on
the machine does not count in it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from gpt2 import exported, hand_written_jax, model_and_ids
from report import Row, interleaved, report

import neuron_ir

THREADS = 2


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=30)
    options.add_argument(
        "--no-torch-compile", action="store_true", help="leave out that peer, whose compilation takes up to a minute"
    )
    chosen = options.parse_args()
    if hasattr(os, "sched_setaffinity"):  # XLA takes as many threads as it may use processors
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    runs, error = _contestants(not chosen.no_torch_compile)
    times = interleaved(runs, chosen.runs)
    bounds = {"hand-written JAX": 1.05, "torch eager": 1.0, "torch.compile": 1.0}
    ours = times.pop("ours")
    rows = [
        Row(f"against {peer}{note}", f"{a * 1e3:.1f} ms", f"{b * 1e3:.1f} ms", a / b, most=bounds[peer])
        for peer, t in times.items()
        for note, a, b in (("", ours.wall, t.wall), (", processor time", ours.processor, t.processor))
    ]
    rows.append(Row("largest error of the logits against torch", f"{error:.1e}", "", error, most=2e-5))
    return report(f"GPT-2 forward, batch 1 x 128, f32, {THREADS} threads, median of {chosen.runs}", rows)


def _contestants(with_compile: bool) -> tuple[dict[str, Callable[[], Any]], float]:
    """What to run, by name, and our largest error against torch."""
    import torch

    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(False)
    model, ids = model_and_ids()
    program = neuron_ir.compile(neuron_ir.from_torch(exported(model, ids)))
    by_hand, ids_array = hand_written_jax(model), ids.numpy().astype("int32")
    error = float((program(ids) - model(ids)).abs().max())
    assert abs(by_hand(ids_array) - model(ids).numpy()).max() < 2e-5, "the hand-written model computes something else"
    runs: dict[str, Callable[[], Any]] = {
        "ours": lambda: program(ids),
        "hand-written JAX": lambda: by_hand(ids_array).block_until_ready(),
        "torch eager": lambda: model(ids),
    }
    if with_compile:
        compiled = torch.compile(model)
        runs["torch.compile"] = lambda: compiled(ids)
    return runs, error


if __name__ == "__main__":
    sys.exit(main())
