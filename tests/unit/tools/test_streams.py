"""The tools on closed, full and foreign standard streams: a message and an exit code, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from neuron_ir.tools.run import main as run
from tests.hygiene.tree import ROOT

TEXT = 'func @main(%x: tensor<4xf32> {name = "é"}) -> tensor<4xf32> { func.return(%x) }\n'


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    line = command.replace("opt", f"{sys.executable} -m neuron_ir.tools.opt", 1)
    return subprocess.run(["sh", "-c", line], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, timeout=120)


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "m.nir"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def test_streams_that_do_not_serve(source: str) -> None:
    full = shell(f"opt {source} > /dev/full")
    assert (full.returncode, full.stderr.decode()) == (1, "error[file]: cannot write to standard output: No space left on device\n")
    closed = shell("opt <&-")
    assert (closed.returncode, closed.stderr.decode()) == (1, "error[file]: cannot read standard input: it is closed\n")
    nowhere = shell(f"opt {source} >&-")
    assert (nowhere.returncode, nowhere.stderr) == (0, b"")


def test_text_is_utf_8_whatever_the_terminal_says(source: str) -> None:
    done = shell(f"opt {source}", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and 'name = "é"' in done.stdout.decode("utf-8")


def test_outputs_may_have_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "m.nir", tmp_path / "y.npz"
    path.write_text(
        'func @main(%x: tensor<2xf32> {name = "self"}) -> (tensor<2xf32> {name = "file"}, tensor<2xf32> {name = "allow_pickle"}) {'
        " %y = neuron.negate(%x) : tensor<2xf32> func.return(%x, %y) }"
    )
    np.savez(tmp_path / "x.npz", self=np.float32([1, 2]))
    assert run([str(path), "--inputs", str(tmp_path / "x.npz"), "--output", str(out)]) == 0, capsys.readouterr().err
    with np.load(out) as got:
        assert {name: got[name].tolist() for name in got} == {"file": [1, 2], "allow_pickle": [-1, -2]}


def test_structured_arrays_are_no_raw_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.nir").write_text("func @main(%x: tensor<2xf32>) -> tensor<2xf32> { func.return(%x) }")
    np.savez(tmp_path / "x.npz", x=np.zeros(2, [("a", "i2"), ("b", "i2")]))
    assert run([str(tmp_path / "m.nir"), "--inputs", str(tmp_path / "x.npz")]) == 1
    assert "an element type that the IR does not have" in capsys.readouterr().err
