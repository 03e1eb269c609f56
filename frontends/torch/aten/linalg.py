"""Factorisations of matrices and what is solved with them.

torch's operations report by an integer whether a factorisation failed; the ops here give NaN instead, and the integer is made from
that.
"""

from __future__ import annotations

import math
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.broadcasting import broadcast_dims
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dims import DimLike
from neuron_ir.dtypes import C128, F64, I32, I64
from neuron_ir.frontends.torch.aten.creation import identity, indices, triangle
from neuron_ir.frontends.torch.aten.failures import failed_minor, stop_unless_converged, stop_unless_finite, stop_where_failed
from neuron_ir.frontends.torch.aten.reductions import norm_of, sizes
from neuron_ir.frontends.torch.aten.views import section
from neuron_ir.frontends.torch.lowering import Context, lowers
from neuron_ir.types import TensorType


def adjoint(c: Context, x: Value) -> Value:
    """The conjugate transpose of the last two dims."""
    n = len(x.shape)
    y = c.b.transpose(x, permutation=(*range(n - 2), n - 1, n - 2))
    return c.b.conj(y) if x.dtype.is_complex else y


def identity_beside(c: Context, like: Value, n: DimLike) -> Value:
    """Identity matrices with the batch dims and element type of ``like``."""
    return identity(c, TensorType((*like.shape[:-2], n, n), like.dtype))


def _is_empty(x: Value) -> bool:
    return any(d == 0 for d in x.shape)


# --- Cholesky ---------------------------------------------------------------------------------------------------------


def _cholesky(c: Context, x: Value, upper: bool) -> Value:
    return x if _is_empty(x) else c.b.cholesky(x, lower=not upper)


@lowers("linalg_cholesky_ex.default")
def cholesky_ex(c: Context, x: Value, *, upper: bool = False, check_errors: bool = False) -> tuple[Value, Value]:
    factor = _cholesky(c, x, upper)
    info = c.cast(failed_minor(c, x, factor, not upper), I32) if not _is_empty(x) else c.scalar(0, I32, x.shape[:-2])
    return factor, _checked(c, info, check_errors, "linalg.cholesky_ex")


def _checked(c: Context, info: Value, check_errors: bool, api_name: str) -> Value:
    if check_errors:
        stop_where_failed(c, info, api_name)
    return info


@lowers("cholesky.default")
def cholesky(c: Context, x: Value, upper: bool = False) -> Value:
    factor = _cholesky(c, x, upper)
    if not _is_empty(x):
        stop_where_failed(c, failed_minor(c, x, factor, not upper), "cholesky")
    return factor


@lowers("cholesky_solve.default")
def cholesky_solve(c: Context, b: Value, factor: Value, upper: bool = False) -> Value:
    b, factor = batched(c, b, factor)
    first, second = ("ADJOINT", "NO_TRANSPOSE") if upper else ("NO_TRANSPOSE", "ADJOINT")
    y = c.b.triangular_solve(factor, b, lower=not upper, transpose_a=first)
    return c.b.triangular_solve(factor, y, lower=not upper, transpose_a=second)


@lowers("cholesky_inverse.default")
def cholesky_inverse(c: Context, factor: Value, upper: bool = False) -> Value:
    if _is_empty(factor):
        return factor
    stop_where_failed(c, _singular(c, factor), "cholesky_inverse")
    return cholesky_solve(c, identity_beside(c, factor, factor.shape[-1]), factor, upper)


def batched(c: Context, *matrices: Value) -> list[Value]:
    """Matrices brought to the same batch dims."""
    batch: tuple[DimLike, ...] = ()
    for x in matrices:
        both = broadcast_dims(batch, x.shape[:-2])
        assert both is not None  # torch has checked it
        batch = both
    return [c.broadcast(x, (*batch, *x.shape[-2:])) for x in matrices]


# --- triangular systems -----------------------------------------------------------------------------------------------


@lowers("linalg_solve_triangular.default")
def solve_triangular(
    c: Context, a: Value, b: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:  # fmt: skip
    a, b = batched(c, a, b)
    if _is_empty(b):
        return b
    return c.b.triangular_solve(a, b, left_side=left, lower=not upper, unit_diagonal=unitriangular)


@lowers("triangular_solve.default")
def triangular_solve(
    c: Context, b: Value, a: Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Value, Value]:  # fmt: skip
    a, b = batched(c, a, b)
    turned = "TRANSPOSE" if transpose else "NO_TRANSPOSE"
    return c.b.triangular_solve(a, b, lower=not upper, unit_diagonal=unitriangular, transpose_a=turned), a


# --- LU ---------------------------------------------------------------------------------------------------------------


@lowers("linalg_lu_factor_ex.default")
def lu_factor(c: Context, x: Value, *, pivot: bool = True, check_errors: bool = False) -> tuple[Value, Value, Value]:
    packed, pivots, _ = _lu(c, x, pivot)
    return packed, pivots, _checked(c, _singular(c, packed), check_errors, "linalg.lu_factor_ex")


def _lu(c: Context, x: Value, pivot: bool = True) -> tuple[Value, Value, Value]:
    """Packed factors, torch's pivots (counted from 1), and the permutation."""
    if not pivot:
        raise c.unsupported("pivot = False")
    if _is_empty(x):
        k = min(c.sizes(x)[-2:])
        return x, c.scalar(1, I32, (*x.shape[:-2], k)), c.b.iota(iota_dimension=len(x.shape) - 2, out=TensorType(x.shape[:-1], I32))
    packed, pivots, permutation = c.b.lu(x)
    return packed, c.b.add(pivots, c.scalar(1, I32, pivots.shape)), permutation


def _singular(c: Context, packed: Value) -> Value:
    """The place (from 1) of the first zero on the diagonal of U, 0 where there is none."""
    k = min(c.sizes(packed)[-2:])
    zero = Expr(c.b, diagonal(c, packed)).compare("EQ", 0)
    if k == 0:
        return c.scalar(0, I32, packed.shape[:-2])
    axis = len(packed.shape) - 2
    first = Expr(c.b, c.b.argmax(zero.value, axis=axis)) + 1
    any_ = Expr(c.b, c.b.reduce_or(zero.value, axes=(axis,)))
    return c.cast(any_.where(first, 0).value, I32)


def diagonal(c: Context, x: Value) -> Value:
    """The main diagonals of the last two dims."""
    n, k = len(x.shape), min(c.sizes(x)[-2:])
    places = c.b.iota(iota_dimension=0, out=TensorType((k,), I64))
    return c.b.index(x, places, places, dims=(n - 2, n - 1), policy="clamp")


def permutation_of(c: Context, pivots: Value, m: int) -> Value:
    """The permutation of ``m`` rows that exchanging row i with row ``pivots[i] - 1``, one after another, gives (i64)."""
    *batch, k = c.sizes(pivots)
    rows = c.b.iota(iota_dimension=len(batch), out=TensorType((*batch, m), I64))
    axis = len(batch)
    for i in range(k):
        other = c.cast(section(c, pivots, axis, i, i + 1), I64)
        other = c.b.subtract(other, c.scalar(1, I64, other.shape))
        here = c.scalar(i, I64, other.shape)
        mine, theirs = (c.b.take_along_axis(rows, at, axis=axis, policy="clamp") for at in (here, other))
        rows = c.b.scatter_elements(rows, here, theirs, axis=axis, policy="clamp")
        rows = c.b.scatter_elements(rows, other, mine, axis=axis, policy="clamp")
    return rows


def permutation_matrix(c: Context, rows: Value, like: Value) -> Value:
    """``P`` with ``x[rows]`` = ``P^T x``, so that ``x = P L U``."""
    *batch, m = rows.shape
    shape = (*batch, m, m)
    wide = c.b.broadcast_in_dim(
        c.cast(rows, I64), broadcast_dimensions=(*range(len(batch)), len(shape) - 1), out=TensorType(shape, I64)
    )
    here, _ = indices(c, shape)
    return c.cast(c.b.compare(here, wide, direction="EQ"), like.dtype)


def _unpacked(c: Context, packed: Value) -> tuple[Value, Value]:
    *_, m, n = c.sizes(packed)
    k, rank = min(m, n), len(packed.shape)
    below = section(c, packed, rank - 1, 0, k)
    lower = triangle(c, below, False, -1)
    rows, columns = indices(c, lower.shape)
    lower = c.b.select(c.b.compare(rows, columns, direction="EQ"), c.scalar(1, lower.dtype, lower.shape), lower)
    return lower, triangle(c, section(c, packed, rank - 2, 0, k), True)


@lowers("linalg_lu.default")
def lu(c: Context, x: Value, *, pivot: bool = True) -> tuple[Value, Value, Value]:
    packed, _, permutation = _lu(c, x, pivot)
    return (permutation_matrix(c, permutation, x), *_unpacked(c, packed))


@lowers("lu_unpack.default")
def lu_unpack(
    c: Context, packed: Value, pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Value, ...]:  # fmt: skip
    p, lower, upper = (c.scalar(0, t.dtype, t.shape) for t in c.outs)
    if unpack_pivots:
        p = permutation_matrix(c, permutation_of(c, pivots, c.sizes(packed)[-2]), packed)
    if unpack_data:
        lower, upper = _unpacked(c, packed)
    return p, lower, upper


@lowers("linalg_lu_solve.default")
def lu_solve(c: Context, packed: Value, pivots: Value, b: Value, *, left: bool = True, adjoint: bool = False) -> Value:
    return solve_packed(c, packed, permutation_of(c, pivots, c.sizes(packed)[-2]), b, left, adjoint)


def solve_packed(c: Context, packed: Value, rows: Value, b: Value, left: bool, turned: bool) -> Value:
    """``X`` with ``A X = b`` (or ``X A = b``), where ``A = P L U``; ``turned``: of the adjoint of A instead."""
    if not left:  # X A = b is A^H X^H = b^H
        return adjoint(c, solve_packed(c, packed, rows, adjoint(c, b), True, not turned))
    p = permutation_matrix(c, rows, packed)
    p, packed, b = batched(c, p, packed, b)
    if _is_empty(b) or _is_empty(packed):
        return b
    if turned:
        y = c.b.triangular_solve(packed, b, lower=False, transpose_a="ADJOINT")
        y = c.b.triangular_solve(packed, y, lower=True, unit_diagonal=True, transpose_a="ADJOINT")
        return c.b.matmul(p, y)
    y = c.b.triangular_solve(packed, c.b.matmul(adjoint(c, p), b), lower=True, unit_diagonal=True)
    return c.b.triangular_solve(packed, y, lower=False)


@lowers("_linalg_solve_ex.default")
def solve_ex(c: Context, a: Value, b: Value, *, left: bool = True, check_errors: bool = False) -> tuple[Value, ...]:
    packed, pivots, rows = _lu(c, a)
    is_vector = len(b.shape) == 1 or tuple(b.shape) == tuple(a.shape[:-1]) and len(c.outs[0].shape) == len(b.shape)
    columns = c.reshape(b, (*b.shape, 1)) if is_vector else b
    x = solve_packed(c, packed, rows, columns, left, False)
    info = _checked(c, _singular(c, packed), check_errors, "linalg.solve_ex")
    return c.reshape(x, c.outs[0].shape), packed, pivots, info


@lowers("linalg_inv_ex.default")
def inverse(c: Context, x: Value, *, check_errors: bool = False) -> tuple[Value, Value]:
    packed, _, rows = _lu(c, x)
    y = solve_packed(c, packed, rows, identity_beside(c, x, x.shape[-1]), True, False)
    return y, _checked(c, _singular(c, packed), check_errors, "linalg.inv_ex")


def _parity(c: Context, pivots: Value) -> Value:
    """-1 where the exchanges of rows are odd in number, else 1, as bool: true where odd."""
    axis = len(pivots.shape) - 1
    here = c.b.iota(iota_dimension=axis, out=TensorType(pivots.shape, pivots.dtype))
    moved = c.b.compare(pivots, c.b.add(here, c.scalar(1, pivots.dtype, pivots.shape)), direction="NE")
    return c.b.reduce_xor(moved, axes=(axis,))


@lowers("_linalg_det.default")
def determinant(c: Context, x: Value) -> tuple[Value, Value, Value]:
    packed, pivots, _ = _lu(c, x)
    axis = len(x.shape) - 2
    product = Expr(c.b, c.b.reduce_prod(diagonal(c, packed), axes=(axis,)))
    return Expr(c.b, _parity(c, pivots)).where(-product, product).value, packed, pivots


@lowers("_linalg_slogdet.default")
def log_determinant(c: Context, x: Value) -> tuple[Value, ...]:
    packed, pivots, _ = _lu(c, x)
    axis, places = len(x.shape) - 2, diagonal(c, packed)
    signs = c.b.sign(places) if x.dtype.is_complex else c.b.sign(places, nan="zero")
    sign = Expr(c.b, c.b.reduce_prod(signs, axes=(axis,)))
    size = sizes(c, places, c.outs[1].dtype)
    return Expr(c.b, _parity(c, pivots)).where(-sign, sign).value, size.log().sum((axis,), False).value, packed, pivots


# --- symmetric, not positive definite ---------------------------------------------------------------------------------


@lowers("linalg_ldl_factor_ex.default")
def ldl_factor(c: Context, x: Value, *, hermitian: bool = False, check_errors: bool = False) -> tuple[Value, ...]:
    if _is_empty(x):
        return x, *(c.scalar(0, t.dtype, t.shape) for t in c.outs[1:])
    packed, pivots, info = c.b.ldl(x, hermitian=hermitian and x.dtype.is_complex)
    return packed, pivots, _checked(c, info, check_errors, "linalg.ldl_factor_ex")


@lowers("linalg_ldl_solve.default")
def ldl_solve(c: Context, packed: Value, pivots: Value, b: Value, *, hermitian: bool = False) -> Value:
    columns = c.reshape(pivots, (*pivots.shape, 1))
    packed, columns, b = batched(c, packed, columns, b)
    if _is_empty(b):
        return b
    pivots = c.cast(c.reshape(columns, columns.shape[:-1]), I32)
    return c.b.ldl_solve(packed, pivots, b, hermitian=hermitian and b.dtype.is_complex)  # type: ignore[no-any-return]


# --- orthogonal -------------------------------------------------------------------------------------------------------


@lowers("linalg_qr.default")
def qr(c: Context, x: Value, mode: str = "reduced") -> tuple[Value, Value]:
    if _is_empty(x):
        q = c.outs[0]
        m = q.shape[-2] if q.shape else 0
        square = len(q.shape) >= 2 and q.shape[-1] == m
        return identity_beside(c, x, m) if square else c.scalar(0, q.dtype, q.shape), c.scalar(0, x.dtype, c.outs[1].shape)
    q, r = c.b.qr(x, full_matrices=mode == "complete")
    return (c.scalar(0, x.dtype, c.outs[0].shape) if mode == "r" else q), r


@lowers("geqrf.default")
def geqrf(c: Context, x: Value) -> tuple[Value, Value]:
    return (x, c.scalar(0, x.dtype, c.outs[1].shape)) if _is_empty(x) else c.b.geqrf(x)


@lowers("linalg_householder_product.default")
def householder_product(c: Context, x: Value, tau: Value) -> Value:
    return x if _is_empty(x) else c.b.householder_product(x, tau)


@lowers("ormqr.default")
def ormqr(c: Context, x: Value, tau: Value, other: Value, left: bool = True, transpose: bool = False) -> Value:
    """The product with the square orthogonal matrix of which ``x`` and ``tau`` hold the reflectors."""
    m = other.shape[-2] if left else other.shape[-1]
    rank, columns = len(x.shape), x.shape[-1]
    edges = [0] * (rank - 1) + [m - columns]
    square = c.b.pad(x, c.scalar(0, x.dtype), edge_padding_low=[0] * rank, edge_padding_high=edges)
    more = m - tau.shape[-1]
    taus = c.b.pad(tau, c.scalar(0, x.dtype), edge_padding_low=[0] * (rank - 1), edge_padding_high=[0] * (rank - 2) + [more])
    q = c.b.householder_product(square, taus)
    q = adjoint(c, q) if transpose else q
    return c.b.matmul(q, other) if left else c.b.matmul(other, q)


def _singular_values(c: Context, x: Value, full_matrices: bool = False) -> tuple[Value, Value, Value]:
    u, s, v = c.b.svd(x, full_matrices=full_matrices)
    stop_unless_converged(c, s, (len(s.shape) - 1,), "linalg.svd")
    return u, s, v


@lowers("_linalg_svd.default")
def svd(
    c: Context, x: Value, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Value, ...]:  # fmt: skip
    if _is_empty(x):
        left, values, right = c.outs
        if not compute_uv:
            return tuple(c.scalar(0, t.dtype, t.shape) for t in c.outs)
        return identity(c, left), c.scalar(0, values.dtype, values.shape), identity(c, right)
    u, s, v = _singular_values(c, x, full_matrices)
    if compute_uv:
        return u, s, v
    return c.scalar(0, u.dtype, c.outs[0].shape), s, c.scalar(0, u.dtype, c.outs[2].shape)


# --- eigenvalues ------------------------------------------------------------------------------------------------------


def _eigenvalues(c: Context, x: Value, lower: bool = True) -> tuple[Value, Value]:
    values, vectors = c.b.eigh(x, lower=lower)
    if x.shape[-1] != 1:  # a matrix of one element is its own eigenvalue, NaN as well
        stop_unless_converged(c, vectors, (len(x.shape) - 2, len(x.shape) - 1), "linalg.eigh")
    return values, vectors


@lowers("_linalg_eigh.default")
def eigh(c: Context, x: Value, uplo: str = "L", compute_v: bool = True) -> tuple[Value, Value]:
    if _is_empty(x):
        return c.scalar(0, c.outs[0].dtype, c.outs[0].shape), c.scalar(0, x.dtype, c.outs[1].shape)
    values, vectors = _eigenvalues(c, x, uplo.upper() == "L")
    return values, vectors if compute_v else c.scalar(0, x.dtype, c.outs[1].shape)


@lowers("linalg_eig.default", "_linalg_eigvals.default", "linalg_eigvals.default")
def eig(c: Context, x: Value) -> Any:
    only_values = len(c.outs) == 1
    if _is_empty(x):
        values, vectors = c.scalar(0, c.outs[0].dtype, c.outs[0].shape), c.scalar(0, c.out.dtype, x.shape)
    else:
        stop_unless_finite(c, x, "linalg.eig")
        values, vectors = c.b.eig(x)
    return values if only_values else (values, vectors)


@lowers("linalg_pinv.atol_rtol_tensor")
def pseudo_inverse(
    c: Context, x: Value, *, atol: Value | None = None, rtol: Value | None = None, hermitian: bool = False
) -> Value:  # fmt: skip
    """From singular values (``hermitian``: eigenvalues) above ``max(atol, rtol * largest)``; the others count as 0."""
    if _is_empty(x):
        return c.scalar(0, x.dtype, c.out.shape)
    rank = len(x.shape)
    if hermitian:
        values, u = _eigenvalues(c, x)
        vh = adjoint(c, u)
    else:
        u, values, vh = _singular_values(c, x)
    s = Expr(c.b, values)
    largest = s.abs().max((rank - 2,))
    real = s.dtype
    low = Expr(c.b, _threshold(c, atol, 0.0, largest.value))
    eps = 2.0**-52 if real.bits == 64 else 2.0**-23
    default = eps * max(c.sizes(x)[-2:]) if atol is None else 0.0
    relative = Expr(c.b, _threshold(c, rtol, default, largest.value))
    cut = low.maximum(relative * largest)
    inverted = s.abs().compare("GT", cut.broadcast(s.shape)).where(s.unary("reciprocal"), 0.0)
    scaled = c.b.multiply(
        adjoint(c, vh),
        c.broadcast(c.cast(c.reshape(inverted.value, (*s.shape[:-1], 1, s.shape[-1])), x.dtype), adjoint(c, vh).shape),
    )
    return c.b.matmul(scaled, adjoint(c, u))


def _threshold(c: Context, given: Value | None, default: float, like: Value) -> Value:
    """A tolerance, one per matrix, in the shape of ``like``."""
    if given is None:
        return c.scalar(default, like.dtype, like.shape)
    tolerance = c.cast(given, like.dtype)
    return c.broadcast(c.reshape(tolerance, (*tolerance.shape, 1)), like.shape)


# --- functions of matrices --------------------------------------------------------------------------------------------

_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
    670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_SQUARINGS = 24  # of norms up to 2**26, beyond which f32 has overflown for long


@lowers("linalg_matrix_exp.default", "matrix_exp.default")
def matrix_exp(c: Context, x: Value) -> Value:
    """Scaling and squaring with the Pade approximant of degree 13 (Higham 2005), in double precision, since errors double with
    each squaring; each matrix is scaled by its own power of two.
    """
    if _is_empty(x):
        return x
    narrow, rank, b = x.dtype, len(x.shape), c.b
    x = c.cast(x, C128 if narrow.is_complex else F64)
    real = x.dtype.real if x.dtype.is_complex else x.dtype
    norm = sizes(c, x, real).sum((rank - 2,)).max((rank - 1,))
    squarings = (norm / 4.0).maximum(1.0).unary("log2").unary("ceil")
    scale = c.broadcast(c.cast((-squarings).unary("exp2").value, x.dtype), x.shape)
    a = Expr(b, b.multiply(x, scale))
    one = Expr(b, identity_beside(c, x, x.shape[-1]))

    def product(p: Expr, q: Expr) -> Expr:
        return Expr(b, b.matmul(p.value, q.value))

    a2 = product(a, a)
    a4 = product(a2, a2)
    a6 = product(a4, a2)
    k = _PADE
    odd = product(a, product(a6, a6 * k[13] + a4 * k[11] + a2 * k[9]) + a6 * k[7] + a4 * k[5] + a2 * k[3] + one * k[1])
    even = product(a6, a6 * k[12] + a4 * k[10] + a2 * k[8]) + a6 * k[6] + a4 * k[4] + a2 * k[2] + one * k[0]
    packed, _, rows = _lu(c, (even - odd).value)
    y = Expr(b, solve_packed(c, packed, rows, (even + odd).value, True, False))
    for i in range(_SQUARINGS):
        more = squarings.compare("GT", float(i))
        y = more.broadcast(y.shape).where(product(y, y), y)
    return c.cast(y.value, narrow)


# --- distances --------------------------------------------------------------------------------------------------------


@lowers("_cdist_forward.default")
def cdist(c: Context, a: Value, b: Value, order: float, compute_mode: int | None = None) -> Value:
    """The distance of each row of ``a`` from each row of ``b``, from differences (never by the square of sums)."""
    a, b = batched(c, a, b)
    *batch, m, k = a.shape
    n, wide = b.shape[-2], (*batch, a.shape[-2], b.shape[-2], k)
    apart = c.b.subtract(c.broadcast(c.reshape(a, (*batch, m, 1, k)), wide), c.broadcast(c.reshape(b, (*batch, 1, n, k)), wide))
    return _distance(c, apart, order)


@lowers("_pdist_forward.default")
def pdist(c: Context, x: Value, order: float = 2.0) -> Value:
    """The distances of all pairs of rows, the first row's first."""
    n = x.shape[0]
    if not isinstance(n, int):
        raise c.unsupported("a symbolic number of rows")
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    if not pairs:
        return c.scalar(0, x.dtype, c.out.shape)
    first, second = (c.b.take(x, c.b.const(_column(pairs, i), I64), axis=0, policy="clamp") for i in (0, 1))
    return _distance(c, c.b.subtract(first, second), order)


def _column(pairs: list[tuple[int, int]], i: int) -> Any:
    import numpy

    return numpy.array([p[i] for p in pairs], "int64")


def _distance(c: Context, apart: Value, order: float) -> Value:
    last = len(apart.shape) - 1
    size = Expr(c.b, apart).abs()
    if order == math.inf and apart.shape[last] == 0:
        return c.scalar(0, apart.dtype, apart.shape[:-1])
    return norm_of(c, size, float(order), (last,), False).value


@lowers("_trilinear.default")
def trilinear(
    c: Context, a: Value, b: Value, w: Value, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, unroll_dim: int = 1
) -> Value:  # fmt: skip
    """The product of three tensors, each given new dims of size 1, summed over ``sumdim``."""
    parts = []
    for x, dims in ((a, expand1), (b, expand2), (w, expand3)):
        shape = list(x.shape)
        for d in sorted(dims):
            shape.insert(d, 1)
        parts.append(Expr(c.b, c.cast(c.reshape(x, shape), c.out.dtype.accumulator)))
    y = parts[0] * parts[1] * parts[2]
    return c.cast(y.sum(tuple(sumdim), False).value, c.out.dtype)


@lowers("linalg_diagonal.default")
def linalg_diagonal(c: Context, x: Value, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    from neuron_ir.frontends.torch.aten.views import diagonal as view

    return view(c, x, offset, dim1, dim2)
