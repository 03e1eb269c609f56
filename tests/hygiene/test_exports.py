"""A name that another module of the package imports stands in its own module's `__all__`, where that has one."""

from __future__ import annotations

import ast

from tests.hygiene.imports import imports, module_name
from tests.hygiene.tree import LINKS, ROOT, sources

PATHS = sources("neuron_ir", *LINKS)


def exports(text: str) -> set[str] | None:
    """The names in `__all__`, where it is written out."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" and "*" not in ast.unparse(node.value):
            return set(ast.literal_eval(node.value))
    return None


def test_every_imported_name_is_exported() -> None:
    listed = {module_name(path): exports((ROOT / path).read_text(encoding="utf-8")) for path in PATHS}
    missing = []
    for path in PATHS:
        for item in imports(path):
            home, _, name = item.name.rpartition(".")
            if item.name not in listed and name not in (listed.get(home) or {name}) and not name.startswith("_"):
                missing.append(f"{path}:{item.line}: {name} is not in the __all__ of {home}")
    assert missing == []
