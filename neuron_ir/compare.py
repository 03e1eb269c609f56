"""Structural equality of modules: the first difference in words, or nothing. Names of values do not count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuron_ir.attrs import same_attr
from neuron_ir.core import Block, Func, Module, Op, Value

__all__ = ["first_difference", "same_attrs"]


def first_difference(a: Module, b: Module, locations: bool = True) -> str:
    """What differs first between two modules, in the order of the text; "" where they are equal. Weights are compared by name."""
    if a.name != b.name:
        return f"module names @{a.name} and @{b.name}"
    if not same_attrs(a.attrs, b.attrs):
        return f"module attributes {a.attrs} and {b.attrs}"
    if list(a.funcs) != list(b.funcs):
        return f"functions {list(a.funcs)} and {list(b.funcs)}"
    for x, y in zip(a.funcs.values(), b.funcs.values(), strict=True):
        found = _funcs(x, y, locations)
        if found:
            return f"in @{x.name}: {found}"
    return ""


def same_attrs(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two attribute dicts are equal bit for bit, in any order."""
    return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)


def _same(x: Any, y: Any) -> bool:
    return same_attrs(x, y) if isinstance(x, dict) and isinstance(y, dict) else same_attr(x, y)


def _funcs(a: Func, b: Func, locations: bool) -> str:
    if a.dims != b.dims:
        return f"dims {a.dims} and {b.dims}"
    if not same_attrs(a.attrs, b.attrs):
        return f"attributes {a.attrs} and {b.attrs}"
    for kind, xs, ys in (("argument", a.arg_attrs, b.arg_attrs), ("result", a.result_attrs, b.result_attrs)):
        for i, (x, y) in enumerate(zip(xs, ys, strict=False)):
            if not same_attrs(x, y):
                return f"attributes of {kind} {i}: {x} and {y}"
    if a.result_types != b.result_types:
        return f"result types {a.result_types} and {b.result_types}"
    return _blocks(a.body, b.body, {}, locations)


def _blocks(a: Block, b: Block, same: dict[Value, Value], locations: bool) -> str:
    """``same`` maps each value of the first module to its counterpart."""
    if [v.type for v in a.args] != [v.type for v in b.args]:
        return f"arguments {[v.type for v in a.args]} and {[v.type for v in b.args]}"
    same.update(zip(a.args, b.args, strict=True))
    x, y = a.first, b.first
    while x is not None and y is not None:
        found = _ops(x, y, same, locations)
        if found:
            return found
        x, y = x.next, y.next
    if x is not None or y is not None:
        return f"one block goes on with {x if x is not None else y!r}"
    return ""


def _ops(x: Op, y: Op, same: dict[Value, Value], locations: bool) -> str:
    if x.name != y.name:
        return f"ops {x!r} and {y!r}"
    if len(x.operands) != len(y.operands) or any(same.get(v) is not w for v, w in zip(x.operands, y.operands, strict=True)):
        return f"operands of {x!r} and {y!r}"
    if not same_attrs(x.attrs, y.attrs):
        return f"attributes of {x!r} and {y!r}"
    if [r.type for r in x.results] != [r.type for r in y.results]:
        return f"result types of {x!r} and {y!r}"
    if locations and not x.loc.implicit and x.loc != y.loc:
        return f"locations of {x!r}: {x.loc} and {y.loc}"
    if len(x.regions) != len(y.regions):
        return f"regions of {x!r}"
    for r, s in zip(x.regions, y.regions, strict=True):
        found = _blocks(r, s, same, locations)
        if found:
            return found
    same.update(zip(x.results, y.results, strict=True))
    return ""
