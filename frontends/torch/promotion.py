"""torch's type promotion: tensors with dims count before tensors of rank 0, and those before Python numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dims import Dim
from neuron_ir.dtypes import BF16, BOOL, C64, C128, F16, F32, F64, I64, DType

__all__ = ["is_exact", "promoted", "rounded"]


def promoted(operands: Sequence[Any]) -> DType:
    """The element type of an elementwise operation of tensors (:class:`Value`), Python numbers and sizes."""
    ranks: list[list[DType]] = [[], [], []]
    for operand in operands:
        if isinstance(operand, Value):
            ranks[0 if operand.shape else 1].append(operand.dtype)
        else:
            ranks[2].append(_of_number(operand))
    found = [reduce(_promote, types) for types in ranks if types]
    return reduce(lambda low, high: _combine(high, low), reversed(found))


def _of_number(number: Any) -> DType:
    if isinstance(number, bool):
        return BOOL
    if isinstance(number, int | Dim):
        return I64
    return C64 if isinstance(number, complex) else F32


def _combine(high: DType, low: DType) -> DType:
    """A type of higher rank keeps its width; the lower one only lifts its kind."""
    if high.is_complex:
        return high
    if high.is_float:
        return high if not low.is_complex else C128 if high is F64 else C64
    return _promote(high, low) if high is BOOL or low.is_float or low.is_complex else high


@cache
def _promote(a: DType, b: DType) -> DType:
    import torch

    common = torch.promote_types(_torch_dtype(a), _torch_dtype(b))
    return next(t for t in _all() if _torch_dtype(t) is common)


@cache
def _all() -> tuple[DType, ...]:
    import torch

    from neuron_ir.dtypes import all_dtypes

    return tuple(t for t in all_dtypes() if t.name != "tf32" and hasattr(torch, t.numpy_name.rstrip("_")))


def _torch_dtype(t: DType) -> Any:
    import torch

    return getattr(torch, t.numpy_name.rstrip("_"))


def rounded(number: Any, t: DType) -> Any:
    """A Python number as a narrow float type (f16, bf16) holds it; as it is for any other type."""
    import torch

    if t not in (F16, BF16) or not isinstance(number, int | float):
        return number
    return float(torch.tensor(number, dtype=_torch_dtype(t)))


def is_exact(number: Any, t: DType) -> bool:
    """Whether a narrow float type holds a Python number without rounding."""
    return bool(number != number or rounded(number, t) == number)
