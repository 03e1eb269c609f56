"""Values held in the order that their layouts give: an array of the type's shape, its dims permuted.

Each op sees its operands in their logical form and gives its results in that form; the transposes between are part of the traced
program, where XLA cancels those that meet and makes the others part of the loop that reads. Loops and choices carry arrays as they
are held, so that nothing is turned around from trip to trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from neuron_ir.core import Block, Module, Op
from neuron_ir.meaning import Frame, RegionFunction
from neuron_ir.orders import hands_on_in_order
from neuron_ir.types import TensorType

__all__ = ["has_orders", "held", "held_shape", "in_order", "logical"]


def has_orders(module: Module) -> bool:
    """Whether a value of the module is held in another order than its dims'."""
    values = (v for op in module.walk() for v in (*op.results, *(arg for r in op.regions for arg in r.args)))
    args = (v for func in module.funcs.values() for v in func.args)
    return any(isinstance(v.type, TensorType) and v.type.layout.order for group in (values, args) for v in group)


def held_shape(type: TensorType) -> tuple[Any, ...]:
    """The shape of the array that holds a value of this type."""
    return tuple(type.shape[d] for d in type.layout.order) or type.shape


def held(x: Any, type: Any) -> Any:
    """A logical array in the order of its type; NumPy and JAX arrays alike."""
    order = type.layout.order if isinstance(type, TensorType) else ()
    return x.transpose(order) if order else x


def logical(x: Any, type: Any) -> Any:
    """An array that is held in the order of its type, with its dims in their own order."""
    order = type.layout.order if isinstance(type, TensorType) else ()
    return x.transpose([order.index(d) for d in range(len(order))]) if order else x


@cache
def in_order(base: type[Frame]) -> type[Frame]:
    """The frame ``base`` on arrays as they are held."""

    class HeldFrame(base):  # type: ignore[misc,valid-type]
        """Values as they are held; blocks take and give logical arrays unless told otherwise."""

        def block(self, block: Block, inputs: Sequence[Any], as_held: bool = False) -> tuple[Any, ...]:
            if as_held:
                return super().block(block, inputs)  # type: ignore[no-any-return]
            results = super().block(block, [held(x, v.type) for x, v in zip(inputs, block.args, strict=True)])
            return tuple(logical(x, v.type) for x, v in zip(results, block.terminator.operands, strict=True))

        def op(self, op: Op, operands: list[Any]) -> tuple[Any, ...]:
            if op.regions and hands_on_in_order(op):
                return super().op(op, operands)  # type: ignore[no-any-return]
            results = super().op(op, [logical(x, v.type) for x, v in zip(operands, op.operands, strict=True)])
            return tuple(held(x, v.type) for x, v in zip(results, op.results, strict=True))

        def function(self, block: Block) -> RegionFunction:
            inside = block.parent
            return (_HeldRegion if isinstance(inside, Op) and hands_on_in_order(inside) else RegionFunction)(self, block)

    return HeldFrame


class _HeldRegion(RegionFunction):
    """A region that takes and gives arrays as they are held."""

    __slots__ = ()

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        frame: Any = self.frame
        return type(frame)(frame.j, frame.observe, dict(frame.values)).block(self.block, inputs, as_held=True)  # type: ignore[no-any-return]
