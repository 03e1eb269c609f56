"""Normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.frontends.torch.lowering import Context, lowers


@lowers("layer_norm.default")
def layer_norm(
    c: Context, x: Value, shape: Sequence[Any], weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5,
    _cudnn: bool = True,
) -> Value:  # fmt: skip
    return c.b.layer_norm(x, weight, bias, eps=float(eps), trailing_dims=len(shape))


@lowers("native_layer_norm.default")
def native_layer_norm(
    c: Context, x: Value, shape: Sequence[Any], weight: Value | None, bias: Value | None, eps: float
) -> Sequence[Value]:  # fmt: skip
    y, mean, rstd = c.b.layer_norm(x, weight, bias, eps=float(eps), trailing_dims=len(shape), stats=True)
    return y, c.cast(mean, c.outs[1].dtype), c.cast(rstd, c.outs[2].dtype)


@lowers("rms_norm.default", "_fused_rms_norm.default")
def rms_norm(c: Context, x: Value, shape: Sequence[Any], weight: Value | None = None, eps: float | None = None) -> Any:
    if eps is None:  # the machine epsilon of the type that torch computes in
        eps = {"f64": 2.0**-52, "f16": 2.0**-10, "bf16": 2.0**-7}.get(x.dtype.name, 2.0**-23)
        eps = 2.0**-23 if x.dtype.bits < 32 else eps
    if x.dtype.is_complex:
        return _complex_rms_norm(Expr(c.b, x), len(shape), weight, float(eps)).value
    stats = len(c.outs) > 1
    y = c.b.rms_norm(x, weight, eps=float(eps), trailing_dims=len(shape), stats=stats)
    return (y[0], c.cast(y[1], c.outs[1].dtype)) if stats else y


def _complex_rms_norm(x: Expr, trailing: int, weight: Value | None, eps: float) -> Expr:
    """Divided by the root of the mean of squares, not of squared sizes, as torch does."""
    axes = range(x.rank - trailing, x.rank)
    y = x * ((x * x).mean(axes) + eps).rsqrt().broadcast(x.shape)
    return y if weight is None else y * x.new(weight).broadcast(x.shape, [*axes])


@lowers("group_norm.default")
def group_norm(
    c: Context, x: Value, groups: int, weight: Value | None = None, bias: Value | None = None, eps: float = 1e-5,
    _cudnn: bool = True,
) -> Value:  # fmt: skip
    return c.b.group_norm(x, weight, bias, groups=groups, eps=float(eps))


@lowers("native_group_norm.default")
def native_group_norm(
    c: Context, x: Value, weight: Value | None, bias: Value | None, _n: Any, _channels: Any, _size: Any, groups: int, eps: float
) -> Sequence[Value]:  # fmt: skip
    return c.b.group_norm(x, weight, bias, groups=groups, eps=float(eps), stats=True)


def _as_torch(c: Context, *values: Value | None) -> tuple[Value, ...]:
    """Results in torch's element types; one that torch leaves empty is empty."""
    given = zip(values, c.outs, strict=True)
    return tuple(c.scalar(0, t.dtype, t.shape) if v is None else c.cast(v, t.dtype) for v, t in given)


@lowers("_native_batch_norm_legit_no_training.default", "_batch_norm_no_update.default")
def batch_norm_inference(
    c: Context, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, _momentum: float, eps: float
) -> tuple[Value, ...]:  # fmt: skip
    nothing = [None] * (len(c.outs) - 1)
    return _as_torch(c, c.b.batch_norm(x, weight, bias, mean, var, eps=float(eps)), *nothing)


@lowers("batch_norm.default")
def batch_norm(
    c: Context, x: Value, weight: Value | None, bias: Value | None, mean: Value | None, var: Value | None, training: bool,
    momentum: float, eps: float, _cudnn: bool,
) -> Value:  # fmt: skip
    if not training:
        return c.b.batch_norm(x, weight, bias, mean, var, eps=float(eps))
    if mean is not None:
        raise c.unsupported("running statistics written behind the schema; export the program again")
    return c.b.batch_norm(x, weight, bias, None, None, eps=float(eps), train=True)[0]


@lowers("_native_batch_norm_legit_functional.default")
def batch_norm_training(
    c: Context, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, training: bool, momentum: float,
    eps: float,
) -> Any:  # fmt: skip
    if not training:
        return _as_torch(c, c.b.batch_norm(x, weight, bias, mean, var, eps=float(eps)), None, None, mean, var)
    return _as_torch(c, *_trained(c, x, weight, bias, mean, var, momentum, eps))


def _trained(
    c: Context, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, momentum: float, eps: float
) -> tuple[Value, ...]:  # fmt: skip
    """The result, the batch's statistics, and the new running ones."""
    y, new_mean, new_var, saved_mean, rstd = c.b.batch_norm(
        x, weight, bias, mean, var, train=True, momentum=float(momentum), eps=float(eps)
    )
    return y, saved_mean, rstd, new_mean, new_var


@lowers("_batch_norm_with_update_functional.default")
def batch_norm_with_update(
    c: Context, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, momentum: float, eps: float
) -> Any:  # fmt: skip
    """Between the statistics stands what other devices reserve for the gradient: nothing."""
    y, saved_mean, rstd, new_mean, new_var = _trained(c, x, weight, bias, mean, var, momentum, eps)
    return _as_torch(c, y, saved_mean, rstd, None, new_mean, new_var)


@lowers("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    c: Context, x: Value, weight: Value | None, bias: Value | None, _training: bool, _momentum: float, eps: float
) -> Any:  # fmt: skip
    return _as_torch(c, *c.b.batch_norm(x, weight, bias, None, None, train=True, eps=float(eps)))


@lowers("native_batch_norm.default")
def native_batch_norm(
    c: Context, x: Value, weight: Value | None, bias: Value | None, mean: Value | None, var: Value | None, training: bool,
    momentum: float, eps: float,
) -> Any:  # fmt: skip
    if not training:
        return _as_torch(c, c.b.batch_norm(x, weight, bias, mean, var, eps=float(eps)), None, None)
    if mean is not None:
        raise c.unsupported("running statistics written behind the schema; export the program again")
    return _as_torch(c, *c.b.batch_norm(x, weight, bias, None, None, train=True, eps=float(eps)))
