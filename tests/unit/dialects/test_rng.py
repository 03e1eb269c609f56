"""Random numbers: known answers of the generators, moments of the distributions, and the state's course."""

import ml_dtypes
import numpy as np
import pytest

from neuron_ir.diagnostics import IRError
from neuron_ir.meaning import compute
from neuron_ir.types import tensor

STATE = tensor([2], "u64")
ALGORITHMS = ["PHILOX", "THREE_FRY"]


def words(*hexadecimal):
    return [np.array(int(h, 16), np.uint32) for h in hexadecimal]


def state(key=7, counter=0):
    return np.array([key, counter], np.uint64)


# The vectors are those of Random123, the authors' library (kat_vectors): all zeros, all ones, digits of pi.
PI = "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0".split()


@pytest.mark.parametrize(
    ("key", "counter", "want"),
    [
        (["0"] * 2, ["0"] * 2, "6b200159 99ba4efe"),
        (["ffffffff"] * 2, ["ffffffff"] * 2, "1cb996fc bb002be7"),
        (PI[2:4], PI[:2], "c4923a9c 483df7a0"),
    ],
)
def test_threefry_known_answers(key, counter, want):
    got = compute("neuron.threefry2x32", *words(*key), *words(*counter))
    assert [int(v) for v in got] == [int(h, 16) for h in want.split()]


@pytest.mark.parametrize(
    ("key", "counter", "want"),
    [
        (["0"] * 2, ["0"] * 4, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (["ffffffff"] * 2, ["ffffffff"] * 4, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (PI[4:], PI[:4], "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox_known_answers(key, counter, want):
    got = compute("neuron.philox4x32", *words(*key), *words(*counter))
    assert [int(v) for v in got] == [int(h, 16) for h in want.split()]


def test_random_bits_are_the_generators_blocks():
    key, counter = 0x1234567890ABCDEF, 2**32 - 1  # the counter's carry into the high word is part of the test
    low, high = words("90abcdef", "12345678")
    zero = np.uint32([0, 0])
    blocks = np.uint32([2**32 - 1, 0]), np.uint32([0, 1])
    want = np.stack(compute("neuron.philox4x32", *[np.broadcast_to(k, 2).copy() for k in (low, high)], *blocks, zero, zero), 1)
    after, bits = compute("neuron.random_bits", state(key, counter), out=(STATE, tensor([7], "u32")))
    assert bits.tolist() == want.reshape(-1)[:7].tolist() and after.tolist() == [key, counter + 2]
    _, wide = compute("neuron.random_bits", state(key, counter), out=(STATE, tensor([3], "u64")))
    assert wide.tolist() == want.reshape(-1)[:6].view(np.uint64).tolist()
    _, bytes_ = compute("neuron.random_bits", state(key, counter), out=(STATE, tensor([2, 3], "u8")))
    assert bytes_.tolist() == (want.reshape(-1)[:6] & 255).reshape(2, 3).tolist()
    want = np.stack(compute("neuron.threefry2x32", *[np.broadcast_to(k, 2).copy() for k in (low, high)], *blocks), 1)
    after, bits = compute("neuron.random_bits", state(key, counter), algorithm="THREE_FRY", out=(STATE, tensor([4], "i32")))
    assert bits.view(np.uint32).tolist() == want.reshape(-1).tolist() and after.tolist() == [key, counter + 2]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_going_on_from_the_state_gives_the_rest(algorithm):
    _, whole = compute("neuron.random_bits", state(), algorithm=algorithm, out=(STATE, tensor([16], "u32")))
    middle, first = compute("neuron.random_bits", state(), algorithm=algorithm, out=(STATE, tensor([8], "u32")))
    _, second = compute("neuron.random_bits", middle, algorithm=algorithm, out=(STATE, tensor([2, 4], "u32")))
    assert whole.tolist() == [*first.tolist(), *second.reshape(-1).tolist()]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_uniform_numbers_stay_in_their_range(algorithm, element):
    _, u = compute("neuron.random_uniform", state(), algorithm=algorithm, out=(STATE, tensor([20000], element)))
    u = u.astype(np.float64)
    assert 0 <= u.min() and u.max() < 1
    assert abs(u.mean() - 0.5) < 0.01 and abs(u.var() - 1 / 12) < 0.005  # five standard errors of 20000 draws
    _, v = compute("neuron.random_uniform", state(), low=-2.0, high=3.0, algorithm=algorithm, out=(STATE, tensor([20000], element)))
    assert -2 <= v.astype(np.float64).min() and v.astype(np.float64).max() < 3
    assert abs(v.astype(np.float64).mean() - 0.5) < 0.06


@pytest.mark.parametrize("element", ["bf16", "f32", "f64"])
def test_normal_numbers(element):
    after, x = compute("neuron.random_normal", state(3), mean=1.0, std=2.0, out=(STATE, tensor([20000], element)))
    x = x.astype(np.float64)
    assert abs(x.mean() - 1) < 0.07 and abs(x.std() - 2) < 0.05
    assert abs((np.abs(x - 1) < 2).mean() - 0.6827) < 0.017 and np.isfinite(x).all()
    assert after.tolist() == [3, 2 * 20000 * (2 if element == "f64" else 1) // 4]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_dropout(dtype):
    x = np.arange(1, 4001).astype(dtype)
    y, mask, after = compute("neuron.dropout", x, state(), p=0.25)
    assert abs(mask.mean() - 0.75) < 0.035 and after.tolist() == [7, 1000]
    want = (x.astype(np.float32) * mask * np.float32(1 / 0.75)).astype(dtype)
    np.testing.assert_array_equal(y, want)
    again = compute("neuron.dropout", x, after, p=0.25)[1]
    assert (mask != again).any()


def test_dropout_at_the_edges():
    x = np.float32([1, np.nan, np.inf])
    for fields in ({"p": 0.0}, {"train": False}):
        y, mask, after = compute("neuron.dropout", x, state(), **fields)
        np.testing.assert_array_equal(y, x)
        assert mask.all() and after.tolist() == state().tolist()
    y, mask, _ = compute("neuron.dropout", x, state(), p=1.0)
    np.testing.assert_array_equal(y, np.float32([0, np.nan, np.nan]))
    assert not mask.any()
    assert compute("neuron.dropout", np.zeros((0, 2), np.float32), state())[0].shape == (0, 2)
    with pytest.raises(IRError, match=r"p = 1.5 is no probability"):
        compute("neuron.dropout", x, state(), p=1.5)


def test_rng_bit_generator_goes_on_and_repeats():
    for algorithm in ("DEFAULT", "THREE_FRY", "PHILOX"):
        first = compute("neuron.rng_bit_generator", state(), rng_algorithm=algorithm, out=(STATE, tensor([4], "u32")))
        again = compute("neuron.rng_bit_generator", state(), rng_algorithm=algorithm, out=(STATE, tensor([4], "u32")))
        second = compute("neuron.rng_bit_generator", first[0], rng_algorithm=algorithm, out=(STATE, tensor([4], "u32")))
        assert first[1].tolist() == again[1].tolist() != second[1].tolist()
    narrow = compute("neuron.rng_bit_generator", np.arange(4, dtype=np.uint32), out=(tensor([4], "u32"), tensor([3], "i8")))
    assert narrow[1].dtype == np.int8


def test_rng_without_a_state():
    x = compute(
        "neuron.rng", np.array(5, np.float32), np.array(2, np.float32), rng_distribution="NORMAL", out=tensor([20000], "f32")
    )
    assert abs(x.mean() - 5) < 0.07 and abs(x.std() - 2) < 0.05
    k = compute("neuron.rng", np.array(-3, np.int32), np.array(4, np.int32), rng_distribution="UNIFORM", out=tensor([500], "i32"))
    assert set(k.tolist()) == set(range(-3, 4))


@pytest.mark.parametrize(
    ("name", "operands", "fields", "message"),
    [
        (
            "random_bits",
            [np.uint64([1, 2, 3])],
            {"out": (STATE, tensor([2], "u32"))},
            "the state is key and counter, tensor<2xu64>",
        ),
        ("random_bits", [state()], {"out": (STATE, tensor([2], "f32"))}, "bits cannot be tensor<2xf32>"),
        ("random_bits", [state()], {"out": STATE}, "two result types are needed, not 1"),
        ("random_uniform", [state()], {"out": (STATE, tensor([2], "i32"))}, "numbers cannot be tensor<2xi32>"),
        ("rng_bit_generator", [np.uint64([1, 2, 3])], {"out": (tensor([3], "u64"), tensor([2], "u32"))}, "the state must be"),
        ("rng_bit_generator", [state()], {"out": (tensor([4], "u32"), tensor([2], "u32"))}, "the next state is tensor<2xu64>"),
        ("philox4x32", [np.zeros(n, np.uint32) for n in (2, 2, 2, 2, 2, 3)], {}, "must have one shape"),
    ],
)
def test_invalid_draws(name, operands, fields, message):
    with pytest.raises(IRError, match=message):
        compute(f"neuron.{name}", *operands, **fields)
