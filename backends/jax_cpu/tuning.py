"""The cheapest precision policy whose results stay within a bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from neuron_ir.backends.jax_cpu.error_report import Inputs, Trial
from neuron_ir.core import Module
from neuron_ir.cost import cost_of
from neuron_ir.diagnostics import fail
from neuron_ir.precision_policy import PrecisionPolicy
from neuron_ir.target import target

__all__ = ["tune_precision"]


def tune_precision(module: Module, inputs: Inputs, max_error: float, *, target: str = "", attempts: int = 40) -> PrecisionPolicy:
    """The policy with the least time on the Tensor engine whose results on ``inputs`` differ from float64 by at most ``max_error``,
    relative to the largest value of each result.

    All products start in the target's fp8 (mxfp8 on trn3); the most damaging go to bf16, then to their own precision, as few as
    reach the bound, found by halving; then each that was raised is tried lower again, those with most work first. At most
    ``attempts`` policies are run, so the answer is the cheapest of those tried. The policy lists products by the names of their
    values in the module's text. Raises :class:`IRError` (``precision``) where the bound is below the error of the program itself.
    """
    if not max_error > 0:
        raise fail("precision", f"max_error must be positive, not {max_error}")
    return _Search(Trial(module, inputs), max_error, target, attempts).cheapest()


class _Search:
    """Halving over the most damaging products, with a limit on the number of runs."""

    def __init__(self, trial: Trial, bound: float, name: str, attempts: int):
        self.trial, self.bound, self.attempts = trial, bound, attempts
        self.target = name or str(trial.sized.attrs.get("target", "trn2"))
        self.known: dict[str, float] = {}

    def cheapest(self) -> PrecisionPolicy:
        """Raise products as far as is needed, then lower what need not have been raised."""
        policy = self.raised(self.eight_bits(), "bf16_names") if target(self.target).fp8_matmul_speedup > 1 else None
        if policy is None:
            policy = self.raised(PrecisionPolicy(dtype="bf16"), "keep_names")
        if policy is None:
            least = self.error(PrecisionPolicy(dtype="bf16", keep_names=("*",)))
            raise fail(
                "precision", f"max_error = {self.bound:g} is below {least:.3g}, the error of the program in its own precision"
            )
        return policy

    def eight_bits(self) -> PrecisionPolicy:
        """Everything in the target's fastest 8 bits."""
        blocks = target(self.target).fp8.name == "f8e4m3fn"
        return PrecisionPolicy(dtype="mxfp8" if blocks else "fp8", target=self.target)

    def error(self, policy: PrecisionPolicy) -> float:
        """The error of a policy; each is run once."""
        if policy.text not in self.known:
            self.known[policy.text] = self.trial.error(policy)
        return self.known[policy.text]

    def fits(self, policy: PrecisionPolicy) -> bool:
        return self.error(policy) <= self.bound

    def raised(self, base: PrecisionPolicy, field: str) -> PrecisionPolicy | None:
        """``base`` with as few products raised as reach the bound; ``None`` where even all of them do not."""
        if self.fits(base):
            return base
        worst = [row.value for row in self.trial.report(base).rows if row.lowered]

        def with_raised(names: Sequence[str]) -> PrecisionPolicy:
            return replace(base, **{field: tuple(names)})  # type: ignore[arg-type]

        if not worst or not self.fits(with_raised(worst)):
            return None
        low, high = 0, len(worst)  # ``high`` fits, ``low`` does not
        while high - low > 1 and len(self.known) < self.attempts:
            middle = (low + high) // 2
            low, high = (low, middle) if self.fits(with_raised(worst[:middle])) else (middle, high)
        return self.lowered_again(worst[:high], with_raised)

    def lowered_again(self, names: list[str], with_raised: Callable[[Sequence[str]], PrecisionPolicy]) -> PrecisionPolicy:
        """Take names off again, those with most work first, as long as the rest fits."""
        work = {self.trial.names[op.results[0]]: _flops(op) for op in self.trial.positions if "matmul" in op.spec.traits}
        for name in sorted(names, key=lambda n: -work.get(n, 0)):
            if len(self.known) >= self.attempts:
                break
            without = [n for n in names if n != name]
            if self.fits(with_raised(without)):
                names = without
        return with_raised(names)


def _flops(op: Any) -> int:
    """The work of a product, expanded where the op itself does not say."""
    return int(cost_of(op).flops)
