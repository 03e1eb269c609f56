"""NumPy, torch and JAX arrays in and out of the reference accelerator, sharing memory wherever that is possible.

Torch is never imported here: a torch tensor can only be given by someone who has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from neuron_ir.backends.jax_cpu._compat import ALIGNMENT, address
from neuron_ir.diagnostics import fail
from neuron_ir.dtypes import DType, dtype, dtype_of_numpy

__all__ = [
    "HostMemory",
    "TORCH_BITS",
    "aligned_empty",
    "as_numpy",
    "as_torch",
    "host_view",
    "is_plain",
    "is_torch",
    "kind_of",
    "resident",
    "settle",
    "user_array",
    "writable",
    "write_back",
]

# Torch dtypes that numpy itself does not know: our name -> integer of the same width through which the bits go.
TORCH_BITS = {
    "bfloat16": ("bf16", "int16"),
    "float8_e4m3fn": ("f8e4m3fn", "uint8"),
    "float8_e4m3fnuz": ("f8e4m3fnuz", "uint8"),
    "float8_e5m2": ("f8e5m2", "uint8"),
    "float8_e5m2fnuz": ("f8e5m2fnuz", "uint8"),
    "float8_e8m0fnu": ("f8e8m0", "uint8"),
}
_TORCH_NAME = {ours: (name, bits) for name, (ours, bits) in TORCH_BITS.items()}


def is_torch(value: Any) -> bool:
    """Whether ``value`` is a torch tensor. False, without importing torch, in a process that has not imported it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def kind_of(values: Iterable[Any]) -> str:
    """The kind of array to give back: ``"torch"`` if any input is torch, else ``"jax"`` if any is JAX, else ``"numpy"``."""
    kinds = {"torch" if is_torch(v) else "jax" if isinstance(v, jax.Array) else "numpy" for v in values}
    return next(k for k in ("torch", "jax", "numpy") if k in kinds or k == "numpy")


def host_view(value: Any) -> tuple[Any, DType]:
    """``value`` as an array that a jitted call takes as it is, and its element type. Memory is shared, views and strides included.

    NumPy and torch arrays come back as NumPy views, JAX arrays unchanged, Python and NumPy scalars as arrays of rank 0 (``float``
    as f32, ``int`` as i64, ``complex`` as c64). Raises :class:`TypeError`, which says what was given, for anything that cannot be
    viewed: a tensor on another device, a sparse or quantised one, an element type that the IR does not have.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise TypeError("a NumPy array with masked elements, which have no value; fill them first")
    if isinstance(value, np.ndarray):
        value = np.asarray(value)  # a subclass may mean something else by indexing, and JAX takes none
        return value if value.dtype.isnative else _swapped(value), _dtype_of(value.dtype)
    if isinstance(value, jax.Array):
        if value.is_deleted():
            raise TypeError("a JAX array that was donated or deleted")
        if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        return value, _dtype_of(value.dtype)
    if is_torch(value):
        return _torch_view(value)
    if isinstance(value, (bool, int, float, complex, np.generic)):
        return _scalar(value)
    raise TypeError(f"a {type(value).__module__}.{type(value).__qualname__}; NumPy, torch or JAX arrays are needed")


def _swapped(value: np.ndarray) -> np.ndarray:
    return value.astype(value.dtype.newbyteorder("="))


def _dtype_of(np_dtype: Any) -> DType:
    try:
        return dtype_of_numpy(np_dtype.newbyteorder("=") if isinstance(np_dtype, np.dtype) else np_dtype)
    except KeyError:
        raise TypeError(f"an array of {np_dtype}, an element type that the IR does not have") from None


def _scalar(value: Any) -> tuple[np.ndarray, DType]:
    types = {float: np.float32, complex: np.complex64, int: np.int64, bool: np.bool_}
    try:
        array = np.asarray(value, types.get(type(value)))
    except OverflowError:
        raise TypeError(f"the integer {value}, which does not fit 64 bits") from None
    return array, _dtype_of(array.dtype)


def _torch_view(tensor: Any) -> tuple[np.ndarray, DType]:
    torch = sys.modules["torch"]
    if tensor.device.type != "cpu":
        raise TypeError(f"a torch tensor on {tensor.device}; move it to the CPU first")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise TypeError(
            f"a torch tensor of layout {tensor.layout}{' (quantised)' if tensor.is_quantized else ''}; a dense one is needed"
        )
    name = str(tensor.dtype).removeprefix("torch.")
    plain = tensor.detach().resolve_conj().resolve_neg()
    if name not in TORCH_BITS:
        try:
            array = plain.numpy()
        except (TypeError, RuntimeError) as error:
            raise TypeError(f"a torch tensor of {tensor.dtype} that has no host view: {error}") from None
        return array, _dtype_of(array.dtype)
    ours, bits = TORCH_BITS[name]
    element = dtype(ours)
    return plain.view(getattr(torch, bits)).numpy().view(element.numpy), element


class HostMemory:
    """Gives NumPy a JAX array's memory, writable, and keeps it alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, owner: jax.Array, typestr: str, shape: tuple[int, ...]):
        self.owner = owner
        self.__array_interface__ = {"data": (address(owner), False), "shape": shape, "typestr": typestr, "version": 3}


def as_numpy(array: jax.Array) -> np.ndarray:
    """A result as a NumPy array on the same memory, writable.

    Only for arrays that nobody else holds: an output of a compiled program, never a weight or state. Sub-byte types are copied.
    """
    if not is_plain(array):
        return np.array(array)
    # The array protocol has no letters for ml_dtypes; plain bytes of that width are viewed as such afterwards.
    plain = array.dtype.kind in "biufc" and not str(array.dtype).startswith("float8")
    return np.asarray(HostMemory(array, array.dtype.str if plain else f"|V{array.dtype.itemsize}", array.shape)).view(array.dtype)


def is_plain(array: jax.Array) -> bool:
    """Whether the elements lie one behind the other in memory as NumPy has them, and there are any."""
    return _bits(array.dtype) >= 8 and array.size > 0 and _is_row_major(array)


def _bits(np_dtype: Any) -> int:
    return dtype_of_numpy(np_dtype).bits if np_dtype != np.dtype(bool) else 8


def _is_row_major(array: Any) -> bool:
    layout = array.format.layout
    return layout is None or tuple(layout.major_to_minor) == tuple(range(array.ndim))


def as_torch(array: jax.Array) -> Any:
    """A result as a torch tensor on the same memory; see :func:`as_numpy`. Raises :class:`IRError` where torch lacks the type."""
    import torch

    element = dtype_of_numpy(array.dtype)
    host = as_numpy(array)
    if element.name in _TORCH_NAME:
        name, bits = _TORCH_NAME[element.name]
        return torch.from_numpy(host.view(bits)).view(getattr(torch, name))
    try:
        return torch.from_numpy(host)
    except TypeError:
        raise fail("unsupported", f"torch has no element type for an output of {element}; call with NumPy arrays") from None


def user_array(array: jax.Array, kind: str) -> Any:
    """A result in the caller's kind of array: ``"numpy"``, ``"torch"`` or ``"jax"``; see :func:`kind_of`."""
    return array if kind == "jax" else as_torch(array) if kind == "torch" else as_numpy(array)


def resident(array: Any, device: Any = None) -> jax.Array:
    """A weight as a JAX array, for good, on the memory of ``array`` if that is row-major and starts at a multiple of 64 bytes.

    Torch's memory always does; NumPy's own does not, and is copied: make it with :func:`aligned_empty`.
    Callers hold 64-bit semantics (:func:`neuron_ir.meaning.x64`); a value narrowed by its absence is refused here.
    """
    bound = (
        array
        if isinstance(array, jax.Array) and device is None
        else jax.device_put(array, device or jax.local_devices(backend="cpu")[0])
    )
    if bound.dtype != array.dtype:
        raise fail("weights", f"a weight of {array.dtype} became {bound.dtype}: it was bound outside 64-bit semantics")
    return bound


def settle(results: Iterable[jax.Array], inputs: Iterable[Any]) -> None:
    """Wait for a program's results if it still reads the caller's memory: a large NumPy input is shared with a program that runs on
    after the call returns, and changing the array then changes the results. Programs of JAX arrays alone may run on.
    """
    if not all(isinstance(x, jax.Array) for x in inputs):
        for result in results:
            result.block_until_ready()


def aligned_empty(shape: tuple[int, ...], np_dtype: Any) -> np.ndarray:
    """An uninitialised NumPy array whose memory JAX shares."""
    wanted = np.dtype(np_dtype)
    size = int(np.prod(shape, dtype=np.int64)) * wanted.itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size].view(wanted).reshape(shape)


def write_back(target: Any, array: jax.Array) -> None:
    """Copy a program's new value of an input that it updates into the caller's own array, which :func:`writable` has seen."""
    if is_torch(target):
        target.detach().copy_(as_torch(array))
    else:
        np.copyto(target, np.asarray(array), casting="no" if target.dtype.isnative else "equiv")


def writable(target: Any, name: str, others: Mapping[str, Any]) -> None:
    """Refuse an input that a program updates where its new value could not be written, or would have to be seen in another input.

    Raises :class:`IRError` naming the input: a JAX array, a Python number, a read-only array, one whose elements share memory, or
    one that shares memory with one of ``others``, the rest of the inputs by name. A program computes with the values from before
    the call; the framework's own code would read the new ones there.
    """
    if is_torch(target):
        if _shares_elements(target.stride(), target.shape, 1):
            raise fail("input", f"input {name!r} is updated by the program, but its elements share memory (an expanded tensor)")
    else:
        _writable_array(target, name)
    memory = _memory(target)
    for other, value in others.items():
        if not isinstance(value, np.ndarray) and not is_torch(value):
            continue
        if _overlap(memory, _memory(value)):
            told = f"input {name!r} is updated by the program, but it shares memory with input {other!r}; give a copy of one"
            raise fail("input", told)


def _memory(value: Any) -> np.ndarray:
    return value if isinstance(value, np.ndarray) else _torch_view(value)[0]


def _overlap(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays have a byte in common; true also where that would take long to find out."""
    if not np.may_share_memory(one, other):
        return False
    try:
        return np.shares_memory(one, other, max_work=10_000)  # type: ignore[arg-type]  # NumPy's stub knows two of the numbers
    except np.exceptions.TooHardError:
        return True


def _shares_elements(strides: Sequence[int], shape: Sequence[int], width: int) -> bool:
    """Whether two elements of an array may lie at one place, from its strides; true also for some odd ones where none do."""
    reach = 0
    for stride, size in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride < reach + width:
            return 0 not in shape
        reach += stride * (size - 1)
    return False


def _writable_array(target: Any, name: str) -> None:
    if not isinstance(target, np.ndarray):
        what = "a JAX array" if isinstance(target, jax.Array) else f"a {type(target).__name__}"
        raise fail(
            "input", f"input {name!r} is updated by the program, but it is {what}, which cannot change; give a NumPy or torch array"
        )
    if not target.flags.writeable:
        raise fail("input", f"input {name!r} is updated by the program, but the array is read-only")
    if _shares_elements(target.strides, target.shape, target.itemsize):
        raise fail("input", f"input {name!r} is updated by the program, but its elements share memory (a broadcast array)")
