"""The tools on closed, full and foreign standard streams: a message and an exit code, never a traceback."""

from __future__ import annotations

import json
import os
import re
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


@pytest.mark.parametrize("size", ["9999999999999999999", "99999999x99999"])
def test_more_than_the_memory_holds(size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.nir"
    path.write_text(f"func @main(%x: tensor<{size}xf32>) -> tensor<{size}xf32> {{ func.return(%x) }}")
    assert run([str(path), "--random", "0"]) == 1
    assert "is too large" in capsys.readouterr().err
    constant = f"%y = neuron.constant() {{value = dense<1.0>}} : tensor<{size}xf32>"
    path.write_text(f"func @main() -> tensor<{size}xf32> {{ {constant} func.return(%y) }}")
    assert run([str(path)]) == 1
    assert re.search(r"error\[(runtime|attr)\].*memory", capsys.readouterr().err)


@pytest.mark.parametrize(
    "header",
    [
        {"w": {"dtype": ["F32"], "shape": [4], "data_offsets": [0, 16]}},
        {"w": {"dtype": "F32", "shape": [2**70, 0], "data_offsets": [0, 0]}},
        {"__metadata__": {"neuron_ir.dtypes": "[" * 100_000}},
        {"__metadata__": {"neuron_ir.dtypes": '{"w": [1]}'}, "w": {"dtype": "U8", "shape": [4, 4], "data_offsets": [0, 16]}},
    ],
)
def test_weights_files_made_by_malice(header: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.nir").write_text(
        'func @main(%w: tensor<4xf32> {kind = "weight", weight = "w"}) -> tensor<4xf32> { func.return(%w) }'
    )
    text = json.dumps(header).encode()
    (tmp_path / "m.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(16))
    assert run([str(tmp_path / "m.nir")]) == 1
    assert "error[weights]" in capsys.readouterr().err
