"""Errors as users see them: severity, stable code, place, message, notes, and a caret under the source.

Every error that a user can cause is an :class:`IRError` carrying one or more :class:`Diagnostic`. The codes are stable and listed
in ``CODES``; ``specs/diagnostics.md`` is generated from that table.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from neuron_ir.locations import UNKNOWN_LOC, FileLoc, FusedLoc, Loc

__all__ = ["CODES", "Diagnostic", "IRError", "IRWarning", "fail", "nearest", "warn"]

CODES = {
    "syntax": "The text is not in the grammar of the Neuron IR.",
    "name": "A value, function, symbol or weight is used but not defined, or defined twice.",
    "op": "No op of that name exists.",
    "attr": "An attribute is missing, unknown, or of the wrong kind.",
    "operand": "An op has too few or too many operands, or one of the wrong type.",
    "type": "A result type differs from what the op computes, or a type is malformed.",
    "region": "An op has too few or too many regions, or one with the wrong arguments or terminator.",
    "dominance": "A value is used before, or outside of, the region that defines it.",
    "shape": "A shape does not fit: the numbers are in the message.",
    "nesting": "Regions or attributes are nested deeper than the limit.",
    "version": "The text's version is newer than this reader.",
    "weights": "A weights file is missing, damaged, or does not match the program.",
    "input": "A program is called with the wrong number, shape or dtype of inputs.",
    "unsupported": "An operation of the source program has no meaning here yet.",
    "pass": "A pass is unknown, wrongly configured, or failed.",
    "precision": "A precision policy is contradictory or matches nothing.",
    "capacity": "Something does not fit the target's memory.",
    "subnormal": "Numbers below the smallest normal one of their type count as zero on the reference accelerator (a warning).",
    "host": "An operation that has no lowering is run by its own framework on the host (a warning).",
    "runtime": "The reference accelerator stopped while it ran a program.",
    "file": "A file cannot be read or written.",
}


@dataclass(frozen=True)
class Diagnostic:
    """One message. ``severity`` is ``error``, ``warning`` or ``note``; ``code`` is a key of ``CODES``."""

    code: str
    message: str
    loc: Loc = UNKNOWN_LOC
    notes: tuple[str, ...] = ()
    severity: str = "error"
    source: str | None = field(default=None, compare=False)  # the line of text, where it is not in a file

    def render(self) -> str:
        """``file:line:col: error[code]: message``, the source line, a caret, the notes, and the callers."""
        place = self.loc.places[0] if isinstance(self.loc, FusedLoc) else self.loc
        known = place.file != UNKNOWN_LOC.file
        lines = [f"{place.short + ': ' if known else ''}{self.severity}[{self.code}]: {self.message}"]
        source = self.source
        if source is None:
            source = _line_of(place) if known and place.line else ""
        if source.strip() and len(source) <= 400:
            lines.append("  " + source.rstrip().expandtabs(1))
            if place.col:
                lines.append("  " + " " * (place.col - 1) + "^")
        if place.scope:
            lines.append(f"  note: in module {place.scope}")
        lines += [f"  note: {n}" for n in self.notes]
        caller = place.caller
        while caller:
            lines.append(f"  note: called from {caller.short}")
            caller = caller.caller
        return "\n".join(lines)


def _line_of(place: FileLoc) -> str:
    linecache.checkcache(place.file)  # the file may have been written or removed since its lines were last read
    return linecache.getline(place.file, place.line)


class IRError(Exception):
    """One or more diagnostics. ``str()`` shows all of them."""

    def __init__(self, diagnostics: Sequence[Diagnostic]):
        super().__init__(diagnostics)
        self.diagnostics = tuple(diagnostics)

    def __str__(self) -> str:
        return "\n".join(d.render() for d in self.diagnostics)

    @property
    def code(self) -> str:
        """The code of the first diagnostic."""
        return self.diagnostics[0].code


def fail(code: str, message: str, loc: Loc | None = None, notes: Iterable[str] = ()) -> IRError:
    """An :class:`IRError` of one diagnostic, to be raised."""
    if code not in CODES:
        raise KeyError(f"diagnostic code {code!r} is not in CODES")
    return IRError([Diagnostic(code, message, loc or UNKNOWN_LOC, tuple(notes))])


class IRWarning(UserWarning):
    """A diagnostic that does not stop the work; ``str()`` shows it."""

    def __init__(self, diagnostic: Diagnostic):
        super().__init__(diagnostic)
        self.diagnostic = diagnostic

    def __str__(self) -> str:
        return self.diagnostic.render()


def warn(code: str, message: str, loc: Loc | None = None, notes: Iterable[str] = ()) -> None:
    """Give the user a warning, by way of Python's own :mod:`warnings`."""
    import warnings

    error = fail(code, message, loc, notes).diagnostics[0]
    warnings.warn(IRWarning(replace(error, severity="warning")), stacklevel=2)


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the known name closest to ``name``, else nothing."""
    import difflib

    close = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
