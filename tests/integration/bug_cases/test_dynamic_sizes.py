"""The reported cases that one shape at a time hides: the same programs with free sizes, each imported once and run at several."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import neuron_ir

AUTO, LENGTH = Dim.AUTO, Dim("length", min=0, max=99)


class Projected(nn.Module):
    """Attention on slices of one projection, as in torch-spyre/torch-spyre#4376."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (4, 2)).transpose(1, 2) for t in self.qkv(x).split(8, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def repeated_targets(rows: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """torch-spyre/torch-spyre#3638: every contribution counts, by any spelling."""
    start = torch.zeros(3, rows.shape[1])
    index = targets.unsqueeze(-1).expand_as(rows)
    return start.index_add(0, targets, rows), start.scatter_add(0, index, rows), torch.zeros(3).index_add(0, targets, rows.sum(1))


def broadcast_mask(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """pytorch/pytorch#186146: the source is consumed over the broadcast mask."""
    return x.masked_scatter(mask.unsqueeze(-1).expand_as(x), source)


def empty_rows(x: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """tenstorrent/tt-mlir#7360: where and linear of no rows."""
    return F.linear(torch.where(mask, x, 0.0), weight), x.sum((0, 1)), x.mean(-1)


def windows(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """apple/coremltools#2772, llvm/torch-mlir#826: an overhang is no padding, padding is minus infinity."""
    return F.avg_pool2d(x, 2, ceil_mode=True), F.max_pool2d(-x.abs() - 1, 3, stride=2, padding=1, ceil_mode=True)


def columns(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """torch-spyre/torch-spyre#3264, pytorch/pytorch#183885: the last columns, and rows sorted column by column."""
    return x.narrow(1, 2, x.shape[1] - 2).clone(), x.gather(0, x.argsort(0)), (x - x[:, :1]).flip(1)


def truth(n: int) -> torch.Tensor:
    return torch.arange(n).unsqueeze(0) % 3 == 1


CASES = {
    "projection": (Projected().eval(), ({0: AUTO, 1: AUTO},), lambda n: (torch.randn(n, 2 * n + 1, 8),)),
    "repeated targets": (
        repeated_targets,
        ({0: AUTO, 1: AUTO}, {0: AUTO}),
        lambda n: (torch.randn(4 * n, n), torch.arange(4 * n) % 3 // 2),
    ),
    "broadcast mask": (
        broadcast_mask,
        ({1: AUTO}, {1: AUTO}, {0: AUTO}),
        lambda n: (torch.zeros(1, n + 2, 2), truth(n + 2), torch.arange(2.0 * n + 4).reshape(-1, 2)),
    ),
    "empty rows": (
        empty_rows,
        ({1: LENGTH}, {1: LENGTH}, None),
        lambda n: (torch.randn(1, n, 3), truth(n).unsqueeze(-1), torch.randn(4, 3)),
    ),
    "windows": (windows, ({0: AUTO, 2: AUTO, 3: AUTO},), lambda n: (torch.randn(2, 1, 2 * n + 1, 2 * n + 3),)),
    "columns": (columns, ({0: AUTO, 1: AUTO},), lambda n: (torch.randn(n, n + 3),)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_reported_case_at_several_sizes(name: str) -> None:
    torch.manual_seed(0)
    function, free, inputs = CASES[name]
    program = neuron_ir.compile(neuron_ir.from_torch(function, inputs(4), dynamic_shapes=free))
    for n in (2, *([0] if name == "empty rows" else [])):
        given = inputs(n)
        torch.testing.assert_close(program(*given), function(*given), rtol=1e-5, atol=1e-5)
