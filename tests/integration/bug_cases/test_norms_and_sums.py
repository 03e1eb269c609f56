"""Normalisation and sums: what is accumulated in which precision, and empty tensors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy
import pytest
import torch
from torch.nn import functional as F

import neuron_ir
from tests.integration.bug_cases.judge import check, check_jax, each, same_arrays, torch_programs

BF16 = torch.bfloat16


def _error(function, x: torch.Tensor) -> float:
    """The largest error of either program of ``function`` against float64, which is taken to be exact."""
    exact = function(x.double())
    return max((run(x).double() - exact).abs().max().item() for run in torch_programs(function, x))


# seen in tenstorrent/tt-metal#45968: the mean of squares less the squared mean cancels
def test_batch_norm_of_a_large_mean_in_bf16() -> None:
    x = (5 + 0.1 * torch.randn(2, 8, 16, 16, generator=torch.Generator().manual_seed(0))).to(BF16)
    # results up to 4 in bf16 are rounded by at most 2**-7; torch's own error is 0.13
    assert _error(lambda x: F.batch_norm(x, None, None, training=True), x) <= 2**-7


@pytest.mark.parametrize("norm", [lambda x: F.layer_norm(x, (64,)), lambda x: F.group_norm(x, 4), lambda x: x.std(1) + x.var(1)])
def test_variance_of_a_large_mean(norm) -> None:
    x = 1e4 + torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    assert _error(norm, x) <= 2 * 1e4 * 2**-23  # the mean itself is known to one unit of 1e4 in f32


# seen in microsoft/onnxruntime#29043: half overflows above 255 squared
def test_norms_of_big_halves() -> None:
    x = torch.tensor([[8000.0, -8000, 7600, -7600]], dtype=torch.float16)
    norms = each(
        lambda x: F.rms_norm(x, (4,)),
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.group_norm(x, 1),
        lambda x: F.softmax(x, -1),
    )
    check(norms, x)
    near = torch.tensor([[1.025, -1.025, 0.974, -0.974]])
    for run in torch_programs(norms, x):
        for result in run(x)[:2]:
            assert (result.float() - near).abs().max() < 2e-3


# seen in jax-ml/ml_dtypes#63: a bf16 accumulator stalls at 128
def test_long_sums_in_bf16() -> None:
    x = torch.full((10_000,), 0.5, dtype=BF16)
    sums = each(
        lambda x: x.sum(),
        lambda x: x.mean(),
        lambda x: x.view(1, -1) @ x.view(-1, 1) * 2,
        lambda x: torch.dot(x, torch.ones_like(x)),
        lambda x: x.cumsum(0)[-1],
        lambda x: F.linear(x, torch.ones(2, 10_000, dtype=BF16)),
        lambda x: F.avg_pool1d(x.view(1, 1, -1), 10_000),
    )
    want = [4992.0, 0.5, 4992.0, 4992.0, 4992.0]
    for run in torch_programs(sums, x):
        assert [float(v.flatten()[0]) for v in run(x)[:5]] == want
        assert run(x)[5].tolist() == [4992.0] * 2 and run(x)[6].item() == 0.5
    many = x.to(torch.float32).numpy().astype(ml_dtypes.bfloat16)
    sum_and_dot = lambda v: (v.sum(), v.reshape(1, -1) @ jnp.ones((v.size, 1), v.dtype))  # noqa: E731
    want_arrays = [numpy.array(4992, ml_dtypes.bfloat16), numpy.array([[4992]], ml_dtypes.bfloat16)]
    check_jax(sum_and_dot, many, want=want_arrays)


# seen in tenstorrent/tt-mlir#7360: a division by zero in the compiler
def test_tensors_without_elements() -> None:
    x, w = torch.empty(1, 0, 32), torch.ones(4, 32)
    results = each(
        lambda x, w: F.linear(torch.where(x > 0, x, 0.0), w),
        lambda x, w: F.linear(x.view(1, 32, 0).expand(2, 32, 0), w[:, :0], torch.arange(4.0)),
        lambda x, w: (x.sum(), x.sum(1), x.mean(1), x.prod(1), (x > 0).any(), (x > 0).all()),
        lambda x, w: F.softmax(x, 1),
        lambda x, w: F.layer_norm(x, (32,)),
        lambda x, w: torch.cat([x, w[None]], 1),
        lambda x, w: (x @ x.mT, x.mT @ x),
        lambda x, w: F.scaled_dot_product_attention(w[None], x, x),
    )
    check(results, x, w)


# seen in iree-org/iree#24583: the zero points were ignored
def test_integer_products_with_zero_points() -> None:
    seed = torch.Generator().manual_seed(0)
    a = torch.randint(124, 133, (3, 5), dtype=torch.uint8, generator=seed)
    b = torch.randint(116, 125, (5, 2), dtype=torch.uint8, generator=seed)
    want = (a.int() - 128) @ (b.int() - 120)
    check(lambda a, b: (a.int() - 128) @ (b.int() - 120), a, b, want=want)

    def dot(a, b):
        whole = jax.lax.dot(a, b, preferred_element_type=jnp.int32)
        rows, cols = a.sum(1, keepdims=True, dtype=jnp.int32), b.sum(0, keepdims=True, dtype=jnp.int32)
        return whole - rows * 120 - cols * 128 + 5 * 128 * 120

    check_jax(dot, a.numpy(), b.numpy(), want=want.numpy())


def test_dequantized_values_subtract_their_zero_point() -> None:
    text = """
    func @main(%a: tensor<4xu8>) -> tensor<4xf32> {
      %y = neuron.dequantize(%a) {scales = [0.5], zero_points = [128]} : tensor<4xf32>
      func.return(%y)
    }
    """
    values = numpy.uint8([0, 127, 128, 255])
    same_arrays(neuron_ir.compile(neuron_ir.parse(text))(values), numpy.float32([-64, -0.5, 0, 63.5]))
