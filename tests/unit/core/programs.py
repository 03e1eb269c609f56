"""Programs that several tests of the core use."""

from __future__ import annotations

SHAPES = """\
func @main[B in 1..8](%x: tensor<Bx4xf32>) -> tensor<Bx4xf32> {
  %y = neuron.tanh(%x) : tensor<Bx4xf32>
  func.return(%y)
}
"""

EVERYTHING = """\
#cols = #neuron.layout<order = [1, 0]>
module @"a name with spaces" {ir_version = 1, target = "trn2", sizes = [1, 2]} {
  func @helper(%x: tensor<f32>) -> tensor<f32> {
    %y = neuron.negate(%x) : tensor<f32>
    func.return(%y)
  }
  func @main[B in 1..8, S in 0..inf](
      %x: tensor<BxSxf32> {name = "input_ids"},
      %w: tensor<4x4xf32, #cols> {kind = "weight", weight = "blocks.0.w"},
      %n: tensor<f32> {kind = "buffer", weight = "n"}
  ) -> (tensor<BxSxf32> {name = "out"}, tensor<f32> {updates = 2}) {note = "quote \\" backslash \\\\ newline \\n"} {
    %0 = neuron.constant() {value = dense<[-0.0, inf, nan, 1.1754944e-38]>} : tensor<4xf32>
    %1 = neuron.constant() {value = dense<bits:ffc00001>} : tensor<f32>
    %2 = neuron.constant() {value = dense<(1.5, -0.0)>} : tensor<2xc64>
    %3 = neuron.constant() {value = dense<true>} : tensor<3xbool>
    %4 = neuron.constant() {value = dense<[[1, -128], [127, 0]]>} : tensor<2x2xi8>
    %5 = neuron.constant() {value = dense<448.0>} : tensor<f8e4m3fn>
    %6 = neuron.constant() {value = resource<"table">} : tensor<1000xf32>
    %called = func.call(%n) {callee = @helper} : tensor<f32>
    %i = neuron.dim_size() {size = 2*S+1} : tensor<i64> loc("blocks.0" at "m.py":3:7 from "main.py":1:1)
    %low = neuron.compare(%n, %1) {direction = "LT"} : tensor<bool> loc(fused["a.py":1:2, "b.py":3:4])
    %z = neuron.if(%low) true_branch {
      neuron.yield(%called)
    } false_branch {
      %inner = neuron.exponential(%called) : tensor<f32>
      neuron.yield(%inner)
    } : tensor<f32>
    %r = neuron.reduce(%x, %n) {dimensions = [1]} {
    ^(%a: tensor<f32>, %b: tensor<f32>):
      %c = neuron.add(%a, %b) : tensor<f32>
      neuron.yield(%c)
    } : tensor<Bxf32>
    func.return(%x, %z)
  }
}
"""
