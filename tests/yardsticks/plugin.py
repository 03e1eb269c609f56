"""JAX's own primitive harnesses on ``jax.devices("neuron")``: jitted by JAX as a user would, nothing of ours called by hand.

Cases, arguments and judge are those of ``harnesses.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.yardsticks import harnesses
from tests.yardsticks.harnesses import arguments, cases, place

__all__ = ["NAME", "arguments", "cases", "place", "prepare", "run_case", "run_cases"]

NAME = "plugin"


def prepare() -> None:
    """Before JAX is loaded: the CPU to judge, and the plugin's platform behind it."""
    harnesses.prepare("cpu,neuron")


def run_case(case: str) -> tuple[str, str]:
    """The outcome of one harness, with the reason where it is not ``right``."""
    return harnesses.judged(case, on_the_device)


def run_cases(cases: Sequence[str]) -> list[tuple[str, str]]:
    """The outcomes of several harnesses, made one program of; one by one where not all of them are right so."""
    return harnesses.judged_together(cases, on_the_device)


def on_the_device(function: Any, args: Sequence[Any]) -> list[Any]:
    """The function's flat results, computed on the plugin's device."""
    import jax
    import numpy as np

    device = jax.devices("neuron")[0]
    with jax.default_device(device):
        results = jax.tree.leaves(jax.jit(function)(*jax.device_put(list(args), device)))
    if any(x.devices() != {device} for x in results):
        raise AssertionError("a result is on another device")
    return [np.asarray(x) for x in results]


if __name__ == "__main__":
    from tests.yardsticks.runner import main

    raise SystemExit(main("tests.yardsticks.plugin"))
