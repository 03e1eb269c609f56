"""neuron-translate as a program: every form to every other, and its refusals. torch and JAX judge the numbers."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import jax
import jax.export
import numpy as np
import pytest
import torch

import neuron_ir
from neuron_ir.tools.translate import main

TEXT = """\
func @main[B in 1..8](%x: tensor<Bx3xf32>) -> tensor<Bx3xf32> {
  %y = neuron.softmax(%x) : tensor<Bx3xf32> loc("m.py":1:2)
  func.return(%y)
}
"""
STABLEHLO = """\
module @m {
  func.func public @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %y = stablehlo.add %x, %x : tensor<2x3xf32>
    return %y : tensor<2x3xf32>
  }
}
"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("m.nir").write_text(TEXT)
    Path("m.mlir").write_text(STABLEHLO)
    return tmp_path


def test_a_torch_program_becomes_text_and_weights(folder: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    torch.export.save(torch.export.export(model, (torch.from_numpy(X),)), "m.pt2")
    assert main(["m.pt2", "-o", "linear.nir"]) == 0
    assert Path("linear.safetensors").exists()
    got = neuron_ir.compile(neuron_ir.load("linear.nir"))(X)
    np.testing.assert_allclose(got, model(torch.from_numpy(X)).detach().numpy(), rtol=1e-6)


def test_stablehlo_text_becomes_neuron_ir(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["m.mlir"]) == 0
    text = capsys.readouterr().out
    assert "neuron.add(" in text
    np.testing.assert_array_equal(neuron_ir.compile(neuron_ir.parse(text))(X), 2 * X)


def test_stablehlo_bytecode_becomes_neuron_ir(folder: Path) -> None:
    exported = jax.export.export(jax.jit(lambda x: jax.numpy.tanh(x) + 1))(X)
    Path("f.mlirbc").write_bytes(exported.mlir_module_serialized)
    assert main(["f.mlirbc", "-o", "f.nir"]) == 0
    np.testing.assert_allclose(neuron_ir.compile(neuron_ir.load("f.nir"))(X), np.tanh(X) + 1, rtol=1e-6)


def test_neuron_ir_becomes_stablehlo_that_reads_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["m.nir", "--dim", "B=2", "-o", "out.mlir"]) == 0
    assert "stablehlo." in Path("out.mlir").read_text()
    assert main(["out.mlir", "-o", "back.nir"]) == 0
    got = neuron_ir.compile(neuron_ir.load("back.nir"))(X)
    np.testing.assert_allclose(got, torch.from_numpy(X).softmax(-1).numpy(), rtol=1e-6)


def test_sizes_replace_symbols(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["m.nir", "--dim", "B=2"]) == 0
    assert "func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {" in capsys.readouterr().out


def test_neuron_ir_becomes_a_graph(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["m.nir", "--to", "dot"]) == 0
    assert capsys.readouterr().out.startswith("digraph ")
    assert main(["m.nir", "-o", "m.dot"]) == 0
    assert Path("m.dot").read_text().startswith("digraph ")


def test_locations_can_be_left_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["m.nir"]) == 0
    assert 'loc("m.py":1:2)' in capsys.readouterr().out
    assert main(["m.nir", "--no-locations", "-o", "n.nir"]) == 0
    assert "loc(" not in Path("n.nir").read_text()


def test_standard_input_needs_a_form(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-"]) == 2
    assert "cannot tell the form of -; give --from" in capsys.readouterr().err
    for form, text in (("nir", TEXT), ("stablehlo", STABLEHLO)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["--from", form]) == 0
        assert "func @main" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.nir"], "cannot read none.nir"),
        (["none.pt2"], "cannot read none.pt2: No such file"),
        (["none.mlir"], "cannot read none.mlir: No such file"),
        (["garbage.pt2"], "garbage.pt2 is not a program saved by torch.export.save: "),
        (["cut.pt2"], "cut.pt2 is not a program saved by torch.export.save: "),
        (["garbage.mlir"], "error["),
        (["garbage.mlirbc"], "cannot read garbage.mlirbc: 'utf-8' codec"),
        (["cut.mlirbc"], "error["),
        (["garbage.nir"], "garbage.nir:1:1: error[syntax]"),
        (["m.nir", "--dim", "B=9"], "B is 9; the program was made for 1 to 8"),
        (["m.nir", "--dim", "C=2"], "@main has no symbolic dimension C"),
        (["m.nir", "-o", "none/m.nir"], "cannot write none/m.nir"),
        (["m.nir", "-o", "none/m.dot"], "cannot write none/m.dot"),
    ],
)
def test_mistakes_are_diagnostics(arguments: list[str], message: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for suffix in ("pt2", "mlir", "mlirbc", "nir"):
        Path(f"garbage.{suffix}").write_bytes(b"\xff\x00garbage" if suffix == "mlirbc" else b"garbage")
    torch.export.save(torch.export.export(torch.nn.Identity(), (torch.ones(2),)), "whole.pt2")
    Path("cut.pt2").write_bytes(Path("whole.pt2").read_bytes()[:2000])
    Path("cut.mlirbc").write_bytes(jax.export.export(jax.jit(lambda x: x + 1))(X).mlir_module_serialized[:60])
    before = sorted(folder.iterdir())
    capfd.readouterr()
    assert main(arguments) == 1
    shown = capfd.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""
    assert sorted(folder.iterdir()) == before


def test_wrong_usage_is_code_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["m.txt"], ["m.nir", "-o", "m.txt"], ["m.nir", "--to", "pt2"], ["m.nir", "--dim", "B"]):
        assert main(arguments) == 2
        assert "usage: neuron-translate" in capsys.readouterr().err
