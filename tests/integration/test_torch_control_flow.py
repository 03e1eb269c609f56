"""Control flow of torch programs becomes regions and gives torch's values."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import neuron_ir


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))

    def forward(self, x):
        a = torch.cond(x.sum() > 0, lambda x: (x * self.w, x.sin()), lambda x: (x - self.w, x.cos()), (x,))
        i, y = while_loop(lambda i, y: (i < 5) & (y.sum() < 100), lambda i, y: (i + 1, y * 2 + x.abs()), (torch.tensor(0), x * 1))
        total, partial = scan(lambda c, e: (c + e * self.w, c * e), torch.zeros(3), torch.outer(torch.arange(4.0), x), dim=0)
        mapped = torch_map(lambda e, z: e.exp() * 2 + z, torch.outer(torch.ones(4), x), x * 3)
        return *a, i, y, total, partial, mapped


@pytest.fixture(scope="module")
def flow():
    module = Flow()
    ir = neuron_ir.from_torch(module, (torch.ones(3),))
    assert neuron_ir.parse(ir.text()).text() == ir.text()
    return module, ir, neuron_ir.compile(ir)


@pytest.mark.parametrize("x", [[1.0, 2.0, 3.0], [-1.0, -2.0, 0.5], [30.0, 50.0, -70.0]])
def test_values(flow, x) -> None:
    module, _, program = flow
    x = torch.tensor(x)
    for got, want in zip(program(x), module(x), strict=True):
        torch.testing.assert_close(got, want.detach(), rtol=1e-5, atol=1e-6)


def test_regions_are_structured(flow) -> None:
    names = [op.name for op in flow[1].main.body.ops]
    assert names.count("neuron.if") == 1 and names.count("neuron.while") == 1 and names.count("neuron.scan") == 2


def test_a_refusal_inside_a_branch_is_listed() -> None:
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x.to(torch.complex64).view(torch.float64).float(), lambda x: x * 1, (x,))

    with pytest.raises(neuron_ir.IRError, match=r"view.dtype: the bits of complex numbers") as caught:
        neuron_ir.from_torch(f, (torch.ones(4),))
    assert len(caught.value.diagnostics) == 1
