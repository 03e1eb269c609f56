"""Tensors made from nothing: constants, ranges, identities, triangles."""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
from neuron_ir.dims import Dim
from neuron_ir.dtypes import F64, I64
from neuron_ir.frontends.torch.lowering import Context, lowers
from neuron_ir.types import TensorType


# Memory that torch leaves uninitialised reads as zeros here.
@lowers(
    "zeros.default", "zeros_like.default", "new_zeros.default", "empty.memory_format", "empty_like.default", "new_empty.default",
    "empty_permuted.default", "empty_strided.default", "new_empty_strided.default", "zero.default",
)  # fmt: skip
def zeros(c: Context, *_args: Any, **_options: Any) -> Value:
    return c.scalar(0, c.out.dtype, c.out.shape)


@lowers("ones.default", "ones_like.default", "new_ones.default")
def ones(c: Context, *_args: Any, **_options: Any) -> Value:
    return c.scalar(1, c.out.dtype, c.out.shape)


@lowers("full.default", "full_like.default", "new_full.default", "fill.Scalar", "fill.Tensor", "scalar_tensor.default")
def full(c: Context, *args: Any, **_options: Any) -> Value:
    return c.scalar(args[0] if len(args) == 1 else args[2] if len(args) == 3 else args[1], c.out.dtype, c.out.shape)


@lowers("arange.default", "arange.start", "arange.start_step")
def arange(c: Context, *bounds: Any, **_options: Any) -> Value:
    start, step = (bounds[0] if len(bounds) > 1 else 0), (bounds[2] if len(bounds) > 2 else 1)
    return ramp(c, start, step, c.out)


def ramp(c: Context, start: Any, step: Any, out: TensorType) -> Value:
    """``start + step * i``; fractions in f64, rounded once."""
    whole = all(isinstance(v, Dim | int) or float(v).is_integer() for v in (start, step))
    exact = out.dtype if whole and out.dtype.is_integer and out.dtype.bits >= 32 else I64 if whole else F64
    x = c.b.iota(iota_dimension=0, out=TensorType(out.shape, exact))
    if step != 1:
        x = c.b.multiply(x, c.scalar(step, exact, out.shape))
    if start != 0:
        x = c.b.add(x, c.scalar(start, exact, out.shape))
    return c.cast(x, out.dtype)


@lowers("linspace.default")
def linspace(c: Context, start: Any, end: Any, steps: int, **_options: Any) -> Value:
    out = c.out
    if not isinstance(steps, int):
        raise c.unsupported("a symbolic number of steps")
    if steps == 1:
        return c.scalar(start, out.dtype, out.shape)
    # torch counts from whichever end is nearer, so that both ends are exact
    at = c.b.iota(iota_dimension=0, out=TensorType(out.shape, F64))
    first, last = (c.scalar(v, F64, out.shape) for v in (start, end))
    step = c.b.divide(c.b.subtract(last, first), c.scalar(steps - 1, F64, out.shape))
    up = c.b.add(first, c.b.multiply(step, at))
    down = c.b.subtract(last, c.b.multiply(step, c.b.subtract(c.scalar(steps - 1, F64, out.shape), at)))
    near = c.b.compare(at, c.scalar(steps // 2, F64, out.shape), direction="LT")
    return c.cast(c.b.select(near, up, down), out.dtype)


@lowers("eye.default", "eye.m")
def eye(c: Context, *_args: Any, **_options: Any) -> Value:
    return identity(c, c.out)


def identity(c: Context, type: TensorType) -> Value:
    """Ones on the main diagonal of the last two dims, the rest 0."""
    rows, columns = indices(c, type.shape)
    return c.cast(c.b.compare(rows, columns, direction="EQ"), type.dtype)


def indices(c: Context, shape: Any) -> tuple[Value, Value]:
    """The row and the column of each element of the last two dims, in i64."""
    n = len(shape)
    return tuple(c.b.iota(iota_dimension=d, out=TensorType(shape, I64)) for d in (n - 2, n - 1))  # type: ignore[return-value]


@lowers("tril.default")
def tril(c: Context, x: Value, diagonal: int = 0) -> Value:
    return triangle(c, x, False, diagonal)


@lowers("triu.default")
def triu(c: Context, x: Value, diagonal: int = 0) -> Value:
    return triangle(c, x, True, diagonal)


def triangle(c: Context, x: Value, upper: bool, diagonal: int = 0) -> Value:
    """One triangle of the last two dims with the main diagonal, or the one ``diagonal`` above it; the rest 0."""
    rows, columns = indices(c, x.shape)
    if diagonal != 0:
        rows = c.b.add(rows, c.scalar(diagonal, I64, x.shape))
    kept = c.b.compare(rows, columns, direction="LE" if upper else "GE")
    return c.b.select(kept, x, c.scalar(0, x.dtype, x.shape))
