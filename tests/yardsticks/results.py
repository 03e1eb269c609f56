"""The counted result of a yardstick as data: one file ``results/<name>.json`` each, from which ``specs/coverage.md`` is made.

``marks`` holds one letter per case, by row (an operator, a module, a group) and column (an element type, a mode); every count is
derived from it. ``rest`` lists each case that is not right with its reason.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent / "results"

# Outcome -> what it means. The ceiling is everything but the last two.
OUTCOMES = {
    "right": "values, element types and shapes are the framework's",
    "wrong": "a value, element type or shape differs and nothing warned",
    "refused": "a diagnostic that names the operation and the reason",
    "unclear": "an error that is no diagnostic of ours",
    "crashed": "the process died",
    "timeout": "no answer in time",
    "not exportable": "the framework itself cannot express the program for any backend",
    "no sample": "the framework has no input for this case, or cannot run it itself",
}
BEYOND_THE_CEILING = ("not exportable", "no sample")
BAD = ("wrong", "unclear", "crashed", "timeout")
LETTERS = dict(zip(OUTCOMES, "rwfuctn-", strict=True))
_NAMES = {letter: name for name, letter in LETTERS.items()}
_LONGEST = 200  # characters of a reason


class Outcome(NamedTuple):
    """What became of one case."""

    case: str
    outcome: str
    detail: str
    seconds: float


@dataclass(frozen=True)
class Result:
    """What a yardstick gave: how it was run, on how many of its cases, and what became of each."""

    yardstick: str
    title: str
    command: str
    versions: dict[str, str]
    population: int
    marks: dict[str, dict[str, str]]
    rest: list[dict[str, str]]

    def counts(self, column: str | None = None, rows: Iterable[str] | None = None) -> Counter[str]:
        """How many cases had each outcome, in one column and some rows or in all."""
        letters: Counter[str] = Counter()
        for row in self.marks if rows is None else rows:
            for name, marks in self.marks[row].items():
                if column is None or name == column:
                    letters.update(marks)
        return Counter({_NAMES[letter]: n for letter, n in letters.items()})

    @property
    def columns(self) -> list[str]:
        """The columns in the order in which they first appear."""
        return list(dict.fromkeys(name for by_column in self.marks.values() for name in by_column))

    def write(self, path: Path) -> None:
        """Write the file, one row of marks per line, so that two versions compare well."""
        fields = asdict(self)
        lines = []
        for name, value in fields.items():
            if name in ("marks", "rest"):
                items = value.items() if name == "marks" else enumerate(value)
                inner = [(f"{json.dumps(key)}: " if name == "marks" else "") + json.dumps(item) for key, item in items]
                opening, closing = "{}" if name == "marks" else "[]"
                text = f"{opening}\n  " + ",\n  ".join(inner) + f"\n {closing}" if inner else opening + closing
            else:
                text = json.dumps(value)
            lines.append(f" {json.dumps(name)}: {text}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def read(path: Path) -> Result:
    """The result in a file."""
    return Result(**json.loads(path.read_text(encoding="utf-8")))


def every() -> Iterator[Result]:
    """The results that are recorded, by name."""
    for path in sorted(FOLDER.glob("*.json")):
        yield read(path)


def ceiling(counts: Mapping[str, int]) -> int:
    """How many cases the framework itself can express and run."""
    return sum(n for name, n in counts.items() if name not in BEYOND_THE_CEILING)


def place(module: Any, case: str) -> tuple[str, str]:
    """The row and the column of a case: as its yardstick says, else from ``row:column:...:number``, else a row of its own."""
    if hasattr(module, "place"):
        row, column = module.place(case)
        return str(row), str(column)
    parts = case.split(":")
    return (parts[0], " ".join(parts[1:-1])) if len(parts) > 2 else (case, "")


def collect(module: Any, outcomes: Sequence[Outcome], population: int, command: str) -> Result:
    """The counted result of a run. A case of a number beyond the samples that there are is none."""
    marks: dict[str, dict[str, str]] = {}
    rest = []
    for outcome in sorted(outcomes, key=lambda o: _by_number(o.case)):
        if outcome.outcome == "no sample" and not outcome.detail:
            population -= 1
            continue
        row, column = place(module, outcome.case)
        columns = marks.setdefault(row, {})
        columns[column] = columns.get(column, "") + LETTERS[outcome.outcome]
        if outcome.outcome != "right":
            rest.append({"case": outcome.case, "outcome": outcome.outcome, "detail": plain(outcome.detail)})
    title = (module.__doc__ or module.NAME).split("\n\n")[0].replace("\n", " ").replace("``", "`")
    return Result(module.NAME, title, command, _versions(), population, marks, rest)


def _by_number(case: str) -> tuple[str, int]:
    """Sorts the cases of a row by their number."""
    stem, _, number = case.rpartition(":")
    return (stem, int(number)) if number.isdigit() else (case, 0)


def plain(detail: str) -> str:
    """A reason on one line, with files by name only and at most 200 characters."""
    text = re.sub(r"(?<![\w.])(?:/[\w.+-]+)+/([\w.+-]+)", r"\1", " ".join(detail.split()))
    text = re.sub(r"0x[0-9a-f]{6,}", "0x...", text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "jax")}
