"""The PJRT C API as ctypes structures, made from one table, ``abi.json``."""

from __future__ import annotations

import ctypes
import json
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["FUNCTIONS", "VERSION", "enum", "field_type", "struct"]

_TABLE = json.loads(Path(__file__).with_name("abi.json").read_text(encoding="utf-8"))

VERSION: tuple[int, int] = (_TABLE["version"]["major"], _TABLE["version"]["minor"])

# The functions of the table, in its order, after the three fields that say what it is.
FUNCTIONS: tuple[str, ...] = tuple(_TABLE["structs"]["PJRT_Api"][3:])

_SCALARS: dict[str, Any] = {
    "int": ctypes.c_int, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t, "uintptr_t": ctypes.c_size_t, "intptr_t": ctypes.c_ssize_t,
    "bool": ctypes.c_bool, "float": ctypes.c_float,
}  # fmt: skip


def enum(name: str) -> dict[str, int]:
    """The values of an enum, by name without the enum's own name."""
    return {key.removeprefix(f"{name}_"): value for key, value in _TABLE["enums"][name].items()}


@cache
def struct(name: str) -> Any:
    """The structure of that name, its fields as in the C header."""
    if name == "PJRT_Api":
        head = [("struct_size", ctypes.c_size_t), ("extension_start", ctypes.c_void_p), ("version", struct("PJRT_Api_Version"))]
        return _made(name, [*head, *((function, ctypes.c_void_p) for function in FUNCTIONS)])
    return _made(name, [(field, field_type(kind)) for field, kind in _TABLE["structs"][name]])


def field_type(kind: Any) -> Any:
    """The ctypes type of a field: enums are ints, structures stand in place, whatever else is an address."""
    if isinstance(kind, dict):
        return type("Union", (ctypes.Union,), {"_fields_": [(name, field_type(k)) for name, k in kind["union"]]})
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind in _TABLE["enums"]:
        return ctypes.c_int
    return struct(kind) if kind in _TABLE["structs"] else ctypes.c_void_p


def _made(name: str, fields: list[tuple[Any, Any]]) -> Any:
    named = [(field or "value", kind) for field, kind in fields]  # an anonymous union gets a name
    anonymous = ["value"] if any(field is None for field, _ in fields) else []
    return type(name, (ctypes.Structure,), {"_anonymous_": anonymous, "_fields_": named})
