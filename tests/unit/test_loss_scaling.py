"""Loss scaling by hand, with arrays of NumPy and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from neuron_ir import IRError, LossScaler


def test_small_gradients_of_f16_come_back_in_f32() -> None:
    scaler = LossScaler(scale=2.0**10)
    assert scaler.scaled(torch.tensor(3.0)).item() == 3072
    gradients, finite = scaler.unscale([torch.tensor([2.0**-24], dtype=torch.float16), np.float16([2.0**-24]), torch.ones(0)])
    assert finite and gradients[0].item() == gradients[1][0] == 2.0**-34


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_an_overflow_halves_the_scale_and_quiet_steps_double_it(bad: float) -> None:
    scaler = LossScaler(scale=8, interval=2)
    _, finite = scaler.unscale([np.float32([1]), np.float32([1, bad])])
    assert not finite
    scaler.update(finite)
    assert scaler.state() == {"scale": 4, "steps": 0}
    for _ in range(2):
        scaler.update(True)
    assert scaler.scale == 8
    other = LossScaler()
    other.restore(scaler.state())
    assert other.scale == 8


def test_mistakes_are_named() -> None:
    with pytest.raises(IRError, match="a scale above 0"):
        LossScaler(scale=0)
    scaler = LossScaler(scale=2.0**-1022)
    with pytest.raises(IRError, match="the gradients are not finite at any scale"):
        for _ in range(3):
            scaler.update(False)
