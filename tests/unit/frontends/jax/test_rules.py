"""Factorisations lowered to plain operations, against NumPy in float64 and LAPACK's own conventions through JAX on CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from neuron_ir.frontends.jax import _compat, callbacks, linalg
from neuron_ir.frontends.jax.lower import lower

DTYPES = [np.float32, np.complex64]


def matrix(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
        x = x + 1j * rng.standard_normal(shape)
    return jnp.asarray(x.astype(dtype))


def close(got, want, tolerance):
    scale = max(float(np.max(np.abs(want), initial=0)), 1e-30)
    assert got.shape == want.shape
    assert float(np.max(np.abs(np.asarray(got) - np.asarray(want)), initial=0)) <= tolerance * scale


def dagger(x):
    return np.conj(np.swapaxes(x, -1, -2))


def call_targets(lowered):
    found = set()

    def walk(op):
        if op.name == "stablehlo.custom_call":
            found.add(op.attributes["call_target_name"].value)
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    walk(inner.operation)

    walk(lowered.module.operation)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (2, 3, 8, 8), (65, 65)])
def test_eigh(shape, dtype):
    a = matrix(shape, dtype)
    vectors, values = jax.jit(lambda x: linalg.eigh(x, lower=True, sort=True, subset=None))(a)
    strict = np.tril(np.asarray(a, np.complex128), -1)
    full = strict + dagger(strict) + np.real(np.asarray(a)) * np.eye(shape[-1])
    close(values, np.linalg.eigvalsh(full), 1e-6)
    v = np.asarray(vectors, np.complex128)
    close((v * np.asarray(values, np.float64)[..., None, :]) @ dagger(v), full, 1e-5)
    close(dagger(v) @ v, np.broadcast_to(np.eye(shape[-1]), shape), 5e-6)


def test_eigh_of_degenerate_and_nonfinite_matrices():
    def eigenvalues(a):
        return np.asarray(jax.jit(lambda x: linalg.eigh(x, lower=True, sort=True, subset=None))(jnp.asarray(a, jnp.float32))[1])

    assert np.array_equal(eigenvalues(np.zeros((5, 5))), np.zeros(5))
    assert np.allclose(eigenvalues(np.ones((6, 6))), [0, 0, 0, 0, 0, 6], atol=1e-5)
    assert np.allclose(eigenvalues(np.diag([1e38, -1e38, 2e37])), [-1e38, 2e37, 1e38], rtol=1e-6)
    assert np.isnan(eigenvalues(np.full((3, 3), np.nan))).all()
    assert np.isnan(eigenvalues(np.diag([1.0, np.inf]))).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (5, 3), (2, 6, 4), (40, 40)])
def test_packed_qr_is_lapacks(shape, dtype):
    a = matrix(shape, dtype)
    packed, taus = jax.jit(linalg.geqrf)(a)
    want, want_taus = _compat.get("geqrf_p").bind(a)
    close(packed, want, 1e-5)
    close(taus, want_taus, 1e-5)
    if shape[-2] >= shape[-1]:
        q = jax.jit(linalg.householder_product)(want, want_taus)
        close(q, _compat.get("householder_product_p").bind(want, want_taus), 1e-5)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (2, 6, 4)])
def test_pivoted_qr_is_lapacks(shape, fixed):
    a = matrix(shape, np.float32)
    pivots = jnp.zeros((*shape[:-2], shape[-1]), jnp.int32)
    if fixed:
        pivots = pivots.at[..., -1].set(1)
    got = jax.jit(linalg.geqp3)(a, pivots)
    want = _compat.get("geqp3_p").bind(a, pivots, use_magma=None)
    close(got[0], want[0], 1e-5)
    assert np.array_equal(got[1], want[1])
    close(got[2], want[2], 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_hessenberg_and_tridiagonal_are_lapacks(n, dtype):
    a = matrix((n, n), dtype)
    for got, want in zip(jax.jit(linalg.hessenberg)(a), _compat.get("hessenberg_p").bind(a), strict=True):
        close(got, want, 1e-5)
    for lower_triangle in (True, False):
        got = linalg.tridiagonal(a, lower=lower_triangle)
        for x, y in zip(got, _compat.get("tridiagonal_p").bind(a, lower=lower_triangle), strict=True):
            close(x, y, 2e-5)


@pytest.mark.parametrize(
    ("function", "shape", "targets"),
    [
        (jnp.linalg.eigh, (5, 5), set()),
        (jnp.linalg.svd, (5, 3), set()),
        (jnp.linalg.svd, (3, 0), set()),
        (jnp.linalg.qr, (5, 3), set()),
        (jnp.linalg.solve, None, set()),
        (lambda x: jax.scipy.linalg.qr(x, pivoting=True), (4, 4), set()),
        (lambda x: jax.lax.approx_max_k(x, 2), (4, 9), set()),
        (jnp.linalg.eig, (3, 3), {"neuron.eig"}),
        (jax.scipy.linalg.schur, (3, 3), {"neuron.schur"}),
    ],
)
def test_custom_calls_that_remain(function, shape, targets):
    args = (matrix((3, 3), np.float32), matrix((3, 2), np.float32)) if shape is None else (matrix(shape, np.float32),)
    assert call_targets(lower(function, *args)) == targets


def test_other_platforms_keep_their_rules():
    lower(jnp.linalg.eigh, matrix((3, 3), np.float32))
    text = jax.jit(jnp.linalg.eigh).trace(matrix((3, 3), np.float32)).lower(lowering_platforms=("cpu",)).as_text()
    assert "lapack_ssyevd_ffi" in text


def test_callbacks_become_numbered_calls():
    def f(x):
        jax.debug.print("x = {}", x, ordered=True)
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    lowered = lower(f, jnp.ones(3))
    assert call_targets(lowered) == {callbacks.TARGET}
    numbers = [int(part.split(" ")[0]) for part in str(lowered.module).split("callback = ")[1:]]
    kinds = [(callbacks.find(n).kind, callbacks.find(n).ordered) for n in numbers]
    assert kinds == [("debug", True), ("pure", False)]
    (result,) = callbacks.find(numbers[1]).function(np.full(3, 0.5, np.float32))
    assert np.allclose(result, np.sin(0.5))


@pytest.mark.parametrize("size", [1e37, 1e-37])
def test_qr_of_huge_and_tiny_entries(size):
    a = np.asarray([[3.0, 1.0], [4.0, 2.0]]) * size
    packed, taus = jax.jit(linalg.geqrf)(jnp.asarray(a, jnp.float32))
    q = np.asarray(linalg.householder_product(packed, taus), np.float64)
    r = np.triu(np.asarray(packed, np.float64))
    assert np.allclose(q @ r, a, rtol=1e-5, atol=0)
    assert np.allclose(abs(r[0, 0]), 5 * size, rtol=1e-6)
