"""The reference accelerator for a runtime that hands over buffers itself: devices of its own, memory, and programs on them.

The devices belong to a CPU client of their own, apart from the one that JAX makes for its users, so that a runtime below JAX never
calls itself. A program runs to its end before the call returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neuron_ir.backends.jax_cpu._compat import (
    compile_for,
    compile_for_devices,
    load_for,
    lower_for_cpu,
    lower_for_devices,
    make_client,
    put,
)
from neuron_ir.backends.jax_cpu.arrays import aligned_empty
from neuron_ir.backends.jax_cpu.disk_cache import versions
from neuron_ir.backends.jax_cpu.executable import Traceable, traceable
from neuron_ir.backends.jax_cpu.guards import COMPILER_OPTIONS
from neuron_ir.cache import processor
from neuron_ir.core import Module
from neuron_ir.diagnostics import fail
from neuron_ir.dialects.neuron.custom import ON_HOST
from neuron_ir.dialects.neuron.manual import named_sharding
from neuron_ir.meaning import Meaning, x64

__all__ = ["Host", "HostProgram", "SpmdProgram"]


class Host:
    """A number of devices in this process. Arrays on them are JAX arrays of the client; nobody else computes with these."""

    def __init__(self, num_devices: int):
        self.client = make_client(num_devices)
        self.devices = list(self.client.local_devices())

    def put(self, array: Any, device: int) -> Any:
        """A copy of a NumPy array (of any strides) on a device."""
        import numpy

        copy = aligned_empty(array.shape, array.dtype)  # aligned: the client takes this memory as it is
        numpy.copyto(copy, array)
        return self.adopt(copy, device)

    def adopt(self, array: Any, device: int) -> Any:
        """A NumPy array that nobody changes any more, as an array on a device; its memory is shared where it is aligned."""
        with x64():
            return put(array, self.devices[device])

    def move(self, array: Any, device: int) -> Any:
        """The same values on another device."""
        import numpy

        return self.put(numpy.asarray(array), device)

    def compile(self, module: Module, devices: Sequence[int] = (0,), stored: bytes | None = None) -> HostProgram | SpmdProgram:
        """A verified module of static shapes as a program on one device, or on several among which it says how to divide arrays.

        Its arguments are the module's user inputs. ``stored`` are the bytes of such a program of the same module, compiled by the
        same versions (:func:`versions`).
        """
        if len(devices) == 1:
            return HostProgram(self, module, devices[0], stored)
        return SpmdProgram(self, module, devices, stored)

    def versions(self) -> str:
        """All that the bytes of a compiled program depend on, as text."""
        return f"{versions()}\n{processor()}"


def _checked(module: Module, devices: Sequence[Any] | None = None) -> Traceable:
    """A module's function and arguments; raises :class:`IRError` for one with values of its own."""
    program = traceable(module, {}, devices, literals=True)
    if program.signature.state or program.signature.weights:
        raise fail("unsupported", f"@{module.main.name} holds weights or state of its own, which a runtime's program cannot")
    return program


def _without_conditions(module: Module, program: Traceable) -> None:
    """Raise :class:`IRError` for a traced program that states conditions."""
    if program.checks.diagnostics or program.checks.calls_back:
        raise fail("unsupported", f"@{module.main.name} states conditions at run time, which this runtime does not report")


def _calls_host(module: Module) -> bool:
    """Whether a program calls functions of this process."""
    return any(op.name == "neuron.custom_call" and op.get("call_target_name") in ON_HOST for op in module.walk())


class _Loaded:
    """What the client made of a module."""

    loaded: Any
    calls_host: bool
    stored: bytes | None  # what it was loaded from; XLA cannot write a loaded program again

    def serialised(self) -> bytes:
        """The program as bytes; raises :class:`IRError` where it calls back into this process."""
        if self.calls_host:
            raise fail("unsupported", "a program that calls Python functions cannot be kept for another process")
        return self.loaded.serialize() if self.stored is None else self.stored

    def hlo(self) -> bytes:
        """The compiled program as a serialised ``HloModuleProto``."""
        return self.loaded.hlo_modules()[0].as_serialized_hlo_module_proto()  # type: ignore[no-any-return]

    def temporary_bytes(self) -> int:
        """Bytes that a run takes beside arguments and results."""
        return int(self.loaded.get_compiled_memory_stats().temp_size_in_bytes)


class HostProgram(_Loaded):
    """A compiled module: call it with arrays on its device; it gives a list of arrays on that device."""

    def __init__(self, host: Host, module: Module, device: int, stored: bytes | None):
        import numpy

        self.calls_host, self.stored, tokens = _calls_host(module), stored, 0
        if stored is not None:
            self.loaded = load_for(host.client, [host.devices[device]], stored)
        else:
            program = _checked(module)
            with x64():
                lowered, tokens = lower_for_cpu(program.function, program.structs)
            _without_conditions(module, program)
            self.loaded = compile_for(host.client, host.devices[device], lowered, COMPILER_OPTIONS)
            self.lowered = lowered if self.calls_host else None  # it holds the functions that the program calls
        self.first = [host.adopt(numpy.zeros(0, bool), device) for _ in range(tokens)]
        self.tokens = tokens

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        results = self.loaded.execute_sharded([*self.first, *arrays]).disassemble_into_single_device_arrays()
        return [shards[0] for shards in results[self.tokens :]]


class SpmdProgram(_Loaded):
    """A module compiled for several devices: call it with, for each argument, one array per device; it gives the results alike."""

    def __init__(self, host: Host, module: Module, numbers: Sequence[int], stored: bytes | None):
        devices = [host.devices[i] for i in numbers]
        self.calls_host, self.stored, self.whole = _calls_host(module), stored, jax_sharding(devices)
        if stored is None:
            self._compile(host, module, devices)
        else:
            self.loaded = load_for(host.client, devices, stored)

    def _compile(self, host: Host, module: Module, devices: Sequence[Any]) -> None:
        program = _checked(module, devices)
        with x64():
            shardings = [self._sharding(module, devices, attrs) for attrs in module.main.arg_attrs]
            results = [self._sharding(module, devices, attrs) for attrs in module.main.result_attrs]
            lowered, tokens = lower_for_devices(program.function, program.structs, shardings, results)
        _without_conditions(module, program)
        if tokens:
            raise fail("unsupported", f"@{module.main.name} orders its effects, which a program over several devices cannot")
        free = [r is None for r in results]
        self.loaded = compile_for_devices(host.client, devices, lowered, COMPILER_OPTIONS, free)
        self.lowered = lowered if self.calls_host else None

    @staticmethod
    def _sharding(module: Module, devices: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        j = Meaning(module=module)
        j.devices = devices
        text = attrs.get("sharding")
        return named_sharding(j, str(text)) if text else None

    def __call__(self, arrays: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        given = [self._joined(parts) for parts in arrays]
        run = self.loaded.execute_sharded(given, with_tokens=True)
        run.consume_token().block_until_ready()  # each device runs on a thread of its own, also where the client is synchronous
        return list(run.disassemble_into_single_device_arrays())

    def _joined(self, parts: Sequence[Any]) -> Any:
        """One array per device as the one array that the client takes, which does not ask how the parts belong together."""
        import jax

        with x64():
            return jax.make_array_from_single_device_arrays(parts[0].shape, self.whole, list(parts))


def jax_sharding(devices: Sequence[Any]) -> Any:
    """The sharding of an array that is whole on each of the devices."""
    import jax
    import numpy

    return jax.sharding.NamedSharding(jax.sharding.Mesh(numpy.array(devices), ("devices",)), jax.sharding.PartitionSpec())
