"""Activation functions as torch defines them. Computed in f32 for f16 and bf16, rounded once at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from neuron_ir.opdef import INT, Op, attr, declare, op, operand
from neuron_ir.types import TensorType

from .broadcasting import COMPUTED, axis_in, broadcast_shape, need_dtype
from .expression import Expr


def activation(
    name: str, formula: Callable[..., Expr], doc: str, aten: str | Sequence[str] = (), types: Any = COMPUTED, **attrs: Any
) -> None:
    """Declare an elementwise function of one tensor: ``formula(e, **attrs)`` over expressions is its body."""

    def expand(b, x, **fields):
        e = Expr(b, x)
        return formula(e.cast(e.dtype.accumulator), **fields).cast(x.dtype).value

    body = {
        "__doc__": doc,
        "x": operand(types),
        **attrs,
        "infer": lambda self: self.operands[0].type,
        "expand": staticmethod(expand),
    }
    declare(f"neuron.{name}", body, traits=["elementwise"], aten=aten)


def _sigmoid(e: Expr) -> Expr:
    return e.unary("logistic")


def _clip(e: Expr, low: float, high: float) -> Expr:
    return e.maximum(low).minimum(high)


def _gelu(e: Expr, approximate: str) -> Expr:
    if approximate == "tanh":
        inner = (e + e * e * e * 0.044715) * math.sqrt(2 / math.pi)
        return e * 0.5 * (inner.tanh() + 1.0)
    return e * 0.5 * ((e * math.sqrt(0.5)).erf() + 1.0)


def _negative_part(e: Expr) -> Expr:
    """``exp(x) - 1`` where x is negative; the other branch is kept finite."""
    return e.minimum(0.0).expm1()


def _softplus(e: Expr, beta: float, threshold: float) -> Expr:
    scaled = e * beta
    return scaled.compare("GT", threshold).where(e, scaled.minimum(threshold).exp().log1p() / beta)


activation(
    "gelu",
    _gelu,
    'Gaussian error linear unit: ``x/2 * (1 + erf(x / sqrt 2))``, or with ``approximate = "tanh"`` its tanh form.',
    "gelu.default",
    approximate=attr(str, "none", ["none", "tanh"]),
)
activation("silu", lambda e: e * _sigmoid(e), "``x * logistic(x)``, also called swish.", ["silu.default", "silu_.default"])
activation(
    "relu",
    lambda e: e.maximum(0),
    "``max(x, 0)``; NaN stays NaN.",
    ["relu.default", "relu_.default"],
    types=COMPUTED | INT,
)
activation("relu6", lambda e: _clip(e, 0.0, 6.0), "``min(max(x, 0), 6)``.", "relu6.default")
activation(
    "hardtanh",
    lambda e, min, max: _clip(e, min, max),
    "``x`` limited to ``min`` .. ``max``; NaN stays NaN.",
    ["hardtanh.default", "hardtanh_.default"],
    min=attr(float, -1.0),
    max=attr(float, 1.0),
)
activation(
    "leaky_relu",
    lambda e, slope: e.compare("GT", 0.0).where(e, e * slope),
    "``x`` where positive, else ``slope * x``.",
    ["leaky_relu.default", "leaky_relu_.default"],
    slope=attr(float, 0.01),
)
activation(
    "elu",
    lambda e, alpha, scale, input_scale: e.compare("GT", 0.0).where(e * scale, _negative_part(e * input_scale) * (alpha * scale)),
    "``scale * x`` where positive, else ``scale * alpha * (exp(input_scale * x) - 1)``.",
    ["elu.default", "elu_.default"],
    alpha=attr(float, 1.0),
    scale=attr(float, 1.0),
    input_scale=attr(float, 1.0),
)
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717
activation(
    "selu",
    lambda e: e.compare("GT", 0.0).where(e * _SELU_SCALE, _negative_part(e) * (_SELU_ALPHA * _SELU_SCALE)),
    "Self-normalising elu: alpha 1.6732632, scale 1.0507010.",
    "selu.default",
)
activation(
    "celu",
    lambda e, alpha: e.compare("GT", 0.0).where(e, _negative_part(e / alpha) * alpha),
    "``x`` where positive, else ``alpha * (exp(x / alpha) - 1)``.",
    "celu.default",
    alpha=attr(float, 1.0),
)
activation("hardsigmoid", lambda e: _clip(e + 3.0, 0.0, 6.0) / 6.0, "``min(max(x + 3, 0), 6) / 6``.", "hardsigmoid.default")
activation(
    "hardswish",
    lambda e: e * _clip(e + 3.0, 0.0, 6.0) / 6.0,
    "``x * min(max(x + 3, 0), 6) / 6``.",
    ["hardswish.default", "hardswish_.default"],
)
activation("mish", lambda e: e * e.exp().log1p().tanh(), "``x * tanh(log(1 + exp(x)))``.", "mish.default")
activation(
    "softplus",
    _softplus,
    "``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x > threshold``.",
    "softplus.default",
    beta=attr(float, 1.0),
    threshold=attr(float, 20.0),
)
activation(
    "log_sigmoid",
    lambda e: e.minimum(0.0) - (-e.abs()).exp().log1p(),
    "``log(logistic(x))`` without overflow.",
    "log_sigmoid.default",
)
activation("softsign", lambda e: e / (e.abs() + 1.0), "``x / (1 + |x|)``.")
activation("tanhshrink", lambda e: e - e.tanh(), "``x - tanh(x)``.")
activation(
    "softshrink",
    lambda e, lambd: e.compare("GT", lambd).where(e - lambd, e.compare("LT", -lambd).where(e + lambd, e * 0.0)),
    "``x`` moved towards 0 by ``lambd``, 0 within; NaN stays NaN.",
    "softshrink.default",
    lambd=attr(float, 0.5),
)
activation(
    "hardshrink",
    lambda e, lambd: e.compare("GE", -lambd).both(e.compare("LE", lambd)).where(e.lift(0.0), e),
    "0 where ``|x| <= lambd``, else ``x``.",
    "hardshrink.default",
    lambd=attr(float, 0.5),
)
activation(
    "threshold",
    lambda e, threshold, value: e.compare("LE", threshold).where(e.lift(value), e),
    "``value`` where ``x <= threshold``, else ``x``.",
    "threshold.default",
    threshold=attr(float),
    value=attr(float),
)


@op("neuron.prelu", aten="_prelu_kernel.default")
class Prelu(Op):
    """``x`` where positive, else ``weight * x``; ``weight`` broadcasts against ``x`` by NumPy's rule."""

    x = operand(COMPUTED)
    weight = operand(COMPUTED)

    def infer(self):
        need_dtype(self, self.x.dtype, weight=self.weight)
        return TensorType(broadcast_shape(self, "operands", self.x.shape, self.weight.shape), self.x.dtype)

    def expand(b, x, weight):
        e = Expr(b, x)
        wide = e.dtype.accumulator
        e = e.cast(wide)
        return e.compare("GT", 0.0).where(e, e * Expr(b, weight).cast(wide)).cast(x.dtype).value


@op("neuron.glu", aten="glu.default")
class Glu(Op):
    """Gated linear unit: the first half along ``axis`` times the logistic function of the second half."""

    x = operand(COMPUTED)
    axis = attr(int, -1)

    def infer(self):
        type = self.x.type
        if not type.rank:
            raise self.error("shape", "a scalar has no halves")
        axis = axis_in(self, self.axis, type.rank)
        size = type.shape[axis]
        if isinstance(size, int) and size % 2:
            raise self.error("shape", f"dim {axis} of {type} has no two halves")
        return TensorType([d // 2 if i == axis else d for i, d in enumerate(type.shape)], type.dtype)

    def expand(b, x, *, axis):
        e = Expr(b, x)
        axis %= e.rank
        half = e.shape[axis] // 2
        first, second = (e.section(axis, at, at + half).cast(e.dtype.accumulator) for at in (0, half))
        return (first * _sigmoid(second)).cast(x.dtype).value
