"""Mixture-of-experts models: products of groups of rows, and the counts of how many rows each group has."""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dialects.neuron.shapes import product
from neuron_ir.dtypes import BOOL, I32, I64
from neuron_ir.frontends.torch.aten.failures import stop_unless
from neuron_ir.frontends.torch.lowering import Context, lowers
from neuron_ir.types import TensorType

_FEW_BINS = 512  # up to here comparing every element with every bin beats scattering


@lowers("transformers.grouped_mm_fallback.default", "aten._grouped_mm.default")
def grouped_mm(
    c: Context, a: Value, b: Value, offsets: Value | None = None, bias: Value | None = None, out_dtype: Any = None, **options: Any
) -> Value:  # fmt: skip
    offsets = options.get("offs", offsets)
    if bias is not None:
        raise c.unsupported("a bias")
    return c.b.grouped_matmul(a, b, None if offsets is None else c.cast(offsets, I32), dtype=c.out.dtype)


@lowers("transformers.grouped_mm_fallback_backward.default")
def grouped_mm_backward(c: Context, x: Value, weight: Value, offsets: Value, grad: Value) -> tuple[Value, Value]:
    """``y = x[rows of group g] @ weight[g]``: grad_x is that product with transposed weights, grad_weight cuts the depth."""
    ends = c.cast(offsets, I32)
    swapped = c.b.transpose(weight, permutation=(0, 2, 1))
    grad_x = c.b.grouped_matmul(grad, swapped, ends, dtype=c.outs[0].dtype)
    grad_weight = c.b.grouped_matmul(c.b.transpose(x, permutation=(1, 0)), grad, ends, dtype=c.outs[1].dtype)
    return grad_x, grad_weight


@lowers("histc.default")
def histc(c: Context, x: Value, bins: int = 100, min: Any = 0, max: Any = 0) -> Value:
    """torch's bin: ``int((x - min) * bins / (max - min))`` in the element type; the last one holds ``max`` too.

    Equal bounds stand for the least and the greatest element; where those are equal too, for one less and one more.
    """
    if min > max:
        raise c.unsupported(f"bounds from {min} down to {max}")
    if not x.dtype.is_float:
        raise c.unsupported(f"a histogram of {x.dtype}")
    value = Expr(c.b, x)
    low, high = _bounds_of_data(c, value) if min == max and 0 not in x.shape else (value.lift(min), value.lift(max))
    low, high = (Expr(c.b, c.broadcast(v.value, x.shape)) for v in (low, high))
    inside = value.compare("GE", low).both(value.compare("LE", high))
    place = inside.where((value - low) * float(bins) / (high - low), 0.0).cast(I64).minimum(bins - 1)
    return c.cast(count_bins(c, inside.where(place, -1).value, bins), c.out.dtype)


def _bounds_of_data(c: Context, x: Expr) -> tuple[Expr, Expr]:
    """The bounds of a histogram of elements that have to be finite."""
    axes = tuple(range(len(x.shape)))
    stop_unless(c, c.b.reduce_and(c.b.is_finite(x.value), axes=axes), "histc", "an element is not finite")
    low, high = Expr(c.b, c.b.reduce_min(x.value, axes=axes)), Expr(c.b, c.b.reduce_max(x.value, axes=axes))
    same = low.compare("EQ", high)
    return same.where(low - 1.0, low), same.where(high + 1.0, high)


def count_bins(c: Context, place: Value, bins: int) -> Value:
    """How many elements name each of ``bins`` places (i64); others do not count."""
    b, n = c.b, product(place.shape)
    flat = c.reshape(place, (n,))
    if bins <= _FEW_BINS:
        type = TensorType((bins, n), I64)
        at = b.broadcast_in_dim(flat, broadcast_dimensions=(1,), out=type)
        hit = b.compare(at, b.iota(iota_dimension=0, out=type), direction="EQ")
        assert hit.dtype is BOOL
        return b.reduce_sum(hit, axes=(1,))
    ones = c.scalar(1, I64, (n,))
    return b.scatter_elements(c.scalar(0, I64, (bins,)), flat, ones, axis=0, mode="add", policy="drop")
