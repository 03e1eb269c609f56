"""Ops whose shapes are operands. Where those are known as sizes, the static op with symbolic dims takes their place."""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
from neuron_ir.dims import UNKNOWN, Dim, DimLike
from neuron_ir.dtypes import dtype
from neuron_ir.frontends.jax._compat import stablehlo
from neuron_ir.frontends.jax.stablehlo.contraction import convolution
from neuron_ir.frontends.jax.stablehlo.indexing import gather_dims
from neuron_ir.frontends.jax.stablehlo.rule import Translator, rule, unsupported
from neuron_ir.frontends.jax.stablehlo.sizes import Sizes, known
from neuron_ir.types import TensorType

I64 = dtype("i64")


def sizes_of(op: Any, item: Any, what: str) -> tuple[DimLike, ...]:
    """A shape operand as sizes; a refusal where it is computed from data."""
    found = known(item)
    if found is None:
        raise unsupported(op, f"the {what} depend on values that the program computes, not on the sizes of its inputs")
    return tuple(int(v) if isinstance(v, bool) else v for v in found.values)


def numbers_of(op: Any, item: Any, what: str) -> tuple[int, ...]:
    """A shape operand as numbers; a refusal where one is symbolic."""
    sizes = sizes_of(op, item, what)
    if not all(isinstance(d, int) for d in sizes):
        raise unsupported(op, f"the {what} {list(sizes)} are symbolic; numbers are needed here")
    return tuple(int(d) for d in sizes if isinstance(d, int))


def _out(c: Translator, op: Any, shape: Any, what: str = "result's sizes") -> Any:
    return c.out(op) if c.is_static(op) else c.out(op, sizes_of(op, shape, what))


@rule("stablehlo.get_dimension_size", sized=True)
def _get_dimension_size(c: Translator, op: Any, x: Value) -> Any:
    size = x.shape[c.value(op, "dimension")]
    if isinstance(size, Dim) and size is UNKNOWN:
        return c.b.get_dimension_size(x, dimension=c.value(op, "dimension"))
    return Sizes((size,), c.out(op))


@rule("stablehlo.dynamic_reshape", sized=True)
def _dynamic_reshape(c: Translator, op: Any, x: Any, shape: Any) -> Any:
    return c.b.reshape(c.value_of(x), out=_out(c, op, shape))


@rule("stablehlo.dynamic_broadcast_in_dim", sized=True)
def _dynamic_broadcast_in_dim(c: Translator, op: Any, x: Any, shape: Any) -> Any:
    dims = c.ints(op, "broadcast_dimensions")
    return c.b.broadcast_in_dim(c.value_of(x), broadcast_dimensions=dims, out=_out(c, op, shape))


@rule("stablehlo.dynamic_iota", sized=True)
def _dynamic_iota(c: Translator, op: Any, shape: Any) -> Any:
    return c.b.iota(iota_dimension=c.value(op, "iota_dimension"), out=_out(c, op, shape))


@rule("stablehlo.real_dynamic_slice", sized=True)
def _real_dynamic_slice(c: Translator, op: Any, x: Any, starts: Any, limits: Any, strides: Any) -> Any:
    steps = numbers_of(op, strides, "strides")
    x = c.value_of(x)
    if known(starts) is None and all(s == 1 for s in steps):
        return _from_computed_start(c, op, x, starts, limits)
    return c.b.slice(
        x,
        start_indices=sizes_of(op, starts, "start indices"),
        limit_indices=sizes_of(op, limits, "limit indices"),
        strides=steps if any(s != 1 for s in steps) else (),
    )


def _from_computed_start(c: Translator, op: Any, x: Value, starts: Value, limits: Any) -> Any:
    """A part of known sizes that begins anywhere: JAX writes its limits as the start plus the sizes."""
    add = limits.op if isinstance(limits, Value) else None
    others = [v for v in add.operands if v is not starts] if add is not None and add.name == "neuron.add" else []
    if len(others) != 1:
        raise unsupported(op, "neither the start nor the distance from it to the limit is known from the sizes of the inputs")
    sizes = c.sizes_behind(others[0])
    if sizes is None:
        raise unsupported(op, "the sizes of the slice depend on values that the program computes, not on the sizes of its inputs")
    scalar = TensorType((), starts.dtype)
    at = [c.b.reshape(c.b.slice(starts, start_indices=(i,), limit_indices=(i + 1,)), out=scalar) for i in range(x.type.rank)]
    return c.b.dynamic_slice(x, *at, slice_sizes=sizes, policy="clamp")


@rule("stablehlo.dynamic_pad", sized=True)
def _dynamic_pad(c: Translator, op: Any, x: Any, value: Any, low: Any, high: Any, interior: Any) -> Any:
    between = numbers_of(op, interior, "interior padding")
    return c.b.pad(
        c.value_of(x),
        c.value_of(value),
        edge_padding_low=sizes_of(op, low, "low padding"),
        edge_padding_high=sizes_of(op, high, "high padding"),
        interior_padding=between if any(between) else (),
    )


@rule("stablehlo.dynamic_gather", sized=True)
def _dynamic_gather(c: Translator, op: Any, x: Any, indices: Any, slice_sizes: Any) -> Any:
    return c.b.gather(
        c.value_of(x),
        c.value_of(indices),
        **gather_dims(op),
        slice_sizes=sizes_of(op, slice_sizes, "slice sizes"),
        indices_are_sorted=c.value(op, "indices_are_sorted", False),
        policy="clamp",
    )


@rule("stablehlo.dynamic_conv", sized=True)
def _dynamic_conv(c: Translator, op: Any, lhs: Any, rhs: Any, padding: Any) -> Any:
    lhs, rhs = c.value_of(lhs), c.value_of(rhs)
    if known(padding) is None:
        return _padded_at_run_time(c, op, lhs, rhs, c.value_of(padding))
    flat = numbers_of(op, padding, "padding")
    pairs = tuple(zip(flat[::2], flat[1::2], strict=True))
    return convolution(c, op, lhs, rhs, pairs)


def _padded_at_run_time(c: Translator, op: Any, lhs: Value, rhs: Value, padding: Value) -> Any:
    """A convolution whose padding is data, of known sizes: the part of ``lhs`` with wide margins that the windows reach.

    The result's sizes say how many elements that part has, ``(n - 1) * stride + reach of the kernel``; where it begins is minus the
    low padding. Padding beyond a margin as wide as the part itself sees zeros alone, so it is clamped.
    """
    sizes = (*lhs.shape, *rhs.shape)
    if not c.is_static(op) or not all(isinstance(d, int) for d in sizes):
        raise unsupported(op, "the padding depends on values that the program computes, and the sizes are not all known")
    out, numbers = c.out(op), stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    n = lhs.type.rank - 2
    strides, holes, dilation = (c.ints(op, k) or (1,) * n for k in ("window_strides", "lhs_dilation", "rhs_dilation"))
    low, interior, parts = [0] * (n + 2), [0] * (n + 2), list(lhs.shape)
    starts = [c.b.const(0, I64)] * (n + 2)
    lows = c.b.cast(padding, out=padding.type.with_dtype(I64))
    for i, dim in enumerate(numbers.input_spatial_dimensions):
        kernel = (rhs.shape[numbers.kernel_spatial_dimensions[i]] - 1) * dilation[i] + 1
        part = max((out.shape[numbers.output_spatial_dimensions[i]] - 1) * strides[i] + kernel, 0)
        size = max((lhs.shape[dim] - 1) * holes[i] + 1, 0)
        before = c.b.reshape(c.b.slice(lows, start_indices=(i, 0), limit_indices=(i + 1, 1)), out=TensorType((), I64))
        before = c.b.clamp(c.b.const(-size, I64), before, c.b.const(part, I64))
        starts[dim] = c.b.subtract(c.b.const(part, I64), before)
        low[dim], interior[dim], parts[dim] = part, holes[i] - 1, part
    wide = c.b.pad(
        lhs,
        c.b.const(0, lhs.dtype),
        edge_padding_low=tuple(low),
        edge_padding_high=tuple(low),
        interior_padding=tuple(interior) if any(interior) else (),
    )
    seen = c.b.dynamic_slice(wide, *starts, slice_sizes=tuple(parts), policy="clamp")
    return convolution(c, op, seen, rhs, (), dilated=True)


@rule("stablehlo.set_dimension_size", sized=True)
def _set_dimension_size(c: Translator, op: Any, x: Any, size: Any) -> Any:
    """The leading elements of one dim. The op is no part of the specification; only a size that is known has a meaning here."""
    dim, x = c.value(op, "dimension"), c.value_of(x)
    limits = list(x.shape)
    (limits[dim],) = sizes_of(op, size, "result's sizes")
    return x if limits == list(x.shape) else c.b.slice(x, start_indices=(0,) * len(limits), limit_indices=tuple(limits))
