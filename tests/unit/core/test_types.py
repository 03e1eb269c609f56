"""Types, element types and layouts: interned, checked when made, printed as the text has them."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from neuron_ir import Layout, TensorType, dtype, symbol, tensor
from neuron_ir.dims import UNKNOWN, function
from neuron_ir.dtypes import all_dtypes, dtype_of_numpy
from neuron_ir.parser import parse_type
from neuron_ir.types import TOKEN, compatible

S = symbol("S")


def test_equal_types_are_one_object() -> None:
    assert tensor([2, 3], "f32") is tensor((2, 3), dtype("f32"))
    assert tensor([2, S * 2], "f32") is tensor([2, S + S], "f32")
    assert tensor([2, 3], "f32") is not tensor([3, 2], "f32")
    assert Layout((1, 0)) is Layout([1, 0])
    assert Layout((0, 1)) is Layout()


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((), "tensor<f32>"),
        ((0, 4), "tensor<0x4xf32>"),
        ((2, S, UNKNOWN), "tensor<2xSx?xf32>"),
        ((2 * S + 1, symbol("x")), "tensor<(2*S+1)x(x)xf32>"),
        ((symbol("max_len"),), "tensor<(max_len)xf32>"),
        ((S // 2, S % 3), "tensor<(floordiv(S,2))x(mod(S,3))xf32>"),
        ((function("max", 0, S - S // (S % 3 + 1)), S), "tensor<(max(0,S-floordiv(S,mod(S,3)+1)))xSxf32>"),
    ],
)
def test_shapes_print_and_read_back(shape: Any, text: str) -> None:
    assert str(tensor(shape, "f32")) == text
    assert parse_type(text) is tensor(shape, "f32")


@pytest.mark.parametrize("element", all_dtypes(), ids=str)
def test_every_element_type_reads_back_and_has_storage(element: Any) -> None:
    assert parse_type(f"tensor<3x{element}>") is tensor([3], element)
    assert np.zeros(3, element.numpy).itemsize == element.numpy.itemsize
    if element.name != "tf32":
        assert dtype_of_numpy(element.numpy) is element


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64", "f8e4m3", "f8e4m3fn", "f8e5m2", "f8e8m0", "f4e2m1"])
def test_the_largest_value_is_that_of_the_format(name: str) -> None:
    assert dtype(name).max == float(ml_dtypes.finfo(dtype(name).numpy).max)


@pytest.mark.parametrize(
    ("shape", "message"),
    [([-1], "-1"), ([True], "True"), ([2.0], "2.0"), (["S"], "'S'")],
)
def test_a_size_that_is_none_is_refused(shape: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"dimension {message}"):
        tensor(shape, "f32")


def test_a_layout_must_fit() -> None:
    with pytest.raises(ValueError, match=r"order \[0, 0\] is not a permutation"):
        Layout((0, 0))
    with pytest.raises(ValueError, match="does not fit rank 1"):
        TensorType([4], dtype("f32"), Layout((1, 0)))
    with pytest.raises(ValueError, match="does not fit rank 1"):
        TensorType([4], dtype("f32"), Layout(partition=1))


def test_layouts_read_back() -> None:
    placed = TensorType([1, 2, 3, 4], dtype("bf16"), Layout((0, 2, 3, 1), 1, (128, 512)))
    assert str(placed) == "tensor<1x2x3x4xbf16, #neuron.layout<order = [0, 2, 3, 1], partition = 1, tile = [128, 512]>>"
    assert parse_type(str(placed)) is placed


def test_sizes_in_elements_and_bytes() -> None:
    assert tensor([2, 3], "bf16").size == 6
    assert tensor([2, 3], "bf16").nbytes == 12
    assert tensor([3], "i4").nbytes == 2  # packed
    assert tensor([3], "bool").nbytes == 3
    with pytest.raises(ValueError, match="no static number"):
        tensor([S], "f32").size  # noqa: B018


def test_unknown_sizes_are_compatible_with_any_and_layouts_do_not_count() -> None:
    assert compatible(tensor([2, UNKNOWN], "f32"), tensor([2, S], "f32"))
    assert compatible(tensor([2, 3], "f32"), TensorType([2, 3], dtype("f32"), Layout((1, 0))))
    assert not compatible(tensor([2, S], "f32"), tensor([2, symbol("T")], "f32"))
    assert not compatible(tensor([2], "f32"), tensor([2], "f64"))
    assert not compatible(tensor([2], "f32"), TOKEN)


def test_types_survive_pickling_as_the_same_object() -> None:
    for item in (tensor([2, S * 2 + 1], "f8e4m3"), TOKEN, dtype("c64"), Layout((1, 0)), S * 3):
        assert pickle.loads(pickle.dumps(item)) is item
