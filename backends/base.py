"""Backends by name, and what each one gives: a compiled program that is called like a function."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from neuron_ir.core import Module
from neuron_ir.diagnostics import fail, nearest

__all__ = ["TARGETS", "Backend", "Program", "backend", "compile", "open_host", "reference_values"]

TARGETS = {"reference": "neuron_ir.backends.jax_cpu"}

# Source program -> the module that tells what each of its operations gives; asked only where torch is already loaded.
_CAPTURES = {"torch": "neuron_ir.frontends.torch.capture"}


class Program(Protocol):
    """A compiled program. Call it with the program's user inputs."""

    module: Module

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def positional(self, values: Sequence[Any]) -> list[Any]:
        """Run the program on its arrays in order; gives the outputs in order. For callers whose calls are all alike."""
        ...


class Backend(Protocol):
    """What a backend's module offers."""

    def compile_module(self, module: Module, **options: Any) -> Program: ...

    def open_host(self, num_devices: int) -> Any: ...


def backend(target: str) -> Backend:
    """The backend for a target's name; raises :class:`IRError` naming the nearest one where there is none."""
    if target not in TARGETS:
        raise fail("pass", f"there is no target {target!r}{nearest(target, TARGETS)}; known: {', '.join(TARGETS)}")
    return import_module(TARGETS[target])  # type: ignore[return-value]


def compile(module: Module, target: str = "reference", **options: Any) -> Program:
    """Compile a module for a target. The result takes the program's user inputs and gives its user outputs.

    Inputs are NumPy, torch or JAX arrays, positional in the program's order or by name; outputs come in the same kind.
    Weights are bound and shared with the module, never copied. Buffers that the program updates keep their new values in the
    compiled program (``program.state``) from call to call. Options are the backend's own, for the reference accelerator those of
    :data:`neuron_ir.backends.jax_cpu.OPTIONS`.

    >>> import numpy, neuron_ir
    >>> text = "func @main(%x: tensor<3xf32>) -> tensor<3xf32> { %y = neuron.add(%x, %x) : tensor<3xf32> func.return(%y) }"
    >>> neuron_ir.compile(neuron_ir.parse(text))(numpy.float32([1, 2, 3]))
    array([2., 4., 6.], dtype=float32)
    """
    if not isinstance(module, Module):
        hint = "; import it first, with from_torch, from_jax, from_stablehlo, parse or load"
        raise fail("input", f"a {type(module).__name__} is no module of the Neuron IR{hint}")
    return backend(target).compile_module(module, **options)


def open_host(target: str, num_devices: int) -> Any:
    """Devices, memory and programs of a target for a runtime that hands over buffers itself, such as JAX's."""
    return backend(target).open_host(num_devices)


def reference_values(reference: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What a reference gives for each named value: a torch program's operations, or a function's own mapping."""
    capture = import_module(_CAPTURES["torch"]) if "torch" in sys.modules else None
    if capture is not None and capture.is_torch_program(reference):
        return dict(capture.node_values(reference, args, kwargs))
    values = reference(*args, **kwargs)
    if not isinstance(values, Mapping):
        raise fail("input", f"a reference function gives a mapping from a value's name to an array, not a {type(values).__name__}")
    return dict(values)
