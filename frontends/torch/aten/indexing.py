"""Gather, scatter, advanced indexing, sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dtypes import BOOL
from neuron_ir.frontends.torch.lowering import Context, axis_of, lowers


@lowers("index.Tensor")
def index(c: Context, x: Value, indices: Sequence[Value | None]) -> Value:
    dims, given = _indexed(c, indices)
    return c.b.index(x, *given, dims=dims) if dims else x


def _indexed(c: Context, indices: Sequence[Value | None]) -> tuple[list[int], list[Value]]:
    """The indexed dims and their indices."""
    found = [(d, v) for d, v in enumerate(indices) if v is not None]
    if any(v.dtype is BOOL for _, v in found):
        raise c.unsupported("a mask as an index: the size of the result depends on the data")
    return [d for d, _ in found], [v for _, v in found]


@lowers("index_put.default", "_unsafe_index_put.default")
def index_put(c: Context, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    masks = [v for v in indices if v is not None]
    if len(masks) == 1 and masks[0].dtype is BOOL and not values.shape and not accumulate:
        where = masks[0]
        before = next(d for d, v in enumerate(indices) if v is not None)
        where = c.reshape(where, (*where.shape, *(1,) * (len(x.shape) - before - len(where.shape))))
        return c.b.select(c.broadcast(where, x.shape), c.broadcast(c.cast(values, x.dtype), x.shape), x)
    dims, given = _indexed(c, indices)
    return c.b.index_put(x, c.cast(values, x.dtype), *given, dims=dims, accumulate=accumulate)


@lowers("index_select.default")
def index_select(c: Context, x: Value, dim: int, indices: Value) -> Value:
    if not x.shape or not indices.shape:
        raise c.unsupported("a scalar")
    return c.b.take(x, indices, axis=axis_of(dim, len(x.shape)))


@lowers("gather.default")
def gather(c: Context, x: Value, dim: int, indices: Value, sparse_grad: bool = False) -> Value:
    if not x.shape:
        return c.broadcast(x, c.out.shape)
    return c.b.take_along_axis(x, indices, axis=axis_of(dim, len(x.shape)))


@lowers("scatter.src", "scatter_add.default")
def scatter(c: Context, x: Value, dim: int, indices: Value, source: Value) -> Value:
    mode = "add" if "add" in str(c.node.target) else "none"
    return c.b.scatter_elements(x, indices, source, axis=axis_of(dim, len(x.shape)), mode=mode)


@lowers("scatter.value")
def scatter_value(c: Context, x: Value, dim: int, indices: Value, value: Any) -> Value:
    source = c.scalar(value, x.dtype, indices.shape)
    return c.b.scatter_elements(x, indices, source, axis=axis_of(dim, len(x.shape)))


@lowers("sort.default", "sort.stable")
def sort(c: Context, x: Value, *args: Any, **options: Any) -> tuple[Value, Value]:
    plain = [a for a in args]
    if str(c.node.target) == "aten.sort.stable":
        options.pop("stable", None)
    dim, descending = (
        options.get("dim", plain[0] if plain else -1),
        options.get("descending", plain[1] if len(plain) > 1 else False),
    )
    axis = axis_of(dim, len(x.shape))
    if not x.shape:
        return x, c.scalar(0, c.outs[1].dtype)
    places = c.b.argsort(x, dimension=axis, descending=descending)
    return c.b.take_along_axis(x, places, axis=axis, policy="clamp"), places


@lowers("topk.default")
def topk(c: Context, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return c.b.top_k(x, k=k, axis=axis_of(dim, len(x.shape)), largest=largest)


@lowers("diff.default")
def diff(c: Context, x: Value, n: int = 1, dim: int = -1, prepend: Value | None = None, append: Value | None = None) -> Value:
    from neuron_ir.frontends.torch.aten.views import section

    axis = axis_of(dim, len(x.shape))
    parts = [c.cast(v, x.dtype) for v in (prepend, x, append) if v is not None]
    if len(parts) > 1:
        x = c.b.concatenate(*parts, dimension=axis)
    for _ in range(n):
        size = x.shape[axis]
        later, earlier = section(c, x, axis, 1, size), section(c, x, axis, 0, size - 1)
        x = c.b.compare(later, earlier, direction="NE") if x.dtype is BOOL else c.b.subtract(later, earlier)
    return x
