"""Reductions and running reductions."""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
from neuron_ir.dtypes import BOOL
from neuron_ir.frontends.torch.lowering import Context, axes_of, axis_of, lowers
from neuron_ir.types import TensorType


@lowers("sum.dim_IntList", "sum.default")
def sum_(c: Context, x: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return c.b.reduce_sum(c.cast(x, c.out.dtype), axes=axes_of(dims, len(x.shape)), keepdims=keepdim)


@lowers("mean.dim", "mean.default")
def mean(c: Context, x: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    axes = axes_of(dims, len(x.shape))
    wide = c.accumulator(c.out.dtype)
    total = c.b.reduce_sum(c.cast(x, wide), axes=axes, keepdims=keepdim)
    count: Any = 1
    for a in axes:
        count = count * x.shape[a]
    return c.cast(c.b.divide(total, c.scalar(count, wide, total.shape)), c.out.dtype)


@lowers("amax.default", "amin.default")
def extreme(c: Context, x: Value, dims: Any = (), keepdim: bool = False) -> Value:
    name = "reduce_max" if str(c.node.target) == "aten.amax.default" else "reduce_min"
    return c.b.make(f"neuron.{name}", x, axes=axes_of(dims, len(x.shape)), keepdims=keepdim)


@lowers("any.dim", "any.default", "any.dims", "all.dim", "all.default", "all.dims")
def truth(c: Context, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    name = "reduce_or" if str(c.node.target).startswith("aten.any") else "reduce_and"
    return c.cast(c.b.make(f"neuron.{name}", c.cast(x, BOOL), axes=axes_of(dims, len(x.shape)), keepdims=keepdim), c.out.dtype)


@lowers("argmax.default", "argmin.default")
def arg_extreme(c: Context, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    name = str(c.node.target).split(".")[1]
    return c.b.make(f"neuron.{name}", x, axis=None if dim is None else axis_of(dim, len(x.shape)), keepdims=keepdim)


@lowers("cumsum.default", "cumprod.default")
def cumulative(c: Context, x: Value, dim: int, dtype: Any = None) -> Value:
    name = str(c.node.target).split(".")[1]
    if not x.shape:
        return c.cast(x, c.out.dtype)
    y = c.cast(x, c.out.dtype)
    return c.b.make(f"neuron.{name}", y, axis=axis_of(dim, len(x.shape)), out=TensorType(x.shape, c.out.dtype))
