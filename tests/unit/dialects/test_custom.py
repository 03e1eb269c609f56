"""Calls by name, and batch normalisation in StableHLO's form."""

import numpy as np
import pytest
import torch

import neuron_ir
from neuron_ir.builder import Builder
from neuron_ir.core import Func, Module
from neuron_ir.diagnostics import IRError
from neuron_ir.dialects.neuron.custom import TARGETS, custom_target, read_config
from neuron_ir.locations import FileLoc
from neuron_ir.meaning import compute
from neuron_ir.types import tensor

RNG = np.random.RandomState(0)


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("", {}),
        ('{"left": true, "n": 3}', {"left": True, "n": 3}),
        ('{left = false, "right" = true, n = -3 : i64, kind = "a, b"}', {"left": False, "right": True, "n": -3, "kind": "a, b"}),
        ("{}", {}),
        ("anything else", {"": "anything else"}),
        ("{a = [1, 2]}", {"": "{a = [1, 2]}"}),
        ("5", {"": 5}),
    ],
)
def test_backend_configurations(text, config):
    assert read_config(text) == config


def test_an_unknown_target_is_refused_by_name_and_line():
    with pytest.raises(IRError) as refused:
        compute(
            "neuron.custom_call",
            np.ones(2),
            call_target_name="neuron.schurr",
            out=tensor([2], "f64"),
            loc=FileLoc("model.py", 41, 7),
        )
    assert refused.value.code == "unsupported"
    text = str(refused.value)
    assert text.startswith("model.py:41:7: error[unsupported]: neuron.custom_call: the target 'neuron.schurr' has no meaning here")
    assert "did you mean 'neuron.schur'?" in text


def test_a_third_partys_target():
    @custom_target("test.scale")
    def scale(j, operands, config, out):
        return (operands[0] * config["factor"],)

    try:
        got = compute("neuron.custom_call", np.float32([1, 2]), call_target_name="test.scale", backend_config='{"factor": 3}',
                      out=tensor([2], "f32"))  # fmt: skip
    finally:
        del TARGETS["test.scale"]
    assert got.tolist() == [3, 6]


def test_known_targets():
    a = RNG.randn(3, 3)
    np.testing.assert_array_equal(compute("neuron.custom_call", a, call_target_name="Sharding", out=tensor([3, 3], "f64")), a)
    with pytest.raises(IRError, match="a sharding over several devices"):
        compute("neuron.custom_call", a, call_target_name="SPMDFullToShardShape", out=tensor([1, 3], "f64"))
    c = tensor([3, 3], "c128")
    w, left, right = compute("neuron.custom_call", a, call_target_name="neuron.eig", backend_config="{left = true, right = true}",
                             out=(tensor([3], "c128"), c, c))  # fmt: skip
    np.testing.assert_allclose(a @ right, right * w, atol=1e-12)
    np.testing.assert_allclose(np.conj(left.T) @ a, w[:, None] * np.conj(left.T), atol=1e-12)
    t = compute(
        "neuron.custom_call", a, call_target_name="neuron.schur", backend_config="{vectors = false}", out=tensor([3, 3], "f64")
    )
    np.testing.assert_allclose(np.trace(t), np.trace(a))


def test_a_condition_on_sizes_is_checked():
    fields = {"call_target_name": "shape_assertion", "backend_config": '{error_message = "size {0} is odd"}', "out": ()}
    assert compute("neuron.custom_call", np.array(True), np.array(4), **fields) == ()
    with pytest.raises(IRError, match="size 5 is odd") as refused:
        compute("neuron.custom_call", np.array(False), np.array(5), **fields)
    assert refused.value.code == "runtime"


def test_invalid_calls():
    with pytest.raises(IRError, match="call_target_name is empty"):
        compute("neuron.custom_call", call_target_name="", out=())
    with pytest.raises(IRError, match="must be pairs of a result's and an operand's number"):
        compute(
            "neuron.custom_call", np.ones(1), call_target_name="Sharding", output_operand_aliases=[0, 1], out=tensor([1], "f64")
        )


@pytest.mark.parametrize("feature", [1, 2])
def test_batch_norm_against_torch(feature):
    x, scale, offset, grad = RNG.randn(4, 3, 5), RNG.randn(3), RNG.randn(3), RNG.randn(4, 3, 5)
    leaves = [torch.from_numpy(v.copy()).requires_grad_() for v in (x, scale, offset)]
    want = torch.nn.functional.batch_norm(leaves[0], None, None, leaves[1], leaves[2], True, eps=1e-3)
    want.backward(torch.from_numpy(grad))

    def there(v):
        return v.transpose(0, 2, 1) if feature == 2 else v

    fields = {"epsilon": 1e-3, "feature_index": feature}
    y, mean, variance = compute("neuron.batch_norm_training", there(x), scale, offset, **fields)
    np.testing.assert_allclose(there(y), want.detach().numpy(), rtol=1e-10)
    np.testing.assert_allclose(mean, x.mean((0, 2)), rtol=1e-10)
    np.testing.assert_allclose(variance, x.var((0, 2)), rtol=1e-10)
    same = compute("neuron.batch_norm_inference", there(x), scale, offset, mean, variance, **fields)
    np.testing.assert_allclose(same, y, rtol=1e-10)
    grads = compute("neuron.batch_norm_grad", there(x), scale, mean, variance, there(grad), **fields)
    for got, leaf in zip((there(grads[0]), *grads[1:]), leaves, strict=True):
        np.testing.assert_allclose(got, leaf.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_batch_norm_of_narrow_floats_is_rounded_once():
    x = (1000 + RNG.randn(64, 2)).astype(np.float16)
    ones, zeros = np.ones(2, np.float16), np.zeros(2, np.float16)
    y = compute("neuron.batch_norm_training", x, ones, zeros, epsilon=1e-5, feature_index=1)[0]
    wide = x.astype(np.float64)
    want = (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-5)
    assert y.dtype == np.float16 and np.abs(y - want).max() < 2e-3


@pytest.mark.parametrize(
    ("shapes", "feature", "message"),
    [
        ([(4, 3), (2,), (3,)], 1, "scale must be tensor<3xf64>, not tensor<2xf64>"),
        ([(4, 3), (3,), (3,)], 2, "feature_index = 2 does not exist in tensor<4x3xf64>"),
    ],
)
def test_invalid_batch_norm(shapes, feature, message):
    with pytest.raises(IRError, match=message):
        compute("neuron.batch_norm_training", *[np.ones(s) for s in shapes], epsilon=1e-5, feature_index=feature)


def test_a_condition_on_sizes_stops_a_compiled_program():
    func = Func("main", [tensor([], "bool")])
    Builder(func.body).custom_call(func.args[0], call_target_name="shape_assertion", backend_config="too small", out=())
    func.set_results(func.args)
    module = Module()
    module.add(func)
    program = neuron_ir.compile(module)
    assert program(np.array(True))
    with pytest.raises(IRError, match="too small"):
        program(np.array(False))
