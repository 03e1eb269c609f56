"""Gradients that torch's autograd leaves as operations of their own.

Where the forward operation is a word of the IR, the gradient is ``neuron.vjp`` around that word; where autograd hands over the
places that were picked, it is a scatter; the rest are formulas of torch's own kernels, which say what happens at kinks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dialects.neuron.shapes import product as size_of
from neuron_ir.dims import DimLike
from neuron_ir.dtypes import I64
from neuron_ir.frontends.torch.aten.bags import MAX, bagged
from neuron_ir.frontends.torch.aten.composites import segment_reduce
from neuron_ir.frontends.torch.aten.indexing import flat
from neuron_ir.frontends.torch.aten.linalg import batched
from neuron_ir.frontends.torch.aten.pool import avg_pool, dims_of, grid_sampler, interpolated
from neuron_ir.frontends.torch.aten.views import replication_pad
from neuron_ir.frontends.torch.lowering import Context, lowers


def gradient(
    c: Context, grad: Value, inputs: Sequence[Value], forward: Callable[..., Value], wrt: Sequence[int] = (0,)
) -> Any:  # fmt: skip
    """The gradient of ``forward(*inputs)``, a function that emits ops through ``c``, with respect to the inputs in ``wrt``."""

    def body(b: Any, *args: Value) -> Value:
        outer, c.b = c.b, b
        try:
            return forward(*args)
        finally:
            c.b = outer

    return c.b.vjp(grad, *inputs, body=body, wrt=wrt)


# --- pooling, padding, interpolation: linear, so the input's values do not count --------------------------------------


@lowers("avg_pool2d_backward.default", "avg_pool3d_backward.default")
def avg_pool_backward(c: Context, grad: Value, x: Value, *window: Any) -> Value:
    return gradient(c, grad, [x], lambda x: avg_pool(c, x, *window))  # type: ignore[no-any-return]


@lowers("_adaptive_avg_pool2d_backward.default", "_adaptive_avg_pool3d_backward.default")
def adaptive_avg_pool_backward(c: Context, grad: Value, x: Value) -> Value:
    size = grad.shape[len(grad.shape) - dims_of(c) :]
    return gradient(c, grad, [x], lambda x: c.b.adaptive_avg_pool(x, size=size))  # type: ignore[no-any-return]


@lowers("replication_pad1d_backward.default", "replication_pad2d_backward.default", "replication_pad3d_backward.default")
def replication_pad_backward(c: Context, grad: Value, x: Value, pad: Sequence[Any]) -> Value:
    return gradient(c, grad, [x], lambda x: replication_pad(c, x, pad))  # type: ignore[no-any-return]


@lowers(
    *(f"{kind}{n}d_backward.default" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)),
    *(f"upsample_{kind}_backward.default" for kind in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d")),
    *(f"_upsample_{kind}2d_aa_backward.default" for kind in ("bilinear", "bicubic", "lanczos")),
)
def upsample_backward(c: Context, grad: Value, size: Sequence[Any], shape: Sequence[DimLike], *rest: Any) -> Value:
    corners = "nearest" not in str(c.node.target) and bool(rest[0])
    scales = rest if "nearest" in str(c.node.target) else rest[1:]
    zeros = c.scalar(0, grad.dtype, shape)
    return gradient(c, grad, [zeros], lambda x: interpolated(c, x, size, corners, scales))  # type: ignore[no-any-return]


@lowers("grid_sampler_2d_backward.default", "grid_sampler_3d_backward.default", "_grid_sampler_2d_cpu_fallback_backward.default")
def grid_sampler_backward(
    c: Context, grad: Value, x: Value, grid: Value, mode: int, padding: int, align_corners: bool,
    mask: Sequence[bool] = (True, True),
) -> tuple[Value | None, ...]:  # fmt: skip
    """Of the image and of the points, as far as asked for."""
    wanted = [i for i in (0, 1) if mask[i]]
    given = gradient(c, grad, [x, grid], lambda x, grid: grid_sampler(c, x, grid, mode, padding, align_corners), wanted)
    made = dict(zip(wanted, given if len(wanted) > 1 else [given], strict=True))
    return made.get(0), made.get(1)


# --- places that were picked ------------------------------------------------------------------------------------------


@lowers(
    "max_pool2d_with_indices_backward.default", "max_pool3d_with_indices_backward.default",
    "adaptive_max_pool2d_backward.default", "adaptive_max_pool3d_backward.default",
    "fractional_max_pool2d_backward.default", "fractional_max_pool3d_backward.default",
)  # fmt: skip
def max_pool_backward(c: Context, grad: Value, x: Value, *rest: Any) -> Value:
    """Each gradient added at its place, row-major within the pooled dims."""
    n, indices = dims_of(c), rest[-1]
    rows = (size_of(grad.shape[:-n]), size_of(grad.shape[-n:]))
    zeros = c.scalar(0, grad.dtype, (rows[0], size_of(x.shape[-n:])))
    places, values = c.reshape(indices, rows), c.reshape(grad, rows)
    return c.reshape(c.b.scatter_elements(zeros, places, values, axis=1, mode="add"), x.shape)


@lowers("masked_scatter_backward.default")
def masked_scatter_backward(c: Context, grad: Value, mask: Value, sizes: Sequence[DimLike]) -> Value:
    """The gradients at true places of the mask, in order; the source's elements that no place took get 0."""
    chosen = Expr(c.b, flat(c, c.broadcast(mask, grad.shape)))
    count = chosen.cast(I64)
    rank = Expr(c.b, c.b.cumsum(count.value, axis=0)) - 1
    total = size_of(sizes)
    into = chosen.where(rank, rank.lift(total) if isinstance(total, int) else rank.size(total))
    taken = c.b.scatter_elements(c.scalar(0, grad.dtype, (total,)), into.value, flat(c, grad), axis=0, policy="drop")
    return c.reshape(taken, c.out.shape)


# --- activations and distances ----------------------------------------------------------------------------------------


@lowers("hardshrink_backward.default", "softshrink_backward.default")
def shrink_backward(c: Context, grad: Value, x: Value, bound: Any) -> Value:
    """Nothing for elements in ``[-bound, bound]``."""
    e = Expr(c.b, x)
    inside = e.compare("GE", -float(bound)).both(e.compare("LE", float(bound)))
    return inside.where(0.0, Expr(c.b, grad)).value


def _by_distance(grad: Expr, apart: Expr, distance: Expr, order: float) -> Expr:
    """``grad * d distance / d apart``, 0 for points that are the same (ATen's cdist and pdist kernels)."""
    sign = apart.unary("sign")
    same = distance.compare("EQ", 0.0)
    safe = same.where(1.0, distance)
    if order == 0:
        return grad.lift(0.0).broadcast(apart.shape)
    if order == 1:
        return grad * sign
    if order == math.inf:
        return grad * sign * apart.abs().compare("EQ", distance).cast(apart.dtype)
    if order == 2:
        return same.where(0.0, grad * apart / safe)
    size = apart.abs()
    zero = size.compare("EQ", 0.0)
    power = (zero.where(1.0, size) / safe).binary("power", order - 1.0)
    return same.either(zero).where(0.0, sign * power * grad)


@lowers("_cdist_backward.default")
def cdist_backward(c: Context, grad: Value, a: Value, b: Value, order: float, distance: Value) -> Value:
    """The gradient of the first points, summed over the second ones."""
    a, b = batched(c, a, b)
    *batch, m, k = a.shape
    n = b.shape[-2]
    wide = (*batch, m, n, k)
    apart = Expr(c.b, c.reshape(a, (*batch, m, 1, k))).broadcast(wide) - Expr(c.b, c.reshape(b, (*batch, 1, n, k))).broadcast(wide)
    grad, distance = (c.reshape(c.broadcast(v, (*batch, m, n)), (*batch, m, n, 1)) for v in (grad, distance))
    each = _by_distance(Expr(c.b, grad).broadcast(wide), apart, Expr(c.b, distance).broadcast(wide), float(order))
    return c.reshape(each.sum((len(wide) - 2,), False).value, c.out.shape)


@lowers("_pdist_backward.default")
def pdist_backward(c: Context, grad: Value, x: Value, order: float, distance: Value) -> Value:
    """The gradient of the points: of each pair the first gets what the second gets with the other sign."""
    import numpy

    n, k = c.sizes(x)
    if n < 2:
        return c.scalar(0, x.dtype, x.shape)
    pairs = [c.b.const(v.astype("int64"), I64) for v in numpy.triu_indices(n, 1)]
    first, second = (Expr(c.b, c.b.take(x, v, axis=0, policy="clamp")) for v in pairs)
    apart = first - second
    grad_, distance_ = (Expr(c.b, v).broadcast(apart.shape, (0,)) for v in (grad, distance))
    each = _by_distance(grad_, apart, distance_, float(order))
    y = c.scalar(0, x.dtype, x.shape)
    for place, part in zip(pairs, (each, -each), strict=True):
        y = c.b.index_put(y, part.value, place, dims=(0,), accumulate=True, policy="clamp")
    return y


# --- segments, norms of weights, bags ---------------------------------------------------------------------------------


@lowers("_segment_reduce_backward.default")
def segment_reduce_backward(c: Context, grad: Value, _y: Value, x: Value, reduce: str, **options: Any) -> Value:
    return gradient(c, grad, [x], lambda x: segment_reduce(c, x, reduce, **options))  # type: ignore[no-any-return]


@lowers("_weight_norm_interface_backward.default")
def weight_norm_backward(c: Context, grad: Value, v: Value, g: Value, norms: Value, dim: int) -> tuple[Value, Value]:
    """Of ``w = v * g / norm`` with the norm of ``v`` over all dims but one."""
    wide = v.dtype.accumulator
    dw, e, factor, norm = (Expr(c.b, c.cast(t, wide)) for t in (grad, v, g, norms))
    along = (dw * e).sum([i for i in range(e.rank) if i != dim % e.rank])
    dv = factor / norm * (dw - e * along / (norm * norm))
    return c.cast(dv.value, v.dtype), c.cast((along / norm).value, g.dtype)


@lowers("_embedding_bag_backward.default")
def embedding_bag_backward(
    c: Context, grad: Value, indices: Value, offsets: Value, _bag_of: Value, sizes: Value, picked: Value, rows: Any,
    scale_grad_by_freq: bool, mode: int, sparse: bool, weights: Value | None, padding_idx: int = -1,
) -> Value:  # fmt: skip
    """Of the table. A maximum's gradient goes to the row that was picked, an empty bag's nowhere."""
    if sparse or scale_grad_by_freq:
        raise c.unsupported("sparse gradients, or gradients scaled by frequency")
    zeros = c.scalar(0, grad.dtype, (rows, grad.shape[1]))
    if mode == MAX:
        e = Expr(c.b, sizes).compare("GT", 0).broadcast(grad.shape, (0,)).where(Expr(c.b, grad), 0.0)
        return c.b.scatter_elements(zeros, picked, e.value, axis=0, mode="add")  # type: ignore[no-any-return]
    options: dict[str, Any] = {"mode": mode, "per_sample_weights": weights, "padding_idx": padding_idx, "count": grad.shape[0]}
    return gradient(c, grad, [zeros], lambda table: bagged(c, table, indices, offsets, **options)[0])  # type: ignore[no-any-return]


@lowers("_embedding_bag_per_sample_weights_backward.default")
def embedding_bag_weights_backward(
    c: Context, grad: Value, table: Value, indices: Value, offsets: Value, _bag_of: Value, mode: int, padding_idx: int = -1
) -> Value:  # fmt: skip
    """Of the weights, which only sums have."""
    ones = c.scalar(1, grad.dtype, indices.shape)

    def forward(weights: Value) -> Value:
        return bagged(
            c, table, indices, offsets, mode=mode, per_sample_weights=weights, padding_idx=padding_idx, count=grad.shape[0]
        )[0]

    return gradient(c, grad, [ones], forward)  # type: ignore[no-any-return]
