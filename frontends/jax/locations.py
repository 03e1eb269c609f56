"""MLIR locations as JAX writes them, into the IR's file, line, column, name stack and callers.

JAX nests a name location ``"jit(f)/block/tanh"`` around a chain of call sites; each frame is a name location (the Python
function) around a file location. Columns of JAX count from 0, those of the MLIR parser from 1.
"""

from __future__ import annotations

from neuron_ir.frontends.jax._compat import ir
from neuron_ir.locations import UNKNOWN_LOC, FileLoc, FusedLoc, Loc, fuse_locations

#: The file name under which MLIR's parser notes places in the text itself.
PARSED = "-"


class Locations:
    """Converts the locations of one module, each distinct one once. ``file`` names the text for ops that carry no other."""

    def __init__(self, file: str = "<stablehlo>"):
        self.file = file
        self._done: dict[ir.Attribute, Loc] = {}

    def __call__(self, location: ir.Location) -> Loc:
        """The place of an op: innermost user frame, its callers, and the name stack without the op's own name."""
        key = location.attr
        found = self._done.get(key)
        if found is None:
            found = self._done[key] = self._convert(location)
        return found

    def _convert(self, location: ir.Location) -> Loc:
        if isinstance(location, ir.FileLineColLoc):
            return self._file(location)
        if isinstance(location, ir.CallSiteLoc):
            callee = self(location.callee)
            return _called_from(callee, self(location.caller))
        if isinstance(location, ir.FusedLoc):
            return fuse_locations(self(part) for part in location.locations)
        if isinstance(location, ir.NameLoc):
            child = location.child_loc
            place = self(child)
            if isinstance(child, ir.FileLineColLoc):  # a frame: the name is the Python function's
                return place
            return _in_scope(place, name_stack(location.name_str))
        return UNKNOWN_LOC

    def _file(self, location: ir.FileLineColLoc) -> FileLoc:
        if location.filename == PARSED:
            return FileLoc(self.file, location.start_line, location.start_col, implicit=True)
        return FileLoc(location.filename, location.start_line, location.start_col + 1)


def _called_from(callee: Loc, caller: Loc) -> Loc:
    """``callee`` with ``caller`` at the end of its chain."""
    if isinstance(callee, FusedLoc) or callee is UNKNOWN_LOC or caller is UNKNOWN_LOC:
        return caller if callee is UNKNOWN_LOC else callee
    place = caller.places[0] if isinstance(caller, FusedLoc) else caller
    chain = []
    link: FileLoc | None = callee
    while link is not None:
        chain.append(link)
        link = link.caller
    for frame in reversed(chain):
        place = frame._replace(caller=place)
    return place


def _in_scope(place: Loc, scope: str) -> Loc:
    if not scope or place is UNKNOWN_LOC:
        return place
    if isinstance(place, FusedLoc):
        return FusedLoc(tuple(p._replace(scope=scope) for p in place.places))
    return place._replace(scope=scope)


def name_stack(name: str) -> str:
    """``"jit(f)/block/dense/dot_general"`` gives ``"block/dense"``: neither the program's own wrapper nor the op.

    >>> name_stack("jit(f)/block/dense/dot_general")
    'block/dense'
    >>> name_stack("x")
    ''
    """
    parts = name.rstrip(":").split("/")[:-1]
    if parts and parts[0].startswith("jit("):
        parts = parts[1:]
    return "/".join(parts)
