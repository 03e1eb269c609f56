"""linear, matmul and grouped_matmul against torch and against float64."""

import pytest
import torch
import torch.nn.functional as F

from neuron_ir.diagnostics import IRError
from neuron_ir.dtypes import BF16, F16, F32, F64

from .judge import apply, apply_each, close, expanded, program, symbolic

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def randn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def exact(f, *tensors, dtype=None):
    """``f`` in float64, rounded once."""
    y = f(*[t if t is None else t.double() for t in tensors])
    return y.to(dtype or tensors[0].dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(4, 32), (2, 3, 32), (32,)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_torchs_and_rounds_once(dtype, shape, bias):
    x, weight = randn(*shape, dtype=dtype), randn(5, 32, dtype=dtype, seed=1)
    b = randn(5, dtype=dtype, seed=2) if bias else None
    y = apply("linear", x, weight, b)
    close(y, exact(F.linear, x, weight, b), 1 if dtype in (torch.bfloat16, torch.float16) else 8)
    close(y, F.linear(x, weight, b), 2 if dtype in (torch.bfloat16, torch.float16) else 8)


def test_linear_of_nothing():
    close(apply("linear", randn(1, 0, 32), randn(4, 32, seed=1), randn(4, seed=2)), torch.zeros(1, 0, 4), 0)
    bias = randn(4, seed=2)
    close(apply("linear", randn(3, 0), randn(4, 0), bias), bias.expand(3, 4), 0)


def test_a_result_type_of_ones_own():
    x, weight, bias = randn(4, 64, dtype=torch.bfloat16), randn(3, 64, dtype=torch.bfloat16, seed=1), randn(3, seed=2)
    close(apply("linear", x, weight, bias, dtype=F32), exact(F.linear, x, weight, bias, dtype=torch.float32), 8)
    x = randn(8, 64, dtype=torch.float32)
    close(apply("matmul", x, x, transpose_b=True, acc=F64), exact(lambda a: a @ a.T, x), 0.51)
    close(apply("matmul", x, x.bfloat16(), transpose_b=True, dtype=F32), exact(lambda a, b: a @ b.T, x, x.bfloat16()), 8)


SHAPES = [
    ((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((4,), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (6, 4, 5)), ((2, 3, 4), (4,)), ((7, 1, 3, 4), (1, 2, 4, 5)), ((0, 3, 4), (4, 5)),
    ((3, 0), (0, 5)), ((2, 3, 0), (2, 0, 5)), ((1, 1), (1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("a, b", SHAPES, ids=[f"{a}@{b}" for a, b in SHAPES])
def test_matmul_broadcasts_as_torch_does(a, b):
    x, y = randn(*a), randn(*b, seed=1)
    close(apply("matmul", x, y), x @ y, 4)
    variants = [({}, x, y)]
    if len(a) > 1:
        variants.append(({"transpose_a": True}, x.mT.contiguous(), y))
    if len(b) > 1:
        variants.append(({"transpose_b": True}, x, y.mT.contiguous()))
    for attrs, left, right in variants[1:]:
        close(apply("matmul", left, right, **attrs), x @ y, 4)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int64, torch.complex64])
def test_matmul_in_every_type(dtype):
    x, y = (randn(2, 3, 16, seed=s) for s in (0, 1))
    if not dtype.is_floating_point and not dtype.is_complex:
        x, y = (t * 2**28 for t in (x, y))
    x, y = x.to(dtype), y.to(dtype)
    if dtype.is_complex:
        x, y = x * (1 + 2j), y * (3 - 1j)
        assert (apply("matmul", x, y, transpose_b=True) - x @ y.mT).abs().max() < 1e-4
        return
    expected = x @ y.mT if not dtype.is_floating_point else exact(lambda a, b: a @ b.mT, x, y)
    close(apply("matmul", x, y, transpose_b=True), expected, 1 if dtype in (torch.bfloat16, torch.float16) else 4)


def test_a_long_bf16_sum_keeps_growing():
    x = torch.full((1, 10000), 0.5, dtype=torch.bfloat16)
    y = torch.ones(10000, 1, dtype=torch.bfloat16)
    assert apply("matmul", x, y).item() == 4992  # 5000 rounded to bf16; a bf16 sum stalls at 256


def grouped(a, b, ends):
    """torch's definition, group by group; what no group owns is 0."""
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    if a.ndim == b.ndim:
        return torch.stack([a[:, i:j] @ b[i:j] for i, j in spans])
    y = torch.zeros(a.shape[-2], b.shape[-1], dtype=a.dtype)
    for g, (i, j) in enumerate(spans):
        if a.ndim == 2:
            y[i:j] = a[i:j] @ b[g]
        else:
            y[:, i:j] = a[g] @ b[:, i:j]
    return y


@pytest.mark.parametrize("ends", [[3, 3, 10], [10, 10, 10], [0, 4, 8], [0, 0, 0]], ids=str)
@pytest.mark.parametrize("a, b", [((10, 8), (3, 8, 6)), ((3, 5, 8), (8, 10)), ((5, 10), (10, 6))], ids=str)
def test_grouped_matmul_follows_its_offsets(a, b, ends):
    x, y = randn(*a), randn(*b, seed=1)
    close(apply("grouped_matmul", x, y, torch.tensor(ends, dtype=torch.int32)), grouped(x, y, ends), 4)


@pytest.mark.parametrize("ends", [[0, 130, 130, 200, 300], [65, 128, 129, 250, 299]], ids=str)
def test_grouped_matmul_of_many_rows(ends):
    x, y = randn(300, 8), randn(5, 8, 6, seed=1)
    close(apply("grouped_matmul", x, y, torch.tensor(ends, dtype=torch.int32)), grouped(x, y, ends), 4)


def test_grouped_matmul_is_torchs_in_bf16_and_batched():
    x, y = randn(16, 16, dtype=torch.bfloat16), randn(3, 16, 8, dtype=torch.bfloat16, seed=1)
    offsets = torch.tensor([4, 9, 16], dtype=torch.int32)
    close(apply("grouped_matmul", x, y, offsets), torch._grouped_mm(x, y, offsets), 1)
    x = randn(3, 4, 16, seed=2)
    close(apply("grouped_matmul", x, y.float(), None), x @ y.float(), 4)


def test_a_group_without_rows_spreads_no_nan():
    x, y = randn(4, 2), randn(3, 2, 2, seed=1)
    y[1] = float("nan")
    close(apply("grouped_matmul", x, y, torch.tensor([2, 2, 4], dtype=torch.int32)), grouped(x, y, [2, 2, 4]), 4)


def test_what_does_not_fit_is_refused_with_its_numbers():
    f = symbolic
    for name, types, attrs, message in (
        ("linear", [f((2, 3)), f((4, 5)), None], {}, "the contracted sizes differ: 3 of tensor<2x3xf32> and 5"),
        ("linear", [f((2, 3)), f((4, 3)), f((3,))], {}, "bias must have shape [4], not [3]"),
        ("linear", [f((2, 3), "bf16"), f((4, 3)), None], {}, "operands of bf16 and f32 need the attribute dtype"),
        ("linear", [f((2, 3), "bf16"), f((4, 3), "bf16"), None], {"acc": F16}, "acc = f16 is narrower than f32"),
        ("matmul", [f((2, 3)), f((4, 3))], {}, "the contracted sizes differ: 3"),
        ("matmul", [f((2, 3, 4)), f((5, 4, 2))], {}, "batch dims of shapes [2] and [5] do not broadcast"),
        ("matmul", [f((3,)), f((3,))], {"transpose_a": True}, "a must have rank 2 or more"),
        ("matmul", [f((3, 3)), f((3, 3))], {"acc": BF16}, "acc = bf16 is narrower than f32"),
        ("grouped_matmul", [f((4, 3)), f((2, 3, 5)), None], {}, "offsets are needed"),
        ("grouped_matmul", [f((4, 3)), f((2, 3, 5)), f((3,), "i32")], {}, "the numbers of groups [2, 3] differ"),
    ):
        with pytest.raises(IRError) as caught:
            program(f"neuron.{name}", types, **attrs)
        assert message in str(caught.value)


def test_shapes_may_be_symbols():
    f = symbolic
    linear = program("neuron.linear", [f(("B", "S", 8)), f((4, 8)), f((4,))])
    assert linear.main.result_types == [f(("B", "S", 4))]
    expanded(linear)
    expanded(program("neuron.matmul", [f(("B", 2, "S", 8)), f(("B", 1, 8, "S"))]))
    assert program("neuron.matmul", [f(("B", 1, "S", 8)), f((3, 8, None))]).main.result_types == [f(("B", 3, "S", None))]
    assert program("neuron.matmul", [f(("B", "S", 8)), f((None, 8, "S"))]).main.result_types == [f(("B", "S", "S"))]
    assert program("neuron.grouped_matmul", [f(("T", 8)), f((4, 8, 2)), f((4,), "i32")]).main.result_types == [f(("T", 2))]


def test_several_variants_at_once():
    x, y = randn(3, 3), randn(3, 3, seed=1)
    flags = [{"transpose_a": a, "transpose_b": b} for a in (False, True) for b in (False, True)]
    for attrs, (z,) in zip(flags, apply_each("matmul", [x, y], flags), strict=True):
        close(z, (x.T if attrs["transpose_a"] else x) @ (y.T if attrs["transpose_b"] else y), 4)
