"""Arithmetic on values for the bodies of composite ops: ``(x - x.max([1])).exp()`` appends the ops and reads like the formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from neuron_ir.builder import Builder
from neuron_ir.core import Value
from neuron_ir.diagnostics import fail
from neuron_ir.dialects.neuron.broadcasting import broadcast_dims
from neuron_ir.dialects.neuron.shapes import product
from neuron_ir.dims import UNKNOWN, Dim, DimLike
from neuron_ir.dtypes import I64, DType
from neuron_ir.types import TensorType


class Expr:
    """A value and the builder that appends to its block. Operators broadcast by NumPy's rule; Python numbers take the other's
    type.
    """

    __slots__ = ("b", "value")

    def __init__(self, b: Builder, value: Value):
        self.b, self.value = b, value

    @property
    def shape(self) -> tuple[DimLike, ...]:
        return self.value.shape

    @property
    def rank(self) -> int:
        return len(self.value.shape)

    @property
    def dtype(self) -> DType:
        dtype: DType = self.value.dtype
        return dtype

    def new(self, value: Value) -> Expr:
        return Expr(self.b, value)

    def lift(self, other: Any) -> Expr:
        """``other`` as an expression: a Python number or a symbolic size becomes a scalar of this element type."""
        if isinstance(other, Dim):
            return self.size(other)
        return other if isinstance(other, Expr) else self.new(self.b.const(other, self.dtype))

    def cast(self, dtype: DType) -> Expr:
        """The same elements in another type."""
        return self if self.dtype is dtype else self.new(self.b.cast(self.value, out=TensorType(self.shape, dtype)))

    def reshape(self, shape: Sequence[DimLike]) -> Expr:
        """The same elements, row-major, in another shape."""
        return self if tuple(shape) == self.shape else self.new(self.b.reshape(self.value, out=TensorType(shape, self.dtype)))

    def broadcast(self, shape: Sequence[DimLike], dims: Sequence[int] | None = None) -> Expr:
        """Spread over ``shape``; ``dims`` says where this value's dims go (default: aligned at the end)."""
        if dims is None:
            dims = range(len(shape) - self.rank, len(shape))
        if tuple(shape) == self.shape:
            return self
        return self.new(self.b.broadcast_in_dim(self.value, broadcast_dimensions=tuple(dims), out=TensorType(shape, self.dtype)))

    def transpose(self, permutation: Sequence[int]) -> Expr:
        """Dims in another order."""
        same = list(permutation) == list(range(self.rank))
        return self if same else self.new(self.b.transpose(self.value, permutation=tuple(permutation)))

    def binary(self, name: str, other: Any, reverse: bool = False, **attrs: Any) -> Expr:
        """An elementwise op of two values."""
        x, y = self, self.lift(other)
        shape = broadcast_dims(x.shape, y.shape)
        assert shape is not None, f"{x.shape} and {y.shape} in an expansion"
        x, y = x.broadcast(shape), y.broadcast(shape)
        if reverse:
            x, y = y, x
        return self.new(self.b.make(f"neuron.{name}", x.value, y.value, **attrs))

    def unary(self, name: str) -> Expr:
        return self.new(self.b.make(f"neuron.{name}", self.value))

    def __add__(self, other: Any) -> Expr:
        return self.binary("add", other)

    def __sub__(self, other: Any) -> Expr:
        return self.binary("subtract", other)

    def __rsub__(self, other: Any) -> Expr:
        return self.binary("subtract", other, reverse=True)

    def __mul__(self, other: Any) -> Expr:
        return self.binary("multiply", other)

    def __truediv__(self, other: Any) -> Expr:
        return self.binary("divide", other)

    def __rtruediv__(self, other: Any) -> Expr:
        return self.binary("divide", other, reverse=True)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Expr:
        return self.unary("negate")

    def maximum(self, other: Any) -> Expr:
        return self.binary("maximum", other)

    def minimum(self, other: Any) -> Expr:
        return self.binary("minimum", other)

    def both(self, other: Expr) -> Expr:
        return self.binary("and", other)

    def either(self, other: Expr) -> Expr:
        return self.binary("or", other)

    def inverted(self) -> Expr:
        return self.unary("not")

    def compare(self, direction: str, other: Any) -> Expr:
        """``EQ NE LT LE GT GE``, as bool."""
        return self.binary("compare", other, direction=direction)

    def where(self, yes: Any, no: Any) -> Expr:
        """Where this (bool) is true ``yes``, else ``no``; one of them is an expression, which gives the type."""
        like = yes if isinstance(yes, Expr) else no
        yes, no = like.lift(yes), like.lift(no)
        shape = broadcast_dims(broadcast_dims(self.shape, yes.shape) or (), no.shape)
        assert shape is not None
        return self.new(self.b.select(self.broadcast(shape).value, yes.broadcast(shape).value, no.broadcast(shape).value))

    def is_nan(self) -> Expr:
        return self.compare("NE", self)

    def exp(self) -> Expr:
        return self.unary("exponential")

    def expm1(self) -> Expr:
        return self.unary("exponential_minus_one")

    def log(self) -> Expr:
        return self.unary("log")

    def log1p(self) -> Expr:
        return self.unary("log_plus_one")

    def sqrt(self) -> Expr:
        return self.unary("sqrt")

    def rsqrt(self) -> Expr:
        return self.unary("rsqrt")

    def tanh(self) -> Expr:
        return self.unary("tanh")

    def erf(self) -> Expr:
        return self.unary("erf")

    def abs(self) -> Expr:
        return self.unary("abs")

    def sum(self, axes: Sequence[int], keepdims: bool = True) -> Expr:
        return self.new(self.b.reduce_sum(self.value, axes=tuple(axes), keepdims=keepdims))

    def max(self, axes: Sequence[int], keepdims: bool = True) -> Expr:
        """Over an empty axis: minus infinity."""
        if any(self.shape[a] == 0 for a in axes):
            kept = [1 if i in axes else d for i, d in enumerate(self.shape) if keepdims or i not in axes]
            return self.lift(-math.inf).broadcast(kept)
        return self.new(self.b.reduce_max(self.value, axes=tuple(axes), keepdims=keepdims))

    def mean(self, axes: Sequence[int], keepdims: bool = True) -> Expr:
        n = product([self.shape[a] for a in axes])
        return self.sum(axes, keepdims) / (float(n) if isinstance(n, int) else n)

    def size(self, n: DimLike) -> Expr:
        """A symbolic size as a scalar of this element type."""
        if n is UNKNOWN:
            raise fail("unsupported", "the op can be expanded only once the sizes '?' of its operands are known", self.b.loc)
        return self.new(self.b.dim_size(size=n)).cast(self.dtype)

    def slice(self, start: Sequence[int], limit: Sequence[DimLike], strides: Sequence[int] | None = None) -> Expr:
        steps = tuple(strides or (1,) * self.rank)
        return self.new(self.b.slice(self.value, start_indices=tuple(start), limit_indices=tuple(limit), strides=steps))

    def section(self, axis: int, start: int, limit: int) -> Expr:
        """Elements ``start`` to ``limit`` of one axis."""
        starts = [start if i == axis else 0 for i in range(self.rank)]
        return self.slice(starts, [limit if i == axis else d for i, d in enumerate(self.shape)])

    def pad(self, value: Any, low: Sequence[int], high: Sequence[int]) -> Expr:
        """Elements ``value`` around; negative amounts crop."""
        if not any(low) and not any(high):
            return self
        return self.new(self.b.pad(self.value, self.lift(value).value, edge_padding_low=tuple(low), edge_padding_high=tuple(high)))

    def iota(self, shape: Sequence[DimLike], axis: int, dtype: DType) -> Expr:
        """0, 1, 2, ... along ``axis``."""
        return self.new(self.b.iota(iota_dimension=axis, out=TensorType(shape, dtype)))

    def table(self, array: Any, dtype: DType) -> Expr:
        """A constant array."""
        return self.new(self.b.const(array, dtype))

    def take(self, indices: Any, axis: int) -> Expr:
        """The elements of one axis at constant indices, all of them valid."""
        return self.new(self.b.take(self.value, self.table(indices, I64).value, axis=axis, policy="clamp"))


def count(dims: Any) -> int:
    """The product of sizes; expansions need it as a number."""
    dims = tuple(dims)
    if not all(isinstance(d, int) for d in dims):
        raise fail("unsupported", f"the op can be expanded only once the sizes {list(dims)} are known")
    return math.prod(dims)


def concatenate(parts: Sequence[Expr], axis: int) -> Expr:
    """The parts one after another along ``axis``."""
    first = parts[0]
    return first if len(parts) == 1 else first.new(first.b.concatenate(*[p.value for p in parts], dimension=axis))


def dot(
    a: Expr, b: Expr, batch: tuple[Sequence[int], Sequence[int]], contract: tuple[Sequence[int], Sequence[int]], acc: DType
) -> Expr:
    """``dot_general`` with products and sums in ``acc``, which is also the result's type."""
    batch_dims = [a.shape[i] for i in batch[0]]
    rest = [d for i, d in enumerate(a.shape) if i not in (*batch[0], *contract[0])]
    rest += [d for i, d in enumerate(b.shape) if i not in (*batch[1], *contract[1])]
    fields: dict[str, Any] = {
        "lhs_batch": batch[0],
        "rhs_batch": batch[1],
        "lhs_contract": contract[0],
        "rhs_contract": contract[1],
    }
    return a.new(a.b.dot_general(a.value, b.value, acc=acc, out=TensorType([*batch_dims, *rest], acc), **fields))


def pair_by(f: Callable[..., Any]) -> Callable[..., Any]:
    """A region function over raw values from one over expressions."""

    def body(b: Builder, *args: Value) -> Any:
        result = f(*[Expr(b, a) for a in args])
        return tuple(r.value for r in result) if isinstance(result, tuple) else result.value

    return body
