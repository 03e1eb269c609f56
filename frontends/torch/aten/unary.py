"""Elementwise operations of one operand, but for those that are one op on the operand cast to the result's type.

Those are named in the op's own declaration (``aten=``), in ``neuron_ir/dialects/neuron/elementwise.py`` and ``special.py``.
"""

from __future__ import annotations

import math
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dtypes import BOOL, I32
from neuron_ir.frontends.torch.aten.pointwise import terms, widened
from neuron_ir.frontends.torch.lowering import Context, lowers
from neuron_ir.types import TensorType

# Operation -> op, where integers stay as they are.
_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "fix": "trunc", "round": "round_nearest_even"}

# Operation -> op that gives bool, and what integers give.
_TESTS = {
    "isnan": ("is_nan", False), "isinf": ("is_inf", False), "isfinite": ("is_finite", True), "isposinf": ("is_pos_inf", False),
    "isneginf": ("is_neg_inf", False),
}  # fmt: skip


def _rounding_rule(op_name: str) -> Any:
    def rule(c: Context, x: Value) -> Value:
        return c.b.make(f"neuron.{op_name}", x) if x.dtype.is_float else x

    return rule


def _test_rule(op_name: str, of_integers: bool) -> Any:
    def rule(c: Context, x: Value) -> Value:
        if x.dtype.is_float:
            return c.b.make(f"neuron.{op_name}", x)
        if not x.dtype.is_complex:
            return c.scalar(of_integers, BOOL, x.shape)
        parts = [c.b.make(f"neuron.{op_name}", part(x)) for part in (c.b.real, c.b.imag)]
        return c.b.and_(*parts) if of_integers else c.b.or_(*parts)

    return rule


for _name, _op in _ROUNDING.items():
    lowers(f"{_name}.default")(_rounding_rule(_op))
for _name, (_op, _of_integers) in _TESTS.items():
    lowers(f"{_name}.default")(_test_rule(_op, _of_integers))


@lowers("logical_not.default")
def logical_not(c: Context, x: Value) -> Value:
    return c.b.not_(c.cast(x, BOOL))


@lowers("abs.default")
def abs_(c: Context, x: Value) -> Value:
    if x.dtype is BOOL:
        return x
    return c.b.complex_abs(x) if x.dtype.is_complex else c.b.abs(x)


@lowers("positive.default", "conj_physical.default", "_conj_physical.default", "_conj.default", "conj.default", "_neg_view.default")
def conj(c: Context, x: Value) -> Value:
    name = str(c.node.target)
    if name == "aten._neg_view.default":
        return c.b.negate(x)
    return c.b.conj(x) if x.dtype.is_complex and "conj" in name else x


@lowers("sign.default", "sgn.default")
def sign(c: Context, x: Value) -> Value:
    """torch gives 0 for NaN."""
    if x.dtype is BOOL:
        return x
    return c.b.sign(x) if x.dtype.is_complex else c.b.sign(x, nan="zero")


@lowers("signbit.default")
def signbit(c: Context, x: Value) -> Value:
    return c.scalar(False, BOOL, x.shape) if x.dtype is BOOL else c.b.sign_bit(x)


@lowers("frac.default")
def frac(c: Context, x: Value) -> Value:
    return c.b.frac(x)


@lowers("round.decimals")
def round_decimals(c: Context, x: Value, *, decimals: int) -> Value:
    """Scaled by a power of ten, rounded, and scaled back, each step in the type in which torch computes."""
    if not x.dtype.is_float or decimals == 0:
        return _rounding_rule("round_nearest_even")(c, x)
    (e,) = terms(c, x)
    scale = e.lift(float(10 ** abs(decimals)))
    scaled = (e * scale if decimals > 0 else e / scale).unary("round_nearest_even")
    return c.cast((scaled / scale if decimals > 0 else scaled * scale).value, x.dtype)


@lowers("nan_to_num.default")
def nan_to_num(c: Context, x: Value, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Value:
    if x.dtype.is_complex:
        parts = (_number_for_nan(c, part(x), nan, posinf, neginf) for part in (c.b.real, c.b.imag))
        return c.b.complex(*parts)
    return _number_for_nan(c, x, nan, posinf, neginf) if x.dtype.is_float else x


def _number_for_nan(c: Context, x: Value, nan: Any, posinf: Any, neginf: Any) -> Value:
    e = Expr(c.b, x)
    most = float(x.dtype.max)
    y = e.is_nan().where(e.lift(0.0 if nan is None else float(nan)), e)
    y = e.compare("EQ", math.inf).where(e.lift(most if posinf is None else float(posinf)), y)
    return e.compare("EQ", -math.inf).where(e.lift(-most if neginf is None else float(neginf)), y).value


@lowers("logit.default", "special_logit.default")
def logit(c: Context, x: Value, eps: float | None = None) -> Value:
    (e,) = terms(c, x, dtype=c.out.dtype)
    if eps is not None:
        e = e.maximum(float(eps)).minimum(1.0 - float(eps))
    return c.cast((e / (e.lift(1.0) - e)).log().value, c.out.dtype)


@lowers("deg2rad.default", "rad2deg.default")
def degrees(c: Context, x: Value) -> Value:
    (e,) = terms(c, x, dtype=c.out.dtype)
    factor = math.pi / 180 if str(c.node.target) == "aten.deg2rad.default" else 180 / math.pi
    return c.cast((e * factor).value, c.out.dtype)


@lowers("digamma.default", "special_psi.default")
def digamma(c: Context, x: Value) -> Value:
    return c.b.digamma(c.cast(x, c.out.dtype), zero="inf")


# --- complex numbers --------------------------------------------------------------------------------------------------


@lowers("angle.default")
def angle(c: Context, x: Value) -> Value:
    """Of a real number 0 or pi; NaN stays."""
    if x.dtype.is_complex:
        return c.b.angle(x)
    e = Expr(c.b, c.cast(x, c.out.dtype))
    turned = e.compare("LT", 0).where(e.lift(math.pi), e.lift(0.0).broadcast(e.shape))
    return e.is_nan().where(e, turned).value


@lowers("real.default", "imag.default")
def part(c: Context, x: Value) -> Value:
    if not x.dtype.is_complex:
        return x
    return c.b.real(x) if str(c.node.target) == "aten.real.default" else c.b.imag(x)


@lowers("view_as_real.default", "view_as_real_copy.default")
def view_as_real(c: Context, x: Value) -> Value:
    parts = [c.reshape(half, (*x.shape, 1)) for half in (c.b.real(x), c.b.imag(x))]
    return c.b.concatenate(*parts, dimension=len(x.shape))


@lowers("view_as_complex.default", "view_as_complex_copy.default")
def view_as_complex(c: Context, x: Value) -> Value:
    n = len(x.shape) - 1
    halves = []
    for i in (0, 1):
        cut = c.b.slice(x, start_indices=[0] * n + [i], limit_indices=[*x.shape[:-1], i + 1])
        halves.append(c.reshape(cut, x.shape[:-1]))
    return c.b.complex(*halves)


# --- mantissa and exponent --------------------------------------------------------------------------------------------


@lowers("frexp.Tensor")
def frexp(c: Context, x: Value) -> tuple[Value, Value]:
    """``x = mantissa * 2**exponent`` with the mantissa in [0.5, 1); 0, infinities and NaN give themselves and 0."""
    e = Expr(c.b, c.cast(x, widened(x.dtype)))
    plain = Expr(c.b, c.b.is_finite(e.value)).both(e.compare("NE", 0))
    size = plain.where(e.abs(), e.lift(1.0))
    power = size.unary("log2").unary("floor") + 1.0
    # the logarithm may be one off next to a power of two
    mantissa = size * (-power).unary("exp2")
    low, high = mantissa.compare("LT", 0.5), mantissa.compare("GE", 1.0)
    power = low.where(power - 1.0, high.where(power + 1.0, power))
    mantissa = e * (-power).unary("exp2")
    exponent = c.b.cast(plain.where(power, 0.0).value, out=TensorType(x.shape, I32))
    return c.cast(plain.where(mantissa, e).value, x.dtype), exponent
