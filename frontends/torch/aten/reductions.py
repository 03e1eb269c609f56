"""Reductions and running reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dims import DimLike
from neuron_ir.dtypes import BOOL, F64, I64, DType
from neuron_ir.frontends.torch.lowering import Context, axes_of, axis_of, lowers
from neuron_ir.types import TensorType


def reduced_axes(c: Context, x: Value, dims: Any, keepdim: bool) -> tuple[int, ...]:
    """The axes that go: torch reads an empty list as all of them, except where its result shows that it did not."""
    rank = len(x.shape)
    if dims is not None and not isinstance(dims, int) and not dims and not keepdim and rank and len(c.out.shape) == rank:
        return ()
    return axes_of(dims, rank)


def count_of(x: Value, axes: Sequence[int]) -> DimLike:
    """How many elements are reduced to one."""
    n: DimLike = 1
    for a in axes:
        n = n * x.shape[a]
    return n


# --- sums -------------------------------------------------------------------------------------------------------------


@lowers("sum.dim_IntList", "sum.default")
def sum_(c: Context, x: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    x = c.cast(x, c.out.dtype)
    return c.b.reduce_sum(x, axes=reduced_axes(c, x, dims, keepdim), keepdims=keepdim, out=c.out)


@lowers("nansum.default")
def nansum(c: Context, x: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    if x.dtype.is_float:
        e = Expr(c.b, x)
        x = e.is_nan().where(e.lift(0.0), e).value
    return sum_(c, x, dims, keepdim)


@lowers("prod.default", "prod.dim_int")
def prod(c: Context, x: Value, dim: int | None = None, keepdim: bool = False, dtype: Any = None) -> Value:
    x = c.cast(x, c.out.dtype)
    return c.b.reduce_prod(x, axes=axes_of(dim, len(x.shape)), keepdims=keepdim, out=c.out)


@lowers("mean.dim", "mean.default")
def mean(c: Context, x: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    wide = c.out.dtype.accumulator
    e = Expr(c.b, c.cast(x, wide))
    return c.cast(e.mean(reduced_axes(c, x, dims, keepdim), keepdim).value, c.out.dtype)


@lowers("count_nonzero.dim_IntList", "count_nonzero.default")
def count_nonzero(c: Context, x: Value, dims: Any = None) -> Value:
    return c.b.reduce_sum(c.cast(x, BOOL), axes=axes_of(dims, len(x.shape)), out=c.out)


@lowers("trace.default")
def trace(c: Context, x: Value) -> Value:
    from neuron_ir.frontends.torch.aten.creation import indices

    rows, columns = indices(c, x.shape)
    kept = c.b.select(c.b.compare(rows, columns, direction="EQ"), x, c.scalar(0, x.dtype, x.shape))
    return c.b.reduce_sum(c.cast(kept, c.out.dtype), axes=(0, 1), out=c.out)


# --- spread -----------------------------------------------------------------------------------------------------------


@lowers("var.correction", "std.correction", "var.dim", "std.dim", "var.default", "std.default")
def variance(
    c: Context, x: Value, dims: Any = None, unbiased: Any = True, keepdim: bool = False, *, correction: Any = None
) -> Value:
    if isinstance(dims, bool):  # var(x, unbiased)
        dims, unbiased = None, dims
    value, _ = _variance(c, x, dims, float(unbiased) if correction is None else correction, keepdim)
    return c.cast(value.value, c.out.dtype)


@lowers("var_mean.correction", "std_mean.correction")
def variance_and_mean(
    c: Context, x: Value, dims: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Value, Value]:
    value, center = _variance(c, x, dims, 1 if correction is None else correction, keepdim)
    return c.cast(value.value, c.outs[0].dtype), c.cast(c.reshape(center.value, c.outs[1].shape), c.outs[1].dtype)


def _variance(c: Context, x: Value, dims: Any, correction: Any, keepdim: bool) -> tuple[Expr, Expr]:
    """Variance (or its root, by the operation's name) in two passes, and the mean with its dims kept."""
    axes = axes_of(dims, len(x.shape))
    e = Expr(c.b, c.cast(x, x.dtype.accumulator))
    center = e.mean(axes)
    apart = e - center.broadcast(e.shape)
    if e.dtype.is_complex:
        apart = Expr(c.b, c.b.complex_abs(apart.value))
    total = (apart * apart).sum(axes, keepdim)
    n = count_of(x, axes)
    if isinstance(n, int):
        freedom = max(float(n) - float(correction), 0.0)
        result = total / freedom
    else:
        result = total / (total.size(n) - float(correction)).maximum(0.0)
    return (result.sqrt() if str(c.node.target).startswith("aten.std") else result), center


# --- largest and smallest ---------------------------------------------------------------------------------------------


def _is_max(c: Context) -> bool:
    return "max" in str(c.node.target).split(".")[1]


@lowers("amax.default", "amin.default", "max.default", "min.default")
def extreme(c: Context, x: Value, dims: Any = (), keepdim: bool = False) -> Value:
    return _extreme(c, x, axes_of(dims, len(x.shape)), keepdim, _is_max(c))


def _extreme(c: Context, x: Value, axes: Sequence[int], keepdim: bool, largest: bool) -> Value:
    return (c.b.reduce_max if largest else c.b.reduce_min)(x, axes=tuple(axes), keepdims=keepdim)


@lowers("aminmax.default")
def aminmax(c: Context, x: Value, *, dim: int | None = None, keepdim: bool = False) -> tuple[Value, Value]:
    axes = axes_of(dim, len(x.shape))
    least, most = (c.b.make(f"neuron.reduce_{n}", x, axes=axes, keepdims=keepdim) for n in ("min", "max"))
    return c.reshape(least, c.outs[0].shape), c.reshape(most, c.outs[1].shape)


@lowers("max.dim", "min.dim")
def extreme_and_place(c: Context, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    if not x.shape:
        return x, c.scalar(0, I64)
    axis = axis_of(dim, len(x.shape))
    pick = c.b.argmax if _is_max(c) else c.b.argmin
    return _extreme(c, x, (axis,), keepdim, _is_max(c)), pick(x, axis=axis, keepdims=keepdim)


@lowers("argmax.default", "argmin.default")
def arg_extreme(c: Context, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    if not x.shape:
        return c.scalar(0, I64)
    pick = c.b.argmax if _is_max(c) else c.b.argmin
    return pick(x, axis=None if dim is None else axis_of(dim, len(x.shape)), keepdims=keepdim)


@lowers("any.dim", "any.default", "any.dims", "all.dim", "all.default", "all.dims")
def truth(c: Context, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    reduce = c.b.reduce_or if str(c.node.target).startswith("aten.any") else c.b.reduce_and
    return c.cast(reduce(c.cast(x, BOOL), axes=reduced_axes(c, x, dims, keepdim), keepdims=keepdim), c.out.dtype)


# --- norms ------------------------------------------------------------------------------------------------------------


@lowers("linalg_vector_norm.default")
def vector_norm(c: Context, x: Value, order: Any = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    if dtype is not None:
        x = c.cast(x, c.symbols.dtype(dtype))
    size = sizes(c, x, c.out.dtype.accumulator)
    return c.cast(norm_of(c, size, float(order), axes_of(dims, len(x.shape)), keepdim).value, c.out.dtype)


@lowers("norm.Scalar", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "norm.ScalarOpt_dtype")
def norm(c: Context, x: Value, order: Any = None, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return vector_norm(c, x, 2 if order is None else order, dims, keepdim, dtype=dtype)


def sizes(c: Context, x: Value, wide: DType) -> Expr:
    """Absolute values, in the type that norms are formed in."""
    if x.dtype.is_complex:
        return Expr(c.b, c.b.complex_abs(x)).cast(wide)
    return Expr(c.b, c.cast(x, wide)).abs()


def norm_of(c: Context, size: Expr, order: float, axes: Sequence[int], keepdim: bool) -> Expr:
    """The norm of absolute values along ``axes``."""
    if order in (math.inf, -math.inf):
        if any(size.shape[a] == 0 for a in axes):  # torch allows it for the largest only, which is 0
            kept = [1 if i in axes else d for i, d in enumerate(size.shape) if keepdim or i not in axes]
            return size.lift(0.0).broadcast(kept)
        return Expr(c.b, _extreme(c, size.value, axes, keepdim, order > 0))
    if order == 0:
        return size.compare("NE", 0.0).cast(size.dtype).sum(axes, keepdim)
    if order == 1:
        return size.sum(axes, keepdim)
    if order == 2:
        return (size * size).sum(axes, keepdim).sqrt()
    return size.binary("power", order).sum(axes, keepdim).binary("power", 1.0 / order)


@lowers("logsumexp.default")
def logsumexp(c: Context, x: Value, dims: Any, keepdim: bool = False) -> Value:
    """With the largest (real part) taken out, unless it is infinite."""
    axes = axes_of(dims, len(x.shape))
    e = Expr(c.b, c.cast(x, c.out.dtype.accumulator))
    most = Expr(c.b, c.b.real(e.value)).max(axes) if e.dtype.is_complex else e.max(axes)
    most = most.abs().compare("EQ", math.inf).where(most.lift(0.0), most).cast(e.dtype)
    kept = (e - most.broadcast(e.shape)).exp().sum(axes, True).log() + most
    return c.cast(c.reshape(kept.value, c.out.shape), c.out.dtype)


@lowers("dist.default")
def dist(c: Context, a: Value, b: Value, order: Any = 2) -> Value:
    from neuron_ir.dialects.neuron.broadcasting import broadcast_dims

    wide = a.dtype.accumulator
    shape = broadcast_dims(a.shape, b.shape) or ()
    apart = c.b.subtract(*c.spread(a, b, dtype=wide, shape=shape))
    real = wide.real if wide.is_complex else wide
    return c.cast(norm_of(c, sizes(c, apart, real), float(order), tuple(range(len(shape))), False).value, c.out.dtype)


# --- running ----------------------------------------------------------------------------------------------------------


@lowers("cumsum.default", "cumprod.default", "logcumsumexp.default")
def cumulative(c: Context, x: Value, dim: int, dtype: Any = None) -> Value:
    name = str(c.node.target).split(".")[1]
    y = c.cast(x, c.out.dtype)
    if not x.shape:
        return y
    op = "cumlogsumexp" if name == "logcumsumexp" else name
    return c.b.make(f"neuron.{op}", y, axis=axis_of(dim, len(x.shape)), out=TensorType(x.shape, c.out.dtype))


@lowers("cummax.default", "cummin.default")
def cumulative_extreme(c: Context, x: Value, dim: int) -> tuple[Value, Value]:
    """The running extreme and the last place that holds it; once NaN is met, the last NaN."""
    if not x.shape:
        return x, c.scalar(0, I64)
    axis = axis_of(dim, len(x.shape))
    ordered = c.cast(x, I64) if x.dtype is BOOL else x
    values = c.b.make("neuron.cummax" if _is_max(c) else "neuron.cummin", ordered, axis=axis)
    hit = c.b.compare(ordered, values, direction="EQ")
    if x.dtype.is_float:
        hit = c.b.or_(hit, c.b.is_nan(x))
    places = c.b.iota(iota_dimension=axis, out=TensorType(x.shape, I64))
    held = c.b.select(hit, places, c.scalar(0, I64, x.shape))
    return c.cast(values, x.dtype), c.b.cummax(held, axis=axis)


# --- gradients of reductions ------------------------------------------------------------------------------------------


@lowers("_softmax_backward_data.default", "_log_softmax_backward_data.default")
def softmax_backward(c: Context, grad: Value, y: Value, dim: int, _input_dtype: Any) -> Value:
    wide = y.dtype.accumulator
    g, out = (Expr(c.b, c.cast(v, wide)) for v in (grad, y))
    if not y.shape:
        return c.scalar(0.0, c.out.dtype)
    axes = (axis_of(dim, len(y.shape)),)
    if "log_softmax" in str(c.node.target):
        result = g - out.exp() * g.sum(axes).broadcast(g.shape)
    else:
        result = (g - (g * out).sum(axes).broadcast(g.shape)) * out
    return c.cast(result.value, c.out.dtype)


# --- bits -------------------------------------------------------------------------------------------------------------


@lowers("hash_tensor.default")
def hash_tensor(c: Context, x: Value, dims: Any = (), *, keepdim: bool = False, mode: int = 0) -> Value:
    """Exclusive or of the bits of every element as a 64-bit number; floats count as f64."""
    from neuron_ir.dtypes import U64

    if mode != 0 or x.dtype.is_complex:
        raise c.unsupported(f"mode {mode} of {x.dtype}")
    if x.dtype.is_float:
        bits = c.b.bitcast_convert(c.cast(x, F64), out=TensorType(x.shape, U64))
    else:
        bits = c.b.cast(x if x.dtype is not BOOL else c.cast(x, I64), out=TensorType(x.shape, U64))
    return c.b.reduce_xor(bits, axes=axes_of(dims, len(x.shape)), keepdims=keepdim)
