"""Ops that move elements: values by NumPy, shapes with symbols, and messages."""

from __future__ import annotations

import numpy as np
import pytest

from neuron_ir.builder import Builder
from neuron_ir.core import Block
from neuron_ir.diagnostics import IRError
from neuron_ir.dims import UNKNOWN, symbol
from neuron_ir.dtypes import F32, I64
from neuron_ir.meaning import compute
from neuron_ir.types import TensorType, tensor
from tests.unit.dialects.judge import assert_refused

X = np.arange(24).reshape(2, 3, 4)
S, T = symbol("S"), symbol("T")


def equal(got, expected):
    assert got.shape == np.shape(expected)
    np.testing.assert_array_equal(got, expected)


def test_reshape_and_transpose():
    equal(compute("neuron.reshape", X, out=tensor([4, 6], "i64")), X.reshape(4, 6))
    equal(compute("neuron.reshape", np.int64(3), out=tensor([1, 1], "i64")), [[3]])
    equal(compute("neuron.reshape", X[:, :0], out=tensor([0, 7], "i64")), np.zeros((0, 7)))
    equal(compute("neuron.transpose", X, permutation=[2, 0, 1]), X.transpose(2, 0, 1))
    equal(compute("neuron.transpose", np.int64(3), permutation=[]), 3)


@pytest.mark.parametrize(
    ("x", "dims", "shape", "expected"),
    [
        (np.arange(6).reshape(2, 3), [2, 0], [3, 5, 2], np.broadcast_to(np.arange(6).reshape(2, 3).T[:, None, :], (3, 5, 2))),
        (np.arange(3).reshape(1, 3), [0, 1], [2, 3], np.tile(np.arange(3), (2, 1))),
        (np.int64(7), [], [2, 2], np.full((2, 2), 7)),
        (np.arange(3), [0], [3, 0], np.zeros((3, 0))),
    ],
)
def test_broadcast_in_dim(x, dims, shape, expected):
    equal(compute("neuron.broadcast_in_dim", x, broadcast_dimensions=dims, out=tensor(shape, "i64")), expected)
    sizes = np.array(shape)
    got = compute("neuron.dynamic_broadcast_in_dim", x, sizes, broadcast_dimensions=dims, out=tensor(shape, "i64"))
    equal(got, expected)


def test_concatenate():
    equal(compute("neuron.concatenate", X, X[:, :1], dimension=1), np.concatenate([X, X[:, :1]], 1))
    equal(compute("neuron.concatenate", X[:0], X, X[:0], dimension=-3), X)
    equal(compute("neuron.concatenate", X, dimension=0), X)


def test_slices():
    got = compute("neuron.slice", X, start_indices=[0, 1, 1], limit_indices=[2, 3, 4], strides=[1, 1, 2])
    equal(got, X[0:2, 1:3, 1:4:2])
    equal(compute("neuron.slice", X, start_indices=[1, 3, 0], limit_indices=[2, 3, 4]), X[1:2, 3:3])
    got = compute(
        "neuron.real_dynamic_slice", X, np.array([0, 1, 1]), np.array([2, 3, 4]), np.array([1, 1, 2]), out=tensor([2, 2, 2], "i64")
    )
    equal(got, X[0:2, 1:3, 1:4:2])


@pytest.mark.parametrize("index_type", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_dynamic_slice_clamps_each_start(index_type):
    x = np.arange(300)
    got = compute("neuron.dynamic_slice", x, index_type(100), slice_sizes=[3])
    equal(got, [100, 101, 102])
    if index_type is not np.int8:
        equal(compute("neuron.dynamic_slice", x, index_type(200), slice_sizes=[1]), [200])
    if index_type in (np.int8, np.int32, np.int64):
        equal(compute("neuron.dynamic_slice", x, index_type(-1), slice_sizes=[2]), [0, 1])
        equal(compute("neuron.dynamic_slice", x, index_type(-3), slice_sizes=[2], policy="wrap"), [297, 298])
        equal(compute("neuron.dynamic_slice", x, index_type(-1), slice_sizes=[2], policy="wrap"), [298, 299])
    if index_type is np.uint64:
        equal(compute("neuron.dynamic_slice", x, index_type(2**64 - 1), slice_sizes=[2]), [298, 299])


def test_dynamic_update_slice():
    got = compute("neuron.dynamic_update_slice", X, np.full((1, 2, 2), -1), np.int32(5), np.int32(1), np.int32(-9))
    expected = X.copy()
    expected[1:2, 1:3, 0:2] = -1
    equal(got, expected)
    equal(compute("neuron.dynamic_update_slice", X, np.zeros((0, 1, 1), int), *[np.int32(1)] * 3), X)


def test_a_start_out_of_range_stops_the_program_where_asked():
    for policy, start in (("raise", -1), ("raise", 9), ("wrap_raise", -11), ("wrap_raise", 9)):
        with pytest.raises(IRError, match=r"a?n index lies outside 0\.\.8"):
            compute("neuron.dynamic_slice", np.arange(10), np.int32(start), slice_sizes=[2], policy=policy)
    equal(compute("neuron.dynamic_slice", np.arange(10), np.int32(-2), slice_sizes=[2], policy="wrap_raise"), [8, 9])


def padded(x, value, low, high, interior):
    """The definition, one dim at a time."""
    for axis, (before, after, between) in enumerate(zip(low, high, interior, strict=True)):
        rows = list(np.moveaxis(x, axis, 0))
        fill = np.full_like(np.moveaxis(x, axis, 0)[0], value)
        spread = [r for i, row in enumerate(rows) for r in ([row] if i == 0 else [fill] * between + [row])]
        spread = [fill] * max(before, 0) + spread[max(-before, 0) :]
        spread = spread + [fill] * after if after >= 0 else spread[:after]
        x = np.moveaxis(np.stack(spread), 0, axis)
    return x


@pytest.mark.parametrize(
    ("low", "high", "interior"),
    [([1, 0, 2], [0, 3, 1], [0, 0, 0]), ([-1, 0, 0], [0, -1, -2], [0, 0, 0]), ([1, -1, 0], [-1, 2, 0], [2, 1, 0])],
)
def test_pad(low, high, interior):
    expected = padded(X, 9, low, high, interior)
    got = compute("neuron.pad", X, np.int64(9), edge_padding_low=low, edge_padding_high=high, interior_padding=interior)
    equal(got, expected)
    amounts = [np.array(a) for a in (low, high, interior)]
    equal(compute("neuron.dynamic_pad", X, np.int64(9), *amounts, out=tensor(expected.shape, "i64")), expected)


def test_pad_of_nothing():
    got = compute("neuron.pad", np.zeros((0,)), np.float64(1), edge_padding_low=[2], edge_padding_high=[1], interior_padding=[3])
    equal(got, [1, 1, 1])
    got = compute("neuron.dynamic_pad", np.zeros((0,)), np.float64(1), *[np.array([v]) for v in (2, 1, 3)], out=tensor([3], "f64"))
    equal(got, [1, 1, 1])


def test_reverse_iota_and_sizes():
    equal(compute("neuron.reverse", X, dimensions=[0, 2]), X[::-1, :, ::-1])
    equal(compute("neuron.iota", iota_dimension=1, out=tensor([2, 3], "f16")), [[0, 1, 2]] * 2)
    assert compute("neuron.iota", iota_dimension=0, out=tensor([300], "u8"))[299] == 43
    assert compute("neuron.iota", iota_dimension=0, out=tensor([300], "bf16"))[257] == 256
    equal(compute("neuron.dynamic_iota", np.array([2, 3]), iota_dimension=0, out=tensor([2, 3], "c64")), [[0] * 3, [1] * 3])
    equal(compute("neuron.dynamic_reshape", X, np.array([6, 4]), out=tensor([6, 4], "i64")), X.reshape(6, 4))
    got = compute("neuron.get_dimension_size", X, dimension=1)
    assert got == 3 and got.dtype == np.int32
    assert compute("neuron.dim_size", size=5) == 5


# --- shapes with symbols ----------------------------------------------------------------------------------------------


def build(name, shapes, out=None, **attrs):
    block = Block([TensorType(s, F32) if isinstance(s, tuple) else s for s in shapes])
    value = Builder(block).make(name, *block.args, out=TensorType(out, F32) if out is not None else None, **attrs)
    if value.op.spec.check is not None:
        value.op.spec.check(value.op)
    return value.shape


def test_symbolic_shapes():
    assert build("neuron.add", [(S, UNKNOWN), (S, 4)]) == (S, 4)
    assert build("neuron.transpose", [(S, 4)], permutation=[1, 0]) == (4, S)
    assert build("neuron.concatenate", [(S, 4), (T, UNKNOWN), (2, 4)], dimension=0) == (S + T + 2, 4)
    assert build("neuron.slice", [(S, 4)], start_indices=[1, 0], limit_indices=[S, 4]) == (S - 1, 4)
    assert build("neuron.slice", [(2 * S,)], start_indices=[0], limit_indices=[2 * S], strides=[2]) == ((2 * S + 1) // 2,)
    assert build("neuron.pad", [(S,), ()], edge_padding_low=[1], edge_padding_high=[T], interior_padding=[2]) == (3 * S + T - 1,)
    assert build("neuron.reshape", [(S, 4)], out=(2, S, 2)) == (2, S, 2)
    assert build("neuron.reshape", [(S, 4)], out=(T, 2)) == (T, 2)
    assert build("neuron.reshape", [(S, UNKNOWN)], out=(7,)) == (7,)
    assert build("neuron.broadcast_in_dim", [(S, 1)], out=(T, S, 5), broadcast_dimensions=[1, 2]) == (T, S, 5)
    i = TensorType((), I64)
    assert build("neuron.dynamic_slice", [(S, 4), i, i], slice_sizes=[1, 4]) == (1, 4)


F2 = np.zeros(2, np.float32)
INVALID = [
    ("reshape", [X], {"out": tensor([5, 5], "i64")}, "shape", "of 24 elements cannot become tensor<5x5xi64> of 25"),
    ("reshape", [X], {"out": tensor([24], "f32")}, "type", "element types: i64 and f32 differ"),
    ("transpose", [X], {"permutation": [0, 1]}, "shape", "permutation has 2 items for a tensor of rank 3"),
    ("transpose", [X], {"permutation": [0, 1, 1]}, "shape", "permutation [0, 1, 1] names a dim twice"),
    ("transpose", [X], {"permutation": [0, 1, 3]}, "shape", "permutation [0, 1, 3]: 3 is no dim of a tensor of rank 3"),
    ("broadcast_in_dim", [F2], {"broadcast_dimensions": [0], "out": tensor([3], "f32")}, "shape", "size 2 cannot be spread"),
    ("broadcast_in_dim", [F2], {"broadcast_dimensions": [], "out": tensor([2], "f32")}, "shape", "must name one dim of the result"),
    ("concatenate", [X, X[:1, :1]], {"dimension": 0}, "shape", "differ in dim 1: 3 and 1"),
    ("concatenate", [X, X], {"dimension": 3}, "shape", "dimension 3 does not exist in a tensor of rank 3"),
    ("concatenate", [], {"dimension": 0}, "operand", "at least one operand is needed"),
    ("slice", [F2], {"start_indices": [1], "limit_indices": [3]}, "shape", "1:3:1 does not lie within dim 0 of size 2"),
    ("slice", [F2], {"start_indices": [2], "limit_indices": [1]}, "shape", "2:1:1 does not lie within dim 0 of size 2"),
    ("slice", [F2], {"start_indices": [0], "limit_indices": [2], "strides": [0]}, "shape", "0:2:0 does not lie"),
    ("dynamic_slice", [F2, np.int32(0)], {"slice_sizes": [3]}, "shape", "a part of size 3 does not fit dim 0 of size 2"),
    ("dynamic_slice", [F2, np.int32([0])], {"slice_sizes": [1]}, "operand", "integers of rank 0, not tensor<1xi32>"),
    ("dynamic_slice", [X, *[np.int32(0)] * 2, np.int8(0)], {"slice_sizes": [1] * 3}, "operand", "one type are needed"),
    ("dynamic_update_slice", [F2, np.zeros(3, np.float32), np.int32(0)], {}, "shape", "size 3 does not fit dim 0 of size 2"),
    ("pad", [F2, np.float32(0)], {"edge_padding_low": [-3], "edge_padding_high": [0]}, "shape", "more than dim 0 of size 2 has"),
    ("pad", [F2, np.float32(0)], {"edge_padding_low": [0], "edge_padding_high": [0], "interior_padding": [-1]}, "shape", "is -1"),
    ("pad", [F2, F2], {"edge_padding_low": [0], "edge_padding_high": [0]}, "operand", "value must be of rank 0, not tensor<2xf32>"),
    ("reverse", [F2], {"dimensions": [1]}, "shape", "dimensions [1]: 1 is no dim of a tensor of rank 1"),
    ("iota", [], {"iota_dimension": 1, "out": tensor([3], "i32")}, "shape", "iota_dimension 1 does not exist"),
    ("iota", [], {"iota_dimension": 0, "out": tensor([3], "bool")}, "type", "indices cannot be bool"),
    ("get_dimension_size", [F2], {"dimension": 1}, "shape", "dimension 1 does not exist"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arrays", "attrs", "code", "message"), INVALID)
def test_invalid(name, arrays, attrs, code, message):
    assert_refused(name, arrays, attrs, code, message)


def test_symbols_that_differ_are_refused_and_those_that_may_agree_are_not():
    with pytest.raises(IRError, match="sizes S and T of dim 0 differ"):
        build("neuron.add", [(S,), (T,)])
    with pytest.raises(IRError, match="cannot become"):
        build("neuron.reshape", [(S,)], out=(S + 1,))
    with pytest.raises(IRError, match="does not lie within dim 0 of size S"):
        build("neuron.slice", [(S,)], start_indices=[0], limit_indices=[S + 1])
