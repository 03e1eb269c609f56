"""Python callbacks of JAX programs (``pure_callback``, ``io_callback``, ``debug.print``) kept by number.

A lowered module can only name a Python function, so the program holds ``neuron.host_callback`` with a number and this
table holds the function. Numbers are valid in the process that lowered the program.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from neuron_ir.diagnostics import fail
from neuron_ir.dialects.neuron.custom import custom_target
from neuron_ir.types import TOKEN

TARGET = "neuron.host_callback"


@dataclass(frozen=True)
class HostCallback:
    """``function`` takes and returns flat arrays; ``kind`` is ``pure``, ``io`` or ``debug``."""

    function: Callable[..., Sequence[Any]]
    kind: str
    ordered: bool


# A compiled program may outlive every JAX object that led to it, so the table holds its functions for good.
_TABLE: dict[int, HostCallback] = {}
_NUMBERS = itertools.count(1)


def keep(callback: HostCallback) -> int:
    """Store a callback and give its number."""
    number = next(_NUMBERS)
    _TABLE[number] = callback
    return number


def find(number: int) -> HostCallback:
    """The callback of that number; an :class:`IRError` when it belongs to another process."""
    try:
        return _TABLE[number]
    except KeyError:
        raise fail(
            "runtime",
            f"host callback {number} is not known in this process",
            notes=["a Python callback cannot be saved with a program: lower the JAX function again"],
        ) from None


@custom_target(TARGET, on_host=True)
def _call_host(j: Any, operands: Sequence[Any], config: dict[str, Any], out: Sequence[Any]) -> Sequence[Any]:
    """Calls the Python function with host arrays. A leading token, which orders effects, goes in and comes out."""
    callback = find(config["callback"])
    tokens = sum(t is TOKEN for t in out)
    arguments = operands[tokens:]
    results = [j.jax.ShapeDtypeStruct(t.shape, t.dtype.numpy) for t in out[tokens:]]
    if callback.kind == "pure":
        values = j.jax.pure_callback(callback.function, results, *arguments)
    elif callback.kind == "io":
        values = j.jax.experimental.io_callback(callback.function, results, *arguments, ordered=callback.ordered)
    else:
        j.jax.debug.callback(callback.function, *arguments, ordered=callback.ordered)
        values = []
    return (*operands[:tokens], *values)
