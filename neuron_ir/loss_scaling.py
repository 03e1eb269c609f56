"""Loss scaling: keeps small gradients above the smallest numbers of f16."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from neuron_ir.diagnostics import fail

__all__ = ["LossScaler"]

_LARGEST = 2.0**64  # far above any use, far below the largest f32


class LossScaler:
    """Multiplies the loss by a power of two before the gradients are taken, and finds the largest that does not overflow.

    One step: ``scaled(loss)``, gradients of that, ``unscale`` them, update the parameters if they are finite, ``update``. An
    overflow multiplies the scale by ``backoff``; ``interval`` steps without one multiply it by ``growth``. Arrays are of torch, JAX
    or NumPy.
    """

    def __init__(self, scale: float = 2.0**16, growth: float = 2.0, backoff: float = 0.5, interval: int = 2000):
        if not (0 < scale <= _LARGEST and growth >= 1 and 0 < backoff < 1 and interval >= 1):
            given = f"scale = {scale:g}, growth = {growth:g}, backoff = {backoff:g}, interval = {interval}"
            raise fail("precision", f"a scale above 0, growth >= 1, 0 < backoff < 1 and interval >= 1 are needed, not {given}")
        self.scale, self.growth, self.backoff, self.interval = float(scale), growth, backoff, interval
        self.steps = 0  # without an overflow

    def scaled(self, loss: Any) -> Any:
        """The loss to take the gradients of."""
        return loss * self.scale

    def unscale(self, gradients: Iterable[Any]) -> tuple[list[Any], bool]:
        """The gradients of the loss itself, in f32 at least, and whether all are finite: if not, leave the step out."""
        made = [_wide(g) / self.scale for g in gradients]
        return made, all(bool((abs(g) < math.inf).all()) for g in made)

    def update(self, finite: bool) -> None:
        """Choose the scale of the next step, by whether this one was finite."""
        self.steps = self.steps + 1 if finite else 0
        if not finite:
            self.scale *= self.backoff
        elif self.steps >= self.interval:
            self.scale, self.steps = min(self.scale * self.growth, _LARGEST), 0
        if not self.scale > 0 or math.isinf(1 / self.scale):
            raise fail("precision", "the loss scale has fallen to 0: the gradients are not finite at any scale")

    def state(self) -> dict[str, float]:
        """What to save with a checkpoint."""
        return {"scale": self.scale, "steps": self.steps}

    def restore(self, state: Mapping[str, float]) -> None:
        """Go on from a saved state."""
        self.scale, self.steps = float(state["scale"]), int(state["steps"])


def _wide(gradient: Any) -> Any:
    """f16 and bf16 in f32, where the division by the scale does not lose small numbers."""
    if gradient.dtype.itemsize >= 4:
        return gradient
    return gradient.float() if hasattr(gradient, "float") else gradient.astype("float32")
