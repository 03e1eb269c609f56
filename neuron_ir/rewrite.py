"""Patterns that replace one op by an equal value, and the driver that applies them until none fits.

A pattern is a function of the op it is declared for; it returns the value(s) to use instead, or ``None``::

    @pattern("neuron.negate")
    def double_negation(op, rw):
        inner = rw.producer(op.x, "neuron.negate")
        return inner and inner.x

Patterns fail closed: the driver offers an op only where every attribute outside the pattern's ``attrs`` has its default. The
driver, not the pattern, checks that a replacement has the same type and is visible where the op stands; otherwise it declines.
Patterns must only go one way (towards fewer or simpler ops), so that the work is linear in the number of ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from neuron_ir.builder import Builder
from neuron_ir.core import Block, Func, Op, Value
from neuron_ir.diagnostics import fail
from neuron_ir.passmanager import Context

__all__ = ["Pattern", "Replacement", "Rewriter", "apply_patterns", "pattern"]

Replacement = Any  # a value, a sequence of values (one per result), or None: the pattern does not fit

_MAX_REWRITES_PER_OP = 16  # patterns that only go one way need far fewer; beyond it, two of them undo each other


@dataclass(frozen=True)
class Pattern:
    """A function from an op named ``root`` to its replacement; it handles the attributes ``attrs`` and no others."""

    name: str
    root: str
    attrs: frozenset[str]
    function: Callable[[Any, Rewriter], Replacement]


def pattern(root: str, attrs: Iterable[str] = ()) -> Callable[[Callable[[Any, Rewriter], Replacement]], Pattern]:
    """Declare the decorated function as a pattern for ops named ``root`` whose attributes, but for ``attrs``, are all default."""
    return lambda function: Pattern(function.__name__, root, frozenset(attrs), function)


class _Recording(Builder):
    """A builder that remembers what it made, to take it back when the pattern does not go through."""

    def __init__(self, before: Op):
        assert before.block is not None
        super().__init__(before.block, before.loc, before)
        self.made: list[Op] = []

    def insert(self, op: Op) -> Op:
        self.made.append(op)
        return super().insert(op)


class Rewriter:
    """What a pattern sees beside its op: the builder ``b``, which puts ops before it, and safe ways to look at producers."""

    def __init__(self, op: Op, ctx: Context):
        self.b = _Recording(op)
        self.ctx = ctx

    def producer(self, value: Value, name: str, attrs: Iterable[str] = ()) -> Any:
        """The op that defines ``value`` where it is a ``name`` whose attributes, but for ``attrs``, are default; else ``None``."""
        op = value.op
        if op is None or op.name != name or not op.attrs.keys() <= set(attrs):
            return None
        return op

    def splat(self, value: Value) -> Any:
        """The one number that every element of the constant ``value`` equals, as a numpy scalar; ``None`` otherwise."""
        dense = value.dense
        return dense.array.flat[0] if dense is not None and dense.is_splat and dense.array.size else None

    def decline(self, reason: str) -> Any:
        """Note why an op that nearly fits is left alone; gives ``None`` for the pattern to return."""
        self.ctx.decline(reason)

    def inline(self, op: Op, block: Block, inputs: Sequence[Value]) -> list[Value] | None:
        """Move the ops of ``block``, a region of ``op``, before ``op``, with ``inputs`` for its arguments; gives what it yielded.

        ``None`` where that is not of the types of the op's results. Otherwise nothing can be taken back afterwards: the pattern
        must return these values.
        """
        if [v.type for v in block.terminator.operands] != [r.type for r in op.results]:
            self.decline(f"a region of {op.name} yields other types than its results")
            return None
        for arg, value in zip(block.args, inputs, strict=True):
            arg.replace_all_uses_with(value)
        terminator = block.terminator
        values = list(terminator.operands)
        terminator.erase()
        for op in block.ops:
            op.unlink()
            self.b.insert(op)
        return values


class _Order:
    """Positions of ops in their blocks, kept while ops are put in between, so that "comes before" costs no walk."""

    def __init__(self) -> None:
        self.at: dict[Op, int] = {}

    def number(self, block: Block) -> None:
        for i, op in enumerate(block.ops):
            self.at[op] = (i + 1) << 20

    def added(self, op: Op) -> None:
        assert op.block is not None
        low = self.at.get(op.prev, 0) if op.prev is not None else 0
        high = self.at.get(op.next, low + (2 << 20)) if op.next is not None else low + (2 << 20)
        if high - low < 2:
            self.number(op.block)
        else:
            self.at[op] = (low + high) // 2

    def visible(self, value: Value, op: Op) -> bool:
        """Whether ``value`` is defined where ``op`` stands: earlier in its block, or in one around it that it may look into."""
        home = value.owner.block if isinstance(value.owner, Op) else value.owner
        place: Op = op
        while place.block is not home:
            parent = place.block.parent if place.block is not None else None
            if not isinstance(parent, Op) or "control" not in parent.spec.traits:
                return False
            place = parent
        return not isinstance(value.owner, Op) or self.at[value.owner] < self.at[place]


def apply_patterns(func: Func, patterns: Iterable[Pattern], ctx: Context) -> int:
    """Apply ``patterns`` all over a function until none fits; gives the number of replacements, counted by name in ``ctx``.

    Raises :class:`IRError` (``pass``) where patterns undo each other.
    """
    by_root: dict[str, list[Pattern]] = {}
    for p in patterns:
        by_root.setdefault(p.root, []).append(p)
    return _Driver(func, by_root, ctx).run()


class _Driver:
    def __init__(self, func: Func, by_root: dict[str, list[Pattern]], ctx: Context):
        self.by_root, self.ctx = by_root, ctx
        self.order = _Order()
        ops = list(func.walk())
        for block in {op.block for op in ops if op.block is not None}:
            self.order.number(block)
        self.work = [op for op in reversed(ops) if op.name in by_root]
        self.queued = set(self.work)
        self.budget = _MAX_REWRITES_PER_OP * len(ops) + 1000
        self.done = 0

    def run(self) -> int:
        while self.work:
            op = self.work.pop()
            self.queued.discard(op)
            if op.block is not None:
                self.visit(op)
        return self.done

    def push(self, ops: Iterable[Op]) -> None:
        for op in ops:
            if op not in self.queued and op.name in self.by_root:
                self.queued.add(op)
                self.work.append(op)

    def visit(self, op: Op) -> None:
        """Offer ``op`` to its patterns until one replaces it."""
        rw = Rewriter(op, self.ctx)
        made = rw.b.made
        for p in self.by_root[op.name]:
            if not op.attrs.keys() <= p.attrs:
                extra = sorted(op.attrs.keys() - p.attrs)
                self.ctx.decline(f"{p.name}: {op.name} has the attribute {', '.join(extra)}")
                continue
            found = p.function(op, rw)
            for new in made:
                self.added(new)
            if found is not None and self.replace(p, op, [found] if isinstance(found, Value) else list(found), made):
                return
            for new in reversed(made):
                new.erase()
            made.clear()

    def added(self, new: Op) -> None:
        """Give a new op, and the ops inside of it, their places in the order."""
        for inner in new.walk() if new.regions else ():
            for block in inner.regions:
                self.order.number(block)
        self.order.added(new)

    def replace(self, p: Pattern, op: Op, values: list[Value], made: list[Op]) -> bool:
        """Check the replacement and put it in place."""
        if [v.type for v in values] != [r.type for r in op.results]:
            self.ctx.decline(f"{p.name}: the replacement has another type")
            return False
        if not all(self.order.visible(v, op) for v in values):
            self.ctx.decline(f"{p.name}: the replacement is not visible there")
            return False
        self.done += 1
        if self.done > self.budget:
            raise fail("pass", f"the pattern {p.name} was applied without end", op.loc, [f"see current operation: {op!r}"])
        self.ctx.count(p.name)
        users = [user for r in op.results for user in r.users]
        producers = [v.op for v in op.operands if v.op is not None]
        op.replace_with(values)
        self.push(producers)
        self.push(reversed(users))
        self.push(reversed(made))
        return True
