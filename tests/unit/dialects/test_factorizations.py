"""Factorisations and Fourier transforms against NumPy and torch, in f64 and complex."""

import numpy as np
import pytest
import torch

from neuron_ir.diagnostics import IRError
from neuron_ir.meaning import compute

from .judge import program, symbolic

RNG = np.random.RandomState(0)
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def matrices(*shape, complex_=False):
    a = RNG.randn(*shape)
    return a + 1j * RNG.randn(*shape) if complex_ else a


def adjoint(a):
    return np.conj(np.swapaxes(a, -1, -2))


@pytest.mark.parametrize("complex_", [False, True])
def test_cholesky_reads_one_triangle(complex_):
    a = matrices(2, 4, 4, complex_=complex_)
    a = a @ adjoint(a) + np.eye(4)
    want = np.linalg.cholesky(a)
    np.testing.assert_allclose(compute("neuron.cholesky", np.tril(a) + np.triu(a + 7, 1)), want, **CLOSE)
    np.testing.assert_allclose(compute("neuron.cholesky", np.triu(a) + np.tril(a + 7, -1), lower=False), adjoint(want), **CLOSE)
    assert np.isnan(compute("neuron.cholesky", -np.eye(2))).any()
    assert compute("neuron.cholesky", np.zeros((3, 0, 0))).shape == (3, 0, 0)


@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
def test_triangular_solve(transpose, left, lower):
    a, b = matrices(2, 3, 3, complex_=True) + 4 * np.eye(3), matrices(2, 3, 3, complex_=True)
    for unit in (False, True):
        t = np.tril(a) if lower else np.triu(a)
        t = t - np.eye(3) * t + np.eye(3) if unit else t
        t = {"NO_TRANSPOSE": t, "TRANSPOSE": np.swapaxes(t, -1, -2), "ADJOINT": adjoint(t)}[transpose]
        x = compute("neuron.triangular_solve", a, b, left_side=left, lower=lower, unit_diagonal=unit, transpose_a=transpose)
        np.testing.assert_allclose(t @ x if left else x @ t, b, **CLOSE)


def test_fourier_transforms():
    z, x = matrices(2, 4, 6, complex_=True), matrices(2, 4, 7)
    np.testing.assert_allclose(compute("neuron.fft", z, fft_type="FFT", fft_length=[6]), np.fft.fft(z), **CLOSE)
    np.testing.assert_allclose(compute("neuron.fft", z, fft_type="IFFT", fft_length=[4, 6]), np.fft.ifftn(z, axes=(1, 2)), **CLOSE)
    np.testing.assert_allclose(compute("neuron.fft", x, fft_type="RFFT", fft_length=[2, 4, 7]), np.fft.rfftn(x), **CLOSE)
    half = np.fft.rfft(x)
    np.testing.assert_allclose(compute("neuron.fft", half, fft_type="IRFFT", fft_length=[7]), x, **CLOSE)
    single = compute("neuron.fft", x.astype(np.float32), fft_type="RFFT", fft_length=[7])
    assert single.dtype == np.complex64 and compute("neuron.fft", z[:0], fft_type="FFT", fft_length=[6]).shape == (0, 4, 6)


@pytest.mark.parametrize("complex_", [False, True])
def test_eigenvalues(complex_):
    a = matrices(2, 4, 4, complex_=complex_)
    h = a + adjoint(a)
    w, v = compute("neuron.eigh", np.tril(h))
    np.testing.assert_allclose(w, np.linalg.eigvalsh(h), **CLOSE)
    np.testing.assert_allclose(h @ v, v * w[:, None, :], **CLOSE)
    w, v = compute("neuron.eig", a)
    np.testing.assert_allclose(a @ v, v * w[:, None, :], **CLOSE)
    t, v = compute("neuron.schur", a[0])
    np.testing.assert_allclose(v @ t @ adjoint(v), a[0], **CLOSE)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 5, 3)])
@pytest.mark.parametrize("full", [False, True])
def test_svd_and_qr(shape, full):
    a = matrices(*shape, complex_=True)
    u, s, vh = compute("neuron.svd", a, full_matrices=full)
    want = torch.linalg.svd(torch.from_numpy(a), full_matrices=full)
    assert [x.shape for x in (u, s, vh)] == [tuple(x.shape) for x in want]
    np.testing.assert_allclose(s, want[1].numpy(), **CLOSE)
    np.testing.assert_allclose((u[..., :3] * s[:, None]) @ vh[:, :3], a, **CLOSE)
    q, r = compute("neuron.qr", a, full_matrices=full)
    assert [x.shape for x in (q, r)] == [
        tuple(x.shape) for x in torch.linalg.qr(torch.from_numpy(a), "complete" if full else "reduced")
    ]
    np.testing.assert_allclose(q @ r, a, **CLOSE)
    np.testing.assert_allclose(adjoint(q) @ q, np.broadcast_to(np.eye(q.shape[-1]), (2, q.shape[-1], q.shape[-1])), **CLOSE)
    np.testing.assert_allclose(np.tril(r, -1), 0, **CLOSE)


def test_lu_and_reflectors():
    a = matrices(2, 4, 3)
    packed, pivots, permutation = compute("neuron.lu", a)
    lower = np.tril(packed, -1) + np.eye(4, 3)
    np.testing.assert_allclose(lower @ np.triu(packed[:, :3]), np.take_along_axis(a, permutation[..., None], 1), **CLOSE)
    np.testing.assert_array_equal(pivots, torch.linalg.lu_factor(torch.from_numpy(a))[1].numpy() - 1)
    reflectors, taus = torch.geqrf(torch.from_numpy(a))
    want = torch.linalg.householder_product(reflectors, taus).numpy()
    np.testing.assert_allclose(compute("neuron.householder_product", reflectors.numpy(), taus.numpy()), want, **CLOSE)


@pytest.mark.parametrize(
    ("name", "shapes", "fields", "message"),
    [
        ("cholesky", [(3, 4)], {}, "needs square matrices, not 3 x 4"),
        ("cholesky", [(3,)], {}, "needs matrices, not tensor<3xf64>"),
        ("triangular_solve", [(3, 3), (4, 2)], {}, "3 x 3 matrices cannot solve for tensor<4x2xf64> from the left"),
        ("triangular_solve", [(2, 3, 3), (3, 2)], {}, "must agree in element type and batch dims"),
        ("fft", [(4,)], {"fft_type": "FFT", "fft_length": [4]}, "FFT needs complex numbers, not tensor<4xf64>"),
        (
            "fft",
            [(4,)],
            {"fft_type": "RFFT", "fft_length": [5]},
            r"RFFT of lengths \[5\] needs last sizes \[5\], not tensor<4xf64>",
        ),
        ("fft", [(4,)], {"fft_type": "RFFT", "fft_length": []}, "must have 1 to 3 entries"),
        ("fft", [(4,)], {"fft_type": "DCT", "fft_length": [4]}, "must be one of 'FFT', 'IFFT', 'RFFT', 'IRFFT'"),
        ("householder_product", [(2, 3), (2,)], {}, "rows >= columns >= reflectors is needed"),
    ],
)
def test_invalid_factorisations(name, shapes, fields, message):
    with pytest.raises(IRError, match=message):
        compute(f"neuron.{name}", *[np.ones(s) for s in shapes], **fields)


def test_factorisations_with_symbolic_sizes():
    results = program("neuron.svd", [symbolic(["B", "M", 4])]).main.result_types
    assert [str(t) for t in results] == ["tensor<BxMx(min(4,M))xf32>", "tensor<Bx(min(4,M))xf32>", "tensor<Bx(min(4,M))x4xf32>"]
