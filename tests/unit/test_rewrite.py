"""The rewriter: fails closed, checks types and dominance, and ends."""

from __future__ import annotations

import pytest

from neuron_ir.core import Module
from neuron_ir.diagnostics import IRError
from neuron_ir.dtypes import F32
from neuron_ir.parser import parse
from neuron_ir.passmanager import Context
from neuron_ir.rewrite import Pattern, apply_patterns, pattern


def rewrite(text: str, *patterns: Pattern) -> tuple[Module, Context]:
    module, ctx = parse(text), Context()
    ctx.begin("test")
    apply_patterns(module.main, patterns, ctx)
    module.verify()
    return module, ctx


def body(module: Module) -> list[str]:
    return [op.name.removeprefix("neuron.") for op in module.main.body.ops]


NEGATIONS = """func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = neuron.negate(%x) : tensor<4xf32>
  %b = neuron.negate(%a) : tensor<4xf32>
  %c = neuron.negate(%b) : tensor<4xf32>
  %d = neuron.negate(%c) : tensor<4xf32>
  func.return(%d)
}"""


@pattern("neuron.negate")
def double_negation(op, rw):
    inner = rw.producer(op.x, "neuron.negate")
    return inner and inner.x


def test_a_pattern_applies_until_nothing_fits() -> None:
    module, ctx = rewrite(NEGATIONS, double_negation)
    assert module.main.body.terminator.operands == [module.main.args[0]]
    assert ctx.record.counts["double_negation"] == 2


SOFTMAX = """func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = neuron.softmax(%x) {axis = 0} : tensor<4x4xf32>
  func.return(%a)
}"""


def test_an_attribute_that_a_pattern_does_not_mention_must_be_default() -> None:
    def to_tanh(op, rw):
        return rw.b.tanh(op.x)

    module, ctx = rewrite(SOFTMAX, pattern("neuron.softmax")(to_tanh))
    assert body(module) == ["softmax", "func.return"]
    assert ctx.record.declines["to_tanh: neuron.softmax has the attribute axis"] == 1
    module, _ = rewrite(SOFTMAX, pattern("neuron.softmax", ["axis"])(to_tanh))
    assert body(module) == ["tanh", "func.return"]


def test_a_producer_with_other_attributes_does_not_match() -> None:
    text = SOFTMAX.replace("func.return(%a)", "%b = neuron.tanh(%a) : tensor<4x4xf32>\n  func.return(%b)")
    seen = []

    @pattern("neuron.tanh")
    def look(op, rw):
        seen.append((rw.producer(op.x, "neuron.softmax"), rw.producer(op.x, "neuron.softmax", ["axis"])))

    module, _ = rewrite(text, look)
    assert seen == [(None, module.main.body.first)]


def test_a_replacement_of_another_type_is_declined_and_leaves_nothing_behind() -> None:
    @pattern("neuron.negate")
    def shrink(op, rw):
        return rw.b.const(0.0, F32)

    module, ctx = rewrite(NEGATIONS, shrink)
    assert body(module) == ["negate"] * 4 + ["func.return"]
    assert ctx.record.declines["shrink: the replacement has another type"] == 4


def test_a_replacement_that_comes_later_is_declined() -> None:
    @pattern("neuron.negate")
    def by_last(op, rw):
        (*_, last, _) = op.block.ops
        return None if last is op else last.result

    module, ctx = rewrite(NEGATIONS, by_last)
    assert body(module) == ["negate"] * 4 + ["func.return"]
    assert ctx.record.declines["by_last: the replacement is not visible there"] == 3


IF = """func @main(%p: tensor<bool>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %r = neuron.if(%p) true_branch {
    %a = neuron.exponential(%x) : tensor<4xf32>
    neuron.yield(%a)
  } false_branch {
    %b = neuron.tanh(%x) : tensor<4xf32>
    neuron.yield(%b)
  } : tensor<4xf32>
  %c = neuron.negate(%r) : tensor<4xf32>
  func.return(%c)
}"""


def inside(module: Module, name: str):
    return next(op for op in module.walk() if op.name == f"neuron.{name}")


def test_a_value_of_another_branch_is_not_visible() -> None:
    @pattern("neuron.tanh")
    def by_other_branch(op, rw):
        return inside(op.block.func.module, "exponential").result

    @pattern("neuron.negate")
    def by_branch(op, rw):
        return inside(op.block.func.module, "tanh").result

    _, ctx = rewrite(IF, by_other_branch, by_branch)
    assert ctx.record.declines == {
        "by_other_branch: the replacement is not visible there": 1,
        "by_branch: the replacement is not visible there": 1,
    }


def test_a_branch_sees_what_was_before_it() -> None:
    @pattern("neuron.tanh")
    def by_argument(op, rw):
        return op.x

    module, _ = rewrite(IF, by_argument)
    assert [op.name for op in module.main.body.first.false_branch.ops] == ["neuron.yield"]


def test_a_closed_region_does_not_see_outside() -> None:
    text = """func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %f = neuron.fused(%x) {
      ^(%y: tensor<4xf32>):
        %z = neuron.tanh(%y) : tensor<4xf32>
        neuron.yield(%z)
      } : tensor<4xf32>
      func.return(%f)
    }"""

    @pattern("neuron.tanh")
    def by_outside(op, rw):
        return op.block.func.args[0]

    _, ctx = rewrite(text, by_outside)
    assert ctx.record.declines["by_outside: the replacement is not visible there"] == 1


def test_patterns_that_undo_each_other_are_stopped() -> None:
    @pattern("neuron.sine")
    def to_cosine(op, rw):
        return rw.b.cosine(op.x)

    @pattern("neuron.cosine")
    def to_sine(op, rw):
        return rw.b.sine(op.x)

    text = "func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %y = neuron.sine(%x) : tensor<4xf32>\n  func.return(%y)\n}"
    with pytest.raises(IRError, match="was applied without end") as raised:
        rewrite(text, to_cosine, to_sine)
    assert raised.value.code == "pass"


def test_ops_put_between_keep_the_order() -> None:
    """Many replacements at one place: positions between two neighbours run out and are given anew."""

    @pattern("neuron.exponential")
    def split(op, rw):
        return rw.b.tanh(rw.b.negate(op.x))

    @pattern("neuron.tanh")
    def drop(op, rw):
        inner = rw.producer(op.x, "neuron.negate")
        return inner and inner.result

    lines = [f"  %v{i + 1} = neuron.exponential(%v{i}) : tensor<f32>" for i in range(60)]
    text = "func @main(%v0: tensor<f32>) -> tensor<f32> {\n" + "\n".join(lines) + "\n  func.return(%v60)\n}"
    module, ctx = rewrite(text, split, drop)
    assert body(module) == ["negate"] * 60 + ["func.return"]
    assert not ctx.record.declines


def test_a_taken_branch_moves_out_and_is_looked_at_again() -> None:
    @pattern("neuron.if")
    def always(op, rw):
        return rw.inline(op, op.true_branch, ())

    @pattern("neuron.negate")
    def of_exponential(op, rw):
        inner = rw.producer(op.x, "neuron.exponential")
        return inner and rw.b.tanh(inner.x)

    module, _ = rewrite(IF, always, of_exponential)
    assert body(module) == ["exponential", "tanh", "func.return"]
