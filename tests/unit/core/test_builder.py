"""The builder: types inferred, attributes checked, absent operands, regions from functions; and constants read from text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neuron_ir
from neuron_ir import Block, Builder, IRError, tensor
from neuron_ir.attrs import Dense
from neuron_ir.dtypes import BF16, BOOL, C64, F32, I32, dtype
from neuron_ir.literals import Bits, Complex, dense_from
from neuron_ir.locations import FileLoc

X = tensor([2, 3], "f32")


def builder(*types: neuron_ir.TensorType) -> tuple[Builder, tuple[neuron_ir.Value, ...]]:
    block = Block(types)
    return Builder(block), block.args


def test_result_types_are_inferred() -> None:
    b, (x,) = builder(tensor([neuron_ir.symbol("B"), 3], "f32"))
    y = b.matmul(x, b.transpose(x, permutation=(1, 0)))
    assert str(y.type) == "tensor<BxBxf32>"


def test_attributes_become_canonical_and_defaults_are_dropped() -> None:
    b, (x,) = builder(X)
    assert b.softmax(x, axis=-1).op.attrs == {}
    assert b.softmax(x, axis=0).op.attrs == {"axis": 0}
    assert b.transpose(x, permutation=[1, 0]).op.attrs == {"permutation": (1, 0)}
    assert b.layer_norm(x, None, None, eps=1).op.attrs == {"eps": 1.0}


def test_absent_operands_before_a_present_one_are_marked() -> None:
    b, (x, bias) = builder(X, tensor([3], "f32"))
    assert b.layer_norm(x, None, bias).op.attrs == {"absent": (1,)}
    assert b.layer_norm(x, None, bias).op.weight is None
    assert b.layer_norm(x, None, bias).op.bias is bias
    assert b.layer_norm(x, bias, None).op.attrs == {}


def test_a_region_is_built_by_a_function() -> None:
    b, (x,) = builder(X)
    zero = b.const(0.0, F32)
    y = b.reduce(x, zero, dimensions=[1], body=lambda r, a, c: r.maximum(a, c))
    (region,) = y.op.regions
    assert [op.name for op in region.ops] == ["neuron.maximum", "neuron.yield"]
    assert str(y.type) == "tensor<2xf32>"


def test_ops_take_the_location_in_force() -> None:
    b, (x,) = builder(X)
    with b.at(FileLoc("m.py", 3, 1)):
        y = b.tanh(x)
    assert y.op.loc.short == "m.py:3:1"
    assert b.tanh(x).op.loc.implicit


def test_ops_go_before_a_given_one() -> None:
    b, (x,) = builder(X)
    last = b.tanh(x).op
    Builder(b.block, before=last).exponential(x)
    assert [op.name for op in b.block.ops] == ["neuron.exponential", "neuron.tanh"]


def test_python_keywords_have_a_trailing_underscore() -> None:
    b, (p,) = builder(tensor([2], "bool"))
    assert b.and_(p, p).op.name == "neuron.and"
    assert b.not_(p).op.name == "neuron.not"


@pytest.mark.parametrize(
    ("make", "code", "message"),
    [
        (lambda b, x: b.softmx(x), "op", "there is no op neuron.softmx; did you mean 'neuron.softmax'?"),
        (lambda b, x: b.softmax(x, axs=1), "attr", "neuron.softmax has no attribute axs; did you mean 'axis'?"),
        (lambda b, x: b.softmax(x, axis="1"), "attr", "attribute axis must be an integer, not '1'"),
        (lambda b, x: b.transpose(x), "attr", r"neuron.transpose needs the attribute permutation \(a list of integers\)"),
        (lambda b, x: b.gelu(x, approximate="erf"), "attr", "attribute approximate must be one of 'none', 'tanh', not 'erf'"),
        (lambda b, x: b.fused(x), "region", "neuron.fused needs the region body"),
        (lambda b, x: b.add(x, b.const(1.0, F32, (3, 2))), "shape", "2x3.*3x2"),
    ],
)
def test_mistakes_are_refused_where_they_are_made(make: Any, code: str, message: str) -> None:
    b, (x,) = builder(X)
    with pytest.raises(IRError, match=message) as caught:
        make(b, x)
    assert caught.value.code == code


def test_constants_from_numbers_and_arrays() -> None:
    b, _ = builder()
    assert b.const(1.5, BF16, (2, 2)).op.get("value").array.astype(float).tolist() == [[1.5, 1.5], [1.5, 1.5]]
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    value = b.const(array, I32)
    assert str(value.type) == "tensor<2x3xi32>"
    assert (value.op.get("value").array == array).all()
    assert b.const(True, BOOL).op.get("value").data == b"\x01"


# --- constants from text ----------------------------------------------------------------------------------------------


def test_parsed_numbers_become_the_elements_bytes() -> None:
    assert dense_from((1, 2), tensor([2], "i16")).data == b"\x01\x00\x02\x00"
    assert dense_from(Bits("7fc1"), tensor([], "bf16")).data == b"\xc1\x7f"
    assert dense_from(Complex((1.0, -2.0)), tensor([2], "c64")).array.tolist() == [1 - 2j, 1 - 2j]
    assert dense_from(((True,), (False,)), tensor([2, 1], "bool")).data == b"\x01\x00"
    assert dense_from((), tensor([0], "f32")).shape == (0,)
    assert dense_from(bytes.fromhex("0000803f"), tensor([], "f32")) == Dense(F32, (), b"\x00\x00\x80\x3f")


def test_decimal_numbers_are_rounded_to_the_nearest_value() -> None:
    assert float(dense_from(0.1, tensor([], "f32")).array) == float(np.float32(0.1))
    assert float(dense_from(300.0, tensor([], "f8e4m3fn")).array) == 288.0  # between 288 and 320
    assert float(dense_from(1e39, tensor([], "f32")).array) == float("inf")


@pytest.mark.parametrize(
    ("value", "shape", "element", "message"),
    [
        ((1, 2, 3), (2,), "i32", "its nesting is not 2"),
        (((1,), (2,)), (2,), "i32", "its nesting is not a scalar"),
        ((1, (2,)), (2,), "i32", "its nesting is not a scalar"),
        (128, (), "i8", "128 is not a value of i8"),
        (-1, (), "u8", "-1 is not a value of u8"),
        (1.0, (), "i32", "1.0 is not a value of i32"),
        (1, (), "bool", "1 is not a value of bool"),
        (True, (), "f32", "True is not a f32 number"),
        (1.0, (), "c64", "1.0 is not a value of c64"),
    ],
)
def test_numbers_of_the_wrong_kind_or_shape_are_refused(value: Any, shape: Any, element: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dense_from(value, tensor(shape, element))


def test_a_constants_bytes_must_fill_its_shape() -> None:
    with pytest.raises(IRError, match="a constant of 3 x f32 takes 12 bytes, not 8"):
        Dense(F32, (3,), b"\x00" * 8)


def test_equal_elements_are_kept_once() -> None:
    assert Dense.of(np.zeros((1000, 1000), np.float32)).data == b"\x00" * 4
    assert Dense.of(np.array([0.0, -0.0], np.float32)).data == b"\x00" * 7 + b"\x80"  # equal as numbers, not in bits
    assert Dense.of(1 + 2j, C64).item == 1 + 2j
    assert Dense.of(3, dtype("tf32")).dtype.name == "tf32"
