"""The collector of golden files: what passes, what fails, and when it writes."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from tests.hygiene.tree import ROOT

BODY = """func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = neuron.tanh(%x) : tensor<4xf32>
  func.return(%x)
}
"""
RIGHT = """// OUTPUT:
// module @main {ir_version = 1} {
//   func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
//     func.return(%x)
//   }
// }
"""
STALE = RIGHT.replace("return(%x)", "return(%y)")
EXACT = "// RUN: neuron-opt %s --pass dce\n" + BODY


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("goldens")
    (path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (path / "golden").mkdir()
    (path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    return path


def run(folder: Path, text: str, *flags: str, ci: str = "") -> tuple[str, str]:
    """The output of pytest, in this process, on one golden file, and the file afterwards."""
    path = folder / "golden" / "case.nir"
    path.write_text(text)
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setenv("CI", ci)
        patch.chdir(folder)
        plugins = [flag for name in ("cacheprovider", "faulthandler", "xdist") for flag in ("-p", f"no:{name}")]
        pytest.main(["-q", "--capture=no", "--color=no", *plugins, str(path), *flags])
    return out.getvalue(), path.read_text()


def test_a_file_that_holds_is_run_and_executed(folder: Path) -> None:
    out, text = run(folder, EXACT + RIGHT)
    assert "2 passed" in out and text == EXACT + RIGHT


def test_stale_output_fails_and_shows_the_difference(folder: Path) -> None:
    out, text = run(folder, EXACT + STALE)
    assert "1 failed, 1 passed" in out and text == EXACT + STALE
    assert "-//     func.return(%y)" in out and "+//     func.return(%x)" in out


def test_updating_rewrites_the_output(folder: Path) -> None:
    out, text = run(folder, EXACT + STALE, "--update-golden")
    assert "2 passed" in out and text == EXACT + RIGHT


def test_updating_in_ci_fails_and_writes_nothing(folder: Path) -> None:
    out, text = run(folder, EXACT + STALE, "--update-golden", ci="true")
    assert "1 failed, 1 passed" in out and text == EXACT + STALE


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BODY, "the file has no // RUN: line"),
        ("// RUN: neuron-opt %s | filecheck %s\n// CHECK: neuron.sine\n" + BODY, "Couldn't match"),
        ("// RUN: neuron-opt %s | filecheck %s\n" + BODY, "No check strings found"),
        ("// RUN: not neuron-opt %s\n" + BODY, "exit code 0"),
        ("// RUN: neuron-opt %s --pass nothing\n" + BODY, "there is no pass 'nothing'"),
        ("// RUN: clang %s\n" + BODY, "clang is not one of neuron-opt"),
    ],
)
def test_a_file_that_does_not_hold(folder: Path, text: str, reason: str) -> None:
    out, _ = run(folder, text)
    assert reason in out and "failed" in out.splitlines()[-1]


def test_execution_can_be_declined_with_a_reason_only(folder: Path) -> None:
    assert "1 passed" in run(folder, "// NUMERICS: off, because it is slow\n" + EXACT + RIGHT)[0]
    assert "2 passed" in run(folder, "// NUMERICS: off\n" + EXACT + RIGHT)[0]
