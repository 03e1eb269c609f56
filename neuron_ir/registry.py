"""Finds an op's class by name, loading the dialect that declares it on first need."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

from neuron_ir.core import Op
from neuron_ir.opdef import SPECS, OpSpec

__all__ = ["all_ops", "load_dialects", "op_class", "op_spec"]


@lru_cache(maxsize=1)
def load_dialects() -> None:
    """Import every dialect of the package."""
    import_module("neuron_ir.dialects")


def op_spec(name: str) -> OpSpec:
    """The spec of the op ``name``; ``KeyError`` where there is none."""
    load_dialects()
    return SPECS[name]


def op_class(name: str) -> type[Op]:
    """The class of the op ``name``; ``KeyError`` where there is none."""
    return op_spec(name).cls


def all_ops() -> list[OpSpec]:
    """Every registered op, sorted by name."""
    load_dialects()
    return [SPECS[name] for name in sorted(SPECS)]
