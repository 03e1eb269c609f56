"""The dotted names that a Python file imports, read from its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.hygiene.tree import LINKS, ROOT


@dataclass(frozen=True)
class Import:
    """One imported dotted name; `typing_only` when it stands under `if TYPE_CHECKING:`."""

    name: str
    line: int
    typing_only: bool


def module_name(path: Path) -> str:
    """The import name of a file: `passes/fuse.py` is `neuron_ir.passes.fuse`."""
    parts = list(path.with_suffix("").parts)
    if parts[0] in LINKS:
        parts.insert(0, "neuron_ir")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def imports(path: Path) -> Iterator[Import]:
    """Every name imported anywhere in a file, with relative imports resolved."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=str(path))
    typing_lines = _typing_only_lines(tree)
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{prefix}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(name, node.lineno, node.lineno in typing_lines)


def _typing_only_lines(tree: ast.AST) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            last = node.body[-1]
            lines.update(range(node.body[0].lineno, (last.end_lineno or last.lineno) + 1))
    return lines
