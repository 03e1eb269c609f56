"""Reductions: those with a well-known body by name, all others with their body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from neuron_ir.core import Block, Value
from neuron_ir.dims import DimLike
from neuron_ir.dtypes import DType
from neuron_ir.frontends.jax.stablehlo.rule import Translator, rule, unsupported
from neuron_ir.types import TensorType

_NAMED = {
    "neuron.add": "reduce_sum",
    "neuron.multiply": "reduce_prod",
    "neuron.maximum": "reduce_max",
    "neuron.minimum": "reduce_min",
    "neuron.and": "reduce_and",
    "neuron.or": "reduce_or",
    "neuron.xor": "reduce_xor",
}
_NAMED_BOOL = {
    "neuron.add": "reduce_or",
    "neuron.multiply": "reduce_and",
    "neuron.maximum": "reduce_or",
    "neuron.minimum": "reduce_and",
    "neuron.and": "reduce_and",
    "neuron.or": "reduce_or",
}


def _single(body: Block) -> str:
    """The name of the one commutative op of the two arguments that the body is, else nothing."""
    first, last = body.first, body.last
    if first is None or first.next is not last or last is None or last.operands != list(first.results):
        return ""
    return first.name if len(body.args) == 2 and set(first.operands) == set(body.args) else ""


def _identity(name: str, dtype: DType) -> Any:
    """The number that changes nothing under ``name``; ``None`` where there is none."""
    if name in ("reduce_sum", "reduce_or", "reduce_xor"):
        return False if dtype.kind == "bool" else 0
    if name == "reduce_prod":
        return 1
    if name == "reduce_and":
        return True if dtype.kind == "bool" else -1 if dtype.kind == "int" else int(dtype.max or 0)
    if dtype.is_float:
        return -np.inf if name == "reduce_max" else np.inf
    low = 0 if dtype.kind == "uint" else -int(dtype.max or 0) - 1
    return low if name == "reduce_max" else int(dtype.max or 0)


def _is_identity(init: Value, name: str) -> bool:
    """Whether a constant holds the number that changes nothing. A sum that begins with -0 is not one that begins with +0."""
    value = init.dense
    if value is None:
        return False
    number = _identity(name, init.dtype)
    wanted = np.asarray(number).astype(init.dtype.numpy)
    return bool(wanted == value.array) and (name != "reduce_sum" or wanted.tobytes() == value.data)


def _has_elements(c: Translator, x: Value, axes: tuple[int, ...]) -> bool:
    return all(c.least(x.shape[a]) > 0 for a in axes)


@rule("stablehlo.reduce")
def _reduce(c: Translator, op: Any, *values: Any) -> Any:
    axes = c.ints(op, "dimensions")
    n = len(values) // 2
    scalars = [TensorType((), v.dtype) for v in values[n:]]
    body = c.region(op, 0, scalars * 2)
    if n == 1:
        x, init = values
        table = _NAMED_BOOL if x.dtype.kind == "bool" else _NAMED
        name = table.get(_single(body), "")
        if x.dtype.is_complex and name not in ("reduce_sum", "reduce_prod"):
            name = ""
        if name and _is_identity(init, name) and (name not in ("reduce_max", "reduce_min") or _has_elements(c, x, axes)):
            return c.b.make(f"neuron.{name}", x, axes=axes)
    return c.b.reduce(*values, dimensions=axes, body=body)


@rule("stablehlo.reduce_window")
def _reduce_window(c: Translator, op: Any, *values: Any) -> Any:
    scalars = [TensorType((), v.dtype) for v in values[len(values) // 2 :]]
    window = Window(
        c.ints(op, "window_dimensions"),
        c.ints(op, "window_strides"),
        c.ints(op, "base_dilations"),
        c.ints(op, "window_dilations"),
        c.pairs(op, "padding"),
    )
    return reduce_window(c, op, values, window, c.region(op, 0, scalars * 2))


class Window(NamedTuple):
    """The numbers of a windowed reduction, one entry per dim each; sizes of the window and of the padding may be symbolic."""

    sizes: Sequence[DimLike]
    strides: Sequence[int]
    base_dilations: Sequence[int]
    dilations: Sequence[int]
    padding: Sequence[tuple[DimLike, DimLike]]


_RUNNING = {"neuron.add": "cumsum", "neuron.multiply": "cumprod", "neuron.maximum": "cummax", "neuron.minimum": "cummin"}


def reduce_window(c: Translator, op: Any, values: Sequence[Value], window: Window, body: Block) -> Any:
    """A windowed reduction; a running one by its name."""
    running = _running(values, window, body)
    if running is not None:
        name, axis, reverse = running
        return c.b.make(f"neuron.{name}", values[0], axis=axis, reverse=reverse)
    symbolic = [d for d in (*window.sizes, *(p for pair in window.padding for p in pair)) if not isinstance(d, int)]
    if symbolic:
        raise unsupported(op, f"the window or its padding is of symbolic size: {', '.join(map(str, symbolic))}")
    return c.b.reduce_window(
        *values,
        window_dimensions=tuple(window.sizes),
        window_strides=_unless_ones(window.strides),
        base_dilations=_unless_ones(window.base_dilations),
        window_dilations=_unless_ones(window.dilations),
        padding=() if all(p == (0, 0) for p in window.padding) else tuple(window.padding),
        body=body,
    )


def _unless_ones(values: Sequence[int]) -> tuple[int, ...]:
    return () if all(v == 1 for v in values) else tuple(values)


def _running(values: Sequence[Value], window: Window, body: Block) -> tuple[str, int, bool] | None:
    """Name, axis and direction where the windows are all that comes before (or after) each element along one axis."""
    name = _RUNNING.get(_single(body), "")
    if len(values) != 2 or not name or any(n != 1 for n in (*window.strides, *window.base_dilations, *window.dilations)):
        return None
    x, init = values
    allowed = (x.dtype.is_float or x.dtype.is_integer) if name in ("cummax", "cummin") else x.dtype.kind != "bool"
    if not allowed or not _is_identity(init, _NAMED[_single(body)]):
        return None
    axes = [i for i, n in enumerate(window.sizes) if n != 1]
    if len(axes) != 1 or window.sizes[axes[0]] != x.shape[axes[0]] or not window.padding:
        return None
    (axis,) = axes
    n = x.shape[axis]
    if any(p != (0, 0) for i, p in enumerate(window.padding) if i != axis):
        return None
    before, after = window.padding[axis]
    if (before, after) == (n - 1, 0):
        return name, axis, False
    return (name, axis, True) if (before, after) == (0, n - 1) else None


@rule("stablehlo.select_and_scatter")
def _select_and_scatter(c: Translator, op: Any, x: Any, source: Any, init: Any) -> Any:
    scalars = [TensorType((), x.dtype)] * 2
    strides, padding = c.ints(op, "window_strides"), c.pairs(op, "padding")
    window = c.ints(op, "window_dimensions") or (1,) * x.type.rank
    return c.b.select_and_scatter(
        x,
        source,
        init,
        window_dimensions=window,
        window_strides=() if all(s == 1 for s in strides) else strides,
        padding=() if all(p == (0, 0) for p in padding) else padding,
        select=c.region(op, 0, scalars),
        scatter=c.region(op, 1, scalars),
    )
