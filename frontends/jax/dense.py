"""Constants of MLIR modules as NumPy arrays of the same bits, for every element type.

jaxlib's bindings give buffers only for float16/32/64, for integers of 8 bits and more and for booleans. bfloat16, the
8- and 4-bit types and complex numbers are read from the attribute's own text, which MLIR prints so that it reads back
exactly: decimal numbers that round-trip, bit patterns in hexadecimal, or one hexadecimal blob above 100 elements.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np

from neuron_ir.frontends.jax._compat import ir

DTYPES: dict[str, np.dtype] = {
    name: np.dtype(kind)
    for name, kind in {
        "i1": np.bool_,
        "i2": ml_dtypes.int2,
        "i4": ml_dtypes.int4,
        "i8": np.int8,
        "i16": np.int16,
        "i32": np.int32,
        "i64": np.int64,
        "ui2": ml_dtypes.uint2,
        "ui4": ml_dtypes.uint4,
        "ui8": np.uint8,
        "ui16": np.uint16,
        "ui32": np.uint32,
        "ui64": np.uint64,
        "index": np.int64,
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "f32": np.float32,
        "f64": np.float64,
        "f4E2M1FN": ml_dtypes.float4_e2m1fn,
        "f6E2M3FN": ml_dtypes.float6_e2m3fn,
        "f6E3M2FN": ml_dtypes.float6_e3m2fn,
        "f8E3M4": ml_dtypes.float8_e3m4,
        "f8E4M3": ml_dtypes.float8_e4m3,
        "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
        "f8E4M3FN": ml_dtypes.float8_e4m3fn,
        "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
        "f8E5M2": ml_dtypes.float8_e5m2,
        "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
        "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
        "complex<f32>": np.complex64,
        "complex<f64>": np.complex128,
    }.items()
}

_BUFFERED = frozenset(("i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "f16", "f32", "f64"))
_NUMBER = re.compile(r"true|false|0x[0-9A-Fa-f]+|[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


def constant_array(op: ir.Operation) -> np.ndarray:
    """The value of a ``stablehlo.constant``. Splats come as views without strides, other values may view MLIR's memory.

    Keep the module alive as long as the array, or copy it.
    """
    result = op.results[0].type
    element = str(result.element_type)
    if element.startswith("!quant."):  # its integers
        element = str(op.attributes["value"].type.element_type)
    dtype, shape = DTYPES[element], tuple(result.shape)
    if element not in _BUFFERED:
        return _from_text(op.get_asm(use_local_scope=True), element, dtype, shape)
    value = op.attributes["value"]
    if not isinstance(value, (ir.DenseElementsAttr, ir.DenseIntElementsAttr, ir.DenseFPElementsAttr)):
        return _from_text(op.get_asm(use_local_scope=True), element, dtype, shape)
    if value.is_splat and shape:
        return np.broadcast_to(np.array(value.get_splat_value().value, dtype), shape) if element != "f16" else _splat(value, shape)
    return np.asarray(value)


def _splat(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A splat through the buffer, which has no strides either."""
    return np.broadcast_to(np.asarray(value).reshape(-1)[:1].reshape(()), shape)


def _from_text(text: str, element: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    body = text[text.index("dense<") + len("dense<") : text.rindex("> : tensor<")]
    if body.startswith('"0x'):
        flat = np.frombuffer(bytes.fromhex(body[3:-1]), dtype)
        return np.broadcast_to(flat.reshape(()), shape) if flat.size == 1 and shape else flat.reshape(shape)
    parts = _NUMBER.findall(body)
    if dtype.kind == "c":
        real = np.float32 if dtype == np.complex64 else np.float64
        flat = np.array([_number(p, np.dtype(real)) for p in parts], real).view(dtype)
    else:
        flat = np.array([_number(p, dtype) for p in parts], dtype)
    return np.broadcast_to(flat.reshape(()), shape) if flat.size == 1 else flat.reshape(shape)


def _number(text: str, dtype: np.dtype) -> Any:
    """One element; ``0x`` means the bit pattern of a float, and a plain number of an integer type."""
    if text in ("true", "false"):
        return text == "true"
    is_integer = dtype.kind in "iu" or dtype.name.startswith(("int", "uint"))
    if text.startswith("0x") and not is_integer:
        return np.frombuffer(int(text, 16).to_bytes(dtype.itemsize, "little"), dtype)[0]
    if is_integer:
        return int(text, 0)
    # The parser rounds the double to the element type; so does this.
    return np.asarray(float(text)).astype(dtype)[()]
