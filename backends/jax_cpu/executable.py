"""One program of static shapes as one jitted JAX function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_ir.attrs import Resource
from neuron_ir.backends.jax_cpu.arrays import host_view, resident
from neuron_ir.backends.jax_cpu.guards import COMPILER_OPTIONS, protect
from neuron_ir.backends.jax_cpu.signature import Signature
from neuron_ir.core import Module
from neuron_ir.diagnostics import fail
from neuron_ir.meaning import Meaning, run, x64

__all__ = ["Executable", "build"]


class Executable:
    """A compiled function of (weights, state, inputs), each a list of arrays in the signature's order."""

    def __init__(self, compiled: Any, resources: Sequence[Any]):
        self.compiled = compiled
        self.resources = resources

    def __call__(self, weights: Sequence[Any], state: Sequence[Any], inputs: Sequence[Any]) -> Sequence[Any]:
        """The function's results, one JAX array per result."""
        with x64():
            results: Sequence[Any] = self.compiled(*weights, *state, *self.resources, *inputs)
        return results


def build(module: Module, signature: Signature, options: dict[str, Any]) -> Executable:
    """Trace and compile ``@main`` of a module whose shapes are static. Weights and large constants are arguments, not literals."""
    import jax

    func = module.main
    names = resource_names(module)
    order = (*signature.weights, *signature.state)
    n_bound = len(order)

    def traced(*flat: Any) -> tuple[Any, ...]:
        args: list[Any] = [None] * len(func.args)
        for index, value in zip(order, flat, strict=False):
            args[index] = value
        constants = dict(zip(names, flat[n_bound:], strict=False))
        for index, value in zip(signature.inputs, flat[n_bound + len(names) :], strict=True):
            args[index] = value
        return run(func, args, Meaning(constants.__getitem__, module))

    def struct(index: int) -> Any:
        return jax.ShapeDtypeStruct(func.args[index].type.shape, func.args[index].type.dtype.numpy)

    guarded = protect(traced) if options.get("guards", True) else traced
    with x64():
        arrays = [resident(_weight(module, name)) for name in names]
        structs = [*map(struct, order), *arrays, *map(struct, signature.inputs)]
        compiled = jax.jit(guarded, keep_unused=True).lower(*structs).compile(compiler_options=dict(COMPILER_OPTIONS))
    return Executable(compiled, arrays)


def resource_names(module: Module) -> list[str]:
    """The names of the weights that constants anywhere in the module refer to, in order of first use."""
    names: dict[str, None] = {}
    for op in module.walk():
        value = op.attrs.get("value")
        if isinstance(value, Resource):
            names[str(value)] = None
    return list(names)


def _weight(module: Module, name: str) -> Any:
    if name not in module.weights:
        raise fail("weights", f"a constant refers to {name!r}, which the module's weights do not have", module.loc)
    return host_view(module.weights[name])[0]
