"""neuron-run as a program: inputs given or made up, what it prints and writes, and its refusals."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import neuron_ir
from neuron_ir.tools.run import main

TEXT = """\
func @main[S in 1..64](
    %x: tensor<2xSxf32> {name = "tokens"}, %b: tensor<Sxbf16>
) -> (tensor<2xSxf32> {name = "logs"}, tensor<Sxbf16>) {
  %y = neuron.log(%x) : tensor<2xSxf32>
  func.return(%y, %b)
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.nir"
    path.write_text(TEXT)
    return path


def lines(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_each_output_is_one_line(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.array([[1.0, np.e, 0.0], [-1.0, 1.0, 1.0]], np.float32)
    np.savez(model.with_name("x.npz"), tokens=x, b=np.array([1, 2, 6], ml_dtypes.bfloat16))
    assert main([str(model), "--inputs", str(model.with_name("x.npz"))]) == 0
    assert lines(capsys) == [
        ["output", "type", "min", "max", "mean", "nan"],
        ["logs", "tensor<2x3xf32>", "-inf", "1", "-inf", "1"],
        ["out1", "tensor<3xbf16>", "1", "6", "3", "0"],
    ]


def test_inputs_may_be_given_in_order_and_outputs_are_written(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, b = np.full((2, 4), 2, np.float32), np.arange(4).astype(ml_dtypes.bfloat16)
    np.savez(model.with_name("x.npz"), x, b)
    out = model.with_name("y.npz")
    assert main([str(model), "--inputs", str(model.with_name("x.npz")), "--output", str(out)]) == 0
    with np.load(out) as written:
        assert sorted(written) == ["logs", "out1"]
        np.testing.assert_allclose(written["logs"], np.log(x), rtol=1e-6)
        assert written["out1"].tobytes() == b.tobytes()
    assert sorted(p.name for p in model.parent.iterdir()) == ["m.nir", "x.npz", "y.npz"]


def test_random_inputs_are_the_same_for_one_seed(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for seed, size in (("0", "S=5"), ("0", "S=5"), ("1", "S=5"), ("0", "S=6")):
        assert main([str(model), "--random", seed, "--dim", size]) == 0
        found.append(lines(capsys))
    assert found[0] == found[1] != found[2]
    assert found[0][1][1] == "tensor<2x5xf32>"
    assert found[3][1][1] == "tensor<2x6xf32>"


def test_times_are_printed(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(model), "--random", "0", "--time", "3"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("3 runs: min ") and " median " in last and "; first call " in last


def test_weights_beside_the_program_are_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = neuron_ir.parse(
        'func @main(%w: tensor<3xi64> {kind = "weight", weight = "a.w"}) -> tensor<3xi64> {\n'
        "  %y = neuron.add(%w, %w) : tensor<3xi64>\n  func.return(%y)\n}"
    )
    module.weights = {"a.w": np.array([1, -5, 2**40])}
    module.save(str(tmp_path / "m.nir"))
    assert main([str(tmp_path / "m.nir")]) == 0
    assert lines(capsys)[1] == ["out0", "tensor<3xi64>", "-10", str(2**41), f"{(2**41 - 8) / 3:.6g}", "0"]


@pytest.mark.parametrize(
    ("element", "data", "row"),
    [
        ("bool", "[true, false]", ["0", "1", "0.5", "0"]),
        ("c64", "[(3.0, 4.0), (0.0, 1.0)]", ["|1|", "|5|", "|3|", "0"]),
        ("u64", "[18446744073709551615, 1]", ["1", "18446744073709551615", "9.22337e+18", "0"]),
        ("f8e4m3fn", "[448.0, nan]", ["448", "448", "448", "1"]),
        ("f32", "[nan, nan]", ["-", "-", "-", "2"]),
    ],
)
def test_every_kind_of_number_is_summed_up(
    element: str, data: str, row: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.nir").write_text(
        f"func @main() -> tensor<2x{element}> {{\n  %c = neuron.constant() {{value = dense<{data}>}} : tensor<2x{element}>\n"
        "  func.return(%c)\n}"
    )
    assert main([str(tmp_path / "m.nir")]) == 0
    assert lines(capsys)[1] == ["out0", f"tensor<2x{element}>", *row]


def test_a_program_on_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert main(["-", "--random", "0"]) == 0
    assert lines(capsys)[1][0] == "logs"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "@main takes tokens: tensor<2xSxf32>, b: tensor<Sxbf16>; give --inputs or --random"),
        (["--random", "0", "--dim", "S=65"], "S is 65; the program was made for 1 to 64"),
        (["--random", "0", "--dim", "T=3"], "@main has no symbolic dimension T"),
        (["--random", "0", "--target", "refrence"], "there is no target 'refrence'; did you mean 'reference'?"),
        (["--inputs", "m.nir"], "cannot read m.nir as .npz: it is not an archive"),
        (["--inputs", "none.npz"], "cannot read none.npz as .npz: No such file"),
        (["--inputs", "names.npz"], "has no input 'token'; did you mean 'tokens'?"),
        (["--inputs", "shape.npz"], "input 'tokens' is tensor<3x4xf32>, but tensor<2xSxf32> is needed"),
        (["--inputs", "type.npz"], "input 'tokens' is tensor<2x4xf64>, but tensor<2xSxf32> is needed"),
        (["--inputs", "sizes.npz"], "axis 0 of b is 5, but S is 4"),
        (["--inputs", "many.npz"], "many.npz holds 3 arrays, but the program takes 2: tokens, b"),
        (["--inputs", "few.npz"], "input(s) b missing"),
        (["--inputs", "pickled.npz"], "cannot read pickled.npz as .npz"),
        (["--random", "0", "--output", "none/y.npz"], "cannot write none/y.npz: No such file"),
    ],
)
def test_mistakes_are_diagnostics(
    arguments: list[str], message: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(model.parent)
    x, b = np.ones((2, 4), np.float32), np.ones(4, ml_dtypes.bfloat16)
    np.savez("names.npz", token=x, b=b)
    np.savez("shape.npz", tokens=np.ones((3, 4), np.float32), b=b)
    np.savez("type.npz", tokens=x.astype(np.float64), b=b)
    np.savez("sizes.npz", tokens=x, b=np.ones(5, ml_dtypes.bfloat16))
    np.savez("many.npz", x, b, b)
    np.savez("few.npz", x)
    np.savez("pickled.npz", tokens=np.array([{}], object), b=b)
    before = sorted(Path().iterdir())
    assert main(["m.nir", *arguments]) == 1
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == "" or "--output" in arguments
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["m.nir", "--random", "zero"],
        ["m.nir", "--random", "0", "--inputs", "x.npz"],
        ["m.nir", "--dim", "S=4"],
        ["m.nir", "--random", "0", "--dim", "S"],
        ["m.nir", "--random", "0", "--time", "0"],
    ],
)
def test_wrong_usage_is_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "usage: neuron-run" in capsys.readouterr().err


def test_help_loads_nothing_heavy() -> None:
    import subprocess

    heavy = "any(m in sys.modules for m in ('jax', 'numpy', 'lark'))"
    code = f"import sys; from neuron_ir.tools.run import main; main(['--help']); sys.exit({heavy})"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0


def test_subnormal_numbers_are_kept_on_request(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(model.with_name("x.npz"), tokens=np.full((2, 1), 1e-40, np.float32), b=np.zeros(1, ml_dtypes.bfloat16))
    argv = [str(model), "--inputs", str(model.with_name("x.npz"))]
    assert main(argv) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split()[2] == "-inf"
    assert "warning[subnormal]: subnormal numbers in the input 'tokens' count as 0" in printed.err
    assert main([*argv, "--subnormals", "exact"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split()[2] == "-92.1034"  # log(1e-40)
    assert not printed.err


INTEGER = """\
func @main[S in 2..64, n in 0..inf](%x: tensor<Sxf32> {name = "x"}) -> (tensor<nxf32> {name = "y"}, tensor<i64> {name = "k"})
    {size_inputs = [[1, "n", "n"]], where = ["n <= S"]} {
  %y = neuron.slice(%x) {start_indices = [0], limit_indices = [n]} : tensor<nxf32>
  %k = neuron.dim_size() {size = n+1} : tensor<i64>
  func.return(%y, %k)
}
"""


def test_inputs_that_are_integers_follow_the_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.nir"
    path.write_text(INTEGER)
    assert main([str(path), "--random", "0", "--dim", "S=5", "--dim", "n=3"]) == 0
    rows = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows[0][:2] == ["y", "tensor<3xf32>"] and rows[1] == ["k", "tensor<i64>", "4"]
    assert main([str(path), "--random", "0", "--dim", "S=5", "--dim", "n=7"]) == 1
    assert "S is 5, n is 7; the program was made for n <= S" in capsys.readouterr().err
