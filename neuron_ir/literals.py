"""The numbers of a constant, from parsed text to bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neuron_ir.attrs import Dense
from neuron_ir.dtypes import DType
from neuron_ir.types import TensorType

__all__ = ["Bits", "Complex", "dense_from"]


class Bits(str):
    """A float given by its bits, in hexadecimal."""


class Complex(tuple):  # type: ignore[type-arg]
    """Real and imaginary part."""


def dense_from(value: Any, type: TensorType) -> Dense:
    """The constant of ``type`` that a parsed ``dense<...>`` means; ``ValueError`` where it does not fit."""
    shape = tuple(d for d in type.shape if isinstance(d, int))
    if isinstance(value, bytes):
        return Dense(type.dtype, shape, value)
    encode = _encoder(type.dtype)
    if not isinstance(value, tuple) or isinstance(value, Complex):
        return Dense(type.dtype, shape, encode(value))
    flat: list[bytes] = []
    _flatten(value, shape, encode, flat)
    return Dense(type.dtype, shape, b"".join(flat))


def _flatten(value: Any, shape: tuple[int, ...], encode: Callable[[Any], bytes], flat: list[bytes]) -> None:
    is_list = isinstance(value, tuple) and not isinstance(value, Complex)
    if is_list != bool(shape) or is_list and len(value) != shape[0]:
        raise ValueError(f"its nesting is not {'x'.join(map(str, shape)) or 'a scalar'}")
    if not is_list:
        flat.append(encode(value))
        return
    for item in value:
        _flatten(item, shape[1:], encode, flat)


def _encoder(element: DType) -> Callable[[Any], bytes]:
    """A function from a parsed number to the bytes of one element; refuses numbers of the wrong kind or out of range."""
    import numpy

    np_dtype = element.numpy

    def real(x: Any, real_dtype: Any) -> bytes:
        if isinstance(x, Bits):
            return bytes.fromhex(x)[::-1]
        if isinstance(x, bool) or not isinstance(x, int | float):
            raise ValueError(f"{x!r} is not a {element} number")
        with numpy.errstate(over="ignore"):
            return numpy.asarray(x, numpy.float64).astype(real_dtype).tobytes()

    if element.kind == "bool":
        return lambda x: bytes([_checked(x, isinstance(x, bool), element)])
    if element.is_integer:
        low = -(2 ** (element.bits - 1)) if element.kind == "int" else 0
        high = low + 2**element.bits - 1
        return lambda x: numpy.asarray(
            _checked(x, isinstance(x, int) and not isinstance(x, bool) and low <= x <= high, element)
        ).astype(np_dtype).tobytes()  # fmt: skip
    if element.is_complex:
        return lambda x: b"".join(real(p, element.real.numpy) for p in _checked(x, isinstance(x, Complex), element))
    return lambda x: real(x, np_dtype)


def _checked(x: Any, fine: bool, element: DType) -> Any:
    if not fine:
        raise ValueError(f"{x!r} is not a value of {element}")
    return x
