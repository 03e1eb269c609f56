"""Matrix products and attention."""

from __future__ import annotations

import math
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dtypes import BOOL, F32
from neuron_ir.frontends.torch.aten.creation import indices
from neuron_ir.frontends.torch.aten.nn import safe_softmax_of
from neuron_ir.frontends.torch.aten.random import dropped
from neuron_ir.frontends.torch.lowering import Context, lowers
from neuron_ir.types import TensorType


@lowers("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default", "vdot.default", "inner.default")
def matmul(c: Context, a: Value, b: Value) -> Value:
    if a.dtype.is_complex and str(c.node.target) == "aten.vdot.default":
        a = c.b.conj(a)
    return c.b.matmul(a, b)


@lowers("linear.default")
def linear(c: Context, x: Value, weight: Value, bias: Value | None = None) -> Value:
    if len(weight.shape) == 1:  # torch takes a vector as the only row
        y = c.b.matmul(x, weight)
        return y if bias is None else c.b.add(y, c.broadcast(bias, y.shape))
    return c.b.linear(x, weight, bias)


@lowers("addmm.default", "baddbmm.default", "addmv.default", "addbmm.default")
def addmm(c: Context, bias: Value, a: Value, b: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    if alpha == beta == 1 and len(bias.shape) == 1 and len(a.shape) == 2 and bias.shape == b.shape[1:]:
        return c.b.linear(a, c.b.transpose(b, permutation=(1, 0)), bias)
    product = c.b.matmul(a, b, dtype=c.out.dtype.accumulator)
    if str(c.node.target) == "aten.addbmm.default":
        product = c.b.reduce_sum(product, axes=(0,))
    return _plus_bias(c, product, bias, beta, alpha)


def _plus_bias(c: Context, product: Value, bias: Value, beta: Any, alpha: Any) -> Value:
    """``beta * bias + alpha * product``, rounded once; a bias that counts nothing may hold NaN."""
    dtype, shape = product.dtype, product.shape
    if alpha != 1:
        product = c.b.multiply(product, c.scalar(alpha, dtype, shape))
    if beta != 0:
        bias = c.broadcast(c.cast(bias, dtype), shape)
        product = c.b.add(bias if beta == 1 else c.b.multiply(bias, c.scalar(beta, dtype, shape)), product)
    return c.cast(product, c.out.dtype)


@lowers("addr.default")
def addr(c: Context, x: Value, a: Value, b: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    dtype, shape = c.out.dtype.accumulator, c.out.shape
    column, row = c.cast(c.reshape(a, (*a.shape, 1)), dtype), c.cast(c.reshape(b, (1, *b.shape)), dtype)
    return _plus_bias(c, c.b.multiply(c.broadcast(column, shape), c.broadcast(row, shape)), x, beta, alpha)


@lowers("outer.default")
def outer(c: Context, a: Value, b: Value) -> Value:
    dtype, shape = c.out.dtype, c.out.shape
    column, row = c.cast(c.reshape(a, (*a.shape, 1)), dtype), c.cast(c.reshape(b, (1, *b.shape)), dtype)
    return c.b.multiply(c.broadcast(column, shape), c.broadcast(row, shape))


# --- attention --------------------------------------------------------------------------------------------------------


@lowers("scaled_dot_product_attention.default")
def attention(
    c: Context, q: Value, k: Value, v: Value, mask: Value | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    if dropout_p:
        return _attention_with_dropout(c, q, k, v, mask, dropout_p, is_causal, scale)
    if mask is not None and mask.dtype not in (BOOL, q.dtype, F32):
        mask = c.cast(mask, q.dtype)
    return c.b.attention(q, k, v, mask, scale=_scale(scale), causal="top_left" if is_causal else "none")


def _attention_with_dropout(
    c: Context, q: Value, k: Value, v: Value, mask: Value | None, p: float, is_causal: bool, scale: float | None
) -> Value:  # fmt: skip
    """The weights written out, since the draw stands between them and the values; a query that sees no key gives 0."""
    heads = q.shape[-3] if len(q.shape) > 2 else 1
    k, v = (_repeated(c, x, heads) for x in (k, v))
    wide = q.dtype.accumulator
    scores = c.b.matmul(c.cast(q, wide), c.cast(k, wide), transpose_b=True)
    factor = float(scale) if scale is not None else 1 / math.sqrt(_width(c, q))
    scores = c.b.multiply(scores, c.scalar(factor, wide, scores.shape))
    if mask is not None:
        scores = c.b.add(scores, c.broadcast(_added(c, mask, wide), scores.shape))
    if is_causal:
        rows, columns = indices(c, scores.shape)
        seen = c.b.compare(rows, columns, direction="GE")
        scores = c.b.select(seen, scores, c.scalar(-math.inf, wide, scores.shape))
    weights = dropped(c, safe_softmax_of(c, scores, -1), p)
    return c.cast(c.b.matmul(weights, c.cast(v, wide)), c.out.dtype)


def _repeated(c: Context, x: Value, heads: Any) -> Value:
    """Keys or values, each head of them given to as many consecutive heads of queries as share it."""
    if len(x.shape) < 3 or x.shape[-3] == heads:
        return x
    *batch, own, length, width = x.shape
    n = len(batch)
    wide = (*batch, own, heads // own, length, width)
    spread = c.b.broadcast_in_dim(x, broadcast_dimensions=(*range(n + 1), n + 2, n + 3), out=TensorType(wide, x.dtype))
    return c.reshape(spread, (*batch, heads, length, width))


def _scale(scale: Any) -> float | None:
    return None if scale is None else float(scale)


@lowers("_scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    c: Context, q: Value, k: Value, v: Value, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, Value]:  # fmt: skip
    if dropout_p:
        raise c.unsupported(f"dropout_p = {dropout_p}; dropout inside attention has no rule")
    return c.b.attention(q, k, v, attn_mask, scale=_scale(scale), causal="top_left" if is_causal else "none", lse=True)


@lowers("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_attention_backward(
    c: Context, grad: Value, q: Value, k: Value, v: Value, y: Value, lse: Value, dropout_p: float, is_causal: bool, *,
    attn_mask: Value | None = None, scale: float | None = None,
) -> tuple[Value, Value, Value]:  # fmt: skip
    """With p = exp(scores - lse): dv = p.T @ g, ds = p * (g @ v.T - sum(g * y)), dq = ds @ k * scale, dk = ds.T @ q * scale."""
    if dropout_p:
        raise c.unsupported(f"dropout_p = {dropout_p}; dropout inside attention has no rule")
    heads, types = q.shape[-3], (q.type, k.type, v.type)
    k, v = (_repeated(c, x, heads) for x in (k, v))
    b, wide, factor = c.b, lse.dtype, float(scale) if scale is not None else 1 / math.sqrt(c.sizes(q)[-1])
    grad, q_, k_, v_, y = (c.cast(t, wide) for t in (grad, q, k, v, y))
    scores = b.matmul(q_, k_, transpose_b=True)
    scores = b.multiply(scores, c.scalar(factor, wide, scores.shape))
    if attn_mask is not None:
        scores = b.add(scores, c.broadcast(_added(c, attn_mask, wide), scores.shape))
    p = b.exponential(b.subtract(scores, c.broadcast(c.reshape(lse, (*lse.shape, 1)), scores.shape)))
    if is_causal:
        rows, columns = indices(c, scores.shape)
        p = b.select(b.compare(rows, columns, direction="GE"), p, c.scalar(0, wide, p.shape))
    dv = b.matmul(p, grad, transpose_a=True)
    dp = b.matmul(grad, v_, transpose_b=True)
    delta = b.reduce_sum(b.multiply(grad, y), axes=(-1,), keepdims=True)
    ds = b.multiply(p, b.subtract(dp, c.broadcast(delta, dp.shape)))
    ds = b.multiply(ds, c.scalar(factor, wide, ds.shape))
    dq, dk = b.matmul(ds, k_), b.matmul(ds, q_, transpose_a=True)
    dk, dv = (_shared(c, d, t.shape[-3]) for d, t in zip((dk, dv), types[1:], strict=True))
    return tuple(c.cast(d, t.dtype) for d, t in zip((dq, dk, dv), types, strict=True))  # type: ignore[return-value]


def _shared(c: Context, grad: Value, heads: Any) -> Value:
    """Gradients of repeated heads summed over the copies of each."""
    *batch, many, length, width = grad.shape
    if many == heads:
        return grad
    grouped = c.reshape(grad, (*batch, heads, many // heads, length, width))
    return c.b.reduce_sum(grouped, axes=(len(batch) + 1,))  # type: ignore[no-any-return]


def _width(c: Context, q: Value) -> int:
    width = q.shape[-1]
    if not isinstance(width, int):
        raise c.unsupported(f"the symbolic width {width}")
    return width


def _added(c: Context, mask: Value, wide: Any) -> Value:
    """A mask as what is added to the scores."""
    if mask.dtype is BOOL:
        return c.b.select(mask, c.scalar(0.0, wide, mask.shape), c.scalar(-math.inf, wide, mask.shape))
    return c.cast(mask, wide)
