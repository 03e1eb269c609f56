"""The functions of the plugin that are machine code, called as JAX calls them."""

from __future__ import annotations

import ctypes

import pytest

from neuron_ir.frontends.jax.pjrt import wire
from neuron_ir.frontends.jax.pjrt.abi import FUNCTIONS, enum, struct
from neuron_ir.frontends.jax.pjrt.cells import Cell, arguments
from neuron_ir.frontends.jax.pjrt.native import function_addresses, take_retired


def call(function: str, **fields: object) -> object:
    args = arguments(function)(**fields)
    form = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    assert not form(function_addresses()[function])(ctypes.addressof(args))
    return args


def test_structures_have_the_layout_of_the_c_header() -> None:
    # By the rules of C on a 64-bit machine: a size, a pointer to extensions, then the fields.
    assert [(n, getattr(struct("PJRT_Error_Message_Args"), n).offset) for n in ("error", "message", "message_size")] == [
        ("error", 16), ("message", 24), ("message_size", 32),
    ]  # fmt: skip
    assert struct("PJRT_Client_DefaultDeviceAssignment_Args").default_assignment_size.offset == 32  # after two ints
    assert ctypes.sizeof(struct("PJRT_Api")) == 16 + 24 + 8 * len(FUNCTIONS)
    assert enum("PJRT_Buffer_Type")["BF16"] == 13


def test_a_getter_copies_the_fields_of_the_cell() -> None:
    cell = Cell("Buffer", type=enum("PJRT_Buffer_Type")["F32"], dims=[2, 3, 5])
    args = call("PJRT_Buffer_Dimensions", buffer=cell.address)
    assert (ctypes.c_int64 * args.num_dims).from_address(args.dims)[:] == [2, 3, 5]
    assert call("PJRT_Buffer_ElementType", buffer=cell.address).type == 11
    error = Cell("Error", message="é", code=12)
    args = call("PJRT_Error_Message", error=error.address)
    assert ctypes.string_at(args.message, args.message_size).decode() == "é"


def test_what_dies_is_listed_once_and_static_cells_never() -> None:
    take_retired()
    cells, event = [Cell("Buffer") for _ in range(3)], Cell("Event", is_static=True)
    for cell in cells:
        call("PJRT_Buffer_Destroy", buffer=cell.address)
    call("PJRT_Event_Destroy", event=event.address)
    assert sorted(take_retired()) == sorted(c.address for c in cells)
    assert take_retired() == []


def test_references_from_outside_are_counted() -> None:
    cell = Cell("Buffer")
    for function, count in (("Increase", 1), ("Increase", 2), ("Decrease", 1), ("Decrease", 0)):
        call(f"PJRT_Buffer_{function}ExternalReferenceCount", buffer=cell.address)
        assert cell.cell.references == count


def test_an_event_calls_back_at_once_without_an_error() -> None:
    heard = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda error, user: heard.append((error, user)))
    address = ctypes.cast(callback, ctypes.c_void_p).value
    call("PJRT_Event_OnReady", callback=address, user_arg=7)
    assert heard == [(None, 7)]


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**40])
def test_numbers_of_protobuf(value: int) -> None:
    # 300 is 0xAC 0x02 in the encoding's own documentation; the rest by arithmetic: groups of seven bits, lowest first.
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    data = bytes([*(g | 0x80 for g in groups[:-1]), groups[-1]])
    assert wire.fields_of(b"\x08" + data) == [(1, value)]
    assert wire.numbers(wire.message(1, data + data)) == [value, value]
