"""Operations that torch itself writes in terms of others and that its export leaves whole: views, repeats, counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dtypes import F64, I64
from neuron_ir.frontends.torch.aten.creation import ramp
from neuron_ir.frontends.torch.aten.views import section, split
from neuron_ir.frontends.torch.lowering import Context, axis_of, lowers
from neuron_ir.types import TensorType


@lowers("ravel.default", "atleast_1d.default", "atleast_2d.default", "atleast_3d.default", "_reshape_copy.default")
def reshaped(c: Context, x: Value, *_shape: Any) -> Value:
    return c.reshape(x, c.out.shape)


@lowers("hsplit.int", "hsplit.array")
def hsplit(c: Context, x: Value, parts: Any) -> tuple[Value, ...]:
    return split(c, x, parts, 1 if len(x.shape) > 1 else 0)


@lowers("vsplit.int", "vsplit.array")
def vsplit(c: Context, x: Value, parts: Any) -> tuple[Value, ...]:
    return split(c, x, parts, 0)


@lowers("dsplit.int", "dsplit.array")
def dsplit(c: Context, x: Value, parts: Any) -> tuple[Value, ...]:
    return split(c, x, parts, 2)


@lowers("cartesian_prod.default")
def cartesian_prod(c: Context, vectors: Sequence[Value]) -> Value:
    """Each row one element of each vector, the last changing fastest."""
    if len(vectors) == 1:
        return vectors[0]
    grid = tuple(v.shape[0] for v in vectors)
    columns = []
    for i, v in enumerate(vectors):
        wide = c.b.broadcast_in_dim(v, broadcast_dimensions=(i,), out=TensorType(grid, v.dtype))
        columns.append(c.reshape(wide, (*c.out.shape[:1], 1)))
    return c.b.concatenate(*columns, dimension=1)


@lowers("_is_all_true.default", "_is_any_true.default")
def is_true(c: Context, x: Value) -> Value:
    return (c.b.reduce_and if "all" in str(c.node.target) else c.b.reduce_or)(x)


@lowers("range.default", "range.step")
def range_(c: Context, start: Any, end: Any, step: Any = 1, **_options: Any) -> Value:
    return ramp(c, start, step, c.out)


@lowers("fft_fftfreq.default", "fft_rfftfreq.default")
def fftfreq(c: Context, n: int, d: float = 1.0, **_options: Any) -> Value:
    """``i / (n d)``, where the upper half of fftfreq counts down from below 0."""
    places = Expr(c.b, c.b.iota(iota_dimension=0, out=TensorType(c.out.shape, F64)))
    if "rfft" not in str(c.node.target):
        places = places.compare("LT", float((n + 1) // 2)).where(places, places - float(n))
    return c.cast((places * (1.0 / (n * d))).value, c.out.dtype)


# --- windows of signal processing -------------------------------------------------------------------------------------

_COSINES = {"hann": (0.5, 0.5), "hamming": (0.54, 0.46), "blackman": (0.42, 0.5, 0.08)}


@lowers(
    "hann_window.default", "hann_window.periodic", "hamming_window.default", "hamming_window.periodic", "blackman_window.default",
    "blackman_window.periodic", "bartlett_window.default", "bartlett_window.periodic", "hamming_window.periodic_alpha",
    "hamming_window.periodic_alpha_beta",
)  # fmt: skip
def window(c: Context, length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **_options: Any) -> Value:
    """Sums of cosines over ``length`` points (periodic: of which the first comes again), or a triangle."""
    name = str(c.node.target).split(".")[1].removesuffix("_window")
    if length == 1:
        return c.scalar(1, c.out.dtype, c.out.shape)
    places = Expr(c.b, c.b.iota(iota_dimension=0, out=TensorType(c.out.shape, F64)))
    turn = places * (1.0 / (length if periodic else length - 1))
    if name == "bartlett":
        return c.cast((turn.lift(1.0) - (turn * 2.0 - 1.0).abs()).value, c.out.dtype)
    factors = (alpha, beta) if name == "hamming" else _COSINES[name]
    y = turn.lift(0.0).broadcast(turn.shape)
    for k, factor in enumerate(factors):
        y = y + (turn * (2.0 * math.pi * k)).unary("cosine") * ((-1.0) ** k * factor)
    return c.cast(y.value, c.out.dtype)


# --- segments and bins ------------------------------------------------------------------------------------------------


@lowers("segment_reduce.default")
def segment_reduce(
    c: Context, x: Value, reduce: str, *, lengths: Value | None = None, indices: Value | None = None, offsets: Value | None = None,
    axis: int = 0, unsafe: bool = False, initial: Any = None,
) -> Value:  # fmt: skip
    """Consecutive slices reduced segment by segment, for segments along the first dim."""
    sizes = offsets if lengths is None else lengths
    if indices is not None or sizes is None or axis_of(axis, len(x.shape)) != 0 or len(sizes.shape) != 1:
        raise c.unsupported("indices, or segments along another dim than the first")
    count = sizes.shape[0] - (lengths is None)
    if lengths is not None:
        ends = c.b.cumsum(sizes, axis=0)
        starts = c.b.subtract(ends, sizes)
    else:
        starts, ends = section(c, sizes, 0, 0, count), section(c, sizes, 0, 1, count + 1)
    rank = len(x.shape)
    wide = (count, *x.shape)
    place = c.b.iota(iota_dimension=1, out=TensorType(wide, I64))
    first, last = (
        c.b.broadcast_in_dim(c.cast(v, I64), broadcast_dimensions=(0,), out=TensorType(wide, I64)) for v in (starts, ends)
    )
    inside = Expr(c.b, c.b.and_(c.b.compare(place, first, direction="GE"), c.b.compare(place, last, direction="LT")))
    neutral = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}[reduce]
    e = inside.where(Expr(c.b, x).broadcast(wide, range(1, rank + 1)), neutral)
    if reduce == "max":
        y = e.max((1,), False)
    elif reduce == "min":
        y = Expr(c.b, c.b.reduce_min(e.value, axes=(1,)))
    else:
        y = Expr(c.b, c.b.reduce_prod(e.value, axes=(1,))) if reduce == "prod" else e.sum((1,), False)
    return _segments_finished(c, y, inside, reduce, initial)


def _segments_finished(c: Context, y: Expr, inside: Expr, reduce: str, initial: Any) -> Value:
    """The initial value counted in; an empty segment gives it, or NaN for a mean without one."""
    if initial is not None:
        first = y.lift(float(initial))
        y = {"sum": y + first, "mean": y + first, "prod": y * first, "max": y.maximum(first), "min": y.minimum(first)}[reduce]
    if reduce == "mean":
        n = inside.cast(y.dtype).sum((1,), False)
        y = n.compare("EQ", 0.0).where(y if initial is not None else math.nan, y / n.maximum(1.0))
    return y.value
