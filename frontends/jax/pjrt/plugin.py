"""The table of functions that JAX calls, and the capsule in which it gets them.

Functions here are Python: what compiles, moves and runs. Each takes the structure of its arguments and fills it; an exception
becomes a PJRT error in one place, :func:`_callback`. What JAX reads or destroys is machine code (see :mod:`native`), and what this
plugin does not offer answers with an error of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from neuron_ir.diagnostics import IRError
from neuron_ir.frontends.jax.pjrt.abi import FUNCTIONS, VERSION, enum, struct
from neuron_ir.frontends.jax.pjrt.buffers import Buffer, element_type, host_array
from neuron_ir.frontends.jax.pjrt.cells import Cell, arguments, named_values, text
from neuron_ir.frontends.jax.pjrt.devices import Client, wanted_devices
from neuron_ir.frontends.jax.pjrt.native import function_addresses, native
from neuron_ir.frontends.jax.pjrt.programs import LoadedExecutable, compile_program, load_program

__all__ = ["capsule", "client"]

_CALLBACKS: dict[str, Callable[[Any], None]] = {}
_CLIENT: list[Client] = []  # the one client of this process
_HLO = ctypes.create_string_buffer(b"hlo_with_config")  # the name of the format of optimised programs


def _callback(function: Callable[[Any], None]) -> Callable[[Any], None]:
    _CALLBACKS[f"PJRT_{function.__name__}"] = function
    return function


def client() -> Client:
    """The client, once JAX has made it."""
    return _CLIENT[0]


def _error(code: str, message: str) -> Cell:
    return Cell("Error", code=enum("PJRT_Error_Code")[code], message=message)


# --- the client ---


@_callback
def Plugin_Attributes(args: Any) -> None:
    args.attributes, args.num_attributes = None, 0


@_callback
def Client_Create(args: Any) -> None:
    if not _CLIENT:
        _CLIENT.append(Client(wanted_devices()))
    args.client = client().address


@_callback
def Client_LookupDevice(args: Any) -> None:
    args.device = client().devices[args.id].address


@_callback
def Client_LookupAddressableDevice(args: Any) -> None:
    args.addressable_device = client().devices[args.local_hardware_id].address


@_callback
def Client_DefaultDeviceAssignment(args: Any) -> None:
    count = args.num_replicas * args.num_partitions
    if count > min(len(client().devices), args.default_assignment_size):
        raise ValueError(f"{count} devices are needed, {len(client().devices)} are here")
    (ctypes.c_int * count).from_address(args.default_assignment)[:] = range(count)


@_callback
def Device_MemoryStats(args: Any) -> None:
    there = client()
    there.sweep()
    sizes = [
        b.cell.on_device_size_in_bytes
        for b in list(there.live.values())
        if isinstance(b, Buffer) and b.owner is not None and b.device.address == args.device
    ]
    args.bytes_in_use, args.num_allocs, args.num_allocs_is_set = sum(sizes), len(sizes), True
    for name, _ in args._fields_:
        if name.endswith("_is_set") and name != "num_allocs_is_set":
            setattr(args, name, False)


# --- buffers ---


@_callback
def Client_BufferFromHostBuffer(args: Any) -> None:
    there = client()
    there.sweep()
    shape = _ints(args.dims, args.num_dims)
    strides = _ints(args.byte_strides, args.num_byte_strides) if args.byte_strides and args.num_byte_strides else None
    view = host_array(args.data, element_type(args.type), shape, strides)
    device = there.device_at(args.device, args.memory)
    args.buffer = there.add(Buffer.of(there.host.put(view, device.index), device))
    args.done_with_host_buffer = device.ready.address


@_callback
def Client_CreateUninitializedBuffer(args: Any) -> None:
    import numpy

    there = client()
    device = there.device_at(args.device, args.memory)
    zeros = numpy.zeros(_ints(args.shape_dims, args.shape_num_dims), element_type(args.shape_element_type).numpy)
    args.buffer = there.add(Buffer.of(there.host.put(zeros, device.index), device))


@_callback
def Buffer_ToHostBuffer(args: Any) -> None:
    import numpy

    buffer = _buffer(args.src)
    source = numpy.asarray(buffer.array())
    if not args.dst:
        args.dst_size = source.nbytes
        return
    target = host_array(args.dst, element_type(buffer.cell.type), source.shape, _host_strides(args.host_layout, source))
    numpy.copyto(target, source)
    args.event = buffer.device.ready.address


@_callback
def Buffer_CopyRawToHost(args: Any) -> None:
    import numpy

    buffer = _buffer(args.buffer)
    raw = numpy.ascontiguousarray(numpy.asarray(buffer.array())).view(numpy.uint8).reshape(-1)
    ctypes.memmove(args.dst, raw[args.offset :].ctypes.data, args.transfer_size)
    args.event = buffer.device.ready.address


@_callback
def Buffer_UnsafePointer(args: Any) -> None:
    args.buffer_pointer = _buffer(args.buffer).array().unsafe_buffer_pointer()


@_callback
def Buffer_OpaqueDeviceMemoryDataPointer(args: Any) -> None:
    args.device_memory_ptr = _buffer(args.buffer).array().unsafe_buffer_pointer()


@_callback
def Buffer_Delete(args: Any) -> None:
    _buffer(args.buffer).delete()


@_callback
def Buffer_CopyToDevice(args: Any) -> None:
    args.dst_buffer = _copied(_buffer(args.buffer), args.dst_device)


@_callback
def Buffer_CopyToMemory(args: Any) -> None:
    args.dst_buffer = _copied(_buffer(args.buffer), args.dst_memory)


def _copied(buffer: Buffer, place: int) -> int:
    there = client()
    device = there.by_address[place]
    return there.add(Buffer.of(there.host.move(buffer.array(), device.index), device))


def _buffer(address: int) -> Buffer:
    buffer = client().live[address]
    assert isinstance(buffer, Buffer)
    return buffer


def _ints(address: int | None, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_int64 * count).from_address(address)) if count and address else ()


def _host_strides(address: int | None, source: Any) -> tuple[int, ...] | None:
    """The byte strides of the memory that a caller wants filled; ``None``: row-major."""
    if not address:
        return None
    layout = struct("PJRT_Buffer_MemoryLayout").from_address(address)
    if layout.type == enum("PJRT_Buffer_MemoryLayout_Type")["Strides"]:
        return _ints(layout.strides.byte_strides, layout.strides.num_byte_strides)
    order = _ints(layout.tiled.minor_to_major, layout.tiled.minor_to_major_size)
    strides, step = [0] * source.ndim, source.itemsize
    for axis in order:
        strides[axis] = step
        step *= source.shape[axis]
    return tuple(strides)


# --- programs ---


@_callback
def Client_Compile(args: Any) -> None:
    there = client()
    there.sweep()
    program = struct("PJRT_Program").from_address(args.program)
    form = ctypes.string_at(program.format, program.format_size)
    if form != b"mlir":
        raise ValueError(f"a program in the format {form.decode(errors='replace')!r}; StableHLO (mlir) is needed")
    code = ctypes.string_at(program.code, program.code_size)
    args.executable = there.add(compile_program(there, code, ctypes.string_at(args.compile_options, args.compile_options_size)))


@_callback
def Executable_Serialize(args: Any) -> None:
    cell = client().live[args.executable]
    data = cell.owner.serialised()
    args.serialized_bytes = args.serialized_executable = text(data, cell.kept)  # freed with the executable's handle
    args.serialized_bytes_size = len(data)
    args.serialized_executable_deleter = native().address("succeed")


@_callback
def Executable_DeserializeAndLoad(args: Any) -> None:
    there = client()
    there.sweep()
    options = args.overridden_serialized_compile_options
    given = ctypes.string_at(options, args.overridden_serialized_compile_options_size) if options else b""
    data = ctypes.string_at(args.serialized_executable, args.serialized_executable_size)
    args.loaded_executable = there.add(load_program(there, data, given))


@_callback
def LoadedExecutable_GetExecutable(args: Any) -> None:
    args.executable = client().add(_program(args.loaded_executable).executable())


@_callback
def Executable_OptimizedProgram(args: Any) -> None:
    program = struct("PJRT_Program").from_address(args.program)
    owner = client().live[args.executable].owner
    code = owner.optimised()
    program.format, program.format_size = ctypes.addressof(_HLO), len(_HLO) - 1
    if program.code:  # the second call, with room for the text
        ctypes.memmove(program.code, code, len(code))
    program.code_size = len(code)


@_callback
def Executable_GetCostAnalysis(args: Any) -> None:
    cell = client().live[args.executable]
    args.properties, args.num_properties = named_values(cell.owner.cost(), cell.kept)


@_callback
def Executable_GetCompiledMemoryStats(args: Any) -> None:
    figures = client().live[args.executable].owner.memory()
    for name, _ in args._fields_[3:]:
        setattr(args, name, figures.get(name, 0))


@_callback
def LoadedExecutable_Delete(args: Any) -> None:
    _program(args.executable).cell.is_deleted = True


@_callback
def LoadedExecutable_Execute(args: Any) -> None:
    there = client()
    there.sweep()
    live = there.live
    program: Any = live[args.executable]
    count = args.num_devices
    lists = (
        [[live[h] for h in program.arguments.from_address(a)] for a in _pointers(args.argument_lists, count)]
        if args.num_args
        else []
    )
    options = struct("PJRT_ExecuteOptions").from_address(args.options)
    kept = _ints(options.non_donatable_input_indices, options.num_non_donatable_input_indices)
    results = program.execute(lists or [[]] * count, kept)
    if results[0]:
        for place, own in zip(_pointers(args.output_lists, count), results, strict=True):
            program.results.from_address(place)[:] = [there.add(b) for b in own]
    if args.device_complete_events:
        _pointers(args.device_complete_events, count)[:] = [program.device.ready.address] * count


_pointer = ctypes.c_size_t
_forms: dict[int, Any] = {}


def _pointers(address: int, count: int) -> Any:
    """The addresses, one per device, that lie at an address."""
    form = _forms.get(count)
    if form is None:
        form = _forms[count] = _pointer * count
    return form.from_address(address)


def _program(address: int) -> LoadedExecutable:
    program = client().live[address]
    assert isinstance(program, LoadedExecutable)
    return program


# --- the table ---


@cache
def _table() -> tuple[Any, list[Any]]:
    """The structure that JAX reads, and all that must outlive it."""
    form = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    addresses = function_addresses()
    kept: list[Any] = []
    for name in FUNCTIONS:
        if name in addresses:
            continue
        run = form(_answering(name, _CALLBACKS[name]) if name in _CALLBACKS else _refusing(name))
        kept.append(run)
        addresses[name] = ctypes.cast(run, ctypes.c_void_p).value or 0
    table = struct("PJRT_Api")()
    table.struct_size = ctypes.sizeof(table)
    version = table.version
    version.struct_size = ctypes.sizeof(version)
    version.major_version, version.minor_version = VERSION
    for name in FUNCTIONS:
        setattr(table, name, addresses[name])
    return table, kept


def _answering(name: str, function: Callable[[Any], None]) -> Callable[[int], int | None]:
    """A function of the table: nothing where it succeeds, a new error's handle where it raises."""
    read = arguments(name).from_address

    def answer(address: int) -> int | None:
        try:
            function(read(address))
        except IRError as error:
            return _told(_error("UNIMPLEMENTED" if error.code == "unsupported" else "INVALID_ARGUMENT", str(error)))
        except MemoryError as error:
            return _told(_error("RESOURCE_EXHAUSTED", str(error)))
        except BaseException as error:
            code, _, message = str(error).partition(": ")
            if message and code in enum("PJRT_Error_Code"):  # an error of the host's own client, such as RESOURCE_EXHAUSTED
                return _told(_error(code, message))
            return _told(_error("INTERNAL", f"{name}: {type(error).__name__}: {error}"))
        return None

    return answer


def _refusing(name: str) -> Callable[[int], int]:
    message = f"{name} is not offered by the neuron platform"
    return lambda _: _told(_error("UNIMPLEMENTED", message))


_early: list[Cell] = []  # errors from before there is a client


def _told(error: Cell) -> int:
    if not _CLIENT:
        _early.append(error)
        return error.address
    return client().add(error)


@cache
def capsule() -> Any:
    """The table as the capsule ``pjrt_c_api`` that JAX takes; it lives as long as the process."""
    table, _ = _table()
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(table), _NAME, None)


_NAME = b"pjrt_c_api"  # the capsule keeps this address, not a copy
