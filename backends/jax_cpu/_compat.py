"""The parts of JAX below its public interface that the reference accelerator uses, and a check that they are as expected.

Held for jax 0.10: equations of a jaxpr and how one is bound again, XLA's compiler options, an array's host address, programs as
bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Literal

from neuron_ir.diagnostics import fail

__all__ = [
    "ALIGNMENT", "ClosedJaxpr", "Literal", "RunEnded", "address", "bind_equation", "check", "compile_for",
    "compile_for_devices", "deserialize", "load_for", "lower_for_cpu", "lower_for_devices", "make_client", "put", "serialize",
    "settings",
]  # fmt: skip

# XLA's CPU client shares a host array only from such an address; from any other it makes a copy.
ALIGNMENT = 64


class RunEnded(Exception):
    """Raised by a function on the host to end the run. Its cause is reported elsewhere, so JAX shall not log it."""


def _is_news(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], RunEnded))


logging.getLogger("jax._src.callback").addFilter(_is_news)


def bind_equation(eqn: Any, values: Sequence[Any], params: Mapping[str, Any]) -> list[Any]:
    """The results of an equation's primitive on other values and parameters, one per output."""
    bound = eqn.primitive.get_bind_params(dict(params))
    with eqn.ctx.manager:
        results = eqn.primitive.bind(*values, **bound)
    return list(results) if eqn.primitive.multiple_results else [results]


def address(array: jax.Array) -> int:
    """The host address of a CPU array's first element. Waits until the array is computed."""
    return int(array.block_until_ready().unsafe_buffer_pointer())


def make_client(num_devices: int) -> Any:
    """A CPU client of its own with that many devices, which runs every program to its end before it returns."""
    from jaxlib import xla_client

    return xla_client.make_cpu_client(asynchronous=False, num_devices=num_devices)


def put(array: Any, device: Any) -> Any:
    """A NumPy array as a JAX array on a device of any client."""
    from jaxlib import xla_client

    aval = jax.core.ShapedArray(array.shape, array.dtype)
    return xla_client.batched_device_put(aval, jax.sharding.SingleDeviceSharding(device), [array], [device])


def lower_for_cpu(function: Any, structs: Sequence[Any]) -> tuple[Any, int]:
    """A function lowered for the CPU, whatever JAX's default platform, and how many tokens order its effects.

    Each token is an empty argument before the others, and an empty result before the others.
    """
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        lowered = jax.jit(function, keep_unused=True).trace(*structs).lower(lowering_platforms=("cpu",))
    return lowered, len(lowered._lowering.compile_args["ordered_effects"])


def compile_for(client: Any, device: Any, lowered: Any, options: Mapping[str, Any]) -> Any:
    """A lowered program compiled by a client for one of its devices."""
    import numpy
    from jaxlib import xla_client

    compile_options = xla_client.CompileOptions()
    compile_options.device_assignment = xla_client.DeviceAssignment.create(numpy.array([[device.id]]))
    compile_options.env_option_overrides = list(options.items())
    callbacks = lowered._lowering.compile_args["host_callbacks"]
    return client.compile_and_load(lowered.compiler_ir(), xla_client.DeviceList((device,)), compile_options, callbacks)


def lower_for_devices(function: Any, structs: Sequence[Any], shardings: Sequence[Any], results: Sequence[Any]) -> tuple[Any, int]:
    """Like :func:`lower_for_cpu`, for the devices that the shardings of arguments and results name; ``None`` leaves one open."""
    jitted = jax.jit(function, keep_unused=True, in_shardings=tuple(shardings), out_shardings=tuple(results))
    lowered = jitted.trace(*structs).lower(lowering_platforms=("cpu",))
    return lowered, len(lowered._lowering.compile_args["ordered_effects"])


def compile_for_devices(client: Any, devices: Sequence[Any], lowered: Any, options: Mapping[str, Any], free: Sequence[bool]) -> Any:
    """A lowered program compiled by a client for several of its devices; ``free`` says whose results' shardings it may choose."""
    import numpy
    from jaxlib import xla_client

    compile_options = xla_client.CompileOptions()
    compile_options.num_partitions = len(devices)
    compile_options.device_assignment = xla_client.DeviceAssignment.create(numpy.array([[d.id for d in devices]]))
    compile_options.env_option_overrides = list(options.items())
    build = compile_options.executable_build_options
    build.num_partitions = len(devices)
    build.use_spmd_partitioning = build.use_shardy_partitioner = True
    build.device_assignment = compile_options.device_assignment
    if free:
        build.allow_spmd_sharding_propagation_to_output = list(free)
    callbacks = lowered._lowering.compile_args["host_callbacks"]
    return client.compile_and_load(lowered.compiler_ir(), xla_client.DeviceList(tuple(devices)), compile_options, callbacks)


def load_for(client: Any, devices: Sequence[Any], data: bytes) -> Any:
    """The compiled program that :func:`compile_for` or :func:`compile_for_devices` made, from its bytes, on devices of a client."""
    from jax._src.lax.linalg import initialize_lapack
    from jaxlib import xla_client

    initialize_lapack()  # see :func:`deserialize`
    return client.deserialize_executable(data, xla_client.DeviceList(tuple(devices)), None)


def settings() -> str:
    """JAX's settings on this thread that a trace depends on, as text, one per line."""
    from jax._src import config
    from jax._src.core import get_axis_env

    axes = type(get_axis_env())  # those of an enclosing trace: a program has none, and their text is another in each process
    return "\n".join(repr(value) for value in config.trace_context() if not isinstance(value, axes))


def serialize(compiled: Any) -> bytes | None:
    """A compiled program as bytes; ``None`` where it calls back into this process, or JAX cannot write it."""
    import pickle

    from jax.experimental.serialize_executable import serialize as write

    if compiled._executable.unsafe_call.has_host_callbacks:
        return None
    try:
        return pickle.dumps(write(compiled))
    except (NotImplementedError, ValueError):
        return None


def deserialize(data: bytes) -> Any:
    """The compiled program that :func:`serialize` wrote, loaded for JAX's first CPU device. May raise anything."""
    import pickle

    from jax._src.lax.linalg import initialize_lapack
    from jax.experimental.serialize_executable import deserialize_and_load

    initialize_lapack()  # tracing does that otherwise; a program that calls it would jump to address 0
    client = jax.local_devices(backend="cpu")[0].client
    serialised, in_tree, out_tree = pickle.loads(data)
    return deserialize_and_load(serialised, in_tree, out_tree, backend=client, execution_devices=client.local_devices()[:1])


@cache
def check() -> None:
    """Refuse a JAX whose private parts differ, once per process, with the version in the message.

    Raises :class:`IRError` where an equation cannot be bound again, an option is unknown, or an address is not the array's own.
    """
    import numpy

    from neuron_ir.backends.jax_cpu.guards import COMPILER_OPTIONS, protect

    host = numpy.frombuffer(memoryview(bytearray(4 * 16 + ALIGNMENT)), numpy.float32)
    start = (-host.ctypes.data % ALIGNMENT) // 4
    host = host[start : start + 4]
    host[:] = 89.0
    device = jax.local_devices(backend="cpu")[0]
    try:
        shared = jax.device_put(host, device)
        same = address(shared) == host.ctypes.data
        function = jax.jit(protect(lambda x: jax.numpy.log(jax.numpy.exp(x))), compiler_options=dict(COMPILER_OPTIONS))
        kept = bool(numpy.isinf(numpy.asarray(function(shared))).all())
    except Exception as error:  # any failure of a private part means the same: this version is not supported
        raise fail("runtime", f"jax {jax.__version__} is not supported by the reference accelerator: {error}") from error
    if not same or not kept:
        what = "does not share host memory" if not same else "simplifies across an optimization barrier"
        raise fail("runtime", f"jax {jax.__version__} is not supported by the reference accelerator: it {what}")
