"""Control flow: values against Python, and the rules of the regions."""

import numpy as np
import pytest

from neuron_ir.builder import Builder
from neuron_ir.core import Func, Module
from neuron_ir.diagnostics import IRError
from neuron_ir.dtypes import BOOL, F32, I64
from neuron_ir.meaning import compute
from neuron_ir.parser import parse
from neuron_ir.types import TOKEN, tensor

from .judge import symbolic


def f32(value):
    return np.array(value, np.float32)


@pytest.mark.parametrize("truth", [True, False])
def test_if_runs_one_branch(truth):
    got = compute("neuron.if", np.array(truth), true_branch=lambda b: b.const(1, F32), false_branch=lambda b: b.const(2, F32))
    assert got == (1 if truth else 2)


@pytest.mark.parametrize(("index", "want"), [(0, 10), (1, 11), (2, 12), (3, 12), (-1, 12), (2**31 - 1, 12), (-(2**31), 12)])
def test_case_takes_the_last_branch_out_of_range(index, want):
    branches = [lambda b, v=v: b.const(v, F32) for v in (10, 11, 12)]
    assert compute("neuron.case", np.array(index, np.int32), branches=branches) == want
    assert compute("neuron.case", np.array(index, np.int64), branches=branches) == want


def test_case_widens_narrow_indices():
    branches = [lambda b, v=v: b.const(v, F32) for v in range(3)]
    assert compute("neuron.case", np.array(200, np.uint8), branches=branches) == 2
    assert compute("neuron.case", np.array(2**32 + 1, np.int64), branches=branches) == 2


def test_while_and_for():
    doubled = compute(
        "neuron.while", f32(1), cond=lambda b, x: b.compare(x, b.const(100, F32), direction="LT"), body=lambda b, x: b.add(x, x)
    )
    assert doubled == 128
    total, count = compute("neuron.for", np.array(0), np.array(7), trip_count=5, body=lambda b, i, total, n: (b.add(total, i), n))
    assert (total, count) == (10, 7)
    assert compute("neuron.for", f32(3), trip_count=0, body=lambda b, i, x: b.add(x, x)) == 3


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse):
    xs = np.arange(6, dtype=np.float32).reshape(3, 2)
    carry, sums = compute(
        "neuron.scan", f32([1, 1]), xs, num_carry=1, length=3, reverse=reverse,
        body=lambda b, c, x: (b.add(c, x), b.add(c, x)),
    )  # fmt: skip
    want, state = [None] * 3, f32([1, 1])
    for i in reversed(range(3)) if reverse else range(3):
        state = state + xs[i]
        want[i] = state
    np.testing.assert_array_equal(sums, want)
    np.testing.assert_array_equal(carry, state)


def test_scan_without_steps_or_inputs():
    carry, ys = compute("neuron.scan", f32(2), num_carry=1, length=0, body=lambda b, c: (b.add(c, c), c))
    assert carry == 2 and ys.shape == (0,)
    carry = compute("neuron.scan", f32(2), num_carry=1, length=3, body=lambda b, c: b.add(c, c))
    assert carry == 16


def test_map_fused_and_barrier():
    x = f32([[1, 2], [3, 4]])
    np.testing.assert_array_equal(compute("neuron.map", x, x, dimensions=[0, 1], body=lambda b, p, q: b.multiply(p, q)), x * x)
    assert compute("neuron.map", x, body=lambda b, p: b.compare(p, p, direction="EQ")).all()
    assert compute("neuron.map", np.zeros((0, 2), np.float32), body=lambda b, p: b.add(p, p)).shape == (0, 2)
    total, same = compute("neuron.fused", x, x, kind="elementwise", body=lambda b, p, q: (b.add(p, q), q))
    np.testing.assert_array_equal(total, 2 * x)
    np.testing.assert_array_equal(same, x)
    got = compute("neuron.optimization_barrier", x, f32(1))
    np.testing.assert_array_equal(got[0], x)


def test_regions_see_the_values_around_them():
    text = """
    module @m {
      func @main(%x: tensor<2xf32>, %n: tensor<i64>) -> tensor<2xf32> {
        %zero = neuron.constant() {value = dense<0>} : tensor<i64>
        %p = neuron.compare(%n, %zero) {direction = "GT"} : tensor<bool>
        %y = neuron.if(%p) {
          %a = neuron.add(%x, %x) : tensor<2xf32>
          neuron.yield(%a)
        } {
          neuron.yield(%x)
        } : tensor<2xf32>
        func.return(%y)
      }
    }
    """
    module = parse(text)
    module.verify()
    assert parse(module.text()).text() == module.text()


def _module(build, *types):
    func = Func("main", types)
    results = build(Builder(func.body), *func.args)
    func.set_results(results if isinstance(results, tuple) else (results,))
    module = Module()
    module.add(func)
    return module


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda b, x: b.if_(x, true_branch=lambda b: x, false_branch=lambda b: x), "operand pred cannot be of type tensor<f32>"),
        (
            lambda b, x: b.if_(b.compare(x, x, direction="EQ"), true_branch=lambda b: x, false_branch=lambda b: b.const(1, I64)),
            "gives tensor<i64> where tensor<f32> is declared",
        ),
        (lambda b, x: b.while_(x, cond=lambda b, v: v, body=lambda b, v: v), "gives tensor<f32> where tensor<bool> is declared"),
        (
            lambda b, x: b.while_(x, cond=lambda b, v: b.compare(v, v, direction="EQ"), body=lambda b, v: b.const(1, I64)),
            "gives tensor<i64> where tensor<f32> is declared",
        ),
        (lambda b, x: b.for_(x, trip_count=2, body=lambda b, i, v: i), "gives tensor<i64> where tensor<f32> is declared"),
    ],
)
def test_regions_of_the_wrong_type(build, message):
    with pytest.raises(IRError, match=message):
        _module(build, tensor([], "f32")).verify()


@pytest.mark.parametrize(
    ("name", "operands", "fields", "message"),
    [
        ("for", [f32(1)], {"trip_count": -1, "body": lambda b, i, x: x}, "trip_count = -1 is negative"),
        ("scan", [f32([1, 2])], {"num_carry": 0, "length": 3, "body": lambda b, x: x}, "of 3 slices cannot be tensor<2xf32>"),
        ("scan", [f32(1)], {"num_carry": 2, "length": 3, "body": lambda b, c: c}, "= 3 do not fit 1 operands"),
        ("scan", [f32(1), f32(2)], {"num_carry": 2, "length": 3, "body": lambda b, c, d: c}, "fewer than the 2 carried"),
        ("map", [f32([1]), f32([1, 2])], {"body": lambda b, x, y: x}, "operands of one shape are needed"),
        ("map", [f32([[1]])], {"dimensions": [0], "body": lambda b, x: x}, r"dimensions \[0\] must list all 2 dims in order"),
        ("map", [f32([1])], {"body": lambda b, x: (x, x)}, "the body yields one scalar"),
        ("if", [np.array([True])], {"true_branch": lambda b: (), "false_branch": lambda b: ()}, "cannot be tensor<1xbool>"),
    ],
)  # fmt: skip
def test_invalid_control_flow(name, operands, fields, message):
    with pytest.raises(IRError, match=message):
        compute(f"neuron.{name}", *operands, **fields)


def test_carried_values_may_be_symbolic_and_tokens():
    def build(b, x, t):
        return b.while_(x, t, cond=lambda b, v, t: b.const(False, BOOL), body=lambda b, v, t: (v, t))

    module = _module(build, symbolic(["S", 2]), TOKEN)
    module.main.dims["S"] = (0, None)
    module.verify()
    assert parse(module.text()).text() == module.text()
