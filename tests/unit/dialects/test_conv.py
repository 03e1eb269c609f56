"""conv against torch's convolutions, plain and transposed, in one to three dims."""

import pytest
import torch
import torch.nn.functional as F

from neuron_ir.diagnostics import IRError

from .judge import apply, close, expanded, program, symbolic


def randn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def torchs(x, weight, bias, **attrs):
    """The same by torch, in float64, rounded once."""
    n = x.ndim - 2
    full = {k: list(attrs.get(k) or [d]) for k, d in (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0))}
    full = {k: v * n if len(v) == 1 else v for k, v in full.items()}
    args = (full["stride"], full["padding"], full["dilation"], attrs.get("transposed", False), full["output_padding"])
    wide = [None if t is None else t.double() for t in (x, weight, bias)]
    return torch.ops.aten.convolution(*wide, *args, attrs.get("groups", 1)).to(x.dtype)


PLAIN = [
    ((2, 4, 9), (6, 4, 3), {}),
    ((2, 4, 9), (6, 2, 3), {"stride": [2], "padding": [1], "dilation": [2], "groups": 2}),
    ((2, 4, 7, 9), (6, 4, 3, 2), {"stride": [2, 1], "padding": [1, 2], "dilation": [1, 2]}),
    ((2, 4, 7, 9), (8, 1, 3, 3), {"padding": [1], "groups": 4}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 1), {"stride": [1, 2, 2], "padding": [0, 1, 0]}),
    ((0, 2, 5), (3, 2, 3), {}),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
]
TRANSPOSED = [
    ((2, 4, 5), (4, 3, 3), {}),
    ((2, 4, 5), (4, 3, 3), {"stride": [2], "padding": [1], "output_padding": [1], "groups": 2}),
    ((2, 4, 5, 3), (4, 2, 3, 2), {"stride": [3, 2], "padding": [1, 0], "dilation": [1, 2], "output_padding": [2, 1]}),
    ((2, 4, 5), (4, 3, 3), {"padding": [2], "dilation": [3], "output_padding": [2]}),
    ((1, 2, 3, 2, 2), (2, 3, 2, 2, 2), {"stride": [2]}),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("x, weight, attrs", PLAIN)
def test_convolution_is_torchs(x, weight, attrs, bias):
    x, weight = randn(*x), randn(*weight, seed=1)
    b = randn(weight.shape[0], seed=2) if bias else None
    close(apply("conv", x, weight, b, **attrs), torchs(x, weight, b, **attrs), 8)


@pytest.mark.parametrize("x, weight, attrs", TRANSPOSED)
def test_transposed_convolution_is_torchs(x, weight, attrs):
    x, weight = randn(*x), randn(*weight, seed=1)
    b = randn(weight.shape[1] * attrs.get("groups", 1), seed=2)
    attrs = {**attrs, "transposed": True}
    close(apply("conv", x, weight, b, **attrs), torchs(x, weight, b, **attrs), 8)


@pytest.mark.parametrize("dtype, ulps", [(torch.bfloat16, 1), (torch.float16, 1), (torch.float64, 8)])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_float_type_rounds_once(dtype, ulps, transposed):
    x, weight, bias = randn(2, 4, 6, 6, dtype=dtype), randn(4, 4, 3, 3, dtype=dtype, seed=1), randn(4, dtype=dtype, seed=2)
    attrs = {"padding": [1], "transposed": transposed}
    close(apply("conv", x, weight, bias, **attrs), torchs(x, weight, bias, **attrs), ulps)


def test_output_padding_is_bias_only_where_no_product_reaches_and_real_sums_elsewhere():
    ones = torch.ones
    y = apply("conv", ones(1, 1, 2, 2), ones(1, 1, 3, 3), torch.tensor([10.0]), stride=[2], output_padding=[1], transposed=True)
    assert y.shape == (1, 1, 6, 6) and torch.equal(y[0, 0, 5], torch.full((6,), 10.0))
    y = apply("conv", ones(1, 1, 2, 2), ones(1, 1, 2, 2), None, stride=[2], padding=[1], output_padding=[1], transposed=True)
    assert torch.equal(y, ones(1, 1, 3, 3))


def test_one_sided_padding():
    x, weight = randn(1, 2, 6, 5), randn(3, 2, 2, 4, seed=1)
    expected = F.conv2d(F.pad(x, (1, 2, 0, 1)), weight)
    close(apply("conv", x, weight, None, padding=[0, 1, 1, 2]), expected, 8)


def test_integers_and_complex_numbers():
    x, weight = torch.arange(12).reshape(1, 2, 6), torch.arange(12).reshape(2, 2, 3) - 5
    assert torch.equal(apply("conv", x, weight, None), F.conv1d(x, weight))
    x, weight = (torch.complex(randn(*s, seed=i), randn(*s, seed=i + 1)) for i, s in enumerate([(1, 2, 6), (2, 2, 3)]))
    assert (apply("conv", x, weight, None) - F.conv1d(x, weight)).abs().max() < 1e-5


def test_what_does_not_fit_is_refused_with_its_numbers():
    f = symbolic
    for types, attrs, message in (
        ([f((1, 3, 8)), f((4, 2, 3)), None], {}, "x has 3 channels, but the weight tensor<4x2x3xf32> takes 2"),
        ([f((1, 3, 8)), f((4, 3, 3)), f((3,))], {}, "bias must have shape [4], not [3]"),
        ([f((1, 3, 8)), f((4, 3, 3)), None], {"groups": 2}, "3 input channels cannot be split into 2 groups"),
        ([f((1, 3, 2)), f((4, 3, 3)), None], {}, "a kernel of 3 (dilation 1) does not fit dim 0 of 2"),
        ([f((3, 8)), f((4, 3, 3)), None], {}, "x must be [N, C, ...]"),
        ([f((1, 3, 8)), f((4, 3, 3)), None], {"stride": [1, 1]}, "stride = [1, 1] must have 1 or 1 entries"),
        ([f((1, 3, 8)), f((4, 3, 3)), None], {"output_padding": [1]}, "output_padding belongs to transposed convolutions"),
        (
            [f((1, 3, 8)), f((3, 4, 3)), None],
            {"output_padding": [2], "stride": [2], "transposed": True},
            "output_padding 2 of dim 0",
        ),
    ):
        with pytest.raises(IRError) as caught:
            program("neuron.conv", types, **attrs)
        assert message in str(caught.value)


def test_shapes_may_be_symbols():
    f = symbolic
    module = program("neuron.conv", [f(("B", 3, "S")), f((4, 3, 3)), f((4,))], padding=[1])
    assert module.main.result_types == [f(("B", 4, "S"))]
    expanded(module)
    module = program("neuron.conv", [f(("B", 3, "S")), f((3, 4, 2)), None], stride=[2], transposed=True)
    expanded(module)
    (result,) = program("neuron.conv", [f((None, 3, "S")), f((3, 4, 2)), None], stride=[2], transposed=True).main.result_types
    assert str(result) == "tensor<?x4x(2*S)xf32>"
