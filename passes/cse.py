"""Common subexpression elimination."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from neuron_ir.core import Block, Func, Op, Value
from neuron_ir.locations import fuse_locations
from neuron_ir.passmanager import Context, FuncPass

__all__ = ["Cse", "attr_key", "op_key"]


@dataclass(frozen=True)
class Cse(FuncPass):
    """Replace an op by an earlier one that computes the same value.

    Two ops are the same when name, operands (in either order where the op is commutative), attributes, result types and regions
    are, all bit for bit. Ops with the traits ``effect`` or ``collective`` stay. A region under control flow sees the ops before
    it; any other region stands alone.
    """

    def run_func(self, func: Func, ctx: Context) -> None:
        merge(func.body, ctx)


def merge(block: Block, ctx: Context) -> None:
    """Merge equal ops of a block and its regions."""
    merged: dict[Op, list[Op]] = {}
    _merge(block, {}, merged, ctx)
    for kept, others in merged.items():
        if "constant" not in kept.spec.traits:  # a constant shared by a whole program would collect its every line
            kept.loc = fuse_locations([kept.loc, *(o.loc for o in others)])


def _merge(block: Block, known: dict[Hashable, Op], merged: dict[Op, list[Op]], ctx: Context) -> None:
    """``known`` maps the key of each op that is visible here to that op; what this block adds is taken out at its end."""
    added: list[Hashable] = []
    for op in block.ops:
        shares = "control" in op.spec.traits
        for region in op.regions:
            _merge(region, known if shares else {}, merged, ctx)
        if not op.results or "terminator" in op.spec.traits:
            continue
        reason = _must_stay(op)
        if reason:
            ctx.decline(reason)
            continue
        key = op_key(op)
        earlier = known.get(key)
        if earlier is None:
            known[key] = op
            added.append(key)
        else:
            merged.setdefault(earlier, []).append(op)
            op.replace_with(earlier.results)
            ctx.count("ops merged")
    for key in added:
        del known[key]


def _must_stay(op: Op) -> str:
    """Why an op may not be merged, or nothing."""
    for inner in op.walk() if op.regions else (op,):
        if inner.name == "func.call":
            return "a call may have effects"
        for trait in ("effect", "collective"):
            if trait in inner.spec.traits:
                return f"the op has the trait {trait}"
    return ""


def op_key(op: Op, numbers: dict[Value, int] | None = None) -> Hashable:
    """A key that is equal for ops which compute the same. Values defined inside a region count by their number in it."""
    operands: list[Hashable] = [v if numbers is None else numbers.get(v, v) for v in op.operands]
    if "commutative" in op.spec.traits:
        operands.sort(key=lambda v: (0, v) if isinstance(v, int) else (1, id(v)))
    attrs = tuple(sorted((name, attr_key(value)) for name, value in op.attrs.items())) if op.attrs else ()
    types = tuple([r.type for r in op.results])
    if not op.regions:
        return (op.name, tuple(operands), attrs, types)
    inner = dict(numbers or {})
    return (op.name, tuple(operands), attrs, types, tuple([_block_key(r, inner) for r in op.regions]))


def _block_key(block: Block, numbers: dict[Value, int]) -> Hashable:
    for arg in block.args:
        numbers[arg] = len(numbers)
    keys: list[Hashable] = [tuple([a.type for a in block.args])]
    for op in block.ops:
        keys.append(op_key(op, numbers))
        for result in op.results:
            numbers[result] = len(numbers)
    return tuple(keys)


def attr_key(value: Any) -> tuple[str, Any]:
    """A key of an attribute that is equal exactly for equal bits: 1, true and 1.0 differ, and so do 0.0 and -0.0."""
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, tuple):
        return "list", tuple([attr_key(v) for v in value])
    return type(value).__name__, value
