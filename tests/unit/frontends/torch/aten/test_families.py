"""Families of operations against torch eager, many in one program each."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F

import neuron_ir
from tests.unit.frontends.torch.aten.test_rules import check

GENERATOR = torch.Generator().manual_seed(0)


def r(*shape: int, dtype: Any = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=GENERATOR, dtype=dtype)


def test_images_read_at_points_and_by_fractional_windows() -> None:
    flat, points = r(2, 3, 4, 2) * 1.3, r(1, 2, 2, 3, 3)  # some of them outside
    samples = torch.rand((2, 1, 2), generator=GENERATOR)

    def program(x: torch.Tensor, volume: torch.Tensor, flat: torch.Tensor, points: torch.Tensor, samples: torch.Tensor) -> Any:
        return (
            F.grid_sample(x, flat, padding_mode="reflection", align_corners=True),
            F.grid_sample(x, flat, "nearest", align_corners=False),
            F.grid_sample(volume, points, padding_mode="border", align_corners=False),
            *F.fractional_max_pool2d(x, (2, 3), output_size=(3, 1), _random_samples=samples, return_indices=True),
        )

    check(program, r(2, 1, 5, 4), r(1, 2, 3, 5, 4), flat, points, samples)


def test_symmetric_matrices_that_are_not_definite() -> None:
    x = r(4, 4, 4, dtype=torch.complex128)
    x[1].diagonal().zero_()
    x[2] = 0
    x[3, :, 0] = x[3, 0, :] = 0  # of these two the factors are singular

    def program(a: torch.Tensor, b: torch.Tensor) -> Any:
        packed, pivots, info = torch.linalg.ldl_factor_ex(a, hermitian=True)
        solved = torch.linalg.ldl_solve(packed[:2], pivots[:2], b, hermitian=True)
        return packed, pivots, info, solved, *torch.geqrf(a[0, :3])

    check(program, x + x.mH, r(4, 3, dtype=torch.complex128))


def test_draws_have_torchs_distributions() -> None:
    n, p = 20000, 0.25
    x = torch.full((n, 2, 2), 3.0)
    weights = torch.tensor([[0.0, 1.0, 3.0, 4.0], [2.0, 0.0, 0.0, 6.0]])

    def program(x: torch.Tensor, weights: torch.Tensor) -> Any:
        return (
            F.feature_alpha_dropout(x, p, training=True),
            F.rrelu(-x, 0.1, 0.5, training=True),
            torch.multinomial(weights, n, replacement=True),
            torch.multinomial(weights[:1].expand(n, 4), 2),
            F.scaled_dot_product_attention(x, x, x, dropout_p=p),
        )

    module = neuron_ir.from_torch(program, (x, weights), seed=1)
    first, again = (neuron_ir.compile(module)(x, weights) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    dropped, slopes, many, two, attended = first
    alpha, scale = -1.7580993408473766, ((1.7580993408473766**2 * p + 1) * (1 - p)) ** -0.5
    shift = -scale * alpha * p
    low, high = alpha * scale + shift, 3 * scale + shift
    assert torch.equal(dropped[..., :1].expand(dropped.shape), dropped)  # a channel goes or stays as a whole
    torch.testing.assert_close(dropped.unique(), torch.tensor([low, high]))
    assert abs((dropped[..., 0] < 0).double().mean() - p) < 0.01
    torch.testing.assert_close(slopes / -3, (slopes / -3).clamp(0.1, 0.5))
    assert abs(slopes.mean() / -3 - 0.3) < 0.005 and abs((slopes / -3).std() - 0.4 / 12**0.5) < 0.005
    for row, chances in zip(many, weights / weights.sum(1, keepdim=True), strict=True):
        torch.testing.assert_close(row.bincount(minlength=4) / n, chances, rtol=0, atol=0.015)
    assert (two != 0).all() and (two[:, 0] != two[:, 1]).all()
    torch.testing.assert_close(two[:, 0].bincount(minlength=4) / n, weights[0] / 8, rtol=0, atol=0.015)
    assert abs(attended.mean() - 3) < 0.05 and abs((attended == 0).double().mean() - p * p) < 0.01


def test_linear_cross_entropy_in_chunks_gives_its_gradients() -> None:
    x, weights, bias, target = r(6, 4), r(5, 4), r(5), torch.tensor([0, 4, 1, -100, 2, 2])
    chunked = import_module("torch.nn.modules.linear_cross_entropy")._linear_cross_entropy_batch_chunked

    def program(x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor, target: torch.Tensor) -> Any:
        whole = F.linear_cross_entropy(x, weights, target, linear_bias=bias, label_smoothing=0.1)
        rest = ("mean", -100, 0.0, 2, "compact", torch.float32, False, True, True, True)
        return whole, *chunked(x, weights, target, bias, None, *rest)

    check(program, x, weights, bias, target)


def test_activations_norms_and_pools_beyond_floats() -> None:
    def program(c: torch.Tensor, w: torch.Tensor, i: torch.Tensor, u: torch.Tensor) -> Any:
        return (
            F.silu(c),
            F.rms_norm(c, (3,), w),
            F.relu6(u),
            F.hardtanh(i, -3, 4),
            F.avg_pool2d(i, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            F.avg_pool2d(i, 2, divisor_override=3),
        )

    integers = torch.randint(-20, 20, (1, 2, 7, 9), generator=GENERATOR)
    c64 = torch.complex64
    check(program, r(2, 3, dtype=c64), r(3, dtype=c64), integers, torch.arange(20, dtype=torch.uint8))
