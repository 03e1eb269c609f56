"""The same kinds of program through ``torch.compile(backend="neuron")``: writes, state, training, recompilation."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.integration.bug_cases.judge import as_view, same

BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch.compiler.reset()


def check_compiled(function, *args: torch.Tensor) -> None:
    """A compiled function against eager, with contiguous inputs and views, each twice, writes to inputs included."""
    compiled = torch.compile(function, backend="neuron", dynamic=False)
    for form in (torch.clone, as_view):
        for _ in range(2):
            mine, theirs = ([form(a) for a in args] for _ in range(2))
            same(compiled(*mine), function(*theirs))
            same(mine, theirs)


def _write_and_read(src: torch.Tensor, dst: torch.Tensor):
    dst[:] = src[:]
    src.add_(1)
    row = dst[0]
    row.mul_(2)
    new = torch.empty(2, 4)
    new[0, :3] = src[1]
    new[:, 3] = 7
    new[1, :3] = dst.t()[:, 1]
    return src, new, row + 1, None, 5


# seen in pytorch/pytorch#198131 and apache/tvm#18337
def test_writes_to_inputs_and_through_views() -> None:
    check_compiled(_write_and_read, torch.arange(6.0).view(2, 3), torch.zeros(2, 3))


def _mixed(x: torch.Tensor, i: torch.Tensor):
    counted = torch.cat([x > 0, x < 0]).sum()
    wide = (i + 2**40, i // -3, torch.div(i, 3, rounding_mode="trunc"), i.clamp(min=2))
    narrow = x.to(torch.float8_e4m3fn).float(), x.to(torch.int8), (x.to(BF16) + 0.001).float()
    return counted, wide, narrow, x.sign(), x.argmin(), x.max(0), torch.quantile(x[1:], 0.4), x.exp().log()


def test_numbers_of_mixed_types() -> None:
    check_compiled(_mixed, torch.tensor([float("nan"), 200.0, -3.0, 465.0, 0.5]), torch.tensor([-7, 2**53 + 1, 5]))


def _added(acc: torch.Tensor, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    acc.index_add_(0, index, x)
    return acc.scatter_add(0, index, x) + acc.masked_scatter(acc > 4, x)


# seen in torch-spyre/torch-spyre#3638
def test_repeated_targets() -> None:
    check_compiled(_added, torch.zeros(2), torch.tensor([0, 0, 1, 0]), torch.tensor([1.0, 2, 3, 4]))


class Cache(nn.Module):
    def __init__(self, functional: bool) -> None:
        super().__init__()
        self.functional = functional
        self.register_buffer("c", torch.zeros(4))

    def forward(self, p: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self.functional:
            self.c = self.c.index_copy(0, p, v)
        else:
            self.c.index_copy_(0, p, v)
        return self.c * 1


# seen in tenstorrent/tt-xla#4631: one compilation per step
@pytest.mark.parametrize("functional", [False, True])
def test_a_cache_updated_step_by_step_is_compiled_once(functional: bool) -> None:
    eager = Cache(functional)
    model = copy.deepcopy(eager)
    compiled = torch.compile(model, backend="neuron", dynamic=False)
    with torch.no_grad():
        for step in range(8):
            at, value = torch.tensor([step % 4]), torch.tensor([float(step)])
            if step == 2:
                torch.compiler.set_stance("fail_on_recompile")
            same(compiled(at, value), eager(at, value))
    torch.compiler.set_stance("default")
    same(model.c, eager.c)


# seen in pytorch/xla#3430: stray f32 results and gradients
def test_a_training_step_in_bf16_keeps_its_types() -> None:
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).to(BF16)
    model = copy.deepcopy(eager)
    compiled = torch.compile(model, backend="neuron", dynamic=False)
    x, target = torch.randn(5, 4).to(BF16), torch.tensor([0, 2, 1, 1, 0])
    losses = [F.cross_entropy(m(x), target) for m in (compiled, eager)]
    for loss in losses:
        loss.backward()
    same(*losses)
    for mine, theirs in zip(model.parameters(), eager.parameters(), strict=True):
        assert mine.grad.dtype == BF16
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=2**-6, atol=2**-6 * theirs.grad.abs().max().item())


# seen in pytorch/pytorch#184864
@pytest.mark.parametrize("stride", [(1, 1), (0, 1)])
def test_a_write_through_overlapping_strides_is_refused(stride) -> None:
    compiled = torch.compile(lambda x: x.as_strided((3, 2), stride).add_(1), backend="neuron")
    with pytest.raises(Exception, match="several elements share one place"):
        compiled(torch.zeros(4))
