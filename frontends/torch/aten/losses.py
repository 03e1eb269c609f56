"""Classification losses."""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
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
