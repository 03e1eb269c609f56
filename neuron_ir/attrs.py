"""Attribute values that are more than a Python scalar, and how every attribute prints.

An attribute is a bool, int, float, str, :class:`DType`, :class:`TensorType`, :class:`Dim`, :class:`Symbol`, :class:`Dense`,
:class:`Resource`, :class:`Layout`, or a tuple of attributes. All are immutable and compare by value; floats compare by bits.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from neuron_ir.diagnostics import fail
from neuron_ir.dims import Dim
from neuron_ir.dtypes import DType
from neuron_ir.quoting import quote
from neuron_ir.types import Layout, TensorType

__all__ = ["Dense", "Resource", "Symbol", "print_attr", "same_attr"]

INLINE_ELEMENTS = 32  # constants up to this many elements print as numbers, longer ones as hexadecimal bytes


class Symbol(str):
    """A reference to a function of the module; prints ``@name``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"@{self}"


class Resource(str):
    """A reference to an array in the module's weights; prints ``resource<"name">``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"resource<{quote(str(self))}>"


class Dense:
    """A constant array: element type, static shape, and its little-endian bytes, one element per :attr:`DType.nbytes` bytes.

    A splat (all elements equal in bits) keeps one element only.
    """

    __slots__ = ("dtype", "shape", "data")

    def __init__(self, dtype: DType, shape: tuple[int, ...], data: bytes):
        n, width = math.prod(shape), dtype.nbytes
        if len(data) not in (width, n * width):
            raise fail("attr", f"a constant of {n} x {dtype} takes {n * width} bytes, not {len(data)}")
        if math.prod(max(d, 1) for d in shape) * width >= 1 << 63:
            raise fail("attr", f"a constant of {list(shape)} x {dtype} is larger than any memory")
        if n > 1 and len(data) == n * width and data[:width] * n == data:
            data = data[:width]
        self.dtype, self.shape, self.data = dtype, shape, data

    @classmethod
    def of(cls, array: Any, dtype: DType | None = None) -> Dense:
        """The constant of a numpy array or Python number (``dtype`` is needed for Python numbers and tf32)."""
        import numpy

        from neuron_ir.dtypes import dtype_of_numpy

        array = numpy.asarray(array) if dtype is None else numpy.asarray(array).astype(dtype.numpy)
        return cls(dtype or dtype_of_numpy(array.dtype), array.shape, array.tobytes())

    @property
    def is_splat(self) -> bool:
        return bool(len(self.data) == self.dtype.numpy.itemsize)

    @property
    def array(self) -> Any:
        """The constant as a read-only numpy array of :attr:`shape`."""
        import numpy

        flat = numpy.frombuffer(self.data, self.dtype.numpy)
        if flat.size == 1:
            return numpy.broadcast_to(flat.reshape(()), self.shape)
        return flat.reshape(self.shape)

    @property
    def item(self) -> Any:
        """The value of a splat as a Python number."""
        return self.array.flat[0].item()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dense) and (self.dtype, self.shape, self.data) == (other.dtype, other.shape, other.data)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape, self.data))

    def __repr__(self) -> str:
        return print_dense(self)


def print_float(x: float) -> str:
    """The shortest text that reads back to the same float; NaNs other than the default one print their bits."""
    if x != x:
        bits = struct.unpack("<Q", struct.pack("<d", x))[0]
        return "nan" if bits == 0x7FF8000000000000 else f"nan:{bits:x}"
    if x in (math.inf, -math.inf):
        return "inf" if x > 0 else "-inf"
    return repr(x)


def print_dense(d: Dense) -> str:
    """``dense<1.0>`` for splats, nested lists for short constants, ``dense<"hex">`` for the rest; needs its type to be read."""
    if d.is_splat and 0 not in d.shape:
        return f"dense<{_print_element(d.array.flat[0], d)}>"
    if math.prod(d.shape) > INLINE_ELEMENTS:
        return f'dense<"{d.data.hex()}">'
    return f"dense<{_print_nested(d.array, d)}>"


def _print_nested(array: Any, d: Dense) -> str:
    if array.ndim == 0:
        return _print_element(array[()], d)
    return f"[{', '.join(_print_nested(a, d) for a in array)}]"


def _print_element(x: Any, d: Dense) -> str:
    if d.dtype.kind == "bool":
        return "true" if x else "false"
    if d.dtype.is_integer:
        return str(int(x))
    if d.dtype.is_complex:
        return f"({_print_real(x.real)}, {_print_real(x.imag)})"
    return _print_real(x)


def _print_real(x: Any) -> str:
    """A float scalar of any width: shortest digits that come back bit for bit; NaN payloads as ``bits:hex``."""
    value = float(x)
    if value != value:
        default = x.dtype.type(math.nan).tobytes() == x.tobytes()
        return "nan" if default else f"bits:{x.tobytes()[::-1].hex()}"
    if x.dtype.kind == "f" and x.dtype.itemsize in (2, 4) and math.isfinite(value):
        digits = str(x)
        return digits if any(c in digits for c in ".en") else digits + ".0"
    return print_float(value)


def print_attr(value: Any) -> str:
    """An attribute as it stands in the text."""
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int | DType | TensorType | Dim | Layout | Dense | Symbol | Resource):
        return repr(value)
    if isinstance(value, float):
        return print_float(value)
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(print_attr, value))}]"
    raise TypeError(f"{value!r} ({type(value).__name__}) cannot be an attribute")


def same_attr(a: Any, b: Any) -> bool:
    """Equality of attributes: same kind and same bits (1 differs from true and from 1.0, 0.0 from -0.0; NaN equals itself)."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same_attr, a, b))
    return bool(a == b)
