"""Activations, softmax, embeddings."""

from __future__ import annotations

import math
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dtypes import BOOL
from neuron_ir.frontends.torch.lowering import Context, axis_of, lowers
from neuron_ir.types import TensorType

# Operation -> op and its attributes in the order of the operation's arguments.
_ACTIVATIONS = {
    "gelu": ("gelu", ["approximate"]),
    "mish": ("mish", []),
    "selu": ("selu", []),
    "hardsigmoid": ("hardsigmoid", []),
    "hardswish": ("hardswish", []),
    "log_sigmoid": ("log_sigmoid", []),
    "leaky_relu": ("leaky_relu", ["slope"]),
    "elu": ("elu", ["alpha", "scale", "input_scale"]),
    "celu": ("celu", ["alpha"]),
    "softplus": ("softplus", ["beta", "threshold"]),
    "softshrink": ("softshrink", ["lambd"]),
    "hardshrink": ("hardshrink", ["lambd"]),
    "threshold": ("threshold", ["threshold", "value"]),
    "glu": ("glu", ["axis"]),
}


def _activation(op_name: str, names: list[str]) -> Any:
    def rule(c: Context, x: Value, *args: Any, **kwargs: Any) -> Value:
        fields = dict(zip(names, args, strict=False)) | {("slope" if k == "negative_slope" else k): v for k, v in kwargs.items()}
        floats: dict[str, Any] = {k: v if isinstance(v, str) or k == "axis" else float(v) for k, v in fields.items()}
        return c.b.make(f"neuron.{op_name}", x, **floats)

    return rule


for _name, (_op, _attrs) in _ACTIVATIONS.items():
    lowers(f"{_name}.default")(_activation(_op, _attrs))


@lowers("relu.default")
def relu(c: Context, x: Value) -> Value:
    return c.b.relu(x) if x.dtype.is_float else c.b.maximum(x, c.scalar(0, x.dtype, x.shape))


@lowers("hardtanh.default")
def hardtanh(c: Context, x: Value, low: float = -1, high: float = 1) -> Value:
    if x.dtype.is_float:
        return c.b.hardtanh(x, min=float(low), max=float(high))
    return c.b.clamp(c.scalar(int(low), x.dtype), x, c.scalar(int(high), x.dtype))


@lowers("relu6.default")
def relu6(c: Context, x: Value) -> Value:
    return c.b.relu6(x) if x.dtype.is_float else hardtanh(c, x, 0, 6)


@lowers("silu.default")
def silu(c: Context, x: Value) -> Value:
    if not x.dtype.is_complex:
        return c.b.silu(x)
    return (Expr(c.b, x) / ((-Expr(c.b, x)).exp() + 1.0)).value


@lowers("log_sigmoid_forward.default")
def log_sigmoid_forward(c: Context, x: Value) -> tuple[Value, Value]:
    return c.b.log_sigmoid(x), c.scalar(0, c.outs[1].dtype, c.outs[1].shape)


@lowers("prelu.default", "_prelu_kernel.default")
def prelu(c: Context, x: Value, weight: Value) -> Value:
    if str(c.node.target) == "aten.prelu.default" and len(x.shape) > 1:
        weight = c.reshape(weight, (weight.shape[0], *(1,) * (len(x.shape) - 2)))
    return c.b.prelu(x, weight)


@lowers("softmax.int", "_softmax.default")
def softmax(c: Context, x: Value, dim: int, dtype: Any = None) -> Value:
    """``_softmax`` has a flag where ``softmax`` has a dtype: either way the result's type tells what to compute in."""
    return c.b.softmax(c.cast(x, c.out.dtype), axis=_axis(x, dim))


@lowers("log_softmax.int", "_log_softmax.default")
def log_softmax(c: Context, x: Value, dim: int, dtype: Any = None) -> Value:
    return c.b.log_softmax(c.cast(x, c.out.dtype), axis=_axis(x, dim))


@lowers("_masked_softmax.default")
def masked_softmax(c: Context, x: Value, mask: Value, dim: int | None = None, mask_type: int | None = None) -> Value:
    """Softmax without the elements where ``mask`` holds, which is of queries and keys (0), of rows and keys (1) or of x (2)."""
    rank = len(x.shape)
    places = {0: (rank - 2, rank - 1), 1: (0, rank - 1)}.get(2 if mask_type is None else mask_type, tuple(range(rank)))
    masked = c.b.broadcast_in_dim(mask, broadcast_dimensions=places, out=TensorType(x.shape, mask.dtype))
    left = c.b.select(masked, c.scalar(-math.inf, x.dtype, x.shape), x)
    return c.b.softmax(left, axis=_axis(x, rank - 1 if dim is None else dim))  # type: ignore[no-any-return]


@lowers("_safe_softmax.default")
def safe_softmax(c: Context, x: Value, dim: int, dtype: Any = None) -> Value:
    return safe_softmax_of(c, c.cast(x, c.out.dtype), dim)


def safe_softmax_of(c: Context, x: Value, dim: int) -> Value:
    """Softmax that gives zeros for a row of -inf only."""
    y = c.b.softmax(x, axis=_axis(x, dim))
    if not x.shape:
        return y
    unseen = c.b.compare(x, c.scalar(-math.inf, x.dtype, x.shape), direction="EQ")
    none_seen = c.b.reduce_and(unseen, axes=(axis_of(dim, len(x.shape)),), keepdims=True)
    return c.b.select(c.broadcast(none_seen, x.shape), c.scalar(0.0, y.dtype, y.shape), y)


def _axis(x: Value, dim: int) -> int:
    """The axis as given where it counts from the end, as most programs write it; rank 0 has one virtual axis."""
    axis = axis_of(dim, len(x.shape))
    return -1 if axis == max(len(x.shape), 1) - 1 else axis


@lowers("embedding.default")
def embedding(
    c: Context, weight: Value, indices: Value, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Value:  # fmt: skip
    return c.b.embedding(weight, indices, padding_idx=padding_idx if padding_idx >= 0 else None)


@lowers("one_hot.default")
def one_hot(c: Context, x: Value, classes: Any = -1) -> Value:
    if classes == -1:
        raise c.unsupported("the number of classes must be given: it depends on the data otherwise")
    return c.b.one_hot(x, size=c.out.shape[-1], policy="raise")


@lowers("threshold_backward.default")
def threshold_backward(c: Context, grad: Value, x: Value, threshold: Any) -> Value:
    kept = c.b.compare(x, c.scalar(threshold, x.dtype, x.shape), direction="LE")
    assert kept.dtype is BOOL
    return c.b.select(kept, c.scalar(0, grad.dtype, grad.shape), grad)
