"""What the LAPACK calls in programs that JAX lowered for the CPU mean: the custom calls ``lapack_<letter><routine>_ffi``.

The letter is the element type (s, d, c, z). Options are LAPACK's own characters as numbers. A result that stands for an operand
which LAPACK overwrites has what the routine leaves there, as far as that is defined. ``info`` is 0 for success; where the
factorisation fails, its values are NaN and ``info`` is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neuron_ir.diagnostics import fail
from neuron_ir.dialects.neuron.custom import TARGETS

Config = dict[str, Any]
Routine = Callable[[Any, Sequence[Any], Config, Sequence[Any]], Sequence[Any]]


def routine(*names: str, letters: str = "sdcz") -> Callable[[Routine], Routine]:
    """Give the decorated function to LAPACK's routines ``names`` of these element types."""

    def register(function: Routine) -> Routine:
        def meaning(j: Any, operands: Sequence[Any], config: Config, out: Sequence[Any]) -> Sequence[Any]:
            results = function(j, operands, config, out)
            return [x.astype(t.dtype.numpy) for x, t in zip(results, out, strict=True)]

        TARGETS.update({f"lapack_{letter}{name}_ffi": meaning for letter in letters for name in names})
        return function

    return register


def _letter(config: Config, name: str, allowed: str) -> str:
    """An option as its character; a refusal of what LAPACK would take and JAX never asks for."""
    letter = chr(int(config.get(name, ord(allowed[0]))))
    if letter not in allowed:
        raise fail(
            "unsupported", f"neuron.custom_call: the option {name} = {letter!r} has no meaning here; {' or '.join(allowed)} has"
        )
    return letter


def _dagger(j: Any, x: Any) -> Any:
    return j.np.conj(j.np.swapaxes(x, -1, -2))


def _info(j: Any, *arrays: Any, batch: Sequence[int]) -> Any:
    """1 where a matrix has a NaN, per matrix."""
    bad = j.np.zeros(batch, bool)
    for x in arrays:
        bad = bad | j.np.isnan(x).any(axis=tuple(range(len(batch), x.ndim)))
    return bad.astype("int32")


@routine("potrf")
def _potrf(j: Any, operands: Sequence[Any], config: Config, out: Sequence[Any]) -> Sequence[Any]:
    """Cholesky's factor in one triangle; the other keeps what it held."""
    (a,) = operands
    upper = _letter(config, "uplo", "LU") == "U"
    factor = j.lax.linalg.cholesky(_dagger(j, a) if upper else a, symmetrize_input=False)
    factor = _dagger(j, factor) if upper else factor
    i, k = j.np.arange(a.shape[-1])[:, None], j.np.arange(a.shape[-1])
    return j.np.where(i <= k if upper else i >= k, factor, a), _info(j, factor, batch=a.shape[:-2])


@routine("getrf")
def _getrf(j: Any, operands: Sequence[Any], config: Config, out: Sequence[Any]) -> Sequence[Any]:
    """L without its ones and U in one matrix; row exchanges, counted from 1; the number of the first pivot that is 0."""
    (a,) = operands
    lu, pivots, _ = j.lax.linalg.lu(a)
    zero = j.np.diagonal(lu, axis1=-2, axis2=-1) == 0
    info = j.np.where(zero.any(-1), zero.argmax(-1) + 1, 0) if zero.shape[-1] else j.np.zeros(a.shape[:-2], "int32")
    return lu, pivots + 1, info


@routine("geqrf")
def _geqrf(j: Any, operands: Sequence[Any], config: Config, out: Sequence[Any]) -> Sequence[Any]:
    """R over the reflectors, and their scales."""
    packed, taus = j.np.linalg.qr(operands[0], mode="raw")
    return j.np.swapaxes(packed, -1, -2), taus


@routine("geqp3")
def _geqp3(j: Any, operands: Sequence[Any], config: Config, out: Sequence[Any]) -> Sequence[Any]:
    """As ``geqrf`` of the columns in the order of falling norms of what is left of them, which are counted from 1."""
    a, wanted = operands
    j.require((wanted == 0).all(), "lapack geqp3: columns that are to come first have no meaning here")
    order = j.scipy.linalg.qr(a, mode="r", pivoting=True)[-1]
    packed, taus = _geqrf(j, (j.np.take_along_axis(a, order[..., None, :], axis=-1),), config, out)
    return packed, order + 1, taus


@routine("orgqr", letters="sd")
@routine("ungqr", letters="cz")
def _orgqr(j: Any, operands: Sequence[Any], config: Config, out: Sequence[Any]) -> Sequence[Any]:
    """The product of reflectors."""
    return (j.lax.linalg.householder_product(*operands),)


@routine("ormqr", letters="sd")
@routine("unmqr", letters="cz")
def _ormqr(j: Any, operands: Sequence[Any], config: Config, out: Sequence[Any]) -> Sequence[Any]:
    """The product of reflectors times a matrix."""
    a, taus, c = operands
    return (j.lax.linalg.ormqr(a, taus, c, left=bool(config.get("left", True)), transpose=bool(config.get("transpose", False))),)


@routine("syevd", letters="sd")
@routine("heevd", letters="cz")
def _syevd(j: Any, operands: Sequence[Any], config: Config, out: Sequence[Any]) -> Sequence[Any]:
    """Eigenvectors (zeros where not asked for) and ascending eigenvalues of the Hermitian matrix in one triangle."""
    (a,) = operands
    vectors, values = j.lax.linalg.eigh(a, lower=_letter(config, "uplo", "LU") == "L", symmetrize_input=False)
    wanted = _letter(config, "mode", "VN") == "V"
    return vectors if wanted else j.np.zeros_like(a), values, _info(j, values, batch=a.shape[:-2])


@routine("geev")
def _geev(j: Any, operands: Sequence[Any], config: Config, out: Sequence[Any]) -> Sequence[Any]:
    """Eigenvalues (of a real matrix: real and imaginary parts), left and right eigenvectors, zeros where not asked for."""
    (a,) = operands
    left, right = (_letter(config, name, "VN") == "V" for name in ("compute_left", "compute_right"))
    values, *vectors = j.lax.linalg.eig(a, compute_left_eigenvectors=left, compute_right_eigenvectors=right)
    nothing = j.np.zeros(a.shape, values.dtype)
    ls, rs = vectors.pop(0) if left else nothing, vectors.pop(0) if right else nothing
    parts = (values,) if j.np.iscomplexobj(a) else (values.real, values.imag)
    return (*parts, ls, rs, _info(j, values, batch=a.shape[:-2]))


@routine("gees")
def _gees(j: Any, operands: Sequence[Any], config: Config, out: Sequence[Any]) -> Sequence[Any]:
    """Schur's form, its vectors (zeros where not asked for), the eigenvalues as in ``geev``, the number of selected ones: 0."""
    (a,) = operands
    _letter(config, "sort", "N")
    wanted = _letter(config, "mode", "VN") == "V"
    form, *vectors = j.lax.linalg.schur(a, compute_schur_vectors=wanted)
    diagonal = j.np.diagonal(form, axis1=-2, axis2=-1)
    values: tuple[Any, ...] = (diagonal,)
    if not j.np.iscomplexobj(a):
        values = (diagonal, _imaginary(j, form))
    basis = vectors[0] if wanted else j.np.zeros_like(a)
    return (form, basis, *values, j.np.zeros(a.shape[:-2], "int32"), _info(j, form, batch=a.shape[:-2]))


def _imaginary(j: Any, form: Any) -> Any:
    """Imaginary parts of the eigenvalues in standard 2 x 2 blocks ``[[r, b], [c, r]]``: plus and minus ``sqrt(-b c)``."""
    if form.shape[-1] < 2:
        return j.np.zeros(form.shape[:-1], form.dtype)
    below, above = (j.np.diagonal(form, offset, axis1=-2, axis2=-1) for offset in (-1, 1))
    part = j.np.where(below != 0, j.np.sqrt(abs(below)) * j.np.sqrt(abs(above)), 0)
    pad = [(0, 0)] * (part.ndim - 1)
    return j.np.pad(part, [*pad, (0, 1)]) - j.np.pad(part, [*pad, (1, 0)])


@routine("gesdd", "gesvd")
def _gesdd(j: Any, operands: Sequence[Any], config: Config, out: Sequence[Any]) -> Sequence[Any]:
    """What the operand holds afterwards (left as it was), singular values, U and V^H (zeros where not asked for)."""
    (a,) = operands
    mode = _letter(config, "mode", "ASN")
    if mode == "N":
        s = j.lax.linalg.svd(a, compute_uv=False)
        return a, s, *(j.np.zeros(t.shape, t.dtype.numpy) for t in out[2:4]), _info(j, s, batch=a.shape[:-2])
    u, s, v = j.lax.linalg.svd(a, full_matrices=mode == "A")
    return a, s, u, v, _info(j, s, batch=a.shape[:-2])


@routine("trsm")
def _trsm(j: Any, operands: Sequence[Any], config: Config, out: Sequence[Any]) -> Sequence[Any]:
    """The solution of a triangular system."""
    if len(operands) != 2:
        raise fail("unsupported", f"neuron.custom_call: trsm of {len(operands)} operands; the form with 2 has a meaning here")
    transpose = _letter(config, "trans_x", "NTC")
    solution = j.lax.linalg.triangular_solve(
        *operands,
        left_side=_letter(config, "side", "LR") == "L",
        lower=_letter(config, "uplo", "LU") == "L",
        unit_diagonal=_letter(config, "diag", "NU") == "U",
        transpose_a=transpose != "N",
        conjugate_a=transpose == "C",
    )
    return (solution,)


@routine("gehrd")
def _gehrd(j: Any, operands: Sequence[Any], config: Config, out: Sequence[Any]) -> Sequence[Any]:
    """Hessenberg's form over the reflectors, and their scales."""
    (a,) = operands
    low, high = int(config.get("low", 1)), int(config.get("high", a.shape[-1]))
    if (low, high) != (1, a.shape[-1]):
        raise fail(
            "unsupported", f"neuron.custom_call: gehrd of rows {low} to {high} of {a.shape[-1]}; all rows have a meaning here"
        )
    form, taus = j.lax.linalg.hessenberg(a)
    return form, taus, _info(j, form, batch=a.shape[:-2])


@routine("sytrd", letters="sd")
@routine("hetrd", letters="cz")
def _sytrd(j: Any, operands: Sequence[Any], config: Config, out: Sequence[Any]) -> Sequence[Any]:
    """The tridiagonal form over the reflectors, its diagonal and off-diagonal, the scales."""
    (a,) = operands
    form, d, e, taus = j.lax.linalg.tridiagonal(a, lower=_letter(config, "uplo", "LU") == "L")
    return form, d, e, taus, _info(j, d, batch=a.shape[:-2])


@routine("gtsv")
def _gtsv(j: Any, operands: Sequence[Any], config: Config, out: Sequence[Any]) -> Sequence[Any]:
    """The three diagonals (left as they were) and the solution."""
    lower, diagonal, upper, b = operands
    solution = j.lax.linalg.tridiagonal_solve(lower, diagonal, upper, b)
    return lower, diagonal, upper, solution, _info(j, solution, batch=b.shape[:-2])
