"""Draws by attempts have torch's distributions: compared with moments and chances, which are known."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import neuron_ir
from neuron_ir import IRError

N = 40000


def program(rate: Any, count: Any, chance: Any, alpha: Any) -> Any:
    return torch.poisson(rate), torch.binomial(count, chance), torch._standard_gamma(alpha), torch._sample_dirichlet(alpha)


def inputs() -> tuple[Any, ...]:
    rate, chance = torch.tensor([0.0, 0.7, 30.0, 600.0]), torch.tensor([0.0, 0.3, 0.9, 1.0])
    return tuple(x.expand(N, -1).contiguous() for x in (rate, torch.full((4,), 12.0), chance, torch.tensor([0.2, 1.0, 7.5])))


def test_draws_have_torchs_distributions() -> None:
    given = inputs()
    run = neuron_ir.compile(neuron_ir.from_torch(program, given, seed=3))
    events, successes, gammas, shares = (v.double() for v in run(*given))
    rate, count, chance, alpha = (x[0].double() for x in given)
    for drawn, mean, variance in (
        (events, rate, rate),
        (successes, count * chance, count * chance * (1 - chance)),
        (gammas, alpha, alpha),
        (shares, alpha / alpha.sum(), alpha * (alpha.sum() - alpha) / (alpha.sum() ** 2 * (alpha.sum() + 1))),
    ):
        error = (variance / N).sqrt() * 4 + 1e-9  # four deviations of a mean of N draws
        assert ((drawn.mean(0) - mean).abs() < error).all()
        torch.testing.assert_close(drawn.var(0), variance, rtol=0.05, atol=1e-4)
    assert torch.equal(events, events.round()) and torch.equal(successes, successes.round())
    torch.testing.assert_close((events[:, 1] == 0).double().mean(), (-rate[1]).exp(), rtol=0, atol=0.01)
    torch.testing.assert_close(
        (successes[:, 1] == 3).double().mean(), 220 * chance[1] ** 3 * (1 - chance[1]) ** 9, rtol=0, atol=0.01
    )
    low = torch.special.gammainc(alpha, alpha)  # the chance of a draw below the mean
    torch.testing.assert_close((gammas < alpha).double().mean(0), low, rtol=0, atol=0.01)
    torch.testing.assert_close(shares.sum(1), torch.ones(N, dtype=torch.float64))


def test_parameters_outside_are_refused() -> None:
    given = [x[:1].clone() for x in inputs()]
    run = neuron_ir.compile(neuron_ir.from_torch(program, tuple(given)))
    for place, value, message in (
        (0, -1.0, "a rate in"),
        (2, 1.5, "a chance in"),
        (1, 5000.0, "so many trials"),
        (3, -1.0, "a parameter"),
    ):
        wrong = [x.clone() for x in given]
        wrong[place][0, 1] = value
        with pytest.raises(IRError, match=message):
            run(*wrong)
