"""Quantised element types as MLIR spells them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from neuron_ir.diagnostics import fail
from neuron_ir.dtypes import DType, dtype

__all__ = ["Quantisation", "quantisation_of"]

_TYPE = re.compile(r"!quant\.uniform<([iu]\d+)(?:<(-?\d+):(-?\d+)>)?:(\w+)(?::(\d+))?, (?:\{(.*)\}|([^{}]+))>")


class Quantisation(NamedTuple):
    """The parameters of a quantised element type; one scale and zero point, or one per index of ``axis``."""

    storage: DType
    expressed: DType
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None
    storage_min: int | None
    storage_max: int | None

    @property
    def fields(self) -> dict[str, Any]:
        """The attributes of ``quantize`` and ``dequantize``."""
        zeros = self.zero_points if any(self.zero_points) else ()
        ends = {"storage_min": self.storage_min, "storage_max": self.storage_max}
        return {"scales": self.scales, "zero_points": zeros, "axis": self.axis, **ends}


@lru_cache(maxsize=1000)
def quantisation_of(text: str) -> Quantisation:
    """The quantisation that an MLIR element type spells; raises :class:`IRError` for forms without a meaning here."""
    match = _TYPE.fullmatch(text)
    if match is None:
        raise fail("unsupported", f"the quantised type {text} has no counterpart; one scale, or one per index of one dim, has")
    storage, low, high, expressed, axis, several, one = match.groups()
    pairs = [part.strip().partition(":") for part in (several or one).split(",")]
    return Quantisation(
        dtype(storage),
        dtype(expressed),
        tuple(float(scale) for scale, _, _ in pairs),
        tuple(int(zero or 0) for _, _, zero in pairs),
        None if axis is None else int(axis),
        None if low is None else int(low),
        None if high is None else int(high),
    )
