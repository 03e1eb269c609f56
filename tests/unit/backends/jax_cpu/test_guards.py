"""Programs that XLA's CPU compiler gets wrong; expected values are NumPy's, op by op, or written by hand."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from neuron_ir.backends.jax_cpu import _compat
from neuron_ir.backends.jax_cpu.guards import COMPILER_OPTIONS, protect

INF, NAN = math.inf, math.nan
BF16 = ml_dtypes.bfloat16


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def run(function, *inputs):
    with jax.enable_x64(True):
        result = jax.jit(protect(function), compiler_options=dict(COMPILER_OPTIONS))(*inputs)
        return jax.tree.map(np.asarray, result)


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(got, want)
    if want.dtype.kind == "f":
        known = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known])


def test_the_installed_jax_passes_its_own_check() -> None:
    _compat.check()


ALGEBRA = [
    ("log of exp", lambda x: jnp.log(jnp.exp(x)), (f32(89),), f32(INF)),
    ("exp of log", lambda x: jnp.exp(jnp.log(x)), (f32(-1, 0),), f32(NAN, 0)),
    ("sqrt of abs of a square", lambda x: jnp.sqrt(jnp.abs(x * x)), (f32(1e30, -3),), f32(INF, 3)),
    ("sqrt of a square", lambda x: jnp.sqrt(x * x), (f32(1e30, -3),), f32(INF, 3)),
    ("power of power", lambda x: lax.pow(lax.pow(x, np.float32(2)), np.float32(0.5)), (f32(-3, 1e30),), f32(3, INF)),
    ("power of exp", lambda x: lax.pow(jnp.exp(x), np.float32(0.5)), (f32(89),), f32(INF)),
    ("product of exps", lambda x, y: jnp.exp(x) * jnp.exp(y), (f32(89), f32(-80)), f32(INF)),
    ("quotient of exps", lambda x, y: jnp.exp(x) / jnp.exp(y), (f32(89), f32(89)), f32(NAN)),
    ("overflow between constant factors", lambda x: (x * np.float32(1e30)) * np.float32(1e-30), (f32(1e20),), f32(INF)),
    ("sum with constants", lambda x: (x + np.float32(1e10)) - np.float32(1e10), (f32(1),), f32(0)),
    ("difference with constants", lambda x: (x - np.float32(1e10)) + np.float32(1e10), (f32(1),), f32(0)),
    ("quotient of a quotient", lambda x, y, z: (x / y) / z, (f32(1e30), f32(1e30), f32(1e30)), f32(1) / f32(1e30)),
    ("mask times infinity", lambda m, x: m.astype(np.float32) * x, (np.array([False]), f32(INF)), f32(NAN)),
    ("x times 0", lambda x: x * 0, (f32(INF, NAN, -1),), f32(NAN, NAN, -0.0)),
    ("x over x", lambda x: x / x, (f32(0, INF, NAN, 2),), f32(NAN, NAN, NAN, 1)),
    ("x minus x", lambda x: x - x, (f32(INF, NAN, 2),), f32(NAN, NAN, 0)),
    ("quotient by a square root", lambda y, x: y / jnp.sqrt(x), (f32(5), f32(3)), f32(5) / np.sqrt(f32(3))),
    ("quotient by a huge constant", lambda x: x / np.float32(2e38), (f32(1e38, 2e38),), f32(0.5, 1)),
    ("maximum and NaN", lambda x, y: jnp.maximum(x, y), (f32(NAN, 1), f32(1, NAN)), f32(NAN, NAN)),
    ("reduced maximum and NaN", lambda x: x.max(axis=0), (f32(*[1.0] * 40, NAN, *[2.0] * 40),), np.float32(NAN)),
]


@pytest.mark.parametrize("function, inputs, want", [c[1:] for c in ALGEBRA], ids=[c[0] for c in ALGEBRA])
def test_algebra_is_not_simplified_as_if_floats_were_reals(function, inputs, want) -> None:
    same(run(function, *inputs), np.asarray(want))


@pytest.mark.parametrize("form", ["literal", "scalar", "row"])
def test_division_rounds_once(form) -> None:
    x = np.linspace(1, 9, 48, dtype=np.float32).reshape(4, 12)
    if form == "literal":
        same(run(lambda x: x / 3, x), x / np.float32(3))
    elif form == "scalar":
        same(run(lambda x, c: x / c, x, np.float32(7)), x / np.float32(7))
    else:
        same(run(lambda x, c: x / c, x, x[:, :1]), x / x[:, :1])


def test_guards_reach_into_loops_branches_and_calls() -> None:
    def in_loop(x):
        return lax.fori_loop(0, 3, lambda _, c: jnp.log(jnp.exp(c)) + 0 * x, x)

    def in_branch(x):
        return lax.cond(x[0] > 0, lambda v: jnp.log(jnp.exp(v)), lambda v: v, x)

    def across_calls(x):
        return jax.jit(jnp.log)(jax.jit(jnp.exp)(x))

    def in_scan(x):
        return lax.scan(lambda c, _: (jnp.log(jnp.exp(c)), c), x, None, length=2)[0]

    for function in (in_loop, in_branch, across_calls, in_scan):
        assert np.isinf(run(function, f32(89))).all() or function is in_loop and np.isnan(run(function, f32(89))).all()


@pytest.mark.parametrize("i, j", [(9, 0), (3, 5), (0, 2), (-4, 1), (2**31 - 1, 2**31 - 1)])
def test_each_start_of_a_slice_of_a_slice_is_clamped_on_its_own(i, j) -> None:
    x = np.arange(10, dtype=np.float32)

    def function(x, i, j):
        first = lax.dynamic_slice(x, (i,), (4,), allow_negative_indices=False)
        return lax.dynamic_slice(first, (j,), (1,), allow_negative_indices=False)

    start = min(max(i, 0), 6)
    same(run(function, x, np.int32(i), np.int32(j)), x[start : start + 4][min(max(j, 0), 3)][None])


@pytest.mark.parametrize("dtype, index, want", [("uint8", 200, 200), ("int8", -1, 0), ("int8", 100, 100), ("uint16", 40000, 299)])
@pytest.mark.parametrize("constant", [True, False])
def test_narrow_indices_keep_their_value(dtype, index, want, constant) -> None:
    x = np.arange(300, dtype=np.float32)
    i = np.array(index, dtype)

    def slice_at(x, i):
        return lax.dynamic_slice(x, (i,), (1,), allow_negative_indices=False)

    def gather_at(x, i):
        numbers = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
        return lax.gather(x, i.reshape(1, 1), numbers, (1,), mode="clip")

    for at in (slice_at, gather_at):
        got = run(lambda x, at=at: at(x, jnp.asarray(i)), x) if constant else run(at, x, i)
        same(got, f32(want))


def test_a_narrow_index_of_an_update_keeps_its_value() -> None:
    x = np.zeros(300, np.float32)
    got = run(lambda x: lax.dynamic_update_slice(x, jnp.ones(1, np.float32), (jnp.uint8(200),)), x)
    assert got.argmax() == 200 and got.sum() == 1


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
@pytest.mark.parametrize("constant", [True, False])
def test_integer_division_by_zero_and_of_the_smallest(dtype, constant) -> None:
    info = np.iinfo(dtype)
    ones = -1 if info.min < 0 else info.max
    a = np.array([7, 0, info.min, 9], dtype)
    b = np.array([0, 0, ones, 4], dtype)
    smallest = info.min if info.min < 0 else 0
    quotient, rest = np.array([ones, ones, smallest, 2], dtype), np.array([7, 0, 0, 1], dtype)

    def both(a, b):
        return lax.div(a, b), lax.rem(a, b)

    got = run(lambda: both(jnp.asarray(a), jnp.asarray(b))) if constant else run(both, a, b)
    same(got[0], quotient)
    same(got[1], rest)


def test_atan2_of_zeros_that_come_from_a_fold() -> None:
    def function(x):
        zero = (jnp.isnan(x) ^ jnp.isnan(x)).astype(jnp.float32)
        return jnp.arctan2(zero, zero)

    same(run(function, f32(1)), f32(0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_atan2_keeps_the_signs_of_zeros(dtype) -> None:
    y = np.array([0, -0.0, 0, -0.0, INF, NAN, 1, -1, -2], dtype)
    x = np.array([-0.0, -0.0, 0, 0, INF, 0, 0, -0.0, -3], dtype)
    want = np.arctan2(y.astype(np.float64), x.astype(np.float64)).astype(dtype)
    got = run(jnp.arctan2, y, x)
    np.testing.assert_allclose(got, want, rtol=4 * float(np.finfo(dtype).eps))
    np.testing.assert_array_equal(np.signbit(got[:4]), np.signbit(want[:4]))


def test_bf16_keeps_no_precision_beyond_its_own() -> None:
    x, y = np.ones((8, 10000), BF16) * BF16(0.5), np.ones((10000, 8), BF16)
    # 5000 is not a bf16 number; 4992 is the nearest.
    np.testing.assert_array_equal(run(lambda x, y: (x @ y).astype(np.float32), x, y), np.full((8, 8), 4992, np.float32))

    def error_term(x, y):
        r = x + y
        return (y - (r - x)).astype(np.float32)

    a, b = np.array([1.0], BF16), np.array([0.003], BF16)
    assert run(error_term, a, b) == np.float32(b - ((a + b) - a)) != 0


def test_results_keep_their_structure() -> None:
    got = run(lambda x: {"a": (x + 1, x), "b": [x * 2]}, f32(1))
    assert got == {"a": (f32(2), f32(1)), "b": [f32(2)]}


def test_a_reduction_body_and_a_comparator_are_left_whole() -> None:
    x = f32(3, 1, 2)
    same(run(lambda x: lax.reduce(x, np.float32(0), lambda a, b: jnp.log(jnp.exp(a)) * 0 + a + b, (0,)), x), np.float32(6))
    keys, values = run(lambda x: lax.sort((x, jnp.arange(3)), num_keys=1), x)
    assert values.tolist() == [1, 2, 0] and keys.tolist() == [1, 2, 3]


def test_random_keys_and_linear_solves_pass_through() -> None:
    got = run(lambda: jax.random.uniform(jax.random.wrap_key_data(np.array([0, 7], np.uint32)), (3,), np.float32))
    same(got, np.asarray(jax.random.uniform(jax.random.wrap_key_data(np.array([0, 7], np.uint32)), (3,), np.float32)))
    a, b = np.array([[4.0, 1], [1, 3]]), np.array([1.0, 2])
    np.testing.assert_allclose(run(jnp.linalg.solve, a, b), np.linalg.solve(a, b), rtol=1e-12)
    np.testing.assert_allclose(run(jnp.linalg.cholesky, a), np.linalg.cholesky(a), rtol=1e-12)


def _maximum(x):
    return lax.reduce(x, x.dtype.type(-INF), lambda a, b: jnp.where((a > b) | (a != a), a, b), (0,))


def test_an_unused_reduction_whose_body_calls_does_not_end_the_process() -> None:
    def unused(x):
        _maximum(x)
        return x + 1

    def unused_in_a_call(x):
        return jax.jit(lambda v: (_maximum(v), v + 1))(x)[1]

    for function in (unused, unused_in_a_call, lambda x: lax.fori_loop(0, 1, lambda i, v: unused(v), x)):
        with jax.enable_x64(True):
            jitted = jax.jit(protect(function), keep_unused=True)
        same(np.asarray(jitted(f32(1, 2))), f32(2, 3))


def test_calls_in_a_body_of_a_reduction_are_put_in_place() -> None:
    (reduce,) = [e for e in jax.make_jaxpr(protect(_maximum))(f32(1, NAN, 2)).eqns if e.primitive.name == "reduce"]
    assert not any(e.primitive.name == "jit" for e in reduce.params["jaxpr"].eqns)
    same(run(_maximum, f32(1, NAN, 2)), np.float32(NAN))
