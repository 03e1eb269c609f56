"""Bisection names the first operation that is off, its element types and its line."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import neuron_ir


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        h = self.norm(nn.functional.gelu(self.first(x)))
        return torch.softmax(self.last(h), -1)


class Difference(nn.Module):
    def forward(self, x, y):
        return (x - y).exp()


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Net().eval(), torch.randn(5, 8)


def test_equal_programs_have_no_finding(net) -> None:
    model, x = net
    ir = neuron_ir.from_torch(model, (x,))
    assert neuron_ir.bisect(ir, model, (x,), rtol=1e-5) is None
    assert neuron_ir.bisect(ir, None, {"x": x.numpy()}, rtol=1e-5) is None


def test_inputs_by_name_may_come_in_any_order() -> None:
    x, y = torch.randn(3), torch.randn(3)
    program = torch.export.export(Difference(), (), {"x": x, "y": y})
    assert neuron_ir.bisect(neuron_ir.from_torch(program), program, {"y": y, "x": x}, rtol=1e-6) is None


def test_a_constant_changed_on_the_way_is_found_against_torch(net) -> None:
    model, x = net
    ir = neuron_ir.from_torch(model, (x,))
    norm = next(op for op in ir.walk() if op.name == "neuron.layer_norm")
    norm.attrs["eps"] = 0.1
    found = neuron_ir.bisect(ir, model, (x,), rtol=1e-5)
    assert found.op is norm and found.compared == 2 and 1e-3 < found.error < 1
    line = Net.forward.__code__.co_firstlineno + 1
    assert f"test_bisection.py:{line} in norm: neuron.layer_norm gives %layer_norm (f32 -> f32)" in str(found)


def test_lower_precision_is_found_against_float64(net) -> None:
    model, x = net
    ir = neuron_ir.from_torch(model, (x,))
    neuron_ir.run_passes(ir, "precision{dtype=bf16}")
    found = neuron_ir.bisect(ir, None, (x,), rtol=1e-4)
    assert found.op.name == "neuron.cast" and found.dtypes == "f32 -> bf16"
    assert 1e-4 < found.error < 2**-8
    against_torch = neuron_ir.bisect(ir, model, (x,), rtol=1e-4)
    assert against_torch.op.name == "neuron.linear" and against_torch.dtypes == "bf16, f32 -> f32"
    assert neuron_ir.bisect(ir, model, (x,), rtol=0.05) is None


def test_a_function_may_be_the_reference() -> None:
    ir = neuron_ir.parse("""
        func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
          %a = neuron.add(%x, %x) : tensor<3xf32>
          %b = neuron.exponential(%a) : tensor<3xf32>
          func.return(%b)
        }""")
    x = np.float32([1, 2, 3])
    assert neuron_ir.bisect(ir, lambda x: {"a": 2 * x, "b": np.exp(2 * x)}, (x,)) is None
    found = neuron_ir.bisect(ir, lambda x: {"a": 2 * x, "b": np.exp(x)}, (x,))
    assert found.name == "b" and found.compared == 1
    nan = neuron_ir.bisect(ir, lambda x: {"b": np.full(3, np.nan)}, (x,))
    assert nan.error == float("inf")
    with pytest.raises(neuron_ir.IRError, match="no value of the program has a counterpart"):
        neuron_ir.bisect(ir, lambda x: {"c": x}, (x,))
    with pytest.raises(neuron_ir.IRError, match="gives a mapping"):
        neuron_ir.bisect(ir, lambda x: x, (x,))


def test_symbolic_sizes_and_state() -> None:
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.zeros(()))

        def forward(self, x):
            self.n += 1
            return x.cumsum(1) * self.n

    x = torch.randn(2, 7)
    ir = neuron_ir.from_torch(Counts(), (x,), dynamic_shapes={"x": {1: torch.export.Dim("n", min=2, max=50)}})
    assert neuron_ir.bisect(ir, None, (torch.randn(2, 9),), rtol=1e-5) is None
    assert neuron_ir.bisect(ir, None, (torch.randn(2, 9),), rtol=1e-12).op.name == "neuron.cumsum"
