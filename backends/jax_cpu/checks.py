"""Conditions that a program states while it is traced, such as an index in range, and that only its run can tell.

A condition at the program's own level becomes one more result, looked at when the run ends. Inside a loop or branch there is no
such way out, so the run calls back when the condition fails there. A function on the host that raises ends the run, as a loop that
waits for its result might not end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from neuron_ir.backends.jax_cpu._compat import RunEnded
from neuron_ir.core import Module, Op
from neuron_ir.diagnostics import Diagnostic, IRError
from neuron_ir.meaning import Meaning

__all__ = ["CheckedMeaning", "Checks"]


class Checks:
    """The conditions of one executable: those that are results, in order, and the failures that runs have called back.

    ``counts`` says of each of ``diagnostics`` how many values its message is filled with; they follow its flag.
    """

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        self.counts: list[int] = []
        self.failures: list[Diagnostic] = []
        self.calls_back = False

    def clear(self) -> None:
        """Forget the conditions, which a new trace states again."""
        self.diagnostics.clear()
        self.counts.clear()

    def raise_failed(self, flags: Sequence[Any]) -> None:
        """Raise :class:`IRError` with every condition that did not hold in the run that gave ``flags``."""
        given, failed = iter(flags), []
        for diagnostic, count in zip(self.diagnostics, self.counts, strict=True):
            holds, values = next(given), [next(given) for _ in range(count)]
            if not holds:
                failed.append(_filled(diagnostic, values))
        if failed or self.failures:
            self.raise_failures(failed)

    def raise_failures(self, found: Sequence[Diagnostic] = ()) -> None:
        """Raise :class:`IRError` with what was found and what the run has called back."""
        failed = [*found, *self.failures]
        self.failures.clear()
        raise IRError(list(dict.fromkeys(failed)))


class CheckedMeaning(Meaning):
    """The namespace of facets while a program is traced: conditions are kept instead of tested."""

    def __init__(self, resources: Callable[[str], Any], module: Module, checks: Checks, guards: Callable[..., Any] | None = None):
        from jax.extend.core import get_opaque_trace_state

        super().__init__(resources, module)
        self.checks = checks
        self.flags: list[Any] = []
        self._guards = guards
        self._level = get_opaque_trace_state
        self._top = get_opaque_trace_state()

    def guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._guards(function) if self._guards is not None else function

    def require(self, ok: Any, message: str, values: Sequence[Any] = ()) -> None:
        diagnostic = _diagnostic(self.op, message)
        holds = self.np.all(ok)
        if self._level() == self._top:
            self.checks.diagnostics.append(diagnostic)
            self.checks.counts.append(len(values))
            self.flags += [holds, *values]
            return

        self.checks.calls_back = True

        def note(holds: Any, *values: Any) -> None:
            if not holds:
                self.checks.failures.append(_filled(diagnostic, values))

        self.jax.debug.callback(note, holds, *values)

    def host(self, function: Callable[..., Sequence[Any]], out: Sequence[Any], *operands: Any) -> Sequence[Any]:
        self.checks.calls_back = True
        op = self.op
        name = op.get("call_target_name") if op is not None and op.name == "neuron.custom_call" else "the host"

        def guarded(*arrays: Any) -> Sequence[Any]:
            try:
                return function(*arrays)
            except Exception as error:  # whatever the user's function raises is reported at the user's line, when the run ends
                self.checks.failures.append(_diagnostic(op, f"{name}: {type(error).__name__}: {error}"))
                raise RunEnded from error

        return super().host(guarded, out, *operands)


def _filled(diagnostic: Diagnostic, values: Sequence[Any]) -> Diagnostic:
    """A diagnostic with the values of a run in its message."""
    return replace(diagnostic, message=diagnostic.message.format(*map(int, values))) if values else diagnostic


def _diagnostic(op: Op | None, message: str) -> Diagnostic:
    if op is None:
        return Diagnostic("runtime", message)
    return Diagnostic("runtime", f"{op.name}: {message}", op.loc, (f"see current operation: {op!r}",))
