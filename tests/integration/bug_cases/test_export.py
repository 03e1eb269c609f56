"""What a program may hold and give: None and numbers among results, constants on another device, complex results."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import neuron_ir
from tests.integration.bug_cases.judge import check, each


# seen in apache/tvm#18337
def test_none_and_numbers_among_the_results() -> None:
    check(lambda x: (x + 1, None), torch.ones(2))
    check(lambda x: {"a": None, "b": [x + 1, 7], "c": {"d": x * 2, "e": 2.5}, "f": True}, torch.ones(2))
    check(lambda x: (x, x, x + 1), torch.ones(2))


# seen in pytorch/xla#6288: not a device tensor
def test_a_mask_made_on_the_cpu_and_moved() -> None:
    def masked(x: torch.Tensor) -> torch.Tensor:
        low = torch.full([], torch.finfo(x.dtype).min, device="cpu")
        causal = torch.ones(3, 3, dtype=torch.bool, device="cpu").tril().to(x.device)
        return torch.where(causal, x, low.to(x.device, x.dtype)).softmax(-1)

    check(masked, torch.arange(9.0).view(3, 3))


# seen in pytorch/xla#3293: unsupported type inside lowering
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_real_parts_of_a_fourier_transform() -> None:
    image = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    parts = each(
        lambda x: torch.fft.fft2(x).to(torch.float32),
        lambda x: torch.fft.fft2(x).real,
        lambda x: torch.fft.fft2(x).imag,
        lambda x: torch.fft.ifft2(torch.fft.fft2(x)).real - x,
        lambda x: torch.fft.irfft(torch.fft.rfft(x), 6),
        lambda x: torch.view_as_real(torch.fft.rfft2(x)),
        lambda x: torch.fft.fftshift(x, 1),
        lambda x: torch.fft.fft(x, norm="ortho").abs(),
    )
    check(parts, image)


def test_constants_of_every_kind_made_inside() -> None:
    makers = each(
        lambda x: x + torch.arange(3, dtype=x.dtype),
        lambda x: x * torch.linspace(0, 1, 3),
        lambda x: x.new_full((3,), 2.5) + x,
        lambda x: torch.full_like(x, 7, dtype=torch.int32),
        lambda x: torch.eye(3)[1] + x,
        lambda x: torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64) * x,
        lambda x: torch.arange(0.5, 2, 0.5) + x,
        lambda x: torch.zeros(0, 3).sum(0) + x,
        lambda x: torch.tril(torch.ones(3, 3), -1) @ x,
        lambda x: torch.scalar_tensor(3) + x,
        lambda x: torch.tensor(float("-inf")) + x,
        lambda x: torch.nn.functional.one_hot(x.long(), 4),
    )
    check(makers, torch.tensor([1.0, 2.0, 3.0]))


class Shared(nn.Module):
    """Tied weights, a sliced buffer, a parameter that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("angles", torch.arange(12.0).view(3, 4)[:, ::2], persistent=False)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids) * self.angles.repeat(1, 2))


def test_tied_weights_and_a_strided_buffer() -> None:
    torch.manual_seed(0)
    check(Shared().requires_grad_(False), torch.tensor([0, 4, 2]))


# seen in aws-neuron/aws-neuron-sdk#612: NaN after loading from a checkpoint
def test_a_saved_and_loaded_program_gives_the_same(tmp_path) -> None:
    torch.manual_seed(0)
    model, ids = Shared().requires_grad_(False), torch.tensor([0, 4, 2])
    neuron_ir.from_torch(model, (ids,)).save(tmp_path / "m.nir")
    run = neuron_ir.compile(neuron_ir.load(tmp_path / "m.nir"))
    torch.testing.assert_close(run(ids), model(ids))


# seen in pytorch/pytorch#170175: its size depends on the data
def test_a_size_that_depends_on_the_data_is_read_at_run_time() -> None:
    program = neuron_ir.compile(neuron_ir.from_torch(lambda x: x.nonzero(), (torch.ones(2, 2),)))
    for x in (torch.ones(2, 2), torch.eye(2), torch.zeros(2, 2)):
        assert torch.equal(program(x), x.nonzero())
