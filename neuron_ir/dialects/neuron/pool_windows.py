"""Sliding windows by torch's rules: attributes with one entry per spatial dim, and windows that hang over the end
(``ceil_mode``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_ir.dims import DimLike, function


def filled(values: Sequence[int], n: int, default: int) -> tuple[int, ...]:
    """One entry per spatial dim: empty means ``default``, one entry counts for all."""
    full = tuple(values) or (default,)
    return full * n if len(full) == 1 else full


def per_dim(op: Any, name: str, values: Sequence[int], n: int, least: int, default: int) -> tuple[int, ...]:
    """:func:`filled` with its errors: another number of entries, or one below ``least``."""
    full = filled(values, n, default)
    if len(full) != n:
        raise op.error("attr", f"{name} = {list(values)} must have 1 or {n} entries")
    if min(full, default=least) < least:
        raise op.error("attr", f"{name} = {list(values)} must be at least {least} everywhere")
    return full


def pooled_size(size: DimLike, kernel: int, stride: int, pad: int, dilation: int, ceil: bool) -> DimLike:
    """How many windows fit ``size``. ``ceil``: one more may hang over the end if it begins within the input or the padding
    before it.
    """
    room = size + (2 * pad - dilation * (kernel - 1) - 1)
    if not ceil:
        return room // stride + 1
    return function("min", (room + (stride - 1)) // stride + 1, (size + (pad - 1)) // stride + 1)


def pads_for(
    sizes: Sequence[DimLike], counts: Sequence[DimLike], window: Sequence[Sequence[int]], ceil: bool
) -> list[tuple[int, int]]:
    """Padding before and after each dim that lets exactly ``counts`` windows fit; ``window``: kernel, stride, padding, dilation."""
    pads = []
    for size, n, kernel, stride, pad, dilation in zip(sizes, counts, *window, strict=True):
        if not ceil:
            pads.append((pad, pad))
            continue
        from .expression import count

        reach = (count([n]) - 1) * stride + dilation * (kernel - 1) + 1
        pads.append((pad, max(reach - count([size]) - pad, 0)))
    return pads


def members(size: int, n: int, kernel: int, stride: int, pad: int, with_padding: bool) -> list[int]:
    """How many elements each of ``n`` windows averages over: those inside the input, or inside its padding too, never the
    overhang.
    """
    low, high = (-pad, size + pad) if with_padding else (0, size)
    starts = [i * stride - pad for i in range(n)]
    return [min(s + kernel, high) - max(s, low) for s in starts]
