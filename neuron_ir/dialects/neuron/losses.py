"""Classification losses by torch's rules. Computed in f32 for f16 and bf16, rounded once at the end."""

from __future__ import annotations

import math

from neuron_ir.dtypes import dtype
from neuron_ir.opdef import Op, attr, op, operand, optional
from neuron_ir.types import TensorType

from .broadcasting import COMPUTED, agree, need_dtype, need_shape
from .expression import Expr
from .shapes import product

TARGET = frozenset(dtype(n) for n in ("i64", "i32", "u8"))
REDUCTIONS = ("mean", "sum", "none")


def _class_axis(x):
    """``[C]`` or ``[N, C, ...]``."""
    return 0 if len(x.shape) == 1 else 1


def _loss_shape(self):
    """The shape of one loss per example; checks the class weights."""
    x = self.x
    if not x.type.rank:
        raise self.error("shape", "x must be [N, C, ...] or [C], but is a scalar")
    axis = _class_axis(x)
    need_shape(self, "weight", self.weight, (x.shape[axis],))
    need_dtype(self, x.dtype, weight=self.weight)
    return tuple(d for i, d in enumerate(x.shape) if i != axis)


def _check_classes(self, shape):
    target = self.target
    if target.dtype not in TARGET:
        raise self.error("type", f"class numbers must be {', '.join(sorted(map(str, TARGET)))}, not {target.dtype}")
    if len(target.shape) != len(shape) or not all(map(agree, target.shape, shape)):
        raise self.error("shape", f"target must have shape {list(shape)} for x of {list(self.x.shape)}, not {list(target.shape)}")


def _picked(logp, target, weight, ignore_index):
    """Minus the log-probability of each target times its class weight, and that weight; both 0 where the target is ignored."""
    axis = _class_axis(logp)
    ignored = target.compare("EQ", ignore_index) if _fits(ignore_index, target.dtype) else None
    safe = target if ignored is None else ignored.where(0, target)
    at = safe.reshape((*safe.shape[:axis], 1, *safe.shape[axis:]))
    loss = -logp.new(logp.b.take_along_axis(logp.value, at.value, axis=axis, policy="raise")).reshape(safe.shape)
    if weight is None:
        w = logp.lift(1.0).broadcast(safe.shape)
    else:
        flat = logp.new(logp.b.take(weight.value, safe.reshape((product(safe.shape),)).value, axis=0, policy="raise"))
        w = flat.reshape(safe.shape)
        loss = loss * w
    if ignored is not None:
        loss, w = ignored.where(0.0, loss), ignored.where(0.0, w)
    return loss, w, ignored


def _fits(value, dtype):
    return 0 <= value <= dtype.max if dtype.kind == "uint" else -dtype.max - 1 <= value <= dtype.max


def _reduced(loss, reduction, total):
    """One number for all examples, the mean by weights; NaN for the mean of nothing."""
    axes = range(loss.rank)
    if reduction == "none":
        return loss
    s = loss.sum(axes, keepdims=False)
    return s if reduction == "sum" else s / total


@op("neuron.nll_loss", aten=["nll_loss_forward.default", "nll_loss2d_forward.default", "nll_loss_nd.default"], traits=["reduction"])
class NllLoss(Op):
    """Negative log-likelihood: minus the element of ``x`` (log-probabilities ``[N, C, ...]`` or ``[C]``) that ``target`` names.

    ``weight`` ``[C]`` scales each class; targets equal to ``ignore_index`` count nothing; ``"mean"`` divides by the sum of the
    weights of what counts, NaN where nothing does. Any other target outside ``0 .. C-1`` stops the program. With
    ``total_weight`` also gives that sum.
    """

    x = operand(COMPUTED)
    target = operand()
    weight = optional(COMPUTED)
    ignore_index = attr(int, -100)
    reduction = attr(str, "mean", REDUCTIONS)
    total_weight = attr(bool, False)

    def infer(self):
        shape = _loss_shape(self)
        _check_classes(self, shape)
        y = TensorType(shape if self.reduction == "none" else (), self.x.dtype)
        return (y, TensorType((), self.x.dtype)) if self.total_weight else y

    def expand(b, x, target, weight, *, ignore_index, reduction, total_weight):
        e = Expr(b, x)
        wide = e.dtype.accumulator
        w = Expr(b, weight).cast(wide) if weight is not None else None
        loss, w, _ = _picked(e.cast(wide), Expr(b, target), w, ignore_index)
        total = w.sum(range(w.rank), keepdims=False)
        y = _reduced(loss, reduction, total).cast(x.dtype).value
        return (y, total.cast(x.dtype).value) if total_weight else y


@op("neuron.cross_entropy", aten=["cross_entropy_loss.default"], traits=["reduction"])
class CrossEntropy(Op):
    """Cross entropy of logits ``[N, C, ...]`` or ``[C]`` against class numbers ``[N, ...]`` or probabilities of the logits'
    shape.

    ``nll_loss(log_softmax(x))``, with ``label_smoothing`` s the target mixed with a uniform one: ``(1 - s) * target + s / C``.
    Class weights, ``ignore_index`` (class numbers only) and ``reduction`` as in nll_loss; for probabilities ``"mean"`` divides
    by the number of examples.
    """

    x = operand(COMPUTED)
    target = operand()
    weight = optional(COMPUTED)
    ignore_index = attr(int, -100)
    reduction = attr(str, "mean", REDUCTIONS)
    label_smoothing = attr(float, 0.0)

    def infer(self):
        shape = _loss_shape(self)
        if not 0 <= self.label_smoothing <= 1:
            raise self.error("attr", f"label_smoothing = {self.label_smoothing} is not in 0..1")
        if self.target.dtype.is_float:
            need_dtype(self, self.x.dtype, target=self.target)
            need_shape(self, "target", self.target, self.x.shape)
            if self.ignore_index != -100:
                raise self.error("attr", "ignore_index has no meaning for probabilities")
        else:
            _check_classes(self, shape)
        return TensorType(shape if self.reduction == "none" else (), self.x.dtype)

    def expand(b, x, target, weight, *, ignore_index, reduction, label_smoothing):
        e = Expr(b, x)
        wide, axis = e.dtype.accumulator, _class_axis(x)
        logp = e.new(b.log_softmax(e.cast(wide).value, axis=axis))
        w = Expr(b, weight).cast(wide) if weight is not None else None
        t = Expr(b, target)
        if t.dtype.is_float:
            y = _against_probabilities(logp, t.cast(wide), w, reduction, label_smoothing)
            return y.cast(x.dtype).value
        loss, picked, ignored = _picked(logp, t, w, ignore_index)
        total = picked.sum(range(picked.rank), keepdims=False)
        y = _reduced(loss, reduction, total)
        if label_smoothing:
            smooth = -(logp if w is None else logp * w.broadcast(logp.shape, [axis])).sum([axis], keepdims=False)
            if ignored is not None:
                smooth = ignored.where(0.0, smooth)
            y = y * (1 - label_smoothing) + _reduced(smooth, reduction, total) * _share(logp, label_smoothing)
        return y.cast(x.dtype).value


def _share(logp, label_smoothing):
    """What smoothing gives to each class."""
    classes = logp.shape[_class_axis(logp)]
    return label_smoothing / classes if isinstance(classes, int) and classes else logp.lift(label_smoothing) / classes


def _against_probabilities(logp, target, weight, reduction, label_smoothing):
    axis = _class_axis(logp)
    if label_smoothing:
        target = target * (1 - label_smoothing) + _share(logp, label_smoothing)
    each = logp * target
    if weight is not None:
        each = each * weight.broadcast(logp.shape, [axis])
    loss = -each.sum([axis], keepdims=False)
    n = product(loss.shape)
    return _reduced(loss, reduction, (float(n) if n else math.nan) if isinstance(n, int) else n)
