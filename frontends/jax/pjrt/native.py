"""The functions of the API that run while objects die, or for every call, as machine code.

They must not be Python. A temporary array can die while an exception is on its way, and a callback into Python at that moment
loses the exception or ends the process. So a handle that dies is only put on a list, by a compare-and-swap; Python takes the whole
list at its next turn. The code is LLVM's text form, compiled when the plugin starts.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from neuron_ir.frontends.jax.pjrt.cells import CELLS, GETTERS, RETIRED, arguments, cell_type

__all__ = ["function_addresses", "native", "take_retired"]

_HANDLE = 16  # offset of the handle in every function's arguments, after the size and the extensions

_RETIRE = """
@retired = internal global i64 0

define ptr @retire(ptr %args) {
  %place = getelementptr i8, ptr %args, i64 16
  %handle = load ptr, ptr %place
  %number = ptrtoint ptr %handle to i64
  %none = icmp eq i64 %number, 0
  br i1 %none, label %done, label %look
look:
  %flag = getelementptr i8, ptr %handle, i64 STATIC
  %static = load i8, ptr %flag
  %keep = icmp ne i8 %static, 0
  br i1 %keep, label %done, label %push
push:
  %head = load atomic i64, ptr @retired monotonic, align 8
  store i64 %head, ptr %handle
  %swapped = cmpxchg ptr @retired, i64 %head, i64 %number release monotonic
  %ok = extractvalue { i64, i1 } %swapped, 1
  br i1 %ok, label %done, label %push
done:
  ret ptr null
}

define i64 @take() {
  %head = atomicrmw xchg ptr @retired, i64 0 acquire
  ret i64 %head
}

define ptr @succeed(ptr %args) {
  ret ptr null
}

define ptr @call_back(ptr %args) {
  %f = getelementptr i8, ptr %args, i64 CALLBACK
  %callback = load ptr, ptr %f
  %u = getelementptr i8, ptr %args, i64 USER
  %user = load ptr, ptr %u
  call void %callback(ptr null, ptr %user)
  ret ptr null
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

_COUNT = """
define ptr @NAME(ptr %args) {
  %place = getelementptr i8, ptr %args, i64 16
  %handle = load ptr, ptr %place
  %count = getelementptr i8, ptr %handle, i64 REFERENCES
  %old = atomicrmw CHANGE ptr %count, i64 1 acq_rel
  ret ptr null
}
"""


class Native:
    """Machine code by name; ``take()`` gives the address of the first cell that died since the last call, or 0."""

    def __init__(self, engine: Any):
        self.engine = engine  # the code lives as long as the process: JAX may call it until the very end
        self.take = ctypes.CFUNCTYPE(ctypes.c_int64)(engine.get_function_address("take"))

    def address(self, function: str) -> int:
        """The address to put into the table of functions."""
        return int(self.engine.get_function_address(function))


@cache
def native() -> Native:
    """Compile the functions once per process. Raises ImportError where llvmlite is missing."""
    try:
        import llvmlite.binding as llvm
    except ImportError:
        raise ImportError("the neuron platform of JAX needs llvmlite: pip install 'neuron-ir[plugin]'") from None

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(_text())
    module.verify()
    engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine(opt=2))
    engine.finalize_object()
    return Native(engine)


def _text() -> str:
    head = cell_type("Event")
    ready = arguments("PJRT_Event_OnReady")
    text = _RETIRE.replace("STATIC", str(head.is_static.offset))
    count = _COUNT.replace("REFERENCES", str(cell_type("Buffer").references.offset))
    text += "".join(count.replace("NAME", name).replace("CHANGE", change) for name, change in (("hold", "add"), ("release", "sub")))
    text = text.replace("CALLBACK", str(ready.callback.offset)).replace("USER", str(ready.user_arg.offset))
    return text + "\n".join(_getter(function, kind) for kind, functions in GETTERS.items() for function in functions)


def _getter(function: str, kind: str) -> str:
    """A function that copies each field of its arguments after the handle from the cell's field of the same name."""
    args, cell = arguments(function), cell_type(kind)
    lines = [
        f"define ptr @{function}(ptr %args) {{",
        f"  %p = getelementptr i8, ptr %args, i64 {_HANDLE}",
        "  %h = load ptr, ptr %p",
    ]
    for i, (name, _) in enumerate(args._fields_[3:]):
        if name not in CELLS[kind]:
            raise KeyError(f"{function}: a {kind} has no field {name}")
        to, source = getattr(args, name), getattr(cell, name)
        if to.size != source.size:
            raise ValueError(f"{function}: the field {name} takes {to.size} bytes, the cell's {source.size}")
        lines += [
            f"  %s{i} = getelementptr i8, ptr %h, i64 {source.offset}",
            f"  %d{i} = getelementptr i8, ptr %args, i64 {to.offset}",
            f"  call void @llvm.memcpy.p0.p0.i64(ptr %d{i}, ptr %s{i}, i64 {to.size}, i1 false)",
        ]
    return "\n".join([*lines, "  ret ptr null", "}"])


# Functions that do nothing and succeed: events are over when they are made, and the client lives as long as the process.
_TRIVIAL = ("PJRT_Event_Await", "PJRT_Event_Error", "PJRT_Plugin_Initialize", "PJRT_Client_Destroy")


def function_addresses() -> dict[str, int]:
    """Where each function that is machine code starts."""
    code = native()
    return {
        **{name: code.address(name) for functions in GETTERS.values() for name in functions},
        **dict.fromkeys(RETIRED, code.address("retire")),
        **dict.fromkeys(_TRIVIAL, code.address("succeed")),
        "PJRT_Event_OnReady": code.address("call_back"),
        "PJRT_Buffer_IncreaseExternalReferenceCount": code.address("hold"),
        "PJRT_Buffer_DecreaseExternalReferenceCount": code.address("release"),
    }


def take_retired() -> list[int]:
    """The addresses of the cells that died since the last call."""
    address, found = native().take(), []
    while address:
        found.append(address)
        address = ctypes.c_int64.from_address(address).value
    return found
