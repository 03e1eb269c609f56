"""Broadcasting, and what composite ops ask of their operands; sizes may be symbols or ``?``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_ir.dims import UNKNOWN, DimLike
from neuron_ir.dtypes import BF16, F16, F32, F64, DType

from .shapes import differ

COMPUTED = frozenset((F16, BF16, F32, F64))  # the floats that composites compute in; narrower ones are storage and are cast first


def agree(a: DimLike, b: DimLike) -> bool:
    """Whether two dims may be the same size."""
    return not differ(a, b)


def known(a: DimLike, b: DimLike) -> DimLike:
    """Of two agreeing dims the one that says more."""
    if isinstance(a, int):
        return a
    return b if isinstance(b, int) or a is UNKNOWN else a


def broadcast_dims(a: Sequence[DimLike], b: Sequence[DimLike]) -> tuple[DimLike, ...] | None:
    """The shape that ``a`` and ``b`` broadcast to by NumPy's rule; ``None`` where they do not."""
    rank = max(len(a), len(b))
    result = []
    for x, y in zip((1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b), strict=True):
        if x != 1 and y != 1 and not agree(x, y):
            return None
        result.append(y if x == 1 else x if y == 1 else known(x, y))
    return tuple(result)


def broadcast_shape(op: Any, what: str, *shapes: Sequence[DimLike]) -> tuple[DimLike, ...]:
    """:func:`broadcast_dims` of all ``shapes``, or the op's shape error."""
    shape: tuple[DimLike, ...] = ()
    for s in shapes:
        both = broadcast_dims(shape, s)
        if both is None:
            raise op.error("shape", f"{what} of shapes {listed(shapes)} do not broadcast")
        shape = both
    return shape


def listed(shapes: Sequence[Sequence[DimLike]]) -> str:
    """``[2], [3] and [4]``."""
    *first, last = [str(list(s)) for s in shapes]
    return f"{', '.join(first)} and {last}" if first else last


def axis_in(op: Any, axis: int, rank: int) -> int:
    """``axis`` counted from the front; a scalar counts as one dim, as in torch."""
    if not -max(rank, 1) <= axis < max(rank, 1):
        raise op.error("shape", f"axis {axis} is outside a tensor of rank {rank}")
    return axis % max(rank, 1)


def need_rank(op: Any, name: str, value: Any, *ranks: int) -> None:
    """The operand has one of the given ranks."""
    if len(value.shape) not in ranks:
        raise op.error("shape", f"{name} must have rank {' or '.join(map(str, ranks))}, but is {value.type}")


def need_shape(op: Any, name: str, value: Any, shape: Sequence[DimLike]) -> None:
    """The operand, where present, has that shape."""
    if value is None:
        return
    if len(value.shape) != len(shape) or not all(map(agree, value.shape, shape)):
        raise op.error("shape", f"{name} must have shape {list(shape)}, not {list(value.shape)}")


def need_dtype(op: Any, dtype: DType, **values: Any) -> None:
    """The operands, where present, have that element type."""
    for name, value in values.items():
        if value is not None and value.dtype is not dtype:
            raise op.error("type", f"{name} must be {dtype} like the first operand, not {value.dtype}")
