"""Sliding windows: the arithmetic that convolution, reduce_window, select_and_scatter and pooling share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_ir.dims import UNKNOWN, DimLike
from neuron_ir.dtypes import DType
from neuron_ir.opdef import Kind
from neuron_ir.types import TensorType, same_shape


def _pairs(v: Any) -> Any:
    """``[1, 1, 0, 2]`` as ``((1, 1), (0, 2))``; pairs stay as they are."""
    if not isinstance(v, list | tuple):
        return v
    if v and all(isinstance(x, int) for x in v) and len(v) % 2 == 0:
        return tuple((v[i], v[i + 1]) for i in range(0, len(v), 2))
    return tuple(tuple(p) if isinstance(p, list | tuple) else p for p in v)


def _is_pair(p: Any) -> bool:
    return isinstance(p, tuple) and len(p) == 2 and all(isinstance(x, int) and not isinstance(x, bool) for x in p)


PADDING: Any = Kind("a list of [low, high] pairs", lambda v: isinstance(v, tuple) and all(map(_is_pair, v)), _pairs)


def accumulator_name(j: Any, x: Any) -> Any:
    """The numpy type in which sums and products of the array ``x`` are formed."""
    return j.np.float32 if j.np.issubdtype(x.dtype, j.np.floating) and x.dtype.itemsize < 4 else x.dtype


def choose(self: Any, shape: Sequence[DimLike], dtype: DType, index: int = 0) -> TensorType:
    """Result ``index``: the type that was asked for where its shape fits ``shape``, or ``dtype`` where none was asked for.

    Two different symbolic sizes may be two spellings of one size, so they are let through; numbers must agree.
    """
    if index >= len(self.results):
        return TensorType(shape, dtype)
    asked = self.results[index].type
    if not isinstance(asked, TensorType) or not _may_be(asked.shape, shape):
        raise self.error("type", f"result {index} is {asked}, but its shape must be {list(shape)}")
    return asked


def _may_be(asked: Sequence[DimLike], shape: Sequence[DimLike]) -> bool:
    return len(asked) == len(shape) and all(
        same_shape([a], [b]) or not (isinstance(a, int) or isinstance(b, int)) for a, b in zip(asked, shape, strict=True)
    )


def fill(self: Any, name: str, values: Sequence[int], rank: int, default: int = 1, least: int = 1) -> tuple[int, ...]:
    """The attribute ``name`` with one value per windowed dim (``default`` where it is empty), each at least ``least``."""
    if not values:
        return (default,) * rank
    if len(values) != rank:
        raise self.error("shape", f"{name} {list(values)} must have {rank} values, one per windowed dimension")
    if any(v < least for v in values):
        raise self.error("shape", f"{name} {list(values)} must be at least {least}")
    return tuple(values)


def fill_pads(self: Any, padding: Sequence[tuple[int, int]], rank: int) -> tuple[tuple[int, int], ...]:
    """``padding`` with one pair per windowed dim; empty: no padding."""
    if padding and len(padding) != rank:
        raise self.error("shape", f"padding {[list(p) for p in padding]} must have {rank} pairs, one per windowed dimension")
    return tuple(padding) or ((0, 0),) * rank


def window_count(
    size: DimLike, window: DimLike, stride: int = 1, pads: tuple[int, int] = (0, 0), base: int = 1, dilation: int = 1
) -> DimLike:
    """How many windows fit one dim: ``floor((dilated + low + high - dilated window) / stride) + 1``, at least 0."""
    if size is UNKNOWN or window is UNKNOWN:
        return UNKNOWN
    dilated = size if size == 0 else (size - 1) * base + 1
    reach = window if window == 0 else (window - 1) * dilation + 1
    room = dilated + pads[0] + pads[1] - reach
    if isinstance(room, int) and room < 0:
        return 0
    return room // stride + 1
