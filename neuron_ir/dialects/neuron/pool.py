"""Pooling by torch's rules."""

from __future__ import annotations

import math
from itertools import product

from neuron_ir.dtypes import I64
from neuron_ir.opdef import INT, INTS, REAL, Op, attr, op, operand
from neuron_ir.types import TensorType, same_shape

from .broadcasting import COMPUTED
from .expression import Expr, concatenate, count, pair_by
from .pool_windows import filled, members, pads_for, per_dim, pooled_size
from .shapes import product as elements


def _lowest(dtype):
    """What every element of the type beats or equals."""
    return -math.inf if dtype.is_float else -dtype.max - 1 if dtype.kind == "int" else 0


def _window(self, dilation):
    """Kernel, stride, padding and dilation with one entry per spatial dim, checked."""
    n = len(self.kernel)
    if not n or self.x.type.rank < n:
        raise self.error("shape", f"a kernel of {n} dim(s) does not fit {self.x.type}")
    kernel = per_dim(self, "kernel", self.kernel, n, 1, 1)
    stride = per_dim(self, "stride", self.stride or self.kernel, n, 1, 1)
    padding = per_dim(self, "padding", self.padding, n, 0, 0)
    holes = per_dim(self, "dilation", dilation, n, 1, 1)
    for k, p, d in zip(kernel, padding, holes, strict=True):
        if 2 * p > d * (k - 1) + 1:
            raise self.error("attr", f"padding {p} is more than half of a kernel of {k} with dilation {d}")
    return kernel, stride, padding, holes


def _pooled(self, window):
    """The result's shape."""
    n = len(self.kernel)
    lead, sizes = self.x.shape[:-n], self.x.shape[-n:]
    counts = [pooled_size(d, *w, self.ceil_mode) for d, w in zip(sizes, zip(*window, strict=True), strict=True)]
    for i, (d, c) in enumerate(zip(sizes, counts, strict=True)):
        if isinstance(c, int) and c < 1:
            raise self.error("shape", f"a kernel of {self.kernel[i]} does not fit the size {d} with padding {window[2][i]}")
    return (*lead, *counts)


def _reduce(b, values, inits, shape, window, ceil, body):
    """``reduce_window`` over the last dims."""
    n, rank = len(window[0]), len(shape)
    ones, sizes = (1,) * (rank - n), values[0].shape[rank - n :]
    return b.reduce_window(
        *[e.value for e in (*values, *inits)],
        window_dimensions=ones + tuple(window[0]),
        window_strides=ones + tuple(window[1]),
        window_dilations=ones + tuple(window[3]),
        padding=((0, 0),) * (rank - n) + tuple(pads_for(sizes, shape[rank - n :], window, ceil)),
        out=[TensorType(shape, e.dtype) for e in values],
        body=pair_by(body),
    )


def larger(v, at, other, other_at):
    """Of two (value, place) pairs the one that torch's scan keeps: the larger value, its first place; NaN wins, at its last
    place.
    """
    better = other.compare("GT", v).either(other.compare("EQ", v).both(other_at.compare("LT", at)))
    if v.dtype.is_float:
        nan, other_nan = v.is_nan(), other.is_nan()
        later = other_nan.both(nan.inverted().either(other_at.compare("GT", at)))
        better = better.either(later)
    return better.where(other, v), better.where(other_at, at)


def places(e, n):
    """The row-major place of every element within the last ``n`` dims, i64."""
    sizes = e.shape[e.rank - n :]
    flat = e.iota((elements(sizes),), 0, I64).reshape(sizes)
    return flat.broadcast(e.shape)


NOWHERE = 2**63 - 1


@op(
    "neuron.max_pool",
    aten=["max_pool1d.default", "max_pool2d.default", "max_pool3d.default", "max_pool2d_with_indices.default"],
    traits=["reduction"],
)
class MaxPool(Op):
    """The largest element of each window over the last ``len(kernel)`` dims; NaN wins. Padding is never picked.

    ``stride`` (empty: the kernel), ``padding`` (both sides, at most half the kernel) and ``dilation`` have one entry per
    spatial dim, or one for all. ``ceil_mode``: a last window may hang over the end. With ``indices`` also gives i64 places:
    row-major within the spatial dims, the first among equals, the last NaN.
    """

    x = operand(REAL)
    kernel = attr(INTS)
    stride = attr(INTS, ())
    padding = attr(INTS, ())
    dilation = attr(INTS, ())
    ceil_mode = attr(bool, False)
    indices = attr(bool, False)

    def infer(self):
        shape = _pooled(self, _window(self, self.dilation))
        y = TensorType(shape, self.x.dtype)
        return (y, TensorType(shape, I64)) if self.indices else y

    def expand(b, x, *, kernel, stride, padding, dilation, ceil_mode, indices, out):
        n, e = len(kernel), Expr(b, x)
        window = (kernel, filled(stride or kernel, n, 1), filled(padding, n, 0), filled(dilation, n, 1))
        low = e.lift(_lowest(e.dtype))
        shape = (out[0] if indices else out).shape
        if not indices:
            return _reduce(b, [e], [low], shape, window, ceil_mode, lambda v, w: v.maximum(w))
        at = places(e, n)
        return _reduce(b, [e, at], [low, at.lift(NOWHERE)], shape, window, ceil_mode, larger)


@op("neuron.avg_pool", aten=["avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default"], traits=["reduction"])
class AvgPool(Op):
    """The mean of each window over the last ``len(kernel)`` dims, summed in f32 for narrower floats; integers divide towards 0.

    The sum is divided by ``divisor`` where given; else by the number of elements of the window that lie in the input or, with
    ``count_include_pad``, in its padding. What hangs over the end by ``ceil_mode`` never counts. Other attributes as in
    max_pool.
    """

    x = operand(COMPUTED | INT)
    kernel = attr(INTS)
    stride = attr(INTS, ())
    padding = attr(INTS, ())
    ceil_mode = attr(bool, False)
    count_include_pad = attr(bool, True)
    divisor = attr(int, None)

    def infer(self):
        if self.divisor == 0:
            raise self.error("attr", "divisor must not be 0")
        return TensorType(_pooled(self, _window(self, ())), self.x.dtype)

    def expand(b, x, *, kernel, stride, padding, ceil_mode, count_include_pad, divisor, out):
        n, e = len(kernel), Expr(b, x)
        window = (kernel, filled(stride or kernel, n, 1), filled(padding, n, 0), (1,) * n)
        e = e.cast(e.dtype.accumulator) if e.dtype.is_float else e
        total = e.new(_reduce(b, [e], [e.lift(0)], out.shape, window, ceil_mode, lambda v, w: v + w))
        plain = not ceil_mode and (count_include_pad or not any(window[2]))
        if divisor is not None or plain:
            return (total / (divisor or math.prod(kernel))).cast(out.dtype).value
        sizes, counts = x.shape[-n:], out.shape[-n:]
        per_axis = [
            members(count([d]), count([c]), k, s, p, count_include_pad)
            for d, c, k, s, p in zip(sizes, counts, *window[:3], strict=True)
        ]
        return (total / _grid(e, per_axis)).cast(out.dtype).value


def _grid(e, per_axis):
    """The products of one number per axis, as a table; one number where all are equal."""
    import numpy

    values = [math.prod(p) for p in product(*per_axis)]
    if len(set(values)) == 1:
        return values[0]
    return e.table(numpy.array(values).reshape([len(a) for a in per_axis]), e.dtype)


def _adaptive_shape(self):
    n = len(self.size)
    if not n or self.x.type.rank < n:
        raise self.error("shape", f"a size of {n} dim(s) does not fit {self.x.type}")
    if min(self.size) < 0:
        raise self.error("attr", f"size = {list(self.size)} must not be negative")
    for d in self.x.shape[-n:]:
        if d == 0:
            raise self.error("shape", f"{self.x.type} has no elements to pool")
    return (*self.x.shape[:-n], *self.size)


def _sections(size, n):
    """Start and end of each of ``n`` windows that cover ``size``; they may overlap by one."""
    return [(i * size // n, -(-(i + 1) * size // n)) for i in range(n)]


def _by_sections(values, axis, n, reduce):
    """Each value with ``axis`` reduced to ``n`` sections by ``reduce(values, axis)``, which keeps the axis with size 1."""
    if n == 0:
        return [v.section(axis, 0, 0) for v in values]
    size = count([values[0].shape[axis]])
    if size % n == 0:
        shape = values[0].shape
        split = (*shape[:axis], n, size // n, *shape[axis + 1 :])
        done = reduce([v.reshape(split) for v in values], axis + 1)
        return [v.reshape((*shape[:axis], n, *shape[axis + 1 :])) for v in done]
    parts = [reduce([v.section(axis, start, end) for v in values], axis) for start, end in _sections(size, n)]
    return [concatenate(column, axis) for column in zip(*parts, strict=True)]


@op(
    "neuron.adaptive_avg_pool",
    aten=[
        "adaptive_avg_pool1d.default",
        "_adaptive_avg_pool2d.default",
        "adaptive_avg_pool2d.default",
        "_adaptive_avg_pool3d.default",
    ],
    traits=["reduction"],
)
class AdaptiveAvgPool(Op):
    """The mean over windows that cut the last dims into ``size`` parts: part i runs from ``floor(i * d / n)`` to ``ceil((i + 1)
    * d / n)``.
    """

    x = operand(COMPUTED)
    size = attr(INTS)

    def infer(self):
        return TensorType(_adaptive_shape(self), self.x.dtype)

    def expand(b, x, *, size, out):
        e = Expr(b, x)
        e, first = e.cast(e.dtype.accumulator), e.rank - len(size)
        per_axis = [[end - start for start, end in _sections(count([d]), n)] for d, n in zip(x.shape[first:], size, strict=True)]
        for i in reversed(range(len(size))):
            (e,) = _by_sections([e], first + i, size[i], lambda v, axis: [v[0].sum([axis])])
        if 0 in size:
            return e.cast(out.dtype).value
        return (e / _grid(e, per_axis)).cast(out.dtype).value


@op(
    "neuron.adaptive_max_pool",
    aten=["adaptive_max_pool1d.default", "adaptive_max_pool2d.default", "adaptive_max_pool3d.default"],
    traits=["reduction"],
)
class AdaptiveMaxPool(Op):
    """The largest element over the windows of adaptive_avg_pool; ``indices`` as in max_pool."""

    x = operand(REAL)
    size = attr(INTS)
    indices = attr(bool, False)

    def infer(self):
        shape = _adaptive_shape(self)
        y = TensorType(shape, self.x.dtype)
        return (y, TensorType(shape, I64)) if self.indices else y

    def expand(b, x, *, size, indices):
        e = Expr(b, x)
        first = e.rank - len(size)
        values = [e, places(e, len(size))] if indices else [e]
        for i in reversed(range(len(size))):
            values = _by_sections(values, first + i, size[i], _largest)
        return tuple(v.value for v in values)


def _largest(values, axis):
    """The largest along one axis, kept with size 1, and its place where places are given."""
    if len(values) == 1:
        return [values[0].max([axis])]
    e, at = values
    low, nowhere = e.lift(_lowest(e.dtype)), at.lift(NOWHERE)
    y, places = e.b.reduce(e.value, at.value, low.value, nowhere.value, dimensions=(axis,), body=pair_by(larger))
    shape = [1 if i == axis else d for i, d in enumerate(e.shape)]
    return [e.new(v).reshape(shape) for v in (y, places)]


@op(
    "neuron.fractional_max_pool",
    aten=["fractional_max_pool2d.default", "fractional_max_pool3d.default"],
    traits=["reduction"],
)
class FractionalMaxPool(Op):
    """The largest element of ``size`` windows of ``kernel`` per dim of ``[N, C, ...]``, moved by ``samples`` ``[N, C, n]``.

    Along a dim of d elements, window i of o begins at ``floor((i + u) * a) - floor(u * a)``, ``a = (d - kernel) / (o - 1)``, and
    the last one at ``d - kernel``; u in [0, 1) is the dim's sample for that image and channel. ``indices`` as in max_pool.
    """

    x = operand(REAL)
    samples = operand(COMPUTED)
    kernel = attr(INTS)
    size = attr(INTS)
    indices = attr(bool, False)

    def infer(self):
        n, x, samples = len(self.kernel), self.x.type, self.samples.type
        if x.rank != n + 2 or len(self.size) != n or not same_shape(samples.shape, (*x.shape[:2], n)):
            raise self.error("shape", f"kernel {list(self.kernel)}, size {list(self.size)}, samples {samples} do not fit {x}")
        for d, k, o in zip(x.shape[2:], self.kernel, self.size, strict=True):
            if min(k, o) < 1 or (isinstance(d, int) and o + k - 1 > d):
                raise self.error("shape", f"{o} windows of {k} do not fit the size {d}")
        shape = (*x.shape[:2], *self.size)
        y = TensorType(shape, self.x.dtype)
        return (y, TensorType(shape, I64)) if self.indices else y

    def expand(b, x, samples, *, kernel, size, indices):
        e, u, n = Expr(b, x), Expr(b, samples), len(kernel)
        at, stride = None, count(x.shape[2:])
        for i, (d, k, o) in enumerate(zip(x.shape[2:], kernel, size, strict=True)):
            rows = _fractional_rows(u.section(2, i, i + 1), count([d]), k, o).reshape((*x.shape[:2], o * k))
            stride //= d
            full = (*e.shape[: i + 2], o * k, *e.shape[i + 3 :])
            taken = b.take_along_axis(e.value, rows.broadcast(full, (0, 1, i + 2)).value, axis=i + 2, policy="clamp")
            e = e.new(taken)
            axes = [*x.shape[:2], *(s * t if j == i else 1 for j, (s, t) in enumerate(zip(size, kernel, strict=True)))]
            here = rows.reshape(axes) * stride
            at = here if at is None else at + here
        split = [*x.shape[:2], *(v for pair in zip(size, kernel, strict=True) for v in pair)]
        values = [e.reshape(split), at.reshape(split)] if indices else [e.reshape(split)]
        for i in reversed(range(n)):
            values = _largest(values, 3 + 2 * i)
        shape = (*x.shape[:2], *size)
        return tuple(v.reshape(shape).value for v in values)


def _fractional_rows(u, d, k, o):
    """The elements under each window along one dim, i64 ``[N, C, o, k]``."""
    shape = (*u.shape[:2], o)
    last = u.iota(shape, 2, I64)
    start = last.lift(d - k).broadcast(shape)
    if o > 1:
        alpha = (u.lift(float(d - k)) / float(o - 1)).broadcast(u.shape)
        moved = ((last.cast(u.dtype) + u) * alpha).unary("floor") - (u * alpha).unary("floor")
        start = last.compare("EQ", o - 1).where(start, moved.cast(I64))
    full = (*shape, k)
    return start.broadcast(full, (0, 1, 2)) + start.iota(full, 3, I64)
