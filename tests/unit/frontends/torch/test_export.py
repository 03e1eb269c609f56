"""The functional ATen graph: its values are eager's, composites are whole, writes become outputs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree

from neuron_ir.frontends.torch.export import FunctionalProgram, export, functionalize


def op_names(program: FunctionalProgram) -> list[str]:
    return [str(n.target) for n in program.graph.nodes if n.op == "call_function"]


def run(program: FunctionalProgram, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> dict[str, list[Any]]:
    """Run the graph by torch; results by output kind."""
    user = iter(pytree.tree_leaves((args, kwargs or {})))
    signature = program.signature
    inputs = [next(user) if i.kind == "input" else signature.weights[i.target] for i in signature.inputs]
    results = torch.fx.GraphModule(program.owner, program.graph)(*inputs)
    by_kind: dict[str, list[Any]] = {}
    for output, result in zip(signature.outputs, results, strict=True):
        by_kind.setdefault(output.kind, []).append(result)
    return by_kind


def check_against_eager(module: nn.Module, args: tuple[Any, ...], **options: Any) -> FunctionalProgram:
    """The exported program runs the same kernels as eager, so equality is exact."""
    program = functionalize(export(module, copy.deepcopy(args), **options))
    assert not [
        n
        for n in program.graph.nodes
        if n.op == "call_function" and getattr(n.target, "_schema", None) and n.target._schema.is_mutable
    ]
    with torch.no_grad():
        got = run(program, copy.deepcopy(args))["output"]
        want = pytree.tree_leaves(module(*args))
    for g, w in zip(got, want, strict=True):
        if isinstance(w, torch.Tensor):
            torch.testing.assert_close(g, w, rtol=0, atol=0)
        else:
            assert g == w
    return program


class Function(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


X = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))

COMPOSITE_CASES = {
    "aten.softmax.int": lambda x: x.softmax(-1),
    "aten.log_softmax.int": lambda x: x.log_softmax(-1),
    "aten.layer_norm.default": lambda x: nn.functional.layer_norm(x, (8,)),
    "aten.rms_norm.default": lambda x: nn.functional.rms_norm(x, (8,)),
    "aten.group_norm.default": lambda x: nn.functional.group_norm(x, 2),
    "aten.gelu.default": lambda x: nn.functional.gelu(x, approximate="tanh"),
    "aten.silu.default": nn.functional.silu,
    "aten.linear.default": lambda x: nn.functional.linear(x, x),
    "aten.matmul.default": lambda x: x @ x.mT,
    "aten.embedding.default": lambda x: nn.functional.embedding(torch.tensor([1, 0]), x),
    "aten.scaled_dot_product_attention.default": lambda x: nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True),
    "aten.cumsum.default": lambda x: x.cumsum(1),
    "aten.topk.default": lambda x: x.topk(3).values,
    "aten.sort.default": lambda x: x.sort().values,
    "aten.one_hot.default": lambda x: nn.functional.one_hot(x.argmax(1), 8),
    "aten.cross_entropy_loss.default": lambda x: nn.functional.cross_entropy(x, torch.tensor([1, 0])),
    "aten.max_pool2d.default": lambda x: nn.functional.max_pool2d(x.view(1, 1, 4, 4), 2),
    "aten.avg_pool2d.default": lambda x: nn.functional.avg_pool2d(x.view(1, 1, 4, 4), 2),
    "aten.convolution.default": lambda x: nn.functional.conv1d(x, torch.ones(1, 2, 3)),
    "aten.upsample_bilinear2d.vec": lambda x: nn.functional.interpolate(x.view(1, 1, 4, 4), scale_factor=2, mode="bilinear"),
    "aten.histc.default": lambda x: torch.histc(x, 4, -2, 2),
    "aten.linalg_cholesky_ex.default": lambda x: torch.linalg.cholesky(x @ x.mT + 4 * torch.eye(2)),
    "aten._fft_r2c.default": torch.fft.rfft,
}


@pytest.mark.parametrize("name", COMPOSITE_CASES)
def test_composite_stays_whole(name: str) -> None:
    program = check_against_eager(Function(COMPOSITE_CASES[name]), (X,))
    assert name in op_names(program)


DECOMPOSED_CASES = {
    "aten.hardswish.default": nn.functional.hardswish,
    "aten.logaddexp.default": lambda x: torch.logaddexp(x, 2 * x),
    "aten.hstack.default": lambda x: torch.hstack([x, x]),
    "aten.conv2d.default": lambda x: nn.functional.conv2d(x.view(1, 1, 4, 4), torch.ones(1, 1, 2, 2)),
    "aten.mse_loss.default": lambda x: nn.functional.mse_loss(x, x * x),
    "aten.aminmax.default": lambda x: torch.aminmax(x, dim=1),
    "aten.var_mean.dim": lambda x: torch.var_mean(x, 1),
    "aten.quantile.scalar": lambda x: torch.quantile(x, 0.3, 1),  # written with in-place operations inside
}


@pytest.mark.parametrize("name", DECOMPOSED_CASES)
def test_other_operations_are_decomposed_alone(name: str) -> None:
    program = check_against_eager(Function(DECOMPOSED_CASES[name]), (X,))
    assert name not in op_names(program)
    assert not program.retraced


def test_in_place_on_a_private_tensor_needs_no_second_trace() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y += 1
        y.relu_()
        z = torch.empty_like(y)
        z[torch.tensor([1, 0])] = y
        return y - z

    assert not check_against_eager(Function(function), (X,)).retraced


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (lambda y, v: (v.add_(1), y)[1])(y := x * 2, y.view(-1)),  # a write through a view
        lambda x: (lambda y: (v := y[0], y.mul_(3), v)[2])(x + 1),  # a view read after the write
        lambda x: (lambda y: (v := torch.einsum("ij->ji", y), y.mul_(3), v)[2])(x + 1),  # a composite that gives a view
        lambda x: (lambda y: (v := nn.functional.dropout(y, 0.5, False), y.mul_(3), v)[2])(x + 1),
        lambda x: (lambda y: (y.add_(torch.tensor(0.5, dtype=torch.float64)), y)[1])(x + 1),  # keeps float32
        lambda x: (lambda y: (y.copy_(x[0]), y)[1])(x + 1),  # broadcasts into the old shape
        lambda x: (lambda y, n: (y.view(-1).add_(1), n.add_(1), (y, n))[2])(
            x * 2, x + 1
        ),  # beside a private write that is a result
    ],
)
def test_shared_writes_keep_their_meaning(function: Any) -> None:
    check_against_eager(Function(function), (X,))


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("calls", torch.zeros(1))
        self.register_buffer("scale", torch.arange(8.0), persistent=False)
        self.shift = torch.ones(8)

    def forward(self, x: torch.Tensor, flag: bool, count: int, y: torch.Tensor) -> dict[str, Any]:
        self.calls += 1
        y.add_(1)
        with torch.no_grad():
            z = self.scale * 2
        return {"a": self.norm(x) + z + self.shift, "none": None, "count": count, "number": 3.5, "y": y, "rows": x.shape[0]}


def test_mutations_none_and_python_numbers() -> None:
    module = Stateful().train()
    args = (torch.randn(4, 8), True, 7, torch.zeros(2))
    rows = Dim("rows", min=2, max=64)
    program = functionalize(export(module, copy.deepcopy(args), dynamic_shapes=({0: rows}, None, None, None)))
    assert program.retraced
    got = run(program, copy.deepcopy(args))
    want = module(*args)
    assert [o.target for o in program.signature.mutations] == [
        "calls", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "y",
    ]  # fmt: skip
    after = [module.calls, module.norm.running_mean, module.norm.running_var, module.norm.num_batches_tracked]
    for mine, eager in zip(got["mutated_buffer"], after, strict=True):
        torch.testing.assert_close(mine, eager)
    torch.testing.assert_close(got["mutated_input"][0], args[3], rtol=0, atol=0)
    assert [o.value for o in program.signature.user_outputs if o.is_fixed] == [None, 7, 3.5]
    torch.testing.assert_close(got["output"][0], want["a"])
    assert got["output"][1:4] == [None, 7, 3.5] and got["output"][5] == 4
    assert [(i.value, i.is_fixed) for i in program.signature.user_inputs[1:3]] == [(True, True), (7, True)]


def test_regions_that_switch_modes_are_inlined_with_their_lines() -> None:
    class Modes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", enabled=False):
                y = x @ x.mT
            with torch.no_grad():
                z = y.exp()
            return y + z

    program = check_against_eager(Modes(), (X,))
    assert not program.retraced
    assert not [n for n in program.graph.nodes if n.op == "get_attr"]


def test_autocast_casts_inside_the_graph() -> None:
    class Cast(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return x @ x.mT

    program = functionalize(export(Cast(), (X,)))
    assert program.retraced and "aten._to_copy.default" in op_names(program)
    torch.testing.assert_close(run(program, (X,))["output"][0], Cast()(X), rtol=0, atol=0)


def test_dynamic_sizes_survive_the_decomposition_of_one_node() -> None:
    rows = Dim("rows", min=1, max=64)
    program = functionalize(export(lambda x: torch.hstack([nn.functional.hardswish(x), x]), (X,), dynamic_shapes=({0: rows},)))
    wide = torch.randn(5, 8)
    want = torch.hstack([nn.functional.hardswish(wide), wide])
    torch.testing.assert_close(run(program, (wide,))["output"][0], want, rtol=0, atol=0)
    assert [(r.lower, r.upper) for r in program.ranges.values()] == [(1, 64)]


@pytest.mark.parametrize("write", [False, True])
def test_an_argument_named_like_a_builtin_keeps_its_name(write: bool) -> None:
    def function(input: torch.Tensor) -> torch.Tensor:
        return input.add_(1) if write else input + 1

    program = functionalize(export(function, (X.clone(),)))
    placeholder = next(n for n in program.graph.nodes if n.op == "placeholder")
    assert placeholder.name == program.signature.user_inputs[0].name == "input"
    torch.testing.assert_close(run(program, (X,))["output"][0], X + 1, rtol=0, atol=0)


def test_the_users_program_is_left_alone() -> None:
    exported = export(Function(lambda x: nn.functional.hardswish(x) * 2), (X,))
    before = str(exported.graph)
    functionalize(exported)
    assert str(exported.graph) == before
    torch.testing.assert_close(exported.module()(X), nn.functional.hardswish(X) * 2)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="must be a tuple, got Tensor"):
        export(nn.Identity(), X)
    with pytest.raises(TypeError, match="got int"):
        export(3, (X,))
    with pytest.raises(TypeError, match="give it alone"):
        export(export(nn.Identity(), (X,)), (X,))


def test_one_example_tensor_in_two_places_stays_two_inputs() -> None:
    ones, other = torch.ones(2), torch.full((2,), 3.0)
    program = functionalize(export(lambda x, y: x - 2 * y, (ones, ones)))
    torch.testing.assert_close(run(program, (ones, other))["output"][0], torch.full((2,), -5.0))
    layer = nn.Linear(2, 2, bias=False)
    program = functionalize(export(layer, (layer.weight,)))
    torch.testing.assert_close(run(program, (torch.eye(2),))["output"][0], layer.weight.T)
