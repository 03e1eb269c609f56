"""Every public name has a docstring and stands in specs/api.md; the code of the pages about use runs."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import neuron_ir
from neuron_ir.frontends.torch.compile_options import MODES, CompileOptions

from .tree import ROOT

PAGE = ROOT / "specs" / "api.md"
COMPILE = ROOT / "specs" / "compile.md"
CACHE = ROOT / "specs" / "cache.md"
PRECISION = ROOT / "specs" / "precision.md"
PLUGIN = ROOT / "specs" / "jax_plugin.md"


# The pages that load torch share a process: half of each one's time would go into that.
@pytest.mark.parametrize(
    "pages", [(PAGE, COMPILE, PRECISION), (CACHE,), (PLUGIN,)], ids=lambda pages: "-".join(p.stem for p in pages)
)
def test_the_code_of_a_page_runs(pages: tuple[Path, ...]) -> None:
    runs = []
    for page in pages:
        code = "\n".join(re.findall(r"(?ms)^```python\n(.*?)^```", page.read_text(encoding="utf-8")))
        runs.append(f"exec(compile({code!r}, {page.name!r}, 'exec'), {{'__name__': '__main__'}})")
    done = subprocess.run([sys.executable, "-c", "\n".join(runs)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [n for n in neuron_ir.__all__ if n != "__version__"])
def test_a_public_name_is_documented(name: str) -> None:
    assert getattr(neuron_ir, name).__doc__, f"{name} has no docstring"
    assert re.search(rf"\b{name}\b", PAGE.read_text(encoding="utf-8")), f"{name} is not in specs/api.md"


@pytest.mark.parametrize("name", ["backends.base", "frontends.torch.importer", "target"])
def test_the_examples_of_docstrings_hold(name: str) -> None:
    module = __import__(f"neuron_ir.{name}", fromlist=["x"])
    result = doctest.testmod(module)
    assert result.attempted and not result.failed


def test_the_options_of_torch_compile_are_documented() -> None:
    lines = COMPILE.read_text(encoding="utf-8").splitlines()
    options = [
        f"| `{f.name}` | {f'`{f.default}` ' if f.default != '' else ''}| {f.metadata['help']} |" for f in fields(CompileOptions)
    ]
    modes = [f"| `{mode}` | `{pipeline}` |" for mode, pipeline in MODES.items()]
    assert [row for row in (*options, *modes) if row not in lines] == []
