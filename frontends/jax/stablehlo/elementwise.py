"""Elementwise ops, conversions and comparisons."""

from __future__ import annotations

from typing import Any

from neuron_ir.frontends.jax._compat import stablehlo
from neuron_ir.frontends.jax.stablehlo.rule import RULES, Translator, rule

# Ops whose operands and meaning are those of the Neuron op of the same name.
_SAME = (
    "add subtract multiply divide remainder power maximum minimum atan2 and or xor not shift_left shift_right_arithmetic "
    "shift_right_logical negate ceil floor round_nearest_even round_nearest_afz exponential exponential_minus_one log log_plus_one "
    "logistic sqrt rsqrt cbrt sine cosine tan tanh popcnt count_leading_zeros is_finite select clamp complex real imag"
).split()
_SAME_CHLO = (
    "acos acosh asin asinh atan atanh sinh cosh tan erf erfc erf_inv lgamma bessel_i1e next_after zeta polygamma is_inf is_pos_inf "
    "is_neg_inf square"
).split()


def same(name: str) -> Any:
    """The rule of an op that is the Neuron op ``name`` with the same operands."""
    full = f"neuron.{name}"

    def translate(c: Translator, op: Any, *operands: Any) -> Any:
        return c.b.make(full, *operands)

    return translate


RULES.update({f"stablehlo.{name}": same(name) for name in _SAME})
RULES.update({f"chlo.{name}": same(name) for name in _SAME_CHLO})


@rule("stablehlo.abs")
def _abs(c: Translator, op: Any, x: Any) -> Any:
    return c.b.complex_abs(x) if x.dtype.is_complex else c.b.abs(x)


@rule("stablehlo.sign")
def _sign(c: Translator, op: Any, x: Any) -> Any:
    return c.b.sign(x, nan="propagate")


@rule("chlo.conj")
def _conj(c: Translator, op: Any, x: Any) -> Any:
    return c.b.conj(x) if x.dtype.is_complex else x


@rule("chlo.digamma")
def _digamma(c: Translator, op: Any, x: Any) -> Any:
    return c.b.digamma(x, zero="nan")


@rule("stablehlo.compare")
def _compare(c: Translator, op: Any, a: Any, b: Any) -> Any:
    direction = stablehlo.ComparisonDirectionAttr(op.attributes["comparison_direction"]).value
    kind = c.enum(op, "compare_type", stablehlo.ComparisonTypeAttr, "")
    return c.b.compare(a, b, direction=direction, compare_type="TOTALORDER" if kind == "TOTALORDER" else "")


@rule("stablehlo.convert")
def _convert(c: Translator, op: Any, x: Any) -> Any:
    out = c.out(op, x.shape)
    return x if out is x.type else c.b.cast(x, mode="nan", out=out)


@rule("stablehlo.bitcast_convert")
def _bitcast_convert(c: Translator, op: Any, x: Any) -> Any:
    out = c.out(op, x.shape)
    a, b = x.dtype.bits, out.dtype.bits
    if not out.is_static or a != b:
        shape = x.shape if a == b else (*x.shape, a // b) if a > b else x.shape[:-1]
        out = c.out(op, shape)
    return c.b.bitcast_convert(x, out=out)


@rule("stablehlo.reduce_precision")
def _reduce_precision(c: Translator, op: Any, x: Any) -> Any:
    return c.b.reduce_precision(x, exponent_bits=c.value(op, "exponent_bits"), mantissa_bits=c.value(op, "mantissa_bits"))
