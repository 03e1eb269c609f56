"""The pass precision beyond its golden files: stored weights, state from run to run, calibration, gradients, policies."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

import neuron_ir
from neuron_ir.diagnostics import IRError, IRWarning
from neuron_ir.numerics import VerifyNumerics
from neuron_ir.passmanager import PassManager
from neuron_ir.pipeline import parse_pipeline
from neuron_ir.precision_policy import AUTOCAST_F32

TEXT = """
func @main(%x: tensor<4x8xf32>, %w: tensor<8x6xf32> {kind = "weight", weight = "w"}) -> (tensor<4x6xf32>, tensor<4x8xf32>) {
  %t = neuron.transpose(%w) {permutation = [1, 0]} : tensor<6x8xf32>
  %y = neuron.linear(%x, %t) : tensor<4x6xf32>
  %z = neuron.matmul(%y, %w) {transpose_b} : tensor<4x8xf32>
  func.return(%y, %z)
}
"""
RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((4, 8)).astype("f"), RNG.standard_normal((8, 6)).astype("f")


def module() -> neuron_ir.Module:
    made = neuron_ir.parse(TEXT)
    made.weights["w"] = W
    return made


def scaled(x: np.ndarray, axis: int | None) -> np.ndarray:
    """``x`` rounded to e4m3 with a scale per index of the other axis, by NumPy."""
    amax = np.abs(x).max(axis=axis, keepdims=axis is not None)
    scale = (amax / np.float32(240)).astype("f")
    return (x / scale).astype(ml_dtypes.float8_e4m3).astype("f") * scale


def test_weights_are_stored_in_8_bits_with_the_program(tmp_path: Path) -> None:
    lowered = module()
    neuron_ir.PrecisionPolicy(dtype="fp8").apply(lowered)
    assert [a.get("weight") for a in lowered.main.arg_attrs] == [
        None, "w.f8e4m3", "w.f8e4m3.scale", "w.f8e4m3.1", "w.f8e4m3.scale.1",
    ]  # fmt: skip
    assert lowered.weights["w"] is W and not any(op.name == "neuron.transpose" for op in lowered.walk())
    lowered.save(str(tmp_path / "m.nir"))
    y, z = neuron_ir.compile(neuron_ir.load(str(tmp_path / "m.nir")))(X)
    want = scaled(X, 1) @ scaled(W, 0)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(z, scaled(np.asarray(y), 1) @ scaled(W, 1).T, rtol=1e-5, atol=1e-4)


def test_weights_that_the_program_updates_are_scaled_in_each_run() -> None:
    lowered = neuron_ir.parse(TEXT.replace("tensor<4x8xf32>) {\n", 'tensor<4x8xf32>, tensor<8x6xf32> {updates = 1}) {\n').replace(
        "func.return(%y, %z)", "%u = neuron.add(%w, %w) : tensor<8x6xf32>\n func.return(%y, %z, %u)"
    ))  # fmt: skip
    lowered.weights["w"] = W
    neuron_ir.PrecisionPolicy(dtype="fp8").apply(lowered)
    program = neuron_ir.compile(lowered)
    for factor in (1, 2):
        np.testing.assert_allclose(program(X)[0], factor * (scaled(X, 1) @ scaled(W, 0)), rtol=1e-5, atol=1e-5)


def test_delayed_scales_are_those_of_the_runs_before() -> None:
    lowered = module()
    neuron_ir.PrecisionPolicy(dtype="fp8", scaling="delayed", history=2, keep_ops=("matmul",)).apply(lowered)
    program = neuron_ir.compile(lowered)
    big = 100 * X
    np.testing.assert_allclose(program(X)[0], scaled(X, None) @ scaled(W, 0), rtol=1e-5, atol=1e-5)
    scale = (np.abs(X).max() / np.float32(240)).astype("f")
    saturated = np.clip(big / scale, -240, 240).astype(ml_dtypes.float8_e4m3).astype("f") * scale
    np.testing.assert_allclose(program(big)[0], saturated @ scaled(W, 0), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(program.state["precision.history.0"], [np.abs(big).max(), np.abs(X).max()])
    np.testing.assert_allclose(program(big)[0], scaled(big, None) @ scaled(W, 0), rtol=1e-5, atol=1e-3)


def test_static_scales_are_those_of_the_calibration() -> None:
    lowered = module()
    found = neuron_ir.calibrate(lowered, [(X,), {"x": 2 * X}])
    assert found["x"] == 2 * np.abs(X).max() and found["y"] == pytest.approx(2 * np.abs(X @ W).max(), rel=1e-6)
    assert set(found) == {"t", "w", "x", "y"}
    lowered = neuron_ir.parse(lowered.text())  # what was found stays with the text
    lowered.weights["w"] = W
    neuron_ir.run_passes(lowered, "cse,precision{dtype=fp8 scaling=static},dce")
    scale = (2 * np.abs(X).max() / np.float32(240)).astype("f")
    want = (X / scale).astype(ml_dtypes.float8_e4m3).astype("f") * scale @ scaled(W, 0)
    np.testing.assert_allclose(neuron_ir.compile(lowered)(X)[0], want, rtol=1e-5, atol=1e-5)
    with pytest.raises(IRError, match="calibrate needs at least one batch"):
        neuron_ir.calibrate(module(), [])


def test_random_rounding_has_a_state_that_goes_on() -> None:
    lowered = module()
    neuron_ir.PrecisionPolicy(dtype="bf16", rounding="stochastic", seed=3).apply(lowered)
    program = neuron_ir.compile(lowered)
    first, second = program(X)[0], program(X)[0]
    drawn = 2 * (8 + 12 + 6 + 12)  # blocks of four words for x, t, y and w in each of two runs
    assert program.state["precision.rng"].tolist() == [3, drawn] and not np.array_equal(first, second)
    assert np.abs(first - X @ W).max() < 0.02 * np.abs(X @ W).max()


def test_numerics_are_verified_with_stored_weights_and_new_state() -> None:
    text = "precision{dtype=fp8 scaling=delayed}"
    PassManager(parse_pipeline(f"{text},dce"), [VerifyNumerics()]).run(module())
    with pytest.raises(IRError, match="pass precision changed result 0 of @main"):
        PassManager(parse_pipeline(text), [VerifyNumerics(1e-6)]).run(module())


def test_gradients_of_jax_are_e5m2() -> None:
    import jax

    made = neuron_ir.from_jax(jax.grad(lambda w, v, x: ((x @ w) @ v).sum(), argnums=(0, 1)), W, W.T, X)
    neuron_ir.run_passes(made, "precision{dtype=fp8}")
    sources = {r: op.get("element").name for op in made.walk() if op.name == "neuron.scaled_cast" for r in op.results}
    products = [[sources[v] for v in op.operands] for op in made.walk() if "matmul" in op.spec.traits]
    # two products forward; three of a gradient backward, the last of one that a product has just made
    assert products == [["f8e4m3", "f8e4m3"]] * 2 + [["f8e5m2", "f8e4m3"]] * 3


def test_a_policy_is_text_and_back() -> None:
    policy = neuron_ir.PrecisionPolicy(dtype="fp8", keep_modules=("head", "blocks.*"), bf16_ops=("conv",), margin=1)
    (made,) = parse_pipeline(f"precision{{{policy.text}}}")
    assert (made.dtype, made.keep_modules, made.bf16_ops, made.margin) == ("fp8", ("head", "blocks.*"), ("conv",), 1)
    assert made.rtol == 0.2 and type(made).rtol == 0.02
    with pytest.raises(IRError, match=r"dtype is one of .*, not 'fp9'; did you mean"):
        neuron_ir.PrecisionPolicy(dtype="fp9")
    with pytest.warns(IRWarning, match="keep-names = other matches no matrix product; there are y, z"):
        neuron_ir.PrecisionPolicy(keep_names=("other",)).apply(module())


def test_the_f32_list_is_a_part_of_torchs() -> None:
    header = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
    text = header.read_text(encoding="utf-8").split("define AT_FORALL_FP32(_)")[1]
    theirs = set(re.findall(r"_\((\w+)", text.split("AT_FORALL_PROMOTE")[0]))
    spelt = {
        "erf_inv": "erfinv", "exponential": "exp", "exponential_minus_one": "expm1", "log_plus_one": "log1p", "power": "pow",
        "reduce_prod": "prod", "reduce_sum": "sum",
    }  # fmt: skip
    ours = {spelt.get(n, n) for n in (name.removeprefix("neuron.") for name in AUTOCAST_F32)}
    assert ours - theirs <= {"cross_entropy"}  # made of log_softmax and nll_loss, which are


def to_tf32(x: np.ndarray) -> np.ndarray:
    """``x`` rounded to ten bits of fraction, nearest even, by its bits."""
    bits = x.view(np.uint32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)).view(np.float32)


def test_tf32_rounds_the_inputs_of_f32_products() -> None:
    lowered = module()
    neuron_ir.PrecisionPolicy(dtype="tf32").apply(lowered)
    y, _ = neuron_ir.compile(lowered)(X)
    want = to_tf32(X).astype(np.float64) @ to_tf32(W).astype(np.float64)
    np.testing.assert_allclose(y, want, rtol=1e-6, atol=1e-6)  # sums of 8 products in f32
    assert abs(want - X.astype(np.float64) @ W.astype(np.float64)).max() > 1e-5


@pytest.mark.parametrize(("shapes", "result"), [(("", ""), ""), (("3", "4"), "3x4")])
@pytest.mark.parametrize("policy", ["dtype=fp8", "dtype=fp8 granularity=tensor", "dtype=mxfp8 target=trn3", "dtype=tf32"])
def test_products_that_sum_nothing(policy: str, shapes: tuple[str, str], result: str) -> None:
    a, b, out = (f"tensor<{s}xf32>" if s else "tensor<f32>" for s in (*shapes, result))
    attrs = "{lhs_batch = [], rhs_batch = [], lhs_contract = [], rhs_contract = []}"
    lowered = neuron_ir.parse(
        f"func @main(%x: {a}, %w: {b}) -> {out} {{ %y = neuron.dot_general(%x, %w) {attrs} : {out} func.return(%y) }}"
    )
    neuron_ir.run_passes(lowered, f"precision{{{policy}}}")
    x, w = (2 ** np.arange(int(s or 1), dtype="f").reshape([int(s)] if s else []) for s in shapes)
    np.testing.assert_allclose(
        neuron_ir.compile(lowered)(x, w), np.multiply.outer(x, w), rtol=1e-6
    )  # powers of two: exact in each format


@pytest.mark.parametrize("policy", ["dtype=bf16", "dtype=fp8"])
def test_products_of_integers_are_left_alone_and_said_to_be(policy: str) -> None:
    made = neuron_ir.parse(
        "func @main(%x: tensor<2x2xi32>) -> tensor<2x2xi32> { %y = neuron.matmul(%x, %x) : tensor<2x2xi32> func.return(%y) }"
    )
    (decision,) = neuron_ir.PrecisionPolicy(dtype=policy.removeprefix("dtype=")).decide(made).values()
    assert decision.reason == "integers stay exact"
