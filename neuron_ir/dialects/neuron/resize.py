"""Interpolation of images and sequences by torch's rules."""

from __future__ import annotations

from neuron_ir.dtypes import F64
from neuron_ir.opdef import ANY, DIMS, FLOATS, Op, attr, op, operand
from neuron_ir.types import TensorType

from .broadcasting import COMPUTED
from .expression import Expr, count

MODES = ("nearest", "nearest_exact", "linear", "cubic", "lanczos")
REACH = {"linear": 1, "cubic": 2, "lanczos": 3}  # of the antialiasing filter, in elements of the coarser side


@op(
    "neuron.interpolate",
    aten=[
        *(f"upsample_nearest{n}d.default" for n in (1, 2, 3)),
        *(f"_upsample_nearest_exact{n}d.default" for n in (1, 2, 3)),
        "upsample_linear1d.default",
        "upsample_bilinear2d.default",
        "upsample_trilinear3d.default",
        "upsample_bicubic2d.default",
        *(f"_upsample_{kind}2d_aa.default" for kind in ("bilinear", "bicubic", "lanczos")),
    ],
)
class Interpolate(Op):
    """Resamples the last ``len(size)`` dims to ``size``: nearest, nearest_exact, linear (bi-, trilinear) or cubic (bicubic, a =
    -0.75).

    ``align_corners`` (linear and cubic) maps the corners' centres onto each other. ``scales``: the user's scale factors, which
    torch uses for the coordinates in place of ``size / input size``; empty, or 0 for a dim without one. ``antialias``
    (linear, cubic with a = -0.5, and always lanczos): the filter is stretched by the factor of a reduction, as Pillow does.
    Weights and sums in f32 (f64 for f64), one rounding at the end.
    """

    x = operand(ANY)
    size = attr(DIMS)
    mode = attr(str, "nearest", MODES)
    align_corners = attr(bool, False)
    scales = attr(FLOATS, ())
    antialias = attr(bool, False)

    def infer(self):
        x, n = self.x.type, len(self.size)
        if not n or x.rank < n:
            raise self.error("shape", f"a size of {n} dim(s) does not fit {x}")
        if any(isinstance(d, int) and d < 1 for d in (*self.size, *x.shape[-n:])):
            raise self.error("shape", f"sizes must be at least 1: from {list(x.shape[-n:])} to {list(self.size)}")
        if self.scales and len(self.scales) != n:
            raise self.error("attr", f"scales = {list(self.scales)} must have {n} entries")
        if not self.mode.startswith("nearest") and x.dtype not in COMPUTED:
            raise self.error("type", f"mode {self.mode} cannot interpolate {x.dtype}")
        if self.mode.startswith("nearest") and self.align_corners:
            raise self.error("attr", f"align_corners has no meaning for mode {self.mode}")
        if self.antialias != (self.mode == "lanczos") and (self.mode == "lanczos" or self.mode not in REACH):
            raise self.error("attr", f"mode {self.mode} with antialias = {str(self.antialias).lower()} is not defined")
        return TensorType((*x.shape[:-n], *self.size), x.dtype)

    def expand(b, x, *, size, mode, align_corners, scales, antialias):
        e = Expr(b, x)
        if not mode.startswith("nearest"):
            e = e.cast(e.dtype.accumulator)
        first = e.rank - len(size)
        for i, n in enumerate(size):
            scale = scales[i] if scales else 0.0
            old, n = count([e.shape[first + i]]), count([n])
            if antialias:
                e = _filtered(e, first + i, *_filter(old, n, mode, align_corners, scale, e.dtype is F64))
            else:
                e = _sampled(e, first + i, _taps(old, n, mode, align_corners, scale, e.dtype is F64))
        return e.cast(x.dtype).value


def _sampled(e, axis, taps):
    """The sum of ``weight * element at index`` along one axis; a weight of ``None`` takes the element as it is."""
    total = None
    for indices, weights in taps:
        part = e.take(indices, axis)
        if weights is not None:
            shape = [len(weights) if i == axis else 1 for i in range(e.rank)]
            part = part * e.table(weights.reshape(shape), e.dtype)
        total = part if total is None else total + part
    return total


def _taps(size, n, mode, align_corners, scale, double):
    """For each of the elements that make one result: its index per result (i64), and its weight."""
    import numpy

    real = numpy.float64 if double else numpy.float32
    out = numpy.arange(n)
    if mode.startswith("nearest"):
        step = numpy.float32(1.0 / scale if scale else numpy.float32(size) / numpy.float32(n))
        centre = numpy.float32(0.5 if mode == "nearest_exact" else 0)
        at = numpy.floor((out.astype(numpy.float32) + centre) * step).astype(numpy.int64)
        return [(numpy.minimum(at, size - 1), None)]
    if align_corners:
        step = real(size - 1) / real(n - 1) if n > 1 else real(0)
        source = out.astype(real) * step
    else:
        step = real(1.0 / scale) if scale else real(size) / real(n)
        source = step * (out.astype(real) + real(0.5)) - real(0.5)
    if mode == "linear":
        return _linear_taps(numpy, numpy.maximum(source, 0) if not align_corners else source, size, n, real)
    return _cubic_taps(numpy, source, size, real)


def _linear_taps(numpy, source, size, n, real):
    if size == n:
        return [(numpy.arange(n), None)]
    low = numpy.minimum(source.astype(numpy.int64), size - 1)
    weight = numpy.clip(source - low.astype(real), 0, 1).astype(real)
    return [(low, real(1) - weight), (numpy.minimum(low + 1, size - 1), weight)]


def _cubic_taps(numpy, source, size, real):
    """The four neighbours, those outside moved to the border."""
    floor = numpy.floor(source)
    low = floor.astype(numpy.int64)
    t = source - floor
    a = real(-0.75)

    def near(x):
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x):
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    one = real(1)
    weights = (far(t + one), near(t), near(one - t), far(one - t + one))
    return [(numpy.clip(low + i - 1, 0, size - 1), w.astype(real)) for i, w in enumerate(weights)]


# --- antialiasing -----------------------------------------------------------------------------------------------------


def _filtered(e, axis, indices, weights):
    """One axis resampled: each result is the sum over its row of ``weights * elements at indices``. Weights of 0 read nothing."""
    n, taps = weights.shape
    split = (*e.shape[:axis], n, taps, *e.shape[axis + 1 :])
    spread = [1] * len(split)
    spread[axis : axis + 2] = [n, taps]
    picked = e.take(indices.reshape(-1), axis).reshape(split)
    table = e.table(weights.reshape(spread), e.dtype)
    return table.compare("EQ", 0.0).where(0.0, picked * table).sum((axis + 1,), False)


def _filter(size, n, mode, align_corners, scale, double):
    """Indices and weights of the elements under the filter around each result, one row per result, unused ones of weight 0."""
    import numpy

    real = numpy.float64 if double else numpy.float32
    if align_corners:
        step = real(size - 1) / real(n - 1) if n > 1 else real(0)
    else:
        step = real(1.0 / scale) if scale else real(size) / real(n)
    stretch = max(step, real(1))
    support = real(REACH[mode]) * stretch
    centre = step * (numpy.arange(n).astype(real) + real(0.5))
    first = numpy.maximum((centre - support + real(0.5)).astype(numpy.int64), 0)
    end = numpy.minimum((centre + support + real(0.5)).astype(numpy.int64), size)
    places = first[:, None] + numpy.arange(max(int((end - first).max()), 1))
    inside = places < end[:, None]
    at = (places - centre[:, None] + real(0.5)) / stretch
    weights = numpy.where(inside, _WINDOWS[mode](numpy, numpy.abs(at)), 0).astype(real)
    return numpy.minimum(places, size - 1), weights / weights.sum(1, keepdims=True, dtype=real)


def _cubic_window(numpy, x, a=-0.5):
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return numpy.where(x < 1, near, numpy.where(x < 2, far, 0))


_WINDOWS = {
    "linear": lambda numpy, x: numpy.maximum(1 - x, 0),
    "cubic": _cubic_window,
    "lanczos": lambda numpy, x: numpy.where(x < 3, numpy.sinc(x) * numpy.sinc(x / 3), 0),
}
