"""Elementwise special functions: CHLO's, and those that torch and SciPy have beyond."""

from __future__ import annotations

from typing import Any

from neuron_ir.dialects.neuron.elementwise import FLOAT, binary, unary


def _special(name: str) -> Any:
    return lambda j, *xs: getattr(j.scipy.special, name)(*xs)


unary(
    "erf", FLOAT, "The error function ``2/sqrt(pi) * integral of e**-t**2 from 0 to x``.", lambda j, x: j.lax.erf(x), "erf.default"
)
unary("erfc", FLOAT, "``1 - erf(x)``, exact for large ``x``.", lambda j, x: j.lax.erfc(x), "erfc.default")
unary("erf_inv", FLOAT, "The inverse of erf; +-inf at +-1, NaN outside.", lambda j, x: j.lax.erf_inv(x), ("erfinv.default",))
unary("lgamma", FLOAT, "``log(|gamma(x)|)``; inf at 0, -1, -2, ...", lambda j, x: j.lax.lgamma(x), "lgamma.default")
unary("digamma", FLOAT, "The derivative of ``log(gamma(x))``.", lambda j, x: j.lax.digamma(x), "digamma.default")
unary("bessel_i0", FLOAT, "The modified Bessel function I0.", _special("i0"), "i0.default")
unary("bessel_i0e", FLOAT, "``e**-|x| * I0(x)``.", lambda j, x: j.lax.bessel_i0e(x), "special_i0e.default")
unary("bessel_i1", FLOAT, "The modified Bessel function I1.", _special("i1"), "special_i1.default")
unary("bessel_i1e", FLOAT, "``e**-|x| * I1(x)``.", lambda j, x: j.lax.bessel_i1e(x), "special_i1e.default")
unary("ndtri", FLOAT, "The inverse of the normal distribution function.", _special("ndtri"), "special_ndtri.default")
unary("log_ndtr", FLOAT, "The logarithm of the normal distribution function.", _special("log_ndtr"), "special_log_ndtr.default")
unary("entr", FLOAT, "``-x * log(x)``; 0 at 0, -inf below.", _special("entr"), "special_entr.default")
binary("polygamma", FLOAT, "The ``a``-th derivative of digamma at ``b``.", lambda j, a, b: j.lax.polygamma(a, b))
binary(
    "zeta", FLOAT, "The Hurwitz zeta function: sum of ``(b + k)**-a``.", lambda j, a, b: j.lax.zeta(a, b), "special_zeta.default"
)
binary("igamma", FLOAT, "The regularised lower incomplete gamma function.", lambda j, a, b: j.lax.igamma(a, b), "igamma.default")
binary("igammac", FLOAT, "The regularised upper incomplete gamma function.", lambda j, a, b: j.lax.igammac(a, b), "igammac.default")
binary("xlogy", FLOAT, "``a * log(b)``; 0 where ``a`` is 0 and ``b`` is no NaN.", _special("xlogy"), "xlogy.Tensor")
binary(
    "xlog1py", FLOAT, "``a * log(1 + b)``; 0 where ``a`` is 0 and ``b`` is no NaN.", _special("xlog1py"), "special_xlog1py.default"
)
