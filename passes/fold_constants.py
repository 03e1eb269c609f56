"""Constant folding."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from neuron_ir.attrs import Dense
from neuron_ir.builder import Builder
from neuron_ir.core import Func, Op
from neuron_ir.diagnostics import IRError
from neuron_ir.meaning import evaluate
from neuron_ir.passes.cse import op_key
from neuron_ir.passmanager import Context, FuncPass, option
from neuron_ir.types import TensorType

__all__ = ["FoldConstants"]

_STAY = ("effect", "random", "collective", "terminator", "control")


@dataclass(frozen=True)
class FoldConstants(FuncPass):
    """Replace an op whose operands are all constants in the text by its value, computed as the program would compute it.

    An op whose operands or results have more than ``max-elements`` elements stays, and so does one that fails.
    """

    max_elements: int = option(65536, "the most elements that an operand or result may have")

    def run_func(self, func: Func, ctx: Context) -> None:
        known: dict[Hashable, list[Dense]] = {}
        for op in func.walk():
            if op.operands and all(v.dense is not None for v in op.operands):
                reason = self.fold(op, known)
                if reason:
                    ctx.decline(reason)
                else:
                    ctx.count("ops folded")

    def fold(self, op: Op, known: dict[Hashable, list[Dense]]) -> str:
        """Fold one op; gives the reason where it stays. ``known`` holds what equal ops gave before."""
        for trait in _STAY:
            if trait in op.spec.traits:
                return f"the op has the trait {trait}"
        types = [v.type for v in (*op.operands, *op.results)]
        if not all(isinstance(t, TensorType) and t.is_static for t in types):
            return "a shape is not static"
        if max(math.prod(t.shape) for t in types) > self.max_elements:
            return f"more than {self.max_elements} elements"
        constants = [v.dense for v in op.operands if v.dense is not None]
        key = (op_key(op, dict.fromkeys(op.operands, 0)), tuple(constants)) if not op.regions else op
        values = known.get(key)
        if values is None:
            try:
                values = known[key] = _values(op, constants)
            except IRError as error:
                return f"the op fails: {error.diagnostics[0].message}"
        assert op.block is not None
        b = Builder(op.block, op.loc, op)
        op.replace_with([b.constant(value=v, out=r.type) for v, r in zip(values, op.results, strict=True)])
        return ""


def _values(op: Op, constants: Sequence[Dense]) -> list[Dense]:
    """The op's results, computed as a program computes them."""
    values = []
    for array, result in zip(evaluate(op, [c.array for c in constants]), op.results, strict=True):
        if array.dtype != result.dtype.numpy or array.shape != result.shape:
            raise op.error("pass", f"the value is {array.dtype}{list(array.shape)}, not {result.type}")
        values.append(Dense(result.dtype, array.shape, array.tobytes()))
    return values
