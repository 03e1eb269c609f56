"""Programs that JAX lowered for the CPU, with LAPACK's calls in them; JAX on the CPU judges."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.lax import linalg as private
from jax.lax import linalg

import neuron_ir


def matrices(dtype: str) -> dict[str, Any]:
    """Batches of matrices: any, Hermitian, positive definite, tall; the diagonals of a tridiagonal one; right-hand sides."""
    random = np.random.RandomState(0)

    def make(*shape: int) -> Any:
        return (random.randn(*shape) + (1j * random.randn(*shape) if "complex" in dtype else 0)).astype(dtype)

    a = make(2, 4, 4)
    dagger = np.conj(np.swapaxes(a, -1, -2))
    return {
        "a": a,
        "h": a + dagger,
        "p": (a @ dagger + 4 * np.eye(4)).astype(dtype),
        "t": make(2, 5, 3),
        "d": make(3, 2, 4),
        "b": make(2, 4, 3),
    }


def real_forms(m: dict[str, Any]) -> Any:
    """Routines in forms in which JAX calls them, for real matrices."""
    a, h, p, t, d, b = (m[k] for k in "ahptdb")
    return {
        "potrf": (linalg.cholesky(p), linalg.cholesky(-p)),
        "getrf": linalg.lu(a),
        "geqrf": jnp.linalg.qr(t, mode="complete"),
        "geqp3": private.geqp3(t, jnp.zeros((2, 3), jnp.int32)),
        "syevd": linalg.eigh(h, lower=False, symmetrize_input=False),
        "geev": linalg.eig(a, compute_left_eigenvectors=True),
        "gees": linalg.schur(a),
        "gesdd": (linalg.svd(t, full_matrices=True), linalg.svd(t, compute_uv=False)),
        "trsm": linalg.triangular_solve(a, b, left_side=True, lower=True, transpose_a=True),
        "gehrd": linalg.hessenberg(a),
        "sytrd": linalg.tridiagonal(h, lower=True),
        "gtsv": linalg.tridiagonal_solve(d[0], d[1], d[2], b),
    }


def complex_forms(m: dict[str, Any]) -> Any:
    """Routines whose complex form differs from the real one, in other forms."""
    a, h, t, b = (m[k] for k in "ahtb")
    return {
        "unmqr": linalg.ormqr(*private.geqrf(t), jnp.conj(t), transpose=True),
        "heevd": jnp.linalg.eigvalsh(h),
        "geev": linalg.eig(a, compute_left_eigenvectors=False),
        "gees": linalg.schur(a, compute_schur_vectors=False),
        "gesvd": linalg.svd(t, algorithm=linalg.SvdAlgorithm.QR),
        "trsm": linalg.triangular_solve(a, jnp.swapaxes(b, -1, -2), conjugate_a=True, transpose_a=True, unit_diagonal=True),
        "hetrd": linalg.tridiagonal(h, lower=False),
    }


@pytest.mark.parametrize(("dtype", "forms"), [("float32", real_forms), ("complex128", complex_forms)])
def test_every_routine_that_jax_calls(dtype: str, forms: Any) -> None:
    with jax.enable_x64(True):
        operands = matrices(dtype)
        program = jax.jit(forms, keep_unused=True)
        expected = jax.tree.leaves(program(operands))
        text = str(program.lower(operands).compiler_ir("stablehlo"))
        assert all(f"{name}_ffi(" in text for name in jax.eval_shape(forms, operands))
    module = neuron_ir.from_stablehlo(text)
    got = neuron_ir.compile(neuron_ir.parse(module.text()))(*jax.tree.leaves(operands))
    for e, g in zip(expected, got, strict=True):
        assert (g.dtype, g.shape) == (e.dtype, e.shape)
        np.testing.assert_allclose(np.asarray(g), np.asarray(e), rtol=0, atol=1e-5 if dtype == "float32" else 1e-12)


CALL = """func.func @main(%a: tensor<3x3xf32>, %b: tensor<3xi32>) -> tensor<3x3xf32> {{
 %0:{n} = stablehlo.custom_call @lapack_{name}_ffi({operands}) {{mhlo.backend_config = {{{config}}}}} : {types}
 return %0#0 : tensor<3x3xf32> }}"""
SCHUR = "(tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<3x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<i32>, tensor<i32>)"
HESSENBERG = "(tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<2xf32>, tensor<i32>)"
PIVOTED = "(tensor<3x3xf32>, tensor<3xi32>) -> (tensor<3x3xf32>, tensor<3xi32>, tensor<3xf32>)"


@pytest.mark.parametrize(
    ("n", "name", "operands", "config", "types", "message"),
    [
        (6, "sgees", "%a", "mode = 86 : ui8, sort = 83 : ui8", SCHUR, "sort = 'S' has no meaning"),
        (3, "sgehrd", "%a", "low = 2 : i32, high = 3 : i32", HESSENBERG, "gehrd of rows 2 to 3 of 3"),
        (3, "sgeqp3", "%a, %b", "", PIVOTED, "columns that are to come first have no meaning"),
    ],
)
def test_what_jax_never_asks_of_lapack_is_refused(n: int, name: str, operands: str, config: str, types: str, message: str) -> None:
    text = CALL.format(n=n, name=name, operands=operands, config=config, types=types)
    program = neuron_ir.compile(neuron_ir.from_stablehlo(text))
    with pytest.raises(neuron_ir.IRError, match=message):
        program(np.eye(3, dtype=np.float32), np.int32([0, 1, 0]))
