"""Views moved down: transposes and broadcasts behind elementwise ops, widening casts behind views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from neuron_ir.attrs import Dense
from neuron_ir.builder import create
from neuron_ir.core import Func, Op, Value
from neuron_ir.passes.canonicalize import transpose_in_order, transpose_of_transpose
from neuron_ir.passmanager import Context, FuncPass, option
from neuron_ir.rewrite import Pattern, Replacement, Rewriter, apply_patterns, pattern
from neuron_ir.types import TensorType

__all__ = ["Sink", "for_elementwise"]


@dataclass(frozen=True)
class Sink(FuncPass):
    """Move transposes and broadcasts behind elementwise ops, where they meet and cancel, and widening casts behind views.

    An elementwise op whose operands are all moved alike (or are one repeated number) works on what they are made of; the view
    comes after it. Behind a broadcast it so works on fewer elements. A view with other users stays where it is. A cast to more
    bits goes behind a transpose or slice, which then moves fewer bytes. Each element is computed as before.
    """

    transposes: bool = option(True, "move transposes behind elementwise ops")
    broadcasts: bool = option(True, "move broadcasts behind elementwise ops")
    casts: bool = option(True, "move widening casts behind views")

    def run_func(self, func: Func, ctx: Context) -> None:
        patterns: list[Pattern] = []
        if self.transposes:
            patterns += [*for_elementwise(behind_transpose), transpose_of_transpose, transpose_in_order]
        if self.broadcasts:
            patterns += for_elementwise(behind_broadcast)
        if self.casts:
            patterns += _CASTS
        apply_patterns(func, patterns, ctx)


@cache
def for_elementwise(rule: Callable[[Any, Rewriter], Replacement]) -> tuple[Pattern, ...]:
    """The rule as one pattern per elementwise op whose attributes, if any, do not speak of dims."""
    from neuron_ir.registry import all_ops

    return tuple(
        pattern(spec.name, spec.attrs)(rule)
        for spec in all_ops()
        if "elementwise" in spec.traits and not spec.regions and not {"axis", "dimensions", "dimension"} & spec.attrs.keys()
    )


def behind_transpose(op: Any, rw: Rewriter) -> Replacement:
    """``f(transpose(a), transpose(b))`` as ``transpose(f(a, b))``."""
    first = _view_of(op, "neuron.transpose")
    if first is None or (op.name == "neuron.cast" and op.result.dtype.bits > op.x.dtype.bits):
        return None  # a widening cast goes behind the transpose instead
    order = first.get("permutation")
    shape = [op.result.shape[order.index(i)] for i in range(len(order))]
    new = _on_sources(op, rw, shape, lambda v: v.name == first.name and v.get("permutation") == order)
    return None if new is None else rw.b.transpose(new, permutation=order)


def behind_broadcast(op: Any, rw: Rewriter) -> Replacement:
    """``f(broadcast(a), broadcast(b))`` as ``broadcast(f(a, b))``."""
    first = _view_of(op, "neuron.broadcast_in_dim")
    if first is None:
        return None
    dims, source = first.get("broadcast_dimensions"), first.operands[0].shape

    def alike(view: Op) -> bool:
        same = view.name == first.name and view.get("broadcast_dimensions") == dims
        return same and view.operands[0].shape == source

    new = _on_sources(op, rw, source, alike)
    return None if new is None else rw.b.broadcast_in_dim(new, broadcast_dimensions=dims, out=op.result.type)


def _view_of(op: Op, name: str) -> Op | None:
    """The first operand's op of that name, for an op of one result whose operands have its shape."""
    if len(op.results) != 1 or any(v.type.shape != op.result.type.shape for v in op.operands):
        return None
    return next((v.op for v in op.operands if v.op is not None and v.op.name == name), None)


def _on_sources(op: Op, rw: Rewriter, shape: Any, alike: Callable[[Op], bool]) -> Value | None:
    """``op`` on what the views are made of, where all its operands are such views or one repeated number."""
    operands: list[Value] = []
    for v in op.operands:
        dense = v.dense
        if dense is not None and dense.is_splat and all(isinstance(d, int) for d in shape):
            type = TensorType(shape, v.dtype)
            operands.append(rw.b.constant(value=Dense(v.dtype, tuple(shape), dense.data), out=type))
        elif v.op is not None and alike(v.op):
            if any(user is not op for user in v.users):
                rw.decline("a view has other users too")
                return None
            operands.append(v.op.operands[0])
        else:
            return None
    out = None if op.spec.infer is not None else TensorType(shape, op.result.dtype)
    return rw.b.insert(create(op.name, operands, out, op.own_attrs, op.loc)).result


def view_of_cast(op: Any, rw: Rewriter) -> Replacement:
    """``view(cast(x))`` as ``cast(view(x))`` where the cast widens."""
    cast = rw.producer(op.operands[0], "neuron.cast", ["mode"])
    if cast is None or cast.result.dtype.bits <= cast.x.dtype.bits or len(cast.result.users) != 1:
        return None
    fields = dict(op.attrs)
    if op.spec.infer is None:
        fields["out"] = TensorType(op.result.shape, cast.x.dtype)
    moved = rw.b.make(op.name, cast.x, **fields)
    return rw.b.cast(moved, mode=cast.mode, out=op.result.type)


_CASTS: list[Pattern] = [
    pattern("neuron.transpose", ["permutation"])(view_of_cast),
    pattern("neuron.slice", ["start_indices", "limit_indices", "strides"])(view_of_cast),
    pattern("neuron.reshape")(view_of_cast),
]
