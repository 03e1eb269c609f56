"""Ops, values, blocks and functions as objects: uses, lists, erasing, cloning, symbols replaced."""

from __future__ import annotations

import gc

import pytest

import neuron_ir
from neuron_ir import Block, Builder, Func, Module, tensor
from neuron_ir.core import bulk
from neuron_ir.dtypes import F32
from neuron_ir.specialise import solve_sizes, specialise
from tests.unit.core.programs import EVERYTHING, SHAPES

T = tensor([4], "f32")


def chain() -> tuple[Module, list[neuron_ir.Value]]:
    """``y = tanh(x); z = y + y``."""
    module = Module()
    func = module.add(Func("main", [T]))
    b = Builder(func.body)
    y = b.tanh(func.args[0])
    z = b.add(y, y)
    func.set_results([z])
    return module, [func.args[0], y, z]


def names(block: Block) -> list[str]:
    """The block's ops forwards, after checking that backwards agrees."""
    forwards, op = list(block.ops), block.last
    backwards = []
    while op is not None:
        assert op.block is block
        backwards.append(op)
        op = op.prev
    assert backwards[::-1] == forwards
    return [op.name.split(".")[1] for op in forwards]


def test_users_count_each_operand() -> None:
    _, (x, y, z) = chain()
    add, tanh = z.op, y.op
    assert (x.users, y.users) == ({tanh: 1}, {add: 2})
    add.set_operand(0, x)
    assert (x.users, y.users) == ({tanh: 1, add: 1}, {add: 1})
    add.set_operand(0, x)
    assert x.users == {tanh: 1, add: 1}
    add.set_operands([x, x])
    assert (x.users, y.users) == ({tanh: 1, add: 2}, {})


def test_replacing_all_uses_reaches_every_user() -> None:
    module, (x, y, z) = chain()
    y.replace_all_uses_with(x)
    assert z.op.operands == [x, x]
    assert not y.users
    x.replace_all_uses_with(x)
    assert z.op.operands == [x, x]
    module.verify()


def test_an_op_in_use_cannot_be_erased() -> None:
    _, (_, y, _) = chain()
    with pytest.raises(ValueError, match=r"neuron\.tanh cannot be erased: a result is still used"):
        y.op.erase()


def test_replacing_an_op_passes_on_its_name_and_its_uses() -> None:
    module, (x, y, z) = chain()
    y.name = "hidden"
    other = Builder(module.main.body, before=z.op).exponential(x)
    y.op.replace_with([other])
    assert other.name == "hidden"
    assert z.op.operands == [other, other]
    assert names(module.main.body) == ["exponential", "add", "return"]


def test_the_list_of_ops_stays_whole() -> None:
    block = Block([T])
    b = Builder(block)
    ops = [b.tanh(block.args[0]).op for _ in range(3)]
    ops[1].unlink()
    assert (names(block), len(block)) == (["tanh", "tanh"], 2)
    assert ops[1].block is None
    block.insert_before(ops[1], ops[0])
    assert list(block.ops) == [ops[1], ops[0], ops[2]]
    ops[1].erase()
    ops[2].erase()
    assert (block.first, block.last) == (ops[0], ops[0])
    ops[0].erase()
    assert (block.first, block.last, len(block), bool(block)) == (None, None, 0, True)


def test_ops_may_be_erased_while_they_are_walked() -> None:
    block = Block([T])
    b = Builder(block)
    for _ in range(4):
        b.tanh(block.args[0])
    for op in block.ops:
        op.erase()
    assert len(block) == 0
    assert not block.args[0].users


def test_erasing_an_op_with_a_region_drops_the_uses_inside() -> None:
    module = neuron_ir.parse(EVERYTHING)
    main = module.main
    reduce = next(op for op in main.body.ops if op.name == "neuron.reduce")
    outer = next(op for op in main.body.ops if op.name == "neuron.if")
    called = outer.regions[0].terminator.operands[0]
    assert len(called.users) == 2
    reduce.erase()
    main.body.terminator.set_operand(1, main.args[2])
    outer.erase()
    assert not called.users
    module.verify()


def test_walking_visits_nested_ops_after_their_parent() -> None:
    main = neuron_ir.parse(EVERYTHING).main
    visited = [op.name.split(".")[1] for op in main.walk()]
    assert visited[-9:] == ["compare", "if", "yield", "exponential", "yield", "reduce", "add", "yield", "return"]


def test_block_arguments_can_be_added_and_dropped() -> None:
    block = Block([T, T, T])
    y = Builder(block).tanh(block.args[1])
    with pytest.raises(ValueError, match="still used"):
        block.remove_args([0, 1])
    block.remove_args([0])
    last = block.add_arg(T, "last")
    assert [a.index for a in block.args] == [0, 1, 2]
    assert (y.op.operands[0].index, last.name, last.owner, last.op) == (0, "last", block, None)


def test_a_clone_shares_no_op_and_prints_the_same() -> None:
    module = neuron_ir.parse(EVERYTHING)
    module.weights = {"table": object()}
    copy = module.clone()
    assert copy.text(True) == module.text(True)
    assert not {*module.walk()} & {*copy.walk()}
    assert copy.weights == module.weights and copy.weights is not module.weights
    copy.main.arg_attrs[0]["name"] = "other"
    for op in copy.walk():
        op.attrs.clear()
    assert module.text(True) == neuron_ir.parse(module.text(True)).text(True)
    assert module.main.arg_attrs[0]["name"] == "input_ids"


def test_the_deepest_regions_can_be_cloned() -> None:
    branches = "} false_branch { neuron.yield(%x) } : tensor<bool>\n"
    opened = "".join(f"%a{i} = neuron.if(%x) true_branch {{\n" for i in range(255))
    closed = "".join(branches + (f"neuron.yield(%a{i})\n" if i else "") for i in range(254, -1, -1))
    text = f"func @main(%x: tensor<bool>) -> tensor<bool> {{\n{opened}neuron.yield(%x)\n{closed}func.return(%a0)\n}}"
    module = neuron_ir.parse(text)
    assert module.clone().text() == module.text()


def test_every_op_of_a_clone_uses_values_of_the_clone() -> None:
    copy = neuron_ir.parse(EVERYTHING).clone()
    copy.verify()
    for op in copy.walk():
        for v in op.operands:
            assert op in v.users


def test_setting_results_again_replaces_the_return() -> None:
    module, (x, y, _) = chain()
    module.main.set_results([x, y], [{"name": "a"}, {}])
    assert names(module.main.body) == ["tanh", "add", "return"]
    assert module.main.result_attrs == [{"name": "a"}, {}]
    module.verify()


def test_a_module_holds_each_function_once() -> None:
    module, _ = chain()
    with pytest.raises(ValueError, match="already has a function @main"):
        module.add(Func("main"))


def test_the_collector_is_paused_in_bulk_and_comes_back_after_an_error() -> None:
    with pytest.raises(KeyError), bulk():
        assert not gc.isenabled()
        with bulk():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


# --- symbols to sizes -------------------------------------------------------------------------------------------------


def test_a_program_is_specialised_in_types_and_attributes() -> None:
    module = neuron_ir.parse(EVERYTHING)
    static = specialise(module, {"B": 2, "S": 5})
    static.verify()
    assert static.main.args[0].type is tensor([2, 5], "f32")
    assert static.main.dims == {}
    assert next(op for op in static.walk() if op.name == "neuron.dim_size").get("size") == 11
    assert module.main.dims == {"B": (1, 8), "S": (0, None)}
    partly = specialise(module, {"B": 2})
    assert (partly.main.args[0].type, partly.main.dims) == (tensor([2, neuron_ir.symbol("S")], "f32"), {"S": (0, None)})
    partly.verify()


def solve(head: str, *shapes: tuple[int, ...]) -> dict[str, int]:
    func = neuron_ir.parse(f"func @main{head} {{\n  func.return()\n}}").main
    return solve_sizes(func, shapes)


def test_sizes_follow_from_shapes() -> None:
    assert solve("[S in 0..inf, T in 0..inf](%x: tensor<Sx(2*T+1)xf32>)", (3, 9)) == {"S": 3, "T": 4}
    assert solve("[S in 0..inf, T in 0..inf](%x: tensor<(S+T)xf32>, %y: tensor<Sxf32>)", (7,), (3,)) == {"S": 3, "T": 4}
    assert solve("[S in 0..inf](%x: tensor<Sx(floordiv(S,2))xf32>)", (7, 3)) == {"S": 7}


@pytest.mark.parametrize(
    ("head", "shapes", "message"),
    [
        ("[S in 0..inf](%x: tensor<SxSxf32>)", [(3, 4)], r"axis 1 of x is 4, but S is 3 with S = 3"),
        ("[S in 0..8](%x: tensor<Sxf32>)", [(9,)], r"S is 9; the program was made for 0 to 8"),
        ("[S in 2..inf](%x: tensor<Sxf32>)", [(1,)], r"S is 1; the program was made for at least 2"),
        ("[S in 0..inf](%x: tensor<(2*S)xf32>)", [(3,)], r"axis 0 of x is 3, which is not 2\*S for any whole S"),
        ("[S in 0..inf](%x: tensor<(S*S)xf32>)", [(4,)], r"axis 0 of x has size 4, from which S\*S cannot be solved"),
        ("[S in 0..inf, T in 0..inf](%x: tensor<(S+T)xf32>)", [(4,)], r"from which S\+T cannot be solved"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(head: str, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(neuron_ir.IRError, match=message) as caught:
        solve(head, *shapes)
    assert caught.value.code == "input"


def test_a_program_without_symbols_is_copied_unchanged() -> None:
    module = neuron_ir.parse(SHAPES.replace("[B in 1..8]", "").replace("Bx4", "2x4"))
    assert specialise(module, {}).text() == module.text()


def test_constants_are_shared_not_copied() -> None:
    module = Module()
    func = module.add(Func("main"))
    value = Builder(func.body).const(1.0, F32, (3,))
    func.set_results([value])
    assert module.clone().main.body.first.get("value") is value.op.get("value")
