"""The wheel holds exactly the tree: the folders behind the links as subpackages, and nothing beside `neuron_ir`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import neuron_ir
from tests.hygiene.tree import LINKS, ROOT, files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the project's files, so that nothing left by earlier builds gets in."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for path in files():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, tree / path, follow_symlinks=False)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", out, tree]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    (built,) = out.glob("*.whl")
    return built


def expected() -> set[str]:
    """The installed name of every file that belongs to the package."""
    names = set()
    for path in files():
        if path.parts[0] in LINKS:
            names.add("neuron_ir/" + path.as_posix())
        elif path.parts[0] == "neuron_ir" and not (ROOT / path).is_symlink():
            names.add(path.as_posix())
    return names


def test_the_wheel_holds_the_tree(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert sorted(held) == sorted(expected())


def test_an_unpacked_wheel_imports_its_own_subpackages(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        + "".join(f"import neuron_ir.{name}\n" for name in LINKS)
        + "".join(f"print(neuron_ir.{name}.__file__)\n" for name in LINKS)
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.split() == [str(tmp_path / "neuron_ir" / name / "__init__.py") for name in LINKS]


def test_the_version_is_the_same_everywhere(wheel: Path) -> None:
    assert neuron_ir.__version__ == PROJECT["version"]
    assert wheel.name.startswith(f"neuron_ir-{PROJECT['version']}-")


@pytest.mark.parametrize("script", PROJECT["scripts"])
def test_every_script_exists(script: str) -> None:
    assert callable(EntryPoint(script, PROJECT["scripts"][script], "console_scripts").load())


def test_the_compile_backend_exists() -> None:
    group = "torch_dynamo_backends"
    assert callable(EntryPoint("neuron", PROJECT["entry-points"][group]["neuron"], group).load())
