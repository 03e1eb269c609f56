"""Memory layout: channels last for convolutions, and the axis that lies on the partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from neuron_ir.attrs import Dense
from neuron_ir.builder import Builder, create
from neuron_ir.core import Block, Func, Op, Value
from neuron_ir.passes.canonicalize import transpose_in_order, transpose_of_transpose
from neuron_ir.passes.expand_composites import expand
from neuron_ir.passes.sink import for_elementwise
from neuron_ir.passmanager import Context, FuncPass, option
from neuron_ir.rewrite import Replacement, Rewriter, apply_patterns
from neuron_ir.types import Layout, TensorType

__all__ = ["LayOut"]


@dataclass(frozen=True)
class LayOut(FuncPass):
    """Run convolutions with channels last, and choose for each value the axis that lies on the 128 partitions.

    Transposes are put around each convolution, moved down through elementwise ops, and cancelled where two meet. The partition
    axis of a convolution's result is its channels, that of any other value its last axis but one; elementwise ops and transposes
    follow their operand. Arguments and results of the function keep their types. A convolution may sum in another order, hence a
    tolerance of 1e-5 of the largest value (f32).
    """

    exact: ClassVar[bool] = False
    rtol: ClassVar[float] = 1e-5

    channels_last: bool = option(True, "run convolutions with channels last")
    partition: bool = option(True, "choose partition axes")

    def run_func(self, func: Func, ctx: Context) -> None:
        if self.channels_last:
            for op in [op for op in func.walk() if op.name == "neuron.conv"]:
                if all(v.type.is_static for v in (*op.operands, *op.results)):
                    expand(op)
                else:
                    ctx.decline("a convolution has a shape that is not static")
            for op in [op for op in func.walk() if op.name == "neuron.convolution"]:
                _channels_last(op, ctx)
            apply_patterns(func, [*for_elementwise(sink_transpose), transpose_of_transpose, transpose_in_order], ctx)
        if self.partition:
            _choose_partitions(func.body, ctx)


# --- channels last ----------------------------------------------------------------------------------------------------


def _spelling(given: str, two: str, rank: int) -> str:
    """The order of dims, ``bf01`` or ``oi01`` where it is not given."""
    return given or two + "".join(map(str, range(rank - 2)))


def _channels_last(op: Any, ctx: Context) -> None:
    """Surround a convolution by transposes that bring it to ``b01f``, ``01io``, ``b01f``."""
    rank = op.lhs.type.rank
    digits = "".join(map(str, range(rank - 2)))
    wanted = {"input_dims": f"b{digits}f", "kernel_dims": f"{digits}io", "output_dims": f"b{digits}f"}
    have = {name: _spelling(op.get(name), "oi" if name == "kernel_dims" else "bf", rank) for name in wanted}
    if have == wanted:
        ctx.decline("the convolution has channels last already")
        return
    block = op.block
    assert isinstance(block, Block)
    b = Builder(block, op.loc, op)
    lhs = b.transpose(op.lhs, permutation=[have["input_dims"].index(c) for c in wanted["input_dims"]])
    rhs = b.transpose(op.rhs, permutation=[have["kernel_dims"].index(c) for c in wanted["kernel_dims"]])
    order = [have["output_dims"].index(c) for c in wanted["output_dims"]]
    out = TensorType([op.result.shape[i] for i in order], op.result.dtype)
    new = b.insert(create(op.name, [lhs, rhs], out, {**op.attrs, **wanted}, op.loc))
    op.replace_with([b.transpose(new.result, permutation=[wanted["output_dims"].index(c) for c in have["output_dims"]])])
    ctx.count("convolutions brought to channels last")


def _to_channels_first(permutation: tuple[int, ...]) -> bool:
    """Whether a transpose leads from channels last to channels first: (0, 3, 1, 2)."""
    rank = len(permutation)
    return rank > 2 and permutation == (0, rank - 1, *range(1, rank - 1))


def sink_transpose(op: Any, rw: Rewriter) -> Replacement:
    """An elementwise op of transposed values as the transpose of that op on the values themselves."""
    if op.regions or len(op.results) != 1 or any(v.type.rank != op.result.type.rank for v in op.operands):
        return None
    found = [rw.producer(v, "neuron.transpose", ["permutation"]) for v in op.operands]
    order = next((t.permutation for t in found if t is not None and _to_channels_first(t.permutation)), None)
    if order is None:
        return None
    operands: list[Value] = []
    for v, t in zip(op.operands, found, strict=True):
        moved = t.x if t is not None and t.permutation == order else _moved(v, order, rw)
        if moved is None:
            return rw.decline("an operand is not in channels-last order")
        operands.append(moved)
    shape = [op.result.shape[order.index(i)] for i in range(len(order))]
    new = rw.b.insert(create(op.name, operands, TensorType(shape, op.result.dtype), op.own_attrs, op.loc))
    return rw.b.transpose(new.result, permutation=order)


def _moved(value: Value, order: tuple[int, ...], rw: Rewriter) -> Value | None:
    """A value whose transpose by ``order`` is ``value``, where it costs nothing: a constant of one number, or a broadcast."""
    shape = [value.shape[order.index(i)] for i in range(len(order))]
    type = TensorType(shape, value.dtype)
    dense = value.dense
    if dense is not None and dense.is_splat:
        return rw.b.constant(value=Dense(dense.dtype, type.shape, dense.data), out=type)  # type: ignore[no-any-return,arg-type]
    source = rw.producer(value, "neuron.broadcast_in_dim", ["broadcast_dimensions"])
    if source is None:
        return None
    dims = [order[d] for d in source.broadcast_dimensions]
    return rw.b.broadcast_in_dim(source.x, broadcast_dimensions=dims, out=type)  # type: ignore[no-any-return]


# --- partition axis ---------------------------------------------------------------------------------------------------


def _choose_partitions(block: Block, ctx: Context) -> None:
    """Give each value of a block its partition axis; arguments of regions take over what goes into them."""
    for op in block.ops:
        for declared, region in zip(op.spec.regions, op.regions, strict=False):
            for arg, type in zip(region.args, declared.args(op) if declared.args else (), strict=False):
                arg.type = type
            _choose_partitions(region, ctx)
        for i, result in enumerate(op.results):
            type = result.type
            if not isinstance(type, TensorType) or not type.rank or type.layout.partition >= 0:
                continue
            inside = op.regions[0].terminator.operands[i].type if op.name == "neuron.fused" else None
            axis = _partition(op, type) if inside is None else inside.layout.partition
            result.type = type.with_layout(Layout(type.layout.order, axis, type.layout.tile))
            ctx.count("partition axes chosen")


def _partition(op: Op, type: TensorType) -> int:
    if op.name == "neuron.convolution":
        return _spelling(op.get("output_dims"), "bf", type.rank).index("f")
    if op.name == "neuron.transpose" and op.operands[0].type.layout.partition >= 0:
        return int(op.get("permutation").index(op.operands[0].type.layout.partition))
    if "elementwise" in op.spec.traits:
        for v in op.operands:
            if v.type.shape == type.shape and v.type.layout.partition >= 0:
                axis: int = v.type.layout.partition
                return axis
    return max(type.rank - 2, 0)
