"""Constant folding."""

from __future__ import annotations

import math
from dataclasses import dataclass

from neuron_ir.attrs import Dense
from neuron_ir.builder import Builder
from neuron_ir.core import Func, Op
from neuron_ir.diagnostics import IRError
from neuron_ir.meaning import evaluate
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
        for op in func.walk():
            if op.operands and all(_constant(v.op) is not None for v in op.operands):
                reason = self.fold(op)
                if reason:
                    ctx.decline(reason)
                else:
                    ctx.count("ops folded")

    def fold(self, op: Op) -> str:
        """Fold one op; gives the reason where it stays."""
        for trait in _STAY:
            if trait in op.spec.traits:
                return f"the op has the trait {trait}"
        types = [v.type for v in (*op.operands, *op.results)]
        if not all(isinstance(t, TensorType) and t.is_static for t in types):
            return "a shape is not static"
        if max(math.prod(t.shape) for t in types) > self.max_elements:
            return f"more than {self.max_elements} elements"
        constants = [_constant(v.op) for v in op.operands]
        try:
            arrays = evaluate(op, [c.array for c in constants if c is not None])
        except IRError as error:
            return f"the op fails: {error.diagnostics[0].message}"
        b = Builder(_block(op), op.loc, op)
        values = []
        for array, result in zip(arrays, op.results, strict=True):
            if array.dtype != result.dtype.numpy or array.shape != result.shape:
                return f"the value is {array.dtype}{list(array.shape)}, not {result.type}"
            values.append(b.constant(value=Dense(result.dtype, array.shape, array.tobytes()), out=result.type))
        op.replace_with(values)
        return ""


def _constant(op: Op | None) -> Dense | None:
    value = op.get("value") if op is not None and op.name == "neuron.constant" else None
    return value if isinstance(value, Dense) else None


def _block(op: Op):  # type: ignore[no-untyped-def]
    assert op.block is not None
    return op.block
