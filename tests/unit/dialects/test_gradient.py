"""neuron.vjp: gradients of a region, against derivatives by hand."""

import numpy
import pytest

import neuron_ir
from neuron_ir.diagnostics import IRError

PROGRAM = """
func @main(%g: tensor<2xf32>, %x: tensor<2xf32>, %y: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %k = neuron.exponential(%x) : tensor<2xf32>
  %dx, %dy = neuron.vjp(%g, %x, %y) {
  ^(%a: tensor<2xf32>, %b: tensor<2xf32>):
    %ab = neuron.multiply(%a, %b) : tensor<2xf32>
    %r = neuron.multiply(%ab, %k) : tensor<2xf32>
    neuron.yield(%r)
  } : tensor<2xf32>, tensor<2xf32>
  func.return(%dx, %dy)
}
"""
X, Y, G = numpy.float32([0.5, -1]), numpy.float32([3, 4]), numpy.float32([1, 10])


def test_the_chain_rule_with_what_stands_around_as_constants():
    dx, dy = neuron_ir.compile(neuron_ir.parse(PROGRAM))(G, X, Y)
    numpy.testing.assert_allclose(dx, G * Y * numpy.exp(X), rtol=1e-6)  # %k is not differentiated
    numpy.testing.assert_allclose(dy, G * X * numpy.exp(X), rtol=1e-6)


def test_only_what_is_asked_for():
    text = PROGRAM.replace("%dx, %dy = neuron.vjp(%g, %x, %y)", "%dy = neuron.vjp(%g, %x, %y)")
    text = text.replace("} : tensor<2xf32>, tensor<2xf32>", "} {wrt = [1]} : tensor<2xf32>").replace("(%dx, %dy)", "(%dy)")
    text = text.replace("-> (tensor<2xf32>, tensor<2xf32>)", "-> tensor<2xf32>").replace("%y) {\n", "%y) {wrt = [1]} {\n")
    text = text.replace("} {wrt = [1]} :", "} :")
    module = neuron_ir.parse(text)
    assert neuron_ir.parse(module.text()).text() == module.text()
    numpy.testing.assert_allclose(neuron_ir.compile(module)(G, X, Y), G * X * numpy.exp(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("%g: tensor<2xf32>", "%g: tensor<3xf32>", "the gradient of a yielded tensor<2xf32> cannot be tensor<3xf32>"),
        ("%x, %y) {", "%x, %y) {num_grads = 2} {", "num_grads = 2 does not fit 3 operands and 1 yielded values"),
        ("%x, %y) {", "%x, %y) {wrt = [2]} {", "wrt = [2] must count arguments, of which there are 2"),
    ],
)
def test_what_does_not_fit_is_refused(old, new, message):
    with pytest.raises(IRError) as caught:
        neuron_ir.parse(PROGRAM.replace(old, new)).verify()
    assert message in str(caught.value)
