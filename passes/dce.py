"""Dead code elimination."""

from __future__ import annotations

from dataclasses import dataclass

from neuron_ir.core import Block, Func, Op
from neuron_ir.passmanager import Context, FuncPass

__all__ = ["Dce"]


@dataclass(frozen=True)
class Dce(FuncPass):
    """Remove ops whose results nobody uses.

    An op with the trait ``effect`` stays, and so does one that holds such an op in a region or calls a function that does.
    """

    def run_func(self, func: Func, ctx: Context) -> None:
        ctx.count("ops removed", _sweep(func.body, _Effects()))


class _Effects:
    """Which ops must stay even if unused."""

    def __init__(self) -> None:
        self.known: dict[Func, bool] = {}

    def of_op(self, op: Op) -> bool:
        if "effect" in op.spec.traits:
            return True
        if op.name == "func.call":
            func = op.block.func if op.block is not None else None
            callee = func.module.funcs.get(op.get("callee")) if func is not None and func.module is not None else None
            return callee is None or self.of_func(callee)
        return any(self.of_op(inner) for region in op.regions for inner in region.ops)

    def of_func(self, func: Func) -> bool:
        if func not in self.known:
            self.known[func] = True  # until known: a function that calls itself may never end
            self.known[func] = any(self.of_op(op) for op in func.body.ops)
        return self.known[func]


def _sweep(block: Block, effects: _Effects) -> int:
    """Remove dead ops, last first, so that one sweep frees whole chains; gives their number."""
    removed = 0
    op = block.last
    while op is not None:
        previous = op.prev
        if _is_dead(op, effects):
            op.erase()
            removed += 1
        else:
            for region in op.regions:
                removed += _sweep(region, effects)
        op = previous
    return removed


def _is_dead(op: Op, effects: _Effects) -> bool:
    if "terminator" in op.spec.traits or any(r.users for r in op.results):
        return False
    return not effects.of_op(op)
