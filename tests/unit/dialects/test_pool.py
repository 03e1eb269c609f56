"""Pooling against torch over kernels, strides, padding, overhang and dilation, with indices, ties and NaN."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from neuron_ir.diagnostics import IRError

from .judge import apply, apply_each, close, expanded, program, symbolic

inf, nan = float("inf"), float("nan")
IMAGE = torch.randn(2, 3, 7, 9, generator=torch.Generator().manual_seed(0))
WINDOWS = [
    {"kernel": k, "stride": s, "padding": p, "ceil_mode": c}
    for k, s, p, c in itertools.product([(2, 2), (3, 2)], [(2, 2), (1, 3), (3, 4)], [(0, 0), (1, 1)], [False, True])
]


def max_pool2d(x, kernel, stride, padding, ceil_mode, dilation=(1, 1), **_):
    return F.max_pool2d(x, kernel, stride or None, padding, dilation, ceil_mode, return_indices=True)


@pytest.mark.parametrize("dilation", [(1, 1), (2, 1)])
def test_max_pool_and_its_indices_are_torchs(dilation):
    variants = [{**w, "dilation": dilation, "indices": True} for w in WINDOWS]
    for attrs, (y, at) in zip(variants, apply_each("max_pool", [IMAGE], variants), strict=True):
        expected, places = max_pool2d(IMAGE, **attrs)
        assert torch.equal(y, expected) and torch.equal(at, places), attrs


def test_max_pool_without_indices():
    for attrs, (y,) in zip(WINDOWS, apply_each("max_pool", [IMAGE], WINDOWS), strict=True):
        assert torch.equal(y, max_pool2d(IMAGE, **attrs)[0]), attrs


@pytest.mark.parametrize("options", [{}, {"count_include_pad": False}, {"divisor": 3}], ids=str)
def test_avg_pool_is_torchs(options):
    variants = [{**w, **options} for w in WINDOWS]
    for attrs, (y,) in zip(variants, apply_each("avg_pool", [IMAGE], variants), strict=True):
        args = (attrs["kernel"], attrs["stride"], attrs["padding"], attrs["ceil_mode"])
        close(y, F.avg_pool2d(IMAGE, *args, attrs.get("count_include_pad", True), attrs.get("divisor")), 4)


def test_an_overhang_is_no_padding():
    y = apply("avg_pool", torch.arange(5.0).reshape(1, 1, 5), kernel=[2], stride=[2], ceil_mode=True)
    assert y.flatten().tolist() == [0.5, 2.5, 4.0]
    y = apply("avg_pool", torch.arange(25.0).reshape(1, 1, 5, 5), kernel=[2, 2], stride=[2, 2], ceil_mode=True)
    assert y[0, 0, 2, 2] == 24


def test_three_answers_for_three_divisors_of_one_shape():
    x = torch.arange(1.0, 10).reshape(1, 1, 3, 3)
    variants = [{}, {"divisor": 3}, {"count_include_pad": False}]
    results = apply_each("avg_pool", [x], [{"kernel": [2, 2], "padding": [1, 1], **v} for v in variants])
    assert [y[0, 0, 0, 0].item() for (y,) in results] == [pytest.approx(0.25), pytest.approx(1 / 3), pytest.approx(1.0)]


def test_padding_is_never_the_largest():
    x = torch.full((1, 1, 5, 5), -1.0)
    assert (apply("max_pool", x, kernel=[2, 2], ceil_mode=True) == -1).all()
    x = torch.full((1, 1, 4, 4), -1.0)
    assert (apply("max_pool", x, kernel=[3, 3], stride=[2, 2], padding=[1, 1], ceil_mode=True) == -1).all()


@pytest.mark.parametrize("value", [nan, -inf, inf, 1.0])
def test_equal_elements_and_nan_give_torchs_indices(value):
    x = torch.full((1, 1, 3, 3), value)
    y, at = apply("max_pool", x, kernel=[3, 3], stride=[2, 2], padding=[1, 1], indices=True)
    expected, places = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    close(y, expected, 0)
    assert torch.equal(at, places)
    y, at = apply("adaptive_max_pool", x, size=[2, 2], indices=True)
    expected, places = F.adaptive_max_pool2d(x, 2, return_indices=True)
    close(y, expected, 0)
    assert torch.equal(at, places)


def test_nan_beside_numbers():
    x = torch.tensor([[[1.0, nan, 3.0, nan, -inf, -inf, nan, 2.0]]])
    y, at = apply("max_pool", x, kernel=[2], indices=True)
    expected, places = F.max_pool1d(x, 2, return_indices=True)
    close(y, expected, 0)
    assert torch.equal(at, places)


def test_integers_have_a_smallest_too():
    x = torch.tensor([[[-(2**31), -5, 7, 7]]], dtype=torch.int32)
    y, at = apply("max_pool", x, kernel=[2], padding=[1], stride=[1], indices=True)
    assert y.tolist() == [[[-(2**31), -5, 7, 7, 7]]] and at.tolist() == [[[0, 1, 2, 2, 3]]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_every_float_type_and_one_and_three_dims(dtype):
    x = IMAGE.to(dtype)
    close(apply("avg_pool", x, kernel=[3, 3], padding=[1, 1]), F.avg_pool2d(x, 3, padding=1), 1)
    volume = IMAGE.reshape(1, 2, 3, 7, 9).to(dtype)
    exact = F.avg_pool3d(volume.double(), (2, 3, 2)).to(dtype)
    close(apply("avg_pool", volume, kernel=[2, 3, 2]), exact, 1)
    assert torch.equal(apply("max_pool", volume, kernel=[2, 3, 2]), F.max_pool3d(volume, (2, 3, 2)))
    assert torch.equal(apply("max_pool", x[0], kernel=[2], stride=[1]), F.max_pool1d(x[0], 2, 1))


@pytest.mark.parametrize("size", [(3, 4), (7, 9), (1, 1), (10, 3), (0, 2)], ids=str)
def test_adaptive_pools_are_torchs(size):
    close(apply("adaptive_avg_pool", IMAGE, size=size), F.adaptive_avg_pool2d(IMAGE, size), 4)
    if 0 not in size:
        y, at = apply("adaptive_max_pool", IMAGE, size=size, indices=True)
        expected, places = F.adaptive_max_pool2d(IMAGE, size, return_indices=True)
        assert torch.equal(y, expected) and torch.equal(at, places)
        assert torch.equal(apply("adaptive_max_pool", IMAGE, size=size), expected)


def test_adaptive_pools_of_bf16_and_of_one_and_three_dims():
    close(apply("adaptive_avg_pool", IMAGE.bfloat16(), size=[2, 2]), F.adaptive_avg_pool2d(IMAGE.bfloat16(), 2), 1)
    close(apply("adaptive_avg_pool", IMAGE[0], size=[4]), F.adaptive_avg_pool1d(IMAGE[0], 4), 4)
    volume = IMAGE.reshape(1, 2, 3, 7, 9)
    close(apply("adaptive_avg_pool", volume, size=[2, 3, 2]), F.adaptive_avg_pool3d(volume, (2, 3, 2)), 4)


def test_an_empty_batch():
    x = IMAGE[:0]
    assert apply("max_pool", x, kernel=[2, 2]).shape == F.max_pool2d(x, 2).shape
    assert apply("avg_pool", x, kernel=[2, 2], ceil_mode=True).shape == F.avg_pool2d(x, 2, ceil_mode=True).shape


def test_what_does_not_fit_is_refused_with_its_numbers():
    f = symbolic
    for name, x, attrs, message in (
        ("max_pool", f((1, 1, 4)), {"kernel": [5]}, "a kernel of 5 does not fit the size 4"),
        ("max_pool", f((1, 1, 4)), {"kernel": [3], "padding": [2]}, "padding 2 is more than half of a kernel of 3"),
        ("max_pool", f((4,)), {"kernel": [2, 2]}, "a kernel of 2 dim(s) does not fit tensor<4xf32>"),
        ("avg_pool", f((1, 1, 4)), {"kernel": [2], "divisor": 0}, "divisor must not be 0"),
        ("avg_pool", f((1, 1, 4)), {"kernel": [2], "stride": [1, 2]}, "stride = [1, 2] must have 1 or 1 entries"),
        ("adaptive_avg_pool", f((1, 1, 4)), {"size": [-1]}, "must not be negative"),
        ("adaptive_max_pool", f((1, 1, 0)), {"size": [1]}, "has no elements to pool"),
    ):
        with pytest.raises(IRError) as caught:
            program(f"neuron.{name}", [x], **attrs)
        assert message in str(caught.value)


def test_sizes_may_be_symbols_and_round_up_only_as_far_as_torch_does():
    x = symbolic(("B", 3, "H", "W"))
    module = program("neuron.max_pool", [x], kernel=[2, 2], indices=True)
    expanded(module)
    expanded(program("neuron.avg_pool", [x], kernel=[2, 2]))
    y = module.main.result_types[0]
    assert str(y) == "tensor<Bx3x(floordiv(H-2,2)+1)x(floordiv(W-2,2)+1)xf32>"
    (y,) = program("neuron.avg_pool", [x], kernel=[3, 3], stride=[2, 2], padding=[1, 1], ceil_mode=True).main.result_types
    for size in range(3, 12):
        image = torch.zeros(1, 3, size, size)
        specialised = y.specialise({"B": 1, "H": size, "W": size})
        assert specialised.shape == tuple(F.avg_pool2d(image, 3, 2, 1, True).shape)
