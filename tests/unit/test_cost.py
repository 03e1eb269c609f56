"""Costs against arithmetic by hand, and the targets' figures against the published ones."""

from __future__ import annotations

import pytest

from neuron_ir import IRError, dtype, parse
from neuron_ir.cost import Cost, bytes_moved, cost_of, cost_of_func, seconds
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


def test_bytes_count_each_operand_once() -> None:
    module = parse(
        "func @main(%x: tensor<4x8xbf16>) -> tensor<4x8xbf16> { %y = neuron.add(%x, %x) : tensor<4x8xbf16> func.return(%y) }"
    )
    op = module.main.body.first
    assert op is not None
    assert bytes_moved(op) == 2 * 4 * 8 * 2
    assert cost_of(op) == Cost(dve=32)


@pytest.mark.parametrize(("name", "tflops"), [("trn1", 91.75), ("trn2", 78.64), ("trn3", 78.64)])
def test_the_peak_is_the_published_one(name: str, tflops: float) -> None:
    assert target(name).matmul_flops(dtype("bf16")) == pytest.approx(tflops * 1e12, rel=1e-3)


def test_time_is_work_over_rate() -> None:
    on = target("trn2")
    module = parse("func @main(%x: tensor<960xf32>) -> tensor<960xf32> { func.return(%x) }")
    busy = seconds(Cost(dve=960), 716_000, module.main.args[0].type, on)
    assert busy["vector"] == pytest.approx(960 / (256 * 0.96e9))
    assert busy["memory"] == pytest.approx(1e-6)


def test_an_unknown_target_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(IRError, match="no target 'trn22'; did you mean 'trn2'"):
        target("trn22")
