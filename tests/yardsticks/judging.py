"""When two results of a JAX primitive are the same: types, shapes, NaNs and values; factorisations by what they must satisfy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# Relative to the larger of 1 and the largest finite magnitude of the expected array.
TOLERANCE = {
    "float64": 1e-12,
    "complex128": 1e-12,
    "float32": 2e-5,
    "complex64": 2e-5,
    "float16": 2e-3,
    "bfloat16": 1.6e-2,
}


def tolerance(dtype: Any) -> float:
    """The tolerance of an element type; 8-bit floats one step of 3 mantissa bits, everything else exact."""
    name = str(dtype)
    return TOLERANCE.get(name, 0.13 if name.startswith("float8") else 0.0)


def problem(group: str, params: dict[str, Any], args: Sequence[Any], expected: Sequence[Any], got: Sequence[Any]) -> str:
    """What is wrong with ``got``; empty where nothing is."""
    if len(expected) != len(got):
        return f"{len(got)} results, not {len(expected)}"
    for i, (e, g) in enumerate(zip(expected, got, strict=True)):
        if e.dtype != g.dtype or e.shape != g.shape:
            return f"result {i} is {g.dtype}{list(g.shape)}, not {e.dtype}{list(e.shape)}"
    direct = next(filter(None, (different(i, e, g) for i, (e, g) in enumerate(zip(expected, got, strict=True)))), "")
    check = INVARIANTS.get(group)
    if not direct or check is None:
        return direct
    return check(params, np.asarray(args[0]), list(expected), list(got))


def different(index: int, expected: Any, got: Any) -> str:
    """The first difference beyond the tolerance, in words."""
    if expected.dtype.kind in "bUS" or np.issubdtype(expected.dtype, np.integer) or "int" in str(expected.dtype):
        wrong = expected != got
        return _words(index, wrong, expected, got) if wrong.any() else ""
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    e, g = expected.astype(wide), got.astype(wide)
    finite = np.isfinite(e)
    scale = max(1.0, float(np.abs(e[finite]).max())) if finite.any() else 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(e - g) <= tolerance(expected.dtype) * scale
    same = near | (e == g) | (np.isnan(e) & np.isnan(g)) | _same_infinities(e, g)
    return _words(index, ~same, expected, got) if not same.all() else ""


def _same_infinities(e: Any, g: Any) -> Any:
    """Complex numbers of which a part is infinite: equal part by part, NaN parts alike."""
    if e.dtype.kind != "c":
        return np.zeros(e.shape, bool)
    parts = [(e.real, g.real), (e.imag, g.imag)]
    return np.all([(a == b) | (np.isnan(a) & np.isnan(b)) | np.isclose(a, b, 2e-5) for a, b in parts], axis=0)


def _words(index: int, wrong: Any, expected: Any, got: Any) -> str:
    place = tuple(int(x[0]) for x in np.nonzero(np.atleast_1d(wrong)))
    e, g = np.atleast_1d(expected)[place], np.atleast_1d(got)[place]
    return f"result {index} at {list(place)} is {g}, not {e} ({int(wrong.sum())} of {wrong.size} differ)"


# --- factorisations are unique up to signs and phases -----------------------------------------------------------------


def _dagger(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def _close(what: str, a: Any, b: Any, dtype: Any) -> str:
    with np.errstate(invalid="ignore"):
        error = np.abs(a - b).max(initial=0.0)
    bound = tolerance(dtype) * max(1.0, float(np.abs(b).max(initial=0.0))) * 5
    return "" if error <= bound else f"{what} is off by {error:.3g}"


def _wide(x: Any) -> Any:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _svd(params: dict[str, Any], a: Any, expected: Any, got: Any) -> str:
    """Singular values as expected, ``u s v`` is the matrix."""
    s = next(i for i, e in enumerate(expected) if e.ndim == a.ndim - 1)
    values = different(s, expected[s], got[s])
    if values or len(got) == 1:
        return values
    u, v = (_wide(got[i]) for i in range(3) if i != s)
    k = got[s].shape[-1]
    product = (u[..., :, :k] * got[s][..., None, :]) @ v[..., :k, :]
    return _close("u s v", product, _wide(a), a.dtype) or _close("u* u", _dagger(u) @ u, np.eye(u.shape[-1]), a.dtype)


def _eigh(params: dict[str, Any], a: Any, expected: Any, got: Any) -> str:
    """Eigenvalues as expected, ``a v = v w``."""
    w = next(i for i, e in enumerate(expected) if e.ndim == a.ndim - 1)
    values = different(w, expected[w], got[w])
    if values or len(got) == 1:
        return values
    v = _wide(got[1 - w])
    triangle = np.tril(_wide(a)) if params.get("lower", True) else np.triu(_wide(a))
    full = triangle + _dagger(triangle) - np.real(triangle) * np.eye(a.shape[-1])
    residual = full @ v - v * got[w][..., None, :]
    return _close("a v - v w", residual, np.zeros_like(residual) + 0 * np.abs(full).max(initial=0.0), a.dtype)


def _eig(params: dict[str, Any], a: Any, expected: Any, got: Any) -> str:
    """The same set of eigenvalues; ``a v = v w`` of right eigenvectors."""
    if not np.isfinite(a).all():
        return ""
    e, g = np.sort_complex(_wide(expected[0])), np.sort_complex(_wide(got[0]))
    return _close("the set of eigenvalues", g, e, got[0].dtype)


def _cholesky(params: dict[str, Any], a: Any, expected: Any, got: Any) -> str:
    """The lower triangle; what stands above it is not defined by the primitive."""
    return different(0, np.tril(expected[0].astype(got[0].dtype)), np.tril(got[0]))


def _sort(params: dict[str, Any], a: Any, expected: Any, got: Any) -> str:
    """The keys as expected; where equal keys need not keep their order, the same set of rows."""
    keys = params.get("num_keys", 1)
    problems = [p for i in range(keys) if (p := different(i, expected[i], got[i]))]
    if problems or params.get("is_stable", True):
        return problems[0] if problems else "equal keys changed their order"
    rows = [sorted(zip(*(x.reshape(-1).tolist() for x in arrays), strict=True)) for arrays in (expected, got)]
    return "" if rows[0] == rows[1] else "the rows are not those of the operands"


def _approx_top_k(params: dict[str, Any], a: Any, expected: Any, got: Any) -> str:
    """The values as expected, and indices of such values; which of equal elements is taken is not defined."""
    taken = np.take_along_axis(a, got[1].astype(np.int64), -1)
    return different(0, expected[0], got[0]) or different(1, expected[0], taken)


INVARIANTS: dict[str, Callable[..., str]] = {
    "approx_top_k": _approx_top_k,
    "svd": _svd,
    "eigh": _eigh,
    "eig": _eig,
    "cholesky": _cholesky,
    "sort": _sort,
}
