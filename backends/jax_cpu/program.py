"""A compiled program: binds inputs, weights and state, runs the executable for the shapes at hand, hands the outputs back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_ir.backends.jax_cpu._compat import check
from neuron_ir.backends.jax_cpu.arrays import host_view, kind_of, resident, user_array, write_back
from neuron_ir.backends.jax_cpu.executable import Executable, build
from neuron_ir.backends.jax_cpu.signature import Signature
from neuron_ir.core import Module
from neuron_ir.diagnostics import fail
from neuron_ir.meaning import x64
from neuron_ir.specialise import solve_sizes, specialise

__all__ = ["CompiledProgram"]


class CompiledProgram:
    """A module on the reference accelerator; call it with the module's user inputs.

    ``state`` maps the name of each buffer that the program updates to its present value (a JAX array). It starts as the module's
    weights of that name, which are never written.
    """

    def __init__(self, module: Module, options: dict[str, Any]):
        check()
        self.module = module
        self.options = options
        self.signature = Signature.of(module.main)
        self.executables: dict[tuple[Any, ...], Executable] = {}
        self.state = {self.signature.name(i): self._bound(i) for i in self.signature.state}
        self._weights: list[Any] | None = None

    def _bound(self, index: int) -> Any:
        """The value of a weight or buffer argument, from the module's weights."""
        key = self.module.main.arg_attrs[index].get("weight", self.signature.name(index))
        if key not in self.module.weights:
            raise fail("weights", f"the program needs the weight {key!r}, which the module does not have", self.module.main.loc)
        array, dtype = host_view(self.module.weights[key])
        wanted = self.module.main.args[index].type
        if tuple(array.shape) != wanted.shape or dtype is not wanted.dtype:
            raise fail("weights", f"the weight {key!r} is {dtype}{list(array.shape)}, but the program needs {wanted}")
        return array

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program. One output is given as it is, several as a tuple, in the kind of array that the inputs have."""
        values = self.signature.bind(args, kwargs)
        arrays = self._check(values)
        executable = self._executable(arrays)
        if self._weights is None:
            with x64():
                self._weights = [resident(self._bound(i)) for i in self.signature.weights]
        state = [self.state[self.signature.name(i)] for i in self.signature.state]
        results = executable(self._weights, state, arrays)
        return self._finish(results, values)

    def _check(self, values: Sequence[Any]) -> list[Any]:
        arrays = []
        for index, value in zip(self.signature.inputs, values, strict=True):
            try:
                array, dtype = host_view(value)
            except TypeError as error:
                raise fail("input", f"input {self.signature.name(index)!r}: {error}", self.module.main.loc) from None
            self.signature.check(index, tuple(array.shape), dtype)
            arrays.append(array)
        return arrays

    def _executable(self, arrays: Sequence[Any]) -> Executable:
        """The executable for the inputs' shapes; built on first use."""
        func = self.module.main
        key = () if not func.dims else tuple(tuple(a.shape) for a in arrays)
        executable = self.executables.get(key)
        if executable is None:
            module = self.module
            if func.dims:
                shapes = [a.type.shape for a in func.args]
                for index, array in zip(self.signature.inputs, arrays, strict=True):
                    shapes[index] = tuple(array.shape)
                module = specialise(module, solve_sizes(func, shapes))
            executable = self.executables[key] = build(module, self.signature, self.options)
        return executable

    def _finish(self, results: Sequence[Any], values: Sequence[Any]) -> Any:
        """Store new state, write updated inputs back into the caller's arrays, and give the outputs."""
        signature = self.signature
        position = {index: n for n, index in enumerate(signature.inputs)}
        for result, target in signature.updates.items():
            if target in position:
                write_back(values[position[target]], results[result], signature.name(target))
            else:
                self.state[signature.name(target)] = results[result]
        kind = kind_of(values) if values else self.module.attrs.get("source", "numpy")
        outputs = tuple(user_array(results[i], kind) for i in signature.outputs)
        return outputs[0] if len(outputs) == 1 else outputs
