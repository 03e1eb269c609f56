"""What the verifier finds in objects that text could not have made, and how it reports."""

from __future__ import annotations

import re

import pytest

import neuron_ir
from neuron_ir import Block, Builder, Func, IRError, Module, tensor
from neuron_ir.registry import op_class
from neuron_ir.specialise import specialise
from tests.unit.core.programs import EVERYTHING, SHAPES

T = tensor([4], "f32")


def problems(module: Module) -> list[tuple[str, str]]:
    """Code and message of everything that is wrong."""
    with pytest.raises(IRError) as caught:
        module.verify()
    return [(d.code, d.message) for d in caught.value.diagnostics]


def function(*args: neuron_ir.TensorType) -> tuple[Module, Func, Builder]:
    module = Module()
    func = module.add(Func("main", args))
    return module, func, Builder(func.body)


def test_a_sound_module_passes() -> None:
    neuron_ir.parse(EVERYTHING).verify()


def test_all_violations_come_at_once_up_to_a_hundred() -> None:
    module, func, b = function(T)
    for _ in range(150):
        b.insert(op_class("neuron.tanh")(func.args, [tensor([5], "f32")], {}))
    func.set_results([])
    assert problems(module) == [("type", "neuron.tanh: has the result type tensor<5xf32>, but computes tensor<4xf32>")] * 100


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [
        ("neuron.tanh", 0, "neuron.tanh: takes 1 operand(s), not 0"),
        ("neuron.add", 3, "neuron.add: takes 2 operand(s), not 3"),
        ("neuron.linear", 1, "neuron.linear: takes 2 to 3 operand(s), not 1"),
    ],
)
def test_the_number_of_operands_counts(name: str, count: int, message: str) -> None:
    module, func, b = function(T)
    b.insert(op_class(name)([func.args[0]] * count, [T], {}))
    func.set_results([])
    assert problems(module) == [("operand", message)]


def test_a_value_must_come_before_its_use() -> None:
    module, func, b = function(T)
    y = b.tanh(func.args[0])
    z = b.exponential(y)
    func.set_results([z])
    z.op.unlink()
    func.body.insert_before(z.op, y.op)
    ((code, message),) = problems(module)
    assert (code, message) == ("dominance", "neuron.exponential: operand %0: tensor<4xf32> is not defined before this op")


def test_a_value_does_not_leave_its_region() -> None:
    module, func, b = function(tensor([], "f32"))
    x = func.args[0]
    inner: list[neuron_ir.Value] = []
    b.fused(x, body=lambda f, a: inner.append(f.tanh(a)) or inner[0])
    func.set_results([inner[0]])
    assert [code for code, _ in problems(module)] == ["dominance"]


def test_a_block_needs_its_own_terminator() -> None:
    module, func, b = function(T)
    func.result_types, func.result_attrs = [T], [{}]
    assert problems(module) == [("region", "a block must end with func.return, but it is empty")]
    b.make("neuron.yield", func.args[0])
    assert problems(module) == [("region", "a block must end with func.return, but it ends with neuron.yield")]


def test_nothing_follows_a_terminator() -> None:
    module, func, b = function(T)
    func.set_results([func.args[0]])
    b.tanh(func.args[0])
    codes = {message for code, message in problems(module) if code == "region"}
    assert "func.return: a terminator must be the last op of its block" in codes


def test_a_result_must_be_what_the_head_declares() -> None:
    module = neuron_ir.parse(SHAPES)
    module.main.result_types = [tensor([4, 4], "f32")]
    assert problems(module) == [("type", "func.return: gives tensor<Bx4xf32> where tensor<4x4xf32> is declared")]


def test_a_symbol_needs_a_range() -> None:
    module = neuron_ir.parse(SHAPES)
    module.main.dims.clear()
    assert ("name", "@main: the size B has no range, write [B in 0..inf]") in problems(module)


@pytest.mark.parametrize(
    ("attrs", "problem"),
    [
        ({"axis": 1.0}, ("attr", "neuron.softmax: attribute axis must be an integer, not 1.0")),
        ({"axis": True}, ("attr", "neuron.softmax: attribute axis must be an integer, not True")),
        ({"axes": 1}, ("attr", "neuron.softmax: has no attribute axes")),
    ],
)
def test_attributes_are_of_the_declared_kind(attrs: dict[str, object], problem: tuple[str, str]) -> None:
    module, func, b = function(T)
    b.insert(op_class("neuron.softmax")(func.args, [T], attrs))
    func.set_results([])
    assert problems(module) == [problem]


def test_an_update_names_an_argument_of_its_type() -> None:
    module = neuron_ir.parse(SHAPES)
    module.main.result_attrs = [{"updates": 3}]
    assert problems(module) == [("attr", "@main: result 0 updates argument 3, which does not exist")]


def test_regions_made_of_objects_have_the_same_limit_as_text() -> None:
    scalar = tensor([], "f32")
    block = Block([scalar])
    block.append(op_class("neuron.yield")(block.args, (), {}))
    for _ in range(300):
        outer = Block([scalar])
        y = outer.append(op_class("neuron.fused")(outer.args, [scalar], {}, [block])).result
        outer.append(op_class("neuron.yield")([y], (), {}))
        block = outer
    module, func, _ = function(scalar)
    func.set_results([func.body.append(op_class("neuron.fused")(func.args, [scalar], {}, [block])).result])
    assert problems(module) == [("nesting", "regions are nested deeper than 256 levels")]


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ('where = ["a > c"]', "a > c: the size c has no range"),
        ('where = ["a"]', "'a' is no condition on sizes; write two sizes with one of >= > <= < == != between"),
        ('where = ["a > a+1"]', "a condition on sizes never holds"),
        ('size_inputs = [[1, "n", "c"]]', "the input of size c: the size c has no range"),
    ],
)
def test_conditions_on_sizes_speak_of_known_sizes(attrs: str, message: str) -> None:
    head = "func @f[a in 0..9, b in 1..inf](%x: tensor<axf32>, %y: tensor<bxf32>) -> (tensor<axf32>)"
    with pytest.raises(IRError, match=re.escape(message)):
        neuron_ir.parse(f"{head} {{{attrs}}} {{ func.return(%x) }}").verify()


def test_conditions_on_sizes_follow_the_sizes() -> None:
    text = "func @f[a in 0..9, b in 1..inf](%x: tensor<axf32>, %y: tensor<bxf32>) -> (tensor<axf32>)"
    module = neuron_ir.parse(f'{text} {{where = ["a >= b", "mod(a,2) == 1"], size_inputs = [[2, "n", "b"]]}} {{ func.return(%x) }}')
    module.verify()
    half = specialise(module, {"b": 3}).main
    assert half.attrs == {"where": ("a >= 3", "mod(a,2) == 1"), "fixed_inputs": ((2, "n", 3),)}
    assert specialise(module, {"a": 5, "b": 3}).main.attrs == {"fixed_inputs": ((2, "n", 3),)}
