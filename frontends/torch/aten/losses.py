"""Classification losses."""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
from neuron_ir.frontends.torch.aten.backward import gradient
from neuron_ir.frontends.torch.lowering import Context, lowers

_REDUCTIONS = ("none", "mean", "sum")


@lowers("cross_entropy_loss.default")
def cross_entropy(
    c: Context, x: Value, target: Value, weight: Value | None = None, reduction: int = 1, ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:  # fmt: skip
    fields: dict[str, Any] = {} if target.dtype.is_float else {"ignore_index": ignore_index}
    return c.b.cross_entropy(
        x, target, weight, reduction=_REDUCTIONS[reduction], label_smoothing=float(label_smoothing), **fields
    )  # fmt: skip


@lowers("nll_loss_forward.default", "nll_loss2d_forward.default")
def nll_loss_forward(c: Context, x: Value, target: Value, weight: Value | None, reduction: int, ignore_index: int) -> Any:
    return c.b.nll_loss(x, target, weight, reduction=_REDUCTIONS[reduction], ignore_index=ignore_index, total_weight=True)


@lowers("nll_loss_nd.default", "nll_loss.default", "nll_loss2d.default")
def nll_loss(
    c: Context, x: Value, target: Value, weight: Value | None = None, reduction: int = 1, ignore_index: int = -100
) -> Value:
    return c.b.nll_loss(x, target, weight, reduction=_REDUCTIONS[reduction], ignore_index=ignore_index)


@lowers("torch_nn._linear_cross_entropy_batch_chunked.default", "torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default")
def linear_cross_entropy(
    c: Context, x: Value, weights: Value, target: Value, bias: Value | None, class_weight: Value | None, *rest: Any
) -> Any:  # fmt: skip
    """The loss of a linear layer's logits, and its gradients where they are asked for; torch computes both chunk by chunk."""
    if len(c.outs) == 1:
        reduction, ignore_index, smoothing, asked = "none", rest[0], 0.0, [False] * 3
    else:
        reduction, ignore_index, smoothing, *_, g, h, i = rest
        asked = [g, h, i]
    wide = c.accumulator(x.dtype)
    fields: dict[str, Any] = {"reduction": reduction, "label_smoothing": float(smoothing), "ignore_index": ignore_index}
    if class_weight is not None:
        class_weight = c.cast(class_weight, wide)

    def loss(x: Value, weights: Value, bias: Value | None = None) -> Value:
        return c.b.cross_entropy(c.b.linear(x, weights, bias), target, class_weight, **fields)  # type: ignore[no-any-return]

    inputs = [c.cast(v, wide) for v in (x, weights, bias) if v is not None]
    y = c.cast(loss(*inputs), c.outs[0].dtype)
    if len(c.outs) == 1:
        return y
    grads: list[Value] = [c.scalar(0, t.dtype, t.shape) for t in c.outs[1:]]
    wrt = [i for i, wanted in enumerate(asked) if wanted]
    if wrt:
        made = gradient(c, c.scalar(1, wide), inputs, loss, wrt)
        for i, grad in zip(wrt, made if len(wrt) > 1 else [made], strict=True):
            grads[i] = c.cast(grad, c.outs[1 + i].dtype)
    return y, *grads
