"""Outputs come as the source program nests them, before and after the text form."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import neuron_ir
from neuron_ir import trees

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class State:
    step: object
    rate: object
    note: str = "none"


jax.tree_util.register_dataclass(State, ["step", "rate"], ["note"])
torch.export.register_dataclass(State)


def of_jax(x):
    return {"b": [x, (x + 1,)], "a": Pair(x * 2, None), "s": State(x - 1, x - 2), 3: ()}


def of_torch(x):
    counts = defaultdict(list, {"n": x.max(0)})
    return {"b": [x, (x + 1,)], "a": Pair(x * 2, None), "s": (State(x - 1, x - 2, None), 7), "o": OrderedDict(k=counts)}


def test_outputs_nest_as_in_the_source_program() -> None:
    x = np.float32([3, 4])
    module = neuron_ir.from_jax(lambda x: {k: v for k, v in of_jax(x).items() if k != 3}, x)
    assert (
        module.main.attrs["output_tree"] == "{'a': Pair(left=..., right=None), 'b': [..., (...,)], 's': State(step=..., rate=...)}"
    )
    for again in (module, neuron_ir.parse(module.text())):
        got = neuron_ir.compile(again)(x)
        assert list(got) == ["a", "b", "s"] and got["a"] == Pair(got["a"].left, None) and type(got["b"]) is list
        assert got["a"].left.tolist() == [6, 8] and got["b"][1][0].tolist() == [4, 5] and got["s"].rate.tolist() == [1, 2]

    module = neuron_ir.from_torch(of_torch, (torch.from_numpy(x),))
    for again in (module, neuron_ir.parse(module.text())):
        got = neuron_ir.compile(again)(torch.from_numpy(x))
        (state, seven), most = got["s"], got["o"]["k"]["n"]
        assert list(got) == ["b", "a", "s", "o"] and seven == 7 and state.step.tolist() == [2, 3]
        assert got["a"].left.tolist() == [6, 8] and got["a"].right is None and got["b"][1][0].tolist() == [4, 5]
        assert most.values == 4 and most.indices == 1


def test_one_output_and_plain_tuples_need_no_attribute() -> None:
    x = np.float32([3, 4])
    assert "output_tree" not in neuron_ir.from_jax(lambda x: (x, x + 1), x).text()
    assert "output_tree" not in neuron_ir.from_torch(torch.neg, (torch.from_numpy(x),)).text()
    (only,) = neuron_ir.compile(neuron_ir.from_jax(lambda x: (jnp.sin(x),), x))(x)
    np.testing.assert_allclose(only, np.sin(x), rtol=1e-6)
    assert neuron_ir.compile(neuron_ir.from_jax(lambda x: None, x))(x) is None


@pytest.mark.parametrize(
    "text", ["...", "None", "()", "(...,)", "[..., None]", "{'a': ..., 2: [], -1: ...}", "P(x=..., y=Q(z=...))"]
)
def test_the_notation_is_read_as_it_is_written(text: str) -> None:
    tree = trees.read(text)
    assert trees.write(tree) == text
    leaves = list(range(trees.leaf_count(tree)))
    assert trees.flatten(tree, trees.fill(tree, iter(leaves))) == leaves


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(..., ...)", "output_tree has 2 output(s), but the function has 1"),
        ("[...", "'[...' is no tree of outputs"),
        ("{'a': 1}", "'1' is no tree of outputs"),
        ("open(...)", "'open(...)' is no tree of outputs"),
        ("{**...}", "'{**...}' is no tree of outputs"),
        ("P(**...)", "'P(**...)' is no tree of outputs"),
    ],
)
def test_a_wrong_tree_is_refused(text: str, reason: str) -> None:
    head = "func @main(%x: tensor<f32>) -> (tensor<f32>)"
    with pytest.raises(neuron_ir.IRError) as caught:
        neuron_ir.parse(f'{head} {{output_tree = "{text}"}} {{ func.return(%x) }}').verify()
    assert caught.value.diagnostics[0].message == f"@main: {reason}"


def test_objects_whose_parts_have_no_plain_names_are_tuples() -> None:
    assert trees.named("class", ["x"], [...]) == (...,) and not hasattr(trees.named("P", ["_x"], [...]), "_fields")
    assert trees.keyed([(1, 2)], [...]) == (...,)
