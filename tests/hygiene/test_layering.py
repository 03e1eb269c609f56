"""Who may import whom: `neuron_ir` nobody, `passes` the core, front and back ends the core and not each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hygiene.imports import imports, module_name
from tests.hygiene.tree import LINKS, ROOT, sources

CORE = "neuron_ir"
# Each layer and the layers that it must not import.
FORBIDDEN = {
    "neuron_ir": ("passes", "frontends", "backends", "tools"),
    "passes": ("frontends", "backends", "tools"),
    "frontends": ("passes", "backends", "tools"),
    "backends": ("passes", "frontends", "tools"),
    "tools": (),
}
# Front ends find a back end by name through this module.
MEETING_POINT = "neuron_ir.backends.base"


def layer(name: str) -> str | None:
    """The layer of a dotted name, or None for a package that is not ours."""
    first, *rest = name.split(".")
    if first != CORE:
        return None
    return rest[0] if rest and rest[0] in (*LINKS, "tools") else CORE


def violations(path: Path) -> list[str]:
    """The forbidden imports of one file, as `file:line: reason`."""
    own = layer(module_name(path))
    assert own is not None
    found = []
    for item in imports(path):
        if item.name.split(".")[0] in LINKS:
            found.append(f"{path}:{item.line}: import neuron_ir.{item.name}, not {item.name}")
        if layer(item.name) not in FORBIDDEN[own]:
            continue
        if own == "frontends" and (item.name + ".").startswith(MEETING_POINT + "."):
            continue
        # The facade names its lazy functions for type checkers and editors; nothing is imported when it runs.
        if path == Path("neuron_ir/__init__.py") and item.typing_only:
            continue
        found.append(f"{path}:{item.line}: {own} must not import {item.name}")
    return found


@pytest.mark.parametrize("own", FORBIDDEN)
def test_a_layer_imports_only_what_it_may(own: str) -> None:
    paths = [path for path in sources(CORE, *LINKS) if layer(module_name(path)) == own]
    assert paths, f"no file belongs to {own}"
    assert [problem for path in paths for problem in violations(path)] == []


@pytest.mark.parametrize(
    ("place", "line", "forbidden"),
    [
        ("neuron_ir/x.py", "from neuron_ir.passes.fuse import Fuse", True),
        ("neuron_ir/x.py", "from . import passes", True),
        ("neuron_ir/dialects/x.py", "from ..backends.base import get", True),
        ("neuron_ir/dialects/x.py", "from ..core import Op", False),
        ("neuron_ir/tools/x.py", "from neuron_ir.passes import fuse", False),
        ("passes/x.py", "def f():\n    import neuron_ir.backends.jax_cpu", True),
        ("passes/x.py", "from neuron_ir import core", False),
        ("passes/x.py", "import passes.fuse", True),
        ("frontends/torch/x.py", "from neuron_ir.backends import base", False),
        ("frontends/torch/x.py", "from neuron_ir.backends.base import get", False),
        ("frontends/torch/x.py", "from neuron_ir.backends.jax_cpu import executor", True),
        ("backends/jax_cpu/x.py", "from neuron_ir.frontends import torch", True),
        ("backends/jax_cpu/x.py", "from ..base import Backend", False),
    ],
)
def test_the_check_sees_each_spelling(
    place: str, line: str, forbidden: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text(line + "\n", encoding="utf-8")
    monkeypatch.setattr("tests.hygiene.imports.ROOT", tmp_path)
    assert bool(violations(Path(place))) is forbidden


@pytest.mark.parametrize("name", LINKS)
def test_the_links_are_relative(name: str) -> None:
    link = ROOT / CORE / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name
