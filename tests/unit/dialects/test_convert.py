"""Casts between every pair of element types, bit casts, reduced precision and quantisation."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import torch

from neuron_ir.diagnostics import IRError
from neuron_ir.dtypes import dtype, dtype_of_numpy
from neuron_ir.meaning import compute
from neuron_ir.types import tensor
from tests.unit.dialects.judge import assert_refused

pytestmark = pytest.mark.accuracy  # how a cast rounds is XLA's own

FP8 = ["f8e3m4", "f8e4m3", "f8e4m3fn", "f8e4m3fnuz", "f8e4m3b11fnuz", "f8e5m2", "f8e5m2fnuz"]
TORCH_FP8 = {
    "f8e4m3fn": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
    "f8e4m3fnuz": torch.float8_e4m3fnuz,
    "f8e5m2fnuz": torch.float8_e5m2fnuz,
}
OUT_OF_RANGE = [
    200, -200, 300, 1e10, math.nan, math.inf, -math.inf, 2.0**40 + 300, -1, -1.5, 0.999, 2.0**31, -(2.0**31), 2.0**31 + 5000,
    2.0**63, 2.0**62, -(2.0**63), 2.0**64, 1e30, -1e30, 70000, -70000, 127.9, -128.9, 255.5, 4294967295.0, 4294967296.0, -0.0,
]  # fmt: skip


def cast(x, target, mode="nan"):
    x = np.asarray(x)
    return compute("neuron.cast", x, out=tensor(x.shape, target), mode=mode)


def same(a, b):
    """Equal values, NaNs and signs of zeros; compared in f32, which holds every value of the narrow formats."""
    a, b = np.asarray(a).astype(np.float32), np.asarray(b).astype(np.float32)
    np.testing.assert_array_equal(a, b)
    number = ~np.isnan(a)
    np.testing.assert_array_equal(np.signbit(a)[number], np.signbit(b)[number])


def all_upper_halves():
    """Every f32 whose lower 16 bits are 0, 1, 0x8000 or all ones: all exponents, all ties of formats up to 16 bits."""
    upper = np.arange(65536, dtype=np.uint32) << 16
    with np.errstate(all="ignore"):
        return np.concatenate([upper, upper + 1, upper + 0x8000, upper + 0xFFFF]).view(np.float32)


@pytest.mark.parametrize("name", [*FP8, "f8e8m0", "f16", "bf16"])
def test_f32_to_narrow_floats(name):
    x = all_upper_halves()
    with np.errstate(all="ignore"):
        same(cast(x, name), x.astype(dtype(name).numpy))


@pytest.mark.parametrize("name", [*FP8, "f8e8m0"])
def test_every_fp8_code_to_f32_and_back(name):
    codes = np.arange(256, dtype=np.uint8).view(dtype(name).numpy)
    for wide in ("f32", "f16", "bf16", "f64"):
        got = cast(codes, wide)
        with np.errstate(all="ignore"):
            same(got, codes.astype(dtype(wide).numpy))
        if name != "f8e8m0" or wide in ("f32", "f64"):
            same(cast(got, name), codes)


@pytest.mark.parametrize("name", TORCH_FP8)
def test_saturating_fp8_is_torchs_rule_of_finite_values(name):
    x = all_upper_halves()
    largest = float(dtype(name).max)
    got = cast(x, name, "saturate").astype(np.float32)
    expected = torch.from_numpy(np.clip(x, -largest, largest)).to(TORCH_FP8[name]).float().numpy()
    same(got, expected)
    assert np.isfinite(got[~np.isnan(x)]).all() and np.isnan(got[np.isnan(x)]).all()
    if name == "f8e4m3fn":
        same(got, torch.from_numpy(x).to(TORCH_FP8[name]).float().numpy())


def test_fp8_overflow_by_mode():
    x = np.float32([448, 464, 465, 1000, math.inf, -math.inf, math.nan])
    same(cast(x, "f8e4m3fn"), [448, 448, math.nan, math.nan, math.nan, math.nan, math.nan])
    same(cast(x, "f8e4m3fn", "saturate"), [448, 448, 448, 448, 448, -448, math.nan])
    same(cast(np.float32([1e9, -1e9]), "f8e5m2"), [math.inf, -math.inf])
    same(cast(np.float32([1e9, -1e9]), "f16", "saturate"), [65504, -65504])
    same(cast(np.int32([1000, -1000, 3]), "f8e4m3fn", "saturate"), [448, -448, 3])
    same(cast(np.int32([1000, -1000, 3]), "f8e4m3fn"), [math.nan, math.nan, 3])
    same(cast(np.float64([1e300, 1]), "f8e4m3fn", "saturate"), [448, 1])


def test_f64_to_fp8_rounds_once():
    """Just above a tie: through f32 the tie itself would be rounded to even, downwards."""
    same(cast(np.float64([0.0009765625000009766, 0.004882812500004883]), "f8e4m3fn"), [0.001953125, 0.005859375])


def test_f4_and_e8m0():
    x = np.float32([0.24, 0.25, 0.26, 0.75, 1.25, 2.5, 5, 6, 7, 1e9, -math.inf, math.nan])
    same(cast(x, "f4e2m1"), [0, 0, 0.5, 1, 1, 2, 4, 6, 6, 6, -6, 0])
    x = np.float32([1, 3, 2.0**127, 0, 2.0**-127, -1, math.nan, math.inf])
    same(cast(x, "f8e8m0"), [1, 4, 2.0**127, math.nan, 2.0**-127, math.nan, math.nan, math.nan])
    same(cast(x, "f8e8m0", "saturate"), [1, 4, 2.0**127, 2.0**-127, 2.0**-127, math.nan, math.nan, 2.0**127])
    x = 2.0 ** np.linspace(-130, -124, 50)
    same(cast(x, "f8e8m0"), x.astype(dtype("f8e8m0").numpy))
    same(cast(np.float64([1e-200, 2.0**-127, 1e300]), "f8e8m0", "saturate"), [2.0**-127, 2.0**-127, 2.0**127])


INTEGERS = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"]


@pytest.mark.parametrize("source", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("target", INTEGERS)
def test_float_to_integer(source, target):
    with np.errstate(all="ignore"):
        x = np.array(OUT_OF_RANGE).astype(dtype(source).numpy)
    info = np.iinfo(dtype(target).numpy)

    def clipped(v):
        if math.isnan(v):
            return 0
        return info.max if v >= info.max else info.min if v <= info.min else int(v)

    expected = np.array([clipped(float(v)) for v in x], dtype(target).numpy)
    for mode in ("nan", "saturate"):
        np.testing.assert_array_equal(cast(x, target, mode), expected)
    values = torch.from_numpy(x.astype(np.float32)).bfloat16() if source == "bf16" else torch.from_numpy(x)
    np.testing.assert_array_equal(cast(x, target, "wrap"), values.to(getattr(torch, dtype(target).numpy_name)).numpy())


def test_float_to_int_of_the_reports():
    x = np.float32([200, -200, 300, 1e10, math.nan, math.inf])
    assert cast(x, "i8", "wrap").tolist() == [-56, 56, 44, 0, 0, 0]
    assert cast(x, "i8").tolist() == [127, -128, 127, 127, 0, 127]
    assert cast(np.float32([-1]), "u8").tolist() == [0]
    assert cast(np.float32([-1]), "u8", "wrap").tolist() == [255]


@pytest.mark.parametrize("name", FP8)
def test_every_fp8_code_to_integers(name):
    codes = np.arange(256, dtype=np.uint8).view(dtype(name).numpy)
    values = codes.astype(np.float64)
    for target in ("i8", "u8", "i32"):
        info = np.iinfo(dtype(target).numpy)
        expected = np.where(np.isnan(values), 0, np.clip(np.trunc(np.nan_to_num(values)), info.min, info.max))
        np.testing.assert_array_equal(cast(codes, target), expected.astype(dtype(target).numpy))


def test_integers_keep_their_low_bits():
    x = np.int64([-1, 300, 2**40 + 5, -(2**63), 2**63 - 1])
    for target in INTEGERS:
        np.testing.assert_array_equal(cast(x, target), x.astype(dtype(target).numpy))
        np.testing.assert_array_equal(cast(x, target, "saturate"), x.astype(dtype(target).numpy))
    assert cast(np.int32([7, 8, -8, -9, 16]), "i4").astype(int).tolist() == [7, -8, -8, 7, 0]
    assert cast(np.int32([15, 16, -1]), "u4").astype(int).tolist() == [15, 0, 15]
    assert cast(np.float32([7.9, 8, -9, math.nan]), "i4").astype(int).tolist() == [7, 7, -8, 0]
    assert cast(np.array([-2, 1], ml_dtypes.int4), "f32").tolist() == [-2, 1]


def test_integers_to_floats():
    x = np.int64([2**53 + 1, 2**24 + 1, -(2**63), 2**63 - 1])
    for target in ("f32", "f64"):
        np.testing.assert_array_equal(cast(x, target), x.astype(dtype(target).numpy))
    np.testing.assert_array_equal(
        cast(np.uint64([2**64 - 1, 2**63 + 1]), "f64"), np.uint64([2**64 - 1, 2**63 + 1]).astype(np.float64)
    )
    np.testing.assert_array_equal(cast(np.int32([70000]), "f16"), [math.inf])


def test_bool():
    assert cast(np.float32([0, -0.0, math.nan, 0.1, math.inf]), "bool").tolist() == [False, False, True, True, True]
    assert cast(np.int32([0, -1, 256]), "bool").tolist() == [False, True, True]
    assert cast(np.complex64([0, 1j, math.nan]), "bool").tolist() == [False, True, True]
    for target in ("i8", "u64", "f8e4m3fn", "bf16", "f64", "c64", "i4"):
        assert cast(np.array([False, True]), target).astype(np.complex128).tolist() == [0, 1]


def test_complex():
    x = np.complex128([1.5 - 2j, 1e300 + 1j])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(cast(x, "c64"), x.astype(np.complex64))
    assert cast(x[:1], "f32").tolist() == [1.5] and cast(x[:1], "i8").tolist() == [1]
    assert cast(np.float32([2]), "c128").tolist() == [2 + 0j]


def test_tf32_keeps_ten_bits_of_fraction():
    x = np.float32([1 + 2**-10, 1 + 2**-11, 1 + 3 * 2**-11, 1e-3, math.inf])
    expected = [1 + 2**-10, 1, 1 + 2**-9, np.float32(1e-3).view(np.uint32), math.inf]
    expected[3] = np.uint32((int(expected[3]) + 0xFFF + (int(expected[3]) >> 13 & 1)) & ~0x1FFF).view(np.float32)
    np.testing.assert_array_equal(cast(x, "tf32"), np.float32(expected))


def test_reduce_precision():
    x = np.float32([1.0009765625, 65519.9, 65520, -1e-9, math.nan, 3.14159])
    got = compute("neuron.reduce_precision", x, exponent_bits=5, mantissa_bits=10)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, x.astype(np.float16).astype(np.float32))
    got = compute("neuron.reduce_precision", x, exponent_bits=8, mantissa_bits=7)
    np.testing.assert_array_equal(got, x.astype(ml_dtypes.bfloat16).astype(np.float32))


BITS = [
    (np.float32([1, -0.0, math.nan, 1e-45]), "i32"),
    (np.arange(256, dtype=np.uint8), "f8e4m3fn"),
    (np.float64([[1.5, -2]]), "u32"),
    (np.float64([1.5, -2]), "u8"),
    (np.arange(16, dtype=np.uint8).reshape(2, 8), "f64"),
    (np.arange(8, dtype=np.uint16).reshape(2, 2, 2), "u32"),
    (np.complex64([1 + 2j, 3]), "f32"),
    (np.complex64([1 + 2j, 3]), "u64"),
    (np.complex128([1 + 2j]), "i16"),
    (np.float32([[1, 2]]), "c64"),
    (np.uint64([1, 2]), "c64"),
    (np.uint16([[1, 2, 3, 4]]), "c64"),
]


@pytest.mark.parametrize(("x", "target"), BITS)
def test_bitcast(x, target):
    expected = np.ascontiguousarray(x).view(dtype(target).numpy)
    size = dtype(target).numpy.itemsize
    shape = x.shape if size == x.itemsize else (*x.shape, x.itemsize // size) if size < x.itemsize else x.shape[:-1]
    got = compute("neuron.bitcast_convert", x, out=tensor(shape, target))
    assert got.shape == shape
    assert got.tobytes() == expected.tobytes()


def test_bitcast_of_four_bit_types():
    x = np.uint8([0x21, 0xF8])
    got = compute("neuron.bitcast_convert", x, out=tensor([2, 2], "u4"))
    assert got.astype(int).tolist() == [[1, 2], [8, 15]]
    assert compute("neuron.bitcast_convert", got, out=tensor([2], "u8")).tolist() == x.tolist()


def test_quantize_against_torch():
    x = np.concatenate([np.random.RandomState(0).randn(50).astype(np.float32) * 10, np.float32([0.5, 1.5, 2.5, 1e9, -1e9])])
    q = torch.quantize_per_tensor(torch.from_numpy(x), 0.25, 3, torch.qint8)
    got = compute("neuron.quantize", x, scales=[0.25], zero_points=[3], out=tensor(x.shape, "i8"))
    np.testing.assert_array_equal(got, q.int_repr().numpy())
    back = compute("neuron.dequantize", got, scales=[0.25], zero_points=[3], out=tensor(x.shape, "f32"))
    np.testing.assert_array_equal(back, q.dequantize().numpy())


def test_quantize_per_axis_and_storage_range():
    x = np.float32([[1, 2, 300], [1, 2, -300]])
    q = torch.quantize_per_channel(torch.from_numpy(x), torch.tensor([0.5, 2.0]), torch.tensor([0, 5]), 0, torch.quint8)
    got = compute("neuron.quantize", x, scales=[0.5, 2.0], zero_points=[0, 5], axis=0, out=tensor(x.shape, "u8"))
    np.testing.assert_array_equal(got, q.int_repr().numpy())
    got = compute("neuron.quantize", x, scales=[1.0], storage_min=-8, storage_max=7, out=tensor(x.shape, "i8"))
    assert got.tolist() == [[1, 2, 7], [1, 2, -8]]
    assert compute("neuron.quantize", np.float32([math.nan]), scales=[1.0], zero_points=[4], out=tensor([1], "i8")).tolist() == [4]
    got = compute("neuron.quantize", np.float32([3e9, -3e9, 16777217]), scales=[1.0], out=tensor([3], "i32"))
    assert got.tolist() == [2**31 - 1, -(2**31), 16777216]


def test_empty_and_rank_zero():
    for target in ("i8", "bool", "f8e4m3fn", "f4e2m1", "c64", "tf32"):
        assert cast(np.zeros((2, 0), np.float32), target).shape == (2, 0)
        assert cast(np.float32(1), target).shape == ()
    assert dtype_of_numpy(cast(np.float32(1), "f4e2m1").dtype).name == "f4e2m1"


F2 = np.zeros(2, np.float32)
INVALID = [
    ("cast", F2, "f16", [3], {}, "shape", "the result shape is [3], but [2] is computed"),
    ("cast", F2, "f16", [2], {"mode": "clip"}, "attr", "mode must be one of 'nan', 'saturate', 'wrap'"),
    ("bitcast_convert", F2, "i64", [1], {}, "shape", "the result shape is [1], but [] is computed"),
    ("bitcast_convert", F2, "i16", [2], {}, "shape", "the result shape is [2], but [2, 2] is computed"),
    ("bitcast_convert", F2, "bool", [2], {}, "type", "the bits of f32 cannot be read as bool"),
    ("quantize", F2, "i8", [2], {"scales": [1.0, 2.0]}, "attr", "2 scales need an axis"),
    ("quantize", F2, "i8", [2], {"scales": [1.0] * 3, "axis": 0}, "shape", "3 scales for axis 0 of size 2"),
    ("quantize", F2, "i8", [2], {"scales": [0.0]}, "attr", "positive finite scales"),
    ("quantize", F2, "i8", [2], {"scales": [1.0], "zero_points": [200]}, "attr", "outside the storage range -128..127"),
    ("quantize", F2, "i8", [2], {"scales": [1.0], "storage_max": 128}, "attr", "the storage range -128..128 does not fit i8"),
    ("quantize", F2, "f32", [2], {"scales": [1.0]}, "type", "must be an integer of at most 32 bits, not f32"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "x", "target", "shape", "attrs", "code", "message"), INVALID)
def test_invalid(name, x, target, shape, attrs, code, message):
    assert_refused(name, [x], {"out": tensor(shape, target), **attrs}, code, message)


def test_the_last_dim_must_pair_up_for_a_wider_type():
    with pytest.raises(IRError, match="to f32 the last dim of tensor<3xi16> must be 2"):
        compute("neuron.bitcast_convert", np.zeros(3, np.int16), out=tensor([], "f32"))


def test_reduce_precision_needs_an_exponent():
    with pytest.raises(IRError, match="at least 1 exponent bit and 0 mantissa bits"):
        compute("neuron.reduce_precision", F2, exponent_bits=0, mantissa_bits=3)
