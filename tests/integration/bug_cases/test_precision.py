"""Rounding, casts and rewrites: every operation rounds as written, in eager's dtype."""

from __future__ import annotations

import jax.numpy as jnp
import ml_dtypes
import numpy
import torch
from torch import nn
from torch.nn import functional as F

import neuron_ir
from neuron_ir.dtypes import BF16 as IR_BF16
from tests.integration.bug_cases.judge import check, check_jax, each, same, torch_programs

BF16 = torch.bfloat16


def _error_term(x, y):
    r = x + y
    return r, y - (r - x)


# seen in jax-ml/jax#23007: all zeros, because the steps between were kept in f32
def test_the_error_of_a_bf16_sum() -> None:
    x, y = torch.tensor([1.0, 256.0, 3.0]).to(BF16), torch.tensor([0.001, 1.0, 1e-3]).to(BF16)
    r, e = _error_term(x, y)
    assert (e != 0).all()
    for run in torch_programs(_error_term, x, y):
        assert all(torch.equal(g, w) for g, w in zip(run(x, y), (r, e), strict=True))
    a, b = (v.float().numpy().astype(ml_dtypes.bfloat16) for v in (x, y))
    check_jax(_error_term, a, b, want=[v.float().numpy().astype(ml_dtypes.bfloat16) for v in (r, e)])


# seen in apple/coremltools#2839: a float infinity for the missing bound rounds 16777217
def test_clamps_of_integers_with_one_bound() -> None:
    x = torch.tensor([16777217, 2000000001, -5], dtype=torch.int32)
    check(lambda x: x.clamp(min=0), x, want=torch.tensor([16777217, 2000000001, 0], dtype=torch.int32))
    bounds = each(
        lambda x: x.clamp(max=7),
        lambda x: x.long().mul(2**20).clamp(min=3),
        lambda x: torch.clamp_min(x, 1),
        lambda x: x.clamp(min=torch.tensor(1), max=None),
        lambda x: x.clamp(5, 3),
        lambda x: F.relu(x),
        lambda x: torch.maximum(x, torch.tensor(2)),
    )
    check(bounds, x)


def _angle_of_zeros(x):
    m = jnp.logical_xor(jnp.isnan(x), jnp.isnan(x)).astype(x.dtype)
    return jnp.arctan2(m, m)


# seen in openxla/xla#46594; plain JAX gives NaN
def test_the_angle_of_zeros_known_to_the_compiler() -> None:
    check_jax(_angle_of_zeros, numpy.float32([1, 2]), want=numpy.float32([0, 0]))
    check(lambda x: torch.atan2(x * 0, x * 0), torch.tensor([1.0, -2.0]))
    check(
        lambda x: (torch.atan2(m := (x.isnan() ^ x.isnan()).float(), m), torch.atan2(m, m - 1)), torch.tensor([1.0, float("nan")])
    )


# rewrites that hold for real numbers only
def test_overflow_and_underflow_happen_where_they_are_written() -> None:
    x = torch.tensor([89.0, 1.0, -110.0])
    check(each(lambda x: x.exp().log(), lambda x: (x * 1e30 * 1e30).abs().sqrt(), lambda x: x.exp() / x.exp()), x)
    check(lambda x: (x * 1e38 * 10) / 1e38, torch.tensor([1.0, 0.0, -4.0]))
    check(lambda x: ((x + 1e8) - 1e8, (x * 3.0) / 3.0, 1.0 / (1.0 / x)), torch.tensor([1.0, 3.3, 7.0]))
    check(lambda x: x.to(BF16).float() - x, torch.tensor([1.001, 3.3, 7.0]))


# seen in pytorch/xla#2525: every index was the smallest int64
def test_places_of_maxima_after_a_bf16_softmax() -> None:
    x = torch.randn(4, 7, generator=torch.Generator().manual_seed(0)).to(BF16)
    places = each(
        lambda x: x.softmax(-1).argmax(-1),
        lambda x: x.softmax(-1).max(-1).indices,
        lambda x: x.softmax(-1).topk(2).indices,
        lambda x: x.log_softmax(-1).argmin(),
    )
    check(places, x)


OVER = [448.0, 464.0, 465.0, 1000.0, float("inf"), float("nan"), -1000.0, 1e-3]


# seen in jax-ml/ml_dtypes#400 and onnx/onnx#6220: the cast's mode is the source framework's
def test_f8_overflow_follows_the_framework() -> None:
    narrow = each(lambda x: x.to(torch.float8_e4m3fn).float(), lambda x: x.to(torch.float8_e5m2).float())
    check(narrow, torch.tensor(OVER))
    check(narrow, torch.tensor(OVER, dtype=BF16))
    nan = float("nan")
    want = numpy.float32([448, 448, nan, nan, nan, nan, nan, 2**-9 * round(1e-3 * 2**9)])
    check_jax(lambda x: x.astype(jnp.float8_e4m3fn).astype(jnp.float32), numpy.float32(OVER), want=want)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x)) * 2.0)) * self.scale


# seen in pytorch/xla#3430: a stale f32 copy, stray f32 operations
def test_a_bf16_module_is_bf16_throughout() -> None:
    torch.manual_seed(0)
    model, x = Block().to(BF16).requires_grad_(False), torch.randn(2, 8).to(BF16)
    module = neuron_ir.from_torch(model, (x,))
    kinds = {v.dtype for op in module.walk() for v in (*op.operands, *op.results) if v.dtype.is_float}
    assert kinds == {IR_BF16}
    check(model, x)


def test_a_bf16_product_pass_keeps_the_sum_in_f32() -> None:
    ones = torch.ones(2, 4096)
    f = lambda x, w: x @ w.mT  # noqa: E731
    _, run = torch_programs(f, ones, ones, passes="precision{dtype=bf16}")
    same(run(ones, ones * 0.5), torch.full((2, 2), 2048.0))
    third = torch.full((2, 4096), 1 / 3)
    exact = third.to(BF16).double()[0, 0].item() ** 2 * 4096
    assert (run(third, third).double() - exact).abs().max() <= 4096 * 2**-24 * exact  # as many roundings of f32


def test_promotion_of_mixed_operands() -> None:
    half, wide, whole = torch.tensor([1.5], dtype=BF16), torch.tensor([2.5]), torch.tensor([3])
    mixed = each(
        lambda h, w, i: h + w,
        lambda h, w, i: h * i,
        lambda h, w, i: h + torch.tensor(2.5, dtype=torch.float64),
        lambda h, w, i: i / 2,
        lambda h, w, i: i * 2.5,
        lambda h, w, i: i + True,
        lambda h, w, i: (i > 2) + (i > 2),
        lambda h, w, i: torch.where(i > 2, h, 1),
        lambda h, w, i: h.pow(i),
        lambda h, w, i: torch.cat([h, w, i]),
    )
    check(mixed, half, wide, whole)
