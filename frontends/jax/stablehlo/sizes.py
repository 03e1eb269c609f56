"""Arithmetic on sizes: what a program with symbolic shapes computes from its dims becomes dims again, and no ops.

JAX writes the sizes of a symbolic program as 32-bit integers that flow from ``get_dimension_size`` through adds, multiplies, calls
and comparisons into ``dynamic_reshape`` and its kin. :func:`evaluate` follows them as :class:`Sizes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuron_ir.core import Value
from neuron_ir.dims import UNKNOWN, DimLike, Range, function
from neuron_ir.frontends.jax._compat import stablehlo
from neuron_ir.types import TensorType

__all__ = ["Bounds", "Sizes", "evaluate", "known", "write_out"]

_MOST_ELEMENTS = 64  # longer constants are data, not shapes

Item = DimLike | bool


@dataclass(frozen=True)
class Sizes:
    """A small integer (or boolean) tensor whose elements, in row-major order, are known as sizes."""

    values: tuple[Item, ...]
    type: TensorType


class Bounds:
    """The least and the largest value of sizes, from the ranges of their symbols."""

    def __init__(self, ranges: Mapping[str, Range]):
        self.ranges = ranges

    def __call__(self, d: DimLike) -> tuple[float, float]:
        if isinstance(d, int):
            return d, d
        if d is UNKNOWN:
            return 0, math.inf
        low, high = 0.0, 0.0
        for monomial, coefficient in d.terms:
            least, most = 1.0, 1.0
            for atom in monomial:
                a, b = self._atom(atom)
                corners = [_times(x, y) for x in (least, most) for y in (a, b)]
                least, most = min(corners), max(corners)
            ends = (_times(coefficient, least), _times(coefficient, most))
            low, high = low + min(ends), high + max(ends)
        return low, high

    def _atom(self, atom: Any) -> tuple[float, float]:
        if not atom.function:
            low, high = self.ranges.get(atom.text, (0, None))
            return low, math.inf if high is None else high
        (a, b), (c, d) = map(self, atom.args)
        if atom.function == "max":
            return max(a, c), max(b, d)
        if atom.function == "min":
            return min(a, c), min(b, d)
        if c < 1:
            return -math.inf, math.inf
        if atom.function == "mod":
            return 0, d - 1 if a < 0 else min(b, d - 1)
        return (a // d if a >= 0 and d < math.inf else 0 if a >= 0 else a // c), (b // c if b < math.inf else b)


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def known(item: Any) -> Sizes | None:
    """An operand as sizes: what is so already, or a short constant of integers."""
    if isinstance(item, Sizes):
        return item
    value = item.dense if isinstance(item, Value) else None
    if value is None or value.dtype.kind in ("float", "complex"):
        return None
    if math.prod(value.shape) > _MOST_ELEMENTS:
        return None
    return Sizes(tuple(x.item() for x in value.array.reshape(-1)), TensorType(value.shape, value.dtype))


def evaluate(bounds: Bounds, op: Any, operands: Sequence[Any], out: Any) -> Any:
    """The result of one op on sizes, ``None`` where it is not a size; ``out`` is the result type as MLIR has it.

    A choice that the sizes decide gives the operand that is chosen.
    """
    rule = _EVALUATE.get(op.name)
    if rule is None or not isinstance(out, TensorType) or not out.is_static or out.size > _MOST_ELEMENTS:
        return None
    if out.dtype.kind in ("float", "complex"):
        return None
    items = [known(x) for x in operands]
    if any(i is None for i in items):
        return _although_unknown(op, items, operands, out)
    values = rule(bounds, op, [i.values for i in items if i is not None])
    if values is None or any(v is None for v in values):
        return None
    return Sizes(tuple(values), out) if all(_fits(v, out) for v in values) else None


def _fits(v: Item, type: TensorType) -> bool:
    """Whether an element did not wrap. Sizes themselves never do."""
    if not isinstance(v, int) or type.dtype.kind == "bool":
        return True
    high = int(type.dtype.max or 0)
    return (-high - 1 if type.dtype.kind == "int" else 0) <= v <= high


def _although_unknown(op: Any, items: Sequence[Sizes | None], operands: Sequence[Any], out: TensorType) -> Any:
    """What is known although an operand is not: false and anything, a choice that is always the same."""
    if op.name == "stablehlo.and" and any(i is not None and not any(i.values) for i in items) and out.dtype.kind == "bool":
        return Sizes((False,) * out.size, out)
    if op.name == "stablehlo.select" and items[0] is not None and len(items[0].values) == 1 and items[0].type.rank == out.rank:
        return operands[1 if items[0].values[0] else 2]
    return None


def write_out(b: Any, sizes: Sizes) -> Value:
    """Sizes as a value: a constant, or ``dim_size`` of each."""
    element = sizes.type.dtype
    if all(isinstance(v, int) for v in sizes.values):
        shape: Any = sizes.type.shape
        return b.const(np.array(sizes.values).reshape(shape), element)  # type: ignore[no-any-return]
    scalars = []
    for v in sizes.values:
        scalar = b.const(v, element) if isinstance(v, int) else b.dim_size(size=v)
        scalars.append(scalar if scalar.dtype is element else b.cast(scalar, out=TensorType((), element)))
    if not sizes.type.rank:
        return scalars[0]  # type: ignore[no-any-return]
    flat = b.concatenate(*[b.reshape(s, out=TensorType((1,), element)) for s in scalars], dimension=0)
    return flat if sizes.type.rank == 1 else b.reshape(flat, out=sizes.type)  # type: ignore[no-any-return]


# --- one function per op: lists of items in, list of items out ---------------------------------------------------------


def _elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(bounds: Bounds, op: Any, operands: list[tuple[Item, ...]]) -> list[Any]:
        return [function(bounds, *items) for items in zip(*operands, strict=True)]

    return apply


def _divide(bounds: Bounds, a: Any, b: Any) -> Any:
    """Truncating: what is known to be floor division."""
    if bounds(a)[0] < 0 or bounds(b)[0] <= 0:
        return -(-a // b) if isinstance(a, int) and isinstance(b, int) and a < 0 < b else None
    return a // b


def _remainder(bounds: Bounds, a: Any, b: Any) -> Any:
    if bounds(a)[0] < 0 or bounds(b)[0] <= 0:
        return -(-a % b) if isinstance(a, int) and isinstance(b, int) and a < 0 < b else None
    return a % b


def _sign(bounds: Bounds, a: Any) -> Any:
    low, high = bounds(a)
    return 1 if low > 0 else -1 if high < 0 else 0 if low == high == 0 else None


def _abs(bounds: Bounds, a: Any) -> Any:
    low, high = bounds(a)
    return a if low >= 0 else -a if high <= 0 else None


def _max(bounds: Bounds, a: Any, b: Any) -> Any:
    low, high = bounds(a - b)
    return a if low >= 0 else b if high <= 0 else function("max", a, b)


def _min(bounds: Bounds, a: Any, b: Any) -> Any:
    low, high = bounds(a - b)
    return b if low >= 0 else a if high <= 0 else function("min", a, b)


def _and(bounds: Bounds, a: Any, b: Any) -> Any:
    return a and b if isinstance(a, bool) and isinstance(b, bool) else None


def _or(bounds: Bounds, a: Any, b: Any) -> Any:
    return a or b if isinstance(a, bool) and isinstance(b, bool) else None


def _compare(bounds: Bounds, op: Any, operands: list[tuple[Item, ...]]) -> list[Any]:
    direction = stablehlo.ComparisonDirectionAttr(op.attributes["comparison_direction"]).value
    return [compare(bounds, direction, a, b) for a, b in zip(*operands, strict=True)]


def compare(bounds: Bounds, direction: str, a: Any, b: Any) -> bool | None:
    """Whether a comparison of two sizes always holds (True), never (False), or that depends (None)."""
    low, high = bounds(int(a) - int(b) if isinstance(a, bool) else a - b)
    if direction in ("EQ", "NE"):
        equal = True if low == high == 0 else False if low > 0 or high < 0 else None
        return equal if equal is None or direction == "EQ" else not equal
    if direction in ("GT", "LE"):
        greater = True if low > 0 else False if high <= 0 else None
        return greater if greater is None or direction == "GT" else not greater
    less = True if high < 0 else False if low >= 0 else None
    return less if less is None or direction == "LT" else not less


def _select(bounds: Bounds, op: Any, operands: list[tuple[Item, ...]]) -> list[Any] | None:
    preds, a, b = operands
    preds = preds * len(a) if len(preds) == 1 else preds
    if not all(isinstance(p, bool) for p in preds):
        return None
    return [x if p else y for p, x, y in zip(preds, a, b, strict=True)]


def _clamp(bounds: Bounds, op: Any, operands: list[tuple[Item, ...]]) -> list[Any]:
    low, x, high = operands
    low, high = (low * len(x) if len(low) == 1 else low), (high * len(x) if len(high) == 1 else high)
    return [_min(bounds, _max(bounds, v, a), b) for a, v, b in zip(low, x, high, strict=True)]


def _arrays(op: Any, operands: list[tuple[Item, ...]]) -> list[Any]:
    """The operands as arrays of objects, shaped as MLIR has them."""
    arrays = []
    for value, items in zip(op.operands, operands, strict=True):
        array = np.empty(len(items), object)
        array[:] = items
        arrays.append(array.reshape(list(value.type.shape)))
    return arrays


def _broadcast(bounds: Bounds, op: Any, operands: list[tuple[Item, ...]]) -> list[Any]:
    (x,), shape = _arrays(op, operands), list(op.results[0].type.shape)
    dims = list(op.attributes["broadcast_dimensions"])
    spread = [1] * len(shape)
    for d, size in zip(dims, x.shape, strict=True):
        spread[d] = size
    if dims != sorted(dims):
        x = x.transpose(np.argsort(dims))
    return list(np.broadcast_to(x.reshape(spread), shape).reshape(-1))


def _concatenate(bounds: Bounds, op: Any, operands: list[tuple[Item, ...]]) -> list[Any]:
    return list(np.concatenate(_arrays(op, operands), op.attributes["dimension"].value).reshape(-1))


def _slice(bounds: Bounds, op: Any, operands: list[tuple[Item, ...]]) -> list[Any]:
    starts, limits, strides = (list(op.attributes[n]) for n in ("start_indices", "limit_indices", "strides"))
    (x,) = _arrays(op, operands)
    return list(x[tuple(map(slice, starts, limits, strides))].reshape(-1))


def _number(bounds: Bounds, a: Any) -> Any:
    return int(a) if isinstance(a, bool) else a


_EVALUATE: dict[str, Callable[..., Any]] = {
    "stablehlo.add": _elementwise(lambda s, a, b: a + b),
    "stablehlo.subtract": _elementwise(lambda s, a, b: a - b),
    "stablehlo.multiply": _elementwise(lambda s, a, b: a * b),
    "stablehlo.negate": _elementwise(lambda s, a: -a),
    "stablehlo.divide": _elementwise(_divide),
    "stablehlo.remainder": _elementwise(_remainder),
    "stablehlo.maximum": _elementwise(_max),
    "stablehlo.minimum": _elementwise(_min),
    "stablehlo.sign": _elementwise(_sign),
    "stablehlo.abs": _elementwise(_abs),
    "stablehlo.and": _elementwise(_and),
    "stablehlo.or": _elementwise(_or),
    "stablehlo.not": _elementwise(lambda s, a: not a if isinstance(a, bool) else None),
    "stablehlo.convert": _elementwise(_number),
    "stablehlo.reshape": lambda s, op, operands: list(operands[0]),
    "stablehlo.concatenate": _concatenate,
    "stablehlo.compare": _compare,
    "stablehlo.select": _select,
    "stablehlo.clamp": _clamp,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.slice": _slice,
}
