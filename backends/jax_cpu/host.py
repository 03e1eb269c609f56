"""The reference accelerator for a runtime that hands over buffers itself: devices of its own, memory, and programs on them.

The devices belong to a CPU client of their own, apart from the one that JAX makes for its users, so that a runtime below JAX never
calls itself. A program runs to its end before the call returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_ir.backends.jax_cpu._compat import compile_for, lower_for_cpu, make_client, put
from neuron_ir.backends.jax_cpu.arrays import aligned_empty, host_view
from neuron_ir.backends.jax_cpu.executable import resource_names, traceable
from neuron_ir.backends.jax_cpu.guards import COMPILER_OPTIONS
from neuron_ir.core import Module
from neuron_ir.diagnostics import fail
from neuron_ir.meaning import x64

__all__ = ["Host", "HostProgram"]


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

    def compile(self, module: Module, device: int = 0, **options: Any) -> HostProgram:
        """A verified module of static shapes as a program on one device. Its arguments are the module's user inputs."""
        return HostProgram(self, module, device, options)


class HostProgram:
    """A compiled module: call it with arrays on its device; it gives a list of arrays on that device."""

    def __init__(self, host: Host, module: Module, device: int, options: dict[str, Any]):
        import numpy

        program = traceable(module, options)
        if program.signature.state or program.signature.weights:
            raise fail("unsupported", f"@{module.main.name} holds weights or state of its own, which a runtime's program cannot")
        with x64():
            self.lowered, tokens = lower_for_cpu(program.function, program.structs)
        if program.checks.diagnostics or program.checks.calls_back:
            raise fail("unsupported", f"@{module.main.name} states conditions at run time, which this runtime does not report")
        self.loaded = compile_for(host.client, host.devices[device], self.lowered, COMPILER_OPTIONS)
        weights = [host_view(module.weights[name])[0] for name in resource_names(module)]
        self.first = [host.adopt(x, device) for x in (*[numpy.zeros(0, bool)] * tokens, *weights)]
        self.tokens = tokens

    def hlo(self) -> bytes:
        """The compiled program as a serialised ``HloModuleProto``."""
        return self.loaded.hlo_modules()[0].as_serialized_hlo_module_proto()  # type: ignore[no-any-return]

    def temporary_bytes(self) -> int:
        """Bytes that a run takes beside arguments and results."""
        return int(self.loaded.get_compiled_memory_stats().temp_size_in_bytes)

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        results = self.loaded.execute_sharded([*self.first, *arrays]).disassemble_into_single_device_arrays()
        return [shards[0] for shards in results[self.tokens :]]
