"""Factorisations of matrices and Fourier transforms. All take leading batch dims; matrices are the last two."""

from __future__ import annotations

from neuron_ir.dims import DimLike, function
from neuron_ir.dtypes import F32, F64, I32
from neuron_ir.opdef import COMPLEX, FLOAT, INTS, Op, attr, op, operand
from neuron_ir.types import TensorType, same_shape

LAPACK = frozenset({F32, F64}) | COMPLEX


def _matrix(self: Op, square: bool = False) -> tuple[TensorType, list[DimLike], DimLike, DimLike]:
    """The operand's type, its batch dims, and its last two sizes; an error where it is no (square) matrix."""
    type = self.operands[0].type
    if type.rank < 2:
        raise self.error("shape", f"needs matrices, not {type}")
    *batch, m, n = type.shape
    if square and not same_shape([m], [n]):
        raise self.error("shape", f"needs square matrices, not {m} x {n}")
    return type, batch, m, n


def _smaller(m: DimLike, n: DimLike) -> DimLike:
    return function("min", m, n)


@op("neuron.cholesky", aten="linalg_cholesky_ex.default")
class Cholesky(Op):
    """``L`` with ``x = L L^H`` (``lower``), or ``U`` with ``x = U^H U``.

    The other triangle of the result is 0, that of ``x`` is not read. A matrix that is not positive definite gives NaN.
    """

    x = operand(LAPACK)
    lower = attr(bool, True)

    def infer(self):
        return _matrix(self, square=True)[0]

    def jax(j, x, *, lower):
        if lower:
            return j.lax.linalg.cholesky(x, symmetrize_input=False)
        flipped = j.lax.linalg.cholesky(j.np.conj(j.np.swapaxes(x, -1, -2)), symmetrize_input=False)
        return j.np.conj(j.np.swapaxes(flipped, -1, -2))


TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


@op("neuron.triangular_solve")
class TriangularSolve(Op):
    """``x`` with ``op(a) x = b`` (``left_side``) or ``x op(a) = b``, where ``a`` is triangular.

    ``op`` is what ``transpose_a`` says. Only the ``lower`` (or upper) triangle of ``a`` is read, without its diagonal where
    ``unit_diagonal``, which then counts as ones. Floats narrower than f32 are computed in f32 and rounded once.
    """

    a = operand(FLOAT | COMPLEX)
    b = operand(FLOAT | COMPLEX)
    left_side = attr(bool, True)
    lower = attr(bool, True)
    unit_diagonal = attr(bool, False)
    transpose_a = attr(str, "NO_TRANSPOSE", choices=TRANSPOSES)

    def infer(self):
        _, batch, m, _ = _matrix(self, square=True)
        b = self.b.type
        if b.dtype is not self.a.dtype or b.rank != len(batch) + 2 or not same_shape(b.shape[:-2], batch):
            raise self.error("shape", f"a and b must agree in element type and batch dims, not {self.a.type} and {b}")
        if not same_shape([b.shape[-2 if self.left_side else -1]], [m]):
            raise self.error("shape", f"{m} x {m} matrices cannot solve for {b} from the {'left' if self.left_side else 'right'}")
        return b

    def jax(j, a, b, *, left_side, lower, unit_diagonal, transpose_a):
        if b.dtype.itemsize < 4:
            a = a.astype(j.np.float32)
        return j.lax.linalg.triangular_solve(
            a, b.astype(a.dtype), left_side=left_side, lower=lower, unit_diagonal=unit_diagonal,
            transpose_a=transpose_a != "NO_TRANSPOSE", conjugate_a=transpose_a == "ADJOINT",
        ).astype(b.dtype)  # fmt: skip


@op("neuron.fft")
class Fft(Op):
    """Fourier transform over the last ``len(fft_length)`` dims (1 to 3).

    ``fft_type``: ``FFT``, ``IFFT`` (scaled by 1/n) on complex, ``RFFT`` from real to the ``n // 2 + 1`` complex values that matter
    in the last dim, ``IRFFT`` back; ``fft_length`` gives the real sizes.
    """

    x = operand(LAPACK)
    fft_type = attr(str, choices=("FFT", "IFFT", "RFFT", "IRFFT"))
    fft_length = attr(INTS)

    def infer(self):
        type, lengths, kind = self.x.type, self.fft_length, self.fft_type
        n = len(lengths)
        if not 1 <= n <= 3 or n > type.rank:
            raise self.error("shape", f"fft_length {list(lengths)} must have 1 to 3 entries and no more than {type} has dims")
        if (kind == "RFFT") == type.dtype.is_complex:
            raise self.error("operand", f"{kind} needs {'real' if kind == 'RFFT' else 'complex'} numbers, not {type}")
        expected = [*lengths[:-1], lengths[-1] // 2 + 1] if kind == "IRFFT" else list(lengths)
        if not same_shape(type.shape[type.rank - n :], expected):
            raise self.error("shape", f"{kind} of lengths {list(lengths)} needs last sizes {expected}, not {type}")
        kept = type.shape[: type.rank - n]
        if kind == "RFFT":
            return TensorType((*kept, *lengths[:-1], lengths[-1] // 2 + 1), type.dtype.complex)
        return TensorType((*kept, *lengths), type.dtype.real) if kind == "IRFFT" else type

    def jax(j, x, *, fft_type, fft_length, out):
        if 0 in out.shape or 0 in x.shape:
            return j.np.zeros(out.shape, out.dtype.numpy)
        return j.lax.fft(x, fft_type, fft_length)


@op("neuron.eigh", aten="_linalg_eigh.default")
class Eigh(Op):
    """Eigenvalues (real, ascending) and eigenvectors (columns) of Hermitian matrices, of which one triangle is read."""

    x = operand(LAPACK)
    lower = attr(bool, True)

    def infer(self):
        type, batch, n, _ = _matrix(self, square=True)
        return TensorType((*batch, n), type.dtype.real), type

    def jax(j, x, *, lower):
        vectors, values = j.lax.linalg.eigh(x, lower=lower, symmetrize_input=False)
        return values, vectors


@op("neuron.eig", aten="linalg_eig.default")
class Eig(Op):
    """Complex eigenvalues, in no particular order, and right eigenvectors (columns, of length 1) of any square matrices."""

    x = operand(LAPACK)

    def infer(self):
        type, batch, n, _ = _matrix(self, square=True)
        wide = type.dtype if type.dtype.is_complex else type.dtype.complex
        return TensorType((*batch, n), wide), TensorType(type.shape, wide)

    def jax(j, x):
        return tuple(j.lax.linalg.eig(x, compute_left_eigenvectors=False))


@op("neuron.svd", aten="_linalg_svd.default")
class Svd(Op):
    """``U``, ``S``, ``Vh`` with ``x = U S Vh``; ``S`` is real and descending. ``full_matrices``: ``U`` and ``Vh`` are square."""

    x = operand(LAPACK)
    full_matrices = attr(bool, False)

    def infer(self):
        type, batch, m, n = _matrix(self)
        k = _smaller(m, n)
        full = self.full_matrices
        left, right = (*batch, m, m if full else k), (*batch, n if full else k, n)
        return type.with_shape(left), TensorType((*batch, k), type.dtype.real), type.with_shape(right)

    def jax(j, x, *, full_matrices):
        return j.lax.linalg.svd(x, full_matrices=full_matrices)


@op("neuron.qr", aten="linalg_qr.default")
class Qr(Op):
    """``Q`` (orthonormal columns) and ``R`` (upper triangular) with ``x = Q R``. ``full_matrices``: ``Q`` is square."""

    x = operand(LAPACK)
    full_matrices = attr(bool, False)

    def infer(self):
        type, batch, m, n = _matrix(self)
        k = m if self.full_matrices else _smaller(m, n)
        return type.with_shape((*batch, m, k)), type.with_shape((*batch, k, n))

    def jax(j, x, *, full_matrices):
        return j.lax.linalg.qr(x, full_matrices=full_matrices)


@op("neuron.geqrf", aten="geqrf.default")
class Geqrf(Op):
    """R in the upper triangle, below it the reflectors ``v`` of householder_product, and their factors ``tau``."""

    x = operand(LAPACK)

    def infer(self):
        type, batch, m, n = _matrix(self)
        return type, type.with_shape((*batch, _smaller(m, n)))

    def jax(j, x):
        packed, taus = j.np.linalg.qr(x, mode="raw")
        return j.np.swapaxes(packed, -1, -2), taus


@op("neuron.lu", aten="linalg_lu_factor_ex.default")
class Lu(Op):
    """Packed ``L`` (unit diagonal, below) and ``U``, pivots and permutation, both i32, with ``x[permutation] = L U``.

    Row i was exchanged with row ``pivots[i]`` (counted from 0), for i in ascending order.
    """

    x = operand(LAPACK)

    def infer(self):
        type, batch, m, n = _matrix(self)
        return type, TensorType((*batch, _smaller(m, n)), I32), TensorType((*batch, m), I32)

    def jax(j, x):
        return j.lax.linalg.lu(x)


@op("neuron.householder_product", aten="linalg_householder_product.default")
class HouseholderProduct(Op):
    """The first n columns of the product of reflectors ``I - tau v v^H`` packed below the diagonal of ``x`` (``orgqr``)."""

    x = operand(LAPACK)
    taus = operand(LAPACK)

    def infer(self):
        type, batch, m, n = _matrix(self)
        taus = self.taus.type
        if taus.dtype is not type.dtype or taus.rank != len(batch) + 1 or not same_shape(taus.shape[:-1], batch):
            raise self.error("shape", f"taus of {type} cannot be {taus}")
        if isinstance(m, int) and isinstance(n, int) and (m < n or (isinstance(taus.shape[-1], int) and taus.shape[-1] > n)):
            raise self.error(
                "shape", f"{m} x {n} matrices with {taus.shape[-1]} reflectors: rows >= columns >= reflectors is needed"
            )
        return type

    def jax(j, x, taus):
        return j.lax.linalg.householder_product(x, taus)


@op("neuron.schur")
class Schur(Op):
    """``T`` (upper triangular; of real input with 2 x 2 blocks on the diagonal) and unitary ``V`` with ``x = V T V^H``."""

    x = operand(LAPACK)

    def infer(self):
        type = _matrix(self, square=True)[0]
        return type, type

    def jax(j, x):
        return j.lax.linalg.schur(x)
