"""Conditions that only a run can tell: an index out of range is an error at the user's line, never a wrong number."""

from __future__ import annotations

import numpy as np
import pytest

import neuron_ir

TAKE = """func @main(%x: tensor<4xf32>, %i: tensor<2xi64>) -> tensor<2xf32> {
  %y = neuron.take(%x, %i) : tensor<2xf32> loc("model.py":7:3)
  func.return(%y)
}"""

IN_A_LOOP = """func @main(%x: tensor<4xf32>, %i: tensor<2xi64>) -> tensor<2xf32> {
  %z = neuron.constant() {value = dense<0.0>} : tensor<2xf32>
  %r = neuron.for(%z) {trip_count = 3} {
  ^(%n: tensor<i64>, %c: tensor<2xf32>):
    %y = neuron.take(%x, %i) : tensor<2xf32> loc("model.py":7:3)
    %s = neuron.add(%c, %y) : tensor<2xf32>
    neuron.yield(%s)
  } : tensor<2xf32>
  func.return(%r)
}"""

UPDATE = """func @main(%x: tensor<4xf32>, %i: tensor<2xi64>, %u: tensor<2xf32>) -> tensor<4xf32> {
  %y = neuron.index_put(%x, %u, %i) {dims = [0]} : tensor<4xf32> loc("model.py":7:3)
  func.return(%y)
}"""

X = np.float32([1, 2, 3, 4])


@pytest.mark.parametrize("text", [TAKE, IN_A_LOOP], ids=["straight", "in a loop"])
def test_a_bad_index_stops_the_program_and_a_good_one_runs_again(text: str) -> None:
    program = neuron_ir.compile(neuron_ir.parse(text))
    factor = 3 if text is IN_A_LOOP else 1
    for _ in range(2):
        np.testing.assert_array_equal(program(X, np.int64([3, 0])), factor * np.float32([4, 1]))
        with pytest.raises(neuron_ir.IRError, match=r"(?s)model\.py:7:3: error\[runtime\].*neuron\.\w+: .*0\.\.3"):
            program(X, np.int64([4, 0]))


def test_a_write_out_of_range_is_not_dropped_in_silence() -> None:
    program = neuron_ir.compile(neuron_ir.parse(UPDATE))
    np.testing.assert_array_equal(program(X, np.int64([-1, 0]), np.float32([9, 8])), np.float32([8, 2, 3, 9]))
    with pytest.raises(neuron_ir.IRError, match=r"model\.py:7:3: error\[runtime\]"):
        program(X, np.int64([7, 0]), np.float32([9, 8]))
