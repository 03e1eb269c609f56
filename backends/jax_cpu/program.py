"""A compiled program: binds inputs, weights and state, runs the executable for the shapes at hand, hands the outputs back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy

from neuron_ir.backends.jax_cpu._compat import check
from neuron_ir.backends.jax_cpu.arrays import host_view, is_torch, kind_of, resident, settle, user_array, writable, write_back
from neuron_ir.backends.jax_cpu.buckets import PaddedExecutable, bucketed, read_buckets
from neuron_ir.backends.jax_cpu.direct import DirectCall
from neuron_ir.backends.jax_cpu.executable import Executable, executable_for, resource_names
from neuron_ir.backends.jax_cpu.physical import held
from neuron_ir.backends.jax_cpu.signature import Signature
from neuron_ir.backends.jax_cpu.stages import StagedExecutable
from neuron_ir.backends.jax_cpu.subnormals import check_exact, constants, holds_subnormals
from neuron_ir.core import Module
from neuron_ir.datasizes import bindings
from neuron_ir.diagnostics import fail, warn
from neuron_ir.meaning import x64
from neuron_ir.specialise import solve_sizes, specialise
from neuron_ir.types import TensorType

__all__ = ["CompiledProgram"]


class CompiledProgram:
    """A module on the reference accelerator; call it with the module's user inputs.

    Weights share the module's memory (aligned memory, as torch's always is), so a program made from a torch module follows the
    module's parameters. Buffers that the program updates are its own: they start as copies; ``state`` gives their values.
    """

    def __init__(self, module: Module, options: dict[str, Any]):
        check()
        if "torch" in sys.modules:
            _hide_from_dynamo()
        self.module = module
        self.options = options
        self.signature = Signature.of(module.main)
        self._buckets = read_buckets(module.main, options.get("buckets", {}))
        self._executables: dict[tuple[Any, ...], Executable | StagedExecutable | PaddedExecutable] = {}
        self._lock = threading.Lock()
        self._direct: dict[tuple[Any, ...], DirectCall] = {}
        with x64():
            self._state = [resident(self._bound(i)).copy() for i in self.signature.state]
            self._weights = [resident(self._bound(i)) for i in self.signature.weights]
            resources = resource_names(module)
            self._resources = [resident(self._weight(n, t)) for n, t in resources.items()]
        self._exact = options.get("subnormals") == "exact"
        if self._exact:
            check_exact()
        names = [*map(self.signature.name, (*self.signature.state, *self.signature.weights)), *resources]
        self._warn_of_subnormals("weight", zip(names, (*self._state, *self._weights, *self._resources), strict=True))
        self._warn_of_subnormals("constant", constants(module))

    def __reduce__(self) -> tuple[Any, ...]:
        """A program is pickled and copied as its module with the present state; it is compiled anew."""
        return _restored, (self.module, self.options, self.state)

    @property
    def state(self) -> dict[str, Any]:
        """The present value of each buffer that the program updates, by name, as NumPy copies."""
        names = (self.signature.name(i) for i in self.signature.state)
        with self._lock:
            return {name: numpy.array(value) for name, value in zip(names, self._state, strict=True)}

    def _bound(self, index: int) -> Any:
        """The value of a weight or buffer argument, from the module's weights, in the order of its layout."""
        main = self.module.main
        type = main.args[index].type
        value = self._weight(main.arg_attrs[index].get("weight", self.signature.name(index)), type)
        return numpy.ascontiguousarray(held(value, type)) if type.layout.order else value

    def _weight(self, key: str, wanted: TensorType) -> Any:
        if key not in self.module.weights:
            raise fail("weights", f"the program needs the weight {key!r}, which the module does not have", self.module.main.loc)
        try:
            array, dtype = host_view(self.module.weights[key])
        except TypeError as error:
            raise fail("weights", f"the weight {key!r} is {error}") from None
        if tuple(array.shape) != wanted.shape or dtype is not wanted.dtype:
            raise fail("weights", f"the weight {key!r} is {dtype}{list(array.shape)}, but the program needs {wanted}")
        return array

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the program. Outputs nest as those of the source program, in the kind of array that the inputs have."""
        values, numbers = self.signature.bind(args, kwargs)
        return self.signature.arrange(self._run(values, numbers))

    def positional(self, values: Sequence[Any]) -> list[Any]:
        """Run the program on its arrays in order, sizes left out; gives the outputs in order, those built into the program too."""
        key = tuple([v.shape for v in values]) if self.module.main.dims else ()
        direct = self._direct.get(key)
        outputs = direct(values) if direct is not None else None
        if outputs is None:
            outputs = self._run(values, ())
            if direct is None:
                self._prepare(key, values, outputs)
        return self.signature.complete(outputs)

    def _prepare(self, key: tuple[Any, ...], values: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Make the direct way for calls like this one, where the program only maps torch tensors to torch tensors."""
        signature = self.signature
        bound = self._state or self._weights or signature.updates
        if bound or not all(map(is_torch, (*values, *outputs))) or not (values and outputs):
            return
        executable = self._executable(values, ())
        if isinstance(executable, Executable):
            self._direct[key] = DirectCall(executable, self._resources, values)

    def _run(self, values: Sequence[Any], numbers: tuple[int, ...]) -> list[Any]:
        """The outputs in order, without those built into the program."""
        arrays = self._check(values)
        self._check_updated(values)
        executable = self._executable(arrays, numbers)
        with self._lock if self._state else nullcontext():  # a call uses up the state that the one before it made
            results = executable(self._weights, self._state, self._resources, arrays)
            self._keep_state(results)
        settle(results, arrays)
        return self._finish(results, values)

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Module, list[Any]]:
        """The module for the sizes of a call's inputs, and one array per argument of ``@main``: inputs, weights, present state."""
        signature = self.signature
        values, numbers = signature.bind(args, kwargs)
        inputs = self._check(values)
        with self._lock:
            groups = ((signature.inputs, inputs), (signature.weights, self._weights), (signature.state, list(self._state)))
        placed = {i: array for indices, arrays in groups for i, array in zip(indices, arrays, strict=True)}
        return self._sized(inputs, numbers), [placed[i] for i in range(len(placed))]

    def _warn_of_subnormals(self, what: str, arrays: Iterable[tuple[str, Any]]) -> None:
        """Warn of named arrays whose subnormal numbers this program takes for 0."""
        if self._exact:
            return
        found = [name for name, array in arrays if holds_subnormals(array)]
        if found:
            listed = ", ".join(map(repr, found[:3])) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
            message = f"subnormal numbers in the {what}{'s' if len(found) > 1 else ''} {listed} count as 0"
            warn("subnormal", message, self.module.main.loc, ['compile with subnormals = "exact" to keep them'])

    def _check(self, values: Sequence[Any]) -> list[Any]:
        arrays = []
        for index, value in zip(self.signature.inputs, values, strict=True):
            try:
                array, dtype = host_view(value)
            except TypeError as error:
                raise fail("input", f"input {self.signature.name(index)!r}: {error}", self.module.main.loc) from None
            self.signature.check(index, array.shape, dtype)
            arrays.append(array)
        return arrays

    def _check_updated(self, values: Sequence[Any]) -> None:
        """Refuse the call where the new value of an input that the program updates has no place to go."""
        updated = set(self.signature.updates.values())
        if updated.isdisjoint(self.signature.inputs):
            return
        named = {self.signature.name(i): v for i, v in zip(self.signature.inputs, values, strict=True)}
        for index in updated.intersection(self.signature.inputs):
            name = self.signature.name(index)
            writable(named[name], name, {other: value for other, value in named.items() if other != name})

    def _executable(self, arrays: Sequence[Any], numbers: tuple[int, ...]) -> Executable | StagedExecutable | PaddedExecutable:
        """The executable for the inputs' shapes and the sizes among the inputs; built on first use."""
        key = () if not self.module.main.dims else (*(a.shape for a in arrays), numbers)
        executable = self._executables.get(key)
        if executable is None:
            executable = self._executables[key] = self._made(arrays, numbers)
            names = map(self.signature.name, self.signature.inputs)
            self._warn_of_subnormals("input", zip(names, arrays, strict=True))
        return executable

    def _made(self, arrays: Sequence[Any], numbers: Sequence[int]) -> Executable | StagedExecutable | PaddedExecutable:
        """A new executable, for the next buckets where there are any."""
        main = self.module.main
        if bindings(main):
            return StagedExecutable(self._sized(arrays, numbers), self.options)
        if not self._buckets:
            return executable_for(self._sized(arrays, numbers), self.options)
        sizes = self._sizes(arrays, numbers)
        padded = bucketed(main, sizes, self._buckets)
        executable = executable_for(specialise(self.module, padded), self.options)
        return executable if padded == sizes else PaddedExecutable(executable, main, sizes, padded)

    def _sized(self, arrays: Sequence[Any], numbers: Sequence[int] = ()) -> Module:
        """The module of the inputs' shapes and the sizes among the inputs."""
        return specialise(self.module, self._sizes(arrays, numbers)) if self.module.main.dims else self.module

    def _sizes(self, arrays: Sequence[Any], numbers: Sequence[int]) -> dict[str, int]:
        """The value of each symbolic size for these inputs."""
        func = self.module.main
        shapes = [a.type.shape for a in func.args]
        for index, array in zip(self.signature.inputs, arrays, strict=True):
            shapes[index] = array.shape
        return solve_sizes(func, shapes, numbers)

    def _keep_state(self, results: Sequence[Any]) -> None:
        for result, target in self.signature.updates.items():
            if target in self.signature.state:
                self._state[self.signature.state.index(target)] = results[result]

    def _finish(self, results: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """Write updated inputs back into the caller's arrays, and give the outputs."""
        signature = self.signature
        for result, target in signature.updates.items():
            if target not in signature.state:
                write_back(values[signature.inputs.index(target)], results[result])
        kind = kind_of(values) if values else self.module.attrs.get("source", "numpy")
        numbers = {i for i, attrs in enumerate(self.module.main.result_attrs) if attrs.get("number")}
        outputs = [results[i].item() if i in numbers else user_array(results[i], kind) for i in signature.outputs]
        return outputs


@cache
def _hide_from_dynamo() -> None:
    """Inside of a function under ``torch.compile``, Dynamo calls a program as it is instead of tracing into JAX."""
    import torch

    CompiledProgram.__call__ = torch.compiler.disable(CompiledProgram.__call__)  # type: ignore[method-assign]


def _restored(module: Module, options: dict[str, Any], state: dict[str, Any]) -> CompiledProgram:
    program = CompiledProgram(module, options)
    with x64():
        program._state = [resident(value).copy() for value in state.values()]
    return program
