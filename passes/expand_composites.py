"""Expansion of composite ops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from neuron_ir.builder import create
from neuron_ir.core import Func, Op, Value
from neuron_ir.diagnostics import fail, nearest
from neuron_ir.meaning import expansion
from neuron_ir.passmanager import Context, FuncPass, option
from neuron_ir.registry import all_ops
from neuron_ir.types import TensorType

__all__ = ["ExpandComposites", "expand"]


@dataclass(frozen=True)
class ExpandComposites(FuncPass):
    """Replace composite ops (softmax, layer_norm, attention, ...) by the simpler ops that they are made of.

    The simpler ops round between steps where the whole op may not, hence a tolerance of 1e-5 of the largest value (f32).
    """

    exact: ClassVar[bool] = False
    rtol: ClassVar[float] = 1e-5

    only: tuple[str, ...] = option((), "expand these ops alone, with or without 'neuron.'")
    keep: tuple[str, ...] = option((), "do not expand these ops")
    one_level: bool = option(False, "leave composites that appear in an expansion as they are")

    def __post_init__(self) -> None:
        known = {spec.name for spec in all_ops() if spec.expand is not None}
        for name in (*self.only, *self.keep):
            if full_name(name) not in known:
                raise fail("pass", f"pass {self.name}: {name} is no composite op{nearest(full_name(name), known)}")

    def run_func(self, func: Func, ctx: Context) -> None:
        only, keep = set(map(full_name, self.only)), set(map(full_name, self.keep))
        work = [op for op in func.walk() if op.spec.expand is not None]
        work.reverse()
        while work:
            op = work.pop()
            if op.name in keep or only and op.name not in only:
                ctx.decline(f"{op.name} is to stay")
            elif not all(v.type.is_static for v in (*op.operands, *op.results) if isinstance(v.type, TensorType)):
                ctx.decline(f"{op.name} has a shape that is not static")
            else:
                made = expand(op)
                ctx.count(f"{op.name} expanded")
                if not self.one_level:
                    work += [inner for new in reversed(made) for inner in new.walk() if inner.spec.expand is not None]


def full_name(name: str) -> str:
    """``softmax`` as ``neuron.softmax``."""
    return name if "." in name else f"neuron.{name}"


def expand(op: Op) -> list[Op]:
    """Put the expansion of ``op`` in its place; gives the new ops."""
    body = expansion(op)
    values: dict[Value, Value] = dict(zip(body.args, op.operands, strict=True))
    for arg, value in values.items():
        arg.replace_all_uses_with(value)
    terminator = body.terminator
    results = [_held_as(v, r.type, terminator, op) for v, r in zip(terminator.operands, op.results, strict=True)]
    terminator.erase()
    made = list(body.ops)
    assert op.block is not None
    for new in made:
        new.unlink()
        op.block.insert_before(new, op)
    op.replace_with(results)
    return made


def _held_as(value: Value, type: Any, terminator: Op, op: Op) -> Value:
    """``value`` in the layout of the result of ``op`` that it stands for: that of its own op where nothing else uses it."""
    if value.type is type:
        return value
    if not isinstance(type, TensorType) or value.type.with_layout(type.layout) is not type:
        raise op.error("pass", f"the expansion gives {value.type}, not {type}")
    if value.op is not None and value.op.block is terminator.block and value.users == {terminator: 1}:
        value.type = type
        return value
    moved = create("neuron.relayout", [value], type, {}, op.loc)
    assert terminator.block is not None
    terminator.block.insert_before(moved, terminator)
    return moved.result
