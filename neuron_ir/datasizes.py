"""Sizes that the data decide: the symbols that ``neuron.bind_size`` binds in a function, and what depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neuron_ir.core import Func, Op
from neuron_ir.dims import Dim, Range
from neuron_ir.types import TensorType

__all__ = ["BIND", "bindings", "out_of_range", "own_symbols", "symbols_of"]

BIND = "neuron.bind_size"


def bindings(func: Func) -> dict[str, Op]:
    """The op that binds each symbol of a function; of two for one symbol, the first."""
    found: dict[str, Op] = {}
    for op in func.body.ops:
        if op.name == BIND:
            found.setdefault(str(op.attrs.get("size")), op)
    return found


def own_symbols(op: Op) -> set[str]:
    """The symbols in an op's result types, attributes and region arguments, without the ops inside and without the one it binds."""
    names: set[str] = set()
    for result in op.results:
        names.update(_symbols(result.type))
    for region in op.regions:
        for arg in region.args:
            names.update(_symbols(arg.type))
    if op.name != BIND:
        for value in op.attrs.values():
            names.update(_symbols(value))
    return names


def symbols_of(op: Op) -> set[str]:
    """The symbols in an op and all ops inside of it."""
    names = own_symbols(op)
    for region in op.regions:
        for inner in region.walk():
            names |= own_symbols(inner)
    return names


def out_of_range(name: str, value: object, bounds: Range) -> str:
    """The message for a size of the data that is out of its symbol's range."""
    low, high = bounds
    return f"the size {name} is {value}; the program was made for {f'{low} to {high}' if high is not None else f'at least {low}'}"


def _symbols(item: Any) -> Iterator[str]:
    if isinstance(item, TensorType):
        if not item.is_static:
            yield from _symbols(item.shape)
    elif isinstance(item, Dim):
        yield from item.symbols
    elif isinstance(item, tuple):
        for part in item:
            yield from _symbols(part)
