"""`neuron-doctor`: the versions in use, whether each is supported, and one verdict.

Versions are read from package metadata, so nothing heavy is imported and a broken torch or jax is still reported.
`--deep` sends one tiny program through the whole path instead of trusting the metadata.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import neuron_ir
from neuron_ir.tools.streams import exit_code

DISTRIBUTION = "neuron-ir"
# jaxlib comes with jax, which pins it; its version is in every JAX bug report, so it is shown too.
SHOWN = ("numpy", "jax", "jaxlib", "torch", "lark", "ml_dtypes", "safetensors")

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;\s*(.*))?$")
_CLAUSE = re.compile(r"(>=|<=|==|!=|>|<)\s*([0-9.]+)$")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report; `problem` is empty when the line is in order."""

    name: str
    version: str
    supported: str
    problem: str


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version, without trailing zeros: `2.13.0+cpu` is (2, 13)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    if match is None:
        raise ValueError(f"{version!r} is not a version number")
    numbers = [int(part) for part in match.group().split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def in_range(version: str, supported: str) -> bool:
    """Whether a version satisfies every clause of a range such as `>=0.10,<0.11`; an empty range admits all.

    Raises ValueError for a clause that it does not know, so that no new spelling in pyproject.toml is waved through.
    """
    have = release(version)
    for clause in filter(None, (part.strip() for part in supported.split(","))):
        match = _CLAUSE.match(clause)
        if match is None:
            raise ValueError(f"cannot read the version range {clause!r}")
        relation, want = match.group(1), release(match.group(2))
        holds = {
            ">=": have >= want,
            "<=": have <= want,
            "==": have == want,
            "!=": have != want,
            ">": have > want,
            "<": have < want,
        }
        if not holds[relation]:
            return False
    return True


def requirements() -> tuple[str, list[str]]:
    """The Python range and the requirement lines of this distribution, from its metadata or else its pyproject.toml.

    Raises FileNotFoundError when there is neither.
    """
    try:
        metadata = importlib.metadata.metadata(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return _requirements_of_tree()
    return metadata["Requires-Python"] or "", metadata.get_all("Requires-Dist") or []


def _requirements_of_tree() -> tuple[str, list[str]]:
    import tomllib

    with open(Path(__file__).resolve().parents[2] / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    optional = project["optional-dependencies"]["torch"]
    return project["requires-python"], project["dependencies"] + [f'{line}; extra == "torch"' for line in optional]


def supported_ranges(lines: Sequence[str]) -> dict[str, tuple[str, bool]]:
    """Requirement lines as {normal name: (range, optional)}; the first mention of a name counts."""
    ranges: dict[str, tuple[str, bool]] = {}
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match is None:
            raise ValueError(f"cannot read the requirement {line!r}")
        # Metadata sorts the clauses as text, `<` first; read from low to high they are easier on the eye.
        clauses = sorted((part.strip() for part in match.group(2).split(",")), reverse=True)
        ranges.setdefault(_normal(match.group(1)), (",".join(clauses), "extra" in (match.group(3) or "")))
    return ranges


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def rows() -> Iterator[Row]:
    """The report's lines on Python and the packages, in the order in which they are printed."""
    python_range, lines = requirements()
    ranges = supported_ranges(lines)
    yield _row("python", platform.python_version(), python_range, optional=False)
    for name in SHOWN:
        supported, optional = ranges.get(_normal(name), ("", False))
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            version = ""
        yield _row(name, version, supported, optional)


def _row(name: str, version: str, supported: str, optional: bool) -> Row:
    if not version:
        problem = "" if optional else f"{name} is not installed"
        return Row(name, "not installed", supported, problem)
    problem = "" if in_range(version, supported) else f"{name} {version} is outside the supported range {supported}"
    return Row(name, version, supported, problem)


def cores() -> int:
    """The processors that this process may use, which in a container are fewer than the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_gib() -> float | None:
    """The machine's physical memory in GiB, or None where the system does not tell."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


DEEP_PROGRAM = """\
module @doctor {ir_version = 1} {
  func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %y = neuron.add(%x, %x) : tensor<2x3xf32>
    func.return(%y)
  }
}
"""


def deep_problem() -> str:
    """Parses, verifies, optimises and runs a tiny program; returns what went wrong, or an empty string."""
    import numpy as np

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    module = neuron_ir.parse(DEEP_PROGRAM)
    got = neuron_ir.compile(module, target="reference")(x)
    if isinstance(got, tuple):
        (got,) = got
    if got.dtype != np.float32 or not np.array_equal(got, 2 * x):
        return f"the reference accelerator gives {got.tolist()} ({got.dtype}) for x + x of {x.tolist()} (float32)"
    return ""


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the report; returns 0 when everything is in order and 1 when something is not."""
    parser = argparse.ArgumentParser(
        prog="neuron-doctor",
        description="Print the versions in use, whether each is supported, and one verdict. Exit code: 0 fine, 1 not.",
    )
    parser.add_argument("--deep", action="store_true", help="also run a tiny program through the whole path")
    options = parser.parse_args(argv)
    return exit_code(lambda: _report(options.deep))


def _report(deep: bool) -> int:
    report = list(rows())
    print(f"{DISTRIBUTION:<12} {neuron_ir.__version__}")
    for row in report:
        mark = "not supported" if row.problem else "optional" if row.version == "not installed" else "ok"
        print(f"{row.name:<12} {row.version:<16} {row.supported or 'any':<16} {mark}")
    memory = memory_gib()
    print(f"{'cores':<12} {cores()}")
    print(f"{'memory':<12} {'unknown' if memory is None else f'{memory:.1f} GiB'}")
    problems = [row.problem for row in report if row.problem]

    if deep and not problems:
        try:
            problem = deep_problem()
        except Exception as error:  # A broken installation fails in any way, and the report must name it.
            problem = f"the tiny program failed: {type(error).__name__}: {error}"
        print(f"{'deep':<12} {problem or 'parsed, compiled and ran: x + x is right'}")
        problems += [problem] if problem else []

    print("verdict: not fine: " + "; ".join(problems) if problems else "verdict: fine")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
