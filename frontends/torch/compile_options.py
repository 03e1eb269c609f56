"""The options of ``torch.compile(model, backend="neuron", options={...}, mode=...)``."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from neuron_ir.backends.base import backend
from neuron_ir.diagnostics import IRError, fail, nearest
from neuron_ir.files import write_text
from neuron_ir.frontends.torch import _compat
from neuron_ir.pipeline import parse_pipeline

__all__ = ["MODES", "CompileOptions", "graph_name", "is_unsupported"]

MODES = {
    "default": "O1",
    "reduce-overhead": "O1",
    "max-autotune": "O3",
    "max-autotune-no-cudagraphs": "O3",
}

_FALLBACKS = ("error", "eager")
_numbers = itertools.count()


def _option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class CompileOptions:
    """What a user may choose; each field is an option of that name."""

    pipeline: str = _option("O1", "the passes, as text or a named pipeline; the default follows `mode`")
    precision: str = _option("", "run `precision` first: `bf16`, or its options as text: `dtype=bf16 keep-ops=linear`")
    target: str = _option("reference", "the target to compile for")
    seed: int | None = _option(None, "where random numbers start; by default at torch's own initial seed")
    dump_dir: str = _option("", "write each graph, and its IR before and after the passes, to a folder of its own in this one")
    verify: bool | float = _option(
        False, "run each graph with torch too; name the first operation that differs (by a number: the rtol)"
    )
    fallback: str = _option("error", "what becomes of a graph with an unsupported operation: `error`, or `eager`: torch runs it")

    @classmethod
    def of(cls, options: Mapping[str, Any] | None, mode: str | None) -> CompileOptions:
        """The options given by the user, checked. Raises :class:`IRError` (``pass``) for an unknown one."""
        if mode is not None and mode not in MODES:
            raise fail("pass", f"the neuron backend has no mode {mode!r}{nearest(mode, MODES)}; it has {', '.join(MODES)}")
        known = [f.name for f in fields(cls)]
        for name in options or {}:
            if name not in known:
                raise fail("pass", f"the neuron backend has no option {name!r}{nearest(name, known)}; it has {', '.join(known)}")
        chosen = cls(**{"pipeline": MODES[mode or "default"], **(options or {})})
        if chosen.fallback not in _FALLBACKS:
            raise fail("pass", f"the option fallback is one of {', '.join(_FALLBACKS)}, not {chosen.fallback!r}")
        if not isinstance(chosen.verify, bool | float):
            raise fail("pass", f"the option verify is true, false or a relative tolerance, not {chosen.verify!r}")
        backend(chosen.target)
        return chosen

    @property
    def passes(self) -> str:
        """The whole pipeline's text."""
        return ",".join(p for p in (self._lowering, self.pipeline) if p)

    @property
    def _lowering(self) -> str:
        """The pass ``precision`` as text, or nothing."""
        text = self.precision if "=" in self.precision else f"dtype={self.precision}"
        return f"precision{{{text}}}" if self.precision else ""

    @property
    def rtol(self) -> float:
        """The relative tolerance of ``verify``: the one given, or one for a chain of products in the precision asked for."""
        if not isinstance(self.verify, bool):
            return self.verify
        return max((2.5 * p.rtol for p in parse_pipeline(self._lowering)), default=1e-4)

    def folder(self, kind: str, name: str) -> Path | None:
        """The folder of one graph, where one was asked for, here or by torch's own switch ``TORCH_COMPILE_DEBUG=1``."""
        folder = self.dump_dir
        if not folder and os.environ.get("TORCH_COMPILE_DEBUG") == "1":
            folder = os.path.join(_compat.get("get_debug_dir")(), "neuron")
        return Path(folder) / f"{name}_{kind}" if folder else None

    def dump(self, kind: str, name: str, file: str, text: Callable[[], str]) -> None:
        """Write a file of one graph to its folder, where it has one."""
        folder = self.folder(kind, name)
        if folder:
            write_text(folder / file, text(), make_folder=True)


def graph_name() -> str:
    """A new name for a graph: graphs are numbered in the order in which a process compiles them."""
    return f"graph_{next(_numbers):03d}"


def is_unsupported(error: IRError) -> bool:
    """Whether an import was refused for what the program holds, and not for a mistake of the caller's."""
    return all(d.code == "unsupported" for d in error.diagnostics)
