"""Sums of embeddings bag by bag, and tensors that are given another size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dtypes import I64
from neuron_ir.frontends.torch.aten.indexing import flat
from neuron_ir.frontends.torch.aten.views import section
from neuron_ir.frontends.torch.lowering import Context, lowers
from neuron_ir.types import TensorType

SUM, MEAN, MAX = range(3)


@lowers("_embedding_bag_forward_only.default", "_embedding_bag.default")
def embedding_bag(
    c: Context, weight: Value, indices: Value, offsets: Value, scale_grad_by_freq: bool = False, mode: int = SUM,
    sparse: bool = False, per_sample_weights: Value | None = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Value, ...]:  # fmt: skip
    """Rows of ``weight`` at the indices from each offset to the next summed, averaged, or their maximum; an empty bag gives 0.

    Beside it what the gradient asks for: the bag of each index, the size of each bag, and the row that each maximum is from.
    """
    y, inside = bagged(
        c, weight, indices, offsets, mode=mode, per_sample_weights=per_sample_weights, padding_idx=padding_idx,
        count=c.outs[0].shape[0], include_last_offset=include_last_offset,
    )  # fmt: skip
    _, bag_of, sizes, picked = c.outs
    results = [c.scalar(0, t.dtype, t.shape) for t in (bag_of, sizes, picked)]
    starts = Expr(c.b, c.cast(section(c, offsets, 0, 0, y.shape[0]), I64))
    if bag_of.shape == indices.shape:
        pairs = inside.shape
        passed = starts.broadcast(pairs, (0,)).compare("LE", starts.iota(pairs, 1, I64))
        results[0] = c.cast((passed.cast(I64).sum((0,), False) - 1).value, bag_of.dtype)
    if mode != SUM and sizes.shape == y.shape[:1]:
        results[1] = c.cast(inside.cast(I64).sum((1,), False).value, sizes.dtype)
    if mode == MEAN and picked.shape == sizes.shape:
        results[2] = c.cast(results[1], picked.dtype)
    if mode == MAX and picked.shape == y.shape:
        results[2] = c.cast(_picked(c, weight, indices, inside), picked.dtype)
    return y, *results


def _picked(c: Context, weight: Value, indices: Value, inside: Expr) -> Value:
    """The row of the table that each maximum is from, the first among equals; 0 for an empty bag."""
    wide = (*inside.shape, weight.shape[1])
    rows = Expr(c.b, c.b.take(weight, indices, axis=0)).broadcast(wide, (1, 2))
    chosen = inside.broadcast(wide, (0, 1))
    at = Expr(c.b, c.b.argmax(chosen.where(rows, -math.inf).value, axis=1))
    taken = c.b.take(c.cast(indices, I64), at.value, axis=0, policy="clamp")
    empty = inside.cast(I64).sum((1,), False).compare("EQ", 0).broadcast(at.shape, (0,))
    return empty.where(0, Expr(c.b, taken)).value


def bagged(
    c: Context, weight: Value, indices: Value, offsets: Value, *, mode: int, per_sample_weights: Value | None, padding_idx: int,
    count: Any, include_last_offset: bool = False,
) -> tuple[Value, Expr]:  # fmt: skip
    """The ``count`` bags, and which index lies in which bag, ``[count, indices]``."""
    n = indices.shape[0]
    wide, dtype = (count, n, weight.shape[1]), weight.dtype.accumulator
    rows = Expr(c.b, c.cast(c.b.take(weight, indices, axis=0), dtype))
    if per_sample_weights is not None:
        rows = rows * Expr(c.b, c.cast(per_sample_weights, dtype)).broadcast(rows.shape, (0,))
    starts = c.cast(section(c, offsets, 0, 0, count), I64)
    last = c.b.const(n, I64, (1,)) if isinstance(n, int) else c.reshape(c.size_as_value(n), (1,))
    ends = c.b.concatenate(section(c, starts, 0, 1, count), last, dimension=0)
    if include_last_offset:
        ends = c.cast(section(c, offsets, 0, 1, count + 1), I64)
    pairs = (count, n)
    place = Expr(c.b, c.b.iota(iota_dimension=1, out=TensorType(pairs, I64)))
    first, end = (Expr(c.b, v).broadcast(pairs, (0,)) for v in (starts, ends))
    inside = first.compare("LE", place).both(place.compare("LT", end))
    if padding_idx >= 0:
        inside = inside.both(Expr(c.b, c.cast(indices, I64)).compare("NE", padding_idx).broadcast(pairs, (1,)))
    chosen = inside.broadcast(wide, (0, 1))
    spread = rows.broadcast(wide, (1, 2))
    if mode == MAX:
        y = chosen.where(spread, -math.inf).max((1,), False)
        y = inside.cast(I64).sum((1,), False).compare("EQ", 0).broadcast(y.shape, (0,)).where(0.0, y)
    else:
        y = chosen.where(spread, 0.0).sum((1,), False)
    if mode == MEAN:
        y = y / inside.cast(dtype).sum((1,), False).maximum(1.0).broadcast(y.shape, (0,))
    return c.cast(y.value, weight.dtype), inside


@lowers("resize.default")
def resize(c: Context, x: Value, size: Sequence[Any], **_options: Any) -> Value:
    """The first elements in another shape; a tensor cannot grow, since torch leaves what is new to chance."""
    if not (x.type.is_static and c.out.is_static) or c.out.size > x.type.size:
        raise c.unsupported(f"from {x.type} to {c.out}")
    return c.reshape(section(c, flat(c, x), 0, 0, c.out.size), c.out.shape)
