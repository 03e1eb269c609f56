"""`import neuron_ir` and the help of every tool stay light: neither torch nor jax nor numpy is loaded."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

from tests.hygiene.tree import ROOT

HEAVY = ("torch", "jax", "jaxlib", "numpy", "transformers")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SCRIPTS: dict[str, str] = PYPROJECT["project"]["scripts"]


def loaded_by(code: str) -> list[str]:
    """The heavy packages that a new interpreter has loaded after running `code`."""
    probe = f"{code}\nimport sys\nprint('loaded:', *[m for m in {HEAVY!r} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()[-1].removeprefix("loaded:").split()


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_by("import neuron_ir") == []


def test_listing_the_public_names_loads_nothing_heavy() -> None:
    assert loaded_by("import neuron_ir; dir(neuron_ir); neuron_ir.__all__") == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_help_of_a_tool_loads_nothing_heavy(script: str) -> None:
    module, function = SCRIPTS[script].split(":")
    code = f"""
import contextlib, {module} as tool
with contextlib.suppress(SystemExit):
    tool.{function}(["--help"])"""
    assert loaded_by(code) == []
