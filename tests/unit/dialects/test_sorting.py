"""Sorting and top_k against NumPy and torch."""

import ml_dtypes
import numpy as np
import pytest
import torch

from neuron_ir.builder import create
from neuron_ir.core import Block
from neuron_ir.diagnostics import IRError
from neuron_ir.dialects.neuron.sorting import Key, order_of
from neuron_ir.dtypes import F32, I32
from neuron_ir.meaning import compute
from neuron_ir.types import tensor

from .judge import program, symbolic

RNG = np.random.RandomState(0)
NAN, INF = np.nan, np.inf
NEGATIVE_NAN = np.uint32(0xFFC00000).view(np.float32)
ODD = np.array([[1, NAN, NEGATIVE_NAN, 3, -0.0, 0.0, INF, -INF, 3, -1]], np.float32)


def same(a, b):
    """Equal values, -0 apart from 0, NaNs equal."""
    np.testing.assert_array_equal(a, b)
    if np.issubdtype(np.asarray(a).dtype, np.floating):
        np.testing.assert_array_equal(np.signbit(a)[~np.isnan(a)], np.signbit(b)[~np.isnan(b)])


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_stable_order_of_floats_is_torchs(descending, dtype):
    x = ODD.astype(dtype)
    values, indices = torch.sort(torch.from_numpy(ODD.astype(np.float64)), stable=True, descending=descending)
    same(compute("neuron.argsort", x, descending=descending), indices.numpy())
    same(compute("neuron.sort_by_key", x, descending=descending).astype(np.float64), values.numpy())


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, bool])
def test_stable_order_of_integers(descending, dtype):
    edges = [0, 1] if dtype is bool else [np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 5, 5, 7, np.iinfo(dtype).max]
    x = np.array(edges, dtype)
    want = np.argsort(x, kind="stable") if not descending else x.size - 1 - np.argsort(x[::-1], kind="stable")[::-1]
    same(compute("neuron.argsort", x, descending=descending, out=tensor([x.size], "i32")), want)


def test_several_keys_and_carried_operands():
    a, b = RNG.randint(0, 3, (2, 50)).astype(np.uint8), RNG.randint(0, 3, (2, 50)).astype(np.float32)
    c = np.arange(100).reshape(2, 50)
    got = compute("neuron.sort_by_key", a, b, c, num_keys=2)
    for row in range(2):
        order = np.lexsort((b[row], a[row]))
        for g, x in zip(got, (a, b, c), strict=True):
            same(g[row], x[row][order])


def less(b, x, y):
    return b.compare(x, y, direction="LT")


def cleaned(b, value):
    zero, nan = b.const(0.0, F32), b.const(NAN, F32)
    flat = b.select(b.compare(value, zero, direction="EQ"), zero, value)
    return b.select(b.compare(value, value, direction="NE"), nan, flat)


def jax_comparator(b, x, y, p, q):
    """What ``lax.sort((f32, i32), num_keys=2)`` emits."""
    x, y, total = cleaned(b, x), cleaned(b, y), {"compare_type": "TOTALORDER"}
    tie = b.and_(b.compare(x, y, direction="EQ", **total), less(b, p, q))
    return b.or_(b.compare(x, y, direction="LT", **total), tie)


def by_distance(b, x, y, p, q):
    """No order by keys: nearer to 4 comes first."""
    four = b.const(4, I32)
    near = [b.multiply(d, d) for d in (b.subtract(p, four), b.subtract(q, four))]
    return less(b, *near)


def half_cleaned(b, x, y, p, q):
    zero = b.const(0.0, F32)
    x, y = (b.select(b.compare(v, zero, direction="EQ"), zero, v) for v in (x, y))
    return b.compare(x, y, direction="LT", compare_type="TOTALORDER")


@pytest.mark.parametrize(
    ("comparator", "keys"),
    [
        (jax_comparator, [Key(0, False, False), Key(1, False, False)]),
        (lambda b, x, y, p, q: less(b, p, q), [Key(1, False, False)]),
        (lambda b, x, y, p, q: less(b, q, p), [Key(1, True, False)]),
        (lambda b, x, y, p, q: b.compare(x, y, direction="GT"), [Key(0, True, False)]),
        (lambda b, x, y, p, q: b.compare(x, y, direction="LT", compare_type="TOTALORDER"), [Key(0, False, True)]),
        (lambda b, x, y, p, q: b.compare(p, q, direction="LE"), None),
        (lambda b, x, y, p, q: less(b, x, x), None),
        (lambda b, x, y, p, q: b.and_(less(b, x, y), less(b, p, q)), None),
        (by_distance, None),
        (half_cleaned, None),
    ],
)
def test_what_order_a_comparator_stands_for(comparator, keys):
    block = Block([tensor([4], "f32"), tensor([4], "i32")])
    assert order_of(create("neuron.sort", block.args, None, {"comparator": comparator}).regions[0]) == keys


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64, 100])
def test_any_comparator_sorts_stably(n):
    x, at = RNG.randint(0, 9, (3, n)).astype(np.int32), np.arange(3.0 * n, dtype=np.float32).reshape(3, n)
    order = np.argsort((x - 4) ** 2, axis=1, kind="stable")
    got = compute("neuron.sort", at, x, dimension=1, comparator=by_distance)
    same(got[1], np.take_along_axis(x, order, 1))
    same(got[0], np.take_along_axis(at, order, 1))


def test_sort_along_the_first_dim_and_by_total_order():
    x = RNG.randint(0, 5, (6, 4)).astype(np.int32)
    got = compute("neuron.sort", x, dimension=0, comparator=less)
    same(got, np.sort(x, 0))
    total = compute("neuron.sort", ODD, comparator=lambda b, x, y: b.compare(x, y, direction="LT", compare_type="TOTALORDER"))[0]
    assert np.isnan(total[[0, -1]]).all() and np.signbit(total[0]) and not np.signbit(total[-1])
    same(total[1:-1], np.float32([-INF, -1, -0.0, 0.0, 1, 3, 3, INF]))


def test_nan_safe_comparator_of_floats():
    got = compute("neuron.sort", ODD, np.zeros(ODD.shape, np.int32), comparator=jax_comparator)[0]
    same(got, np.sort(ODD))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_top_k_at_the_edges(largest, dtype):
    """Values as torch's, which promises nothing about ties; here the first of equals comes first."""
    x = ODD.astype(dtype)
    values, indices = compute("neuron.top_k", x, k=10, largest=largest)
    np.testing.assert_array_equal(
        values.astype(np.float64), torch.topk(torch.from_numpy(ODD.astype(np.float64)), 10, largest=largest)[0]
    )
    np.testing.assert_array_equal(indices, torch.sort(torch.from_numpy(ODD), stable=True, descending=largest)[1])


@pytest.mark.parametrize("largest", [True, False])
def test_top_k_of_many(largest):
    x = RNG.randn(2, 50257).astype(np.float32)
    x[:, ::1000], x[:, 5::900] = NAN, NEGATIVE_NAN
    got = compute("neuron.top_k", x, k=150, largest=largest)[0]
    np.testing.assert_array_equal(got, torch.topk(torch.from_numpy(x), 150, largest=largest)[0])


def test_top_k_along_another_axis_and_types():
    x = RNG.permutation(24).reshape(4, 6)
    values, indices = compute("neuron.top_k", x, k=2, axis=0, out=(tensor([2, 6], "i64"), tensor([2, 6], "i32")))
    np.testing.assert_array_equal(values, torch.topk(torch.from_numpy(x), 2, 0)[0])
    assert indices.dtype == np.int32
    np.testing.assert_array_equal(np.take_along_axis(x, indices, 0), values)
    assert compute("neuron.top_k", np.array([False, True, True]), k=2)[1].tolist() == [1, 2]
    assert compute("neuron.top_k", np.uint8([200, 3, 255]), k=1, largest=False)[0].tolist() == [3]
    assert compute("neuron.top_k", np.zeros((2, 0)), k=0)[0].shape == (2, 0)


@pytest.mark.parametrize(
    ("name", "operands", "fields", "message"),
    [
        ("top_k", [ODD], {"k": 11}, "k = 11 elements of 10 along axis 1 of tensor<1x10xf32>"),
        ("top_k", [ODD], {"k": -1}, "k = -1 elements"),
        ("top_k", [ODD], {"k": 1, "out": (tensor([1, 1], "f64"), tensor([1, 1], "i64"))}, "the operand's f32, not f64"),
        ("sort_by_key", [np.ones(())], {}, "axis -1 does not exist in a tensor of rank 0"),
        ("sort_by_key", [ODD], {"num_keys": 2}, r"num_keys = 2 of 1 operand"),
        ("sort_by_key", [np.complex64([1])], {}, "complex numbers have no order"),
        ("sort_by_key", [ODD, ODD[0]], {}, "operands of one shape are needed"),
        ("sort_by_key", [], {}, "takes at least 1 operand"),
        ("argsort", [ODD], {"out": tensor([1, 10], "f32")}, "indices are integers, not f32"),
    ],
)
def test_invalid_sorts(name, operands, fields, message):
    with pytest.raises(IRError, match=message):
        compute(f"neuron.{name}", *operands, **fields)


def test_sorts_with_symbolic_sizes():
    results = program("neuron.top_k", [symbolic(["B", "S"])], k=5).main.result_types
    assert [str(t) for t in results] == ["tensor<Bx5xf32>", "tensor<Bx5xi64>"]
    assert str(program("neuron.argsort", [symbolic(["B", None])]).main.result_types[0]) == "tensor<Bx?xi64>"
