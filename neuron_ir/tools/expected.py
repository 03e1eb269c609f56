"""Expected diagnostics in a ``.nir`` file: ``// expected-error@+1 [code] {{the whole message}}``.

The place is relative to the comment's own line: ``@+N``, ``@-N``, ``@above``, ``@below``, nothing for the same line, ``@unknown``
for a diagnostic without a line. The severity is ``error`` or ``warning``; ``[code]`` may be left out. Every expected diagnostic
must come, with exactly that message at exactly that line, and no other may.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from neuron_ir.diagnostics import Diagnostic
from neuron_ir.locations import FusedLoc

__all__ = ["Expected", "expected_diagnostics", "mismatches"]

_EXPECTED = re.compile(r"expected-(error|warning)(?:@([+-]\d+|above|below|unknown))?(?:\s*\[(\w+)\])?\s*\{\{(.*?)\}\}")
_STARTED = re.compile(r"//.*\bexpected-(?:error|warning|note|remark)")


@dataclass(frozen=True)
class Expected:
    """One announced diagnostic; ``line`` 0: no line, ``code`` "": any."""

    severity: str
    line: int
    code: str
    message: str
    written_at: int

    def fits(self, d: Diagnostic, line: int) -> bool:
        """Whether ``d``, at ``line``, is this one."""
        return (self.severity, self.line, self.message) == (d.severity, line, d.message) and self.code in ("", d.code)


def expected_diagnostics(text: str, name: str) -> tuple[list[Expected], list[str]]:
    """The announced diagnostics of a text, and complaints about malformed ones."""
    found: list[Expected] = []
    malformed: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        matches = list(_EXPECTED.finditer(line)) if "//" in line else []
        if not matches and _STARTED.search(line):
            malformed.append(f"{name}:{number}: error: malformed expectation; write // expected-error@+1 {{{{message}}}}")
        for severity, place, code, message in (m.groups() for m in matches):
            at = {"above": number - 1, "below": number + 1, "unknown": 0, None: number}.get(place)
            found.append(Expected(severity, number + int(place) if at is None else at, code or "", message, number))
    return found, malformed


def mismatches(text: str, name: str, diagnostics: Sequence[Diagnostic]) -> list[str]:
    """What differs between the announced and the given diagnostics, one message each."""
    pending, problems = expected_diagnostics(text, name)
    for d in diagnostics:
        place = d.loc.places[0] if isinstance(d.loc, FusedLoc) else d.loc
        line = place.line if place.file == name else 0
        match = next((e for e in pending if e.fits(d, line)), None)
        if match is not None:
            pending.remove(match)
        else:
            problems.append(f"unexpected diagnostic:\n{d.render()}")
    for e in pending:
        where = f"line {e.line}" if e.line else "no line"
        problems.append(f"{name}:{e.written_at}: error: expected {e.severity} at {where} did not come: {e.message}")
    return problems
