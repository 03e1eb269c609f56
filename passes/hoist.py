"""Work moved up: out of loops that repeat it, and narrowing casts before views, which then move fewer bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neuron_ir.core import Block, Func, Op, Value
from neuron_ir.passmanager import Context, FuncPass, option
from neuron_ir.rewrite import Pattern, Replacement, Rewriter, apply_patterns, pattern
from neuron_ir.types import TensorType

__all__ = ["Hoist"]

_LOOPS = frozenset(["neuron.for", "neuron.while", "neuron.scan"])
_STAY = ("effect", "random", "collective")


@dataclass(frozen=True)
class Hoist(FuncPass):
    """Move what a loop computes anew in each trip out of it, and casts to a narrower type before transposes and their like.

    An op leaves a loop when all its operands come from outside. It stays where it could stop the program (an index policy
    ``raise``), draws random numbers, or has an effect, for the loop might never run. Nothing leaves a branch. A cast to fewer
    bits is taken before a view of one user: the view then moves fewer bytes. Each element is computed as before.
    """

    loops: bool = option(True, "move invariant ops out of loops")
    casts: bool = option(True, "move narrowing casts before views")

    def run_func(self, func: Func, ctx: Context) -> None:
        if self.casts:
            apply_patterns(func, _CASTS, ctx)
        if self.loops:
            _leave_loops(func.body, ctx)


def _leave_loops(block: Block, ctx: Context) -> None:
    """Inner loops first, so that what leaves one may leave the next."""
    for op in list(block.ops):
        for region in op.regions if "control" in op.spec.traits else ():
            _leave_loops(region, ctx)
            if op.name in _LOOPS:
                _leave(region, op, ctx)


def _leave(region: Block, loop: Op, ctx: Context) -> None:
    """Move the invariant ops of one region before its loop."""
    inside: set[Value] = set(region.args)
    home = loop.block
    assert home is not None
    for op in list(region.ops):
        uses = _uses(op, inside)
        reason = "" if uses else _must_stay(op)
        if uses or reason or "terminator" in op.spec.traits:
            inside.update(op.results)
            if reason:
                ctx.decline(reason)
            continue
        op.unlink()
        home.insert_before(op, loop)
        ctx.count("ops moved out of loops")


def _uses(op: Op, inside: set[Value]) -> bool:
    """Whether the op, or one in its regions, uses one of these values."""
    return any(v in inside for inner in op.walk() for v in inner.operands)


def _must_stay(op: Op) -> str:
    """Why an invariant op may not run before the loop, or nothing."""
    for inner in op.walk():
        if inner is not op and "terminator" in inner.spec.traits:
            continue
        for trait in _STAY:
            if trait in inner.spec.traits:
                return f"the op has the trait {trait}"
        if inner.name == "func.call":
            return "a call may have effects"
        if inner.name == "neuron.while":
            return "a loop may not end"
        if "policy" in inner.spec.attrs and "raise" in str(inner.get("policy")):
            return "the op may stop the program"
    return ""


# --- casts ------------------------------------------------------------------------------------------------------------


def cast_of_view(op: Any, rw: Rewriter) -> Replacement:
    """``cast(view(x))`` as ``view(cast(x))`` where that moves fewer bytes."""
    view = op.x.op
    if view is None or view.name not in _MOVES or len(view.result.users) != 1:
        return None
    narrower = op.result.dtype.bits < op.x.dtype.bits
    if not narrower and view.name != "neuron.broadcast_in_dim":
        return None
    source = view.operands[0]
    small = rw.b.cast(source, mode=op.mode, out=TensorType(source.shape, op.result.dtype))
    return rw.b.make(view.name, small, **_fields(view, op.result.type))


def _fields(view: Op, type: Any) -> dict[str, Any]:
    """The attributes of a view, and its result type where that is a free choice."""
    fields = dict(view.attrs)
    return fields if view.spec.infer is not None else {**fields, "out": type}


_MOVES = frozenset(f"neuron.{n}" for n in ("transpose", "reshape", "broadcast_in_dim", "slice", "reverse"))
_CASTS: list[Pattern] = [pattern("neuron.cast", ["mode"])(cast_of_view)]
