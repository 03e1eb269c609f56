"""Operations of the user's own, lowered by a registered rule; those that write to their arguments too."""

from __future__ import annotations

import pytest
import torch

import neuron_ir


@torch.library.custom_op("neuron_test::scaled_sine", mutates_args=())
def scaled_sine(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.from_numpy(x.numpy().copy()).sin() * scale


@scaled_sine.register_fake
def _(x, scale):
    return torch.empty_like(x)


@torch.library.custom_op("neuron_test::bump", mutates_args=("x", "y"))
def bump(x: torch.Tensor, y: torch.Tensor, by: float) -> torch.Tensor:
    x.add_(by)
    y.mul_(by)
    return x + y


@bump.register_fake
def _(x, y, by):
    return torch.empty_like(x)


@pytest.fixture(scope="module", autouse=True)
def lowerings():
    @neuron_ir.register_lowering(scaled_sine)
    def lower_sine(c, x, scale):
        return c.b.multiply(c.b.sine(x), c.scalar(scale, c.out.dtype, c.out.shape))

    @neuron_ir.register_lowering("neuron_test::bump")
    def lower_bump(c, x, y, by):
        x = c.b.add(x, c.scalar(by, x.dtype, x.shape))
        y = c.b.multiply(y, c.scalar(by, y.dtype, y.shape))
        return c.b.add(x, y), x, y


def test_a_registered_lowering_is_the_operation() -> None:
    x = torch.linspace(-2, 2, 5)
    program = neuron_ir.compile(neuron_ir.from_torch(lambda x: scaled_sine(x, 2.5) + 1, (x,)))
    torch.testing.assert_close(program(x), scaled_sine(x, 2.5) + 1)


class Bumped(torch.nn.Module):
    """Writes to a buffer, to a slice of another, and reads all of it afterwards."""

    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.arange(3.0))
        self.register_buffer("b", torch.arange(15.0).reshape(5, 3) + 1)

    def forward(self, x):
        z = bump(self.a, x * 1, 2.0)
        w = bump(self.b[1:3], self.a.expand(2, 3) + 1, 3.0)
        return z, w, self.b.sum()


def test_written_arguments_take_their_new_values() -> None:
    x, model = torch.tensor([1.0, -2.0, 0.5]), Bumped()
    program = neuron_ir.compile(neuron_ir.from_torch(Bumped(), (x,)))
    for call in range(2):
        torch.testing.assert_close(program(x), model(x), msg=f"call {call}")
        for name, value in model.named_buffers():
            torch.testing.assert_close(torch.from_numpy(program.state[name]), value)
    want = Bumped()(x)
    torch.testing.assert_close(torch.compile(Bumped(), backend="neuron", fullgraph=True)(x), want)


def test_mistakes_of_a_registration() -> None:
    with pytest.raises(neuron_ir.IRError, match=r"aten.add.Tensor has a lowering already"):
        neuron_ir.register_lowering("aten.add.Tensor")(lambda c, *args: None)
    with pytest.raises(neuron_ir.IRError, match="names no operation of torch"):
        neuron_ir.register_lowering("sine")
