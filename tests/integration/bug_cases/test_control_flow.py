"""Loops and branches: rounding inside a loop, values that a loop does not change, state around it."""

from __future__ import annotations

import jax
import numpy
import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from tests.integration.bug_cases.judge import check, check_jax, same, torch_programs


def _fold(start: int) -> int:
    for d in (2, 2, -3):
        start //= d
    return start


# seen in jax-ml/jax#9604: 0 inside the loop
@pytest.mark.parametrize("start", [5, -7])
def test_floor_division_in_a_loop(start: int) -> None:
    divisors = numpy.int32([2, 2, -3])

    def fold(x, d):
        return jax.lax.fori_loop(0, 3, lambda i, v: v // d[i], x)

    check_jax(fold, numpy.int32(start), divisors, want=numpy.int32(_fold(start)))
    check_jax(
        lambda x: jax.lax.scan(lambda v, d: (v // d, v % d), x, divisors)[0], numpy.int32(start), want=numpy.int32(_fold(start))
    )


def _loop(cond, body, *start):
    """torch's own loop takes contiguous tensors only."""
    return while_loop(cond, body, tuple(t.contiguous() for t in start))


def _torch_fold(x: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    def body(i, v, d):
        return i + 1, v // d.gather(0, i.view(1))[0], d.clone()

    return _loop(lambda i, v, d: i < 3, body, torch.tensor(0), x, d)[1]


def test_floor_division_in_a_torch_loop() -> None:
    check(_torch_fold, torch.tensor(5), torch.tensor([2, 2, -3]), want=torch.tensor(-1))


# seen in pytorch/xla#8566: unused parameters were dropped in one region only
def test_a_loop_that_changes_one_of_four_values() -> None:
    def unchanged(x, y, a, b):
        return _loop(lambda x, y, a, b: a.sum() > 0, lambda x, y, a, b: (x.clone(), y.clone(), a - 1, b.clone()), x, y, a, b)

    ones = torch.ones(2)
    check(unchanged, ones, torch.zeros(3), torch.full((2,), 4.0), ones * 2)

    def jax_loop(x, y, a, b):
        return jax.lax.while_loop(lambda s: s[2] > 0, lambda s: (s[0], s[1], s[2] - 1, s[3]), (x, y, a, b))

    x, y, b = numpy.float32([1, 2]), numpy.int32([3]), numpy.float32(5)
    check_jax(jax_loop, x, y, numpy.int32(4), b, want=[x, y, numpy.int32(0), b])


def test_a_loop_that_never_runs_gives_its_start() -> None:
    x = numpy.float32([1, 2])
    check_jax(lambda n, x: jax.lax.fori_loop(0, n, lambda i, v: v + 1, x), numpy.int32(0), x, want=x)


# seen in pytorch/pytorch#195327: the stored state was stale from the second call on
def test_state_changed_before_a_loop_that_reads_it() -> None:
    def count(state, limit):
        state.add_(1)
        return _loop(lambda i, s: i < s.sum(), lambda i, s: (i + 1, s.clone()), torch.tensor(0.0), state)[0], limit + state

    check(count, torch.ones(2), torch.zeros(2))


def test_branches_with_views_and_without_operands() -> None:
    def choose(x):
        return torch.cond(x.sum() > 0, lambda v: (v.t()[1].clone(), v * 0 + 1), lambda v: (v[:, 1].clone() - 1, v.clone()), (x,))

    yes = torch.tensor([[1.0, 2], [3, 4]])
    for run in torch_programs(choose, yes):
        for x in (yes, -yes, yes.t(), -yes.t()):
            same(run(x), choose(x))
