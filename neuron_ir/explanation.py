"""What an importer does with each operation of a program, as a table and as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from neuron_ir.core import Block, Op
from neuron_ir.diagnostics import Diagnostic
from neuron_ir.dialects.neuron.custom import ON_HOST
from neuron_ir.locations import UNKNOWN_LOC, FileLoc, FusedLoc, Loc

__all__ = ["FATES", "Explanation", "Journal", "OperationRow", "ops_after"]

FATES = {
    "direct": "one operation of the IR stands for it, or nothing has to be computed",
    "expanded": "several operations of the IR compute it",
    "host": "its own framework, or the user's function, computes it on the host",
    "refused": "it has no meaning here, for the reason given",
}

# Ops that bring operands into the form that another op needs; alone they are the operation itself.
_ADAPTERS = frozenset(["neuron.constant", "neuron.cast", "neuron.broadcast_in_dim", "neuron.dim_size", "neuron.yield"])


@dataclass(frozen=True)
class OperationRow:
    """What becomes of one operation at one place: ``count`` occurrences with the same fate.

    ``into`` names the ops of the IR in order, ``reason`` says why it is refused, ``scope`` is the module path or name stack of the
    first occurrence. ``line`` is 0 where the place is not known.
    """

    operation: str
    fate: str
    into: tuple[str, ...] = ()
    reason: str = ""
    file: str = ""
    line: int = 0
    scope: str = ""
    count: int = 1


class Explanation:
    """What becomes of each operation of a program; ``str()`` is the table, :meth:`to_dict` the data."""

    def __init__(self, rows: Iterable[OperationRow]):
        self.rows = tuple(rows)

    @property
    def counts(self) -> dict[str, int]:
        """The number of operations of each fate."""
        totals = dict.fromkeys(FATES, 0)
        for row in self.rows:
            totals[row.fate] += row.count
        return totals

    @property
    def ok(self) -> bool:
        """Whether nothing is refused, so that the program can be imported."""
        return not self.counts["refused"]

    def __iter__(self) -> Iterator[OperationRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers: ``counts`` and ``rows``, with the fields of :class:`OperationRow`."""
        fields = [{**vars(row), "into": list(row.into)} for row in self.rows]
        return {"counts": self.counts, "rows": fields}

    def __str__(self) -> str:
        """One line per operation and fate, refusals first, with the first place of each and how many more there are."""
        merged: dict[tuple[str, str, tuple[str, ...], str], list[OperationRow]] = {}
        for row in self.rows:
            merged.setdefault((row.fate, row.operation, row.into, row.reason), []).append(row)
        order = list(reversed(FATES))
        lines = [("fate", "count", "operation", "becomes", "place")]
        for (fate, operation, into, reason), rows in sorted(merged.items(), key=lambda item: order.index(item[0][0])):
            lines.append((fate, str(sum(r.count for r in rows)), operation, reason or _listed(into), _place(rows)))
        widths = [max(len(line[i]) for line in lines) for i in range(4)]
        text = "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, [*widths, 0], strict=True)).rstrip() for line in lines)
        return f"{text}\n{', '.join(f'{n} {fate}' for fate, n in self.counts.items())}"


def _listed(into: Sequence[str]) -> str:
    return ", ".join(name if n == 1 else f"{n} {name}" for name, n in Counter(into).items()) or "-"


def _place(rows: Sequence[OperationRow]) -> str:
    known = [r for r in rows if r.line]
    if not known:
        return ""
    first = f"{known[0].file}:{known[0].line}"
    return first if len(known) == 1 else f"{first} and {len(known) - 1} more"


class Journal:
    """What an importer notes of each operation while it works."""

    def __init__(self) -> None:
        self._entries: dict[Any, _Entry] = {}
        self._claimed: set[Op] = set()
        self._told: set[int] = set()  # identities: each is kept by an entry

    def clear(self) -> None:
        """Forget everything: the importer begins anew."""
        self._entries.clear()
        self._claimed.clear()
        self._told.clear()

    def note(self, key: Any, operation: str, loc: Loc, made: Iterable[Op], errors: Iterable[Diagnostic] = ()) -> None:
        """The operation ``key`` has become the ops ``made``, or was refused with ``errors``.

        Several notes of one key, as a decomposition gives them, belong together. Ops and errors that an inner operation has noted
        are not counted again.
        """
        fresh = [op for op in made if op not in self._claimed]
        self._claimed.update(fresh)
        told = [d for d in errors if id(d) not in self._told]
        self._told.update(map(id, told))
        entry = self._entries.setdefault(key, _Entry(operation, loc))
        entry.made += [op.name for op in fresh]
        entry.on_host |= any(op.name == "neuron.custom_call" and op.get("call_target_name") in ON_HOST for op in fresh)
        entry.errors += told

    def failed(self, errors: Iterable[Diagnostic]) -> None:
        """Errors that belong to no operation, such as an input of the wrong kind."""
        for i, d in enumerate(errors):
            if id(d) not in self._told:
                self._entries["", i] = _Entry("program", d.loc, errors=[d])

    def explanation(self) -> Explanation:
        """The rows in program order, equal ones counted."""
        rows: dict[OperationRow, OperationRow] = {}
        for entry in self._entries.values():
            row = entry.row()
            key = replace(row, scope="", count=1)
            present = rows.get(key)
            rows[key] = row if present is None else replace(present, count=present.count + 1)
        return Explanation(rows.values())


def ops_after(block: Block, last: Op | None) -> list[Op]:
    """The ops of a block after ``last``, all of them where that is ``None``."""
    if last is None:
        return list(block.ops)
    found = []
    following = last.next
    while following is not None:
        found.append(following)
        following = following.next
    return found


class _Entry:
    """One operation: the ops that it became, or the errors."""

    def __init__(self, operation: str, loc: Loc, errors: Iterable[Diagnostic] = ()):
        self.operation = operation
        self.loc = loc
        self.made: list[str] = []
        self.on_host = False
        self.errors = list(errors)

    def row(self) -> OperationRow:
        place: FileLoc = self.loc.places[0] if isinstance(self.loc, FusedLoc) else self.loc
        file = "" if place.file == UNKNOWN_LOC.file else place.file
        if self.errors:
            reasons = dict.fromkeys(d.message.removeprefix(f"{self.operation}: ") for d in self.errors)
            return OperationRow(self.operation, "refused", (), "; ".join(reasons), file, place.line, place.scope)
        own = [name for name in self.made if name not in _ADAPTERS]
        fate = "expanded" if len(own or set(self.made)) > 1 else "direct"
        fate = "host" if self.on_host else fate
        return OperationRow(self.operation, fate, tuple(self.made), "", file, place.line, place.scope)
