"""dot_general and convolution against torch and NumPy."""

import ml_dtypes
import numpy as np
import pytest
import torch

from neuron_ir.diagnostics import IRError
from neuron_ir.dtypes import F16, F64
from neuron_ir.meaning import compute
from neuron_ir.types import tensor

from .judge import program, symbolic

RNG = np.random.RandomState(0)
MATMUL = {"lhs_contract": [1], "rhs_contract": [0]}


def floats(*shape, dtype=np.float32):
    return RNG.randn(*shape).astype(dtype)


def test_dot_general_batches_and_contracts_several_dims():
    a, b = floats(2, 3, 4, 5, dtype=np.float64), floats(5, 7, 2, 4, dtype=np.float64)
    got = compute("neuron.dot_general", a, b, lhs_batch=[0], rhs_batch=[2], lhs_contract=[2, 3], rhs_contract=[3, 0])
    np.testing.assert_allclose(got, np.einsum("bijk,knbj->bin", a, b), rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_accumulate_in_f32_and_round_once(dtype):
    """4096 products of 1: a sum in bf16 stops at 256, in f16 at 2048."""
    ones = np.ones((1, 4096), dtype)
    got = compute("neuron.dot_general", ones, ones.T, **MATMUL)
    assert got.dtype == dtype and float(got[0, 0]) == 4096
    assert compute("neuron.convolution", ones.reshape(1, 1, -1), ones.reshape(1, 1, -1)).item() == 4096


def test_the_result_may_be_wider_than_the_operands():
    a, b = np.full((1, 4), 448, ml_dtypes.float8_e4m3fn), np.full((4, 1), 57344, ml_dtypes.float8_e5m2)
    got = compute("neuron.dot_general", a, b, **MATMUL, out=tensor([1, 1], "f32"))
    assert got.dtype == np.float32 and got.item() == 4 * 448 * 57344


def test_acc_f64_sums_what_f32_loses():
    a, b = np.float32([[1e8, 1, -1e8]]), np.ones((3, 1), np.float32)
    assert compute("neuron.dot_general", a, b, **MATMUL, acc=F64).item() == 1


def test_integers_wrap_in_the_result_type():
    a, b = np.full((1, 300), 200, np.uint8), np.ones((300, 1), np.uint8)
    assert compute("neuron.dot_general", a, b, **MATMUL).item() == 60000 % 256
    assert compute("neuron.dot_general", a, b, **MATMUL, out=tensor([1, 1], "i32")).item() == 60000
    big = np.int64([[2**40]])
    assert compute("neuron.dot_general", big, np.int64([[3]]), **MATMUL).item() == 3 * 2**40


def test_bool_is_or_of_ands_and_complex_works():
    a = np.array([[True, False], [False, False]])
    assert compute("neuron.dot_general", a, ~a, **MATMUL).tolist() == [[False, True], [False, False]]
    z = np.complex64([[1j, 2]])
    assert compute("neuron.dot_general", z, z.T, **MATMUL).item() == 3


def test_nothing_to_sum_is_zero_and_vectors_give_a_scalar():
    assert compute("neuron.dot_general", floats(2, 0), floats(0, 3), **MATMUL).tolist() == [[0.0] * 3] * 2
    got = compute("neuron.dot_general", np.float32([1, 2]), np.float32([3, 4]), lhs_contract=[0], rhs_contract=[0])
    assert got.shape == () and got == 11
    assert compute("neuron.dot_general", floats(0, 2), floats(2, 3), **MATMUL).shape == (0, 3)


def test_nan_and_infinity_reach_the_result():
    a = np.float32([[np.inf, 1]])
    assert np.isnan(compute("neuron.dot_general", a, np.float32([[0], [1]]), **MATMUL).item())
    assert compute("neuron.dot_general", a, np.float32([[2], [1]]), **MATMUL).item() == np.inf


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"lhs_contract": [0], "rhs_contract": [0]},
            r"contract dims \[0\] of tensor<2x3xf32> are \[2\], but \[0\] of tensor<3x4xf32>",
        ),
        ({"lhs_contract": [1, 1], "rhs_contract": [0, 0]}, r"lhs_batch \[\] and lhs_contract \[1, 1\] must name dims"),
        ({"lhs_contract": [2], "rhs_contract": [0]}, "must name dims of tensor<2x3xf32> once each"),
        ({**MATMUL, "out": tensor([2, 3], "f32")}, r"result 0 is tensor<2x3xf32>, but its shape must be \[2, 4\]"),
        ({**MATMUL, "out": tensor([2, 4], "i32")}, "a result of i32 cannot hold products of f32"),
        ({**MATMUL, "acc": F16}, "acc = f16 is narrower than the 32 bits"),
    ],
)
def test_invalid_dot_general(fields, message):
    with pytest.raises(IRError, match=message):
        compute("neuron.dot_general", floats(2, 3), floats(3, 4), **fields)


def test_dot_general_of_mixed_kinds():
    with pytest.raises(IRError, match="operands of one kind are needed, not f32 and i32"):
        compute("neuron.dot_general", floats(2, 3), np.ones((3, 4), np.int32), **MATMUL)


def test_dot_general_with_symbolic_sizes():
    module = program("neuron.dot_general", [symbolic(["B", "S", 8]), symbolic(["B", 8, None])], lhs_batch=[0], rhs_batch=[0],
                     lhs_contract=[2], rhs_contract=[1])  # fmt: skip
    assert str(module.main.result_types[0]) == "tensor<BxSx?xf32>"
    with pytest.raises(IRError, match=r"batch dims \[0\] of tensor<Bx2xf32> are \[B\], but \[0\] of tensor<Cx2xf32> are \[C\]"):
        program("neuron.dot_general", [symbolic(["B", 2]), symbolic(["C", 2])], lhs_batch=[0], rhs_batch=[0])


CONVOLUTIONS = [
    {},
    {"window_strides": [2, 3]},
    {"padding": [[1, 2], [0, 3]]},
    {"padding": [[-1, 2], [3, -2]]},
    {"rhs_dilation": [2, 1]},
    {"feature_group_count": 2},
    {"lhs_dilation": [2, 3], "padding": [2, 2, 1, 1]},
    {"window_reversal": [1, 0]},
]


def torch_convolution(x, w, window_strides=(1, 1), padding=((0, 0), (0, 0)), lhs_dilation=(1, 1), rhs_dilation=(1, 1),
                      window_reversal=(0, 0), feature_group_count=1):  # fmt: skip
    if isinstance(padding[0], int):
        padding = [padding[:2], padding[2:]]
    n, c, h, v = x.shape
    spread = torch.zeros(n, c, (h - 1) * lhs_dilation[0] + 1, (v - 1) * lhs_dilation[1] + 1, dtype=x.dtype)
    spread[:, :, :: lhs_dilation[0], :: lhs_dilation[1]] = x
    spread = torch.nn.functional.pad(spread, (*padding[1], *padding[0]))
    w = torch.flip(w, [2 + i for i, r in enumerate(window_reversal) if r])
    return torch.nn.functional.conv2d(spread, w, None, window_strides, 0, rhs_dilation, feature_group_count)


@pytest.mark.parametrize("fields", CONVOLUTIONS, ids=str)
def test_convolution_against_torch(fields):
    x, w = floats(2, 4, 9, 8, dtype=np.float64), floats(6, 4 // fields.get("feature_group_count", 1), 3, 2, dtype=np.float64)
    want = torch_convolution(torch.from_numpy(x), torch.from_numpy(w), **fields).numpy()
    got = compute("neuron.convolution", x, w, **fields)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    nhwc = compute(
        "neuron.convolution", x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), **fields,
        input_dims="b01f", kernel_dims="01io", output_dims="01bf",
    )  # fmt: skip
    np.testing.assert_allclose(nhwc.transpose(2, 3, 0, 1), want, rtol=1e-12, atol=1e-12)


def test_batch_groups_are_the_gradient_of_a_grouped_convolution():
    """Group g of the images meets group g of the output features."""
    x, w = floats(4, 3, 5, dtype=np.float64), floats(6, 3, 2, dtype=np.float64)
    got = compute("neuron.convolution", x, w, batch_group_count=2)
    first = torch.nn.functional.conv1d(torch.from_numpy(x[:2]), torch.from_numpy(w[:3])).numpy()
    second = torch.nn.functional.conv1d(torch.from_numpy(x[2:]), torch.from_numpy(w[3:])).numpy()
    np.testing.assert_allclose(got, np.concatenate([first, second], 1), rtol=1e-12)


def test_convolution_shapes_at_the_edges():
    assert compute("neuron.convolution", floats(1, 3, 2), floats(4, 3, 3)).shape == (1, 4, 0)
    assert compute("neuron.convolution", floats(0, 3, 5), floats(4, 3, 3)).shape == (0, 4, 3)
    np.testing.assert_allclose(compute("neuron.convolution", np.ones((1, 2)), np.ones((4, 2))), [[2] * 4])
    assert compute("neuron.convolution", np.full((1, 1, 2), 100, np.int8), np.ones((1, 1, 2), np.int8),
                   out=tensor([1, 1, 1], "i32")).item() == 200  # fmt: skip


@pytest.mark.parametrize(
    ("shapes", "fields", "message"),
    [
        (((1, 3, 8), (4, 2, 3)), {}, r"takes 2 input features, but 3 in 1 group"),
        (((1, 3, 8), (4, 3, 3)), {"window_strides": [1, 1]}, r"window_strides \[1, 1\] must have 1 values"),
        (((1, 3, 8), (4, 3, 3)), {"window_strides": [0]}, "must be at least 1"),
        (((1, 3, 8), (4, 3, 3)), {"padding": [1, 1, 1, 1]}, "must have 1 pairs"),
        (((1, 3, 8), (4, 3, 3)), {"input_dims": "bf1"}, "input_dims = 'bf1' must spell the 3 dimensions b f 0 once each"),
        (((1, 3, 8), (4, 1, 3)), {"feature_group_count": 3}, "4 output features cannot be split into 3 groups"),
        (((3, 3, 8), (4, 3, 3)), {"batch_group_count": 2}, "3 images cannot be split into 2 groups"),
        (((4, 4, 8), (4, 2, 3)), {"batch_group_count": 2, "feature_group_count": 2}, "one may exceed 1"),
        (((3,), (3,)), {}, "needs operands of one rank of at least 2"),
    ],
)
def test_invalid_convolution(shapes, fields, message):
    with pytest.raises(IRError, match=message):
        compute("neuron.convolution", *[np.ones(s, np.float32) for s in shapes], **fields)


def test_convolution_with_symbolic_sizes():
    types = [symbolic(["B", 3, "S", None]), symbolic([8, 3, 3, 3])]
    module = program("neuron.convolution", types, window_strides=[2, 1], padding=[1, 1, 0, 0])
    assert str(module.main.result_types[0]) == "tensor<Bx8x(floordiv(S-1,2)+1)x?xf32>"
