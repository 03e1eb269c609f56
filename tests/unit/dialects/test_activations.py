"""Activation functions against torch, at ordinary, huge, infinite and NaN arguments, in every float type."""

import pytest
import torch
import torch.nn.functional as F

from neuron_ir.diagnostics import IRError

from .judge import apply, close, program, symbolic

CASES = [
    ("gelu", {}, F.gelu),
    ("gelu", {"approximate": "tanh"}, lambda x: F.gelu(x, approximate="tanh")),
    ("silu", {}, F.silu),
    ("relu", {}, F.relu),
    ("relu6", {}, F.relu6),
    ("hardtanh", {"min": -0.5, "max": 2.0}, lambda x: F.hardtanh(x, -0.5, 2.0)),
    ("leaky_relu", {"slope": 0.2}, lambda x: F.leaky_relu(x, 0.2)),
    ("elu", {"alpha": 0.5, "scale": 1.5, "input_scale": 2.0}, lambda x: torch.ops.aten.elu(x, 0.5, 1.5, 2.0)),
    ("elu", {}, F.elu),
    ("selu", {}, F.selu),
    ("celu", {"alpha": 2.0}, lambda x: F.celu(x, 2.0)),
    ("hardsigmoid", {}, F.hardsigmoid),
    ("hardswish", {}, F.hardswish),
    ("mish", {}, F.mish),
    ("softplus", {}, F.softplus),
    ("softplus", {"beta": 2.0, "threshold": 5.0}, lambda x: F.softplus(x, 2.0, 5.0)),
    ("log_sigmoid", {}, F.logsigmoid),
    ("softsign", {}, F.softsign),
    ("tanhshrink", {}, F.tanhshrink),
    ("softshrink", {"lambd": 0.3}, lambda x: F.softshrink(x, 0.3)),
    ("hardshrink", {}, F.hardshrink),
    ("threshold", {"threshold": 0.1, "value": 20.0}, lambda x: F.threshold(x, 0.1, 20.0)),
    ("glu", {}, F.glu),
]
NAMES = [f"{name}{'-'.join(map(str, attrs.values()))}" for name, attrs, _ in CASES]


def arguments(dtype):
    inf, nan = float("inf"), float("nan")
    special = torch.tensor([inf, -inf, nan, 0.0, -0.0, 1e30, -1e30, 100, -100, 20.5, -20.5, 3, -3, 6, 1, -1], dtype=torch.float64)
    ordinary = torch.randn(48, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    return torch.cat([special, ordinary]).to(dtype)


@pytest.mark.parametrize("name, attrs, torch_op", CASES, ids=NAMES)
def test_every_activation_is_torchs(name, attrs, torch_op):
    # f32 against float64: torch's own f32 is 2 to 4 ulp off there; gelu's erf form cancels for negative x in torch as here
    for dtype in (torch.float32, torch.bfloat16):
        x = arguments(dtype)
        close(apply(name, x, **attrs), torch_op(x), 4 if dtype is torch.float32 else 1)


@pytest.mark.parametrize("name, attrs, torch_op", CASES[:3] + CASES[13:15], ids=NAMES[:3] + NAMES[13:15])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_half_and_double_too(name, attrs, torch_op, dtype):
    x = arguments(dtype)
    x = x[x.abs() < 60000]  # beyond, a half result is infinite or not by the last bit
    close(apply(name, x, **attrs), torch_op(x), 1 if dtype is torch.float16 else 4)


@pytest.mark.parametrize("name, attrs, torch_op", CASES[2:4] + CASES[7:9], ids=NAMES[2:4] + NAMES[7:9])
def test_small_results_keep_their_digits(name, attrs, torch_op):
    x = torch.tensor([-1e-6, 1e-6, -1e-3, 1e-3, -0.1, 0.1])
    close(apply(name, x, **attrs), torch_op(x.double()).float(), 4, per_element=True)


def test_relu_of_integers():
    x = torch.tensor([-(2**31), -1, 0, 2**31 - 1], dtype=torch.int32)
    assert torch.equal(apply("relu", x), F.relu(x))


def test_prelu_broadcasts_its_weight():
    x, weight = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([0.1, 0.2, 0.3])
    close(apply("prelu", x, weight.reshape(3, 1)), F.prelu(x, weight), 0)


def test_glu_halves_any_axis_and_refuses_odd_ones():
    x = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(2))
    close(apply("glu", x, axis=1), F.glu(x, 1), 4)
    assert program("neuron.glu", [symbolic((2, "S"))]).main.result_types[0].shape[1] == symbolic(("S",)).shape[0] // 2
    with pytest.raises(IRError, match=r"dim 1 of tensor<2x3xf32> has no two halves"):
        program("neuron.glu", [symbolic((2, 3))])


def test_empty_and_scalar_arguments():
    for x in (torch.zeros(0, 3), torch.tensor(-0.5)):
        close(apply("gelu", x), F.gelu(x), 2)
        close(apply("silu", x), F.silu(x), 2)
