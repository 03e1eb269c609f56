"""ATen operations through import, text and the reference accelerator, against torch eager: the tricky rules, one line each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import neuron_ir
from neuron_ir.diagnostics import IRError

NAN, INF = math.nan, math.inf


def run(function: Callable[..., Any], *tensors: torch.Tensor) -> Any:
    """The program's results, from its text read back."""

    def program(*inputs: torch.Tensor) -> Any:  # torch.export takes no built-in function
        return function(*inputs)

    module = neuron_ir.from_torch(program, tensors)
    parsed = neuron_ir.parse(module.text())
    parsed.weights = module.weights
    return neuron_ir.compile(parsed)(*[t.clone() for t in tensors])


def check(function: Callable[..., Any], *tensors: torch.Tensor) -> None:
    """Values, element types and shapes are torch's."""
    expected, actual = function(*[t.clone() for t in tensors]), run(function, *tensors)
    torch.testing.assert_close(actual, expected, equal_nan=True, check_stride=False)


def t(values: Any, dtype: Any = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


I8, I16, I32, I64, U8, BOOL = torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool
F16, BF16, F32, F64, C64 = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64

PROMOTION = {
    "rank 0 tensors do not widen": (lambda a, b: a + b, t([1.5, 2.5]), t(3.0, F64)),
    "rank 0 floats lift integers": (lambda a, b: a + b, t([1, 2], I64), t(0.5, F64)),
    "rank 0 integers do not widen integers": (lambda a, b: a * b, t([100, 2], I8), t(3, I64)),
    "numbers do not widen": (lambda a: a + 1.5, t([1, 2], F16)),
    "a float number lifts integers to the default type": (lambda a: a + 1.5, t([1, 2], I64)),
    "an integer number lifts bool": (lambda a: a + 1, t([True, False], BOOL)),
    "bool and u8": (lambda a, b: a + b, t([True, False], BOOL), t([255, 3], U8)),
    "u8 and i8": (lambda a, b: a + b, t([200, 3], U8), t([-1, -4], I8)),
    "integer and float tensors": (lambda a, b: a * b, t([1, 2], I64), t([0.5, 0.5], F16)),
    "two half types meet in f32": (lambda a, b: a + b, t([1.0], F16), t([1.0], BF16)),
    "a complex number lifts floats": (lambda a: a * 2j, t([1.0, -2.0])),
    "division of integers gives floats": (lambda a, b: a / b, t([1, 2], I64), t([3, 4], I32)),
    "comparison of integers with a float number": (lambda a: a < 1.5, t([1, 2], I64)),
    "where with a rank 0 double (BC-101)": (
        lambda m, a, b: torch.where(m, a, b),
        t([True, False], BOOL),
        t(-1e4, F64),
        t([1.0, 2.0]),
    ),
    "a number that bf16 cannot hold": (lambda a: a * 0.1, t([3.0, 7.0, 1000.0], BF16)),
    "alpha of integers": (lambda a, b: torch.add(a, b, alpha=3), t([1, 2], I32), t([5, 6], I32)),
    "alpha is rounded to the halves, the sum once": (
        lambda a, b: torch.sub(a, b, alpha=0.3),
        t([1.0, 2.0], BF16),
        t([5.1, 6.3], BF16),
    ),
    "rsub": (lambda a: torch.rsub(a, 2, alpha=3), t([1, 2], I32)),
    "sum of bool counts (BC-095)": (lambda a, b: torch.cat([a > 0, b > 0]).sum(), t([1.0, -1.0]), t([2.0, 3.0])),
    "mean of halves": (lambda a: a.mean(), torch.full((70000,), 2.0, dtype=F16)),
    "sum of i32 in i64 (BC-099)": (lambda a: a.sum(), t([2**31 - 1, 1], I32)),
    "cumsum of u8": (lambda a: a.cumsum(0), t([200, 200], U8)),
    "prod of bool": (lambda a: a.prod(), t([True, True], BOOL)),
    "ids above 32 bits (BC-099)": (lambda a: a + 1, t([2**40 + 5], I64)),
}

DIVISION = {
    "truncated integers (BC-089)": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), t([-7, 7, -7], I64), t([2, -2, -2], I64)),
    "floored integers (BC-089)": (lambda a, b: torch.div(a, b, rounding_mode="floor"), t([-7, 7, -7], I64), t([2, -2, -2], I64)),
    "floor_divide by a number": (lambda a: a // -2, t([-7, 7, 8], I32)),
    "i16 truncated stays i16 (BC-091)": (lambda a: torch.div(a, 47, rounding_mode="trunc"), t([-47, 46], I16)),
    "floored floats, zeros and infinities": (
        lambda a, b: torch.floor_divide(a, b), t([-7.0, 7.0, 1.0, -0.0, 1.0, INF]), t([2.0, -2.0, 0.0, 3.0, INF, 2.0]),
    ),
    "where there is nothing, 0 divides it": (
        lambda a, b: (a // 0, a % b, torch.fmod(a, 0), torch.div(a, b, rounding_mode="trunc")), t([], I64), t([0], I64),
    ),
    "truncated halves": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), t([7.0, -9.5], BF16), t([2.0, 3.0], BF16)),
    "floored halves": (lambda a, b: torch.div(a, b, rounding_mode="floor"), t([7.0, -9.5], F16), t([2.0, 3.0], F16)),
    "fmod of i64 (BC-091)": (lambda a: torch.fmod(a, 2), t([421123111], I64)),
    "remainder by pi (BC-091)": (lambda a: torch.remainder(a, math.pi), t([1e9, -1.0])),
    "remainder has the divisor's sign": (lambda a, b: a % b, t([-7, 7, 7], I64), t([3, -3, 3], I64)),
    "fmod has the dividend's sign": (lambda a, b: torch.fmod(a, b), t([-7.5, 7.5]), t([2.0, -2.0])),
    "powers of integers": (lambda a: a**3, t([-3, 2, 2000000], I32)),
    "square roots by power": (lambda a: a**0.5, t([4.0, -0.0, -INF, INF])),
    "a number to the power of integers": (lambda a: 2**a, t([0, 3, 10], I64)),
}  # fmt: skip

NUMBERS = {
    "sign of NaN (BC-085)": (torch.sign, t([NAN, -2.0, 0.0, -0.0])),
    "argmin with NaN (BC-083)": (lambda a: a.argmin(), t([8.0, NAN, 3.0, 1.0, 5.0])),
    "argmax of nothing but NaN (BC-083)": (lambda a: a.argmax(), torch.full((61,), NAN)),
    "max along a dim with NaN": (lambda a: torch.max(a, 1), t([[1.0, NAN, 3.0], [5.0, 5.0, 1.0]])),
    "maximum and fmax with NaN": (lambda a, b: (torch.maximum(a, b), torch.fmax(a, b)), t([NAN, 1.0, NAN]), t([1.0, NAN, NAN])),
    "fmax of integers": (lambda a, b: torch.fmax(a, b), t([1, 5], I64), t([3, 2], I64)),
    "clamp keeps NaN": (lambda a: a.clamp(-1, 1), t([NAN, 2.0, -INF])),
    "clamp with crossed bounds": (lambda a: a.clamp(3, 1), t([0.0, 2.0, 4.0])),
    "clamp of integers by one bound (BC-073)": (lambda a: a.clamp(min=0), t([16777217, 2000000001, -5], I32)),
    "clamp of integers by a float": (lambda a: a.clamp(max=1.5), t([1, 2], I64)),
    "clamp by tensors": (lambda a, b: torch.clamp(a, min=b), t([[1.0, 2.0], [3.0, -4.0]]), t([2.0, -1.0])),
    "casts out of range (BC-093)": (lambda a: a.to(I8), t([200.0, -200.0, 300.0, NAN, INF])),
    "cast of -1 to u8 (BC-093)": (lambda a: a.to(U8), t([-1.0, 255.0, 256.0])),
    "any and all of u8 (BC-095)": (lambda a: (a.any(), a.all(), a.any(0)), t([0, 3], U8)),
    "any of zeros and of negatives (BC-095)": (lambda a: (a.any(), (a - 3).any()), t([0.0, 0.0])),
    "sums of halves do not stall (BC-065)": (lambda a: (a.sum(), a.mean()), torch.full((10000,), 0.5, dtype=BF16)),
    "running extremes with NaN and equals": (lambda a: torch.cummax(a, 0), t([1.0, 1.0, NAN, 3.0, NAN])),
    "running minimum": (lambda a: torch.cummin(a, 0), t([3, 3, 1, 2, 1], I64)),
    "median with NaN": (lambda a: torch.median(a, 1), t([[1.0, NAN, 3.0], [3.0, 1.0, 2.0]])),
    "nanmedian": (lambda a: torch.nanmedian(a, 1), t([[1.0, NAN, 3.0], [NAN, NAN, NAN]])),
    "median of an even number": (lambda a: a.median(), t([4, 1, 3, 2], I64)),
    "quantile along a dim (BC-017)": (
        lambda a: torch.quantile(a, 0.5, dim=0, interpolation="nearest"), t([[3.0, 1.0], [1.0, 2.0], [2.0, 9.0]]),
    ),
    "nanquantile": (lambda a: torch.nanquantile(a, 0.3, dim=1), t([[3.0, NAN, 1.0], [1.0, 2.0, 5.0]])),
    "sort puts NaN last, stably": (lambda a: torch.sort(a, stable=True), t([2.0, NAN, 1.0, 2.0, NAN, 0.0])),
    "sort descending, stably": (lambda a: torch.sort(a, descending=True, stable=True), t([2, 1, 2, 0], I64)),
    "mode": (lambda a: torch.mode(a), t([[1, 2, 2, 1], [3, 3, 1, 2]], I64)),
    "kthvalue": (lambda a: torch.kthvalue(a, 2), t([3.0, 1.0, 2.0])),
    "logsumexp of infinities": (lambda a: torch.logsumexp(a, 1), t([[-INF, -INF], [INF, 1.0], [1000.0, 1000.0]])),
    "variance of one element": (lambda a: (a.var(0), a.var(0, correction=0)), t([[1.0, 2.0]])),
    "norms": (
        lambda a: [torch.linalg.vector_norm(a, p) for p in (0, 1, 2, 3, INF, -INF)], t([3.0, -4.0, 0.0]),
    ),
    "rounding halves to even, with decimals": (
        lambda a: (a.round(), a.round(decimals=1), a.round(decimals=-1)), t([2.5, 3.5, 15.25]),
    ),
    "angle of reals": (torch.angle, t([-1.0, 0.0, 2.0, NAN])),
    "atan2 of zeros that come from a fold (BC-075)": (
        lambda a: torch.atan2((a.isnan() ^ a.isnan()).float(), (a.isnan() ^ a.isnan()).float()), t([1.0, NAN]),
    ),
    "frexp": (lambda a: torch.frexp(a), t([0.0, 1.0, -3.0, 0.5, 1024.0, INF])),
    "shifts by too much": (lambda a, b: (a << b, a >> b), t([1, -8, 5], I32), t([31, 40, 2], I32)),
    "nan_to_num": (lambda a: torch.nan_to_num(a, 1.0, neginf=-7.0), t([NAN, INF, -INF, 2.0])),
    "heaviside": (lambda a, b: torch.heaviside(a, b), t([-1.0, 0.0, 2.0]), t([0.5])),
    "two-sum error term (BC-071)": (lambda a, b: b - ((a + b) - a), t([1.0, 3.0], BF16), t([0.0123, 0.0777], BF16)),
}  # fmt: skip

INDEXING = {
    "index_add with equal targets (BC-001)": (
        lambda x, i, v: x.index_add(0, i, v), torch.zeros(2), t([0, 0, 1, 0], I64), t([1.0, 2.0, 3.0, 4.0]),
    ),
    "index_add in place (BC-001)": (
        lambda x, i, v: x.clone().index_add_(0, i, v), torch.zeros(2, 2), t([1, 1], I64), torch.ones(2, 2),
    ),
    "scatter_add with equal targets (BC-001)": (
        lambda x, i, v: x.scatter_add(0, i, v), torch.zeros(2), t([0, 0, 1, 0], I64), t([1.0, 2.0, 3.0, 4.0]),
    ),
    "index_put of one row for both (BC-003)": (
        lambda x, i, v: x.index_put((i,), v), torch.zeros(3, 2), t([0, 2], I64), t([5.0, 6.0]),
    ),
    "index_put of a scalar (BC-003)": (
        lambda x, i, j, v: x.index_put((i, j), v), torch.zeros(3, 3), t([0, 2], I64), t([1, 1], I64), t(7.0),
    ),
    "index_put by a mask": (
        lambda x, m, v: x.index_put((m,), v), torch.zeros(2, 3), t([[1, 0, 1], [0, 1, 0]], BOOL), t([1.0, 2.0, 3.0]),
    ),
    "index_put by a mask of rows, added": (
        lambda x, m, v: x.index_put((m,), v, accumulate=True), torch.ones(3, 2), t([1, 0, 1], BOOL), t([[1.0, 2.0], [3.0, 4.0]]),
    ),
    "scatter with an empty index (BC-005)": (
        lambda x, i, v: x.scatter(0, i, v), t([1.0, 2.0]), torch.zeros(0, dtype=I64), torch.zeros(0),
    ),
    "masked_scatter with a broadcast mask (BC-007)": (
        lambda x, m, v: x.masked_scatter(m, v),
        torch.zeros(1, 4, 2), t([[[0], [1], [0], [1]]], BOOL), torch.arange(4.0).reshape(2, 2),
    ),
    "embedding of no ids (BC-013)": (
        lambda i, w: torch.nn.functional.embedding(i, w), torch.zeros(2, 0, dtype=I64), torch.ones(5, 3),
    ),
    "negative indices": (lambda x, i: x[i], t([1.0, 2.0, 3.0]), t([-1, 0], I64)),
    "indices around a slice": (lambda x, i: x[i, :, i], torch.arange(27.0).reshape(3, 3, 3), t([0, 2], I64)),
    "take wraps": (torch.take, t([[1.0, 2.0], [3.0, 4.0]]), t([-1, 0], I64)),
    "gather from a scalar": (lambda x, i: torch.gather(x, 0, i), t(3.0), t(0, I64)),
    "index_select by a scalar": (lambda x, i: x.index_select(0, i), t([1.0, 2.0]), t(1, I64)),
    "take_along_dim broadcasts": (lambda x, i: torch.take_along_dim(x, i, 1), torch.arange(6.0).reshape(2, 3), t([[2]], I64)),
    "index_reduce without self": (
        lambda x, i, v: x.index_reduce(0, i, v, "mean", include_self=False), t([9.0, 9.0, 9.0]), t([0, 0], I64), t([1.0, 2.0]),
    ),
    "scatter_reduce prod": (lambda x, i, v: x.scatter_reduce(0, i, v, "prod"), t([2.0, 3.0]), t([0, 0], I64), t([5.0, 7.0])),
    "index_fill": (lambda x, i: x.index_fill(1, i, 9.0), torch.zeros(2, 3), t([0, 2], I64)),
    "put added": (lambda x, i, v: x.put(i, v, accumulate=True), torch.zeros(2, 2), t([3, 3, -4], I64), t([1.0, 2.0, 5.0])),
    "diagonal_scatter": (lambda x, v: torch.diagonal_scatter(x, v, 1), torch.zeros(3, 3), t([1.0, 2.0])),
    "a column updated by its own value (BC-011)": (
        lambda x: torch.select_scatter(x, x[:, 0] / 10, 1, 0), t([[1.0, 2.0], [3.0, 4.0]]),
    ),
    "searchsorted from either side": (
        lambda e, v: (torch.searchsorted(e, v), torch.searchsorted(e, v, right=True)),
        t([1.0, 2.0, 2.0, 5.0]), t([2.0, 0.0, NAN, 9.0]),
    ),
    "bucketize of integers": (lambda v, e: torch.bucketize(v, e, out_int32=True), t([3, 1], I64), t([1, 2, 3], I64)),
    "isin inverted": (lambda a, b: torch.isin(a, b, invert=True), t([1, 2, 3], I64), t([3, 1], I64)),
    "padding ids (BC-097)": (lambda i: i.unsqueeze(-1) == 1, t([[1, 2, 3], [0, 1, 1]], I64)),
    "gapped as_strided": (lambda x: torch.as_strided(x, (2, 2), (3, 1), 1), torch.arange(8.0)),
    "overlapping as_strided": (lambda x: torch.as_strided(x, (3, 2), (1, 1)), torch.arange(4.0)),
    "as_strided of a transposed tensor": (lambda x: torch.as_strided(x.t(), (4,), (1,)), torch.arange(4.0).reshape(2, 2)),
    "empty tensors (BC-067)": (
        lambda x, w: torch.where(x > 0, x, -x) @ w, torch.zeros(1, 0, 4), torch.ones(4, 2),
    ),
}  # fmt: skip

LINEAR = {
    "inverse, determinant and solution": (
        lambda a, b: (torch.linalg.inv(a), torch.linalg.det(a), torch.linalg.solve(a, b)),
        t([[0.0, 2.0], [3.0, 1.0]]), t([1.0, 2.0]),
    ),
    "sign and logarithm of a determinant": (torch.linalg.slogdet, t([[[0.0, 2.0], [3.0, 1.0]], [[1.0, 2.0], [2.0, 4.5]]])),
    "factors of a wide matrix": (torch.linalg.lu, t([[0.0, 2.0, 1.0], [3.0, 1.0, 5.0]])),
    "exponential of a large matrix": (torch.linalg.matrix_exp, t([[0.0, 6.0], [-6.0, 1.0]])),
    "distances": (lambda a, b: torch.cdist(a, b), t([[0.0, 0.0], [3.0, 4.0]]), t([[0.0, 1.0], [1000.0, 1000.5]])),
    "transform over four dims": (lambda a: torch.fft.rfftn(a), torch.arange(48.0).reshape(2, 3, 2, 4)),
    "inverse transform of odd length, normed": (
        lambda a: torch.fft.irfft(torch.fft.rfft(a), n=5, norm="ortho"), t([1.0, 2.0, 3.0, 4.0, 5.0]),
    ),
    "real part of a transform (BC-109)": (lambda a: torch.fft.fft2(a).real, torch.arange(6.0).reshape(2, 3)),
    "signal of a spectrogram": (
        lambda a: torch.istft(a, 4, 2, win_length=3, window=torch.tensor([0.5, 1.0, 0.25]), length=6),
        torch.complex(torch.arange(12.0).reshape(3, 4), torch.arange(12.0).reshape(3, 4).sin()),
    ),
    "running logarithm of complex sums goes on beyond pi": (
        lambda a: a.logcumsumexp(0), t([1 + 3j, 1 + 3.1j, 9 + 4j, complex(-INF, 2), complex(INF, 1), complex(INF, 0), NAN], C64),
    ),
    "softmax of what a mask leaves": (
        lambda x, rows, keys, q: (
            *(torch._masked_softmax(x, m, d, 2) for m, d in ((keys, 1), (keys, 0), (keys, None))),
            torch._masked_softmax(q, keys, 3, 0), torch._masked_softmax(q, rows, 3, 1),
        ),
        t([[1.0, 2.0, 3.0], [-INF, -INF, -INF], [1.0, NAN, 2.0]]), t([[True, False, False], [True, True, True]], BOOL),
        t([[True, False, False], [True, False, True], [True, True, False]], BOOL), torch.arange(36.0).sin().reshape(2, 2, 3, 3),
    ),
    "polar": (torch.polar, t([1.0, 2.0]), t([0.5, -3.0])),
    "einsum": (lambda a, b: torch.einsum("ij,kj->ik", a, b), torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)),
}  # fmt: skip

CASES = {
    f"{kind}: {name}": case
    for kind, table in (
        ("promotion", PROMOTION), ("division", DIVISION), ("numbers", NUMBERS), ("indexing", INDEXING), ("linear", LINEAR),
    )
    for name, case in table.items()
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_rule(name):
    check(*CASES[name])


REFUSED = {
    "a size that depends on the data, in a branch": (
        lambda x: torch.cond(x.sum() > 0, lambda x: x[x > 0].sum(), lambda x: x.sum(), (x,)), (t([1.0, 0.0]),),
        "aten.index.Tensor: a size that depends on the data, inside a region",
    ),
    "writes to one place twice (BC-031)": (
        lambda x, v: torch.as_strided_scatter(x, v, (3, 2), (1, 1)), (torch.zeros(4), torch.ones(3, 2)), "order of the writes",
    ),
    "an operation without a rule": (
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), (torch.ones(2, 2),), "aten.quantize_per_tensor.default",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_names_the_operation_and_the_line(name):
    function, tensors, expected = REFUSED[name]

    def user(*given: torch.Tensor) -> Any:
        return function(*given)

    with pytest.raises(IRError, match=expected) as caught:
        neuron_ir.from_torch(user, tensors)
    assert "test_rules.py" in str(caught.value.diagnostics[0].loc)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", [{}, {"affine": True}, {"track_running_stats": True}])
def test_instance_norm(options: dict[str, bool], training: bool) -> None:
    norm = torch.nn.InstanceNorm1d(3, **options).train(training)
    x = torch.linspace(-2, 5, 30).reshape(2, 3, 5) ** 2
    if norm.running_mean is not None:
        norm.running_mean.copy_(t([1.0, 2.0, 3.0]))
    program = neuron_ir.compile(neuron_ir.from_torch(norm, (x,)))
    torch.testing.assert_close(program(x), norm(x), rtol=1e-5, atol=1e-5)
    for name, value in program.state.items():
        torch.testing.assert_close(torch.from_numpy(value), norm.get_buffer(name))
