"""Executables: a StableHLO program that JAX hands over, through the Neuron IR to a program of the host."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from neuron_ir.core import Module
from neuron_ir.cost import cost_of_func
from neuron_ir.diagnostics import fail, nearest
from neuron_ir.frontends.jax._compat import build_options, compile_settings, on_cpu
from neuron_ir.frontends.jax.importer import import_module
from neuron_ir.frontends.jax.parse import parse
from neuron_ir.frontends.jax.pjrt.buffers import TOKEN, Buffer, Template, buffer_type, token
from neuron_ir.frontends.jax.pjrt.cells import Cell, array_of, text
from neuron_ir.frontends.jax.pjrt.devices import Client, Device
from neuron_ir.frontends.jax.pjrt.native import native
from neuron_ir.frontends.jax.pjrt.wire import fields_of, message, numbers
from neuron_ir.frontends.jax.stablehlo.types import token_positions
from neuron_ir.passmanager import run_passes
from neuron_ir.types import TensorType, Type

__all__ = ["LoadedExecutable", "compile_program", "load_program"]

PIPELINE = "NEURON_IR_PIPELINE"
OPTION = "neuron_ir_pipeline"  # of jax.jit's compiler_options
_MAGIC = b"neuron-ir program 1\n"
FILE = "<jax>"  # the name of a program without places of its own


def compile_program(client: Client, code: bytes, options: bytes) -> LoadedExecutable:
    """Import, optimise and compile a program. Raises :class:`IRError` with the user's line where something is unsupported."""
    return _made(client, code, options, _pipeline(compile_settings(options)))


def load_program(client: Client, data: bytes, options: bytes) -> LoadedExecutable:
    """The program that :meth:`LoadedExecutable.serialised` wrote; ``options`` count, where there are any, instead of its own.

    Raises :class:`IRError` where other versions or another processor compiled it.
    """
    start = len(_MAGIC) + 8 + int.from_bytes(data[len(_MAGIC) : len(_MAGIC) + 8], "little")
    try:
        head = json.loads(data[len(_MAGIC) + 8 : start])
        whole = data.startswith(_MAGIC) and len(data) == start + sum(head["sizes"])
    except (ValueError, KeyError):
        whole = False
    if not whole:
        raise fail("file", "the stored program is damaged, or none of the neuron platform")
    if head["versions"] != client.host.versions():
        raise fail("version", "the stored program was compiled by other versions of neuron-ir or JAX, or for another processor")
    ends = list(accumulate(head["sizes"], initial=start))
    code, own, program = (data[i:j] for i, j in pairwise(ends))
    return _made(client, code, options or own, head["pipeline"], program)


def _made(client: Client, code: bytes, options: bytes, pipeline: str, stored: bytes | None = None) -> LoadedExecutable:
    build = build_options(options)
    if build.num_replicas != 1:
        what = f"a program of {build.num_replicas} replicas"
        raise fail("unsupported", f"{what}; devices are partitions of one (jax.pmap, shard_map)")
    assignment, devices = _assignment(build)
    source = parse(code, file=FILE, trusted=True)
    tokens = token_positions(source)
    module = import_module(source, FILE)
    with on_cpu():  # constants that JAX folds while a pass or a trace runs
        if pipeline:
            run_passes(module, pipeline)
        program = client.host.compile(module, devices, stored)
    form = LoadedExecutable if len(devices) == 1 else SpmdExecutable
    made = form([client.devices[i] for i in devices], module, program, tokens, assignment, hashlib.sha256(code).hexdigest())
    made.source, made.settings = zlib.compress(code, 1), (options, pipeline, client.host)
    return made


def _pipeline(settings: dict[str, str]) -> str:
    """The passes that the user asks for, by ``compiler_options`` or else in the environment."""
    unknown = sorted(settings.keys() - {OPTION})
    if unknown:
        raise fail("input", f"there is no compiler option {unknown[0]!r}{nearest(unknown[0], [OPTION])}; known: {OPTION}")
    return settings.get(OPTION, os.environ.get(PIPELINE, "O1"))


class LoadedExecutable(Cell):
    """A program on a device."""

    __slots__ = (
        "arguments", "device", "devices", "donated", "fingerprint", "module", "program", "results", "settings", "source",
        "templates", "token_args", "token_results",
    )  # fmt: skip

    def __init__(
        self,
        devices: list[Device],
        module: Module,
        program: Any,
        tokens: tuple[set[int], set[int]],
        assignment: bytes,
        fingerprint: str,
    ):
        self.module, self.devices, self.program, self.fingerprint = module, devices, program, fingerprint
        self.device = devices[0]
        self.source: bytes = b""  # StableHLO, compressed; with the settings what :meth:`serialised` needs
        self.settings: tuple[bytes, str, Any] = (b"", "", None)  # options, passes, host
        self.token_args, self.token_results = tokens
        self.arguments = ctypes.c_size_t * (len(module.main.args) + len(self.token_args))
        self.results = ctypes.c_size_t * (len(module.main.result_types) + len(self.token_results))
        self.templates = [Template.of(t.shape, t.dtype.numpy, self.device) for t in _tensors(module.main.result_types)]
        places = [i for i in range(len(module.main.args) + len(self.token_args)) if i not in self.token_args]
        self.donated = [i for i, attrs in zip(places, module.main.arg_attrs, strict=True) if attrs.get("donated")]
        super().__init__(
            "LoadedExecutable", addressable_devices=devices, executable_fingerprint=fingerprint, serialized_bytes=assignment,
            serialized_device_assignment_deleter=native().address("succeed"),
        )  # fmt: skip

    def executable(self) -> Cell:
        """A handle that only tells about the program."""
        types = iter(_tensors(self.module.main.result_types))
        count = len(self.module.main.result_types) + len(self.token_results)
        results = [TOKEN if i in self.token_results else _facts(next(types)) for i in range(count)]
        cell = Cell(
            "Executable", owner=self, executable_name=self.module.name, num_replicas=1, num_partitions=len(self.devices),
            num_outputs=count, executable_fingerprint=self.fingerprint,
        )  # fmt: skip
        kept, kind = cell.kept, b"device"
        cell.cell.output_types = array_of([code for code, _ in results], kept, ctypes.c_int)
        cell.cell.num_output_types = count
        cell.cell.dims = array_of([d for _, shape in results for d in shape], kept)
        cell.cell.dim_sizes = array_of([len(shape) for _, shape in results], kept, ctypes.c_size_t)
        cell.cell.memory_kinds = array_of([text(kind, kept)] * count, kept, ctypes.c_void_p)
        cell.cell.memory_kind_sizes = array_of([len(kind)] * count, kept, ctypes.c_size_t)
        return cell

    def serialised(self) -> bytes:
        """The program as bytes for another process: source, options, and what the host compiled."""
        options, pipeline, host = self.settings
        parts = zlib.decompress(self.source), options, self.program.serialised()
        head = {"versions": host.versions(), "pipeline": pipeline, "sizes": [len(part) for part in parts]}
        text = json.dumps(head).encode()
        return b"".join([_MAGIC, len(text).to_bytes(8, "little"), text, *parts])

    def optimised(self) -> bytes:
        """The program as the host's compiler left it, for ``compiled.as_text()``: a serialised ``HloModuleProtoWithConfig``.

        Its field 1 is the module, its field 2 a configuration whose field 1 is the shape of the program, the module's field 4.
        """
        module = self.program.hlo()
        shape = next(value for field, value in fields_of(module) if field == 4)
        return message(1, module) + message(2, message(1, shape))

    def cost(self) -> dict[str, float]:
        """The figures of ``compiled.cost_analysis()``, by the IR's cost model: operations of all engines, and bytes in and out."""
        cost = cost_of_func(self.module.main)
        values = [*(v.type for v in self.module.main.args), *_tensors(self.module.main.result_types)]
        return {
            "flops": float(cost.flops + cost.dve + cost.act + cost.gpsimd),
            "transcendentals": float(cost.act),
            "bytes accessed": float(sum(t.nbytes for t in values)),
        }

    def memory(self) -> dict[str, int]:
        """The figures of ``compiled.memory_analysis()`` in bytes."""
        arguments = [v.type.nbytes for v in self.module.main.args]
        results = [t.nbytes for t in _tensors(self.module.main.result_types)]
        temporary = self.program.temporary_bytes()
        return {
            "argument_size_in_bytes": sum(arguments), "output_size_in_bytes": sum(results), "temp_size_in_bytes": temporary,
            "peak_memory_in_bytes": sum(arguments) + sum(results) + temporary,
        }  # fmt: skip

    def execute(self, buffers: Sequence[Sequence[Buffer]], kept: Sequence[int]) -> list[list[Buffer]]:
        """The results for these arguments, per device; donated ones are deleted, except those of the indices ``kept``."""
        return [self.run(buffers[0], kept)]

    def run(self, buffers: Sequence[Buffer], kept: Sequence[int]) -> list[Buffer]:
        """The results on one device; see :meth:`execute`."""
        given = [b.array() for b in buffers]
        if self.token_args:
            given = [x for i, x in enumerate(given) if i not in self.token_args]
        results = [Buffer(array, template) for array, template in zip(self.program(given), self.templates, strict=True)]
        for index in self.donated:
            if index not in kept:
                buffers[index].delete()
        for index in sorted(self.token_results):
            results.insert(index, token(self.device))
        return results


class SpmdExecutable(LoadedExecutable):
    """A program on several devices, each with its part of every array."""

    __slots__ = ()

    def execute(self, buffers: Sequence[Sequence[Buffer]], kept: Sequence[int]) -> list[list[Buffer]]:
        """See :meth:`LoadedExecutable.execute`."""
        places = [i for i in range(len(buffers[0])) if i not in self.token_args]
        results = self.program([[own[i].array() for own in buffers] for i in places])
        made = [[Buffer.of(parts[d], device) for parts in results] for d, device in enumerate(self.devices)]
        for index in self.donated:
            if index not in kept:
                for own in buffers:
                    own[index].delete()
        for index in sorted(self.token_results):
            for device, own in zip(self.devices, made, strict=True):
                own.insert(index, token(device))
        return made


def _tensors(types: Sequence[Type]) -> list[TensorType]:
    """The result types of a program's entry, which returns no token (see ``token_results``)."""
    return [t for t in types if isinstance(t, TensorType)]


def _facts(type: TensorType) -> tuple[int, tuple[int, ...]]:
    return buffer_type(type.dtype), type.shape  # type: ignore[return-value]


def _assignment(build: Any) -> tuple[bytes, list[int]]:
    """A ``DeviceAssignmentProto`` as bytes, and the ids of its devices: the field 3 holds one message for each computation, whose
    field 1 lists a device for each replica.
    """
    if build.device_assignment is None:
        return b"\x08\x01\x10\x01\x1a\x03\x0a\x01\x00", [0]
    data = build.device_assignment.serialize()
    return data, [device for field, item in fields_of(data) if field == 3 for device in numbers(item)]
