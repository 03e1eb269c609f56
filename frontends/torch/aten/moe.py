"""Mixture-of-experts models: products of groups of rows, and the counts of how many rows each group has."""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.shapes import product
from neuron_ir.dtypes import BOOL, I32, I64
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
    """torch's bin: ``int((x - min) * bins / (max - min))`` in the element type; the last one holds ``max`` too."""
    if min >= max:
        raise c.unsupported("bounds that are taken from the data (min = max)")
    if not x.dtype.is_float:
        raise c.unsupported(f"a histogram of {x.dtype}")
    b, type = c.b, x.type
    low, high = c.scalar(min, x.dtype, x.shape), c.scalar(max, x.dtype, x.shape)
    inside = b.and_(b.compare(x, low, direction="GE"), b.compare(x, high, direction="LE"))
    place = b.multiply(b.subtract(x, low), c.scalar(bins, x.dtype, x.shape))
    place = b.divide(place, c.scalar(max - min, x.dtype, x.shape))
    place = b.cast(b.select(inside, place, c.scalar(0, x.dtype, x.shape)), out=type.with_dtype(I64))
    place = b.minimum(place, c.scalar(bins - 1, I64, x.shape))
    return c.cast(count_bins(c, b.select(inside, place, c.scalar(-1, I64, x.shape)), bins), c.out.dtype)


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
