"""Value types, immutable and interned: equal types are the same object."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from neuron_ir.dims import UNKNOWN, Dim, DimLike, evaluate
from neuron_ir.dtypes import DType, dtype

__all__ = ["DEFAULT_LAYOUT", "TOKEN", "Layout", "TensorType", "TokenType", "Type", "compatible", "same_shape", "tensor"]


class Layout:
    """How a tensor lies in memory, printed ``#neuron.layout<order = [0, 2, 3, 1], partition = 1, tile = [128, 512]>``.

    ``order`` lists the dims from slowest to fastest in physical memory (default: row-major); ``partition`` is the dim that lies on
    the 128 partitions (-1: not chosen); ``tile`` is the tile of the two innermost physical dims (empty: untiled).
    """

    __slots__ = ("order", "partition", "tile")
    _interned: dict[tuple[Any, ...], Layout] = {}
    order: tuple[int, ...]
    partition: int
    tile: tuple[int, ...]

    def __new__(cls, order: Sequence[int] = (), partition: int = -1, tile: Sequence[int] = ()) -> Layout:
        order = () if list(order) == list(range(len(order))) else tuple(order)
        key = (order, partition, tuple(tile))
        layout = cls._interned.get(key)
        if layout is None:
            if sorted(order) != list(range(len(order))):
                raise ValueError(f"layout order {list(order)} is not a permutation")
            layout = cls._interned[key] = object.__new__(cls)
            layout.order, layout.partition, layout.tile = key
        return layout

    def __repr__(self) -> str:
        fields = [f"order = {list(self.order)}"] if self.order else []
        fields += [f"partition = {self.partition}"] if self.partition >= 0 else []
        fields += [f"tile = {list(self.tile)}"] if self.tile else []
        return f"#neuron.layout<{', '.join(fields)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout, (self.order, self.partition, self.tile)


DEFAULT_LAYOUT = Layout()
_SIZES = frozenset({int, Dim})


class Type:
    """Base of all value types."""

    __slots__ = ()


class TensorType(Type):
    """``tensor<2xSx128xbf16, #layout>``: shape (ints, symbolic dims or ``?``), element type, and layout where not the default."""

    __slots__ = ("shape", "dtype", "layout", "text", "is_static")
    _interned: dict[tuple[Any, ...], TensorType] = {}
    shape: tuple[DimLike, ...]
    dtype: DType
    layout: Layout
    text: str
    is_static: bool

    def __new__(cls, shape: Sequence[DimLike], dtype: DType, layout: Layout = DEFAULT_LAYOUT) -> TensorType:
        key = (tuple(shape), dtype, layout)
        interned = cls._interned.get(key)
        if interned is None or not _SIZES.issuperset(map(type, key[0])):  # True and 2.0 would find the types of 1 and 2
            interned = cls._make(*key)
            cls._interned[key] = interned
        return interned

    @classmethod
    def _make(cls, shape: tuple[DimLike, ...], dtype: DType, layout: Layout) -> TensorType:
        for d in shape:
            if type(d) not in _SIZES or isinstance(d, int) and d < 0:
                raise ValueError(f"dimension {d!r} in shape {list(shape)} is neither a size, a symbol nor '?'")
        if layout.order and len(layout.order) != len(shape) or layout.partition >= len(shape):
            raise ValueError(f"{layout!r} does not fit rank {len(shape)}")
        self = object.__new__(cls)
        self.shape, self.dtype, self.layout = shape, dtype, layout
        self.is_static = all(isinstance(d, int) for d in shape)
        dims = "".join(f"{_dim_text(d)}x" for d in shape)
        self.text = f"tensor<{dims}{dtype}>" if layout is DEFAULT_LAYOUT else f"tensor<{dims}{dtype}, {layout!r}>"
        return self

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements; ``ValueError`` where the shape is not static."""
        if not self.is_static:
            raise ValueError(f"{self} has no static number of elements")
        return math.prod(d for d in self.shape if isinstance(d, int))

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, sub-byte types packed."""
        return (self.size * self.dtype.bits + 7) // 8 if self.dtype.kind != "bool" else self.size

    def with_shape(self, shape: Sequence[DimLike]) -> TensorType:
        """Same element type, another shape, default layout."""
        return TensorType(shape, self.dtype)

    def with_dtype(self, dtype: DType) -> TensorType:
        """Same shape and layout, another element type."""
        return TensorType(self.shape, dtype, self.layout)

    def with_layout(self, layout: Layout) -> TensorType:
        """Same shape and element type, another layout."""
        return TensorType(self.shape, self.dtype, layout)

    def specialise(self, sizes: Mapping[str, DimLike]) -> TensorType:
        """This type with its symbols replaced by the given sizes."""
        return self if self.is_static else TensorType([evaluate(d, sizes) for d in self.shape], self.dtype, self.layout)

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorType, (self.shape, self.dtype, self.layout)


class TokenType(Type):
    """``token``: orders side effects; it has no value."""

    __slots__ = ()
    text = "token"

    def __repr__(self) -> str:
        return self.text

    def __reduce__(self) -> str:
        return "TOKEN"


TOKEN = TokenType()


def _dim_text(d: DimLike) -> str:
    """A dim as it stands in a type: in parentheses unless it is a number, ``?``, or a symbol without the letter x."""
    plain = isinstance(d, int) or d is UNKNOWN or (d.is_symbol and "x" not in d.text)
    return str(d) if plain else f"({d})"


def tensor(shape: Sequence[DimLike], element: DType | str) -> TensorType:
    """Shorthand: ``tensor([2, 3], "f32")``."""
    return TensorType(shape, dtype(element) if isinstance(element, str) else element)


def compatible(a: Type, b: Type) -> bool:
    """Whether a value of type ``a`` may stand where ``b`` is expected: equal, up to ``?`` dims, layouts aside."""
    if a is b:
        return True
    if not (isinstance(a, TensorType) and isinstance(b, TensorType)) or a.dtype is not b.dtype:
        return False
    return same_shape(a.shape, b.shape)


def same_shape(a: Sequence[DimLike], b: Sequence[DimLike]) -> bool:
    """Whether two shapes are equal, where ``?`` equals anything."""
    return len(a) == len(b) and all(x == y or x is UNKNOWN or y is UNKNOWN for x, y in zip(a, b, strict=True))
