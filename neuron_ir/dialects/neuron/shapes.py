"""What shape rules of ops share: sizes that may be symbols or ``?``, and axes."""

from __future__ import annotations

from collections.abc import Sequence

from neuron_ir.core import Op, Value
from neuron_ir.dims import UNKNOWN, DimLike
from neuron_ir.types import TensorType


def differ(a: DimLike, b: DimLike) -> bool:
    """Whether two sizes are certainly different: their difference is a number other than 0, or a sum that cannot vanish."""
    if a is UNKNOWN or b is UNKNOWN or a is b:
        return False
    difference = a - b
    if isinstance(difference, int):
        return difference != 0
    constant = next((c for monomial, c in difference.terms if not monomial), 0)
    plain = all(not atom.function for monomial, _ in difference.terms for atom in monomial)
    return plain and constant != 0 and all((c > 0) == (constant > 0) for _, c in difference.terms)


def above(a: DimLike, b: DimLike) -> bool:
    """Whether the size ``a`` is certainly larger than ``b``."""
    if a is UNKNOWN or b is UNKNOWN:
        return False
    difference = a - b
    return isinstance(difference, int) and difference > 0


def product(shape: Sequence[DimLike]) -> DimLike:
    """The number of elements; ``?`` where a size is unknown."""
    n: DimLike = 1
    for d in shape:
        n = n * d
    return n


def merged(op: Op, values: Sequence[Value]) -> TensorType:
    """The one type that all ``values`` have, with ``?`` sizes filled in from the others; an error where they differ."""
    first: TensorType = values[0].type
    shape, refined = list(first.shape), False
    for v in values[1:]:
        t = v.type
        if t is first:
            continue
        if t.dtype is not first.dtype or len(t.shape) != len(shape):
            raise op.error("operand", f"operands of one type are needed, not {first} and {t}")
        for i, (d, e) in enumerate(zip(shape, t.shape, strict=True)):
            if d is UNKNOWN and e is not UNKNOWN:
                shape[i], refined = e, True
            elif d != e and e is not UNKNOWN:
                raise op.error(
                    "shape", f"operands of one shape are needed, not {first} and {t}: sizes {d} and {e} of dim {i} differ"
                )
    return TensorType(shape, first.dtype, first.layout) if refined else first


def axis_of(op: Op, axis: int, rank: int, what: str = "axis") -> int:
    """``axis`` counted from the front; negative ones count from the end. An error where the rank has no such axis."""
    if not -rank <= axis < rank:
        raise op.error("shape", f"{what} {axis} does not exist in a tensor of rank {rank}")
    return axis % rank


def axes_of(op: Op, axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """``axes`` counted from the front (``None``: all), sorted; an error where one is out of range or comes twice."""
    if axes is None:
        return tuple(range(rank))
    found = sorted(axis_of(op, a, rank) for a in axes)
    if len(set(found)) != len(found):
        raise op.error("shape", f"axes {list(axes)} name one axis twice")
    return tuple(found)


def check_axes(op: Op, axes: Sequence[int], rank: int, what: str, *, increasing: bool = False) -> None:
    """Every axis exists (no negative ones) and none comes twice."""
    for a in axes:
        if not 0 <= a < rank:
            raise op.error("shape", f"{what} {list(axes)}: {a} is no dim of a tensor of rank {rank}")
    if len(set(axes)) != len(axes):
        raise op.error("shape", f"{what} {list(axes)} names a dim twice")
    if increasing and list(axes) != sorted(axes):
        raise op.error("shape", f"{what} {list(axes)} must be in increasing order")


def check_lengths(op: Op, rank: int, **lists: Sequence[object]) -> None:
    """Every attribute list has one item per dim."""
    for name, items in lists.items():
        if len(items) != rank:
            raise op.error("shape", f"{name} has {len(items)} items for a tensor of rank {rank}")


def check_result_shape(op: Op, wanted: Sequence[DimLike], result: int = 0) -> None:
    """The declared result shape is not certainly different from ``wanted``."""
    t = op.results[result].type
    if len(t.shape) != len(wanted) or any(map(differ, t.shape, wanted)):
        raise op.error("shape", f"the result shape is {list(t.shape)}, but {list(wanted)} is computed")


def check_same_dtype(op: Op, a: TensorType, b: TensorType, what: str) -> None:
    """Two element types are equal."""
    if a.dtype is not b.dtype:
        raise op.error("type", f"{what}: {a.dtype} and {b.dtype} differ")
