"""Structural equality of modules: every kind of difference is seen and described."""

from __future__ import annotations

import pytest

from neuron_ir.compare import first_difference
from neuron_ir.parser import parse

TEXT = """module @m {ir_version = 1, target = "trn2"} {
  func @main[S in 1..8](%x: tensor<Sx4xf32> {kind = "input"}) -> tensor<Sx4xf32> {name = "y"} {a = 0.0} {
    %a = neuron.softmax(%x) {axis = 0} : tensor<Sx4xf32> loc("m.py":1:1)
    %b = neuron.for(%a) {trip_count = 2} {
    ^(%i: tensor<i64>, %c: tensor<Sx4xf32>):
      %d = neuron.tanh(%c) : tensor<Sx4xf32>
      neuron.yield(%d)
    } : tensor<Sx4xf32>
    %e = neuron.subtract(%a, %b) : tensor<Sx4xf32>
    func.return(%e)
  }
}
"""


def test_equal() -> None:
    assert first_difference(parse(TEXT), parse(TEXT)) == ""
    assert first_difference(parse(TEXT), parse(TEXT).clone()) == ""


def test_names_of_values_do_not_count() -> None:
    assert first_difference(parse(TEXT), parse(TEXT.replace("%a", "%other"))) == ""


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("@m ", "@n ", "module names @m and @n"),
        ('"trn2"', '"trn1"', "module attributes"),
        ("@main", "@other", "functions"),
        ("1..8", "1..9", "in @main: dims"),
        ("a = 0.0", "a = -0.0", "in @main: attributes"),
        ("a = 0.0", "a = 0", "in @main: attributes"),
        ('"input"', '"weight"', "in @main: attributes of argument 0"),
        ('name = "y"', 'name = "z"', "in @main: attributes of result 0"),
        ("axis = 0", "axis = 1", "in @main: attributes of neuron.softmax"),
        ("neuron.tanh", "neuron.sine", "in @main: ops neuron.tanh"),
        ("%d = neuron.tanh(%c)", "%d = neuron.tanh(%a)", "in @main: operands of neuron.tanh"),
        ("(%a, %b) :", "(%b, %a) :", "in @main: operands of neuron.subtract"),
        ("m.py", "n.py", "in @main: locations of neuron.softmax"),
        ("trip_count = 2", "trip_count = 3", "in @main: attributes of neuron.for"),
        ("    %e =", "    %z = neuron.tanh(%b) : tensor<Sx4xf32>\n    %e =", "in @main: ops neuron.subtract"),
        ("Sx4xf32", "Sx4xf16", "in @main: result types"),
    ],
)
def test_differences(old: str, new: str, found: str) -> None:
    assert TEXT != TEXT.replace(old, new)
    assert first_difference(parse(TEXT), parse(TEXT.replace(old, new))).startswith(found)
