"""Element types: one interned :class:`DType` per scalar format the IR knows."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

__all__ = [
    "BF16", "BOOL", "C128", "C64", "F16", "F32", "F64", "I32", "I64", "U32", "U64", "U8", "DType", "all_dtypes", "dtype",
    "dtype_of_numpy", "dtype_of_torch", "is_dtype",
]  # fmt: skip


class DType:
    """A scalar format: its name in the text, its kind, and its width in bits.

    ``kind`` is one of ``bool``, ``int``, ``uint``, ``float``, ``complex``. Instances are unique; compare with ``is``.
    """

    __slots__ = ("name", "kind", "bits", "numpy_name", "max", "__dict__")

    def __init__(self, name: str, kind: str, bits: int, numpy_name: str, max: float | None = None):
        self.name, self.kind, self.bits, self.numpy_name, self.max = name, kind, bits, numpy_name, max

    @cached_property
    def numpy(self) -> Any:
        """The numpy (or ml_dtypes) dtype that stores one element. ``tf32`` values are stored as f32."""
        import ml_dtypes
        import numpy

        return numpy.dtype(getattr(numpy, self.numpy_name, None) or getattr(ml_dtypes, self.numpy_name))

    @property
    def nbytes(self) -> int:
        """Bytes of one element in memory; sub-byte types take a whole byte each."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in ("int", "uint")

    @property
    def real(self) -> DType:
        """The type of the real part: f32 for c64, f64 for c128, itself otherwise."""
        return {"c64": F32, "c128": F64}.get(self.name, self)

    @property
    def accumulator(self) -> DType:
        """The type in which sums and products of this one are formed: f32 for narrower floats, otherwise itself."""
        return F32 if self.is_float and self.bits < 32 else self

    @property
    def complex(self) -> DType:
        """The complex type whose parts are this type (f32 -> c64, f64 -> c128)."""
        return {"f32": C64, "f64": C128}[self.name]

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype, (self.name,)


_TABLE = {
    t.name: t
    for t in (
        DType("bool", "bool", 1, "bool_"),
        *(DType(f"i{b}", "int", b, f"int{b}", 2 ** (b - 1) - 1) for b in (2, 4, 8, 16, 32, 64)),
        *(DType(f"u{b}", "uint", b, f"uint{b}", 2**b - 1) for b in (2, 4, 8, 16, 32, 64)),
        DType("f4e2m1", "float", 4, "float4_e2m1fn", 6.0),
        DType("f8e3m4", "float", 8, "float8_e3m4", 15.5),
        DType("f8e4m3", "float", 8, "float8_e4m3", 240.0),
        DType("f8e4m3fn", "float", 8, "float8_e4m3fn", 448.0),
        DType("f8e4m3fnuz", "float", 8, "float8_e4m3fnuz", 240.0),
        DType("f8e4m3b11fnuz", "float", 8, "float8_e4m3b11fnuz", 30.0),
        DType("f8e5m2", "float", 8, "float8_e5m2", 57344.0),
        DType("f8e5m2fnuz", "float", 8, "float8_e5m2fnuz", 57344.0),
        DType("f8e8m0", "float", 8, "float8_e8m0fnu", 2.0**127),
        DType("f16", "float", 16, "float16", 65504.0),
        DType("bf16", "float", 16, "bfloat16", 3.3895313892515355e38),
        DType("tf32", "float", 32, "float32", 3.4011621342146535e38),
        DType("f32", "float", 32, "float32", 3.4028234663852886e38),
        DType("f64", "float", 64, "float64", 1.7976931348623157e308),
        DType("c64", "complex", 64, "complex64"),
        DType("c128", "complex", 128, "complex128"),
    )
}

BOOL, I32, I64, U8, U32, U64 = (_TABLE[n] for n in ("bool", "i32", "i64", "u8", "u32", "u64"))
F16, BF16, F32, F64, C64, C128 = (_TABLE[n] for n in ("f16", "bf16", "f32", "f64", "c64", "c128"))


def dtype(name: str) -> DType:
    """The element type of that name; ``KeyError`` when there is none."""
    return _TABLE[name]


def is_dtype(name: str) -> bool:
    """Whether ``name`` is an element type's name."""
    return name in _TABLE


def all_dtypes() -> tuple[DType, ...]:
    """Every element type, in the order of the table."""
    return tuple(_TABLE.values())


_BY_NUMPY_NAME = {t.numpy_name.rstrip("_"): t for t in _TABLE.values() if t.name != "tf32"}


@cache
def dtype_of_numpy(np_dtype: Any) -> DType:
    """The element type of a numpy dtype (ml_dtypes included); ``KeyError`` with its name when there is none."""
    return _BY_NUMPY_NAME[str(np_dtype)]


@cache
def dtype_of_torch(torch_dtype: Any) -> DType:
    """The element type of a torch dtype, by its name, which is numpy's; ``KeyError`` with that name when there is none."""
    found = _BY_NUMPY_NAME[str(torch_dtype).removeprefix("torch.")]
    if found.bits < 8 and found.kind != "bool":  # torch has names for these, and no arithmetic
        raise KeyError(str(torch_dtype))
    return found
