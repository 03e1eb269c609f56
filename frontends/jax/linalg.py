"""Matrix factorisations written in plain JAX operations, for platforms that have no LAPACK.

They follow LAPACK's storage conventions (reflectors below the diagonal, scales in ``taus``), so that JAX's own
derivative rules and consumers such as ``ormqr`` see what they expect. All take leading batch dimensions.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array

#: QDWH splits problems above this size; below it the Jacobi iteration is both faster and more accurate.
JACOBI_LIMIT = 256
MAX_SWEEPS = 50


def _dagger(x: Array) -> Array:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def _matvec_outer(v: Array, w: Array) -> Array:
    """Outer product ``v w^H`` of the last axes."""
    return v[..., :, None] * jnp.conj(w)[..., None, :]


def _scale(largest: Array) -> Array:
    """A divisor that brings magnitudes up to ``largest`` near one; its reciprocal is a normal number too.

    XLA may divide by multiplying with the reciprocal, and the reciprocal of 1e38 in float32 is flushed to zero.
    """
    tiny = jnp.finfo(largest.dtype).tiny
    return jnp.where(largest == 0, 1, jnp.clip(largest, tiny, 0.25 / tiny)).astype(largest.dtype)


def _reflector(column: Array, row: Array | int) -> tuple[Array, Array, Array]:
    """Householder reflector ``H = I - tau v v^H`` with ``H^H column = beta e_row`` (LAPACK ``larfg``).

    Entries above ``row`` are ignored. Returns ``v`` (zero above ``row``, one at ``row``), ``tau`` and the real ``beta``.
    The norm is scaled by the largest magnitude so that it neither overflows nor flushes to zero.
    """
    index = jnp.arange(column.shape[-1])
    scale = _scale(jnp.max(jnp.where(index >= row, jnp.abs(column), 0), axis=-1))
    scaled = column / scale[..., None]
    alpha = jnp.sum(jnp.where(index == row, scaled, 0), axis=-1)
    tail = jnp.where(index > row, scaled, 0)
    tail_square = jnp.sum(jnp.real(tail * jnp.conj(tail)), axis=-1)
    norm = jnp.sqrt(tail_square + jnp.real(alpha * jnp.conj(alpha)))
    trivial = (tail_square == 0) & (jnp.imag(alpha) == 0)
    beta = jnp.where(trivial, jnp.real(alpha), jnp.where(jnp.real(alpha) >= 0, -norm, norm))
    safe_beta = jnp.where(trivial, 1, beta)
    tau = jnp.where(trivial, 0, (safe_beta - alpha) / safe_beta)
    divisor = jnp.where(trivial, 1, alpha - beta)
    v = jnp.where(index == row, 1, tail / divisor[..., None])
    return v.astype(column.dtype), tau.astype(column.dtype), beta * scale


def _apply_left(a: Array, v: Array, tau: Array) -> Array:
    """``(I - tau v v^H) a``."""
    w = jnp.einsum("...m,...mn->...n", jnp.conj(v), a, precision=lax.Precision.HIGHEST)
    return a - tau[..., None, None] * v[..., :, None] * w[..., None, :]


def _apply_right(a: Array, v: Array, tau: Array) -> Array:
    """``a (I - tau v v^H)``."""
    w = jnp.einsum("...mn,...n->...m", a, v, precision=lax.Precision.HIGHEST)
    return a - tau[..., None, None] * _matvec_outer(w, v)


def _store(a: Array, column: Array | int, row: Array | int, v: Array, beta: Array) -> Array:
    """Put ``beta`` at (row, column) and the reflector below it."""
    rows = jnp.arange(a.shape[-2])[:, None]
    columns = jnp.arange(a.shape[-1])[None, :]
    here = columns == column
    a = jnp.where(here & (rows == row), beta[..., None, None].astype(a.dtype), a)
    return jnp.where(here & (rows > row), v[..., :, None], a)


def _column(a: Array, j: Array | int) -> Array:
    return lax.dynamic_index_in_dim(a, j, axis=a.ndim - 1, keepdims=False)


def _householder_step(j: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
    a, taus = state
    v, tau, beta = _reflector(_column(a, j), j)
    updated = _apply_left(a, v, jnp.conj(tau))
    a = jnp.where(jnp.arange(a.shape[-1]) > j, updated, a)
    a = _store(a, j, j, v, beta)
    return a, jnp.where(jnp.arange(taus.shape[-1]) == j, tau[..., None], taus)


def geqrf(a: Array) -> tuple[Array, Array]:
    """QR factorisation in LAPACK's packed form: ``[..., m, n] -> ([..., m, n], taus[..., min(m, n)])``."""
    *batch, m, n = a.shape
    taus = jnp.zeros((*batch, min(m, n)), a.dtype)
    if a.size == 0:
        return a, taus
    return lax.fori_loop(0, min(m, n), _householder_step, (a, taus))


def geqp3(a: Array, jpvt: Array) -> tuple[Array, Array, Array]:
    """Column-pivoted QR in LAPACK's packed form; ``jpvt`` is one-based and nonzero entries are moved to the front."""
    *batch, m, n = a.shape
    taus = jnp.zeros((*batch, min(m, n)), a.dtype)
    rows, columns = jnp.arange(m)[:, None], jnp.arange(n)
    order = jnp.broadcast_to(columns, jpvt.shape)
    if a.size == 0:
        return a, (order + 1).astype(jpvt.dtype), taus

    def exchange(order: Array, i: Array | int, j: Array) -> Array:
        swap = jnp.where(columns == i, j, jnp.where(columns == j, i, columns))
        return jnp.take_along_axis(order, swap, axis=-1)

    def bring_forward(j: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        order, fixed = state
        wanted = (_column(jpvt, j) != 0)[..., None]
        return jnp.where(wanted, exchange(order, j, fixed), order), fixed + wanted

    order, fixed = lax.fori_loop(0, n, bring_forward, (order, jnp.zeros((*batch, 1), order.dtype)))
    a = jnp.take_along_axis(a, order[..., None, :], axis=-1)

    def step(j: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        a, order, taus = state
        rest = jnp.where(rows >= j, a, 0)
        rest = rest / _scale(jnp.max(jnp.abs(rest), axis=(-1, -2), keepdims=True))
        norms = jnp.sum(jnp.real(rest * jnp.conj(rest)), axis=-2)
        best = jnp.argmax(jnp.where(columns >= j, norms, -1), axis=-1)
        pivot = jnp.where(j < fixed, j, best[..., None])
        swap = jnp.where(columns == j, pivot, jnp.where(columns == pivot, j, columns))
        a = jnp.take_along_axis(a, swap[..., None, :], axis=-1)
        order = exchange(order, j, pivot)
        a, taus = _householder_step(j, (a, taus))
        return a, order, taus

    a, order, taus = lax.fori_loop(0, min(m, n), step, (a, order, taus))
    return a, (order + 1).astype(jpvt.dtype), taus


def householder_product(a: Array, taus: Array) -> Array:
    """First ``n`` columns of the product of the reflectors packed in ``a[..., m, n]`` (LAPACK ``orgqr``)."""
    *batch, m, n = a.shape
    if a.size == 0 or taus.shape[-1] == 0:
        return jnp.broadcast_to(jnp.eye(m, n, dtype=a.dtype), a.shape)
    eye = jnp.broadcast_to(jnp.eye(m, n, dtype=a.dtype), a.shape)
    index, count = jnp.arange(m), taus.shape[-1]

    def step(i: Array, q: Array) -> Array:
        j = count - 1 - i
        column = _column(a, j)
        v = jnp.where(index > j, column, jnp.where(index == j, 1, 0)).astype(a.dtype)
        return _apply_left(q, v, _column(taus, j))

    return lax.fori_loop(0, count, step, eye)


def hessenberg(a: Array) -> tuple[Array, Array]:
    """Reduction ``Q^H a Q`` to upper Hessenberg form, reflectors packed below the subdiagonal (LAPACK ``gehrd``)."""
    *batch, n, _ = a.shape
    taus = jnp.zeros((*batch, max(n - 1, 0)), a.dtype)
    if a.size == 0 or n == 1:
        return a, taus

    def step(j: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        a, taus = state
        v, tau, beta = _reflector(_column(a, j), j + 1)
        updated = _apply_left(a, v, jnp.conj(tau))
        updated = jnp.where(jnp.arange(n) > j, updated, a)
        updated = _apply_right(updated, v, tau)
        a = _store(updated, j, j + 1, v, beta)
        return a, jnp.where(jnp.arange(n - 1) == j, tau[..., None], taus)

    return lax.fori_loop(0, n - 1, step, (a, taus))


def tridiagonal(a: Array, *, lower: bool) -> tuple[Array, Array, Array, Array]:
    """Reduction of a Hermitian matrix to tridiagonal form (LAPACK ``hetrd``): packed ``a``, diagonal, off-diagonal, taus.

    ``lower=False`` is the same reduction of the matrix with both axes reversed, which is how LAPACK stores it.
    """
    if not lower:
        packed, d, e, taus = tridiagonal(jnp.flip(a, (-2, -1)), lower=True)
        keep = jnp.tril(jnp.ones(a.shape[-2:], bool), -1)
        return jnp.where(keep, a, jnp.flip(packed, (-2, -1))), jnp.flip(d, -1), jnp.flip(e, -1), jnp.flip(taus, -1)
    packed, taus = hessenberg(hermitian_from_triangle(a, lower=True))
    d = jnp.real(jnp.diagonal(packed, axis1=-2, axis2=-1))
    e = jnp.real(jnp.diagonal(packed, offset=-1, axis1=-2, axis2=-1))
    keep = jnp.triu(jnp.ones(a.shape[-2:], bool), 1)
    return jnp.where(keep, a, packed), d, e, taus


def hermitian_from_triangle(a: Array, *, lower: bool) -> Array:
    """The Hermitian matrix whose lower (or upper) triangle is that of ``a``; imaginary parts of the diagonal are ignored."""
    strict = jnp.tril(a, -1) if lower else jnp.triu(a, 1)
    diagonal = jnp.real(jnp.diagonal(a, axis1=-2, axis2=-1)).astype(a.dtype)
    eye = jnp.eye(a.shape[-1], dtype=bool)
    return jnp.where(eye, diagonal[..., None, :], strict + _dagger(strict))


def _rotations(top: Array, bottom: Array, cross: Array) -> tuple[Array, Array]:
    """Cosine and complex sine that annihilate ``cross`` in ``[[top, cross], [conj(cross), bottom]]``."""
    size = jnp.abs(cross)
    idle = size == 0
    safe = jnp.where(idle, 1, size)
    ratio = (bottom - top) / (2 * safe)
    tangent = jnp.where(ratio >= 0, 1, -1) / (jnp.abs(ratio) + jnp.sqrt(1 + ratio * ratio))
    tangent = jnp.where(idle, 0, tangent)
    cosine = lax.rsqrt(1 + tangent * tangent)
    sine = (tangent * cosine).astype(cross.dtype) * jnp.where(idle, 1, cross / safe.astype(cross.dtype))
    return cosine.astype(top.dtype), sine


def _tournament(x: Array, axis: int) -> Array:
    """Next round of the round-robin pairing: index ``i`` plays ``i + n/2``; index 0 stays."""
    half = x.shape[axis] // 2
    if half == 1:
        return x

    def part(start: int, stop: int) -> Array:
        return lax.slice_in_dim(x, start, stop, axis=axis)

    return lax.concatenate(
        [part(0, 1), part(half, half + 1), part(1, half - 1), part(half + 1, 2 * half), part(half - 1, half)],
        dimension=axis % x.ndim,
    )


def _jacobi_round(state: tuple[Array, Array]) -> tuple[Array, Array]:
    """Rotate all pairs ``(i, i + n/2)`` at once, then re-pair."""
    a, vectors = state
    half = a.shape[-1] // 2
    diagonal = jnp.real(jnp.diagonal(a, axis1=-2, axis2=-1))
    cross = jnp.diagonal(a[..., :half, half:], axis1=-2, axis2=-1)
    c, s = _rotations(diagonal[..., :half], diagonal[..., half:], cross)
    c = c.astype(a.dtype)

    def columns(x: Array) -> Array:
        p, q = x[..., :half], x[..., half:]
        cc, ss = c[..., None, :], s[..., None, :]
        return jnp.concatenate([cc * p - jnp.conj(ss) * q, ss * p + cc * q], axis=-1)

    def rows(x: Array) -> Array:
        p, q = x[..., :half, :], x[..., half:, :]
        cc, ss = c[..., :, None], s[..., :, None]
        return jnp.concatenate([cc * p - ss * q, jnp.conj(ss) * p + cc * q], axis=-2)

    a = rows(columns(a))
    vectors = columns(vectors)
    return _tournament(_tournament(a, -1), -2), _tournament(vectors, -1)


def _off_diagonal(a: Array) -> Array:
    square = jnp.real(a * jnp.conj(a))
    return jnp.sqrt(jnp.sum(jnp.where(jnp.eye(a.shape[-1], dtype=bool), 0, square), axis=(-2, -1)))


def jacobi_eigh(a: Array) -> tuple[Array, Array]:
    """Eigenvectors (columns) and unsorted eigenvalues of a Hermitian ``[..., n, n]`` by parallel cyclic Jacobi sweeps.

    Brent and Luk's ordering: n/2 disjoint rotations at a time, n - 1 rounds make a sweep. Stops when the off-diagonal
    norm falls under eps times the matrix norm, or stagnates there. Results are NaN where the input is not finite.
    """
    *batch, n, _ = a.shape
    if n <= 1 or a.size == 0:
        eye = jnp.broadcast_to(jnp.eye(n, dtype=a.dtype), a.shape)
        return eye, jnp.real(jnp.diagonal(a, axis1=-2, axis2=-1))
    eps = jnp.finfo(a.dtype).eps
    largest = jnp.max(jnp.abs(a), axis=(-2, -1), keepdims=True)
    finite = jnp.isfinite(largest)
    scale = _scale(jnp.where(finite, largest, 0))
    work = jnp.where(finite, a / scale.astype(a.dtype), 0)
    if n % 2:
        work = jnp.pad(work, [(0, 0)] * len(batch) + [(0, 1), (0, 1)])
    size = work.shape[-1]
    vectors = jnp.broadcast_to(jnp.eye(size, dtype=a.dtype), work.shape)
    norm = jnp.sqrt(jnp.sum(jnp.real(work * jnp.conj(work)), axis=(-2, -1)))

    def unfinished(state: tuple[Any, ...]) -> Array:
        sweep, _, _, off, before = state
        improving = (sweep < 8) | (off < before / 4)
        return jnp.any((off > eps * norm) & improving) & (sweep < MAX_SWEEPS)

    def sweep(state: tuple[Any, ...]) -> tuple[Any, ...]:
        count, work, vectors, off, _ = state
        work, vectors = lax.fori_loop(0, size - 1, lambda _, s: _jacobi_round(s), (work, vectors))
        return count + 1, work, vectors, _off_diagonal(work), off

    off = _off_diagonal(work)
    _, work, vectors, off, _ = lax.while_loop(unfinished, sweep, (0, work, vectors, off, off))
    good = finite & (off <= 4 * size * eps * norm)[..., None, None]
    nan = jnp.asarray(jnp.nan, a.dtype)
    scaled = jnp.where(finite, a / scale.astype(a.dtype), 0)
    vectors, values = _polish(scaled, vectors[..., :n, :n])
    return jnp.where(good, vectors, nan), jnp.where(good[..., 0], values * scale[..., 0], jnp.real(nan))


def _polish(a: Array, vectors: Array) -> tuple[Array, Array]:
    """One Newton-Schulz step towards orthonormal vectors, then Rayleigh quotients: undoes the drift of many rotations."""
    matmul = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    gram = matmul(_dagger(vectors), vectors)
    excess = gram - jnp.eye(a.shape[-1], dtype=a.dtype)
    vectors = vectors - matmul(vectors, excess) / 2
    return vectors, jnp.real(jnp.sum(jnp.conj(vectors) * matmul(a, vectors), axis=-2))


def eigh(a: Array, *, lower: bool, sort: bool, subset: tuple[int, int] | None) -> tuple[Array, Array]:
    """Eigenvectors and eigenvalues of the Hermitian matrix in one triangle of ``a``, ascending when ``sort``."""
    low = a.dtype in (jnp.float16, jnp.bfloat16)
    work = hermitian_from_triangle(a.astype(jnp.float32) if low else a, lower=lower)
    vectors, values = jacobi_eigh(work)
    if sort or subset is not None:
        order = jnp.argsort(values, axis=-1)
        order = order if subset is None else order[..., subset[0] : subset[1]]
        values = jnp.take_along_axis(values, order, axis=-1)
        vectors = jnp.take_along_axis(vectors, order[..., None, :], axis=-1)
    return vectors.astype(a.dtype), values.astype(jnp.finfo(a.dtype).dtype)
