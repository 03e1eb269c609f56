"""Matrix products and attention."""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
from neuron_ir.frontends.torch.lowering import Context, lowers


@lowers("mm.default", "bmm.default", "matmul.default")
def matmul(c: Context, a: Value, b: Value) -> Value:
    return c.b.matmul(a, b)  # type: ignore[no-any-return]


@lowers("linear.default")
def linear(c: Context, x: Value, weight: Value, bias: Value | None = None) -> Value:
    return c.b.linear(x, weight, bias)  # type: ignore[no-any-return]


@lowers("addmm.default")
def addmm(c: Context, bias: Value, a: Value, b: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    product = c.b.matmul(a, b)
    if alpha != 1:
        product = c.b.multiply(product, c.scalar(alpha, product.dtype, product.shape))
    bias = c.broadcast(bias, product.shape)
    return c.b.add(bias if beta == 1 else c.b.multiply(bias, c.scalar(beta, bias.dtype, bias.shape)), product)  # type: ignore[no-any-return]


@lowers("scaled_dot_product_attention.default")
def attention(
    c: Context, q: Value, k: Value, v: Value, mask: Value | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    if dropout_p:
        raise c.unsupported(f"dropout_p = {dropout_p}")
    return c.b.attention(q, k, v, mask, scale=scale, causal="top_left" if is_causal else "none")  # type: ignore[no-any-return]
