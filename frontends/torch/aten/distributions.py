"""Random draws that take a number of attempts: counts by the inverse of their distribution, and gamma's by rejection.

Counts are found by adding up chances in f64 until they pass one uniform number, as many steps as the largest count takes; a
parameter for which the first chance is no normal number of f64 stops the program.
"""

from __future__ import annotations

import math
from typing import Any

from neuron_ir.builder import Builder
from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dtypes import F64
from neuron_ir.frontends.torch.aten.random import uniform
from neuron_ir.frontends.torch.lowering import Context, lowers
from neuron_ir.types import TensorType

_LARGEST = 700.0  # exp(-700) is a normal number of f64


@lowers("poisson.default")
def poisson(c: Context, rate: Value, _generator: Any = None) -> Value:
    """A number of events each, whose mean is ``rate``: chance ``k`` is the one before it times ``rate / k``."""
    x = Expr(c.b, c.cast(rate, F64))
    fine = x.compare("GE", 0.0).both(x.compare("LE", _LARGEST))
    c.require(fine.value, f"a rate in {rate.type} is negative, or above {_LARGEST:.0f}, whose counts are not drawn here")
    drawn = _inverse(c, (-x).exp(), lambda k: within(k, x) / k, x + (x.sqrt() * 12.0 + 60.0))
    return c.cast(drawn, c.out.dtype)


@lowers("binomial.default")
def binomial(c: Context, count: Value, chance: Value, _generator: Any = None) -> Value:
    """A number of successes among ``count``; drawn for the rarer of success and failure."""
    n, p = (Expr(c.b, v) for v in c.spread(count, chance, dtype=F64))
    often = p.compare("GT", 0.5)
    rare = often.where(1.0 - p, p)
    first = (n * (-rare).unary("log_plus_one")).exp()
    valid = n.compare("GE", 0.0).both(p.compare("GE", 0.0)).both(p.compare("LE", 1.0))
    c.require(valid.value, f"a count in {count.type} is negative, or a chance in {chance.type} lies outside 0 to 1")
    c.require(first.compare("GE", 1e-304).value, "so many trials that no success among them is too rare to be drawn here")
    odds = rare / (1.0 - rare)
    found = Expr(c.b, _inverse(c, first, lambda k: within(k, odds) * (within(k, n) - k + 1.0) / k, n))
    return c.cast(often.where(n - found, found).value, c.out.dtype)


def within(inner: Expr, outer: Expr) -> Expr:
    """A value from outside of a region, to compute with in the region of ``inner``."""
    return Expr(inner.b, outer.value)


def _inverse(c: Context, first: Expr, ratio: Any, most: Expr) -> Value:
    """The first k up to ``most`` at which the chances 0..k add up to more than a uniform number; ``ratio(k)``: k's over k - 1's."""
    u = Expr(c.b, uniform(c, 0.0, 1.0, TensorType(first.shape, F64)))

    def inside(b: Builder, *values: Value) -> list[Expr]:
        return [Expr(b, v) for v in values]

    def goes_on(b: Builder, k: Value, _chance: Value, total: Value) -> Expr:
        at, upto = inside(b, k, total)
        return Expr(b, u.value).compare("GE", upto).both(at.compare("LT", Expr(b, most.value)))

    def condition(b: Builder, k: Value, chance: Value, total: Value) -> Value:
        going = goes_on(b, k, chance, total)
        return b.reduce_or(going.value, axes=tuple(range(going.rank))) if going.rank else going.value

    def body(b: Builder, k: Value, chance: Value, total: Value) -> list[Value]:
        going = goes_on(b, k, chance, total)
        at, present, upto = inside(b, k, chance, total)
        following = at + 1.0
        after = present * ratio(following)
        return [going.where(following, at).value, going.where(after, present).value, going.where(upto + after, upto).value]

    zero = c.scalar(0.0, F64, first.shape)
    return c.b.while_(zero, first.value, first.value, cond=condition, body=body)[0]  # type: ignore[no-any-return]


@lowers("_standard_gamma.default")
def standard_gamma(c: Context, alpha: Value, _generator: Any = None) -> Value:
    return c.cast(_gamma(c, alpha).value, c.out.dtype)


@lowers("_sample_dirichlet.default")
def sample_dirichlet(c: Context, alpha: Value, _generator: Any = None) -> Value:
    """Shares along the last dim: draws of gamma's distribution over their sum."""
    drawn = _gamma(c, alpha)
    return c.cast((drawn / drawn.sum((drawn.rank - 1,), True)).value, c.out.dtype)


def _gamma(c: Context, alpha: Value) -> Expr:
    """Draws of gamma's distribution with scale 1, in f64 (Marsaglia and Tsang, "A simple method for generating gamma variables",
    2000): below ``alpha`` = 1 those of ``alpha + 1`` times ``u ** (1 / alpha)``.
    """
    a = Expr(c.b, c.cast(alpha, F64))
    valid = a.compare("GE", 0.0).both(a.compare("LT", math.inf))
    c.require(valid.value, f"a parameter in {alpha.type} is negative or not finite")
    small = a.compare("LT", 1.0)
    d = small.where(a + 1.0, a) - 1.0 / 3.0
    width = 1.0 / (d * 9.0).sqrt()
    type = TensorType(a.shape, F64)

    def body(b: Builder, state: Value, done: Value, held: Value) -> list[Value]:
        state, x = b.random_normal(state, out=(state.type, type))
        state, u = b.random_uniform(state, out=(state.type, type))
        normal, left = Expr(b, x), 1.0 - Expr(b, u)
        stem = within(normal, width) * normal + 1.0
        cube, size = stem * stem * stem, within(normal, d)
        limit = normal * normal * 0.5 + size - size * cube + size * cube.maximum(1e-300).log()
        fits = cube.compare("GT", 0.0).both(left.log().compare("LT", limit))
        before = Expr(b, done)
        return [state, before.either(fits).value, before.where(Expr(b, held), fits.where(size * cube, 0.0)).value]

    def condition(b: Builder, _state: Value, done: Value, _held: Value) -> Value:
        every = b.reduce_and(done, axes=tuple(range(len(done.shape)))) if done.shape else done
        return b.not_(every)  # type: ignore[no-any-return]

    refused = valid.inverted().value  # so that the loop ends
    state, _, held = c.b.while_(c.random_state(), refused, c.scalar(0.0, F64, a.shape), cond=condition, body=body)
    c.advance(state)
    u = 1.0 - Expr(c.b, uniform(c, 0.0, 1.0, type))
    drawn = Expr(c.b, held)
    return small.where(drawn * (u.log() / a).exp(), drawn)
