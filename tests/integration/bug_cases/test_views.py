"""Views, in-place writes and aliasing: what a view shows, and who sees a write."""

from __future__ import annotations

import numpy
import pytest
import torch
from torch import nn

import neuron_ir
from neuron_ir.diagnostics import IRError
from tests.integration.bug_cases.judge import check, each, same, same_arrays, torch_programs


# seen in torch-spyre/torch-spyre#3264: the first half came back
def test_parts_of_a_tensor_keep_their_place() -> None:
    parts = each(
        lambda x: x.narrow(1, 64, 64).clone(),
        lambda x: x[:, 1::2].clone(),
        lambda x: x[1].clone(),
        lambda x: x.split(50, 1)[2].clone(),
        lambda x: x.chunk(2, 1)[1].contiguous(),
        lambda x: x.t()[64:].clone(),
        lambda x: x.unfold(1, 8, 60).clone(),
        lambda x: x.flip(1)[:, :3].clone(),
        lambda x: x[:, -3:].flatten(),
        lambda x: x.unbind(1)[127] + 0,
        lambda x: x.as_strided((2, 3), (128, 2), 64).clone(),
        lambda x: x.diagonal(65).clone(),
    )
    check(lambda x: parts(x.contiguous()), torch.arange(256.0).view(2, 128))


class Attention(nn.Module):
    """One projection, cut into q, k, v views."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, _ = x.shape
        q, k, v = (part.view(b, s, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(16, -1))
        return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, 16)


# seen in torch-spyre/torch-spyre#4376: k and v were read from q's slice at 8 heads only
@pytest.mark.parametrize("heads", [4, 8])
def test_attention_on_slices_of_one_projection(heads: int) -> None:
    torch.manual_seed(0)
    check(Attention(heads).eval().requires_grad_(False), torch.randn(2, 5, 16))


# seen in pytorch/pytorch#167154
def test_an_input_of_stride_zero() -> None:
    layer = nn.Linear(4, 2).requires_grad_(False)
    one = torch.arange(12.0).view(1, 3, 4)
    (run, fused) = torch_programs(layer, one.repeat(5, 1, 1))
    for program in (run, fused):
        same(program(one.expand(5, 3, 4)), layer(one.repeat(5, 1, 1)))
        same(program(one[:, :, :1].expand(5, 3, 4)), layer(one[:, :, :1].repeat(5, 1, 4)))
    double = neuron_ir.compile(neuron_ir.from_jax(lambda x: x * 2, numpy.zeros((5, 3), numpy.float32)))
    row = numpy.float32([1, 2, 3])
    same_arrays(double(numpy.broadcast_to(row, (5, 3))), numpy.tile(row * 2, (5, 1)))


def _assign_rows(t: torch.Tensor) -> torch.Tensor:
    new = torch.empty(2, t.shape[0])
    new[0, : t.shape[0]] = t
    new[1:, ::2] = 7
    new[1, 1::2] = -t[1::2]
    return new


def _copy_then_change(src: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
    dst[:] = src[:]
    src.add_(1)
    return src


def _change_through_views(x: torch.Tensor) -> torch.Tensor:
    row, flat = x[0], x.view(-1)
    row.mul_(2)
    flat[1::2].sub_(1)
    x.t()[1].zero_()
    return row + flat[:2]


def _swap(x: torch.Tensor) -> torch.Tensor:
    x[0], x[1] = x[1].clone(), x[0].clone()
    return x


def _read_old_view(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x + 1
    view, copied = y[:1], y[:1].clone()
    y.fill_(9)
    return view, copied


# seen in pytorch/xla#7240 (an assignment to a slice was dropped) and pytorch/pytorch#198131 (a full copy was taken for nothing)
def test_writes_are_seen_by_those_who_share_the_memory() -> None:
    six = torch.arange(6.0)
    check(_assign_rows, six)
    check(_copy_then_change, six, torch.zeros(6))
    check(_swap, six.view(3, 2))
    check(_read_old_view, six.view(3, 2))


def test_writes_through_views_of_one_input() -> None:
    for run in torch_programs(_change_through_views, torch.ones(2, 2)):
        mine, theirs = torch.arange(4.0).view(2, 2), torch.arange(4.0).view(2, 2)
        for _ in range(2):
            same(run(mine), _change_through_views(theirs))
            same(mine, theirs)


def _write_strided(x: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    x.as_strided(size, stride).add_(1)
    return x


# seen in pytorch/pytorch#184864: the order of the writes is undefined
@pytest.mark.parametrize(("size", "stride"), [((3, 2), (1, 1)), ((3,), (0,)), ((2, 3), (2, 1))])
def test_a_write_through_overlapping_strides_is_refused(size, stride) -> None:
    with pytest.raises(IRError, match=r"test_views\.py:\d+:.*as_strided.*several elements share one place"):
        neuron_ir.from_torch(lambda x: _write_strided(x, size, stride), (torch.zeros(6),))


def test_a_write_through_strides_with_gaps_works() -> None:
    for size, stride in [((2, 2), (3, 1)), ((2, 2), (1, 3))]:
        for run in torch_programs(lambda x, s=size, t=stride: _write_strided(x, s, t), torch.zeros(6)):
            x = torch.zeros(6)
            run(x)
            same(x, _write_strided(torch.zeros(6), size, stride))
