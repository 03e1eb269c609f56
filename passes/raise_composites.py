"""Composite ops put back in the place of the simple ops that they were taken apart into."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from neuron_ir.builder import Builder
from neuron_ir.canonical import Canonical, NoForm
from neuron_ir.composite_patterns import NAMES, PATTERNS, Build, Pattern, Proposal
from neuron_ir.core import Block, Func, Op, Value
from neuron_ir.diagnostics import IRError, fail
from neuron_ir.passmanager import Context, FuncPass, option

__all__ = ["RaiseComposites"]

_FREE_INSIDE = frozenset({"view", "constant"})  # a value inside that others use too may stay for them at no cost


@dataclass(frozen=True)
class RaiseComposites(FuncPass):
    """Find softmax, log-softmax, norms, GELU, SiLU, attention, rotary embedding, cross entropy and linear layers in simple ops.

    A pattern only proposes: which op is the result, which values go in, with which attributes. The composite is put in place
    where its own expansion (or another spelling of the same formula) has the same normal form as the ops there, so a near miss,
    such as another axis or an epsilon outside of the root, never matches. What does not count is how elements are moved around
    (see ``neuron_ir/canonical.py``). A match whose inner values are used elsewhere is declined. The composite may round at other
    places than the ops did, hence a tolerance of 1e-5 of the largest value (f32).
    """

    exact: ClassVar[bool] = False
    rtol: ClassVar[float] = 1e-5

    only: tuple[str, ...] = option((), "raise these composites alone, such as softmax or attention")

    def __post_init__(self) -> None:
        for name in self.only:
            if name not in NAMES:
                raise fail("pass", f"pass {self.name}: there is no pattern for {name!r}; known: {', '.join(sorted(NAMES))}")

    def run_func(self, func: Func, ctx: Context) -> None:
        for op in list(func.walk()):
            for name, patterns in PATTERNS.get(op.name, {}).items():
                if op.block is not None and (not self.only or name in self.only):
                    _try(op, name, patterns, ctx)


def _try(op: Op, name: str, patterns: Sequence[Pattern], ctx: Context) -> None:
    """Put the first proposal that holds in place."""
    for pattern in patterns:
        for proposal in pattern(op):
            reason = _raise(proposal)
            if not reason:
                ctx.count(f"neuron.{name} raised")
                return
            ctx.decline(f"{name}: {reason}")


def _raise(p: Proposal) -> str:
    """Put the composite in the place of ``p.root``, or give the reason why not."""
    table: dict[Hashable, int] = {}
    numbers = list(dict.fromkeys(p.leaves))
    try:
        graph = Canonical(table, {v: i for i, v in enumerate(numbers)})
        for constant, number in p.alike.items():
            graph.forms[constant] = _splat_form(graph, constant, number)
        wanted = graph.key(p.root.results[0])
        block = next((b for b in [_built(f, numbers, p) for f in (p.build, *p.spellings)] if _form(b, table) == wanted), None)
    except (NoForm, IRError):
        return "the ops have no normal form"
    if block is None or not graph.seen:
        return "the formula is another one"
    inside = {v.op for v in graph.seen}
    for v in graph.seen:
        counts = v.op is not p.root and v.op is not None and not v.op.spec.traits & _FREE_INSIDE
        if counts and any(user not in inside for user in v.users):
            return "a value inside is used elsewhere too"
    final = _built(p.build, numbers, p)
    if final.terminator.operands[0].type is not p.root.results[0].type:
        return "the result has another type"
    _graft(final, numbers, p.root)
    return ""


def _splat_form(graph: Canonical, constant: Value, number: float) -> Any:
    block = Block()
    return Canonical(graph.table, {}).key(Builder(block).const(number, constant.dtype, constant.shape))  # type: ignore[arg-type]


def _built(build: Build, leaves: Sequence[Value], p: Proposal) -> Block:
    """A block that computes ``build`` of its arguments, one per distinct leaf."""
    block = Block([v.type for v in leaves])
    of = dict(zip(leaves, block.args, strict=True))
    b = Builder(block, p.root.loc)
    b.make("neuron.yield", build(b, *[of[v] for v in p.leaves]))
    return block


def _form(block: Block, table: dict[Hashable, int]) -> Any:
    try:
        return Canonical(table, {a: i for i, a in enumerate(block.args)}).key(block.terminator.operands[0])
    except NoForm:
        return None


def _graft(block: Block, leaves: Sequence[Value], root: Op) -> None:
    """Move the ops of ``block`` before ``root`` and use their result for its."""
    for arg, leaf in zip(block.args, leaves, strict=True):
        arg.replace_all_uses_with(leaf)
    result = block.terminator.operands[0]
    block.terminator.erase()
    home = root.block
    assert home is not None
    for op in list(block.ops):
        op.unlink()
        home.insert_before(op, root)
    operands = list(root.operands)
    root.replace_with([result])
    _sweep(operands)


def _sweep(values: list[Value]) -> None:
    """Erase the ops of which nothing is used any more, so that they do not count as users."""
    while values:
        op = values.pop().op
        if op is not None and not op.regions and not any(r.users for r in op.results) and "effect" not in op.spec.traits:
            values += op.operands
            op.erase()
