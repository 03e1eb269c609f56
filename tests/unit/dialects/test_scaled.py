"""8-bit floats with scales against ml_dtypes, NumPy and arithmetic by hand."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from neuron_ir.diagnostics import IRError
from neuron_ir.dtypes import dtype
from neuron_ir.meaning import compute

FORMATS = {"f8e4m3": ml_dtypes.float8_e4m3, "f8e4m3fn": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}
EDGES = np.float32(
    [0.0, -0.0, 1.0, 240.0, 247.9, 248.0, 448.0, 464.0, 57344.0, 61440.0, 1e30, -1e30, 2**-6, 2**-9, 2**-10, 1.5 * 2**-10, 3e-38]
)


def same(got, want):
    np.testing.assert_array_equal(np.asarray(got).astype(np.float64), np.asarray(want).astype(np.float64))
    np.testing.assert_array_equal(np.signbit(np.asarray(got).astype(np.float32)), np.signbit(np.asarray(want).astype(np.float32)))


@pytest.mark.accuracy  # how a quotient is formed and a cast rounds is XLA's own
@pytest.mark.parametrize("name", FORMATS)
def test_a_scaled_cast_is_the_quotient_rounded_once(name: str) -> None:
    most = np.float32(float(ml_dtypes.finfo(FORMATS[name]).max))
    noise = np.random.default_rng(0).standard_normal((64, 17)).astype(np.float32) * np.float32(10.0) ** np.arange(-8, 9, dtype="f")
    scale = np.float32(10.0) ** np.linspace(-6, 6, 64, dtype="f")
    want = np.clip(noise / scale[:, None], -most, most).astype(FORMATS[name])
    same(compute("neuron.scaled_cast", noise, scale, axes=[1], element=dtype(name)), want)
    same(
        compute("neuron.scaled_cast", EDGES, np.float32(1), element=dtype(name)), np.clip(EDGES, -most, most).astype(FORMATS[name])
    )


def test_what_is_not_finite_stays_visible() -> None:
    x = np.float32([math.inf, -math.inf, math.nan, 1e38])
    for name, infinity in (("f8e4m3", math.inf), ("f8e5m2", math.inf), ("f8e4m3fn", math.nan)):
        got = compute("neuron.scaled_cast", x, np.float32(1), element=dtype(name)).astype(float)
        np.testing.assert_array_equal(got, [infinity, -infinity, math.nan, dtype(name).max])


def test_largest_values_and_their_scales() -> None:
    x = np.float32([[1, -3, 0.5], [0, 0, 0], [math.inf, math.nan, -2]])
    np.testing.assert_array_equal(compute("neuron.amax", x, axes=[-1]), [3, 0, 2])
    np.testing.assert_array_equal(compute("neuron.amax", x), np.float32(3))
    np.testing.assert_array_equal(compute("neuron.amax", x[:0], axes=[0]), [0, 0, 0])
    np.testing.assert_array_equal(compute("neuron.amax", x[:, :0], axes=[1]), [0, 0, 0])
    assert compute("neuron.amax", x.astype(np.float16)).dtype == np.float32
    amax = np.float32([480, 0, 1e-37, math.inf, math.nan, -1])
    got = compute("neuron.scale_for", amax, element=dtype("f8e4m3"))
    np.testing.assert_array_equal(got, np.float32([2, 1, 2.0**-126, math.nan, math.nan, math.nan]))
    np.testing.assert_array_equal(compute("neuron.scale_for", np.float32([448]), element=dtype("f8e4m3fn"), margin=1), [2])
    np.testing.assert_array_equal(compute("neuron.scale_for", np.float64([1e300]), element=dtype("f8e5m2")), [1e300 / 57344])


def test_blocks_by_hand() -> None:
    x = np.zeros((2, 40), np.float32)
    x[0, :3], x[0, 35], x[1, 0], x[1, 33:35] = [1, -3, 300], 0.75, math.inf, [2.0**-140, 1e38]
    elements, scales = compute("neuron.quantize_mx", x)
    # floor(log2(300)) - 8 + 1 = 1; -1 - 7 = -8; no finite element but 0: -127; floor(log2(1e38)) = 126, so 119
    np.testing.assert_array_equal(scales.astype(np.float64), [[2, 2.0**-8], [2.0**-127, 2.0**119]])
    got = elements.astype(np.float64)
    assert got[0, :3].tolist() == [0.5, -1.5, 144] and got[0, 35] == 192
    assert math.isnan(got[1, 0]) and got[1, 34] == float(np.float32(1e38 / 2.0**119).astype(ml_dtypes.float8_e4m3fn))
    standard, powers = compute("neuron.quantize_mx", x, headroom=0)
    assert powers.astype(float)[0, 0] == 1 and standard.astype(float)[0, 2] == 288
    back = compute("neuron.dequantize_mx", elements, scales)
    assert back.dtype == ml_dtypes.bfloat16 and back.astype(float)[0, :3].tolist() == [1, -3, 288]
    assert back.astype(float)[0, 35] == 0.75


@pytest.mark.accuracy  # how a quotient is formed and a cast rounds is XLA's own
def test_blocks_against_numpy() -> None:
    x = (np.random.default_rng(1).standard_normal((64, 3)) * 10.0 ** np.arange(-3, 0)).astype(np.float32)
    for name, largest in (("f8e4m3fn", 8), ("f8e5m2", 15)):
        elements, scales = compute("neuron.quantize_mx", x, axis=0, element=dtype(name))
        power = np.floor(np.log2(np.abs(x.reshape(2, 32, 3)).max(1))) - largest + 1
        np.testing.assert_array_equal(scales.astype(np.float64), 2.0**power)
        want = (x / np.repeat(2.0**power, 32, axis=0)).astype(np.float32).astype(FORMATS[name])
        same(elements, want)
        exact = compute("neuron.dequantize_mx", elements, scales, axis=0, element=dtype("f64"))
        np.testing.assert_array_equal(exact, want.astype(np.float64) * np.repeat(2.0**power, 32, axis=0))


@pytest.mark.parametrize("shape", [(0, 40), (2, 0)])
def test_blocks_of_nothing(shape: tuple[int, int]) -> None:
    elements, scales = compute("neuron.quantize_mx", np.zeros(shape, np.float32))
    assert scales.shape == (shape[0], -(-shape[1] // 32)) and compute("neuron.dequantize_mx", elements, scales).shape == shape


@pytest.mark.parametrize(("name", "low", "high"), [("f8e4m3", 0.28125, 0.3125), ("f8e5m2", 0.25, 0.3125), ("bf16", None, None)])
def test_random_rounding_gives_neighbours_whose_mean_is_the_value(name: str, low: float, high: float) -> None:
    n = 40_000
    y, state = compute("neuron.round_stochastic", np.full(n, -0.3, np.float32), np.uint64([7, 5]), element=dtype(name))
    values = -np.unique(y.astype(np.float64))[::-1]
    assert len(values) == 2 and values[0] <= 0.3 <= values[1] and (low is None or values.tolist() == [low, high])
    step = values[1] - values[0]
    assert abs(y.astype(np.float64).mean() + float(np.float32(0.3))) < 4 * step / math.sqrt(
        4 * n
    )  # 4 deviations, at most step / 2 each
    assert state.tolist() == [7, 5 + n // 4]
    same(compute("neuron.round_stochastic", np.full(n, -0.3, np.float32), np.uint64([7, 5]), element=dtype(name))[0], y)


def test_random_rounding_keeps_what_the_format_holds() -> None:
    held = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3)
    x = np.concatenate([held.astype(np.float32), np.float32([1e9, -1e9, 0.9 * 2**-9])])
    got, _ = compute("neuron.round_stochastic", x, np.uint64([0, 0]), element=dtype("f8e4m3"))
    np.testing.assert_array_equal(got[:256].astype(np.float32), held.astype(np.float32))
    assert got[256:258].astype(float).tolist() == [240, -240] and float(got[258]) in (0, 2**-9)


@pytest.mark.parametrize(
    ("op", "arrays", "fields", "message"),
    [
        ("scaled_cast", [np.ones((2, 3), "f"), np.ones(3, "f")], {"axes": [1], "element": dtype("f8e4m3")}, "must be [2], not [3]"),
        ("scale_for", [np.ones(2, "f")], {"element": dtype("bf16")}, "attribute element must be one of f8e4m3, f8e4m3fn, f8e5m2"),
        ("dequantize_mx", [np.ones((2, 33), "f"), np.ones((2, 1), dtype("f8e8m0").numpy)], {}, "must be [2, 2], not [2, 1]"),
        ("quantize_mx", [np.ones(4, "f")], {"axis": 1}, "axis 1"),
        ("round_stochastic", [np.ones(4, "f"), np.uint64([1])], {"element": dtype("bf16")}, "tensor<1xu64>"),
    ],
)  # fmt: skip
def test_mistakes_are_named(op: str, arrays: list[np.ndarray], fields: dict[str, object], message: str) -> None:
    with pytest.raises(IRError) as raised:
        compute(f"neuron.{op}", *arrays, **fields)
    assert message in str(raised.value)
