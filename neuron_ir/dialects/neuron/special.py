"""Elementwise special functions: CHLO's, and those that torch and SciPy have beyond."""

from __future__ import annotations

from typing import Any

from neuron_ir.dialects.neuron.elementwise import FLOAT, binary, unary
from neuron_ir.opdef import Op, attr, op, operand


def _special(name: str) -> Any:
    return lambda j, *xs: getattr(j.scipy.special, name)(*xs)


def _lgamma(j, x):
    """In f64, since the series loses all relative accuracy near its zeros 1 and 2."""
    return j.lax.lgamma(x.astype("float64")).astype(x.dtype)


def _bessel(name: str) -> Any:
    """From the scaled function; the scale is applied in two halves, of which neither overflows before the result does."""

    def jax(j, x):
        half = j.lax.exp(j.lax.abs(x) / 2)
        return (half * getattr(j.lax, name)(x) * half).astype(x.dtype)

    return jax


def _log_ndtr(j, x):
    """Above -1 from the other tail, where the value is near 0."""
    upper = j.lax.log1p(-j.lax.erfc(x * x.dtype.type(0.5**0.5)) / 2)
    return j.np.where(x > -1, upper, j.scipy.special.log_ndtr(x)).astype(x.dtype)


unary(
    "erf", FLOAT, "The error function ``2/sqrt(pi) * integral of e**-t**2 from 0 to x``.", lambda j, x: j.lax.erf(x), "erf.default"
)
unary("erfc", FLOAT, "``1 - erf(x)``, exact for large ``x``.", lambda j, x: j.lax.erfc(x), "erfc.default")
unary(
    "erf_inv", FLOAT, "The inverse of erf, computed in f64; +-inf at +-1, NaN outside.",
    lambda j, x: j.lax.erf_inv(x.astype("float64")).astype(x.dtype), "erfinv.default",  # XLA's own in f32 is off by several units
)  # fmt: skip
unary("lgamma", FLOAT, "``log(|gamma(x)|)``; inf at 0, -1, -2, ...", _lgamma, "lgamma.default")
unary(
    "bessel_i0", FLOAT, "The modified Bessel function I0.", _bessel("bessel_i0e"),
    ("i0.default", "special_modified_bessel_i0.default"),
)  # fmt: skip
unary("bessel_i0e", FLOAT, "``e**-|x| * I0(x)``.", lambda j, x: j.lax.bessel_i0e(x), "special_i0e.default")
unary(
    "bessel_i1", FLOAT, "The modified Bessel function I1.", _bessel("bessel_i1e"),
    ("special_i1.default", "special_modified_bessel_i1.default"),
)  # fmt: skip
unary("bessel_i1e", FLOAT, "``e**-|x| * I1(x)``.", lambda j, x: j.lax.bessel_i1e(x), "special_i1e.default")
unary("ndtri", FLOAT, "The inverse of the normal distribution function.", _special("ndtri"), "special_ndtri.default")
unary("log_ndtr", FLOAT, "The logarithm of the normal distribution function.", _log_ndtr, "special_log_ndtr.default")
unary("entr", FLOAT, "``-x * log(x)``; 0 at 0, -inf below.", _special("entr"), "special_entr.default")
unary("sinc", FLOAT, "``sin(pi * x) / (pi * x)``; 1 at 0.", lambda j, x: j.np.sinc(x), "sinc.default")
binary("polygamma", FLOAT, "The ``a``-th derivative of digamma at ``b``.", lambda j, a, b: j.lax.polygamma(a, b))
_LOWEST = -(2.0**17)  # where the zeta function's terms are still added one by one


def _zeta(j, a, b):
    """JAX's formula holds for ``b > 0`` only: below, the first terms are added one by one until the rest begins there."""

    def is_below(b):
        return (b < 0) & (b > _LOWEST) & (b != j.np.floor(b))

    def step(state):
        total, b = state
        below = is_below(b)
        term = j.np.where(a % 2 != 0, j.np.sign(b), 1) * j.lax.pow(j.np.abs(b), -a)
        return j.np.where(below, total + term, total), j.np.where(below, b + 1, b)

    lost = (b < 0) & (b != j.np.floor(b)) & ((b <= _LOWEST) | (a != j.np.floor(a)))
    total, b = j.lax.while_loop(lambda state: is_below(state[1]).any(), step, (j.np.zeros_like(a), b))
    return j.np.where(lost, j.np.nan, total + j.lax.zeta(a, b)).astype(a.dtype)


binary(
    "zeta", FLOAT,
    "The Hurwitz zeta function: sum of ``(b + k)**-a``; for ``b < 0`` of whole ``a``, and NaN below -2**17.",
    _zeta, "special_zeta.default",
)  # fmt: skip
binary("igamma", FLOAT, "The regularised lower incomplete gamma function.", lambda j, a, b: j.lax.igamma(a, b), "igamma.default")
binary("igammac", FLOAT, "The regularised upper incomplete gamma function.", lambda j, a, b: j.lax.igammac(a, b), "igammac.default")


def _times_log(name: str) -> Any:
    """0 times any logarithm is 0, but NaN stays."""

    def jax(j, a, b):
        return j.np.where((a == 0) & ~j.np.isnan(b), j.np.zeros_like(a), a * getattr(j.lax, name)(b))

    return jax


binary("xlogy", FLOAT, "``a * log(b)``; 0 where ``a`` is 0 and ``b`` is no NaN.", _times_log("log"), "xlogy.Tensor")
binary(
    "xlog1py", FLOAT, "``a * log(1 + b)``; 0 where ``a`` is 0 and ``b`` is no NaN.", _times_log("log1p"), "special_xlog1py.default"
)


@op("neuron.digamma", traits=["elementwise"])
class Digamma(Op):
    """The derivative of ``log(gamma(x))``; NaN at -1, -2, ...

    ``zero`` says what the pole at 0 gives: ``"nan"`` (JAX), or ``"inf"`` (torch): -inf at 0 and inf at -0.
    """

    x = operand(FLOAT)
    zero = attr(str, "nan", choices=("nan", "inf"))

    def infer(self):
        return self.x.type

    def jax(j, x, *, zero):
        value = j.lax.digamma(x)
        pole = j.np.copysign(j.np.full_like(x, float("inf")), -x)
        return j.np.where(x == 0, pole, value).astype(x.dtype) if zero == "inf" else value
