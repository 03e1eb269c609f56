"""One program of static shapes as one jitted JAX function, compiled once per process for equal programs."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

from jax.errors import JaxRuntimeError
from jax.tree_util import tree_leaves

from neuron_ir.attrs import Resource
from neuron_ir.backends.jax_cpu import disk_cache
from neuron_ir.backends.jax_cpu._compat import settings
from neuron_ir.backends.jax_cpu.arrays import host_view
from neuron_ir.backends.jax_cpu.checks import CheckedMeaning, Checks
from neuron_ir.backends.jax_cpu.disk_cache import versions
from neuron_ir.backends.jax_cpu.guards import COMPILER_OPTIONS, protect
from neuron_ir.backends.jax_cpu.physical import has_orders, held_shape, in_order, logical
from neuron_ir.backends.jax_cpu.signature import Signature
from neuron_ir.backends.jax_cpu.subnormals import ExactFrame
from neuron_ir.cache import key_of
from neuron_ir.core import Module
from neuron_ir.datasizes import bindings
from neuron_ir.diagnostics import fail
from neuron_ir.meaning import Frame, SizingFrame, run, x64
from neuron_ir.types import TensorType

__all__ = ["Executable", "Traceable", "executable_for", "resource_names", "traceable"]

CACHE_SIZE = 256  # executables kept per process; the least recently used one goes first

_cache: OrderedDict[str, Executable] = OrderedDict()
_lock = threading.Lock()


class Executable:
    """A compiled function of the program's arrays: weights, state, resources, inputs, each in the order of the signature."""

    def __init__(self, compiled: Any, n_results: int, checks: Checks, calls_host: bool):
        self.compiled = compiled
        self.n_results = n_results
        self.checks = checks
        # Entering the context doubles the time of a small call; only 64-bit arrays need it, those of a call of the host too. What
        # an ordered call of the host gives has no type to ask for.
        self.is_wide = calls_host or any(a.dtype.itemsize >= 8 for a in tree_leaves((compiled.args_info, compiled.out_info)))

    def __call__(
        self, weights: Sequence[Any], state: Sequence[Any], resources: Sequence[Any], inputs: Sequence[Any]
    ) -> Sequence[Any]:
        """The function's results, one JAX array per result. State is used up, unless the program states conditions.

        Raises :class:`IRError` where a condition of the program, such as an index in range, does not hold.
        """
        try:
            if self.is_wide:
                with x64():
                    results = self.compiled(*weights, *state, *resources, *inputs)
            else:
                results = self.compiled(*weights, *state, *resources, *inputs)
            if self.checks.calls_back:
                for result in results:
                    result.block_until_ready()
        except JaxRuntimeError as error:
            if self.checks.failures:
                self.checks.raise_failures()
            if "CpuCallback error" in str(error):
                raise fail("runtime", f"a function that the program calls failed: {str(error).strip().splitlines()[-1]}") from None
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise fail("runtime", f"the memory does not suffice: {str(error).partition(': ')[2]}") from None
        flags = results[self.n_results :]
        if flags or self.checks.failures:
            self.checks.raise_failed(flags)
        return results[: self.n_results]  # type: ignore[no-any-return]


def executable_for(module: Module, options: dict[str, Any]) -> Executable:
    """The executable of a module whose shapes are static. Equal programs share one, and processes share them on disk, where this
    project alone defines what they mean.
    """
    if not disk_cache.is_own(module):
        return _executable(module, *_build(module, options))
    parts = key_parts(module, options)
    key = key_of(parts)
    with _lock:
        found = _cache.get(key)
        if found is not None:
            _cache.move_to_end(key)
            return found
    found_on_disk = disk_cache.load(module, parts)
    made = _executable(module, *(found_on_disk or _build(module, options)))
    if found_on_disk is None:
        disk_cache.store(module, parts, made.compiled, made.checks)
    with _lock:
        _cache[key] = made
        while len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    return made


def _executable(module: Module, compiled: Any, checks: Checks) -> Executable:
    calls_host = checks.calls_back or any("effect" in op.spec.traits for op in module.walk())
    return Executable(compiled, len(module.main.result_types), checks, calls_host)


def key_parts(module: Module, options: dict[str, Any]) -> dict[str, str]:
    """All that an executable depends on, by name: the printed program (shapes, types, roles of arguments and results, constants),
    the places that its errors name, the options, the versions, and the settings that JAX and XLA read. Weights are arguments, so
    only their types count.
    """
    with x64():
        jax_settings = settings()
    return {
        "program": module.text(),
        "places": module.text(locations=True),
        "options": repr(sorted(options.items())),
        "versions": versions(),
        "jax settings": jax_settings,
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
    }


class Traceable(NamedTuple):
    """A program as a function of arrays that JAX can trace, and the types of its arguments in order."""

    function: Any
    arguments: list[TensorType]
    signature: Signature
    checks: Checks

    @property
    def structs(self) -> list[Any]:
        """The arguments as JAX's tracing takes them."""
        import jax

        return [jax.ShapeDtypeStruct(held_shape(t), t.dtype.numpy) for t in self.arguments]


def traceable(
    module: Module, options: dict[str, Any], devices: Sequence[Any] | None = None, *, literals: bool = False
) -> Traceable:
    """``@main`` as a function of weights, state, resources and inputs, in this order: large constants are arguments, not literals.

    It gives the results, and behind them one flag for each condition that the program states. Weights are taken as they are held.
    ``devices`` are JAX's devices of a program over several of them. With ``literals`` large constants are literals too, for a
    caller that counts the compiled program's arguments, as JAX does.
    """
    func = module.main
    signature = Signature.of(func)
    names = {} if literals else resource_names(module)
    bound = (*signature.weights, *signature.state)
    checks, guards = Checks(), options.get("guards", True)
    frame: type[Frame] | None = ExactFrame if options.get("subnormals") == "exact" else None
    if frame is None and has_orders(module):  # exact values do not depend on orders, and are not fast
        frame = in_order(SizingFrame if bindings(func) else Frame)

    def traced(*flat: Any) -> tuple[Any, ...]:
        constants = dict(zip(names, flat[len(bound) :], strict=False))
        values = dict(zip((*bound, *signature.inputs), (*flat[: len(bound)], *flat[len(bound) + len(names) :]), strict=True))
        checks.clear()  # JAX may trace more than once
        find = (lambda name: host_view(module.weights[name])[0]) if literals else constants.__getitem__
        j = CheckedMeaning(find, module, checks, protect if guards else None)
        j.devices = devices
        results = run(func, [logical(values[i], arg.type) for i, arg in enumerate(func.args)], j, frame=frame)
        return (*results, *j.flags)

    arguments = [func.args[i].type for i in bound] + list(names.values()) + [func.args[i].type for i in signature.inputs]
    return Traceable(protect(traced) if guards else traced, arguments, signature, checks)


def _build(module: Module, options: dict[str, Any]) -> tuple[Any, Checks]:
    """``@main`` traced and compiled, and the conditions that it states."""
    import jax

    program = traceable(module, options)
    signature, checks = program.signature, program.checks
    with x64():
        donated = range(len(signature.weights), len(signature.weights) + len(signature.state))
        if donated:
            jax.eval_shape(program.function, *program.structs)
            if checks.diagnostics or checks.calls_back:  # a call that fails must leave the state as it was
                donated = range(0)
        jitted = jax.jit(program.function, keep_unused=True, donate_argnums=tuple(donated))
        compiled = jitted.lower(*program.structs).compile(compiler_options=dict(COMPILER_OPTIONS))
    return compiled, checks


def resource_names(module: Module) -> dict[str, Any]:
    """The weights that constants anywhere in the module refer to, in order of first use, with the type of each."""
    names: dict[str, Any] = {}
    for op in module.walk():
        value = op.attrs.get("value")
        if isinstance(value, Resource):
            names[str(value)] = op.results[0].type
    return names
