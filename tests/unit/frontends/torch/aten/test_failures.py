"""Matrices that have no inverse, solution or factorisation: refused where torch refuses, with the matrix and the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import linalg

import neuron_ir
from neuron_ir import IRError

GOOD = torch.eye(3) * 2 + 0.1
SINGULAR = torch.tensor([[1.0, 2, 0], [2, 4, 0], [0, 0, 1]])
INDEFINITE = torch.diag(torch.tensor([1.0, 1, -1]))
NAN = torch.full((3, 3), float("nan"))
B = torch.ones(3, 1)


def program(function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    return neuron_ir.compile(neuron_ir.from_torch(function, inputs, **options))


# The function, a matrix that it refuses, and the message.
CASES: list[tuple[Callable[[Any], Any], Any, str]] = [
    (lambda x: torch.inverse(x), SINGULAR, "linalg.inv: {}the diagonal element 2 is zero"),
    (lambda x: linalg.solve(x, B), SINGULAR, "torch.linalg.solve: {}the diagonal element 2 of U is zero"),
    (lambda x: linalg.cholesky(x), INDEFINITE, "linalg.cholesky: {}the leading minor of order 3 is not positive-definite"),
    (lambda x: torch.cholesky(x, upper=True), INDEFINITE, "cholesky: {}the leading minor of order 3 is not positive-definite"),
    (lambda x: linalg.inv_ex(x, check_errors=True)[0], SINGULAR, "linalg.inv_ex: {}the diagonal element 2 is zero"),
    (lambda x: linalg.eigvalsh(x), NAN, "linalg.eigh: {}the algorithm did not converge"),
    (lambda x: linalg.svdvals(x), NAN, "linalg.svd: {}the algorithm did not converge"),
    (lambda x: linalg.eig(x)[0], NAN, "linalg.eig: {}an element is not finite"),
]


def test_batches_are_refused_where_torch_refuses_them_by_the_place_of_the_matrix() -> None:
    good = torch.stack([GOOD, GOOD, GOOD])
    run = program(lambda *given: [f(x) for (f, _, _), x in zip(CASES, given, strict=True)], *[good.clone() for _ in CASES])
    run(*[good] * len(CASES))
    given = [torch.stack([GOOD, bad, bad]) for _, bad, _ in CASES]
    for (function, _, _), x in zip(CASES, given, strict=True):
        with pytest.raises(RuntimeError):
            function(x)
    with pytest.raises(IRError) as refused:
        run(*given)
    for diagnostic, (_, _, message) in zip(refused.value.diagnostics, CASES, strict=True):
        assert diagnostic.message.startswith("neuron.check: " + message.format("matrix 1 of the batch: "))
        assert "test_failures.py" in str(diagnostic.loc)


def test_one_matrix_is_refused_without_a_place() -> None:
    run = program(lambda x, y: (linalg.lu_factor(x), torch.cholesky_inverse(y)), SINGULAR, GOOD)
    with pytest.raises(IRError, match=r"lu_factor: U\[2,2\] is zero(?s:.*)cholesky_inverse: the diagonal element 1 is zero"):
        run(SINGULAR, torch.zeros(3, 3))


def test_numbers_of_the_ex_forms_are_those_of_torch() -> None:
    given = torch.stack([GOOD, INDEFINITE, -GOOD, torch.ones(3, 3), NAN])

    def numbers(x: Any, y: Any) -> Any:
        return (
            linalg.cholesky_ex(x)[1], linalg.cholesky_ex(x.mT, upper=True)[1], linalg.inv_ex(x)[1],
            linalg.solve_ex(x, B)[1], linalg.lu_factor_ex(x)[2], linalg.ldl_factor_ex(y)[2], linalg.slogdet(x)[0],
        )  # fmt: skip

    symmetric = torch.stack([GOOD, torch.zeros(3, 3), torch.diag(torch.tensor([1.0, 0, -1]))])
    for actual, expected in zip(program(numbers, given, symmetric)(given, symmetric), numbers(given, symmetric), strict=True):
        assert torch.equal(actual, expected) and actual.dtype is expected.dtype


def test_the_order_of_a_minor_is_found_in_matrices_of_any_size() -> None:
    n, at = torch.export.Dim("n", min=2), 5
    run = program(lambda x: linalg.cholesky_ex(x)[1], torch.eye(4), dynamic_shapes=({0: n, 1: n},))
    for size in (6, 9):
        x = torch.eye(size)
        x[at, at] = 0
        assert run(x) == linalg.cholesky_ex(x)[1] == at + 1


class Counted(torch.nn.Module):
    """An inverse beside state, for which torch orders its checks by tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.calls.add_(1)
        return linalg.inv(x)


def test_a_refused_call_leaves_the_state_as_it_was() -> None:
    run = program(Counted(), GOOD)
    torch.testing.assert_close(run(GOOD), linalg.inv(GOOD))
    with pytest.raises(IRError, match="the diagonal element 2 is zero"):
        run(SINGULAR)
    assert run.state["calls"] == 1


def test_compiled_functions_are_refused_too_and_have_gradients() -> None:
    compiled = torch.compile(lambda x: linalg.inv(x).sum(), backend="neuron")
    x, y = GOOD.clone().requires_grad_(), GOOD.clone().requires_grad_()
    compiled(x).backward()
    linalg.inv(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    with pytest.raises(IRError, match="the diagonal element 2 is zero"):
        compiled(SINGULAR.clone().requires_grad_())


def test_a_histogram_between_the_bounds_of_its_elements_wants_them_finite() -> None:
    compiled = program(lambda x, y: (torch.histc(x, 4), torch.histc(y, 3, 1, 1)), torch.ones(4), torch.ones(2))
    for x, y in (([1.0, 2, 3, 3], [5.0, 5]), ([0.0, 0, 0, 0], [1.0, 2])):
        want = torch.histc(torch.tensor(x), 4), torch.histc(torch.tensor(y), 3, 1, 1)
        for got, w in zip(compiled(torch.tensor(x), torch.tensor(y)), want, strict=True):
            assert torch.equal(torch.as_tensor(got), w)
    with pytest.raises(IRError, match="histc: an element is not finite"):
        compiled(torch.tensor([1.0, float("nan"), 0, 0]), torch.ones(2))


def test_windows_that_leave_a_gap_are_refused_as_in_torch() -> None:
    frames, window = torch.ones(3, 2, dtype=torch.complex64), torch.tensor([0.0, 1, 1, 1])

    def signal(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        return torch.istft(x, 4, 4, window=window, center=False)

    run = program(signal, frames, window)
    torch.testing.assert_close(run(frames, window + 1), signal(frames, window + 1))
    with pytest.raises(RuntimeError):
        signal(frames, window)
    with pytest.raises(IRError, match=r"aten.istft.default: the squares of the overlapping windows add up to less than 1e-11"):
        run(frames, window)
