"""Handles: each is the address of a small structure, a cell, whose fields answer the questions that JAX asks most.

A function of the API that only reads, such as ``PJRT_Buffer_Dimensions``, copies fields of the cell to the fields of the same names
in its arguments; ``GETTERS`` lists these functions, and :mod:`native` generates them. No Python runs when one of them is called.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from neuron_ir.frontends.jax.pjrt.abi import enum, field_type, struct

__all__ = ["CELLS", "GETTERS", "RETIRED", "Cell", "arguments", "array_of", "cell_type", "named_values", "text"]

_HEAD: dict[str, Any] = {"next": "void*", "is_static": "bool"}

CELLS: dict[str, dict[str, Any]] = {
    "Error": {"message": "char*", "message_size": "size_t", "code": "PJRT_Error_Code"},
    "Event": {"is_ready": "bool"},
    "Client": {
        "platform_name": "char*", "platform_name_size": "size_t", "process_index": "int",
        "platform_version": "char*", "platform_version_size": "size_t", "topology": "void*",
        "devices": "void*", "num_devices": "size_t", "addressable_devices": "void*", "num_addressable_devices": "size_t",
        "addressable_memories": "void*", "num_addressable_memories": "size_t",
    },
    "Topology": {
        "platform_name": "char*", "platform_name_size": "size_t", "platform_version": "char*", "platform_version_size": "size_t",
        "descriptions": "void*", "num_descriptions": "size_t", "attributes": "void*", "num_attributes": "size_t",
    },
    "DeviceDescription": {
        "id": "int", "process_index": "int", "num_attributes": "size_t", "attributes": "void*",
        "device_kind": "char*", "device_kind_size": "size_t", "debug_string": "char*", "debug_string_size": "size_t",
        "to_string": "char*", "to_string_size": "size_t",
    },
    "Device": {
        "device_description": "void*", "is_addressable": "bool", "local_hardware_id": "int",
        "memories": "void*", "num_memories": "size_t", "memory": "void*",
    },
    "Memory": {
        "id": "int", "kind": "char*", "kind_size": "size_t", "kind_id": "int",
        "debug_string": "char*", "debug_string_size": "size_t", "to_string": "char*", "to_string_size": "size_t",
        "devices": "void*", "num_devices": "size_t",
    },
    "Executable": {
        "executable_name": "char*", "executable_name_size": "size_t", "num_replicas": "size_t", "num_partitions": "size_t",
        "num_outputs": "size_t", "size_in_bytes": "int64_t",
        "executable_fingerprint": "char*", "executable_fingerprint_size": "size_t",
        "output_types": "void*", "num_output_types": "size_t", "dims": "void*", "dim_sizes": "void*",
        "memory_kinds": "void*", "memory_kind_sizes": "void*",
    },
    "LoadedExecutable": {
        "addressable_devices": "void*", "num_addressable_devices": "size_t", "is_deleted": "bool",
        "serialized_bytes": "char*", "serialized_bytes_size": "size_t", "serialized_device_assignment": "void*",
        "serialized_device_assignment_deleter": "fnptr", "executable_fingerprint": "char*", "executable_fingerprint_size": "size_t",
    },
    "Buffer": {
        "type": "PJRT_Buffer_Type", "dims": "int64_t*", "num_dims": "size_t", "unpadded_dims": "int64_t*",
        "dynamic_dim_indices": "size_t*", "num_dynamic_dims": "size_t", "layout": "PJRT_Buffer_MemoryLayout",
        "on_device_size_in_bytes": "size_t", "device": "void*", "memory": "void*", "is_deleted": "bool", "is_on_cpu": "bool",
        "event": "void*", "references": "int64_t",
    },
}  # fmt: skip

# Functions that copy fields of the cell of that kind.
GETTERS: dict[str, tuple[str, ...]] = {
    "Error": ("PJRT_Error_Message", "PJRT_Error_GetCode"),
    "Event": ("PJRT_Event_IsReady",),
    "Client": (
        "PJRT_Client_PlatformName", "PJRT_Client_ProcessIndex", "PJRT_Client_PlatformVersion", "PJRT_Client_Devices",
        "PJRT_Client_AddressableDevices", "PJRT_Client_AddressableMemories", "PJRT_Client_TopologyDescription",
    ),
    "Topology": (
        "PJRT_TopologyDescription_PlatformName", "PJRT_TopologyDescription_PlatformVersion",
        "PJRT_TopologyDescription_GetDeviceDescriptions", "PJRT_TopologyDescription_Attributes",
    ),
    "DeviceDescription": (
        "PJRT_DeviceDescription_Id", "PJRT_DeviceDescription_ProcessIndex", "PJRT_DeviceDescription_Attributes",
        "PJRT_DeviceDescription_Kind", "PJRT_DeviceDescription_DebugString", "PJRT_DeviceDescription_ToString",
    ),
    "Device": (
        "PJRT_Device_GetDescription", "PJRT_Device_IsAddressable", "PJRT_Device_LocalHardwareId",
        "PJRT_Device_AddressableMemories", "PJRT_Device_DefaultMemory",
    ),
    "Memory": (
        "PJRT_Memory_Id", "PJRT_Memory_Kind", "PJRT_Memory_Kind_Id", "PJRT_Memory_DebugString", "PJRT_Memory_ToString",
        "PJRT_Memory_AddressableByDevices",
    ),
    "Executable": (
        "PJRT_Executable_Name", "PJRT_Executable_NumReplicas", "PJRT_Executable_NumPartitions", "PJRT_Executable_NumOutputs",
        "PJRT_Executable_SizeOfGeneratedCodeInBytes", "PJRT_Executable_Fingerprint", "PJRT_Executable_OutputElementTypes",
        "PJRT_Executable_OutputDimensions", "PJRT_Executable_OutputMemoryKinds",
    ),
    "LoadedExecutable": (
        "PJRT_LoadedExecutable_AddressableDevices", "PJRT_LoadedExecutable_IsDeleted", "PJRT_LoadedExecutable_Fingerprint",
        "PJRT_LoadedExecutable_GetDeviceAssignment",
    ),
    "Buffer": (
        "PJRT_Buffer_ElementType", "PJRT_Buffer_Dimensions", "PJRT_Buffer_UnpaddedDimensions",
        "PJRT_Buffer_DynamicDimensionIndices", "PJRT_Buffer_GetMemoryLayout", "PJRT_Buffer_OnDeviceSizeInBytes",
        "PJRT_Buffer_Device", "PJRT_Buffer_Memory",
        "PJRT_Buffer_IsDeleted", "PJRT_Buffer_IsOnCpu", "PJRT_Buffer_ReadyEvent",
    ),
}  # fmt: skip

# Functions that end a handle's life: they only put the cell on a list (see :mod:`native`), from which Python takes it later.
RETIRED = (
    "PJRT_Error_Destroy", "PJRT_Event_Destroy", "PJRT_Buffer_Destroy", "PJRT_Executable_Destroy", "PJRT_LoadedExecutable_Destroy",
)  # fmt: skip


@cache
def cell_type(kind: str) -> Any:
    """The structure of the cells of one kind."""
    fields = [(name, field_type(type_)) for name, type_ in (_HEAD | CELLS[kind]).items()]
    return type(f"{kind}Cell", (ctypes.Structure,), {"_fields_": fields})


class Cell:
    """One handle and what it stands for. Keeps everything alive that its fields point to."""

    __slots__ = ("address", "cell", "kept", "owner")

    def __init__(self, kind: str, /, owner: Any = None, *, is_static: bool = False, **fields: Any):
        self.kept: list[Any] = []
        self.owner = owner
        self.cell = cell_type(kind)(is_static=is_static)
        self.address = ctypes.addressof(self.cell)
        self.set(**fields)

    def set(self, **fields: Any) -> None:
        """Fill fields: text with its ``_size``; a list of cells or numbers with its ``num_``; numbers as they are."""
        for name, value in fields.items():
            if isinstance(value, str | bytes):
                value = value.encode() if isinstance(value, str) else value
                setattr(self.cell, name, text(value, self.kept))
                setattr(self.cell, f"{name}_size", len(value))
            elif isinstance(value, list):
                setattr(self.cell, name, array_of(value, self.kept))
                setattr(self.cell, f"num_{name}", len(value))
            else:
                setattr(self.cell, name, value)


def text(value: bytes, kept: list[Any]) -> int:
    """The address of a copy of ``value``, alive as long as ``kept``."""
    buffer = ctypes.create_string_buffer(value, len(value) + 1)
    kept.append(buffer)
    return ctypes.addressof(buffer)


def array_of(items: list[Any], kept: list[Any], kind: Any = None) -> int:
    """The address of an array of the cells' addresses, or of numbers of a ctypes type (default ``int64_t``)."""
    if items and isinstance(items[0], Cell):
        kept.extend(items)
        items, kind = [cell.address for cell in items], ctypes.c_void_p
    array = ((kind or ctypes.c_int64) * max(len(items), 1))(*items)
    kept.append(array)
    return ctypes.addressof(array)


def named_values(values: dict[str, float], kept: list[Any]) -> tuple[int, int]:
    """The address of an array of ``PJRT_NamedValue`` that are floats, alive as long as ``kept``, and its length."""
    form = struct("PJRT_NamedValue")
    array = (form * max(len(values), 1))()
    for item, (name, value) in zip(array, values.items(), strict=False):
        item.struct_size, item.name, item.name_size = ctypes.sizeof(form), text(name.encode(), kept), len(name)
        item.type, item.float_value, item.value_size = enum("PJRT_NamedValue_Type")["PJRT_NamedValue_kFloat"], value, 1
    kept.append(array)
    return ctypes.addressof(array), len(values)


def arguments(function: str) -> Any:
    """The structure of a function's arguments."""
    return struct(f"{function}_Args")
