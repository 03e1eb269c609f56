"""Gather and scatter against their definition written out in Python loops, and indexing against NumPy and torch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from neuron_ir.builder import Builder
from neuron_ir.core import Block
from neuron_ir.diagnostics import IRError
from neuron_ir.dims import symbol
from neuron_ir.dtypes import F32, I64
from neuron_ir.meaning import compute
from neuron_ir.types import TensorType, tensor

X = np.arange(60.0).reshape(3, 4, 5)
RANDOM = np.random.RandomState(0)


def index_vector(indices, at, vector_dim):
    """The index vector at one place of the batch."""
    if vector_dim == indices.ndim:
        return [int(indices[at])]
    return [int(v) for v in indices[(*at[:vector_dim], slice(None), *at[vector_dim:])]]


def gather(x, indices, *, offset_dims=(), collapsed_slice_dims=(), operand_batching_dims=(), start_indices_batching_dims=(),
           start_index_map, index_vector_dim, slice_sizes):  # fmt: skip
    """StableHLO's definition, one element at a time."""
    batch = [d for i, d in enumerate(indices.shape) if i != index_vector_dim]
    kept = [i for i in range(x.ndim) if i not in (*collapsed_slice_dims, *operand_batching_dims)]
    rank = len(batch) + len(kept)
    sizes, window = iter(batch), iter(slice_sizes[i] for i in kept)
    shape = [next(window) if i in offset_dims else next(sizes) for i in range(rank)]
    out = np.zeros(shape, x.dtype)
    index_dims = [i for i in range(indices.ndim) if i != index_vector_dim]
    for place in itertools.product(*map(range, shape)):
        at = tuple(p for i, p in enumerate(place) if i not in offset_dims)
        source = [0] * x.ndim
        for d, v in zip(start_index_map, index_vector(indices, at, index_vector_dim), strict=True):
            source[d] = min(max(v, 0), x.shape[d] - slice_sizes[d])
        for d, b in zip(operand_batching_dims, start_indices_batching_dims, strict=True):
            source[d] = at[index_dims.index(b)]
        for d, p in zip(kept, [p for i, p in enumerate(place) if i in offset_dims], strict=True):
            source[d] += p
        out[place] = x[tuple(source)]
    return out


GATHERS = {
    "rows": (X, RANDOM.randint(-2, 5, (2, 3)), {"offset_dims": (2, 3), "collapsed_slice_dims": (0,), "start_index_map": (0,),
                                                    "index_vector_dim": 2, "slice_sizes": (1, 4, 5)}),
    "points": (X, RANDOM.randint(-2, 7, (6, 3)), {"collapsed_slice_dims": (0, 1, 2), "start_index_map": (2, 0, 1),
               "index_vector_dim": 1,                                                   "slice_sizes": (1, 1, 1)}),
    "windows": (X, RANDOM.randint(-2, 7, (2, 4)), {"offset_dims": (0, 2), "collapsed_slice_dims": (1,), "start_index_map": (0, 2),
                                                       "index_vector_dim": 0, "slice_sizes": (2, 1, 3)}),
    "batched": (X, RANDOM.randint(-2, 7, (2, 4, 3)), {"offset_dims": (1,), "operand_batching_dims": (0, 1), "index_vector_dim": 3,
                "start_indices_batching_dims": (2, 1), "start_index_map": (2,), "slice_sizes": (1, 1, 2)}),
    "batched, vector first": (X, RANDOM.randint(-2, 7, (1, 3, 2)), {"collapsed_slice_dims": (1,), "operand_batching_dims": (0,),
              "offset_dims": (2,),
              "start_indices_batching_dims": (1,), "start_index_map": (1,), "index_vector_dim": 0, "slice_sizes": (1, 1, 5)}),
    "no index": (X, np.zeros((2, 0), int), {"offset_dims": (1, 2, 3), "start_index_map": (), "index_vector_dim": 1,
                 "slice_sizes": (2, 3, 4)}),
}  # fmt: skip


@pytest.mark.parametrize("name", GATHERS)
def test_gather(name):
    x, indices, dims = GATHERS[name]
    expected = gather(x, indices, **dims)
    for index_type in (np.int64, np.int8):
        np.testing.assert_array_equal(compute("neuron.gather", x, indices.astype(index_type), **dims), expected)
    sizes = np.array(dims.pop("slice_sizes"))
    got = compute("neuron.dynamic_gather", x, indices, sizes, out=tensor(expected.shape, "f64"), **dims)
    dims["slice_sizes"] = tuple(sizes.tolist())
    np.testing.assert_array_equal(got, expected)


ROWS = {"offset_dims": (1,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "index_vector_dim": 1}


def rows(x, indices, policy):
    return compute("neuron.gather", x, indices, slice_sizes=(1, x.shape[1]), policy=policy, **ROWS).tolist()


def test_gather_policies():
    x = np.float32([[1, 2], [3, 4], [5, 6]])
    i = np.int32([-4, -1, 0, 2, 3])
    assert rows(x, i, "clamp") == [[1, 2], [1, 2], [1, 2], [5, 6], [5, 6]]
    assert rows(x, i, "wrap") == [[1, 2], [5, 6], [1, 2], [5, 6], [5, 6]]
    assert rows(x, i, "drop") == [[0, 0], [0, 0], [1, 2], [5, 6], [0, 0]]
    assert rows(x, i, "wrap_drop") == [[0, 0], [5, 6], [1, 2], [5, 6], [0, 0]]
    assert rows(x, i[1:4], "wrap_raise") == [[5, 6], [1, 2], [5, 6]]
    for policy, bad in (("raise", [-1]), ("raise", [3]), ("wrap_raise", [-4]), ("wrap_raise", [3])):
        with pytest.raises(IRError, match=r"an index lies outside 0\.\.2"):
            rows(x, np.int32(bad), policy)


def test_an_index_out_of_range_that_nobody_can_stop_shows_in_the_values():
    """Under a trace the program cannot stop: floats become NaN, integers the end of their range."""
    import jax

    for x, loud in ((np.float32([[1.0]]), np.nan), (np.int16([[1]]), -(2**15)), (np.uint8([[1]]), 255)):
        got = jax.jit(lambda i, x=x: compute_traced(x, i))(np.int32([5]))
        np.testing.assert_array_equal(got, np.asarray([[loud]], x.dtype))


def compute_traced(x, indices):
    from neuron_ir.builder import create
    from neuron_ir.dtypes import dtype_of_numpy
    from neuron_ir.meaning import Frame, default_meaning

    args = Block([TensorType(x.shape, dtype_of_numpy(x.dtype)), tensor(indices.shape, "i32")]).args
    op = create("neuron.gather", args, None, {**ROWS, "slice_sizes": (1, 1), "policy": "raise"})
    return Frame(default_meaning(), None, {}).op(op, [x, indices])[0]


def test_indices_are_widened_before_use():
    x = np.arange(300.0)
    points = {"collapsed_slice_dims": (0,), "start_index_map": (0,), "index_vector_dim": 1, "slice_sizes": (1,)}
    assert compute("neuron.gather", x, np.uint8([200, 255]), **points).tolist() == [200, 255]
    assert compute("neuron.gather", x, np.int8([-1, 127]), policy="wrap", **points).tolist() == [299, 127]
    assert compute("neuron.gather", x, np.uint64([2**64 - 1, 2**63]), **points).tolist() == [299, 299]
    assert compute("neuron.gather", x, np.uint32([2**32 - 1]), **points).tolist() == [299]
    assert compute("neuron.gather", x, np.int64([2**32 + 1, -(2**40)]), **points).tolist() == [299, 0]


# --- scatter ----------------------------------------------------------------------------------------------------------


def scatter(inputs, indices, updates, body, *, update_window_dims=(), inserted_window_dims=(), input_batching_dims=(),
            scatter_indices_batching_dims=(), scatter_dims_to_operand_dims, index_vector_dim):  # fmt: skip
    """StableHLO's definition, one element at a time, windows that reach outside left out whole."""
    outs = [x.copy() for x in inputs]
    x, u = inputs[0], updates[0]
    gone = (*inserted_window_dims, *input_batching_dims)
    kept = [i for i in range(x.ndim) if i not in gone]
    window = dict(zip(kept, [u.shape[d] for d in update_window_dims], strict=True))
    index_dims = [i for i in range(indices.ndim) if i != index_vector_dim]
    for place in itertools.product(*map(range, u.shape)):
        at = tuple(p for i, p in enumerate(place) if i not in update_window_dims)
        start = [0] * x.ndim
        for d, v in zip(scatter_dims_to_operand_dims, index_vector(indices, at, index_vector_dim), strict=True):
            start[d] = v
        for d, b in zip(input_batching_dims, scatter_indices_batching_dims, strict=True):
            start[d] = at[index_dims.index(b)]
        if any(not 0 <= s <= x.shape[i] - window.get(i, 1) for i, s in enumerate(start)):
            continue
        for d, p in zip(kept, [p for i, p in enumerate(place) if i in update_window_dims], strict=True):
            start[d] += p
        target = tuple(start)
        new = body(*[o[target] for o in outs], *[v[place] for v in updates])
        for o, v in zip(outs, new, strict=True):
            o[target] = v
    return outs


SCATTERS = {
    "rows": (X, RANDOM.randint(-1, 4, (3, 2)), (3, 2, 4, 5), {"update_window_dims": (2, 3), "inserted_window_dims": (0,),
             "scatter_dims_to_operand_dims": (0,), "index_vector_dim": 2}),
    "points": (X, RANDOM.randint(-1, 4, (9, 3)), (9,), {"inserted_window_dims": (0, 1, 2),
               "scatter_dims_to_operand_dims": (2, 0, 1),
               "index_vector_dim": 1}),
    "windows": (X, RANDOM.randint(-1, 4, (2, 4)), (2, 4, 3), {"update_window_dims": (0, 2), "inserted_window_dims": (1,),
                "scatter_dims_to_operand_dims": (0, 2), "index_vector_dim": 0}),
    "batched": (X, RANDOM.randint(-1, 5, (2, 4, 3)), (2, 2, 4, 3), {"update_window_dims": (1,), "input_batching_dims": (0, 1),
                "index_vector_dim": 3, "scatter_indices_batching_dims": (2, 1), "scatter_dims_to_operand_dims": (2,)}),
}  # fmt: skip
BODIES = {
    "replace": (lambda b, old, new: new, lambda old, new: (new,)),
    "add": (lambda b, old, new: b.add(old, new), lambda old, new: (old + new,)),
    "add, swapped": (lambda b, old, new: b.add(new, old), lambda old, new: (old + new,)),
    "multiply": (lambda b, old, new: b.multiply(old, new), lambda old, new: (old * new,)),
    "maximum": (lambda b, old, new: b.maximum(old, new), lambda old, new: (max(old, new),)),
    "subtract": (lambda b, old, new: b.subtract(old, new), lambda old, new: (old - new,)),
    "keep": (lambda b, old, new: old, lambda old, new: (old,)),
    "double and add": (lambda b, old, new: b.add(b.add(old, old), new), lambda old, new: (2 * old + new,)),
    "add to itself": (lambda b, old, new: b.add(new, new), lambda old, new: (2 * new,)),
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("name", SCATTERS)
def test_scatter(name, body):
    x, indices, shape, dims = SCATTERS[name]
    updates = RANDOM.randint(-3, 4, shape).astype(float)
    ours, rule = BODIES[body]
    (expected,) = scatter([x], indices, [updates], rule, **dims)
    got = compute("neuron.scatter", x, indices, updates, update_computation=ours, **dims)
    np.testing.assert_array_equal(got, expected)


def test_scatter_of_two():
    x, y = np.float32([1, 2, 3]), np.int32([1, 2, 3])
    i, u, v = np.int8([[0], [0], [5], [2]]), np.float32([10, 20, 30, 40]), np.int32([9, 8, 7, 6])
    dims = {"inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,), "index_vector_dim": 1}
    got = compute("neuron.scatter", x, y, i, u, v, update_computation=lambda b, p, q, r, s: (b.add(p, r), b.minimum(q, s)), **dims)
    expected = scatter([x, y], i, [u, v], lambda p, q, r, s: (p + r, min(q, s)), **dims)
    for a, e in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, e)
        assert a.dtype == e.dtype


def test_scatter_sees_values_around_it():
    block = Block([tensor([3], "f32"), tensor([2], "i32"), tensor([2], "f32"), tensor([], "f32")])
    b = Builder(block)
    x, i, u, scale = block.args
    dims = {"inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,), "index_vector_dim": 1}
    y = b.scatter(x, i, u, update_computation=lambda b, old, new: b.add(old, b.multiply(new, scale)), **dims)
    b.make("neuron.yield", y)
    from neuron_ir.meaning import Frame, default_meaning, x64

    with x64():
        values = [np.float32([1, 2, 3]), np.int32([2, 2]), np.float32([1, 10]), np.float32(3)]
        (got,) = Frame(default_meaning(), None, {}).block(block, values)
    assert np.asarray(got).tolist() == [1, 2, 36]


def points(x, indices, updates, policy, combine=lambda b, old, new: b.add(old, new)):
    dims = {"inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,), "index_vector_dim": 1}
    return compute("neuron.scatter", x, indices, updates, policy=policy, update_computation=combine, **dims).tolist()


def test_scatter_policies():
    x, i, u = np.zeros(3), np.int32([-4, -1, 1, 3]), np.float64([1, 2, 4, 8])
    for combine in (lambda b, old, new: b.add(old, new), lambda b, old, new: b.add(b.add(old, new), b.subtract(new, new))):
        assert points(x, i, u, "drop", combine) == [0, 4, 0]
        assert points(x, i, u, "clamp", combine) == [3, 4, 8]
        assert points(x, i, u, "wrap", combine) == [1, 4, 10]
        assert points(x, i, u, "wrap_drop", combine) == [0, 4, 2]
        assert points(x, i[1:3], u[1:3], "wrap_raise", combine) == [0, 4, 2]
    for policy in ("raise", "wrap_raise"):
        with pytest.raises(IRError, match=r"an index lies outside 0\.\.2"):
            points(x, i, u, policy)
    assert points(x, np.uint8([255, 2]), u[:2], "drop") == [0, 0, 2]


def test_scatter_of_nothing_and_of_bool():
    assert points(np.ones(3), np.zeros(0, int), np.zeros(0), "drop") == [1, 1, 1]
    assert points(np.array([False, True, True]), np.array([0, 1]), np.array([True, False]), "drop") == [True, True, True]
    got = points(
        np.array([False, True, True]), np.array([0, 1]), np.array([True, False]), "drop", lambda b, old, new: b.and_(old, new)
    )
    assert got == [False, False, True]


# --- indexing as programs write it ------------------------------------------------------------------------------------


def torch_of(a):
    return torch.from_numpy(np.asarray(a))


def test_take():
    i = np.array([[2, 0], [1, 1]])
    for axis in (0, 1, 2, -1):
        np.testing.assert_array_equal(compute("neuron.take", X, i, axis=axis), np.take(X, i, axis))
    np.testing.assert_array_equal(compute("neuron.take", X, np.int64(1), axis=1), X[:, 1])
    with pytest.raises(IRError, match=r"outside 0\.\.2"):
        compute("neuron.take", X, np.array([3]), axis=0)


def test_take_along_axis_is_torchs_gather():
    i = RANDOM.randint(0, 3, (2, 3, 5))
    for axis in (0, 1, -1):
        got = compute("neuron.take_along_axis", X, i, axis=axis)
        np.testing.assert_array_equal(got, torch.gather(torch_of(X), axis, torch_of(i)).numpy())
    np.testing.assert_array_equal(compute("neuron.take_along_axis", X[0, 0], np.array([-1]), axis=0, policy="wrap"), [4])


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("mode", ["none", "add", "mul", "amin", "amax", "mean"])
@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_scatter_elements_is_torchs_scatter_reduce(dtype, mode, include_self):
    x = X[0].astype(dtype)
    i = np.array([[0, 2, 0, 4], [1, 1, 1, 1], [3, 4, 4, 0]])
    u = (np.arange(20).reshape(4, 5) - 7).astype(dtype)
    got = compute("neuron.scatter_elements", x, i, u, axis=1, mode=mode, include_self=include_self)
    if mode == "none":
        i_unique = np.array([[0, 2, 1, 4], [1, 0, 3, 2], [3, 4, 2, 0]])
        got = compute("neuron.scatter_elements", x, i_unique, u, axis=1)
        expected = torch_of(x).scatter(1, torch_of(i_unique), torch_of(u))
    else:
        name = {"add": "sum", "mul": "prod"}.get(mode, mode)
        expected = torch_of(x).scatter_reduce(1, torch_of(i), torch_of(u), name, include_self=include_self)
    np.testing.assert_allclose(got, expected.numpy(), 1e-15)


def test_scatter_elements_by_hand():
    assert compute(
        "neuron.scatter_elements", np.zeros(2), np.array([0, 0, 1, 0]), np.float64([1, 2, 3, 4]), axis=0, mode="add"
    ).tolist() == [7, 3]
    assert compute("neuron.scatter_elements", np.ones(2), np.zeros(0, int), np.zeros(0), axis=0).tolist() == [1, 1]
    got = compute("neuron.scatter_elements", np.float32([1, 2]), np.array([0, 1]), np.float32([np.nan, 5]), axis=0, mode="amax")
    np.testing.assert_array_equal(got, [np.nan, 5])


INDEXINGS = [
    ((0, 1), (np.array([0, -1]), np.array([[1], [2]])), lambda x, i, k: x[i, k]),
    ((0, 2), (np.array([0, 1, 1]), np.array([1, 2, 3])), lambda x, i, k: x[i, :, k]),
    ((1, 2), (np.array([0, 3]), np.int64(4)), lambda x, i, k: x[:, i, k]),
    ((1,), (np.array([[0, -4]], np.int8),), lambda x, i: x[:, i]),
    ((0, 1, 2), (np.array([2]), np.array([3]), np.array([-5])), lambda x, i, k, m: x[i, k, m]),
]


@pytest.mark.parametrize(("dims", "indices", "rule"), INDEXINGS)
def test_index_is_numpys(dims, indices, rule):
    np.testing.assert_array_equal(compute("neuron.index", X, *indices, dims=dims), rule(X, *indices))


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(("dims", "indices", "rule"), INDEXINGS)
def test_index_put_writes_where_index_reads(dims, indices, rule, accumulate):
    where = tuple(torch_of(i) for i in indices)
    key = [slice(None)] * 3
    for d, i in zip(dims, where, strict=True):
        key[d] = i.long()
    shape = rule(X, *indices).shape
    for values in (np.float64(7), np.arange(float(shape[-1])), np.arange(float(np.prod(shape))).reshape(shape)):
        expected = torch_of(X.copy())
        if accumulate:
            np.add.at(expected.numpy(), tuple(k if isinstance(k, slice) else k.numpy() for k in key), values)
        else:
            expected[tuple(key)] = torch_of(values)
        got = compute("neuron.index_put", X, values, *indices, dims=dims, accumulate=accumulate)
        np.testing.assert_array_equal(got, expected.numpy())


def test_index_put_of_rows_with_values_that_broadcast():
    assert compute("neuron.index_put", np.zeros((3, 2)), np.array([5.0, 6]), np.array([0, 2]), dims=[0]).tolist() == [
        [5, 6],
        [0, 0],
        [5, 6],
    ]
    got = compute("neuron.index_put", np.zeros((3, 3)), np.float64(7), np.array([0, 2]), np.array([1, 1]), dims=[0, 1])
    assert got.tolist() == [[0, 7, 0], [0, 0, 0], [0, 7, 0]]


def test_one_hot():
    i = np.array([[0, 2], [1, 0]])
    np.testing.assert_array_equal(compute("neuron.one_hot", i, size=3), torch.nn.functional.one_hot(torch_of(i), 3).numpy())
    got = compute("neuron.one_hot", i, size=3, axis=0, dtype=F32)
    np.testing.assert_array_equal(got, np.moveaxis(np.eye(3, dtype=np.float32)[i], -1, 0))
    assert compute("neuron.one_hot", np.int8([-1, 5, 1]), size=2).tolist() == [[0, 0], [0, 0], [0, 1]]
    assert compute("neuron.one_hot", np.uint8([200]), size=300).argmax() == 200
    with pytest.raises(IRError, match=r"an index lies outside 0\.\.1"):
        compute("neuron.one_hot", np.int8([-1, 5, 1]), size=2, policy="raise")


def test_embedding():
    table = np.arange(15.0).reshape(5, 3)
    i = np.array([[4, 0], [1, 1]])
    np.testing.assert_array_equal(compute("neuron.embedding", table, i, padding_idx=0), table[i])
    assert compute("neuron.embedding", table, np.zeros((2, 0), int)).shape == (2, 0, 3)
    assert compute("neuron.embedding", table[:0], np.zeros((2, 0), int)).shape == (2, 0, 3)
    for bad in (-1, 5):
        with pytest.raises(IRError, match=r"an index lies outside 0\.\.4"):
            compute("neuron.embedding", table, np.array([bad]))


def test_symbolic_sizes():
    s = symbol("S")
    block = Block([TensorType((s, 4), F32), TensorType((s, 2), I64), TensorType((7,), I64)])
    b = Builder(block)
    x, i, k = block.args
    assert b.take(x, i, axis=0).shape == (s, 2, 4)
    assert b.take_along_axis(x, i, axis=1).shape == (s, 2)
    assert b.embedding(x, k).shape == (7, 4)
    assert b.index(x, k, dims=[1]).shape == (s, 7)
    assert b.one_hot(k, size=s).shape == (7, s)
    assert b.gather(x, k, slice_sizes=(1, 4), **ROWS).shape == (7, 4)


ONE = np.zeros((3, 4), np.float32)
I2 = np.array([0, 1])
INVALID = [
    ("gather", [ONE, I2], {**ROWS, "slice_sizes": (1, 5)}, "a slice of size 5 does not fit dim 1 of size 4"),
    ("gather", [ONE, I2], {**ROWS, "slice_sizes": (2, 4)}, "dim 0 is collapsed or batched, so its slice size must be 1, not 2"),
    ("gather", [ONE, I2], {**ROWS, "slice_sizes": (1, 4), "start_index_map": (0, 1)}, "does not fit index vectors of length 1"),
    ("gather", [ONE, I2], {**ROWS, "slice_sizes": (1, 4), "index_vector_dim": 2}, "index_vector_dim 2 does not exist"),
    ("gather", [ONE, I2], {**ROWS, "slice_sizes": (1, 4), "offset_dims": ()}, "offset_dims [] must name 1 dims"),
    ("gather", [ONE, I2], {**ROWS, "slice_sizes": (1, 4), "offset_dims": (2,)}, "2 is no dim of a tensor of rank 2"),
    ("gather", [ONE, I2], {**ROWS, "slice_sizes": (1, 4), "operand_batching_dims": (1,)}, "do not pair up"),
    ("gather", [ONE, I2], {**ROWS, "slice_sizes": (1, 4), "policy": "ignore"}, "policy must be one of 'clamp'"),
    ("take", [ONE, I2], {"axis": 2}, "axis 2 does not exist in a tensor of rank 2"),
    ("take_along_axis", [ONE, I2], {"axis": 0}, "must have the rank of tensor<3x4xf32>"),
    ("take_along_axis", [ONE, np.zeros((4, 1), int)], {"axis": 1}, "indices of size 4 do not fit dim 0 of size 3"),
    ("scatter_elements", [ONE, np.zeros((1, 2), int), ONE[:1, :1]], {"axis": 1}, "reach beyond updates tensor<1x1xf32>"),
    ("scatter_elements", [ONE, np.zeros((1, 2), int), ONE], {"axis": 1, "mode": "sum"}, "mode must be one of 'none', 'add'"),
    ("scatter_elements", [ONE, np.zeros((1, 2), int), ONE.astype(int)], {"axis": 1}, "x and updates: f32 and i64 differ"),
    ("index", [ONE, I2, np.zeros(3, int)], {"dims": [0, 1]}, "do not broadcast"),
    ("index", [ONE, I2], {"dims": [0, 1]}, "must name one dim per index"),
    ("index_put", [ONE, np.zeros((3,), np.float32), I2], {"dims": [0]}, "do not broadcast to the indexed shape [2, 4]"),
    ("embedding", [ONE[0], I2], {}, "weight must be of rank 2, not tensor<4xf32>"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arrays", "attrs", "message"), INVALID)
def test_invalid(name, arrays, attrs, message):
    with pytest.raises(IRError) as error:
        compute(f"neuron.{name}", *arrays, **attrs)
    assert message in str(error.value)


SET = {"scatter_dims_to_operand_dims": (0,), "index_vector_dim": 1, "update_computation": lambda b, old, new: new}
INVALID_SCATTERS = [
    ([ONE, I2], {}, "takes N inputs, indices and N updates, not 2 operands"),
    ([ONE, I2.astype(float), ONE[:2]], {}, "the indices must be integers, not tensor<2xf64>"),
    ([ONE, I2, ONE[:2].astype(float)], {}, "input and update: f32 and f64 differ"),
    ([ONE, I2, ONE[:2]], {}, "update_window_dims [] must name 2 dims"),
    ([ONE, I2, ONE], {"inserted_window_dims": (0,), "update_window_dims": (1,)}, "besides the windows, the indices [2]"),
    ([ONE[:, :2], I2, ONE[:2]], {"inserted_window_dims": (0,), "update_window_dims": (1,)}, "size 4 does not fit dim 1 of size 2"),
]  # fmt: skip


@pytest.mark.parametrize(("arrays", "attrs", "message"), INVALID_SCATTERS)
def test_invalid_scatters(arrays, attrs, message):
    with pytest.raises(IRError) as error:
        compute("neuron.scatter", *arrays, **SET, **attrs)
    assert message in str(error.value)
