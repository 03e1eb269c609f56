"""Histograms over one or several dims, and combinations of elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dialects.neuron.shapes import product as size_of
from neuron_ir.dtypes import I64
from neuron_ir.frontends.torch.aten.indexing import flat
from neuron_ir.frontends.torch.aten.views import section
from neuron_ir.frontends.torch.lowering import Context, lowers

_MOST_COMBINATIONS = 1 << 20


@lowers("histogram.bin_ct")
def histogram(
    c: Context, x: Value, bins: int = 100, *, range: Sequence[float] | None = None, weight: Value | None = None,
    density: bool = False,
) -> tuple[Value, Value]:  # fmt: skip
    """Counts between edges, the last bin with its upper edge; without a range from the smallest to the largest element."""
    points = c.reshape(x, (size_of(x.shape), 1))
    edges = _edges(c, points, [bins], range)
    return _counts(c, points, edges, weight, density), edges[0]


@lowers("histogram.bins_tensor")
def histogram_between(
    c: Context, x: Value, bins: Value, *, weight: Value | None = None, density: bool = False
) -> tuple[Value, Value]:  # fmt: skip
    return _counts(c, c.reshape(x, (size_of(x.shape), 1)), [bins], weight, density), bins


@lowers("_histogramdd_bin_edges.default")
def histogramdd_edges(
    c: Context, x: Value, bins: Sequence[int], *, range: Sequence[float] | None = None, weight: Value | None = None,
    density: bool = False,
) -> tuple[Value, ...]:  # fmt: skip
    return tuple(_edges(c, _points(c, x), bins, range))


@lowers("_histogramdd_from_bin_cts.default")
def histogramdd(
    c: Context, x: Value, bins: Sequence[int], *, range: Sequence[float] | None = None, weight: Value | None = None,
    density: bool = False,
) -> Value:  # fmt: skip
    points = _points(c, x)
    return _counts(c, points, _edges(c, points, bins, range), weight, density)


@lowers("_histogramdd_from_bin_tensors.default")
def histogramdd_between(
    c: Context, x: Value, bins: Sequence[Value], *, weight: Value | None = None, density: bool = False
) -> Value:  # fmt: skip
    return _counts(c, _points(c, x), bins, weight, density)


def _points(c: Context, x: Value) -> Value:
    """One point per row."""
    return c.reshape(x, (size_of(x.shape[:-1]), x.shape[-1]))


def _edges(c: Context, points: Value, bins: Sequence[int], given: Sequence[float] | None) -> list[Value]:
    """The edges of equal bins along each dim, counted from the nearer end as torch's linspace does."""
    edges = []
    for d, n in enumerate(bins):
        values = Expr(c.b, c.reshape(section(c, points, 1, d, d + 1), (points.shape[0],)))
        low, high = _bounds(c, values, given[2 * d : 2 * d + 2] if given is not None else None)
        place = values.iota((n + 1,), 0, I64)
        at = place.cast(values.dtype)
        step = (high - low) / values.lift(float(n))
        upper = high - step * (at * -1.0 + float(n))
        edges.append(place.compare("LT", (n + 1) // 2).where(low + step * at, upper).value)
    return edges


def _bounds(c: Context, values: Expr, given: Sequence[float] | None) -> tuple[Expr, Expr]:
    """The range of a histogram; one of no width is widened by a half on either side, and that of nothing is from 0 to 1."""
    if given is None and values.shape[0] == 0:
        given = (0.0, 1.0)
    if given is not None and given[0] != given[1]:
        return values.lift(float(given[0])), values.lift(float(given[1]))
    if given is not None:
        return values.lift(given[0] - 0.5), values.lift(given[1] + 0.5)
    low, high = Expr(c.b, c.b.reduce_min(values.value)), Expr(c.b, c.b.reduce_max(values.value))
    flat_ = low.compare("EQ", high)
    return flat_.where(low - 0.5, low), flat_.where(high + 0.5, high)


def _counts(c: Context, points: Value, edges: Sequence[Value], weight: Value | None, density: bool) -> Value:
    """How many points, or how much weight, lie in each cell. An edge belongs to the cell above it, the last to the last cell."""
    n = points.shape[0]
    shape = [c.sizes(e)[0] - 1 for e in edges]
    place = Expr(c.b, c.scalar(0, I64, (n,)))
    inside = place.compare("EQ", 0)
    for d, edge in enumerate(edges):
        bins = shape[d]
        pairs = (n, bins + 1)
        value = Expr(c.b, c.reshape(section(c, points, 1, d, d + 1), (n,)))
        reached = value.broadcast(pairs, (0,)).compare("GE", Expr(c.b, edge).broadcast(pairs, (1,)))
        passed = reached.cast(I64).sum((1,), False)
        last = Expr(c.b, c.broadcast(c.reshape(section(c, edge, 0, bins, bins + 1), ()), (n,)))
        inside = inside.both(passed.compare("GE", 1)).both(value.compare("LE", last))
        place = place * bins + passed.minimum(bins) - 1
    total = math.prod(shape)
    dtype = points.dtype
    each = c.cast(flat(c, weight), dtype) if weight is not None else c.scalar(1, dtype, (n,))
    where = inside.where(place, total).value
    counts = Expr(c.b, c.b.scatter_elements(c.scalar(0, dtype, (total,)), where, each, axis=0, mode="add", policy="drop")).reshape(
        shape
    )
    if density:
        counts = counts / counts.sum(range(len(shape)), False)
        for d, edge in enumerate(edges):
            ends = [Expr(c.b, section(c, edge, 0, i, i + shape[d])) for i in (1, 0)]
            counts = counts / (ends[0] - ends[1]).broadcast(shape, (d,))
    return counts.value


@lowers("combinations.default")
def combinations(c: Context, x: Value, r: int = 2, with_replacement: bool = False) -> Value:
    """Each row ``r`` of the elements in order. Their number follows from the size, whatever torch calls it."""
    (n,) = c.sizes(x)
    if math.comb(n + r, r) > _MOST_COMBINATIONS:
        raise c.unsupported(f"{r} out of {n} elements")
    rows = list((itertools.combinations_with_replacement if with_replacement else itertools.combinations)(range(n), r))
    c.bind_size(c.scalar(len(rows), I64), c.out.shape[0])
    import numpy

    table = c.b.const(numpy.array(rows, "int64").reshape(len(rows), r), I64)
    return c.b.take(x, table, axis=0)
