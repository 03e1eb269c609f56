"""Integers and bool: division, widths, casts from floats, counting."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy
import pytest
import torch

import neuron_ir
from neuron_ir.diagnostics import IRError
from tests.integration.bug_cases.judge import check, check_jax, each

A, B = torch.tensor([-7, 7, -7, 7, 0]), torch.tensor([2, -2, -2, 2, 5])


# seen in kasper0406/stablehlo-coreml#70: flooring twice gives -5
@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.int32])
def test_division_truncates_or_floors(dtype: torch.dtype) -> None:
    kinds = each(
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        lambda a, b: a // b,
        lambda a, b: a % b,
        lambda a, b: torch.fmod(a, b),
        lambda a, b: a / b,
        lambda a, b: a // 2,
        lambda a, b: 7 // b,
    )
    check(kinds, A.to(dtype), B.to(dtype))


def test_division_by_hand() -> None:
    a, b = A.numpy(), B.numpy()
    trunc, floor = numpy.int64([-3, -3, 3, 3, 0]), numpy.int64([-4, -4, 3, 3, 0])
    check(lambda a, b: torch.div(a, b, rounding_mode="trunc"), A, B, want=torch.from_numpy(trunc))
    check(lambda a, b: torch.floor_divide(a, b), A, B, want=torch.from_numpy(floor))
    check_jax(lambda a, b: (jax.lax.div(a, b), a // b), a, b, want=[trunc, floor])
    check_jax(lambda a, b: (jax.lax.rem(a, b), a % b), a, b, want=[a - trunc * b, a - floor * b])


# seen in pytorch/pytorch#15921 and pytorch/xla#2746
def test_integers_do_not_go_through_floats() -> None:
    big = torch.tensor([421123111, 2**53 + 1, -(2**62) - 1])
    kinds = each(
        lambda x: torch.fmod(x, 2),
        lambda x: x % 10,
        lambda x: x // 3,
        lambda x: torch.div(x, 7, rounding_mode="trunc"),
        lambda x: x.abs(),
        lambda x: x.sum(),
        lambda x: x.prod(),
        lambda x: x.cumsum(0),
        lambda x: x.max(),
        lambda x: x.sort().values,
        lambda x: torch.where(x > 0, x, -1),
        lambda x: x.pow(2),
        lambda x: x @ torch.tensor([1, 1, -1]),
        lambda x: x.bitwise_xor(5) >> 1,
    )
    check(kinds, big)
    small = torch.tensor([-47, 47, 95], dtype=torch.int16)
    check(lambda x: torch.div(x, 47, rounding_mode="trunc"), small, want=torch.tensor([-1, 1, 2], dtype=torch.int16))


def test_remainders_of_floats_stay_below_the_divisor() -> None:
    x = torch.tensor([1e9, -1e9, 5.5, -0.0, float("inf")])
    check(lambda x: torch.remainder(x, math.pi), x)
    check(each(lambda x: torch.fmod(x, 3.1), lambda x: x // 0.1, lambda x: torch.div(x, 0.3, rounding_mode="trunc")), x[2:])


OUT = [200.0, -200.0, 300.0, 1e10, float("nan"), float("inf")]


# seen in iree-org/iree#24591 and apache/tvm#19542: the answer is the source framework's
def test_floats_out_of_an_integers_range() -> None:
    x = torch.tensor(OUT)
    check(lambda x: x.to(torch.int8), x, want=torch.tensor([-56, 56, 44, 0, 0, 0], dtype=torch.int8))
    widths = each(*(lambda x, t=t: x.to(t) for t in (torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool)))
    check(widths, x)
    check(lambda x: x.to(torch.uint8), torch.tensor([-1.0]), want=torch.tensor([255], dtype=torch.uint8))
    check(widths, x.to(torch.bfloat16))
    check_jax(lambda x: x.astype(jnp.int8), x.numpy(), want=numpy.int8([127, -128, 127, 127, 0, 127]))
    check_jax(lambda x: x.astype(jnp.uint8), numpy.float32([-1]), want=numpy.uint8([0]))


# seen in pytorch/xla#567 and torch-spyre/torch-spyre#660
def test_counting_and_any_of_comparisons() -> None:
    x = torch.tensor([0, -3, 2])
    counts = each(
        lambda x: torch.cat([x > 0, x < 0]).sum(),
        lambda x: (x > 0).sum(0, keepdim=True),
        lambda x: (x > 0).float().mean(),
        lambda x: (x * 0).any(),
        lambda x: x.any(),
        lambda x: x.to(torch.uint8).any(),
        lambda x: x.to(torch.uint8).all(),
        lambda x: (x > 0).cumsum(0),
        lambda x: (x > 0).prod(),
        lambda x: torch.count_nonzero(x),
        lambda x: (x > 0).int().argmax(),
        lambda x: (x > 0) + (x != 0),
        lambda x: (x > 0) * 3,
        lambda x: (x > 0).max(),
        lambda x: x.bool().logical_xor(x > 0),
    )
    check(counts, x)
    both = numpy.array([True, False, True])
    check_jax(
        lambda m: (jnp.concatenate([m, m]).sum(), m.any(), jnp.cumsum(m)),
        both,
        want=[numpy.int64(4), numpy.bool_(True), numpy.int64([1, 1, 2])],
    )


# seen in torch-spyre/torch-spyre#4332: refused
def test_equality_of_ids_with_a_padding_id() -> None:
    ids = torch.tensor([[1, 2, 1], [3, 1, 5]])
    check(each(lambda x: x.unsqueeze(-1) == 1, lambda x: x.ne(1), lambda x: x == 1.5, lambda x: (x == 1).cumsum(1) * 2), ids)


# seen in torch-spyre/torch-spyre#1494: narrowed to 32 bits
def test_ids_above_32_bits() -> None:
    big = torch.tensor([2**40 + 5, -(2**40), 2**31 - 1, 2**63 - 1])
    check(lambda x: x + 1, big, want=torch.tensor([2**40 + 6, 1 - 2**40, 2**31, -(2**63)]))
    check_jax(lambda x: x + 1, big.numpy(), want=(big + 1).numpy())
    table = torch.tensor([2**40 + 5, -7, 2**62])
    check(lambda t, i: (t[i], torch.nn.functional.embedding(i, t[:, None].double())), table, torch.tensor([2, 0]))
    most = torch.tensor([2**31 - 1, 1], dtype=torch.int32)
    check(each(lambda x: x.sum(), lambda x: x + 1, lambda x: x.long() + 1, lambda x: x.cumsum(0)), most)


def test_wide_ids_are_refused_where_jax_traces_in_32_bits() -> None:
    big = numpy.int64([2**40 + 5])
    run = neuron_ir.compile(neuron_ir.from_jax(lambda x: x + 1, numpy.int64([1])))
    with pytest.raises(IRError, match=r"tensor<1xi64>, but tensor<1xi32> is needed"):
        run(big)


# seen in pytorch/xla#6479: mixed types crashed
def test_a_double_scalar_does_not_promote() -> None:
    low = torch.tensor(torch.finfo(torch.float32).min, dtype=torch.float64)
    x, mask = torch.tensor([1.0, 2.0]), torch.tensor([True, False])
    check(lambda m, x: torch.where(m, low, x), mask, x)
    check(lambda m, x: (torch.where(m, x, low), x + low, x.masked_fill(m, low), torch.maximum(x, low)), mask, x)
    check(lambda m, x, s: torch.where(m, s, x), mask, x, low)
