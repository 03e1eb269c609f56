"""Traffic, SBUF and engine time of kernels against arithmetic by hand."""

from __future__ import annotations

import xml.etree.ElementTree

import pytest

from neuron_ir import parse
from neuron_ir.core import Func
from neuron_ir.kernel_cost import kernel_costs, matmul_cycles, summary
from neuron_ir.roofline import roofline_svg
from neuron_ir.target import target
from neuron_ir.traffic import Sizes, kernel_traffic


def main(text: str) -> Func:
    module = parse(text)
    module.verify()
    return module.main


def test_a_kernel_reads_only_what_its_slices_want() -> None:
    func = main("""func @main(%x: tensor<8x4xf32>) -> tensor<2x4xf32> {
      %y = neuron.fused(%x) {kind = "elementwise"} {
      ^(%a: tensor<8x4xf32>):
        %s = neuron.slice(%a) {start_indices = [0, 0], limit_indices = [2, 4]} : tensor<2x4xf32>
        %t = neuron.slice(%a) {start_indices = [4, 0], limit_indices = [6, 4]} : tensor<2x4xf32>
        %u = neuron.add(%s, %t) : tensor<2x4xf32>
        neuron.yield(%u)
      } : tensor<2x4xf32>
      func.return(%y)
    }""")
    first = func.body.first
    assert first is not None
    assert kernel_traffic(first, Sizes(func)) == (2 * 32, 32)


def test_a_reshape_is_another_name_of_the_same_bytes() -> None:
    func = main("""func @main(%x: tensor<8x4xf32>) -> tensor<32xf32> {
      %r = neuron.reshape(%x) : tensor<32xf32>
      %n = neuron.negate(%r) : tensor<32xf32>
      func.return(%n)
    }""")
    assert summary(func) == {"kernels": 1, "hbm_bytes": 256, "lower_bound_bytes": 256}


def test_products_stream_their_operands_once_each() -> None:
    func = main("""func @main(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> tensor<8x4xf32> {
      %a = neuron.linear(%x, %w) : tensor<8x4xf32>
      %b = neuron.linear(%a, %w) : tensor<8x4xf32>
      func.return(%b)
    }""")
    # Two kernels: x and w, then a and w again; the result. The write of a is above the bound.
    assert summary(func)["lower_bound_bytes"] == (128 + 64) + (128 + 64) + 128
    assert summary(func)["hbm_bytes"] == (128 + 64) + (128 + 64) + 128 + 128


@pytest.mark.parametrize(("element", "factor"), [("bf16", 1), ("f32", 4), ("f8e4m3", 0.5)])
def test_a_product_takes_a_cycle_per_moving_column(element: str, factor: float) -> None:
    func = main(
        f"func @main(%a: tensor<256x384x{element}>, %b: tensor<384x1024x{element}>) -> tensor<256x1024x{element}> {{"
        f" %y = neuron.matmul(%a, %b) : tensor<256x1024x{element}> func.return(%y) }}"
    )
    (op, _) = func.body.ops
    # 3 slabs of 128 contracted elements, 2 of 128 stationary columns, 1024 moving ones
    assert matmul_cycles(op, 2 * 256 * 384 * 1024, target("trn2")) == 3 * 2 * 1024 * factor


def test_time_sbuf_and_bound_of_an_elementwise_kernel() -> None:
    func = main("""func @main(%x: tensor<128x4096xf32>) -> tensor<128x4096xf32> {
      %y = neuron.add(%x, %x) : tensor<128x4096xf32>
      func.return(%y)
    }""")
    (kernel,) = kernel_costs(func, target("trn2"))
    assert kernel.busy["vector"] == pytest.approx(128 * 4096 / 256 / 0.96e9)
    assert kernel.busy["memory"] == pytest.approx(2 * 128 * 4096 * 4 / 399e9)
    assert kernel.bound == "memory"
    assert kernel.sbuf_bytes == 2 * 2 * 2048 * 128  # two tiles of what comes in and of what goes out


def test_the_picture_is_well_formed_and_has_a_point_for_each_kernel_with_flops() -> None:
    func = main("""func @main(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> tensor<8x4xf32> {
      %a = neuron.linear(%x, %w) : tensor<8x4xf32>
      %b = neuron.tanh(%a) : tensor<8x4xf32>
      func.return(%b)
    }""")
    on = target("trn2")
    root = xml.etree.ElementTree.fromstring(roofline_svg(kernel_costs(func, on), on))
    points = [e for e in root.iter() if e.tag.endswith("circle")]
    assert ["%a (linear)" in (p[0].text or "") for p in points] == [True]
    xml.etree.ElementTree.fromstring(roofline_svg([], on))
