"""Softmax and the norms, against torch in every float type, and their statistics."""

import pytest
import torch
import torch.nn.functional as F

from neuron_ir.diagnostics import IRError

from .judge import apply, close, expanded, program, symbolic

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
inf, nan = float("inf"), float("nan")


def randn(*shape, dtype=torch.float32, scale=1.0, shift=0.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale + shift).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op, torch_op", [("softmax", F.softmax), ("log_softmax", F.log_softmax)])
@pytest.mark.parametrize("shape, axis", [((2, 3, 8), 1), ((3, 1000), -1)])
def test_softmax_is_torchs(op, torch_op, dtype, shape, axis):
    x = randn(*shape, dtype=dtype, scale=4)
    close(apply(op, x, axis=axis), torch_op(x, axis), 4)


@pytest.mark.parametrize("op, torch_op", [("softmax", F.softmax), ("log_softmax", F.log_softmax)])
def test_softmax_of_one_element_and_of_a_scalar(op, torch_op):
    for x in (randn(5, 1), torch.tensor(3.0)):
        close(apply(op, x), torch_op(x, -1), 0)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (2, 0, 3)])
def test_softmax_of_nothing_is_nothing(shape):
    x = randn(*shape)
    close(apply("softmax", x, axis=1), F.softmax(x, 1), 0)
    close(apply("log_softmax", x, axis=1), F.log_softmax(x, 1), 0)


def test_softmax_of_infinities_and_nan_is_torchs():
    x = torch.tensor([[-inf, 0.0, 1.0], [-inf, -inf, -inf], [inf, 0.0, 1.0], [nan, 0.0, 1.0], [1e38, -1e38, 0.0]])
    close(apply("softmax", x), F.softmax(x, -1), 2)
    close(apply("log_softmax", x), F.log_softmax(x, -1), 2)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape, trailing", [((2, 3, 4, 5), 2), ((0, 8), 1), ((2, 768), 1)])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_is_torchs(dtype, shape, trailing, affine):
    x = randn(*shape, dtype=dtype)
    inner = shape[len(shape) - trailing :]
    weight, bias = (randn(*inner, dtype=dtype, seed=s) if affine else None for s in (1, 2))
    ulps = 4 if dtype in (torch.float32, torch.float64) else 1
    results = apply("layer_norm", x, weight, bias, trailing_dims=trailing, stats=True)
    for actual, expected in zip(results, torch.native_layer_norm(x, inner, weight, bias, 1e-5), strict=True):
        close(actual, expected, ulps)


def test_layer_norm_of_one_element_is_the_bias():
    x, weight, bias = randn(3, 1), randn(1, seed=1), randn(1, seed=2)
    assert torch.equal(apply("layer_norm", x, weight, bias), bias.expand(3, 1))


def test_layer_norm_with_a_bias_only_and_with_f32_parameters_beside_bf16():
    x, bias = randn(3, 8), randn(8, seed=1)
    close(apply("layer_norm", x, None, bias), F.layer_norm(x, [8], None, bias), 4)
    x, weight, bias = randn(3, 8, dtype=torch.bfloat16), randn(8, seed=1), randn(8, seed=2)
    results = apply("layer_norm", x, weight, bias, stats=True)
    for actual, expected in zip(results, torch.native_layer_norm(x, [8], weight, bias, 1e-5), strict=True):
        close(actual, expected, 1 if expected.dtype is torch.bfloat16 else 4)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape, trailing", [((2, 3, 4), 2), ((0, 8), 1), ((2, 256), 1)])
@pytest.mark.parametrize("affine", [True, False])
def test_rms_norm_is_torchs(dtype, shape, trailing, affine):
    x = randn(*shape, dtype=dtype)
    inner = shape[len(shape) - trailing :]
    weight = randn(*inner, dtype=dtype, seed=1) if affine else None
    ulps = 4 if dtype in (torch.float32, torch.float64) else 1
    y, rstd = apply("rms_norm", x, weight, trailing_dims=trailing, eps=1e-6, stats=True)
    expected = torch.ops.aten._fused_rms_norm(x, inner, weight, 1e-6)
    close(y, expected[0], ulps)
    close(rstd.double(), expected[1].double(), 2**31)


def test_norms_of_big_half_activations_sum_in_f32():
    x = torch.tensor([[8000.0, -8000.0, 7600.0, -7600.0]], dtype=torch.float16)
    expected = torch.tensor([[1.025, -1.025, 0.974, -0.974]])
    assert (apply("rms_norm", x).float() - expected).abs().max() < 1e-3
    close(apply("rms_norm", x, eps=1e-6), F.rms_norm(x, [4], eps=1e-6), 1)
    close(apply("layer_norm", x), F.layer_norm(x, [4]), 1)


def test_one_result_where_no_statistics_are_asked_for():
    x, weight = randn(2, 4, 6), randn(6, seed=1)
    close(apply("layer_norm", x, weight, None), F.layer_norm(x, [6], weight), 4)
    close(apply("rms_norm", x, weight), F.rms_norm(x, [6], weight, 1e-6), 4)
    close(apply("group_norm", x, None, None, groups=2), F.group_norm(x, 2), 6)


def test_layer_norm_of_a_large_mean_does_not_cancel():
    x = randn(4, 64, shift=3e4, scale=0.5)
    exact = F.layer_norm(x.double(), [64])
    assert (apply("layer_norm", x).double() - exact).abs().max() < 2e-2
    close(apply("layer_norm", x.double()), exact, 2**20)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape, groups", [((2, 4, 3, 5), 2), ((3, 6), 3), ((2, 4, 7), 4)])
def test_group_norm_is_torchs(dtype, shape, groups):
    x = randn(*shape, dtype=dtype)
    weight, bias = (randn(shape[1], dtype=dtype, seed=s) for s in (1, 2))
    ulps = 6 if dtype in (torch.float32, torch.float64) else 1
    rest = x[0, 0].numel()
    expected = torch.ops.aten.native_group_norm(x, weight, bias, shape[0], shape[1], rest, groups, 1e-5)
    for actual, wanted in zip(apply("group_norm", x, weight, bias, groups=groups, stats=True), expected, strict=True):
        close(actual, wanted, ulps)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(2, 4, 3, 5), (3, 6)])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_is_torchs(dtype, shape, affine):
    x = randn(*shape, dtype=dtype)
    weight, bias = (randn(shape[1], dtype=dtype, seed=s) if affine else None for s in (1, 2))
    mean, var = randn(shape[1], dtype=dtype, seed=3), randn(shape[1], dtype=dtype, seed=4).abs() + 0.1
    ulps = 6 if dtype in (torch.float32, torch.float64) else 1
    close(apply("batch_norm", x, weight, bias, mean, var), F.batch_norm(x, mean, var, weight, bias), ulps)
    y, saved_mean, saved_invstd, new_mean, new_var = torch.ops.aten._native_batch_norm_legit_functional(
        x, weight, bias, mean, var, True, 0.3, 1e-5
    )
    results = apply("batch_norm", x, weight, bias, mean, var, train=True, momentum=0.3)
    for actual, expected in zip(results, (y, new_mean, new_var, saved_mean, saved_invstd), strict=True):
        close(actual, expected, ulps)
    without = apply("batch_norm", x, weight, bias, None, None, train=True)
    for actual, expected in zip(without, (y, saved_mean, saved_invstd), strict=True):
        close(actual, expected, ulps)


def test_batch_norm_of_bf16_with_f32_statistics_and_a_large_mean():
    x = randn(2, 8, 16, 16, dtype=torch.bfloat16, shift=5, scale=0.1)
    mean, var = torch.zeros(8), torch.ones(8)
    y, new_mean, new_var, *saved = apply("batch_norm", x, torch.ones(8), torch.zeros(8), mean, var, train=True)
    assert y.dtype is torch.bfloat16 and {t.dtype for t in (new_mean, new_var, *saved)} == {torch.float32}
    assert abs(y.float().std().item() - 1) < 0.01
    expected = torch.ops.aten._native_batch_norm_legit_functional(x, torch.ones(8), torch.zeros(8), mean, var, True, 0.1, 1e-5)
    close(y, expected[0], 1)
    close(new_var, expected[4], 4)


def test_the_unbiased_variance_of_one_element_is_nan_as_in_torch():
    x, mean, var = torch.ones(1, 2, 1), torch.zeros(2), torch.ones(2)
    y, new_mean, new_var, *_ = apply("batch_norm", x, None, None, mean, var, train=True)
    assert new_var.isnan().all() and torch.equal(new_mean, torch.full((2,), 0.1)) and torch.equal(y, torch.zeros(1, 2, 1))


@pytest.mark.parametrize(
    "name, types, attrs, message",
    [
        ("softmax", [symbolic((2, 3))], {"axis": 2}, "axis 2 is outside a tensor of rank 2"),
        ("layer_norm", [symbolic((2, 3)), symbolic((4,)), None], {}, "weight must have shape [3], not [4]"),
        ("layer_norm", [symbolic((2, 3)), symbolic((3,), "f64"), None], {}, "weight f64 do not go with an input of f32"),
        ("rms_norm", [symbolic((2, 3)), None], {"trailing_dims": 3}, "trailing_dims = 3 is not in 1..2"),
        ("group_norm", [symbolic((2, 6, 4)), None, None], {"groups": 4}, "6 channels cannot be split into 4 groups"),
        ("batch_norm", [symbolic((2, 6))] + [None] * 4, {}, "running_mean and running_var are needed where train is false"),
        ("batch_norm", [symbolic((0, 6))] + [None] * 4, {"train": True}, "no element per channel"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_numbers(name, types, attrs, message):
    with pytest.raises(IRError) as caught:
        program(f"neuron.{name}", types, **attrs)
    assert message in str(caught.value)


def test_shapes_may_be_symbols():
    x = symbolic(("B", "S", 16))
    for name, types, attrs in (
        ("softmax", [x], {}),
        ("layer_norm", [x, symbolic((16,)), None], {"stats": True}),
        ("rms_norm", [symbolic(("B", "S")), symbolic(("S",))], {}),
        ("group_norm", [symbolic(("B", 16, None)), None, None], {"groups": 4}),
        ("batch_norm", [symbolic(("B", "S", None))] + [None] * 4, {"train": True}),
    ):
        module = program(f"neuron.{name}", types, **attrs)
        assert module.main.result_types[0] is types[0]
        if None not in (d for t in types if t for d in map(_size, t.shape)):
            expanded(module)


def _size(d):
    return None if str(d) == "?" else d
