"""Forms of torch programs: what they take, give, change and draw, with torch as the judge."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import neuron_ir
from tests.integration.torch_models import relative_error


def program(function, args, **options):
    module = neuron_ir.from_torch(function, args, **options)
    assert neuron_ir.parse(module.text()).text() == module.text()
    return neuron_ir.compile(module)


# --- inputs and outputs that are no tensors ---------------------------------------------------------------------------


def test_values_built_into_the_program_keep_their_places() -> None:
    def f(x, scale, bias, n):
        return x * scale + n, None, n + 1, x if bias is None else x + bias

    x = torch.arange(3.0)
    p = program(f, (x, 2.0, None, 3))
    first, none, number, last = p(x, 2.0, None, 3)
    assert none is None and number == 4
    torch.testing.assert_close(first, x * 2 + 3)
    torch.testing.assert_close(last, x)
    torch.testing.assert_close(p(x)[0], first)
    torch.testing.assert_close(p(x, n=3)[0], first)


@pytest.mark.parametrize("args", [(2.5, None, 3), (2.0, 1.0, 3), (2.0, None, 4)])
def test_another_value_than_the_built_in_one_is_refused(args) -> None:
    p = program(lambda x, scale, bias, n: x * scale + n, (torch.zeros(3), 2.0, None, 3))
    with pytest.raises(neuron_ir.IRError, match="but the program was made for") as caught:
        p(torch.zeros(3), *args)
    assert caught.value.code == "input"


def test_nested_inputs_by_place_and_by_dotted_name() -> None:
    def f(cache, pair):
        return cache["keys"][0] @ cache["keys"][1] + pair[0] - pair[1]

    cache = {"keys": [torch.randn(2, 3), torch.randn(3, 2)]}
    pair = (torch.randn(2, 2), torch.randn(2))
    p, want = program(f, (cache, pair)), f(cache, pair)
    torch.testing.assert_close(p(cache, pair), want)
    torch.testing.assert_close(p(cache=cache, pair=pair), want)
    torch.testing.assert_close(p(*cache["keys"], **{"pair.0": pair[0], "pair.1": pair[1]}), want)
    with pytest.raises(neuron_ir.IRError, match=r"did you mean 'pair\.1'"):
        p(*cache["keys"], **{"pair.0": pair[0], "pair.2": pair[1]})


# --- state ------------------------------------------------------------------------------------------------------------


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("cache", torch.zeros(4, 2))
        self.register_buffer("table", torch.arange(4.0), persistent=False)

    def forward(self, x):
        self.count += 1
        self.cache[1] = x
        return self.cache.sum(1) + self.table + self.count


def test_buffers_that_change_keep_their_values_from_call_to_call() -> None:
    module = Counter()
    p = program(module, (torch.ones(2),))
    for i in range(3):
        x = torch.full((2,), float(i))
        torch.testing.assert_close(p(x), module(x))
    assert p.state["count"] == 3 and (p.state["cache"] == module.cache.numpy()).all()


def test_inputs_that_the_program_changes_are_written_back() -> None:
    def f(x, y):
        x[1:] += y
        return x.sum()

    x, y = torch.arange(4.0), torch.ones(3)
    p, mine, theirs = program(f, (x.clone(), y)), x.clone(), x.clone()
    torch.testing.assert_close(p(mine, y), f(theirs, y))
    torch.testing.assert_close(mine, theirs)
    strided = torch.zeros(4, 2)
    strided[:, 0] = x
    p(strided[:, 0], y)
    torch.testing.assert_close(strided[:, 0], theirs)
    assert (strided[:, 1] == 0).all()


def test_an_output_that_is_an_input_is_no_view_of_a_weight() -> None:
    class Gives(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x, self.w, self.w.view(3, 1)

    module = Gives()
    x = torch.zeros(2)
    same, w, column = program(module, (x,))(x)
    w += 1
    column += 1
    assert (module.w == 1).all() and (same == 0).all()


# --- symbolic sizes ---------------------------------------------------------------------------------------------------


def test_sizes_are_named_by_the_user_and_have_ranges() -> None:
    batch, seq = Dim("batch", min=2, max=64), Dim("seq", min=3, max=16)

    def f(x, y):
        return torch.cat([x, y[:, ::2]], 1).softmax(-1), x.shape[0] * x.shape[1]

    ir = neuron_ir.from_torch(
        f, (torch.zeros(4, 6), torch.zeros(4, 12)), dynamic_shapes={"x": {0: batch, 1: seq}, "y": {0: batch, 1: 2 * seq}}
    )
    assert ir.main.dims == {"batch": (2, 64), "seq": (3, 16)}
    assert str(ir.main.args[1].type) == "tensor<batchx(2*seq)xf32>"
    p = neuron_ir.compile(neuron_ir.parse(ir.text()))
    for b, s in ((2, 3), (5, 16)):
        x, y = torch.randn(b, s), torch.randn(b, 2 * s)
        got, count = p(x, y)
        torch.testing.assert_close(got, f(x, y)[0])
        assert int(count) == b * s
    for shapes in (((65, 4), (65, 8)), ((4, 4), (5, 8)), ((4, 4), (4, 9))):
        with pytest.raises(neuron_ir.IRError) as caught:
            p(*(torch.zeros(s) for s in shapes))
        assert caught.value.code == "input"


def test_slices_and_ranges_of_symbolic_sizes() -> None:
    def f(x):
        n = x.shape[1]
        position = torch.arange(n, device=x.device)
        mask = position[:, None] >= position
        return (x[:, -2:] + x[:, :2]).sum(1), torch.where(mask, x[0, :, None], -torch.inf), x[:, 1:] - x[:, :-1], x.mean(1)

    p = program(f, (torch.zeros(2, 5),), dynamic_shapes={"x": {1: Dim("n", min=3, max=50)}})
    for n in (3, 11):
        x = torch.randn(2, n)
        for got, want in zip(p(x), f(x), strict=True):
            torch.testing.assert_close(got, want)


def test_all_refusals_are_listed_at_once_with_their_lines() -> None:
    def f(x):
        a = torch.as_strided_scatter(x, x[:4].reshape(2, 2), (2, 2), (1, 1))
        b = torch.as_strided_scatter(x, x[1:].reshape(2, 2), (2, 2), (0, 1))
        return a.sum() + b.sum()

    with pytest.raises(neuron_ir.IRError) as caught:
        neuron_ir.from_torch(f, (torch.arange(5),))
    lines = {d.loc.line for d in caught.value.diagnostics}
    first = f.__code__.co_firstlineno
    assert {first + 1, first + 2} <= lines and all(d.code == "unsupported" for d in caught.value.diagnostics)


# --- random numbers ---------------------------------------------------------------------------------------------------


def test_dropout_draws_from_a_state_that_moves_on() -> None:
    module = nn.Dropout(0.25).train()
    x = torch.ones(200, 50)
    ir = neuron_ir.from_torch(module, (x,), seed=7)
    assert [a.get("weight") for a in ir.main.arg_attrs] == [None, "rng_state"]
    p, again = neuron_ir.compile(ir), neuron_ir.compile(ir)
    first, second = p(x), p(x)
    assert set(first.unique().tolist()) == {0.0, np.float32(1 / 0.75).item()}
    kept = (first != 0).double().mean().item()
    assert abs(kept - 0.75) < 5 * (0.75 * 0.25 / 10_000) ** 0.5
    assert not torch.equal(first, second) and torch.equal(first, again(x))
    assert not torch.equal(first, neuron_ir.compile(neuron_ir.from_torch(module, (x,), seed=8))(x))


def test_uniform_and_normal_numbers_have_their_moments() -> None:
    def f(x):
        return torch.rand_like(x), torch.randn(10_000), torch.randint(0, 6, (10_000,))

    uniform, normal, die = program(f, (torch.zeros(10_000),))(torch.zeros(10_000))
    assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 5 * (1 / 12 / 10_000) ** 0.5
    assert abs(normal.mean()) < 0.05 and abs(normal.std() - 1) < 0.05
    assert set(die.tolist()) == set(range(6)) and die.dtype is torch.int64


# --- training ---------------------------------------------------------------------------------------------------------


def test_a_training_step_traced_with_its_gradients() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    names = [n for n, _ in model.named_parameters()]

    def step(params, x, y):
        named = dict(zip(names, params, strict=True))
        loss = nn.functional.cross_entropy(torch.func.functional_call(model, named, (x,)), y)
        grads = torch.autograd.grad(loss, params)
        return loss, [p - 0.1 * g for p, g in zip(params, grads, strict=True)]

    params = [p.detach().clone().requires_grad_() for p in model.parameters()]
    x, y = torch.randn(8, 6), torch.randint(0, 4, (8,))
    graph = make_fx(step, tracing_mode="fake")(params, x, y)
    plain = [p.detach() for p in params]
    p = program(graph, (plain, x, y))
    for _ in range(2):
        loss, want = step([q.detach().requires_grad_() for q in plain], x, y)
        got_loss, got = p(plain, x, y)
        assert relative_error(got_loss, loss) < 1e-6
        for g, w in zip(got, want, strict=True):
            assert relative_error(g, w.detach()) < 1e-6
        plain = [g.clone() for g in got]


def test_a_joint_graph_of_forward_and_backward() -> None:
    from torch.export.experimental import _export_forward_backward

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4, 5)

        def forward(self, x, y):
            h = nn.functional.max_pool2d(self.norm(self.conv(x)).relu(), 2)
            return nn.functional.cross_entropy(self.head(h.mean((2, 3))), y)

    torch.manual_seed(0)
    module, x, y = Loss(), torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))
    joint = _export_forward_backward(torch.export.export(module, (x, y)))
    loss, *grads = program(joint, ())(x, y)
    want = module(x, y)
    want.backward()
    assert relative_error(loss, want.detach()) < 1e-6
    for got, parameter in zip(grads, module.parameters(), strict=True):
        assert relative_error(got, parameter.grad) < 2e-5 or parameter.grad.abs().max() < 1e-7
