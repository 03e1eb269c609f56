"""Classification losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dtypes import I64
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
    wide = x.dtype.accumulator
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


# --- margins ----------------------------------------------------------------------------------------------------------


def _hinged(scores: Expr, picked: Expr, margin: float, power: int) -> Expr:
    """``max(0, margin - picked + score) ** power`` for pairs of a picked and another score; nothing flows back from a 0."""
    z = scores - picked + margin
    return z.compare("GT", 0.0).where(z * z if power == 2 else z, 0.0)


def _summed(loss: Expr, reduction: int, shape: Sequence[Any]) -> Expr:
    """Of a loss per row."""
    if reduction == 0:
        return loss.reshape(shape)
    return loss.mean((0,), False) if reduction == 1 else loss.sum((0,), False)


def _check_shape(c: Context, x: Value, reduction: int) -> None:
    """Refuse the form that torch traces with another shape than it computes."""
    if reduction == 0 and len(x.shape) < 2 and c.outs[0].shape:
        raise c.unsupported(f"one row without a reduction, which torch computes as a scalar but traces as {c.outs[0]}")


def _rows(x: Value) -> tuple[Any, ...]:
    """The shape as rows of classes; a vector is one row."""
    return x.shape if len(x.shape) == 2 else (1, x.shape[-1] if x.shape else 1)


@lowers("multi_margin_loss.default")
def multi_margin(
    c: Context, x: Value, target: Value, p: Any = 1, margin: Any = 1, weight: Value | None = None, reduction: int = 1,
    shape: Sequence[Any] | None = None,
) -> Value:  # fmt: skip
    """The mean over classes of how far each other score comes within the margin of the target's."""
    if shape is None:
        _check_shape(c, x, reduction)
    e = Expr(c.b, c.cast(c.reshape(x, _rows(x)), x.dtype.accumulator))
    places = Expr(c.b, c.cast(c.reshape(target, (e.shape[0], 1)), I64))
    picked = e.new(c.b.take_along_axis(e.value, places.value, axis=1))
    each = _hinged(e, picked, float(margin), int(p))
    if weight is not None:
        chosen = c.b.take(weight, c.reshape(places.value, (e.shape[0],)), axis=0)
        each = each * Expr(c.b, c.cast(chosen, e.dtype)).broadcast(each.shape, (0,))
    other = e.iota(e.shape, 1, I64).compare("NE", places)
    loss = other.where(each, 0.0).mean((1,), False)
    return c.cast(_summed(loss, reduction, c.out.shape if shape is None else shape).value, x.dtype)


@lowers("multi_margin_loss_backward.default")
def multi_margin_backward(
    c: Context, grad: Value, x: Value, target: Value, p: Any, margin: Any, weight: Value | None = None, reduction: int = 1
) -> Value:  # fmt: skip
    return gradient(c, grad, [x], lambda x: multi_margin(c, x, target, p, margin, weight, reduction, grad.shape))  # type: ignore[no-any-return]


def _listed(c: Context, target: Value) -> tuple[Expr, Expr]:
    """Class numbers ``[rows, classes]`` and which of them count: those before the first negative one."""
    places = Expr(c.b, c.cast(c.reshape(target, _rows(target)), I64))
    ended = places.compare("LT", 0).cast(I64)
    counts = ended.new(c.b.cumsum(ended.value, axis=1)).compare("EQ", 0)
    return counts.where(places, 0), counts


def _multilabel(c: Context, x: Value, target: Value, reduction: int, shape: Sequence[Any]) -> tuple[Value, Value]:
    """The loss, and 1.0 for each class that is a target. (torch's own decomposition counts class 0 for each ended list.)"""
    e = Expr(c.b, c.cast(c.reshape(x, _rows(x)), x.dtype.accumulator))
    places, counts = _listed(c, target)
    rows, n = e.shape
    pairs = (rows, n, n)  # targets by classes
    hits = e.iota(pairs, 2, I64).compare("EQ", places.broadcast(pairs, (0, 1))).both(counts.broadcast(pairs, (0, 1)))
    is_target = hits.new(c.b.reduce_or(hits.value, axes=(1,)))
    picked = e.new(c.b.take_along_axis(e.value, places.value, axis=1)).broadcast(pairs, (0, 1))
    each = _hinged(e.broadcast(pairs, (0, 2)), picked, 1.0, 1)
    used = counts.broadcast(pairs, (0, 1)).both(is_target.inverted().broadcast(pairs, (0, 2)))
    loss = used.where(each, 0.0).sum((1, 2), False) / (float(n) if isinstance(n, int) else n)
    y = _summed(loss, reduction, shape)
    return c.cast(y.value, x.dtype), c.reshape(c.cast(is_target.value, x.dtype), target.shape)


@lowers("multilabel_margin_loss_forward.default")
def multilabel_margin(c: Context, x: Value, target: Value, reduction: int) -> tuple[Value, Value]:
    _check_shape(c, x, reduction)
    return _multilabel(c, x, target, reduction, c.outs[0].shape)


@lowers("multilabel_margin_loss_backward.default")
def multilabel_margin_backward(c: Context, grad: Value, x: Value, target: Value, reduction: int, _is_target: Value) -> Value:
    return gradient(c, grad, [x], lambda x: _multilabel(c, x, target, reduction, grad.shape)[0])  # type: ignore[no-any-return]
