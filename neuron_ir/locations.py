"""Where an op comes from: the user's file, line, column and module path, with the chain of callers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from neuron_ir.quoting import quote

__all__ = ["FileLoc", "FusedLoc", "Loc", "UNKNOWN_LOC", "fuse_locations"]


class FileLoc(NamedTuple):
    """A place in a file; prints ``"model.py":41:13``, ``"blocks.0.attn" at "model.py":41:13`` or, with callers, ``... from ...``.

    ``line`` and ``col`` count from 1; 0 is unknown. ``scope`` is the module path or name stack. ``implicit`` marks the place of
    an op in ``.nir`` text that names no other: it serves diagnostics and is not printed.
    """

    file: str
    line: int = 0
    col: int = 0
    scope: str = ""
    caller: FileLoc | None = None
    implicit: bool = False

    def __str__(self) -> str:
        place = f"{quote(self.file)}:{self.line}:{self.col}"
        scope = f"{quote(self.scope)} at " if self.scope else ""
        return f"{scope}{place} from {self.caller}" if self.caller else scope + place

    @property
    def short(self) -> str:
        """``model.py:41:13`` as diagnostics print it."""
        return ":".join([self.file, *(str(n) for n in (self.line, self.col) if n)])


class FusedLoc(NamedTuple):
    """The places of several ops that became one; prints ``fused["a.py":1:2, "b.py":3:4]``."""

    places: tuple[FileLoc, ...]

    @property
    def implicit(self) -> bool:
        """Whether no place but that of the ``.nir`` text itself is known."""
        return all(p.implicit for p in self.places)

    def __str__(self) -> str:
        return f"fused[{', '.join(map(str, self.places))}]"

    @property
    def short(self) -> str:
        return self.places[0].short


Loc = FileLoc | FusedLoc

UNKNOWN_LOC = FileLoc("<unknown>", implicit=True)


def fuse_locations(locs: Iterable[Loc]) -> Loc:
    """One location for an op made of several, without repetition, in order of first appearance."""
    places: dict[FileLoc, None] = {}
    for loc in locs:
        for place in loc.places if isinstance(loc, FusedLoc) else (loc,):
            if place is not UNKNOWN_LOC:
                places[place] = None
    explicit = [p for p in places if not p.implicit] or list(places)
    if not explicit:
        return UNKNOWN_LOC
    return explicit[0] if len(explicit) == 1 else FusedLoc(tuple(explicit))
