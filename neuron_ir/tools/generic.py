"""Neuron IR with nothing left to the reader's memory: every attribute, defaults included, and numbered values."""

from __future__ import annotations

from neuron_ir.core import Module, Op
from neuron_ir.opdef import REQUIRED

__all__ = ["to_generic"]


def to_generic(module: Module, locations: bool = True) -> str:
    """The text of the module in that form; it reads back as the same module."""
    copy = module.clone()
    for func in copy.funcs.values():
        for value in func.args:
            value.name = ""
        for op in func.walk():
            op.attrs = _all_attrs(op)
            for value in (*op.results, *(a for r in op.regions for a in r.args)):
                value.name = ""
    return copy.text(locations)


def _all_attrs(op: Op) -> dict[str, object]:
    attrs = {name: op.attrs.get(name, declared.default) for name, declared in op.spec.attrs.items()}
    return {k: v for k, v in attrs.items() if v is not REQUIRED and v is not None and (k != "absent" or v)}
