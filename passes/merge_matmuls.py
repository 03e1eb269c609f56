"""Several products of one value as one product of joined weights."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

from neuron_ir.builder import Builder
from neuron_ir.core import Block, Func, Op, Value
from neuron_ir.passes.cse import attr_key
from neuron_ir.passmanager import Context, FuncPass, option

__all__ = ["MergeMatmuls"]


@dataclass(frozen=True)
class MergeMatmuls(FuncPass):
    """Join products that read the same value (queries, keys and values; gate and up) into one product and slices of its result.

    Only products whose weights, and biases, are all arguments of the function or constants are joined: the weights are
    concatenated along their output dim once, which a runtime can do ahead. One wide product fills the Tensor engine better than
    several narrow ones and reads the common operand once. All must have the same attributes, and all a bias or none. A product
    may sum in another order, hence a tolerance of 1e-5 of the largest value (f32).
    """

    exact: ClassVar[bool] = False
    rtol: ClassVar[float] = 1e-5

    max_columns: int = option(16384, "the most output columns of a joined product")

    def run_func(self, func: Func, ctx: Context) -> None:
        for block in _blocks(func.body):
            groups: dict[Hashable, list[Op]] = {}
            for op in block.ops:
                key = _key(op, func)
                if key is not None:
                    groups.setdefault(key, []).append(op)
            for group in groups.values():
                self.join(group, ctx)

    def join(self, group: list[Op], ctx: Context) -> None:
        """Join as many neighbours of a group as fit ``max_columns``."""
        part: list[Op] = []
        ends: list[Op | None] = [*group, None]
        for op in ends:
            columns = sum(int(o.result.type.shape[-1]) for o in (*part, op) if o is not None)
            if op is None or columns > self.max_columns:
                if len(part) > 1:
                    _merge(part)
                    ctx.count("products joined", len(part))
                    ctx.count("joined products")
                elif op is not None and part:
                    ctx.decline(f"a joined product would have more than {self.max_columns} columns")
                part = []
            if op is not None:
                part.append(op)


def _blocks(block: Block) -> list[Block]:
    """A block and those of control flow inside of it."""
    found = [block]
    for op in block.ops:
        if "control" in op.spec.traits:
            for region in op.regions:
                found += _blocks(region)
    return found


def _key(op: Op, func: Func) -> Hashable | None:
    """What products must have in common to be joined; ``None`` for an op that is no candidate."""
    if op.name == "neuron.linear":
        x, *parameters = op.operands
    elif op.name in ("neuron.matmul", "neuron.dot_general") and op.operands[1].type.rank == 2:
        x, *parameters = op.operands
        if op.name == "neuron.matmul" and (op.get("transpose_a") or x.type.rank < 2):
            return None
        if op.name == "neuron.dot_general" and (op.get("lhs_batch") or tuple(op.get("lhs_contract")) != (x.type.rank - 1,)):
            return None
    else:
        return None
    if not all(v.type.is_static and _is_parameter(v, func) for v in parameters) or not op.result.type.is_static:
        return None
    attrs = tuple(sorted((name, attr_key(value)) for name, value in op.attrs.items()))
    types = tuple(v.dtype for v in parameters)
    return op.name, x, attrs, types, op.result.dtype


def _is_parameter(value: Value, func: Func) -> bool:
    """Whether a value is known before the program runs: an argument of the function, a constant, or a view of one."""
    while value.op is not None and value.op.name in ("neuron.transpose", "neuron.reshape"):
        value = value.op.operands[0]
    return value.owner is func.body or (value.op is not None and value.op.name == "neuron.constant")


def _output_dim(op: Any) -> int:
    """The dim of the weight that counts output columns."""
    if op.name == "neuron.linear":
        return 0
    if op.name == "neuron.matmul":
        return 0 if op.get("transpose_b") else 1
    return 1 - int(op.get("rhs_contract")[0])


def _merge(part: list[Op]) -> None:
    """Put one product and slices in the place of ``part``, at the first of them. Parameters must stand before it."""
    first = part[0]
    block = first.block
    assert block is not None
    for op in part[1:]:
        for v in op.operands[1:]:
            _lift(v, first)
    b = Builder(block, first.loc, first)
    joined = [b.concatenate(*[op.operands[1] for op in part], dimension=_output_dim(first))]
    if len(first.operands) > 2:
        joined.append(b.concatenate(*[op.operands[2] for op in part], dimension=0))
    y = b.make(first.name, first.operands[0], *joined, **first.own_attrs)
    rank, at, slices = y.type.rank, 0, []
    for op in part:
        width = int(op.result.type.shape[-1])
        starts, limits = [0] * rank, list(y.shape)
        starts[-1], limits[-1] = at, at + width
        at += width
        with b.at(op.loc):
            slices.append(b.slice(y, start_indices=starts, limit_indices=limits))
    for op, piece in zip(part, slices, strict=True):
        op.replace_with([piece])


def _lift(value: Value, before: Op) -> None:
    """Move the constants and views that make a parameter before ``before``."""
    op = value.op
    if op is None or op.block is not before.block:
        return
    for v in op.operands:
        _lift(v, before)
    op.unlink()
    assert before.block is not None
    before.block.insert_before(op, before)
