"""A module on disk: the text in ``m.nir`` and, beside it, the weights in ``m.safetensors``.

Both are written to a temporary name and moved into place. Arrays are streamed from where they lie and read as read-only views of
the mapped file, so weights exist once. An array that several names share is stored once; the others are listed as aliases.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from neuron_ir.attrs import Resource
from neuron_ir.core import Module
from neuron_ir.diagnostics import IRError, fail
from neuron_ir.dtypes import DType, dtype, dtype_of_numpy, dtype_of_torch, is_dtype
from neuron_ir.files import encoded, write_together, write_whole
from neuron_ir.types import TensorType

__all__ = [
    "bind_weights", "element_type", "load", "read_weights", "save", "to_numpy", "weight_names", "weights_path", "write_weights",
]  # fmt: skip

ALIASES, DTYPES = "neuron_ir.aliases", "neuron_ir.dtypes"  # keys of the safetensors metadata

# The names that the safetensors format has for element types; others are stored as bytes, with their type in the metadata.
_SAFETENSORS = {
    "bool": "BOOL", "u8": "U8", "i8": "I8", "i16": "I16", "u16": "U16", "i32": "I32", "u32": "U32", "i64": "I64", "u64": "U64",
    "f8e5m2": "F8_E5M2", "f8e4m3fn": "F8_E4M3", "f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64", "c64": "C64",
}  # fmt: skip
_FROM_SAFETENSORS = {v: k for k, v in _SAFETENSORS.items()}


def _is_torch(array: Any) -> bool:
    return hasattr(array, "untyped_storage")


def to_numpy(array: Any) -> Any:
    """A numpy view of a numpy, torch or JAX array on the host; copied only where it is not contiguous."""
    if not _is_torch(array):
        import numpy

        return numpy.asarray(array)
    import torch

    element = _torch_dtype(array)
    if array.device.type == "meta" or array.layout is not torch.strided:
        raise fail("weights", f"a torch tensor of layout {array.layout} on {array.device} has no values in memory to write")
    flat = array.detach().cpu().contiguous().reshape(-1)
    if flat.is_conj() or flat.is_neg():
        flat = flat.resolve_conj().resolve_neg()
    return flat.view(torch.uint8).numpy().view(element.numpy).reshape(tuple(array.shape))


def _torch_dtype(tensor: Any) -> DType:
    try:
        return dtype_of_torch(tensor.dtype)
    except KeyError:
        name = str(tensor.dtype).removeprefix("torch.")
        raise fail("weights", f"a torch tensor of dtype {name} cannot be a weight") from None


def element_type(array: Any) -> DType:
    """The element type of a weight."""
    return _torch_dtype(array) if _is_torch(array) else dtype_of_numpy(to_numpy(array).dtype)


# --- writing ----------------------------------------------------------------------------------------------------------


def weights_path(path: str | Path) -> Path:
    """Where the weights of the module in ``path`` lie; raises :class:`IRError` (``file``) where ``path`` names no file."""
    try:
        return Path(path).with_suffix(".safetensors")
    except ValueError:
        raise fail("file", f"{str(path)!r} is no name of a file") from None


def weight_names(module: Module) -> dict[str, TensorType]:
    """The weights that the program uses, with the type that each must have."""
    names: dict[str, TensorType] = {}
    for func in module.funcs.values():
        for arg, attrs in zip(func.args, func.arg_attrs, strict=True):
            if isinstance(attrs.get("weight"), str):
                names[attrs["weight"]] = arg.type
    for op in module.walk():
        if op.name == "neuron.constant" and isinstance(op.get("value"), Resource):
            names[str(op.get("value"))] = op.result.type
    return names


def save(module: Module, path: str | Path, locations: bool = True) -> None:
    """Write the text to ``path`` and the weights that the program uses, if any, beside it, each whole or not at all.

    Neither appears before both are complete: the text of one program beside the weights of another would be read as a third.

    Raises :class:`IRError`: ``weights`` where one that the program uses is not bound, ``file`` where a file cannot be written.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        raise fail("file", f"{path} would hold both the text and the weights; name it .nir")
    names = weight_names(module)
    if module.weights:
        missing = sorted(names.keys() - module.weights.keys())
        if missing:
            raise fail("weights", f"the program uses {len(missing)} weight(s) that are not bound: {', '.join(missing[:5])}")
    text = (path, [encoded(module.text(locations), path)])
    weights = [(weights_path(path), _chunks({name: module.weights[name] for name in names}))] if module.weights else []
    write_together([*weights, text])


def write_weights(path: str | Path, weights: dict[str, Any]) -> None:
    """Write arrays to a ``.safetensors`` file, whole or not at all, without a second copy in memory."""
    write_whole(path, _chunks(weights))


def _chunks(weights: dict[str, Any]) -> Iterator[Any]:
    """The pieces of a ``.safetensors`` file."""
    stored, aliases, exotic = _distinct(weights)
    header: dict[str, Any] = {}
    metadata = {}
    if aliases:
        metadata[ALIASES] = json.dumps(aliases, sort_keys=True)
    if exotic:
        metadata[DTYPES] = json.dumps(exotic, sort_keys=True)
    if metadata:
        header["__metadata__"] = metadata
    offset = 0
    for name, array in stored.items():
        element, shape = element_type(array), [int(d) for d in array.shape]
        width = element.numpy.itemsize
        size = math.prod(shape) * width
        known = _SAFETENSORS.get(element.name)
        entry = {"dtype": known, "shape": shape} if known else {"dtype": "U8", "shape": [*shape, width]}
        header[name] = {**entry, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    yield len(text).to_bytes(8, "little") + text
    for array in stored.values():
        yield _bytes(array)


def _distinct(weights: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    """The arrays to store, largest alignment first; the names that share one of them; the types that the format does not know."""
    stored: dict[str, Any] = {}
    first: dict[Any, str] = {}
    aliases: dict[str, str] = {}
    for name, array in weights.items():
        earlier = first.setdefault(_identity(array), name)
        if earlier == name:
            stored[name] = array
        else:
            aliases[name] = earlier
    exotic = {n: element_type(a).name for n, a in stored.items() if element_type(a).name not in _SAFETENSORS}
    order = sorted(stored, key=lambda n: (-element_type(stored[n]).numpy.itemsize, n))
    return {n: stored[n] for n in order}, aliases, exotic


def _identity(array: Any) -> Any:
    """Equal for two arrays that are the same elements of the same memory."""
    if _is_torch(array):
        return array.data_ptr(), tuple(array.shape), array.stride(), str(array.dtype), array.is_conj(), array.is_neg()
    if hasattr(array, "__array_interface__"):
        return array.__array_interface__["data"][0], array.shape, array.strides, str(array.dtype)
    return id(array)


def _bytes(array: Any) -> memoryview:
    import numpy

    flat = numpy.ascontiguousarray(to_numpy(array)).reshape(-1)
    return flat.view(numpy.uint8).data if flat.size else memoryview(b"")


# --- reading ----------------------------------------------------------------------------------------------------------


def load(path: str | Path, verify: bool = True) -> Module:
    """The module in ``path`` with the weights beside it.

    Raises :class:`IRError`: ``file`` and the parser's and verifier's codes for the text; ``weights`` where the file beside it is
    missing, damaged, or does not hold what the program uses.
    """
    from neuron_ir.parser import parse_file

    module = parse_file(path)
    if verify:
        module.verify()
    bind_weights(module, weights_path(path))
    return module


def bind_weights(module: Module, path: Path) -> None:
    """Read the weights that ``module`` uses from ``path`` into ``module.weights``; nothing happens where it uses none."""
    names = weight_names(module)
    if not names:
        return
    if not path.exists():
        raise fail("weights", f"the program uses {len(names)} weight(s), but there is no file {path}")
    found = read_weights(path)
    for name, wanted in names.items():
        if name not in found:
            raise fail("weights", f"{path} has no weight {name!r} of type {wanted}")
        array = found[name]
        has = TensorType(array.shape, dtype_of_numpy(array.dtype))
        same_storage = has.dtype.numpy == wanted.dtype.numpy  # tf32 is stored as f32
        if not same_storage or has.shape != wanted.shape:
            raise fail("weights", f"{path} has the weight {name!r} as {has}, but the program needs {wanted}")
    module.weights = {name: found[name] for name in names}


def read_weights(path: str | Path) -> dict[str, Any]:
    """All arrays of a ``.safetensors`` file, as read-only views of the mapped file."""
    try:
        with open(path, "rb") as file:
            return _read(Path(path), file)
    except OSError as error:
        raise fail("weights", f"cannot read {path}: {error.strerror or error}") from None


def _read(path: Path, file: BinaryIO) -> dict[str, Any]:
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise _damaged(path, f"it ends inside its header ({size} bytes)")
    try:
        header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", {})
        aliases, exotic = json.loads(metadata.get(ALIASES, "{}")), json.loads(metadata.get(DTYPES, "{}"))
        if not all(isinstance(x, dict) for x in (header, aliases, exotic)):
            raise ValueError("not a table")
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise _damaged(path, f"its header is not the JSON of a safetensors file ({str(error)[:80]})") from None
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    arrays = {name: _view(path, data, 8 + length, name, entry, exotic.get(name)) for name, entry in header.items()}
    for name, target in aliases.items():
        if not isinstance(target, str) or target not in arrays:
            raise _damaged(path, f"{name!r} is an alias of {target!r}, which is not there")
        arrays[name] = arrays[target]
    return arrays


def _view(path: Path, data: Any, base: int, name: str, entry: Any, exotic: str | None) -> Any:
    """One array as a view of the mapped file."""
    import numpy

    try:
        shape, (begin, end), code = tuple(entry["shape"]), entry["data_offsets"], entry["dtype"]
        if not all(isinstance(n, int) and n >= 0 for n in (*shape, begin, end)):
            raise ValueError("a size is not a number")
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"the entry of {name!r} is malformed ({error})") from None
    if exotic is not None and isinstance(exotic, str) and is_dtype(exotic):
        shape, element = shape[:-1], dtype(exotic)
    elif exotic is None and isinstance(code, str) and code in _FROM_SAFETENSORS:
        element = dtype(_FROM_SAFETENSORS[code])
    else:
        raise fail("weights", f"{path}: the weight {name!r} has the element type {exotic or code}, which is not known")
    count = math.prod(shape)
    if end - begin != count * element.numpy.itemsize:
        raise _damaged(
            path, f"{name!r} has {end - begin} bytes where {list(shape)} x {element} takes {count * element.numpy.itemsize}"
        )
    if base + end > len(data):
        raise _damaged(path, f"it ends inside {name!r}: {len(data)} bytes where at least {base + end} are needed")
    try:
        return numpy.frombuffer(data, element.numpy, count, base + begin).reshape(shape)
    except ValueError as error:  # an empty array of sizes beyond what numpy counts
        raise _damaged(path, f"{name!r} is {list(shape)} x {element} ({error})") from None


def _damaged(path: Path, reason: str) -> IRError:
    return fail("weights", f"{path} is damaged: {reason}")
