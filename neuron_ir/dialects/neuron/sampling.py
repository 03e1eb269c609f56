"""Reading an image at any points (spatial transformers), by torch's rules."""

from __future__ import annotations

from itertools import product

from neuron_ir.dtypes import I64
from neuron_ir.opdef import Op, attr, op, operand
from neuron_ir.types import TensorType

from .broadcasting import COMPUTED, agree
from .expression import Expr, count

MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")


@op("neuron.grid_sample", aten=["grid_sampler_2d.default", "grid_sampler_3d.default"])
class GridSample(Op):
    """Elements of ``x`` ``[N, C, *sizes]`` at the points of ``grid`` ``[N, *out, n]``, as ``[N, C, *out]``.

    A point has one number for each of the n spatial dims, the last dim's first; -1 and 1 are the outer edges of the first and last
    element, or their centres with ``align_corners``. ``mode``: ``linear``, ``nearest`` (halves to even) or ``cubic`` (n = 2, a =
    -0.75). ``padding`` says what lies outside: ``zeros``, the nearest element (``border``), or the image mirrored at its edges
    (``reflection``). Computed in f32 (f64 for f64), rounded once. NaN counts as -1 where padding is not zeros.
    """

    x = operand(COMPUTED)
    grid = operand(COMPUTED)
    mode = attr(str, "linear", MODES)
    padding = attr(str, "zeros", PADDINGS)
    align_corners = attr(bool, False)

    def infer(self):
        x, grid = self.x.type, self.grid.type
        n = x.rank - 2
        if n < 1 or grid.rank != x.rank or not agree(grid.shape[-1], n) or not agree(grid.shape[0], x.shape[0]):
            raise self.error("shape", f"{x} needs points of [{x.shape[0] if x.rank else 'N'}, ..., {max(n, 1)}], not {grid}")
        if any(d == 0 for d in x.shape[2:]):
            raise self.error("shape", f"{x} has no elements to read")
        if self.mode == "cubic" and n != 2:
            raise self.error("attr", f"mode cubic is for 2 spatial dims, not {n}")
        return TensorType((*x.shape[:2], *grid.shape[1:-1]), x.dtype)

    def expand(b, x, grid, *, mode, padding, align_corners, out):
        wide = x.dtype.accumulator
        sizes, n = [count([d]) for d in x.shape[2:]], len(x.shape) - 2
        flat = Expr(b, x).cast(wide).reshape((*x.shape[:2], count(sizes)))
        points = Expr(b, grid).cast(wide).reshape((x.shape[0], count(out.shape[2:]), n))
        image = _Image(flat, sizes, padding, align_corners)
        at = [_scaled(points.section(2, n - 1 - i, n - i).reshape(points.shape[:2]), sizes[i], align_corners) for i in range(n)]
        if mode != "cubic":
            at = [image.inside(p, i) for i, p in enumerate(at)]
        if mode == "nearest":
            y = image.read([p.unary("round_nearest_even") for p in at])
        else:
            y = image.weighted([_linear(p) for p in at] if mode == "linear" else [_cubic(p) for p in at], mode == "cubic")
        return y.reshape(out.shape).cast(x.dtype).value


def _scaled(p, size, align_corners):
    """From -1..1 to places of elements."""
    return (p + 1.0) * ((size - 1) / 2) if align_corners else ((p + 1.0) * float(size) - 1.0) / 2.0


def _linear(p):
    """The two neighbours and their weights."""
    low = p.unary("floor")
    t = p - low
    return [(low, 1.0 - t), (low + 1.0, t)]


def _cubic(p, a=-0.75):
    """The four neighbours and their weights."""
    low = p.unary("floor")
    t = p - low

    def near(x):
        return ((x * (a + 2) - (a + 3)) * x) * x + 1.0

    def far(x):
        return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a

    weights = (far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t))
    return [(low + (i - 1.0), w) for i, w in enumerate(weights)]


class _Image:
    """Elements ``[N, C, S]`` of an image of ``sizes``, read at points ``[N, P]`` per dim."""

    def __init__(self, flat, sizes, padding, align_corners):
        self.flat, self.sizes, self.padding, self.align_corners = flat, sizes, padding, align_corners

    def inside(self, p, dim):
        """Places brought into the image as the padding says; the gradient of one that was moved to the edge is 0."""
        if self.padding == "zeros":
            return p
        last = self.sizes[dim] - 1
        if self.padding == "reflection":
            p = _mirrored(p, 0.0, last) if self.align_corners else _mirrored(p, -0.5, last + 1)
        p = p.compare("LT", float(last)).where(p, float(last))
        return p.compare("GT", 0.0).where(p, 0.0)

    def read(self, at):
        """The elements at whole places, 0 outside, as ``[N, C, P]``."""
        index, within = None, None
        for size, p in zip(self.sizes, at, strict=True):
            here = p.compare("GE", 0.0).both(p.compare("LE", float(size - 1)))
            place = here.where(p, 0.0).cast(I64)
            index = place if index is None else index * size + place
            within = here if within is None else within.both(here)
        shape = (*self.flat.shape[:2], index.shape[1])
        index, within = (v.broadcast(shape, (0, 2)) for v in (index, within))
        picked = self.flat.new(self.flat.b.take_along_axis(self.flat.value, index.value, axis=2, policy="clamp"))
        return within.where(picked, 0.0)

    def weighted(self, taps, bring_inside):
        """The sum over all combinations of one neighbour per dim. ``bring_inside``: each neighbour is padded for itself."""
        total = None
        for chosen in product(*taps):
            at = [self.inside(p, i) if bring_inside else p for i, (p, _) in enumerate(chosen)]
            weight = chosen[0][1]
            for _, w in chosen[1:]:
                weight = weight * w
            part = self.read(at)
            part = part * weight.broadcast(part.shape, (0, 2))
            total = part if total is None else total + part
        return total


def _mirrored(p, low, span):
    """A place reflected at ``low`` and ``low + span`` as often as needed."""
    if span == 0:
        return p.lift(0.0).broadcast(p.shape)
    away = (p - low).abs()
    extra = away.binary("remainder", float(span))
    flips = (away / float(span)).unary("floor")
    even = flips.binary("remainder", 2.0).compare("EQ", 0.0)
    return even.where(extra + low, (span + low) - extra)
