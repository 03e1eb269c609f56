"""Lower precision for matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from neuron_ir.builder import Builder, create
from neuron_ir.core import Block, Func, Module, Op, Value
from neuron_ir.dtypes import DType
from neuron_ir.passmanager import Context, Pass
from neuron_ir.precision_policy import AUTOCAST_F32, WIDE, Decision, PrecisionPolicy
from neuron_ir.precision_scaling import Scaling
from neuron_ir.types import TensorType

__all__ = ["Precision"]

_TOLERANCE_8BIT = 2e-1


@dataclass(frozen=True)
class Precision(PrecisionPolicy, Pass):
    """Multiply matrices and convolve in a narrower float, accumulating in f32, with results back in their own type.

    Inputs of ops with the trait ``matmul`` are brought to ``dtype``; masks, biases and every other op keep their precision.

    * bf16, f16, tf32: f32 and f64 inputs are cast. Values beyond the narrow type's range become infinite (f16: 65504).
    * fp8: inputs are divided by scales, so that the largest value becomes the largest of the format, and the sums are multiplied
      by the scales. Attention, grouped products and what ``bf16-*`` lists work in bf16.
    * mxfp8: blocks of 32 elements along a summed dim share a power of two.

    specs/precision.md has the rules and examples. Tolerance: 2e-2 of the largest value, for sums of products that each have two
    factors rounded to 8 bits or more; 2e-1 for fp8 and mxfp8, whose factors have 4 bits (gradients: 3).
    """

    exact: ClassVar[bool] = False
    rtol: ClassVar[float] = 2e-2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_8bit:
            object.__setattr__(self, "rtol", _TOLERANCE_8BIT)

    def run(self, module: Module, ctx: Context) -> None:
        decisions = self.decide(module)
        for func in list(module.funcs.values()):
            scaling = Scaling(self, module, func, ctx)
            for op in [op for op in func.walk() if op in decisions]:
                self.lower(op, decisions[op], scaling, ctx)
            scaling.finish()
            if self.rules == "autocast":
                for block in _blocks(func):
                    _keep_narrow(block, ctx)

    def lower(self, op: Op, decision: Decision, scaling: Scaling, ctx: Context) -> None:
        """Do with one product what was decided."""
        if decision.how == "keep":
            ctx.decline(decision.reason)
            return
        name, element = op.name, decision.element
        assert element is not None
        if decision.how == "narrow":
            _narrow(op, element, scaling, self.rules == "autocast")
        else:
            scaling.lower(op, decision)
        if self.is_8bit and decision.how == "narrow":
            ctx.decline(f"in {element}: {decision.reason}")
        ctx.count(f"{name} lowered to {self.dtype if self.dtype == 'mxfp8' and decision.how == 'blocks' else element}")


def _narrow(op: Op, narrow: DType, scaling: Scaling, stay: bool) -> None:
    """Replace ``op`` by casts, the op on narrow inputs, and a cast back where it cannot give the wide result itself.

    ``scaling`` rounds at random where the policy wants that; ``stay``: the result is rounded too, and then cast back.
    """
    block = op.block
    assert isinstance(block, Block)
    b = Builder(block, op.loc, op)
    spec, wide = op.spec, op.results[0].type
    has_dtype = "dtype" in spec.attrs

    def lowered(name: str, value: Value | None) -> Value | None:
        # A mask or bias is summed, not multiplied, and keeps its precision where the op takes it beside narrow inputs.
        if value is None or value.dtype.name not in WIDE or name == "mask" or (name == "bias" and has_dtype):
            return value
        if scaling.rounds_at_random(b, value):
            return scaling.rounded(b, value, narrow)
        return b.cast(value, out=value.type.with_dtype(narrow))  # type: ignore[no-any-return]

    operands = [lowered(declared.name, value) for declared, value in zip(spec.operands, op.operand_groups, strict=True)]
    fields = op.own_attrs
    result = wide.with_dtype(narrow) if stay else wide
    if has_dtype:
        fields["dtype"] = result.dtype
    types = [result, *(r.type for r in op.results[1:])]
    new = b.insert(create(op.name, operands, types, fields, op.loc))
    scaling.replace(op, [n if n.type is r.type else b.cast(n, out=r.type) for n, r in zip(new.results, op.results, strict=True)])


# --- autocast ---------------------------------------------------------------------------------------------------------


def _blocks(func: Func) -> list[Block]:
    return [func.body, *(region for op in func.walk() for region in op.regions)]


def _keep_narrow(block: Block, ctx: Context) -> None:
    """Move casts back to f32 behind the ops that torch's autocast leaves in the type of their inputs, as far as f32 ops."""
    for op in list(block.ops):
        if not _follows_inputs(op):
            continue
        narrow = {_narrow_source(v).dtype for v in op.operands if _narrow_source(v) is not None}  # type: ignore[union-attr]
        if len(narrow) != 1:
            continue
        (element,) = narrow
        b = Builder(block, op.loc, op)
        operands = [_as(b, v, element) for v in op.operands]
        if any(v is None for v in operands):
            ctx.decline("an input is f32, so the op is (autocast)")
            continue
        out = None if op.spec.infer is not None else [r.type.with_dtype(element) for r in op.results]
        new = b.insert(create(op.name, operands, out, op.own_attrs, op.loc))
        op.replace_with([n if n.type is r.type else b.cast(n, out=r.type) for n, r in zip(new.results, op.results, strict=True)])
        ctx.count(f"{new.name} left in {element}")
    for op in reversed(list(block.ops)):
        if op.name == "neuron.cast" and not op.result.users:
            op.erase()


def _follows_inputs(op: Op) -> bool:
    """Whether autocast runs an op in its inputs' type: elementwise ops and views in no list, of one float type."""
    if op.regions or op.name in AUTOCAST_F32 or op.name == "neuron.cast" or op.attrs.get("absent"):
        return False
    if not op.spec.traits & {"elementwise", "view"} or len(op.results) != 1:
        return False
    tensors = [*op.operands, *op.results]
    return all(isinstance(v.type, TensorType) for v in tensors) and op.results[0].dtype.name == "f32"


def _narrow_source(value: Value) -> Value | None:
    """The narrow value that was cast to ``value``."""
    cast = value.op
    if cast is None or cast.name != "neuron.cast" or value.dtype.name != "f32":
        return None
    source = cast.operands[0]
    return source if source.dtype.is_float and source.dtype.bits == 16 else None


def _as(b: Builder, value: Value, element: DType) -> Value | None:
    """An operand for an op in ``element``: what was cast from it, a repeated number (as torch's Python numbers), or no float."""
    source = _narrow_source(value)
    if source is not None:
        return source
    if value.dtype.name != "f32":
        return value
    return b.cast(value, out=value.type.with_dtype(element)) if _is_number(value) else None


def _is_number(value: Value) -> bool:
    while value.op is not None and value.op.name == "neuron.broadcast_in_dim":
        value = value.op.operands[0]
    return value.dense is not None and value.dense.is_splat
