"""``torch.compile(backend="neuron")``: values and gradients equal to eager, state and sizes kept."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import neuron_ir
from tests.integration.torch_models import BUILDERS, relative_error


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(module, **options):
    return torch.compile(module, backend="neuron", fullgraph=True, **options)


def gradients(module, loss):
    module.zero_grad()
    loss.backward()
    return {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}


def test_inference_follows_parameters_changed_in_place() -> None:
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval()
    fast, x = compiled(module), torch.randn(5, 8)
    with torch.no_grad():
        assert relative_error(fast(x), module(x)) < 1e-6
        module[0].weight.mul_(2)
        assert relative_error(fast(x), module(x)) < 1e-6


@pytest.mark.parametrize("name", ["gpt2", "mixtral"])
def test_a_training_step_of_a_language_model(name: str) -> None:
    module, (ids,), _ = BUILDERS[name]()
    fast = compiled(module)
    got, want = (
        nn.functional.cross_entropy(f(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()) for f in (fast, module)
    )  # fmt: skip
    assert relative_error(got.detach(), want.detach()) < 1e-6
    ours, theirs = gradients(module, got), gradients(module, want)
    assert ours.keys() == theirs.keys()
    top = max(g.abs().max() for g in theirs.values())
    for name, grad in theirs.items():  # the gradient of the keys' bias is 0 but for rounding: measure against the largest
        assert (ours[name] - grad).abs().max() / top < 1e-5, name


def test_batch_norm_in_training_writes_its_statistics() -> None:
    eager = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 2, stride=2, groups=2))
    module = copy.deepcopy(eager)
    fast, x = compiled(module), torch.randn(2, 3, 11, 9)
    for _ in range(2):
        got, want = fast(x), eager(x)
        assert relative_error(got.detach(), want.detach()) < 1e-5
    ours, theirs = gradients(module, got.square().sum()), gradients(eager, want.square().sum())
    for name in theirs:
        assert relative_error(ours[name], theirs[name]) < 1e-4 or name == "0.bias", name  # that gradient is 0 but for rounding
    for (name, ours_), theirs_ in zip(module.named_buffers(), eager.buffers(), strict=True):
        assert relative_error(ours_, theirs_) < 1e-6, name


def test_symbolic_sizes() -> None:
    def f(x):
        return (x * 2).reshape(-1, 2).mean(0) + x.shape[0], x.shape[0] + 1

    fast = torch.compile(f, backend="neuron", dynamic=True)
    for n in (3, 4, 7):
        x = torch.randn(n, 6, requires_grad=True)
        (got, size), (want, _) = fast(x), f(x)
        assert size == n + 1
        torch.testing.assert_close(got, want)
        (ours,) = torch.autograd.grad(got.sum(), x)
        (theirs,) = torch.autograd.grad(want.sum(), x)
        torch.testing.assert_close(ours, theirs)


def test_dropout_keeps_the_same_elements_forward_and_backward() -> None:
    x = torch.ones(64, 64, requires_grad=True)
    y = compiled(nn.Dropout(0.5).train())(x)
    y.sum().backward()
    assert torch.equal(y.detach(), x.grad) and set(x.grad.unique().tolist()) == {0.0, 2.0}


def test_a_derivative_and_a_backward_inside_of_the_compiled_function() -> None:
    """Dynamo watches the frame that runs these backward passes, and must not trace into the accelerator."""

    def second(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad((x**3).sum(), x, create_graph=True)[0].sum()

    def step(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        loss = (layer(x) ** 2).sum()
        loss.backward()
        return loss

    torch._dynamo.reset()
    x = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    torch.testing.assert_close(torch.compile(second, backend="neuron")(x), (3 * x**2).sum())
    layer = nn.Linear(3, 3)
    twin = copy.deepcopy(layer)
    torch.testing.assert_close(torch.compile(step, backend="neuron")(layer, x.detach()), step(twin, x.detach()))
    torch.testing.assert_close(layer.weight.grad, twin.weight.grad)


def test_a_compiled_program_inside_of_a_compiled_function() -> None:
    """Dynamo calls it as it is, whatever the backend of the function around it."""
    x = torch.ones(3)
    doubled = neuron_ir.compile(neuron_ir.from_torch(torch.export.export(Doubled(), (x,))))
    assert torch.equal(torch.compile(lambda x: doubled(x + 1) * 2, backend="eager")(x), torch.full((3,), 8.0))


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


def test_the_step_of_an_optimizer_is_compiled_as_well() -> None:
    eager = nn.Linear(3, 2)
    module = copy.deepcopy(eager)
    x = torch.randn(4, 3)
    ours, theirs = (torch.optim.AdamW(m.parameters(), lr=0.1) for m in (module, eager))
    update = torch.compile(ours.step, backend="neuron")
    for _ in range(3):
        for m, step in ((module, update), (eager, theirs.step)):
            m.zero_grad()
            m(x).square().sum().backward()
            step()
    torch.testing.assert_close(dict(module.named_parameters()), dict(eager.named_parameters()))
    for mine, other in zip(ours.state.values(), theirs.state.values(), strict=True):
        assert mine["step"] == other["step"] == 3


def test_views_at_a_symbolic_offset_are_of_the_right_elements() -> None:
    def halves(x):
        y = x + 1
        return x[x.shape[0] // 2 :], y, y[x.shape[0] // 2 :].t(), x.split(x.shape[0] // 2)[1]

    x = torch.arange(30.0).reshape(6, 5)
    results = torch.compile(halves, backend="neuron", dynamic=True)(x)
    for got, want in zip(results, halves(x), strict=True):
        assert torch.equal(got, want) and got.stride() == want.stride()
    x.zero_()
    assert not results[0].any()  # on the same memory


def test_torch_orders_checks_of_gradients_by_tokens_at_the_end() -> None:
    x = torch.tensor([[2.0, 1, 0], [0, 3, 1], [1, 0, 5]])
    mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    torch.compile(lambda x: torch.linalg.eigvals(x).abs().sum(), backend="neuron", options={"verify": True})(mine).backward()
    torch.linalg.eigvals(other).abs().sum().backward()
    torch.testing.assert_close(mine.grad, other.grad)
