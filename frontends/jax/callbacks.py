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
