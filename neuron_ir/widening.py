"""The same program with every float in f64: what a computation means without its rounding."""

from __future__ import annotations

from typing import Any, NamedTuple

from neuron_ir.attrs import Dense
from neuron_ir.builder import Builder
from neuron_ir.core import Block, Func, Op, Value, bulk, clone_block
from neuron_ir.dtypes import F64, DType
from neuron_ir.types import TensorType

__all__ = ["widened"]

# The bits of their operands or results are the point: in float64 they would mean something else.
_KEEP_THEIR_TYPES = {
    "neuron.bitcast_convert", "neuron.reduce_precision", "neuron.random_uniform", "neuron.random_normal", "neuron.dropout",
    "neuron.quantize", "neuron.dequantize", "neuron.next_after", "neuron.custom_call", "neuron.amax", "neuron.scale_for",
    "neuron.scaled_cast", "neuron.quantize_mx", "neuron.dequantize_mx", "neuron.round_stochastic",
}  # fmt: skip


class Widened(NamedTuple):
    """A function with every float as f64. ``positions``: for a result (op, index), the position in the original's body of the op
    that it stands for, and which of its results; ``ops``: the ops that stand for each position.
    """

    func: Func
    positions: dict[tuple[Op, int], tuple[int, int]]
    ops: list[list[Op]]


def widened(func: Func) -> Widened:
    """A copy of ``func`` with every float as f64; what is defined by its bits keeps its type between casts."""
    copy = Func(func.name, [_wide_type(a.type) for a in func.args])
    copy.dims = dict(func.dims)
    mapping: dict[Value, Value] = dict(zip(func.args, copy.args, strict=True))
    positions: dict[tuple[Op, int], tuple[int, int]] = {}
    ops: list[list[Op]] = []
    b = Builder(copy.body)
    with bulk():
        for position, op in enumerate(func.body.ops):
            if "terminator" in op.spec.traits:
                copy.set_results([mapping[v] for v in op.operands])
                break
            before = copy.body.last
            made = _wide_op(b, op, mapping)
            ops.append(_after(copy.body, before))
            for i, value in enumerate(made):
                if value.op is not None:
                    positions[value.op, value.index] = (position, i)
    return Widened(copy, positions, ops)


def _after(block: Block, op: Op | None) -> list[Op]:
    """The ops of a block that follow ``op`` (all, where it is ``None``)."""
    found = []
    at = block.first if op is None else op.next
    while at is not None:
        found.append(at)
        at = at.next
    return found


def _wide_op(b: Any, op: Op, mapping: dict[Value, Value]) -> list[Value]:
    """Append the wide form of one op. Ops whose bits matter, and constants outside the text, keep their types between casts."""
    keeps = op.name in _KEEP_THEIR_TYPES or op.name == "neuron.constant" and not isinstance(op.get("value"), Dense)
    if keeps or op.name == "func.call":
        operands = [_cast(b, mapping[v], v.type) for v in op.operands]
        made = b.insert(type(op)(operands, [r.type for r in op.results], dict(op.attrs), _regions(op, mapping), op.loc))
        values = [_cast(b, r, _wide_type(r.type)) for r in made.results]
    else:
        attrs = {name: _wide_attr(value) for name, value in op.attrs.items()}
        regions = [_wide_block(r, mapping) for r in op.regions]
        made = b.insert(
            type(op)([mapping[v] for v in op.operands], [_wide_type(r.type) for r in op.results], attrs, regions, op.loc)
        )
        values = list(made.results)
    mapping.update(zip(op.results, values, strict=True))
    return values


def _regions(op: Op, mapping: dict[Value, Value]) -> list[Block]:
    return [clone_block(r, dict(mapping)) for r in op.regions]


def _wide_block(block: Block, outer: dict[Value, Value]) -> Block:
    copy = Block([_wide_type(a.type) for a in block.args])
    mapping = dict(outer) | dict(zip(block.args, copy.args, strict=True))
    b = Builder(copy)
    for op in block.ops:
        _wide_op(b, op, mapping)
    return copy


def _cast(b: Any, x: Value, type: Any) -> Value:
    return x if x.type is type else b.cast(x, out=type)


def _wide_dtype(dtype: DType) -> DType:
    return F64 if dtype.is_float else dtype


def _wide_type(type: Any) -> Any:
    return type.with_dtype(_wide_dtype(type.dtype)) if isinstance(type, TensorType) else type


def _wide_attr(value: Any) -> Any:
    """An attribute with wide floats: element types, tensor types, constants."""
    if isinstance(value, DType):
        return _wide_dtype(value)
    if isinstance(value, TensorType):
        return _wide_type(value)
    if isinstance(value, Dense) and value.dtype.is_float and value.dtype is not F64:
        return Dense.of(value.array.astype("float64"), F64)
    return value
