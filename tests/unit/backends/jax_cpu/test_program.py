"""A compiled program over many calls: failures, threads, copies, and names that argument names may have."""

from __future__ import annotations

import copy
import pickle
import threading
from collections import namedtuple

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


Pair = namedtuple("Pair", "u v")


def dicts(p, *rest, k):
    return p["w"] - p["b"] + 10 * rest[0]["z"][0].v + 100 * k[0]


def test_dicts_are_read_by_key_in_any_order() -> None:
    leaves = [np.float32([i, 2 * i]) for i in range(5)]
    args = {"w": leaves[0], "b": leaves[1]}, {"z": [Pair(leaves[2], leaves[3])]}
    k = {0: leaves[4]}
    turned = {"b": leaves[1], "w": leaves[0]}, args[1]
    of_torch = torch.utils._pytree.tree_map(torch.from_numpy, (args, {"k": k}))
    for module, names in (
        (neuron_ir.from_jax(dicts, *args, k=k), ["p['b']", "p['w']", "rest[0]['z'][0].u", "rest[0]['z'][0].v", "k[0]"]),
        (neuron_ir.from_torch(dicts, *of_torch), ["p.w", "p.b", "rest_0.z.0.u", "rest_0.z.0.v", "k.0"]),
    ):
        assert [a["name"] for a in module.main.arg_attrs] == names
        program, want = neuron_ir.compile(module), dicts(*args, k=k)
        for given in (args, turned):
            np.testing.assert_array_equal(program(*given, k=k), want)
            np.testing.assert_array_equal(program(*given, k[0]), want)
        values = dict(zip(names, (leaves[1], leaves[0]) if "'" in names[0] else leaves[:2], strict=False))
        np.testing.assert_array_equal(program(**values, **dict(zip(names[2:], leaves[2:], strict=True))), want)
        with pytest.raises(neuron_ir.IRError, match=r"a dict is given with w, c, but the inputs at its place are p\."):
            program({"w": leaves[0], "c": leaves[1]}, args[1], k=k)


def test_a_dict_for_inputs_without_such_names_is_refused() -> None:
    head = "func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32>"
    program = neuron_ir.compile(neuron_ir.parse(head + "{ %z = neuron.subtract(%x, %y) : tensor<f32> func.return(%z) }"))
    assert program({"x": np.float32(3)}, np.float32(1)) == 2
    with pytest.raises(
        neuron_ir.IRError, match="a dict is given with a, b, but the inputs at its place are x, y; give them by name"
    ):
        program({"a": np.float32(3), "b": np.float32(1)})
