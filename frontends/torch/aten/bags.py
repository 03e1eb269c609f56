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

_SUM, _MEAN, _MAX = range(3)


@lowers("_embedding_bag_forward_only.default", "_embedding_bag.default")
def embedding_bag(
    c: Context, weight: Value, indices: Value, offsets: Value, scale_grad_by_freq: bool = False, mode: int = _SUM,
    sparse: bool = False, per_sample_weights: Value | None = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Value, None, None, None]:  # fmt: skip
    """Rows of ``weight`` at the indices from each offset to the next summed, averaged, or their maximum; an empty bag gives 0."""
    count, n = c.outs[0].shape[0], indices.shape[0]
    wide, dtype = (count, n, weight.shape[1]), c.accumulator(weight.dtype)
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
    if mode == _MAX:
        y = chosen.where(spread, -math.inf).max((1,), False)
        y = inside.cast(I64).sum((1,), False).compare("EQ", 0).broadcast(y.shape, (0,)).where(0.0, y)
    else:
        y = chosen.where(spread, 0.0).sum((1,), False)
    if mode == _MEAN:
        y = y / inside.cast(dtype).sum((1,), False).maximum(1.0).broadcast(y.shape, (0,))
    return c.cast(y.value, c.outs[0].dtype), None, None, None


@lowers("resize.default")
def resize(c: Context, x: Value, size: Sequence[Any], **_options: Any) -> Value:
    """The first elements in another shape; a tensor cannot grow, since torch leaves what is new to chance."""
    if not (x.type.is_static and c.out.is_static) or c.out.size > x.type.size:
        raise c.unsupported(f"from {x.type} to {c.out}")
    return c.reshape(section(c, flat(c, x), 0, 0, c.out.size), c.out.shape)
