"""Sorting, ranks and places among sorted elements."""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dialects.neuron.shapes import product
from neuron_ir.dims import DimLike
from neuron_ir.dtypes import I64
from neuron_ir.frontends.torch.aten.views import section
from neuron_ir.frontends.torch.lowering import Context, axis_of, lowers
from neuron_ir.frontends.torch.promotion import promoted
from neuron_ir.types import TensorType


@lowers("sort.default")
def sort(c: Context, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    if not x.shape:
        return x, c.scalar(0, I64)
    axis = axis_of(dim, len(x.shape))
    places = c.b.argsort(x, dimension=axis, descending=descending)
    return c.b.take_along_axis(x, places, axis=axis, policy="clamp"), places


@lowers("sort.stable")
def sort_stable(
    c: Context, x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    return sort(c, x, dim, descending)


@lowers("argsort.default")
def argsort(c: Context, x: Value, dim: int = -1, descending: bool = False) -> Value:
    return sort(c, x, dim, descending)[1]


@lowers("argsort.stable")
def argsort_stable(c: Context, x: Value, *, stable: bool, dim: int = -1, descending: bool = False) -> Value:
    return sort(c, x, dim, descending)[1]


@lowers("msort.default")
def msort(c: Context, x: Value) -> Value:
    return sort(c, x, 0)[0]


@lowers("topk.default")
def topk(c: Context, x: Value, k: DimLike, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not x.shape:
        return (x, c.scalar(0, I64)) if k == 1 else (c.scalar(0, x.dtype, c.out.shape), c.scalar(0, I64, c.out.shape))
    axis = axis_of(dim, len(x.shape))
    if isinstance(k, int):
        return c.b.top_k(x, k=k, axis=axis, largest=largest)
    places = section(c, c.b.argsort(x, dimension=axis, descending=largest), axis, 0, k)
    return c.b.take_along_axis(x, places, axis=axis, policy="clamp"), places


# --- one element by its rank ------------------------------------------------------------------------------------------


def _picked(c: Context, x: Value, places: Value, rank: Value | int, axis: int, keepdim: bool) -> tuple[Value, Value]:
    """The element of each row at the sorted place ``rank`` (a number, or one per row), and its index."""
    if isinstance(rank, int):
        index = section(c, places, axis, rank, rank + 1)
    else:
        index = c.b.take_along_axis(places, rank, axis=axis, policy="clamp")
    value = c.b.take_along_axis(x, index, axis=axis, policy="clamp")
    kept = [d for i, d in enumerate(value.shape) if keepdim or i != axis]
    return c.reshape(value, kept), c.reshape(index, kept)


@lowers("kthvalue.default")
def kthvalue(c: Context, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    if not x.shape:
        return x, c.scalar(0, I64)
    axis = axis_of(dim, len(x.shape))
    return _picked(c, x, c.b.argsort(x, dimension=axis), k - 1, axis, keepdim)


@lowers("median.dim", "nanmedian.dim")
def median_dim(c: Context, x: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The lower of two middle elements. ``median`` gives the first NaN where there is one, ``nanmedian`` leaves NaNs out."""
    if not x.shape:
        return x, c.scalar(0, I64)
    axis = axis_of(dim, len(x.shape))
    size = x.shape[axis]
    if not isinstance(size, int):
        raise c.unsupported(f"the symbolic size {size}")
    places = c.b.argsort(x, dimension=axis)
    if not x.dtype.is_float:
        return _picked(c, x, places, (size - 1) // 2, axis, keepdim)
    numbers = Expr(c.b, c.b.not_(c.b.is_nan(x))).cast(I64).sum((axis,))
    half = Expr(c.b, c.b.divide((numbers - 1).maximum(0).value, c.scalar(2, I64, numbers.shape)))
    if "nanmedian" not in str(c.node.target):  # NaNs are sorted to the end, so that the first of them is at their number
        half = numbers.compare("EQ", size).where(numbers.lift((size - 1) // 2), numbers)
    return _picked(c, x, places, half.value, axis, keepdim)


@lowers("median.default", "nanmedian.default")
def median(c: Context, x: Value) -> Value:
    if not x.type.is_static:
        raise c.unsupported("symbolic sizes")
    if not x.type.size:
        return c.scalar(float("nan"), x.dtype)
    return median_dim(c, c.reshape(x, (x.type.size,)), 0)[0]


@lowers("mode.default")
def mode(c: Context, x: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The most frequent element of each row, the smallest of equally frequent ones, and the last place where it stands."""
    if not x.shape:
        return x, c.scalar(0, I64)
    axis, rank = axis_of(dim, len(x.shape)), len(x.shape)
    places = c.b.argsort(x, dimension=axis)
    ordered = Expr(c.b, c.b.take_along_axis(x, places, axis=axis, policy="clamp"))
    pairs = (*x.shape, x.shape[axis])
    one = ordered.broadcast(pairs, [*range(rank)])
    other = ordered.broadcast(pairs, [rank if i == axis else i for i in range(rank)])
    counts = one.compare("EQ", other).cast(I64).sum((rank,), keepdims=False).maximum(1)
    first = Expr(c.b, c.b.argmax(counts.value, axis=axis, keepdims=True))
    last = first + counts.max((axis,)) - 1
    return _picked(c, x, places, last.value, axis, keepdim)


# --- places among sorted elements -------------------------------------------------------------------------------------


@lowers("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    c: Context, edges: Value, values: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Value | None = None,
) -> Value:  # fmt: skip
    """How many of the sorted elements of each row lie before a value; NaN lies behind all of them."""
    if sorter is not None:
        edges = c.b.take_along_axis(edges, sorter, axis=len(edges.shape) - 1, policy="clamp")
    return _places(c, edges, values, right or side == "right")


@lowers("bucketize.Tensor", "bucketize.Scalar")
def bucketize(c: Context, values: Any, edges: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    if len(edges.shape) != 1:
        raise c.unsupported(f"edges of type {edges.type}; torch takes a vector")
    return _places(c, edges, values, right)


def _places(c: Context, edges: Value, values: Any, right: bool) -> Value:
    dtype, shape = promoted((edges, values)) if isinstance(values, Value) else edges.dtype, c.out.shape
    wide = (*shape, edges.shape[-1])
    n = len(shape)
    value = c.b.broadcast_in_dim(c.scalar(values, dtype, shape), broadcast_dimensions=tuple(range(n)), out=TensorType(wide, dtype))
    lead = range(len(edges.shape) - 1)
    edge = c.b.broadcast_in_dim(c.cast(edges, dtype), broadcast_dimensions=(*lead, n), out=TensorType(wide, dtype))
    behind = c.b.compare(edge, value, direction="GT" if right else "GE")
    return c.cast(c.b.reduce_sum(c.b.not_(behind), axes=(n,)), c.out.dtype)


@lowers("isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor")
def isin(c: Context, elements: Any, tests: Any, *, assume_unique: bool = False, invert: bool = False) -> Value:
    dtype, shape = promoted((elements, tests)), c.out.shape
    listed = c.scalar(tests, dtype, tests.shape if isinstance(tests, Value) else (1,))
    count = product(listed.shape)
    wide, n = (*shape, count), len(shape)
    one = c.b.broadcast_in_dim(c.scalar(elements, dtype, shape), broadcast_dimensions=tuple(range(n)), out=TensorType(wide, dtype))
    other = c.b.broadcast_in_dim(c.reshape(listed, (count,)), broadcast_dimensions=(n,), out=TensorType(wide, dtype))
    found = c.b.reduce_or(c.b.compare(one, other, direction="EQ"), axes=(n,))
    return c.b.not_(found) if invert else found
