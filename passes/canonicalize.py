"""Simplifications that keep every bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neuron_ir.attrs import Dense
from neuron_ir.core import Func, Value
from neuron_ir.dtypes import DType
from neuron_ir.passmanager import Context, FuncPass
from neuron_ir.rewrite import Pattern, Replacement, Rewriter, apply_patterns, pattern

__all__ = ["PATTERNS", "Canonicalize", "transpose_in_order", "transpose_of_transpose"]


@dataclass(frozen=True)
class Canonicalize(FuncPass):
    """Bring ops to one simplest form: no-ops go, views of views become one, constants stand right, known branches are taken.

    Every rule keeps each bit of each result, so ``x + 0.0`` stays (it turns -0.0 into 0.0) while ``x - 0.0`` goes.
    """

    def run_func(self, func: Func, ctx: Context) -> None:
        apply_patterns(func, PATTERNS, ctx)


PATTERNS: list[Pattern] = []


def rule(root: str, *attrs: str) -> Callable[[Callable[[Any, Rewriter], Replacement]], Pattern]:
    """Declare a pattern of this pass."""

    def add(function: Callable[[Any, Rewriter], Replacement]) -> Pattern:
        made = pattern(root, attrs)(function)
        PATTERNS.append(made)
        return made

    return add


# --- views ------------------------------------------------------------------------------------------------------------


@rule("neuron.reshape")
def reshape_to_same_type(op: Any, rw: Rewriter) -> Replacement:
    return op.x if op.x.type is op.result.type else None


@rule("neuron.reshape")
def reshape_of_reshape(op: Any, rw: Rewriter) -> Replacement:
    inner = rw.producer(op.x, "neuron.reshape")
    return rw.b.reshape(inner.x, out=op.result.type) if inner is not None else None


@rule("neuron.transpose", "permutation")
def transpose_in_order(op: Any, rw: Rewriter) -> Replacement:
    return op.x if list(op.permutation) == sorted(op.permutation) else None


@rule("neuron.transpose", "permutation")
def transpose_of_transpose(op: Any, rw: Rewriter) -> Replacement:
    inner = rw.producer(op.x, "neuron.transpose", ["permutation"])
    if inner is None:
        return None
    return rw.b.transpose(inner.x, permutation=[inner.permutation[i] for i in op.permutation])


@rule("neuron.broadcast_in_dim", "broadcast_dimensions")
def broadcast_to_same_type(op: Any, rw: Rewriter) -> Replacement:
    in_order = list(op.broadcast_dimensions) == list(range(len(op.x.shape)))
    return op.x if in_order and op.x.type is op.result.type else None


@rule("neuron.broadcast_in_dim", "broadcast_dimensions")
def broadcast_of_broadcast(op: Any, rw: Rewriter) -> Replacement:
    inner = rw.producer(op.x, "neuron.broadcast_in_dim", ["broadcast_dimensions"])
    if inner is None:
        return None
    dims = [op.broadcast_dimensions[d] for d in inner.broadcast_dimensions]
    return rw.b.broadcast_in_dim(inner.x, broadcast_dimensions=dims, out=op.result.type)


@rule("neuron.slice", "start_indices", "limit_indices", "strides")
def slice_of_everything(op: Any, rw: Rewriter) -> Replacement:
    whole = all(s == 0 for s in op.start_indices) and all(s == 1 for s in op.strides)
    return op.x if whole and op.x.type is op.result.type else None


@rule("neuron.slice", "start_indices", "limit_indices", "strides")
def slice_of_slice(op: Any, rw: Rewriter) -> Replacement:
    inner = rw.producer(op.x, "neuron.slice", ["start_indices", "limit_indices", "strides"])
    if inner is None:
        return None
    numbers = (*op.start_indices, *op.limit_indices, *inner.start_indices, *inner.limit_indices)
    if not all(isinstance(n, int) for n in numbers):
        return rw.decline("slice_of_slice: a bound is symbolic")
    rank = len(op.start_indices)
    outer_strides, inner_strides = op.strides or (1,) * rank, inner.strides or (1,) * rank
    starts, limits, strides = [], [], []
    for i in range(rank):
        step = inner_strides[i]
        size = max(0, math.ceil((op.limit_indices[i] - op.start_indices[i]) / outer_strides[i]))
        start = inner.start_indices[i] + op.start_indices[i] * step
        stride = step * outer_strides[i]
        starts.append(start)
        limits.append(start + (size - 1) * stride + 1 if size else start)
        strides.append(stride)
    every = [] if all(s == 1 for s in strides) else strides
    return rw.b.slice(inner.x, start_indices=starts, limit_indices=limits, strides=every)


@rule("neuron.concatenate", "dimension")
def concatenate_of_one(op: Any, rw: Rewriter) -> Replacement:
    return op.operands[0] if len(op.operands) == 1 else None


@rule("neuron.pad", "edge_padding_low", "edge_padding_high", "interior_padding")
def pad_by_nothing(op: Any, rw: Rewriter) -> Replacement:
    return op.x if not any((*op.edge_padding_low, *op.edge_padding_high, *op.interior_padding)) else None


@rule("neuron.reverse", "dimensions")
def reverse_nothing(op: Any, rw: Rewriter) -> Replacement:
    return op.x if not op.dimensions else None


@rule("neuron.reverse", "dimensions")
def reverse_of_reverse(op: Any, rw: Rewriter) -> Replacement:
    inner = rw.producer(op.x, "neuron.reverse", ["dimensions"])
    return inner.x if inner is not None and sorted(inner.dimensions) == sorted(op.dimensions) else None


# --- sizes that became known ------------------------------------------------------------------------------------------


@rule("neuron.dynamic_reshape")
def reshape_to_static(op: Any, rw: Rewriter) -> Replacement:
    return rw.b.reshape(op.x, out=op.result.type) if op.result.type.is_static and op.x.type.is_static else None


@rule("neuron.dynamic_broadcast_in_dim", "broadcast_dimensions", "known_expanding_dimensions", "known_nonexpanding_dimensions")
def broadcast_to_static(op: Any, rw: Rewriter) -> Replacement:
    if not (op.result.type.is_static and op.x.type.is_static):
        return None
    return rw.b.broadcast_in_dim(op.x, broadcast_dimensions=op.broadcast_dimensions, out=op.result.type)


@rule("neuron.dynamic_iota", "iota_dimension")
def iota_of_static(op: Any, rw: Rewriter) -> Replacement:
    return rw.b.iota(iota_dimension=op.iota_dimension, out=op.result.type) if op.result.type.is_static else None


@rule("neuron.get_dimension_size", "dimension")
def size_of_static(op: Any, rw: Rewriter) -> Replacement:
    size = op.x.shape[op.dimension]
    return rw.b.const(size, op.result.dtype) if isinstance(size, int) else None


@rule("neuron.dim_size", "size")
def size_is_number(op: Any, rw: Rewriter) -> Replacement:
    return rw.b.const(op.size, op.result.dtype) if isinstance(op.size, int) else None


# --- conversions ------------------------------------------------------------------------------------------------------

# Bits of exponent and mantissa (without the implicit one): a format holds every value of another when it has as many of both.
# Formats without infinity, with other zeros or with other NaNs are left out.
_FORMATS = {"f8e5m2": (5, 2), "f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}


def holds_every_value(narrow: DType, wide: DType) -> bool:
    """Whether casting from ``narrow`` to ``wide`` loses nothing."""
    if narrow.name in _FORMATS and wide.name in _FORMATS:
        return all(a <= b for a, b in zip(_FORMATS[narrow.name], _FORMATS[wide.name], strict=True))
    if narrow.is_integer and wide.is_integer:
        return narrow.bits < wide.bits and (narrow.kind == wide.kind or wide.kind == "int") or narrow is wide
    return narrow.kind == "bool" and (wide.kind != "bool")


@rule("neuron.cast", "mode")
def cast_to_same_type(op: Any, rw: Rewriter) -> Replacement:
    if op.x.type is not op.result.type:
        return None
    plain = op.mode != "saturate" and op.x.dtype.name in _FORMATS or not op.x.dtype.is_float
    return op.x if plain else rw.decline(f"cast_to_same_type: {op.x.dtype} with mode {op.mode} may change values")


@rule("neuron.cast", "mode")
def cast_there_and_back(op: Any, rw: Rewriter) -> Replacement:
    inner = rw.producer(op.x, "neuron.cast", ["mode"])
    if inner is None or inner.x.type is not op.result.type:
        return None
    if not holds_every_value(inner.x.dtype, inner.result.dtype):
        return rw.decline(f"cast_there_and_back: {inner.result.dtype} does not hold every {inner.x.dtype}")
    if "saturate" in (op.mode, inner.mode) and inner.result.dtype.is_float:
        return rw.decline("cast_there_and_back: mode saturate changes infinities")
    return inner.x


@rule("neuron.cast", "mode")
def cast_of_widening(op: Any, rw: Rewriter) -> Replacement:
    inner = rw.producer(op.x, "neuron.cast")
    if inner is None or not (inner.x.dtype.is_float and op.result.dtype.is_float and op.x.dtype.is_float):
        return None
    if inner.x.dtype is inner.result.dtype or not holds_every_value(inner.x.dtype, inner.result.dtype):
        return None
    return rw.b.cast(inner.x, mode=op.mode, out=op.result.type)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _is(rw: Rewriter, value: Value, number: float, sign: bool | None = None) -> bool:
    """Whether ``value`` is the constant ``number`` in every element; ``sign``: whether its sign bit must be set."""
    scalar = rw.splat(value)
    if scalar is None or value.dtype.is_complex or value.dtype.kind == "bool" or scalar != number:
        return False
    return sign is None or not value.dtype.is_float or (math.copysign(1.0, float(scalar)) < 0) == sign


@rule("neuron.add")
def add_nothing(op: Any, rw: Rewriter) -> Replacement:
    return op.a if _is(rw, op.b, 0, sign=True) else None


@rule("neuron.subtract")
def subtract_nothing(op: Any, rw: Rewriter) -> Replacement:
    return op.a if _is(rw, op.b, 0, sign=False) else None


@rule("neuron.multiply")
def multiply_by_one(op: Any, rw: Rewriter) -> Replacement:
    return op.a if _is(rw, op.b, 1) else None


@rule("neuron.divide")
def divide_by_one(op: Any, rw: Rewriter) -> Replacement:
    return op.a if _is(rw, op.b, 1) else None


@rule("neuron.negate")
def double_negation(op: Any, rw: Rewriter) -> Replacement:
    inner = rw.producer(op.x, "neuron.negate")
    return inner and inner.x


@rule("neuron.not")
def double_not(op: Any, rw: Rewriter) -> Replacement:
    inner = rw.producer(op.x, "neuron.not")
    return inner and inner.x


def constant_right(op: Any, rw: Rewriter) -> Replacement:
    """A commutative op with its constant as the second operand."""
    if op.operands[0].dense is None or op.operands[1].dense is not None:
        return None
    return rw.b.make(op.name, op.operands[1], op.operands[0])


for _name in ("add", "multiply", "maximum", "minimum", "and", "or", "xor"):
    rule(f"neuron.{_name}")(constant_right)


# --- choices ----------------------------------------------------------------------------------------------------------


@rule("neuron.select")
def select_of_equal(op: Any, rw: Rewriter) -> Replacement:
    return op.a if op.a is op.b else None


@rule("neuron.select")
def select_by_constant(op: Any, rw: Rewriter) -> Replacement:
    choice = rw.splat(op.pred)
    return None if choice is None else op.a if choice else op.b


@rule("neuron.if")
def if_of_constant(op: Any, rw: Rewriter) -> Replacement:
    choice = rw.splat(op.pred)
    return None if choice is None else rw.inline(op, op.true_branch if choice else op.false_branch, ())


@rule("neuron.case")
def case_of_constant(op: Any, rw: Rewriter) -> Replacement:
    choice = rw.splat(op.index)
    if choice is None:
        return None
    last = len(op.branches) - 1
    return rw.inline(op, op.branches[int(choice) if 0 <= int(choice) < last else last], ())


@rule("neuron.for", "trip_count")
def loop_that_never_runs(op: Any, rw: Rewriter) -> Replacement:
    return list(op.operands) if op.trip_count == 0 else None


@rule("neuron.broadcast_in_dim", "broadcast_dimensions")
def broadcast_of_splat(op: Any, rw: Rewriter) -> Replacement:
    return _splat_as(op, rw)


@rule("neuron.reshape")
def reshape_of_splat(op: Any, rw: Rewriter) -> Replacement:
    return _splat_as(op, rw)


@rule("neuron.transpose", "permutation")
def transpose_of_splat(op: Any, rw: Rewriter) -> Replacement:
    return _splat_as(op, rw)


@rule("neuron.slice", "start_indices", "limit_indices", "strides")
def slice_of_splat(op: Any, rw: Rewriter) -> Replacement:
    return _splat_as(op, rw)


def _splat_as(op: Any, rw: Rewriter) -> Replacement:
    """A constant of equal elements in another static shape."""
    type, dense = op.result.type, op.x.dense
    if dense is None or not dense.is_splat or not type.is_static:
        return None
    return rw.b.constant(value=Dense(type.dtype, type.shape, dense.data), out=type)
