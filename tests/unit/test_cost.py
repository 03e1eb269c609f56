"""Costs against arithmetic by hand, and the targets' figures against the published ones."""

from __future__ import annotations

import pytest

from neuron_ir import IRError, dtype, parse
from neuron_ir.cost import Cost, cost_of_func
from neuron_ir.target import target


def cost(text: str) -> Cost:
    module = parse(text)
    module.verify()
    return cost_of_func(module.main)


def test_a_product_counts_two_flops_per_multiply_and_add() -> None:
    text = "func @main(%a: tensor<8x128x64xbf16>, %b: tensor<8x64x32xbf16>) -> tensor<8x128x32xbf16> {"
    text += " %y = neuron.matmul(%a, %b) : tensor<8x128x32xbf16> func.return(%y) }"
    assert cost(text).flops == 2 * 8 * 128 * 64 * 32


def test_a_convolution_counts_every_tap() -> None:
    text = "func @main(%x: tensor<2x3x10x10xf32>, %w: tensor<6x3x3x3xf32>) -> tensor<2x6x8x8xf32> {"
    text += " %y = neuron.convolution(%x, %w) : tensor<2x6x8x8xf32> func.return(%y) }"
    assert cost(text).flops == 2 * (2 * 6 * 8 * 8) * (3 * 3 * 3)


def test_elementwise_work_goes_to_the_engine_that_has_the_function() -> None:
    text = "func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {"
    text += " %e = neuron.exponential(%x) : tensor<4x8xf32> %y = neuron.add(%e, %x) : tensor<4x8xf32> func.return(%y) }"
    assert cost(text) == Cost(act=32, dve=32)


def test_a_loop_counts_each_trip() -> None:
    text = """func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
      %y = neuron.for(%x) {trip_count = 5} {
      ^(%i: tensor<i64>, %c: tensor<16xf32>):
        %d = neuron.add(%c, %c) : tensor<16xf32>
        neuron.yield(%d)
      } : tensor<16xf32>
      func.return(%y)
    }"""
    assert cost(text) == Cost(dve=80)


@pytest.mark.parametrize(("name", "tflops"), [("trn1", 91.75), ("trn2", 78.64), ("trn3", 78.64)])
def test_the_peak_is_the_published_one(name: str, tflops: float) -> None:
    assert target(name).matmul_flops(dtype("bf16")) == pytest.approx(tflops * 1e12, rel=1e-3)


def test_an_unknown_target_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(IRError, match="no target 'trn22'; did you mean 'trn2'"):
        target("trn22")
