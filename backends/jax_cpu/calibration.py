"""Collects the largest values that a program's matrix products see, for scales that are fixed ahead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from neuron_ir.backends.jax_cpu.bisection import meaning_of, prepared
from neuron_ir.core import Module, Op, Value
from neuron_ir.diagnostics import fail
from neuron_ir.meaning import run, x64
from neuron_ir.precision_scaling import AMAX
from neuron_ir.printer import value_names
from neuron_ir.types import TensorType

__all__ = ["calibrate"]


def calibrate(module: Module, batches: Iterable[Sequence[Any] | Mapping[str, Any]]) -> dict[str, float]:
    """Run ``@main`` on each of ``batches`` (inputs as a compiled program takes them) and keep the largest finite magnitude of each
    value that a matrix product multiplies.

    They are written into the module, as the attribute ``amax`` of ``@main``, where ``precision{dtype=fp8 scaling=static}`` reads
    them by the values' names (values without one get one), and they are given back by name. A module that was calibrated before
    keeps what is larger. Values inside of loops and branches have no single array to look at and are left out. Raises
    :class:`IRError` (``input``) where there is no batch.
    """
    main = module.main
    names = _named(module)
    wanted = {v: names[v] for op in module.walk() if "matmul" in op.spec.traits for v in _factors(op) if v in names}
    found: dict[str, float] = {name: amount for name, amount in main.attrs.get(AMAX, ()) if name in set(wanted.values())}
    empty = True
    for inputs in batches:
        empty = False
        _observe(module, inputs, wanted, found)
    if empty:
        raise fail("input", "calibrate needs at least one batch of inputs", main.loc)
    main.attrs[AMAX] = tuple((name, found[name]) for name in sorted(found))
    return dict(sorted(found.items()))


def _named(module: Module) -> dict[Value, str]:
    """The name of each value of ``@main``, which it now carries itself, so that later passes keep it."""
    names = value_names(module.main)
    taken = set(names.values())
    for value, name in names.items():
        if not name.isdigit():
            value.name = name
            continue
        fresh = f"v{name}"
        while fresh in taken:
            fresh += "_"
        taken.add(fresh)
        value.name = names[value] = fresh
    return names


def _factors(op: Op) -> list[Value]:
    """The floats that a product multiplies: not its bias or mask."""
    named = zip(op.spec.operands, op.operand_groups, strict=True)
    found = [v for declared, v in named if v is not None and declared.name not in ("bias", "mask")]
    return [v for v in found if isinstance(v.type, TensorType) and v.dtype.is_float]


def _observe(
    module: Module, inputs: Sequence[Any] | Mapping[str, Any], wanted: Mapping[Value, str], found: dict[str, float]
) -> None:
    """Put the largest values of one run into ``found``."""
    import jax
    import numpy

    sized, arrays = prepared(module, inputs)
    func = sized.main
    origin = dict(zip(func.walk(), module.main.walk(), strict=True))

    def look(value: Value, array: Any) -> None:
        name = wanted.get(value)
        if name is None or isinstance(array, jax.core.Tracer):
            return
        size = numpy.abs(numpy.asarray(array).astype(numpy.float64))
        largest = float(numpy.max(size, where=numpy.isfinite(size), initial=0.0))
        found[name] = max(found.get(name, 0.0), largest)

    def observe(op: Op, results: tuple[Any, ...]) -> None:
        original = origin.get(op)
        if original is not None:
            for value, array in zip(original.results, results, strict=True):
                look(value, array)

    for arg, array in zip(module.main.args, arrays, strict=True):
        look(arg, array)
    with x64():
        run(func, arrays, meaning_of(module), observe)
