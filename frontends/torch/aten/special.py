"""Special functions that no op stands for: Bessel and Airy functions, orthogonal polynomials, polygamma.

All are computed in double precision, from series near 0 and asymptotic expansions beyond, which agree to ten digits where they meet
(formulas: Abramowitz and Stegun, chapters 9, 10 and 22).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from neuron_ir.builder import Builder
from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dtypes import F64, I64
from neuron_ir.frontends.torch.lowering import Context, lowers

_EULER = 0.5772156649015329
_TERMS = 40  # of a power series at 12: the last is below 1e-16 of the largest
_MEET = 12.0


def _wide(c: Context, x: Any) -> Expr:
    return Expr(c.b, c.scalar(x, F64, c.out.shape))


def _polynomial(y: Expr, coefficients: list[float]) -> Expr:
    """``coefficients[0] + coefficients[1] * y + ...`` by Horner's rule."""
    result = y.lift(coefficients[-1]).broadcast(y.shape)
    for k in reversed(coefficients[:-1]):
        result = result * y + k
    return result


def _elementwise(*names: str) -> Callable[[Callable[[Expr], Expr]], None]:
    """Register a function of one expression in f64 as the rule of operations."""

    def register(formula: Callable[[Expr], Expr]) -> None:
        def rule(c: Context, x: Value) -> Value:
            return c.cast(formula(_wide(c, x)).value, c.out.dtype)

        lowers(*names)(rule)

    return register


# --- Bessel functions J and Y -----------------------------------------------------------------------------------------


def _harmonic(k: int) -> float:
    return sum(1.0 / i for i in range(1, k + 1))


def _series_j(x: Expr, n: int) -> Expr:
    coefficients = [(-1.0) ** k / (math.factorial(k) * math.factorial(k + n)) for k in range(_TERMS)]
    half = x * 0.5
    value = _polynomial(half * half, coefficients)
    return value * half if n else value


def _series_y(x: Expr, n: int) -> Expr:
    """A. & S. 9.1.11 for n = 0 and 1, for ``x > 0``."""
    half = x * 0.5
    j = _series_j(x, n)
    if n == 0:
        tail = [(-1.0) ** (k + 1) * _harmonic(k) / math.factorial(k) ** 2 for k in range(_TERMS)]
        return ((half.log() + _EULER) * j + _polynomial(half * half, tail)) * (2.0 / math.pi)
    tail = [
        (-1.0) ** k * (_harmonic(k) + _harmonic(k + 1) - 2 * _EULER) / (math.factorial(k) * math.factorial(k + 1))
        for k in range(_TERMS)
    ]
    rest = half.log() * j * 2.0 - half.unary("reciprocal") - half * _polynomial(half * half, tail)
    return rest * (1.0 / math.pi)


def _hankel(x: Expr, n: int, second: bool) -> Expr:
    """A. & S. 9.2.5 and 9.2.6 for large ``x``."""
    term, terms = 1.0, [1.0]
    for k in range(1, 24):
        term *= (4.0 * n * n - (2 * k - 1) ** 2) / (8.0 * k)
        terms.append(term)
    inverse = x.unary("reciprocal")
    square = inverse * inverse
    p = _polynomial(square, [(-1.0) ** i * terms[2 * i] for i in range(10)])
    q = _polynomial(square, [(-1.0) ** i * terms[2 * i + 1] for i in range(10)]) * inverse
    turned = x - (n / 2 + 0.25) * math.pi
    sine, cosine = turned.unary("sine"), turned.unary("cosine")
    wave = p * sine + q * cosine if second else p * cosine - q * sine
    return wave * (inverse * (2.0 / math.pi)).sqrt()


def _bessel_j(x: Expr, n: int) -> Expr:
    size = x.abs()
    near, far = size.minimum(_MEET), size.maximum(_MEET)
    value = size.compare("LT", _MEET).where(_series_j(near, n), _hankel(far, n, False))
    value = size.compare("EQ", math.inf).where(0.0, value)
    return x.compare("LT", 0.0).where(-value, value) if n else value


def _bessel_y(x: Expr, n: int) -> Expr:
    near, far = x.minimum(_MEET), x.maximum(_MEET)
    value = x.compare("LT", _MEET).where(_series_y(near, n), _hankel(far, n, True))
    value = x.compare("EQ", math.inf).where(0.0, value)
    value = x.compare("EQ", 0.0).where(-math.inf, value)
    return x.compare("LT", 0.0).where(math.nan, value)


_elementwise("special_bessel_j0.default")(lambda x: _bessel_j(x, 0))
_elementwise("special_bessel_j1.default")(lambda x: _bessel_j(x, 1))
_elementwise("special_bessel_y0.default")(lambda x: _bessel_y(x, 0))
_elementwise("special_bessel_y1.default")(lambda x: _bessel_y(x, 1))


@_elementwise("special_spherical_bessel_j0.default")
def _spherical_j0(x: Expr) -> Expr:
    square = x * x
    near = _polynomial(square, [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(8)])
    far = x.compare("EQ", 0.0).where(1.0, x.unary("sine") / x)
    value = x.abs().compare("LT", 0.5).where(near, far)
    return x.abs().compare("EQ", math.inf).where(0.0, value)


# --- modified Bessel functions K --------------------------------------------------------------------------------------


def _series_k(x: Expr, n: int) -> Expr:
    """A. & S. 9.6.11 for ``0 < x < 1``."""
    half, terms = x * 0.5, 12
    i = _polynomial(half * half, [1.0 / (math.factorial(k) * math.factorial(k + n)) for k in range(terms)])
    if n == 0:
        tail = [_harmonic(k) / math.factorial(k) ** 2 for k in range(terms)]
        return _polynomial(half * half, tail) - (half.log() + _EULER) * i
    tail = [(_harmonic(k) + _harmonic(k + 1) - 2 * _EULER) / (math.factorial(k) * math.factorial(k + 1)) for k in range(terms)]
    return half.log() * i * half + x.unary("reciprocal") - half * 0.5 * _polynomial(half * half, tail)


def _scaled_k(x: Expr, n: int) -> Expr:
    """``e**x * K(x)`` for ``x >= 1``: the integral of ``e**-x(cosh t - 1) * cosh nt`` by the trapezoidal rule (A. & S. 9.6.24)."""
    step, total = 1.0 / 12, x.lift(0.5).broadcast(x.shape)
    for k in range(1, 60):  # beyond t = 5 the integrand is below e**-70
        t = k * step
        total = total + (x * -(math.cosh(t) - 1.0)).exp() * math.cosh(n * t)
    return total * step


def _bessel_k(x: Expr, n: int, scaled: bool) -> Expr:
    near, far = x.minimum(1.0), x.maximum(1.0)
    small, large = _series_k(near, n), _scaled_k(far, n)
    value = x.compare("LT", 1.0).where(small * near.exp() if scaled else small, large if scaled else large * (-far).exp())
    value = x.compare("EQ", math.inf).where(0.0, value)
    value = x.compare("EQ", 0.0).where(math.inf, value)
    return x.compare("LT", 0.0).where(math.nan, value)


_elementwise("special_modified_bessel_k0.default")(lambda x: _bessel_k(x, 0, False))
_elementwise("special_modified_bessel_k1.default")(lambda x: _bessel_k(x, 1, False))
_elementwise("special_scaled_modified_bessel_k0.default")(lambda x: _bessel_k(x, 0, True))
_elementwise("special_scaled_modified_bessel_k1.default")(lambda x: _bessel_k(x, 1, True))

# --- Airy's function and the scaled error function --------------------------------------------------------------------


def _airy_series(x: Expr) -> Expr:
    """A. & S. 10.4.2 and 10.4.3, for ``|x| < 6``."""
    f, g = [1.0], [1.0]
    for k in range(1, 40):
        f.append(f[-1] / ((3 * k - 1) * (3 * k)))
        g.append(g[-1] / ((3 * k) * (3 * k + 1)))
    cube = x * x * x
    return _polynomial(cube, f) * 0.35502805388781724 - x * _polynomial(cube, g) * 0.2588194037928068


def _airy_far(x: Expr) -> tuple[Expr, Expr]:
    """A. & S. 10.4.59 and 10.4.60: Ai of ``x`` and of ``-x``, for ``x > 6``."""
    root = x.sqrt()
    z = x * root * (2.0 / 3)
    terms = [1.0]
    for k in range(1, 20):
        terms.append(terms[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216.0 * k * (2 * k - 1)))
    inverse = z.unary("reciprocal")
    front = (root.sqrt()).unary("reciprocal") * (1.0 / math.sqrt(math.pi))
    right = front * 0.5 * (-z).exp() * _polynomial(-inverse, terms)
    square = inverse * inverse
    even = _polynomial(square, [(-1.0) ** k * terms[2 * k] for k in range(9)])
    odd = _polynomial(square, [(-1.0) ** k * terms[2 * k + 1] for k in range(9)]) * inverse
    turned = z + math.pi / 4
    return right, front * (turned.unary("sine") * even - turned.unary("cosine") * odd)


@_elementwise("special_airy_ai.default")
def _airy(x: Expr) -> Expr:
    size = x.abs()
    right, left = _airy_far(size.maximum(6.0))
    far = x.compare("LT", 0.0).where(left, right)
    return size.compare("LT", 6.0).where(_airy_series(x.maximum(-6.0).minimum(6.0)), far)


@_elementwise("special_erfcx.default", "prims.erfcx.default")
def _erfcx(x: Expr) -> Expr:
    """``e**(x*x) * erfc(x)``; beyond 25, where erfc underflows, A. & S. 7.1.23."""
    near, far = x.minimum(25.0), x.maximum(25.0)
    inverse = far.unary("reciprocal")
    tail = _polynomial(inverse * inverse, [1.0, -0.5, 0.75, -1.875]) * inverse * (1.0 / math.sqrt(math.pi))
    return x.compare("LT", 25.0).where((near * near).exp() * near.unary("erfc"), tail)


def _zeta(a: Expr, b: Expr) -> Expr:
    """Hurwitz's zeta function, at its edges as torch has it: NaN below ``a = 1`` and infinity there; beyond, infinity at the poles
    0, -1, -2, ... of ``b`` whatever side one comes from.
    """
    at_pole = b.compare("LE", 0.0).both(b.compare("EQ", b.unary("floor")))
    value = at_pole.where(math.inf, b.new(b.b.zeta(a.value, b.value)))
    return a.compare("EQ", 1.0).where(math.inf, a.compare("LT", 1.0).where(math.nan, value))


@lowers("special_zeta.default", "special_zeta.self_scalar", "special_zeta.other_scalar")
def zeta(c: Context, a: Any, b: Any) -> Value:
    return c.cast(_zeta(_wide(c, a), _wide(c, b)).value, c.out.dtype)


@lowers("polygamma.default", "special_polygamma.default")
def polygamma(c: Context, n: int, x: Value) -> Value:
    """``(-1)**(n+1) * n! * zeta(n+1, x)``; for n = 0 digamma."""
    e = _wide(c, x)
    if n == 0:
        return c.cast(c.b.digamma(e.value, zero="inf"), c.out.dtype)
    value = _zeta(e.lift(float(n + 1)).broadcast(e.shape), e)
    return c.cast((value * ((-1.0) ** (n + 1) * math.factorial(n))).value, c.out.dtype)


# --- orthogonal polynomials -------------------------------------------------------------------------------------------

Step = Callable[[Expr, Expr, Expr, Expr], Expr]


def _chebyshev(x: Expr, k: Expr, q: Expr, p: Expr) -> Expr:
    return x * q * 2.0 - p


def _twice_less_one(x: Expr) -> Expr:
    return x * 2.0 - 1.0


def _as_is(x: Expr) -> Expr:
    return x


# Polynomial -> its variable, that of degree 1, and degree k + 1 from those of k and k - 1.
_POLYNOMIALS: dict[str, tuple[Callable[[Expr], Expr], Callable[[Expr], Expr], Step]] = {
    "chebyshev_polynomial_t": (_as_is, _as_is, _chebyshev),
    "chebyshev_polynomial_u": (_as_is, lambda x: x * 2.0, _chebyshev),
    "chebyshev_polynomial_v": (_as_is, _twice_less_one, _chebyshev),
    "chebyshev_polynomial_w": (_as_is, lambda x: x * 2.0 + 1.0, _chebyshev),
    "shifted_chebyshev_polynomial_t": (_twice_less_one, _as_is, _chebyshev),
    "shifted_chebyshev_polynomial_u": (_twice_less_one, lambda x: x * 2.0, _chebyshev),
    "shifted_chebyshev_polynomial_v": (_twice_less_one, _twice_less_one, _chebyshev),
    "shifted_chebyshev_polynomial_w": (_twice_less_one, lambda x: x * 2.0 + 1.0, _chebyshev),
    "hermite_polynomial_h": (_as_is, lambda x: x * 2.0, lambda x, k, q, p: x * q * 2.0 - k * p * 2.0),
    "hermite_polynomial_he": (_as_is, _as_is, lambda x, k, q, p: x * q - k * p),
    "laguerre_polynomial_l": (_as_is, lambda x: 1.0 - x, lambda x, k, q, p: ((k * 2.0 + 1.0 - x) * q - k * p) / (k + 1.0)),
    "legendre_polynomial_p": (_as_is, _as_is, lambda x, k, q, p: ((k * 2.0 + 1.0) * x * q - k * p) / (k + 1.0)),
}


def _polynomial_rule(variable: Callable[[Expr], Expr], first: Callable[[Expr], Expr], step: Step) -> Any:
    def rule(c: Context, x: Any, n: Any) -> Value:
        """The recurrence up to the largest degree asked for; each element stops at its own. A negative degree gives 0."""
        argument, degree = variable(_wide(c, x)), Expr(c.b, c.scalar(n, I64, c.out.shape))
        one = argument.lift(1.0).broadcast(argument.shape)
        most = degree.max(tuple(range(degree.rank)), False) if degree.value.type.size else degree.lift(0)

        def more(b: Builder, k: Value, _p: Value, _q: Value) -> Value:
            return Expr(b, k).compare("LT", Expr(b, most.value)).value

        def next_(b: Builder, k: Value, p: Value, q: Value) -> tuple[Value, ...]:
            degree_, x_, k_, p_, q_ = (Expr(b, v) for v in (degree.value, argument.value, k, p, q))
            r = step(x_, k_.cast(F64), q_, p_)
            going = k_.compare("LT", degree_)
            return (k_ + 1).value, going.where(q_, p_).value, going.where(r, q_).value

        _, _, last = c.b.while_(c.scalar(1, I64), one.value, first(argument).value, cond=more, body=next_)
        value = degree.compare("EQ", 0).where(1.0, Expr(c.b, last))
        return c.cast(degree.compare("LT", 0).where(0.0, value).value, c.out.dtype)

    return rule


for _name, _parts in _POLYNOMIALS.items():
    lowers(*(f"special_{_name}.{o}" for o in ("default", "x_scalar", "n_scalar")))(_polynomial_rule(*_parts))
