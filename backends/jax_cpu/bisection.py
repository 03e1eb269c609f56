"""Finds the first operation whose value is further from a reference than it may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuron_ir.backends.base import reference_values
from neuron_ir.backends.jax_cpu.arrays import host_view
from neuron_ir.backends.jax_cpu.program import CompiledProgram
from neuron_ir.core import Block, Func, Module, Op
from neuron_ir.diagnostics import fail
from neuron_ir.locations import FusedLoc
from neuron_ir.meaning import Meaning, run, x64
from neuron_ir.types import TensorType
from neuron_ir.widening import widened

__all__ = ["Finding", "bisect", "float64_values", "meaning_of", "prepared", "relative_error"]


@dataclass(frozen=True)
class Finding:
    """The first value past the tolerance: the op that made it, its error, and where it comes from.

    ``error`` is the largest difference as a part of the reference's largest value; infinite where only one of the two is NaN or
    infinite. ``dtypes`` are the element types along the way: those of the operands, then that of the result.
    """

    op: Op
    result: int
    error: float
    rtol: float
    compared: int

    @property
    def name(self) -> str:
        """The value's name in the text, or the op's."""
        return self.op.results[self.result].name or self.op.name

    @property
    def dtypes(self) -> str:
        sources = list(dict.fromkeys(v.dtype.name for v in self.op.operands if isinstance(v.type, TensorType)))
        return f"{', '.join(sources) or 'nothing'} -> {self.op.results[self.result].dtype}"

    @property
    def place(self) -> str:
        """The user's source line and module."""
        loc = self.op.loc
        first = loc.places[0] if isinstance(loc, FusedLoc) else loc
        return f"{first.short}{f' in {first.scope}' if first.scope else ''}"

    def __str__(self) -> str:
        return (
            f"{self.place}: {self.op.name} gives %{self.name} ({self.dtypes}) with the error {self.error:.3g}, past rtol = "
            f"{self.rtol:g}; the {self.compared} value(s) compared before it are within\n  {self.op!r}"
        )


def bisect(
    module: Module,
    reference_fn: Any = None,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    rtol: float = 1e-4,
) -> Finding | None:
    """Run ``@main`` op by op; the first op whose value differs from the reference by more than ``rtol``, ``None`` where none does.

    ``reference_fn`` is what to compare with: a torch module or exported program (its operations' values, matched by name); a
    function of the inputs that gives a mapping from a value's name in the text to an array; or ``None`` for the same program
    computed in float64 throughout. ``inputs`` as a compiled program takes them: a sequence, or a mapping by name. Values without a
    counterpart are passed over. Raises :class:`IRError` where nothing could be compared.
    """
    args, kwargs = ((), inputs) if isinstance(inputs, Mapping) else (tuple(inputs), {})
    sized, arrays = prepared(module, inputs)
    func = sized.main
    if reference_fn is None:
        wanted: Mapping[Any, Any] = float64_values(func, module, arrays)
    else:
        wanted = {name: _numpy(v) for name, v in reference_values(reference_fn, args, kwargs).items()}
    search = _Search(wanted, rtol, by_name=reference_fn is not None)
    with x64():
        run(func, arrays, meaning_of(module), search.observe_top_level(func.body))
    if not search.compared and search.finding is None:
        raise fail("input", "no value of the program has a counterpart in the reference", func.loc)
    return search.finding


def prepared(module: Module, inputs: Sequence[Any] | Mapping[str, Any]) -> tuple[Module, list[Any]]:
    """The module for the sizes of ``inputs`` (as a compiled program takes them), and an array for each argument of ``@main``."""
    args, kwargs = ((), inputs) if isinstance(inputs, Mapping) else (tuple(inputs), {})
    sized, arrays = CompiledProgram(module, {}).arguments(args, kwargs)
    return sized, [_numpy(a) for a in arrays]


def meaning_of(module: Module) -> Meaning:
    """What the facets of the module's ops see, with its weights."""
    return Meaning(lambda name: host_view(module.weights[name])[0], module)


def _numpy(value: Any) -> Any:
    import numpy

    return numpy.asarray(host_view(value)[0])


class _Search:
    """Compares values as they are computed and remembers the first that is off."""

    def __init__(self, wanted: Mapping[Any, Any], rtol: float, by_name: bool):
        self.wanted, self.rtol, self.by_name = wanted, rtol, by_name
        self.finding: Finding | None = None
        self.compared = 0
        self.position = 0

    def observe_top_level(self, body: Block) -> Callable[[Op, tuple[Any, ...]], None]:
        def observe(op: Op, results: tuple[Any, ...]) -> None:
            if op.block is not body:
                return
            position, self.position = self.position, self.position + 1
            for i, (value, got) in enumerate(zip(op.results, results, strict=True)):
                want = self.wanted.get(value.name if self.by_name else (position, i))
                if want is None or self.finding is not None or not isinstance(value.type, TensorType):
                    continue
                error = relative_error(got, want)
                if error > self.rtol:
                    self.finding = Finding(op, i, error, self.rtol, self.compared)
                self.compared += 1

        return observe


def relative_error(got: Any, want: Any) -> float:
    """The largest difference as a part of the largest value of the reference."""
    import numpy

    if got.shape != want.shape:
        return float("inf")
    wide = numpy.complex128 if numpy.iscomplexobj(got) or numpy.iscomplexobj(want) else numpy.float64
    got, want = numpy.asarray(got).astype(wide), numpy.asarray(want).astype(wide)
    if not got.size:
        return 0.0
    finite = numpy.isfinite(want)
    odd = ~finite & ~((got == want) | (numpy.isnan(got) & numpy.isnan(want)))
    if odd.any() or (finite & ~numpy.isfinite(got)).any():
        return float("inf")
    difference = numpy.abs(numpy.where(finite, got - want, 0)).max()
    scale = numpy.abs(numpy.where(finite, want, 0)).max()
    return float(difference / scale) if scale else float(difference)


# --- the same program in float64 --------------------------------------------------------------------------------------


def float64_values(func: Func, module: Module, arrays: Sequence[Any]) -> dict[tuple[int, int], Any]:
    """The value of each result of each op of the body, by position, with every float wide."""
    import numpy

    wide, positions, _ = widened(func)
    values: dict[tuple[int, int], Any] = {}

    def observe(op: Op, results: tuple[Any, ...]) -> None:
        for i, result in enumerate(results):
            key = positions.get((op, i))
            if key is not None:
                values[key] = numpy.asarray(result)

    inputs = [numpy.asarray(a).astype(arg.type.dtype.numpy) for a, arg in zip(arrays, wide.args, strict=True)]
    with x64():
        run(wide, inputs, meaning_of(module), observe)
    return values
