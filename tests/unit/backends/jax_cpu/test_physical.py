"""Values held in another order than their dims': the same numbers, and nothing turned around on the way."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax

import neuron_ir
from neuron_ir.backends.jax_cpu.executable import traceable
from neuron_ir.core import Module
from neuron_ir.meaning import x64

LAST = "#last = #neuron.layout<order = [0, 2, 3, 1]>\n#turned = #neuron.layout<order = [1, 0]>\n"


def program(text: str) -> Module:
    module = neuron_ir.parse(LAST + text)
    module.verify()
    return module


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def conv(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray(lax.conv(x, w, (1, 1), "SAME"))


def test_a_loop_carries_what_it_holds() -> None:
    module = program("""
func @main(%x: tensor<2x3x4x5xf32>) -> tensor<2x3x4x5xf32> {
  %y = neuron.relayout(%x) : tensor<2x3x4x5xf32, #last>
  %n = neuron.for(%y) {trip_count = 3} {
  ^(%i: tensor<i64>, %c: tensor<2x3x4x5xf32, #last>):
    %b = neuron.sine(%c) : tensor<2x3x4x5xf32, #last>
    neuron.yield(%b)
  } : tensor<2x3x4x5xf32, #last>
  %z = neuron.relayout(%n) : tensor<2x3x4x5xf32>
  func.return(%z)
}""")
    x = array(2, 3, 4, 5)
    np.testing.assert_allclose(neuron_ir.compile(module)(x), np.sin(np.sin(np.sin(x))), rtol=1e-6)
    traced = traceable(module, {"guards": False})
    with x64():
        jaxpr = jax.make_jaxpr(traced.function)(*traced.structs)
    loop = next(e for e in jaxpr.eqns if e.primitive.name in ("scan", "while"))
    shapes = {v.aval.shape for v in loop.outvars}
    assert (2, 4, 5, 3) in shapes and (2, 3, 4, 5) not in shapes


def test_choices_scans_and_captured_values() -> None:
    module = program("""
func @main(%p: tensor<bool>, %x: tensor<4x2x3xf32>, %a: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<4x2x3xf32>, tensor<2x3xf32>) {
  %h = neuron.relayout(%a) : tensor<2x3xf32, #turned>
  %c = neuron.if(%p) {
    %n = neuron.negate(%h) : tensor<2x3xf32, #turned>
    neuron.yield(%n)
  } {
    neuron.yield(%h)
  } : tensor<2x3xf32, #turned>
  %s, %t = neuron.scan(%c, %x) {length = 4, num_carry = 1} {
  ^(%k: tensor<2x3xf32, #turned>, %v: tensor<2x3xf32>):
    %m = neuron.add(%k, %v) : tensor<2x3xf32, #turned>
    %o = neuron.multiply(%m, %h) : tensor<2x3xf32>
    neuron.yield(%m, %o)
  } : tensor<2x3xf32, #turned>, tensor<4x2x3xf32>
  %f = neuron.fused(%s) {
  ^(%q: tensor<2x3xf32, #turned>):
    %d = neuron.transpose(%q) {permutation = [1, 0]} : tensor<3x2xf32>
    %e = neuron.transpose(%d) {permutation = [1, 0]} : tensor<2x3xf32, #turned>
    neuron.yield(%e)
  } : tensor<2x3xf32, #turned>
  func.return(%s, %t, %f)
}""")
    x, a = array(4, 2, 3), array(2, 3)
    for p in (True, False):
        total, stacked, again = neuron_ir.compile(module)(np.bool_(p), x, a)
        sums = (-a if p else a) + np.cumsum(x, 0)
        np.testing.assert_allclose(total, sums[-1], rtol=1e-5)
        np.testing.assert_allclose(stacked, sums * a, rtol=1e-5)
        np.testing.assert_array_equal(again, total)


@pytest.mark.parametrize("subnormals", ["flush", "exact"])
def test_weights_are_stored_in_their_order_once(subnormals: str) -> None:
    module = program("""
func @main(%x: tensor<1x2x4x4xf32>, %w: tensor<2x2x3x3xf32> {kind = "weight", weight = "w"}) -> tensor<1x2x4x4xf32> {
  %a = neuron.conv(%x, %w) {padding = [1, 1]} : tensor<1x2x4x4xf32>
  %b = neuron.tanh(%a) : tensor<1x2x4x4xf32>
  %c = neuron.conv(%b, %w) {padding = [1, 1]} : tensor<1x2x4x4xf32>
  func.return(%c)
}""")
    x, w = array(1, 2, 4, 4), array(2, 2, 3, 3)
    module.weights["w"] = w
    neuron_ir.run_passes(module, "layout")
    assert module.main.args[1].type.layout.order == (2, 3, 1, 0)
    run = neuron_ir.compile(module, subnormals=subnormals)
    np.testing.assert_allclose(run(x), conv(np.tanh(conv(x, w)), w), rtol=1e-5, atol=1e-6)
    assert module.weights["w"].shape == (2, 2, 3, 3)


def test_one_program_for_many_shapes() -> None:
    module = program("""
func @main[N in 1..8](%x: tensor<Nx2x4x4xf32>, %w: tensor<2x2x1x1xf32>) -> tensor<Nx2x4x4xf32> {
  %a = neuron.conv(%x, %w) : tensor<Nx2x4x4xf32>
  %b = neuron.conv(%a, %w) : tensor<Nx2x4x4xf32>
  func.return(%b)
}""")
    neuron_ir.run_passes(module, "layout")
    run, w = neuron_ir.compile(module), array(2, 2, 1, 1)
    for n in (1, 3):
        x = array(n, 2, 4, 4)
        np.testing.assert_allclose(run(x, w), conv(conv(x, w), w), rtol=1e-5, atol=1e-6)


def test_a_carried_value_that_is_stacked_as_well() -> None:
    module = program("""
#back = #neuron.layout<order = [2, 1, 0]>
func @main(%x: tensor<2x2x2xf32>) -> (tensor<2x2x2xf32>, tensor<2x2x2x2xf32>) {
  %h = neuron.relayout(%x) : tensor<2x2x2xf32, #back>
  %s, %t = neuron.scan(%h, %h) {length = 2, num_carry = 1} {
  ^(%k: tensor<2x2x2xf32, #back>, %v: tensor<2x2xf32>):
    %b = neuron.broadcast_in_dim(%v) {broadcast_dimensions = [1, 2]} : tensor<2x2x2xf32>
    %m = neuron.add(%k, %b) : tensor<2x2x2xf32, #back>
    neuron.yield(%m, %m)
  } : tensor<2x2x2xf32, #back>, tensor<2x2x2x2xf32>
  func.return(%s, %t)
}""")
    x = array(2, 2, 2)
    total, stacked = neuron_ir.compile(module)(x)
    np.testing.assert_allclose(stacked, np.stack([x + x[0], x + x[0] + x[1]]), rtol=1e-6)
    np.testing.assert_array_equal(total, stacked[-1])


def test_reshapes_of_empty_values() -> None:
    module = program("""
func @main(%x: tensor<0x2x3xf32>) -> (tensor<0x6x5xf32>, tensor<3x0xf32>) {
  %t = neuron.transpose(%x) {permutation = [0, 2, 1]} : tensor<0x3x2xf32>
  %a = neuron.reshape(%t) : tensor<0x6x5xf32>
  %b = neuron.reshape(%t) : tensor<3x0xf32>
  func.return(%a, %b)
}""")
    neuron_ir.run_passes(module, "layout")
    assert [y.shape for y in neuron_ir.compile(module)(array(0, 2, 3))] == [(0, 6, 5), (3, 0)]
