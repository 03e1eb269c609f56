"""torch's symbolic sizes, dtypes and fake tensors as dims, element types and tensor types of the IR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuron_ir.diagnostics import fail
from neuron_ir.dims import DimLike, Range, function, symbol
from neuron_ir.dtypes import DType, dtype
from neuron_ir.types import TensorType

__all__ = ["Symbols"]

_DTYPES = {
    "bool": "bool", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint16": "u16", "uint32": "u32",
    "uint64": "u64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128",
    "float8_e4m3fn": "f8e4m3fn", "float8_e4m3fnuz": "f8e4m3fnuz", "float8_e5m2": "f8e5m2", "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0",
}  # fmt: skip


class Symbols:
    """Translates what torch knows about a value. ``ranges`` maps torch's symbols to their value ranges."""

    def __init__(self, ranges: Mapping[Any, Any]):
        self.ranges = ranges
        self.used: dict[str, Range] = {}

    def dtype(self, torch_dtype: Any) -> DType:
        """The element type of a ``torch.dtype``; :class:`IRError` naming it where the IR has none."""
        name = str(torch_dtype).removeprefix("torch.")
        if name not in _DTYPES:
            raise fail("unsupported", f"the element type {torch_dtype} has no counterpart in the IR")
        return dtype(_DTYPES[name])

    def type_of(self, fake: Any) -> TensorType:
        """The tensor type of a fake (or real) tensor."""
        return TensorType([self.dim(d) for d in fake.shape], self.dtype(fake.dtype))

    def dim(self, size: Any) -> DimLike:
        """A size, given as an int or a ``SymInt``."""
        if isinstance(size, int):
            return size
        return self.expression(size.node.expr)

    def expression(self, expr: Any) -> DimLike:
        """A sympy expression of sizes as a dim."""
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            return self._symbol(expr)
        parts = [self.expression(a) for a in expr.args]
        head = type(expr).__name__
        if expr.is_Add:
            return sum(parts[1:], parts[0])
        if expr.is_Mul:
            return _product(parts)
        if expr.is_Pow and isinstance(parts[1], int) and parts[1] >= 0:
            return _product([parts[0]] * parts[1])
        if head in _FUNCTIONS and len(parts) == 2:
            return function(_FUNCTIONS[head], *parts)
        raise fail("unsupported", f"the size {expr} cannot be written in the IR")

    def _symbol(self, expr: Any) -> DimLike:
        name = str(expr)
        bounds = self.ranges.get(expr)
        low = int(bounds.lower) if bounds is not None and bounds.lower.is_finite else 0
        high = int(bounds.upper) if bounds is not None and bounds.upper.is_finite and bounds.upper < 2**48 else None
        self.used[name] = (max(low, 0), high)
        return symbol(name)


_FUNCTIONS = {"FloorDiv": "floordiv", "CleanDiv": "floordiv", "Mod": "mod", "PythonMod": "mod", "Max": "max", "Min": "min"}


def _product(parts: list[DimLike]) -> DimLike:
    result: DimLike = 1
    for part in parts:
        result = result * part
    return result
