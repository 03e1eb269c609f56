"""A compiled program over many calls: failures, threads, copies, and names that argument names may have."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
import torch

import neuron_ir

COUNTER = """func @main(%x: tensor<4xf32>, %i: tensor<i64>, %n: tensor<f32> {kind = "buffer", weight = "n"})
    -> (tensor<f32>, tensor<f32> {updates = 2}) {
  %one = neuron.constant() {value = dense<1.0>} : tensor<f32>
  %next = neuron.add(%n, %one) : tensor<f32>
  %at = neuron.reshape(%i) : tensor<1xi64>
  %y = neuron.gather(%x, %at) {
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 0, slice_sizes = [1], policy = "raise"
  } : tensor<f32>
  func.return(%y, %next)
}"""
X = np.float32([5, 6, 7, 8])


def counter():
    module = neuron_ir.parse(COUNTER)
    module.weights["n"] = np.zeros((), np.float32)
    return neuron_ir.compile(module)


def test_a_call_that_fails_leaves_the_state_as_it_was() -> None:
    program = counter()
    assert program(X, 1) == 6
    with pytest.raises(neuron_ir.IRError, match="an index lies outside"):
        program(X, 9)
    assert program.state["n"] == 1
    assert program(X, 2) == 7 and program.state["n"] == 2


def test_calls_from_threads_count_each() -> None:
    program, failures = counter(), []

    def work() -> None:
        try:
            for i in range(25):
                assert program(X, i % 4) == X[i % 4]
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and program.state["n"] == 100


@pytest.mark.parametrize("again", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_a_copy_goes_on_by_itself(again) -> None:
    program = counter()
    program(X, 0)
    other = again(program)
    assert other(X, 3) == 8 and other.state["n"] == 2 and program.state["n"] == 1
    assert str(again(program.module)) == str(program.module)


def test_inputs_of_one_name_stay_apart() -> None:
    program = neuron_ir.compile(
        neuron_ir.parse(
            'func @main(%x: tensor<2xf32> {name = "a"}, %y: tensor<2xf32> {name = "a"}) -> tensor<2xf32> {'
            " %z = neuron.subtract(%x, %y) : tensor<2xf32> func.return(%z) }"
        )
    )
    assert program(np.float32([5, 6]), np.float32([1, 4])).tolist() == [4, 2]
    assert program(a=np.float32([5, 6]), a_1=np.float32([1, 4])).tolist() == [4, 2]


def test_masked_elements_are_refused() -> None:
    program = neuron_ir.compile(neuron_ir.parse("func @main(%x: tensor<4xf32>) -> tensor<4xf32> { func.return(%x) }"))
    assert program(np.ma.masked_array(X)).tolist() == X.tolist()
    with pytest.raises(neuron_ir.IRError, match="masked elements"):
        program(np.ma.masked_array(X, mask=X > 6))


def test_recursion_is_refused_at_its_call() -> None:
    module = neuron_ir.parse(
        "func @main(%x: tensor<4xf32>) -> tensor<4xf32> { %y = func.call(%x) {callee = @even} : tensor<4xf32> func.return(%y) }\n"
        "func @even(%x: tensor<4xf32>) -> tensor<4xf32> { %y = func.call(%x) {callee = @odd} : tensor<4xf32> func.return(%y) }\n"
        "func @odd(%x: tensor<4xf32>) -> tensor<4xf32> { %y = func.call(%x) {callee = @even} : tensor<4xf32> func.return(%y) }"
    )
    with pytest.raises(neuron_ir.IRError, match=r"<text>:3:.*@even calls itself"):
        neuron_ir.compile(module)(X)


def test_a_function_may_be_called_twice() -> None:
    module = neuron_ir.parse(
        "func @main(%x: tensor<4xf32>) -> tensor<4xf32> { %y = func.call(%x) {callee = @twice} : tensor<4xf32>"
        " %z = func.call(%y) {callee = @twice} : tensor<4xf32> func.return(%z) }\n"
        "func @twice(%x: tensor<4xf32>) -> tensor<4xf32> { %y = neuron.add(%x, %x) : tensor<4xf32> func.return(%y) }"
    )
    assert neuron_ir.compile(module)(X).tolist() == (4 * X).tolist()


def test_weights_without_values_are_named(tmp_path) -> None:
    layer = torch.nn.Linear(3, 2, device="meta")
    module = neuron_ir.from_torch(layer, (torch.zeros(1, 3, device="meta"),))
    with pytest.raises(neuron_ir.IRError, match="the weight 'weight' is a torch tensor on meta"):
        neuron_ir.compile(module)
    with pytest.raises(neuron_ir.IRError, match="on meta has no values in memory"):
        module.save(str(tmp_path / "m.nir"))
    assert not list(tmp_path.iterdir())
