"""What a precision policy does to each op, judged by NumPy in float64, and the cheapest policy within a bound."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import neuron_ir
from neuron_ir.diagnostics import IRError

TEXT = """
func @main(%x: tensor<4x16xf32>, %w: tensor<16x16xf32> {kind = "weight", weight = "w"}, %v: tensor<16x4xf32>) -> tensor<4x4xf32> {
  %y = neuron.matmul(%x, %w) : tensor<4x16xf32> loc("up" at "m.py":3:1)
  %t = neuron.tanh(%y) : tensor<4x16xf32> loc("act" at "m.py":4:1)
  %z = neuron.matmul(%t, %v) : tensor<4x4xf32> loc("down" at "m.py":5:1)
  func.return(%z)
}
"""
RNG = np.random.default_rng(0)
X, V = RNG.standard_normal((4, 16)).astype("f"), RNG.standard_normal((16, 4)).astype("f")
W = (RNG.standard_normal((16, 16)) / 4).astype("f")


def module() -> neuron_ir.Module:
    made = neuron_ir.parse(TEXT)
    made.weights["w"] = W
    return made


def off(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.abs(got - want).max() / np.abs(want).max())


def test_errors_are_those_of_numpy(capsys: pytest.CaptureFixture[str]) -> None:
    report = neuron_ir.precision_report(module(), {"x": X, "v": V}, "dtype=bf16 keep-modules=down")
    assert str(report) in capsys.readouterr().out and "m.py:3:1 in up" in str(report)
    rows = {row.value: row for row in report.rows}
    assert report.rows[0].value == "y" and set(rows) == {"y", "t", "z"}
    rounded = X.astype(ml_dtypes.bfloat16).astype("f8") @ W.astype(ml_dtypes.bfloat16).astype("f8")
    exact = X.astype("f8") @ W.astype("f8")
    assert rows["y"].error == pytest.approx(off(rounded, exact), rel=1e-3) == rows["y"].total
    assert rows["t"].error < 1e-6 and rows["t"].total == pytest.approx(off(np.tanh(rounded), np.tanh(exact)), rel=1e-3)
    assert report.error == rows["z"].total == pytest.approx(off(np.tanh(rounded) @ V, np.tanh(exact) @ V), rel=1e-3)
    assert (rows["y"].dtypes, rows["y"].reason) == ("bf16 x bf16 -> f32", "a product, summed in f32")
    assert (rows["z"].dtypes, rows["z"].reason, rows["z"].lowered) == ("f32 x f32 -> f32", "kept by down", False)


def test_the_cheapest_policy_within_a_bound() -> None:
    errors = {}
    for policy in (neuron_ir.PrecisionPolicy(dtype="fp8"), neuron_ir.PrecisionPolicy()):
        errors[policy.dtype] = neuron_ir.precision_report(module(), (X, V), policy).error
    assert neuron_ir.tune_precision(module(), (X, V), errors["fp8"] * 1.01).text == "dtype=fp8 target=trn2"
    between = neuron_ir.tune_precision(module(), (X, V), errors["fp8"] * 0.99)
    assert between.dtype == "fp8" and len(between.bf16_names) == 1
    fine = neuron_ir.tune_precision(module(), (X, V), errors["bf16"] * 0.99)
    assert fine.dtype == "bf16" and len(fine.keep_names) == 1
    with pytest.raises(IRError, match=r"max_error = 1e-12 is below .*, the error of the program in its own precision"):
        neuron_ir.tune_precision(module(), (X, V), 1e-12)
    with pytest.raises(IRError, match="max_error must be positive"):
        neuron_ir.tune_precision(module(), (X, V), 0)
