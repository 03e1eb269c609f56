"""Operations without a lowering: torch runs them on the host, with a warning; another process refuses them by name."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy
import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop_stack_output_op

import neuron_ir
from neuron_ir import IRError
from neuron_ir.diagnostics import IRWarning

X = torch.linspace(-2, 2, 5)
SEEN: list[float] = []


@torch.library.custom_op("host_test::sine", mutates_args=())
def sine(x: torch.Tensor, scale: float, dtype: torch.dtype) -> torch.Tensor:
    return (torch.from_numpy(numpy.sin(x.float().numpy())) * scale).to(dtype)


@sine.register_fake
def _(x, scale, dtype):
    return torch.empty_like(x, dtype=dtype)


@torch.library.custom_op("host_test::places", mutates_args=())
def places(x: torch.Tensor) -> torch.Tensor:
    return torch.nonzero(x)


@places.register_fake
def _(x):
    return x.new_empty((torch.library.get_ctx().new_dynamic_size(), x.dim()), dtype=torch.int64)


@torch.library.custom_op("host_test::bump", mutates_args=("x", "y"))
def bump(x: torch.Tensor, y: torch.Tensor, by: float) -> torch.Tensor:
    x.add_(by)
    y.mul_(by)
    return x + y


@bump.register_fake
def _(x, y, by):
    return torch.empty_like(x)


@torch.library.custom_op("host_test::note", mutates_args=())
def note(xs: list[torch.Tensor], at: int) -> None:
    if xs[at].isnan().any():
        raise ValueError("NaN is not noted")
    SEEN.append(xs[at].sum().item())


@note.register_fake
def _(xs, at):
    return None


def program(function: Any, *inputs: Any, **options: Any) -> Any:
    """The program of a function, by way of its text."""
    with pytest.warns(IRWarning, match="has no lowering: torch runs it on the host"):
        module = neuron_ir.from_torch(function, inputs, **options)
    again = neuron_ir.parse(module.text(locations=True))
    again.weights = module.weights
    return neuron_ir.compile(again)


def test_results_are_those_of_torch_also_in_a_branch_and_for_narrow_types() -> None:
    def function(x: Any) -> Any:
        y = torch.cond(x.sum() >= 1, lambda x: sine(x, 2.5, torch.float32), lambda x: -x, (x,))
        return y, sine(x, 0.5, torch.bfloat16) + 1

    run = program(function, X, dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
    for x in (X, X + 1, X[:3] + 3):
        for mine, wanted in zip(run(x), function(x), strict=True):
            assert torch.equal(mine, wanted) and mine.dtype is wanted.dtype


def test_sizes_that_the_data_decide_are_asked_for() -> None:
    run = program(lambda x: places(x) * 2, torch.tensor([0.0, 1, 2]))
    for x in ([0.0, 1, 2], [3.0, 4, 5], [0.0, 0, 0]):
        assert torch.equal(run(torch.tensor(x)), places(torch.tensor(x)) * 2)


class Bumped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.arange(15.0).reshape(5, 3) + 1)

    def forward(self, x):
        y = x * 1
        return bump(self.b[1:3], y, 2.0), y, self.b.sum()


def test_written_arguments_take_their_new_values() -> None:
    x, model = torch.ones(2, 3), Bumped()
    run = program(Bumped(), x)
    for _call in range(2):
        torch.testing.assert_close(run(x), model(x))
        torch.testing.assert_close(torch.from_numpy(run.state["b"]), model.b)


def test_effects_come_in_order_and_errors_name_the_operation_and_the_line() -> None:
    def function(x: Any) -> Any:
        note([x, x + 1], 1)
        note([x * 3], 0)
        return x * 2

    SEEN.clear()
    run = program(function, X)
    assert torch.equal(run(X + 1), X * 2 + 2) and SEEN == [10.0, 15.0]
    with pytest.raises(
        IRError, match=r"test_host.py:\d+: error\[runtime\]: .*host_test.note.default: ValueError: NaN is not noted"
    ):
        run(X * float("nan"))


@torch.library.custom_op("host_test::raised", mutates_args=())
def raised(x: torch.Tensor) -> torch.Tensor:
    if x.min() < -100:
        raise ValueError(f"{x.min():.0f} is too low")
    return x + 4


@raised.register_fake
def _(x):
    return torch.empty_like(x)


def test_a_function_that_raises_ends_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    """The loop waits for its result, and would not end without it."""
    run = program(lambda x: torch.while_loop(lambda x: x.sum() < 20, lambda x: (raised(x),), (x,)), X)
    for _call in range(2):
        with pytest.raises(IRError, match=r"test_host.py:\d+: error\[runtime\]: .*raised.default: ValueError: -1002 is too low"):
            run(X - 1000)
        torch.testing.assert_close(run(X), (X + 4,))
    assert "Traceback" not in capfd.readouterr().err


def test_a_loop_that_runs_twice_holds_no_such_operation() -> None:
    def function(x: Any) -> Any:
        return while_loop_stack_output_op(lambda x: x.sum() < 20, lambda x: (sine(x, 1.0, torch.float32) + 4,), (x,), ())

    with (
        pytest.warns(IRWarning),
        pytest.raises(IRError, match="an operation that torch runs on the host, in a loop that runs twice"),
    ):
        neuron_ir.from_torch(function, (X,))


@torch.library.custom_op("host_test::parted", mutates_args=())
def parted(x: torch.Tensor) -> tuple[list[torch.Tensor], int]:
    return [x[:2] * 1, x[2:] * 2], 7 if x.sum() > 0 else 8


@parted.register_fake
def _(x):
    return [x[:2] * 1, x[2:] * 2], 7


def test_nested_results_and_numbers_which_must_be_those_of_the_fake_implementation() -> None:
    run = program(lambda x: (*parted(x)[0], parted(x)[1]), X)
    first, second, number = run(X + 1)
    assert torch.equal(first, X[:2] + 1) and torch.equal(second, X[2:] * 2 + 2) and number == 7
    with pytest.raises(
        IRError, match=r"host_test.parted.default: ValueError: it gives \[8\] where its fake implementation gives \[7\]"
    ):
        run(X - 1)


def test_compiled_functions_run_it_too() -> None:
    with pytest.warns(IRWarning, match="has no lowering"):
        given = torch.compile(lambda x: sine(x, 2.0, torch.float32) * 2, backend="neuron")(X)
    torch.testing.assert_close(given, sine(X, 2.0, torch.float32) * 2)


def test_another_process_refuses_the_program_by_name() -> None:
    module = neuron_ir.from_torch(lambda x: sine(x, 2.0, torch.float32), (X,))
    code = "import sys, numpy, neuron_ir; neuron_ir.compile(neuron_ir.parse(sys.stdin.read()))(numpy.zeros(5, 'float32'))"
    found = subprocess.run([sys.executable, "-c", code], input=module.text(), capture_output=True, text=True, timeout=300)
    assert "the target 'torch.ops.host_test.sine.default' has no meaning here" in found.stderr
