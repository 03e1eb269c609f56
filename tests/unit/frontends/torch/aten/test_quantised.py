"""Quantised and low-precision programs against torch's own implementations."""

from __future__ import annotations

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch._higher_order_ops.out_dtype import out_dtype

import neuron_ir

X = (torch.arange(48.0).reshape(6, 8) - 20.5) * 0.37
EDGES = torch.tensor([float("nan"), 1e9, -1e9, float("inf"), -float("inf"), 0.05, -0.05, 0.15, 12.75])


def check(f, *args, **tolerance):
    want = torch.utils._pytree.tree_leaves(f(*args))
    got = torch.utils._pytree.tree_leaves(neuron_ir.compile(neuron_ir.from_torch(f, args))(*args))
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, equal_nan=True, **tolerance)


@pytest.mark.accuracy  # roundings and quotients are XLA's own
def test_quantised_values_as_exported_programs_write_them() -> None:
    q = torch.ops.quantized_decomposed

    def f(x, scale, zero):
        a = q.quantize_per_tensor.default(x, 0.037, 3, -128, 127, torch.int8)
        b = q.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
        sizes = x.abs().amax(0) / 127
        places = torch.arange(8)
        c = q.quantize_per_channel.default(x, sizes, places, 1, -128, 127, torch.int8)
        s, z = q.choose_qparams_per_token_asymmetric(x, torch.int8)
        d = q.quantize_per_token(x, s, z, -128, 127, torch.int8)
        return (
            (a, q.dequantize_per_tensor.default(a, 0.037, 3, -128, 127, torch.int8)),
            (b, q.dequantize_per_tensor.tensor(b, scale, zero, 0, 255, torch.uint8)),
            (c, q.dequantize_per_channel.default(c, sizes, places, 1, -128, 127, torch.int8)),
            (s, z, d, q.dequantize_per_token(d, s, z, -128, 127, torch.int8, torch.float32)),
        )

    check(f, X, torch.tensor([0.05]), torch.tensor([7]))


def test_scales_that_follow_from_the_data() -> None:
    q = torch.ops.quantized_decomposed

    def f(x):
        found = [q.choose_qparams.tensor(v, 0, 255, 1e-5, torch.uint8) for v in (x, x.abs() + 1, x * 1e-9, x.bfloat16())]
        found.append(q.choose_qparams_symmetric.tensor(x, -127, 127, 1e-5, torch.int8))
        s, z = found[0]
        y = q.quantize_per_tensor.tensor(x, s, z, 0, 255, torch.uint8)
        return found, y, q.dequantize_per_tensor.tensor(y, s, z, 0, 255, torch.uint8)

    check(f, X)


def test_products() -> None:
    torch.manual_seed(0)
    i, j = (torch.randint(-128, 128, s, dtype=torch.int8) for s in ((32, 16), (16, 8)))
    a, b = (torch.randn(16, 16).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.tensor(0.5)

    def f(i, j, a, b, one, rows, columns, bias, x, w):
        return (
            torch._int_mm(i, j),
            out_dtype(torch.ops.aten.mm.default, torch.int32, i, j),
            torch._scaled_mm(a, b.t(), one, one * 3, out_dtype=torch.bfloat16),
            torch._scaled_mm(a, b.t(), one, one * 3, bias=bias, out_dtype=torch.float32),
            torch._scaled_mm(a, b.t(), rows, columns, out_dtype=torch.bfloat16),
            torch._weight_int8pack_mm(x, w, bias[:8].bfloat16()),
        )

    weight = torch.randint(-128, 128, (8, 8), dtype=torch.int8)
    check(f, i, j, a, b, one, torch.rand(16, 1), torch.rand(1, 16), torch.randn(16), X.bfloat16(), weight)


def test_fake_quantisation_and_its_mask() -> None:
    def f(x, y, scale, zero, scales, zeros, on):
        return (
            torch.fake_quantize_per_tensor_affine(y, 0.1, 2, 0, 255),
            torch.fake_quantize_per_tensor_affine(y, scale, zero, 0, 255),
            torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(y, 0.1, 2, 0, 255),
            torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, -8, 7),
            torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(y, scale, zero, on, 0, 15)[0],
        )

    zeros = torch.arange(8, dtype=torch.int32)
    args = (X, EDGES, torch.tensor([0.1]), torch.tensor([2], dtype=torch.int32), torch.rand(8) + 0.1, zeros, torch.tensor([1]))
    check(f, *args)


def test_what_has_no_meaning_is_refused_by_name() -> None:
    def blocks(a, s):
        return torch._scaled_mm(a, a.t(), s, s, out_dtype=torch.bfloat16)

    def packed(x, w, s):
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, w, 32, s)

    a = torch.zeros(16, 16).to(torch.float8_e4m3fn)
    with pytest.raises(neuron_ir.IRError, match=r"_weight_int4pack_mm_for_cpu.default: no rule for this operation"):
        w = torch.zeros(32, 16, dtype=torch.uint8)
        neuron_ir.from_torch(packed, (torch.zeros(4, 32).bfloat16(), w, torch.zeros(1, 32, 2).bfloat16()))
    with pytest.raises((neuron_ir.IRError, RuntimeError), match=r"scale"):
        neuron_ir.from_torch(blocks, (a, torch.ones(3, 1)))
