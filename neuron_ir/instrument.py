"""What watches a pipeline: hooks before and after each pass that verify, print, time, count, or save what replaying it needs."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TextIO

from neuron_ir.core import Module
from neuron_ir.diagnostics import IRError, fail
from neuron_ir.files import write_text
from neuron_ir.passmanager import Context, Pass

__all__ = [
    "CrashReproducer", "Instrument", "PrintIR", "PrintTree", "Statistics", "Timing", "VerifyEach", "VerifyRoundtrip",
]  # fmt: skip


class Instrument:
    """Does nothing at each hook. An exception from ``before`` or ``after`` counts as a failure of the pass."""

    def start(self, passes: Sequence[Pass], module: Module) -> None:
        """Before the first pass."""

    def before(self, index: int, p: Pass, module: Module) -> None:
        """Before the pass number ``index``."""

    def after(self, index: int, p: Pass, module: Module) -> None:
        """After a pass that went well."""

    def failed(self, index: int, p: Pass, module: Module, error: IRError) -> IRError | None:
        """After a pass that failed; may give another error to report in place of ``error``."""

    def finish(self, module: Module, ctx: Context) -> None:
        """After the last pass, when all went well."""


class VerifyEach(Instrument):
    """Verify the module before the first pass and after each."""

    def start(self, passes: Sequence[Pass], module: Module) -> None:
        module.verify()

    def after(self, index: int, p: Pass, module: Module) -> None:
        module.verify()


class VerifyRoundtrip(Instrument):
    """Print the module, read the text back, and require the same module and the same text, at the start and after each pass."""

    def start(self, passes: Sequence[Pass], module: Module) -> None:
        check_roundtrip(module)

    def after(self, index: int, p: Pass, module: Module) -> None:
        check_roundtrip(module)


def check_roundtrip(module: Module) -> None:
    """Raise :class:`IRError` where ``parse(print(module))`` differs from the module or prints differently."""
    from neuron_ir.compare import first_difference
    from neuron_ir.parser import parse

    text = module.text(locations=True)
    again = parse(text, "<printed>")
    difference = first_difference(module, again)
    if difference:
        raise fail("syntax", f"the printed module reads back as another module: {difference}")
    second = again.text(locations=True)
    if second != text:
        pairs = zip(text.splitlines(), second.splitlines(), strict=False)
        a, b = next((p for p in pairs if p[0] != p[1]), ("", ""))
        raise fail("syntax", "printing is not a fixpoint", notes=[f"first:  {a.strip()}", f"second: {b.strip()}"])


class PrintIR(Instrument):
    """Print the module around passes. ``before`` and ``after`` hold pass names, or ``None`` for all of them."""

    def __init__(
        self,
        before: Collection[str] | None = (),
        after: Collection[str] | None = (),
        *,
        change_only: bool = False,
        on_failure: bool = False,
        locations: bool = False,
        stream: TextIO | None = None,
    ):
        self.names_before, self.names_after = before, after
        self.change_only, self.on_failure, self.locations = change_only, on_failure, locations
        self.stream = stream
        self.text = ""

    def show(self, title: str, text: str) -> None:
        print(f"// -----// IR {title} //----- //\n{text}", file=self.stream or sys.stderr)

    def before(self, index: int, p: Pass, module: Module) -> None:
        text = module.text(self.locations) if self.change_only or _named(self.names_before, p) else ""
        self.text = text
        if _named(self.names_before, p):
            self.show(f"before {p.name}", text)

    def after(self, index: int, p: Pass, module: Module) -> None:
        if not (self.change_only or _named(self.names_after, p)):
            return
        text = module.text(self.locations)
        if self.change_only and text == self.text:
            self.show(f"after {p.name}: no change", "")
        else:
            self.show(f"after {p.name}", text)

    def failed(self, index: int, p: Pass, module: Module, error: IRError) -> None:
        if self.on_failure:
            self.show(f"after {p.name} failed", module.text(self.locations))


def _named(names: Collection[str] | None, p: Pass) -> bool:
    return names is None or p.name in names


class PrintTree(Instrument):
    """Write the module after each pass to a file of its own: ``<folder>/<number>_<pass>.nir``, the input as number 00."""

    def __init__(self, folder: str | Path, locations: bool = False):
        self.folder = Path(folder)
        self.locations = locations

    def start(self, passes: Sequence[Pass], module: Module) -> None:
        self.write("00_input", module)

    def after(self, index: int, p: Pass, module: Module) -> None:
        self.write(f"{index + 1:02}_{p.name}", module)

    def write(self, name: str, module: Module) -> None:
        write_text(self.folder / f"{name}.nir", module.text(self.locations), make_folder=True)


class Timing(Instrument):
    """Print the seconds of each pass and their share, as a table or as one line of JSON."""

    def __init__(self, as_json: bool = False, stream: TextIO | None = None):
        self.as_json = as_json
        self.stream = stream
        self.started = 0.0

    def start(self, passes: Sequence[Pass], module: Module) -> None:
        self.started = time.perf_counter()

    def finish(self, module: Module, ctx: Context) -> None:
        wall = time.perf_counter() - self.started
        stream = self.stream or sys.stderr
        if self.as_json:
            rows = [{"pass": r.name, "seconds": round(r.seconds, 6)} for r in ctx.records]
            print(json.dumps({"passes": rows, "total_seconds": round(wall, 6)}), file=stream)
            return
        total = sum(r.seconds for r in ctx.records)
        rest = wall - total
        print(f"  seconds   share  pass   (total {wall:.4f} s)", file=stream)
        for name, seconds in [*((r.name, r.seconds) for r in ctx.records), ("(verifying, printing, counting)", rest)]:
            print(f"{seconds:9.4f}  {100 * seconds / max(wall, 1e-12):5.1f}%  {name}", file=stream)


class Statistics(Instrument):
    """Print what each pass counted and what it declined, with reasons."""

    def __init__(self, stream: TextIO | None = None):
        self.stream = stream

    def finish(self, module: Module, ctx: Context) -> None:
        stream = self.stream or sys.stderr
        for record in ctx.records:
            print(record.name, file=stream)
            for what, n in sorted(record.counts.items()):
                print(f"{n:8}  {what}", file=stream)
            for reason, n in sorted(record.declines.items()):
                print(f"{n:8}  declined: {reason}", file=stream)


class CrashReproducer(Instrument):
    """When a pass fails, write one folder: the IR before it, the rest of the pipeline, the versions, the error, and a command."""

    def __init__(self, folder: str | Path, flags: Sequence[str] = ()):
        self.folder = Path(folder)
        self.flags = list(flags)
        self.passes: list[Pass] = []
        self.input = ""

    def start(self, passes: Sequence[Pass], module: Module) -> None:
        self.passes = list(passes)

    def before(self, index: int, p: Pass, module: Module) -> None:
        self.input = module.text(locations=True)

    def failed(self, index: int, p: Pass, module: Module, error: IRError) -> IRError:
        import dataclasses
        import traceback

        from neuron_ir.pipeline import print_pipeline

        record = {"pipeline": print_pipeline(self.passes[index:]), "flags": self.flags, "versions": versions()}
        raised = error.__cause__ or error
        trace = "".join(traceback.format_exception(raised))
        command = f"neuron-opt --run-reproducer {shlex.quote(str(self.folder))}"
        files = {
            "input.nir": self.input,
            "reproducer.json": json.dumps(record, indent=2) + "\n",
            "error.txt": f"{error}\n\n{trace}",
        }
        for name, text in {**files, "command.txt": command + "\n"}.items():
            write_text(self.folder / name, text, make_folder=True)
        last = error.diagnostics[-1]
        noted = dataclasses.replace(last, notes=(*last.notes, f"replay with: {command}"))
        replaced = IRError([*error.diagnostics[:-1], noted])
        replaced.__cause__ = error.__cause__
        return replaced


def versions() -> dict[str, str]:
    """The versions that decide what a pass does, read from package metadata."""
    import platform
    from importlib import metadata

    found = {"python": platform.python_version()}
    for name in ("neuron-ir", "jax", "jaxlib", "numpy", "lark", "ml_dtypes"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
