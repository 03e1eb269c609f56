"""Fusion of elementwise chains and matmul epilogues."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from neuron_ir.attrs import Dense
from neuron_ir.builder import create
from neuron_ir.core import Block, Func, Op, Value, clone_op
from neuron_ir.diagnostics import fail
from neuron_ir.locations import fuse_locations
from neuron_ir.passmanager import Context, FuncPass, option
from neuron_ir.types import TensorType

__all__ = ["Fuse"]


@dataclass(frozen=True)
class Fuse(FuncPass):
    """Gather chains of elementwise ops, and the ones behind a matrix product, into ``neuron.fused`` regions.

    A group has one result; whatever else it computes is used inside alone, so no cycle can arise. Broadcasts join the group that
    uses them, and constants of one repeated number are copied into it. Groups form from the last op backwards, in the order of
    the program: the same module always gives the same groups.
    """

    max_ops: int = option(32, "the most ops in one group, constants not counted")

    def __post_init__(self) -> None:
        if self.max_ops < 1:
            raise fail("pass", f"pass {self.name}: max-ops = {self.max_ops}, but a group has at least 1 op")

    def run_func(self, func: Func, ctx: Context) -> None:
        blocks = [func.body]
        blocks += [region for op in func.walk() if "control" in op.spec.traits for region in op.regions]
        for block in blocks:
            if not _isolated(block):
                _Grouping(block, self.max_ops, ctx).run()


def _isolated(block: Block) -> bool:
    """Whether the block lies in a region of an op that is no control flow, and so is part of that op's meaning."""
    parent = block.parent
    while isinstance(parent, Op):
        if "control" not in parent.spec.traits:
            return True
        parent = parent.block.parent if parent.block is not None else None
    return False


def _may_join(op: Op) -> bool:
    """Whether an op may be part of a group."""
    if op.regions or len(op.results) != 1 or not isinstance(op.result.type, TensorType):
        return False
    return "elementwise" in op.spec.traits or op.name == "neuron.broadcast_in_dim" or "matmul" in op.spec.traits


def _splat(value: Value) -> Op | None:
    """The constant of one repeated number that defines ``value``."""
    op = value.op
    if op is None or op.name != "neuron.constant":
        return None
    dense = op.get("value")
    return op if isinstance(dense, Dense) and dense.is_splat else None


class _Grouping:
    """Finds and makes the groups of one block."""

    def __init__(self, block: Block, max_ops: int, ctx: Context):
        self.block, self.max_ops, self.ctx = block, max_ops, ctx
        self.at = {op: i for i, op in enumerate(block.ops)}
        self.taken: set[Op] = set()

    def run(self) -> None:
        groups = []
        for root in reversed(list(self.at)):
            if root not in self.taken and "elementwise" in root.spec.traits and _may_join(root):
                group = self.grow(root)
                if len(group) > 1:
                    self.taken |= group
                    groups.append((root, sorted(group, key=self.at.__getitem__)))
        for root, members in reversed(groups):
            make_fused(root, members)
            self.ctx.count("groups made")
            self.ctx.count("ops fused", len(members))

    def grow(self, root: Op) -> set[Op]:
        """The ops that can go into one group with ``root`` as its only result, looked at from the last to the first."""
        group = {root}
        seen = {root}
        heap: list[tuple[int, Op]] = []

        def offer(op: Op) -> None:
            for v in op.operands:
                if v.op is not None and v.op in self.at and v.op not in seen:
                    seen.add(v.op)
                    heapq.heappush(heap, (-self.at[v.op], v.op))

        offer(root)
        has_matmul = False
        while heap:
            op = heapq.heappop(heap)[1]
            if op in self.taken or not _may_join(op):
                continue
            if not all(user in group for user in op.result.users):
                self.ctx.decline("a value is also used outside of the group")
            elif any("matmul" in user.spec.traits for user in op.result.users):
                self.ctx.decline("a value goes into the group's matrix product")
            elif len(group) >= self.max_ops:
                self.ctx.decline(f"the group has {self.max_ops} ops already")
            elif "matmul" in op.spec.traits and has_matmul:
                self.ctx.decline("the group has a matrix product already")
            else:
                has_matmul |= "matmul" in op.spec.traits
                group.add(op)
                if "matmul" not in op.spec.traits:  # what a product takes in is another group's work
                    offer(op)
        return group


def make_fused(root: Op, group: list[Op]) -> Op:
    """Move ``group``, whose last op is ``root``, into a ``neuron.fused`` in the place of ``root``."""
    inside = set(group)
    inputs: dict[Value, None] = {}
    constants: dict[Value, Op] = {}
    for op in group:
        for v in op.operands:
            splat = _splat(v)
            if splat is not None:
                constants[v] = splat
            elif v.op not in inside:
                inputs[v] = None
    body = Block([v.type for v in inputs], [v.name for v in inputs])
    mapping: dict[Value, Value] = dict(zip(inputs, body.args, strict=True))
    for op in [*constants.values(), *group]:
        body.append(clone_op(op, mapping))
    body.append(create("neuron.yield", [mapping[root.result]], None, {}, root.loc))
    kind = "matmul_epilogue" if any("matmul" in op.spec.traits for op in group) else "elementwise"
    loc = fuse_locations([op.loc for op in group])
    fused = create("neuron.fused", list(inputs), None, {"kind": kind, "body": body}, loc)
    assert root.block is not None
    root.block.insert_before(fused, root)
    root.replace_with(fused.results)
    for op in reversed(group[:-1]):
        op.erase()
    for constant in constants.values():
        if not constant.result.users:
            constant.erase()
    return fused
