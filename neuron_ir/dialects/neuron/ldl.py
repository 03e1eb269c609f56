"""Symmetric and Hermitian matrices that need not be positive definite: ``L D L^T`` with Bunch and Kaufman's pivots.

Step by step as in "Some stable methods for calculating inertia and solving symmetric linear systems", Math. Comp. 31 (1977): blocks
of 1 or 2 columns, packed as LAPACK's ``sytf2`` and ``hetf2`` do with the lower triangle.
"""

from __future__ import annotations

import math

from neuron_ir.dtypes import I32
from neuron_ir.opdef import Op, attr, op, operand
from neuron_ir.types import TensorType, same_shape

from .factorizations import LAPACK, _matrix

_ALPHA = (1 + math.sqrt(17)) / 8


@op("neuron.ldl", aten="linalg_ldl_factor_ex.default")
class Ldl(Op):
    """Packed ``L`` (unit diagonal, below) and block diagonal ``D``, pivots, and info of symmetric (or ``hermitian``) matrices.

    Only the lower triangle is read, the upper of the result is 0. A positive pivot p of column k says that row and column k were
    exchanged with p (from 1); two equal negative ones -p mark a block of two columns, of which the second was exchanged with p.
    ``info`` is the place (from 1) of the first zero block, or 0. Pivots and info are i32.
    """

    x = operand(LAPACK)
    hermitian = attr(bool, False)

    def infer(self):
        type, batch, n, _ = _matrix(self, square=True)
        return type, TensorType((*batch, n), I32), TensorType(batch, I32)

    def jax(j, x, *, hermitian):
        n = x.shape[-1]
        flat = x.reshape((-1, n, n))
        packed, pivots, info = j.jax.vmap(lambda a: _factor(j, a, hermitian))(flat)
        batch = x.shape[:-2]
        return packed.reshape(x.shape), pivots.reshape((*batch, n)), info.reshape(batch)


def _mirror(j, x, hermitian):
    """What stands opposite of ``x``."""
    return j.np.conj(x) if hermitian else x


def _swap(j, a, k, other, first):
    """``a`` with rows and columns k and ``other`` exchanged, but for the columns before ``first``, which are finished."""
    places = j.np.arange(a.shape[0])
    order = j.np.where(places == k, other, j.np.where(places == other, k, places))
    return j.np.where(places[None, :] < first, a, a[order][:, order])


def _pivot(j, a, k):
    """How many columns the block at k takes, and the row that it is exchanged with."""
    np, n = j.np, a.shape[0]
    places, size = np.arange(n), np.abs(np.real(a)) + np.abs(np.imag(a))  # LAPACK's cabs1
    own = size[k, k]
    below = np.where(places > k, size[:, k], -1)
    largest = np.argmax(below)
    column = np.maximum(below[largest], 0)
    row = np.max(np.where((places >= k) & (places != largest), size[:, largest], 0))
    keep = (np.maximum(own, column) == 0) | (own >= _ALPHA * column) | (own >= _ALPHA * column * (column / row))
    single = keep | (size[largest, largest] >= _ALPHA * row)
    return np.where(single, 1, 2), np.where(keep, k, largest)


def _factor(j, a, hermitian):
    """The factors of one matrix, whose remaining part is kept whole, not as a triangle."""
    np, n = j.np, a.shape[0]
    places = np.arange(n)
    lower = np.tril(a, -1)
    diagonal = np.diag(a)
    diagonal = np.real(diagonal).astype(a.dtype) if hermitian else diagonal
    whole = lower + _mirror(j, lower.T, hermitian) + np.diag(diagonal)

    def step(state):
        k, a, pivots, info = state
        width, other = _pivot(j, a, k)
        at = k + width - 1
        a = _swap(j, a, at, other, k)
        nothing = (width == 1) & (a[k, k] == 0) & np.all(np.where(places > k, a[:, k], 0) == 0)
        info = np.where(nothing & (info == 0), k + 1, info)
        second = np.minimum(k + 1, n - 1)
        p, q, r = a[k, k], a[second, k], a[second, second]
        left = np.where(places > at, a[:, k], 0)
        right = np.where((width == 2) & (places > at), a[:, second], 0)
        # columns of L: [left, right] times the inverse of the block, scaled by q so that nothing overflows
        safe = np.where((width == 2) & (q != 0), q, 1)
        x, y = r / safe, p / _mirror(j, safe, hermitian)
        scale = 1 / (x * y - 1)
        two_left = (left * x - right) * scale / _mirror(j, safe, hermitian)
        two_right = (right * y - left) * scale / safe
        one = np.where(nothing, left, left / np.where(p == 0, 1, p))
        columns = (np.where(width == 2, two_left, one), np.where(width == 2, two_right, 0))
        update = np.outer(columns[0], _mirror(j, left, hermitian)) + np.outer(columns[1], _mirror(j, right, hermitian))
        rest = (places[:, None] > at) & (places[None, :] > at)
        a = np.where(rest, a - update, a)
        a = a.at[:, k].set(np.where(places > at, columns[0], a[:, k]))
        a = np.where((width == 2) & (places[None, :] == second), np.where(places > at, columns[1], a[:, second])[:, None], a)
        if hermitian:
            a = np.where(np.eye(n, dtype=bool), np.real(a).astype(a.dtype), a)
        mark = np.where(width == 2, -(other + 1), other + 1).astype(np.int32)
        pivots = np.where((places >= k) & (places <= at), mark, pivots)
        return k + width, a, pivots, info.astype(np.int32)

    start = (np.int64(0), whole, np.zeros(n, np.int32), np.int32(0))
    _, packed, pivots, info = j.lax.while_loop(lambda s: s[0] < n, step, start)
    return np.tril(packed), pivots, info


@op("neuron.ldl_solve", aten="linalg_ldl_solve.default")
class LdlSolve(Op):
    """``x`` with ``a x = b`` for the matrices of which neuron.ldl gave the ``packed`` factors and ``pivots``."""

    packed = operand(LAPACK)
    pivots = operand(frozenset({I32}))
    b = operand(LAPACK)
    hermitian = attr(bool, False)

    def infer(self):
        type, batch, n, _ = _matrix(self, square=True)
        pivots, b = self.pivots.type, self.b.type
        fits = b.rank == len(batch) + 2 and same_shape(b.shape[:-1], (*batch, n)) and same_shape(pivots.shape, (*batch, n))
        if b.dtype is not type.dtype or not fits:
            raise self.error("shape", f"factors {type} with pivots {pivots} cannot solve for {b}")
        return b

    def jax(j, packed, pivots, b, *, hermitian):
        n = packed.shape[-1]
        each = (packed.reshape((-1, n, n)), pivots.reshape((-1, n)), b.reshape((-1, n, b.shape[-1])))
        return j.jax.vmap(lambda *one: _solve(j, *one, hermitian))(*each).reshape(b.shape)


def _solve(j, packed, pivots, b, hermitian):
    """Through ``P L``, ``D``, ``L^T P^T``, one column after another."""
    np, n = j.np, packed.shape[0]
    places = np.arange(n)
    double = pivots < 0
    # of a block of two columns the second one is exchanged; it is the one with an odd number of marks up to it
    second = double & (np.cumsum(double) % 2 == 0)
    first = double & ~second
    partner = np.where(second, np.abs(pivots) - 1, np.where(first, places, pivots - 1))
    strict = np.tril(packed, -1)
    below = np.where(np.diag(np.ones(n - 1, bool), -1) & first[None, :], 0, strict)  # without D's own elements

    def exchanged(b, k):
        order = np.where(places == k, partner[k], np.where(places == partner[k], k, places))
        return b[order]

    def forward(k, b):
        # a block's exchange comes before both of its columns are used
        ahead = np.minimum(k + 1, n - 1)
        b = np.where(first[k], exchanged(b, ahead), np.where(second[k], b, exchanged(b, k)))
        return b - np.outer(below[:, k], b[k])

    def backward(i, b):
        k = n - 1 - i
        row = _mirror(j, below[:, k], hermitian)
        b = b.at[k].add(-(row @ b))
        ahead = np.minimum(k + 1, n - 1)
        return np.where(first[k], exchanged(b, ahead), np.where(second[k], b, exchanged(b, k)))

    y = j.lax.fori_loop(0, n, forward, b)
    return j.lax.fori_loop(0, n, backward, _by_blocks(j, packed, first, second, y, hermitian))


def _by_blocks(j, packed, first, second, y, hermitian):
    """``D^-1 y``."""
    np = j.np
    main, side = np.diag(packed), np.append(np.diag(packed, -1), 0)
    down = np.where(first, side, 0)  # at the first column of a block: D[k + 1, k]
    up = np.roll(down, 1)
    other = np.where(first[:, None], np.roll(y, -1, 0), np.roll(y, 1, 0))
    partner = np.where(first, np.roll(main, -1), np.roll(main, 1))
    cross = np.where(first, _mirror(j, down, hermitian), up)
    whole = main * partner - np.where(first, down, up) * _mirror(j, np.where(first, down, up), hermitian)
    two = (partner[:, None] * y - cross[:, None] * other) / np.where(first | second, whole, 1)[:, None]
    return np.where((first | second)[:, None], two, y / np.where(first | second, 1, main)[:, None])
