"""Buffers: arrays of the host behind handles."""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import Any

from neuron_ir.diagnostics import fail
from neuron_ir.dtypes import DType, dtype, dtype_of_numpy
from neuron_ir.frontends.jax.pjrt.abi import enum, struct
from neuron_ir.frontends.jax.pjrt.cells import Cell, array_of

__all__ = ["TOKEN", "Buffer", "Template", "buffer_type", "element_type", "host_array", "token"]

_NAMES = {
    "PRED": "bool", "F8E4M3B11FNUZ": "f8e4m3b11fnuz", "F8E8M0FNU": "f8e8m0", "F4E2M1FN": "f4e2m1", "C64": "c64", "C128": "c128",
    **{f"S{bits}": f"i{bits}" for bits in (2, 4, 8, 16, 32, 64)},
}  # fmt: skip


@cache
def _types() -> tuple[dict[int, DType], dict[DType, int]]:
    codes = {
        code: dtype(_NAMES.get(name, name.lower()))
        for name, code in enum("PJRT_Buffer_Type").items()
        if name not in ("INVALID", "TOKEN")
    }
    return codes, {t: code for code, t in codes.items()}


def element_type(code: int) -> DType:
    """The element type that a code of ``PJRT_Buffer_Type`` stands for; raises :class:`IRError` where there is none."""
    found = _types()[0].get(code)
    if found is None:
        raise fail("unsupported", f"a buffer of the PJRT element type {code} has no counterpart in the IR")
    return found


def buffer_type(element: DType) -> int:
    """The code of an element type."""
    return _types()[1][element]


class Buffer(Cell):
    """One array on one device. ``owner`` is the host's array, ``None`` once it is deleted."""

    __slots__ = ("device",)

    def __init__(self, array: Any, template: Template):
        self.kept = template.kept
        self.owner = array
        self.device = template.device
        self.cell = template.form.from_buffer_copy(template.cell)
        self.address = ctypes.addressof(self.cell)

    @classmethod
    def of(cls, array: Any, device: Any) -> Buffer:
        """A buffer of an array of the host."""
        return cls(array, Template.of(array.shape, array.dtype, device))

    def delete(self) -> None:
        """Give the memory back; the handle stays."""
        self.owner = None
        self.cell.is_deleted = True

    def array(self) -> Any:
        """The array; raises :class:`IRError` where it was deleted or donated."""
        if self.owner is None:
            raise fail("runtime", "a buffer is used that was deleted or donated")
        return self.owner


class Template(Cell):
    """What all buffers of a shape and element type on a device have in common."""

    __slots__ = ("device", "form")

    def __init__(self, shape: tuple[int, ...], np_dtype: Any, device: Any):
        element = dtype_of_numpy(np_dtype)
        size = element.nbytes * math.prod(shape)
        super().__init__(
            "Buffer", type=buffer_type(element), on_device_size_in_bytes=size, device=device.address, memory=device.memory.address,
            event=device.ready.address, num_dims=len(shape),
        )  # fmt: skip
        self.device, self.form, cell = device, type(self.cell), self.cell
        cell.dims = cell.unpadded_dims = array_of(list(shape), self.kept)
        layout = struct("PJRT_Buffer_MemoryLayout")(type=enum("PJRT_Buffer_MemoryLayout_Type")["Tiled"])
        layout.struct_size = ctypes.sizeof(layout)
        layout.tiled.struct_size = ctypes.sizeof(layout.tiled)
        layout.tiled.minor_to_major = array_of(list(reversed(range(len(shape)))), self.kept)
        layout.tiled.minor_to_major_size = len(shape)
        cell.layout = layout

    @classmethod
    @cache
    def of(cls, shape: tuple[int, ...], np_dtype: Any, device: Any) -> Template:
        """The one template of a shape, element type and device."""
        return cls(shape, np_dtype, device)


TOKEN: tuple[int, tuple[int, ...]] = (enum("PJRT_Buffer_Type")["TOKEN"], ())  # the element type and shape of a token


def token(device: Any) -> Buffer:
    """A token, which orders effects for JAX; here every program ends before the next begins, so it holds nothing."""
    import numpy

    buffer = Buffer.of(numpy.zeros((), bool), device)
    buffer.cell.type = TOKEN[0]
    return buffer


def host_array(address: int, element: DType, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> Any:
    """The caller's memory as a NumPy array, for as long as the caller keeps it. ``strides`` in bytes; ``None``: row-major."""
    import numpy

    wanted = element.numpy
    if 0 in shape:
        return numpy.empty(shape, wanted)
    if strides is None:
        raw = (ctypes.c_char * (math.prod(shape) * wanted.itemsize)).from_address(address)
        return numpy.frombuffer(raw, wanted).reshape(shape)
    low = sum(s * (d - 1) for s, d in zip(strides, shape, strict=True) if s < 0)
    high = sum(s * (d - 1) for s, d in zip(strides, shape, strict=True) if s > 0) + wanted.itemsize
    raw = (ctypes.c_char * (high - low)).from_address(address + low)
    return numpy.ndarray(shape, wanted, raw, -low, strides)
