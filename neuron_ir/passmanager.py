"""Runs passes over a module. Everything beside running them (verifying, printing, timing) is an :mod:`neuron_ir.instrument`."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from neuron_ir.core import Func, Module, bulk
from neuron_ir.diagnostics import IRError, fail

if TYPE_CHECKING:
    from neuron_ir.instrument import Instrument

__all__ = ["Context", "FuncPass", "Pass", "PassManager", "PassRecord", "option", "run_passes"]


def option(default: Any, help: str, choices: Sequence[Any] = ()) -> Any:
    """A field of a pass: its default, its help, and its values where they are a closed set."""
    return dataclasses.field(default=default, metadata={"help": help, "choices": tuple(choices)})


@dataclass(frozen=True)
class Pass:
    """A transformation of a module. A subclass is a frozen dataclass in a file of its own, ``passes/<name>.py``.

    Fields made with :func:`option` are the options, the docstring is the help. ``exact``: every result keeps its bits; otherwise
    results may differ by ``rtol``, relative to the largest magnitude in the result.
    """

    name: ClassVar[str] = ""
    exact: ClassVar[bool] = True
    rtol: ClassVar[float] = 0.0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in vars(cls):
            cls.name = cls.__module__.rpartition(".")[2]

    def run(self, module: Module, ctx: Context) -> None:
        """Transform ``module`` in place."""
        raise NotImplementedError


@dataclass(frozen=True)
class FuncPass(Pass):
    """A pass that changes one function at a time; only these may stand inside ``func(...)``."""

    def run(self, module: Module, ctx: Context) -> None:
        for func in list(module.funcs.values()):
            self.run_func(func, ctx)

    def run_func(self, func: Func, ctx: Context) -> None:
        """Transform one function in place."""
        raise NotImplementedError


@dataclass
class PassRecord:
    """What one pass did in one run: seconds, counts of what it changed, counts of what it declined by reason."""

    name: str
    seconds: float = 0.0
    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    declines: Counter[str] = dataclasses.field(default_factory=Counter)


class Context:
    """What passes report to; ``records`` has one entry per pass that ran, in order."""

    def __init__(self) -> None:
        self.records: list[PassRecord] = []

    @property
    def record(self) -> PassRecord:
        """The record of the pass that runs now."""
        return self.records[-1]

    def begin(self, name: str) -> PassRecord:
        """Open the record of the next pass."""
        self.records.append(PassRecord(name))
        return self.records[-1]

    def count(self, what: str, n: int = 1) -> None:
        """Note that the pass did ``what``."""
        if n:
            self.record.counts[what] += n

    def decline(self, reason: str) -> None:
        """Note that the pass left something as it was, and why."""
        self.record.declines[reason] += 1


class PassManager:
    """Runs ``passes`` in order; ``instruments`` see the module before and after each.

    An error in a pass, expected or not, comes out as an :class:`IRError` that names the pass; the module is then in an unspecified
    state and must be thrown away.
    """

    def __init__(self, passes: Iterable[Pass], instruments: Iterable[Instrument] = ()):
        self.passes = list(passes)
        self.instruments = list(instruments)

    def run(self, module: Module, ctx: Context | None = None) -> Context:
        """Transform ``module`` in place; gives the context with what each pass reported."""
        ctx = ctx or Context()
        for hook in self.instruments:
            hook.start(self.passes, module)
        for index, p in enumerate(self.passes):
            self._run_one(index, p, module, ctx)
        for hook in self.instruments:
            hook.finish(module, ctx)
        return ctx

    def _run_one(self, index: int, p: Pass, module: Module, ctx: Context) -> None:
        record = ctx.begin(p.name)
        try:
            for hook in self.instruments:
                hook.before(index, p, module)
            start = time.perf_counter()
            with bulk():
                p.run(module, ctx)
            record.seconds = time.perf_counter() - start
            for hook in self.instruments:
                hook.after(index, p, module)
            return
        except IRError as error:
            failure = _named(error, p)
        except Exception as error:
            failure = _crash(error, p)
        for hook in self.instruments:
            failure = hook.failed(index, p, module, failure) or failure
        raise failure


def _named(error: IRError, p: Pass) -> IRError:
    """The same diagnostics, each with a note that names the pass."""
    note = f"in pass {p.name}"
    named = IRError([dataclasses.replace(d, notes=(*d.notes, note)) for d in error.diagnostics])
    named.__cause__ = error
    return named


def _crash(error: Exception, p: Pass) -> IRError:
    """A defect of the pass itself, with the place where it happened."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = f" at {frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame is not None else ""
    failure = fail("pass", f"pass {p.name} crashed: {type(error).__name__}: {error}", notes=[f"raised{place}"])
    failure.__cause__ = error
    return failure


def run_passes(module: Module, pipeline: str, verify: bool = True) -> Context:
    """Run a pipeline's text, such as ``"O2"`` or ``"cse,fuse{max-ops=16}"``, on ``module`` in place; ``verify`` after each pass."""
    from neuron_ir.instrument import VerifyEach
    from neuron_ir.pipeline import parse_pipeline

    if not isinstance(pipeline, str):
        raise fail("pass", f"a pipeline is text, such as 'O2' or 'cse,dce', not {pipeline!r}")
    return PassManager(parse_pipeline(pipeline), [VerifyEach()] if verify else []).run(module)
