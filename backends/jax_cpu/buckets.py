"""Padding to buckets: one executable serves all sizes up to its own, on inputs filled up with zeros and results cut back."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from neuron_ir.backends.jax_cpu.executable import Executable
from neuron_ir.backends.jax_cpu.signature import Signature
from neuron_ir.constraints import constraints_of
from neuron_ir.core import Func
from neuron_ir.diagnostics import fail, nearest
from neuron_ir.meaning import x64
from neuron_ir.padding import check_padding
from neuron_ir.types import TensorType

__all__ = ["PaddedExecutable", "bucketed", "read_buckets"]


def read_buckets(func: Func, given: Any) -> dict[str, tuple[int, ...]]:
    """The buckets of each symbol in rising order. Raises :class:`IRError` for a symbol that the function does not have, a size out
    of its range, and every op through which padding could change a value.
    """
    if not isinstance(given, Mapping):
        raise fail("pass", f"buckets are given by size, as in {{'B': (8, 32)}}, not as a {type(given).__name__}")
    read = {}
    for name, sizes in given.items():
        if name not in func.dims:
            raise fail("pass", f"@{func.name} has no symbolic dimension {name}{nearest(str(name), func.dims)}", func.loc)
        low, high = func.dims[name]
        try:
            read[name] = tuple(sorted({operator.index(size) for size in sizes}))
        except TypeError:
            raise fail("pass", f"the buckets of {name} are a list of sizes, not {sizes!r}") from None
        outside = [s for s in read[name] if s < low or high is not None and s > high]
        if outside:
            allowed = f"{low} to {high}" if high is not None else f"at least {low}"
            raise fail("pass", f"a bucket of {outside[0]} for {name}, but the program was made for {allowed}", func.loc)
        check_padding(func, name)
    return read


def bucketed(func: Func, sizes: Mapping[str, int], buckets: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The sizes, each brought to the next bucket; as they are where the bucket would break a condition on sizes."""
    padded = {name: next((b for b in buckets.get(name, ()) if b >= size), size) for name, size in sizes.items()}
    return padded if all(c.at(padded) is True for c in constraints_of(func)) else dict(sizes)


class PaddedExecutable:
    """An executable of larger sizes, called with inputs of the real ones."""

    def __init__(self, executable: Executable, func: Func, sizes: Mapping[str, int], padded: Mapping[str, int]):
        self.executable = executable
        types = [func.args[i].type for i in Signature.of(func).inputs]
        self.shapes = [_sizes_of(t, sizes, padded) for t in types]
        results = [_sizes_of(t, sizes, padded) for t in func.result_types]
        self.cuts = [None if real == full else tuple(slice(0, n) for n in real) for real, full in results]

    def __call__(
        self, weights: Sequence[Any], state: Sequence[Any], resources: Sequence[Any], inputs: Sequence[Any]
    ) -> Sequence[Any]:
        """The function's results, cut to the real sizes."""
        filled = [x if real == full else _filled(x, real, full) for x, (real, full) in zip(inputs, self.shapes, strict=True)]
        results = self.executable(weights, state, resources, filled)
        with x64():
            return [r if cut is None else r[cut] for r, cut in zip(results, self.cuts, strict=True)]


def _sizes_of(type: Any, sizes: Mapping[str, int], padded: Mapping[str, int]) -> tuple[Any, Any]:
    """The real shape of an argument or result and the padded one; no shape where it has none."""
    return tuple(type.specialise(s).shape if isinstance(type, TensorType) else () for s in (sizes, padded))  # type: ignore[return-value]


def _filled(array: Any, real: Sequence[int], full: Sequence[int]) -> Any:
    """The array at the beginning of a larger one of zeros."""
    import numpy

    larger = numpy.zeros(full, array.dtype)
    larger[tuple(slice(0, n) for n in real)] = numpy.asarray(array)
    return larger
