"""The generated pages are those of the code, and the check notices when they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuron_ir.diagnostics import CODES
from neuron_ir.registry import all_ops
from neuron_ir.tools.docs import PAGES, main
from tests.hygiene.tree import ROOT


def test_the_pages_are_those_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--specs", str(ROOT / "specs")]) == 0, capsys.readouterr().err


def test_a_stale_or_missing_page_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--specs", str(tmp_path)]) == 0
    assert main(["--check", "--specs", str(tmp_path)]) == 0
    (tmp_path / "ops.md").write_text("old")
    (tmp_path / "passes.md").unlink()
    assert main(["--check", "--specs", str(tmp_path)]) == 1
    shown = capsys.readouterr().err
    assert "ops.md differs" in shown and "passes.md differs" in shown and "diagnostics.md" not in shown


def test_a_folder_that_is_not_there_is_a_diagnostic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--specs", str(tmp_path / "none")]) == 1
    assert "error[file]: cannot write" in capsys.readouterr().err


def test_every_op_and_every_code_is_there() -> None:
    ops, codes = PAGES["ops.md"](), PAGES["diagnostics.md"]()
    assert [s.name for s in all_ops() if f"\n## {s.name}\n" not in ops] == []
    assert [c for c in CODES if f"| `{c}` |" not in codes] == []


def test_an_op_is_described_in_full() -> None:
    page = PAGES["ops.md"]()
    section = page[page.index("## neuron.layer_norm\n") :].split("\n## ")[0]
    assert "`neuron.layer_norm(%x, %weight?, %bias?) {eps, trailing_dims, stats}`" in section
    assert "* `eps`: a float; default `1e-05`" in section
    assert "`native_layer_norm.default`" in section or "`layer_norm.default`" in section
    assert "*infers, composite" in section
