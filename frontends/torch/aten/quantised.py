"""Quantised and low-precision arithmetic: products of integers and of 8-bit floats with scales, quantisation, fake quantisation.

torch's quantisation rounds ``x * (1 / scale)`` in f32, not the quotient; that is kept.
"""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.shapes import product
from neuron_ir.dtypes import BOOL, F32, F64, I32
from neuron_ir.frontends.torch.aten.expansion import expand
from neuron_ir.frontends.torch.lowering import Context, lowers

# --- products ---------------------------------------------------------------------------------------------------------


@lowers("_int_mm.default")
def int_mm(c: Context, a: Value, b: Value) -> Value:
    """``i8 @ i8`` (or u8) summed in i32."""
    return c.b.matmul(c.cast(a, I32), c.cast(b, I32))


@lowers("_scaled_mm.default")
def scaled_mm(
    c: Context, a: Value, b: Value, scale_a: Value, scale_b: Value, bias: Value | None = None, scale_result: Value | None = None,
    out_dtype: Any = None, use_fast_accum: bool = False,
) -> Value:  # fmt: skip
    """``(a * scale_a) @ (b * scale_b) + bias`` in f32, rounded once; scales are one number, or one per row of a and column of b."""
    m, n = c.out.shape
    if scale_result is not None:
        raise c.unsupported("a scale of the result")
    for scale, sizes in ((scale_a, (m, 1)), (scale_b, (1, n))):
        if product(scale.shape) != 1 and tuple(scale.shape) != sizes:
            raise c.unsupported(f"scales of shape {list(scale.shape)}: one number, or {list(sizes)}")
    y = c.b.matmul(c.cast(a, F32), c.cast(b, F32))
    for scale in (scale_a, scale_b):
        flat = c.reshape(scale, ()) if product(scale.shape) == 1 else scale
        y = c.b.multiply(y, c.broadcast(c.cast(flat, F32), y.shape))
    if bias is not None:
        y = c.b.add(y, c.broadcast(c.cast(bias, F32), y.shape))
    return c.cast(y, c.out.dtype)


@lowers("_weight_int8pack_mm.default")
def weight_int8pack_mm(c: Context, x: Value, weight: Value, scales: Value) -> Value:
    """``(x @ weight.T) * scales`` for an i8 weight, one scale per row of it, summed in f32."""
    y = c.b.matmul(c.cast(x, F32), c.cast(weight, F32), transpose_b=True)
    return c.cast(c.b.multiply(y, c.broadcast(c.cast(scales, F32), y.shape)), c.out.dtype)


# --- scales that are tensors, or that follow from the data ------------------------------------------------------------


@lowers("quantized_decomposed.quantize_per_tensor.tensor", "quantized_decomposed.quantize_per_tensor.tensor2")
def quantize_per_tensor(c: Context, x: Value, scale: Value, zero_point: Value, low: Any, high: Any, _dtype: Any) -> Value:
    inverse = c.b.divide(c.scalar(1.0, F64, ()), c.cast(_single(c, scale), F64))
    places = c.b.multiply(c.cast(x, F32), c.scalar(inverse, F32, x.shape))
    places = c.b.add(c.b.round_nearest_even(places), c.scalar(_single(c, zero_point), F32, x.shape))
    bounds = [c.scalar(_single(c, v) if isinstance(v, Value) else v, F32, x.shape) for v in (low, high)]
    return c.cast(c.b.minimum(c.b.maximum(places, bounds[0]), bounds[1]), c.out.dtype)


@lowers("quantized_decomposed.dequantize_per_tensor.tensor", "quantized_decomposed.dequantize_per_tensor.tensor2")
def dequantize_per_tensor(c: Context, x: Value, scale: Value, zero_point: Value, *_bounds: Any, **_options: Any) -> Value:
    kept = c.b.subtract(c.cast(x, c.out.dtype), c.scalar(_single(c, zero_point), c.out.dtype, x.shape))
    return c.b.multiply(kept, c.scalar(_single(c, scale), c.out.dtype, x.shape))


def _single(c: Context, x: Value) -> Value:
    if product(x.shape) != 1:
        raise c.unsupported(f"scales of shape {list(x.shape)}: one number is needed")
    return c.reshape(x, ())


@lowers("quantized_decomposed.choose_qparams.tensor", "quantized_decomposed.choose_qparams_symmetric.tensor")
def choose_qparams(c: Context, *_args: Any) -> Any:
    """Scale (f64) and zero point (i64) that map the range of a tensor, widened to hold 0, onto ``low .. high``."""
    return expand(c, _symmetric if "symmetric" in str(c.node.target) else _affine)


def _affine(x: Any, low: int, high: int, eps: float, _dtype: Any) -> Any:
    import torch

    least, most = (v.clamp(*bound) for v, bound in ((x.amin(), (None, 0)), (x.amax(), (0, None))))
    scale = ((most - least) / float(high - low)).to(torch.promote_types(x.dtype, torch.float32)).clamp(min=_f32(eps))
    zero_point = (low - torch.round(least / scale).to(torch.int32)).clamp(low, high)
    return scale.reshape(1).double(), zero_point.reshape(1).long()


def _symmetric(x: Any, low: int, high: int, eps: float, dtype: Any) -> Any:
    import torch

    most = torch.maximum(-x.amin().clamp(max=0), x.amax().clamp(min=0))
    scale = (most / (float(high - low) / 2)).to(torch.promote_types(x.dtype, torch.float32)).clamp(min=_f32(eps))
    return scale.reshape(1).double(), torch.full((1,), 128 if dtype is torch.uint8 else 0, dtype=torch.int64)


def _f32(number: float) -> float:
    import numpy

    return float(numpy.float32(number))


# --- fake quantisation ------------------------------------------------------------------------------------------------


@lowers("fake_quantize_per_tensor_affine.default", "fake_quantize_per_tensor_affine_cachemask.default")
def fake_quantize(c: Context, x: Value, scale: float, zero_point: int, low: int, high: int) -> Any:
    return _faked(c, x, c.scalar(scale, F32), c.scalar(zero_point, F32), low, high)


@lowers("fake_quantize_per_tensor_affine.tensor_qparams")
def fake_quantize_tensors(c: Context, x: Value, scale: Value, zero_point: Value, low: int, high: int) -> Any:
    return _faked(c, x, _single(c, scale), _single(c, zero_point), low, high)


@lowers("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default")
def fake_quantize_switched(c: Context, x: Value, scale: Value, zero_point: Value, enabled: Value, low: int, high: int) -> Any:
    y, inside = _faked(c, x, _single(c, scale), _single(c, zero_point), low, high)
    on = c.broadcast(c.cast(_single(c, enabled), BOOL), x.shape)
    return c.b.select(on, y, x), c.b.or_(inside, c.b.not_(on))


@lowers("fake_quantize_per_channel_affine.default", "fake_quantize_per_channel_affine_cachemask.default")
def fake_quantize_channels(c: Context, x: Value, scale: Value, zero_point: Value, axis: int, low: int, high: int) -> Any:
    along = (axis % len(x.shape),)
    if zero_point.dtype.is_float:
        raise c.unsupported("zero points that are floats")
    scale, zero_point = (
        c.b.broadcast_in_dim(v, broadcast_dimensions=along, out=x.type.with_dtype(v.dtype)) for v in (scale, zero_point)
    )
    return _faked(c, x, scale, zero_point, low, high)


def _faked(c: Context, x: Value, scale: Value, zero_point: Value, low: int, high: int) -> Any:
    """``(clamp(round(x / scale) + zero_point) - zero_point) * scale``, and where the clamp left it alone."""
    wide = x.dtype.accumulator
    scale, zero = (c.broadcast(c.cast(v, wide), x.shape) for v in (scale, zero_point))
    places = c.b.round_nearest_even(c.b.multiply(c.cast(x, wide), c.b.divide(c.scalar(1.0, wide, x.shape), scale)))
    places = c.b.add(places, zero)
    floor, ceiling = (c.scalar(v, wide, x.shape) for v in (low, high))
    places = c.b.select(c.b.is_nan(places), c.scalar(float(low - 1), wide, x.shape), places)  # NaN becomes the least integer
    inside = c.b.and_(c.b.compare(places, floor, direction="GE"), c.b.compare(places, ceiling, direction="LE"))
    kept = c.b.subtract(c.b.minimum(c.b.maximum(places, floor), ceiling), zero)
    y = c.cast(c.b.multiply(kept, scale), c.out.dtype)
    return (y, inside) if len(c.outs) > 1 else y
