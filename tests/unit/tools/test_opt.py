"""neuron-opt as a program: exit codes, streams, files, and nothing of Python in what users see."""

from __future__ import annotations

import io
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from neuron_ir.tools.expected import expected_diagnostics
from neuron_ir.tools.opt import main, split_input
from tests.hygiene.tree import ROOT

TEXT = """func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = neuron.tanh(%x) : tensor<4xf32>
  %b = neuron.exponential(%x) : tensor<4xf32>
  func.return(%a)
}
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "m.nir"
    path.write_text(TEXT)
    return str(path)


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["-", "--pass", "dce"], ["--pass", "dce"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
        assert main(argv) == 0
        out, err = capsys.readouterr()
        assert "exponential" not in out and "tanh" in out and err == ""


def test_output_file(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([source, "-o", str(tmp_path / "out.nir")]) == 0
    assert "neuron.tanh" in (tmp_path / "out.nir").read_text()
    assert capsys.readouterr().out == ""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.nir", "out.nir"]


def test_a_failure_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.nir").write_text(TEXT.replace("%a)", "%c)"))
    (tmp_path / "out.nir").write_text("old")
    assert main([str(tmp_path / "bad.nir"), "-o", str(tmp_path / "out.nir")]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "bad.nir:4:15: error[name]: %c is not defined here" in err
    assert (tmp_path / "out.nir").read_text() == "old"


@pytest.mark.parametrize(
    "argv",
    [
        ["--no-such-flag"],
        ["--emit", "pdf"],
        ["--pass", "css"],
        ["--pass-pipeline", "module(cse"],
        ["--pass", "fuse{max-ops=x}"],
        ["--verify-numerics=much"],
        ["-O7"],
    ],
)
def test_usage_mistakes_exit_with_2(argv: list[str], source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([source, *argv]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "error" in err and "Traceback" not in err


def test_bad_input_files_exit_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "binary.nir").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.nir").write_text("")
    for name, text in (("binary", "cannot read"), ("empty", "error[syntax]"), ("absent", "No such file")):
        assert main([str(tmp_path / f"{name}.nir")]) == 1
        err = capsys.readouterr().err
        assert text in err and "Traceback" not in err


def test_an_output_place_that_is_not_there(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([source, "-o", "/no/such/folder/out.nir"]) == 1
    assert "error[file]: cannot write /no/such/folder/out.nir" in capsys.readouterr().err


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list-passes"]) == 0
    passes = capsys.readouterr().out
    assert "\nfuse\n" in passes and "max-ops=1024  int:" in passes and "-O2: " in passes
    assert main(["--list-ops"]) == 0
    ops = capsys.readouterr().out
    assert "neuron.softmax(%x) {axis}" in ops and "func.return(%values...)" in ops


def test_a_reproducer_replays(tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "crash")
    flags = ["--verify-roundtrip", "--crash-reproducer", folder]
    assert main([source, "--pass", "dce", "--pass", "fuse{capacity=1}", *flags]) == 1
    err = capsys.readouterr().err
    assert "error[capacity]: neuron.tanh: one tile of it takes 256 bytes" in err
    assert f"note: replay with: neuron-opt --run-reproducer {folder}" in err
    assert "exponential" not in Path(folder, "input.nir").read_text()  # dce went well and is not run again
    assert main(["--run-reproducer", folder]) == 1
    assert "error[capacity]: neuron.tanh: one tile of it takes 256 bytes" in capsys.readouterr().err


def test_a_folder_that_is_no_reproducer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--run-reproducer", str(tmp_path)]) == 1
    assert "is not a reproducer's folder" in capsys.readouterr().err


def test_a_tree_of_files(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([source, "-O1", "--print-ir-tree-dir", str(tmp_path / "tree")]) == 0
    capsys.readouterr()
    files = sorted(p.name for p in (tmp_path / "tree").iterdir())
    assert files[0] == "00_input.nir" and files[-1].endswith("_dce.nir")


def test_the_weights_beside_the_input_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy

    from neuron_ir.weights import write_weights

    text = """func @main(%x: tensor<2x3xf32>, %w: tensor<4x3xf32> {kind = "weight", weight = "w"}) -> tensor<2x4xf32> {
      %y = neuron.linear(%x, %w) : tensor<2x4xf32>
      func.return(%y)
    }"""
    (tmp_path / "m.nir").write_text(text)
    write_weights(tmp_path / "m.safetensors", {"w": numpy.ones((4, 3), numpy.float32)})
    assert main([str(tmp_path / "m.nir"), "--pass", "cse", "--verify-numerics"]) == 0
    write_weights(tmp_path / "m.safetensors", {"w": numpy.ones((4, 4), numpy.float32)})
    assert main([str(tmp_path / "m.nir"), "--pass", "cse"]) == 1
    assert "but the program needs tensor<4x3xf32>" in capsys.readouterr().err


def test_the_output_file_has_the_weights_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy

    from neuron_ir.weights import load, write_weights

    text = """func @main(%w: tensor<2xf32> {weight = "w"}, %u: tensor<2xf32> {weight = "u"}) -> tensor<2xf32> {
      func.return(%w)
    }"""
    (tmp_path / "m.nir").write_text(text)
    write_weights(tmp_path / "m.safetensors", {"w": numpy.float32([1, 2]), "u": numpy.float32([3, 4])})
    for output in ("out.nir", "m.nir"):  # to another file, and over the input
        assert main([str(tmp_path / "m.nir"), "--pass", "cse", "-o", str(tmp_path / output)]) == 0
        assert {k: v.tolist() for k, v in load(tmp_path / output).weights.items()} == {"w": [1, 2], "u": [3, 4]}
    assert capsys.readouterr() == ("", "")


def test_parts_keep_the_lines_of_the_whole() -> None:
    assert split_input("a\n// -----\nb\nc") == ["a", "\n\nb\nc"]
    assert split_input("a") == ["a"]


def test_expectations() -> None:
    text = (
        "// expected-error@+1 [op] {{a}} expected-warning {{b}}\n// expected-error@above {{c}}\n// expected-error@unknown {{d}}\n"
    )
    found, malformed = expected_diagnostics(text, "f")
    assert [(e.severity, e.line, e.code, e.message) for e in found] == [
        ("error", 2, "op", "a"), ("warning", 1, "", "b"), ("error", 1, "", "c"), ("error", 0, "", "d"),
    ]  # fmt: skip
    assert malformed == []


def test_a_reader_that_stops_early_is_no_error(tmp_path: Path) -> None:
    lines = [f"  %v{i + 1} = neuron.tanh(%v{i}) : tensor<4xf32>" for i in range(3000)]
    text = "func @main(%v0: tensor<4xf32>) -> tensor<4xf32> {\n" + "\n".join(lines) + "\n  func.return(%v3000)\n}\n"
    (tmp_path / "long.nir").write_text(text)
    command = f"{sys.executable} -m neuron_ir.tools.opt {tmp_path / 'long.nir'} | head -1"
    run = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert run.stdout.startswith("module") and run.stderr == ""


@pytest.mark.speed
def test_help_is_instant() -> None:
    """150 ms on an idle machine, Python's own 45 ms to start included; processor time, as many times more as Python itself takes
    where the machine is busy."""

    def seconds(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    runs = [(seconds("-m", "neuron_ir.tools.opt", "--help"), seconds("-c", "pass")) for _ in range(7)]
    ours, python = map(min, zip(*runs, strict=True))
    assert ours < 0.15 * max(1, python / 0.045)
