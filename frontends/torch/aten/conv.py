"""Convolution and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_ir.core import Value
from neuron_ir.frontends.torch.aten.views import section
from neuron_ir.frontends.torch.lowering import Context, lowers
from neuron_ir.types import TensorType


@lowers("convolution.default", "_convolution.default")
def convolution(
    c: Context, x: Value, weight: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, *_flags: Any,
) -> Value:  # fmt: skip
    return c.b.conv(
        x, weight, bias, stride=stride, padding=padding, dilation=dilation, transposed=transposed,
        output_padding=output_padding if transposed else (), groups=groups,
    )  # fmt: skip


@lowers("convolution_backward.default")
def convolution_backward(
    c: Context, grad: Value, x: Value, weight: Value, _bias_sizes: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, wanted: Sequence[bool],
) -> tuple[Value | None, ...]:  # fmt: skip
    n = len(x.shape) - 2
    stride, padding, dilation = (_full(v, n) for v in (stride, padding, dilation))
    window = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    grad_x = grad_weight = grad_bias = None
    if wanted[0] and transposed:
        grad_x = c.b.conv(grad, weight, None, **window)
    elif wanted[0]:
        extra = [
            d - ((g - 1) * s - 2 * p + h * (k - 1) + 1)
            for d, g, s, p, h, k in zip(x.shape[2:], grad.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True)
        ]
        if not all(isinstance(e, int) for e in extra):
            raise c.unsupported("the gradient of a convolution over symbolic sizes")
        grad_x = c.b.conv(grad, weight, None, **window, transposed=True, output_padding=extra)
    if wanted[1]:
        small, large = (x, grad) if transposed else (grad, x)
        grad_weight = _weight_gradient(c, large, small, weight, stride, padding, dilation, groups)
    if wanted[2]:
        grad_bias = c.b.reduce_sum(grad, axes=(0, *range(2, n + 2)))
    return grad_x, grad_weight, grad_bias


def _full(values: Sequence[int], n: int) -> list[int]:
    return list(values) * n if len(values) == 1 else list(values)


def _weight_gradient(
    c: Context, x: Value, grad: Value, weight: Value, stride: Any, padding: Any, dilation: Any, groups: int
) -> Value:  # fmt: skip
    """Channels of ``x`` as the batch, the batch as channels to be summed: ``x`` convolved with the (spread) gradient."""
    n = len(x.shape) - 2
    order = (1, 0, *range(2, n + 2))
    lhs, rhs = c.b.transpose(x, permutation=order), c.b.transpose(grad, permutation=order)
    sizes = [
        (d + 2 * p - s * (g - 1) - 1) // h + 1
        for d, g, s, p, h in zip(x.shape[2:], grad.shape[2:], stride, padding, dilation, strict=True)
    ]
    out = TensorType((x.shape[1] // groups, grad.shape[1], *sizes), weight.dtype)
    y = c.b.convolution(
        lhs, rhs, window_strides=dilation, padding=[(p, p) for p in padding], rhs_dilation=stride, batch_group_count=groups, out=out
    )
    for i, k in enumerate(weight.shape[2:]):  # rows of x that no window reached make the result longer than the kernel
        y = section(c, y, i + 2, 0, k)
    return c.b.transpose(y, permutation=order)
