"""8-bit floats with scales: scaling to a format's range, blocks of 32 with a scale each (MX), and stochastic rounding."""

from __future__ import annotations

from typing import Any

from neuron_ir.dims import Dim
from neuron_ir.dtypes import BF16, F16, F32, U64, DType, dtype
from neuron_ir.opdef import FLOAT, INTS, Op, attr, op, operand
from neuron_ir.types import TensorType, same_shape

from .rng import ALGORITHMS, STATE, check_state, words
from .shapes import axis_of

SCALED = tuple(dtype(n) for n in ("f8e4m3", "f8e4m3fn", "f8e5m2"))
MX_ELEMENTS = tuple(dtype(n) for n in ("f8e4m3fn", "f8e5m2"))
MX_SCALE = dtype("f8e8m0")
BLOCK = 32  # elements that share one scale in the OCP Microscaling formats
SMALLEST_NORMAL = 2.0**-126

# The largest exponent of each format's finite values, and the bits of its mantissa.
_LARGEST_EXPONENT = {"f8e4m3": 7, "f8e4m3fn": 8, "f8e5m2": 15}
_LEAST_EXPONENT = {"f8e4m3": -6, "f8e4m3fn": -6, "f8e5m2": -14, "f16": -14, "bf16": -126}
_MANTISSA = {"f8e4m3": 3, "f8e4m3fn": 3, "f8e5m2": 2, "f16": 10, "bf16": 7}


def _kept_dims(self: Op, rank: int) -> list[int]:
    """The dims that ``axes`` leaves over."""
    axes = self.get("axes")
    gone = range(rank) if axes is None else [axis_of(self, a, rank) for a in axes]
    return [i for i in range(rank) if i not in gone]


@op("neuron.amax", traits=["reduction"])
class Amax(Op):
    """Largest finite magnitude over axes, in f32 (f64 for f64); 0 for no elements. Infinities and NaN do not count.

    ``axes``: the dims that go (absent: all; negative ones count from the end).
    """

    x = operand(FLOAT)
    axes = attr(INTS, None)

    def infer(self):
        return TensorType([self.x.shape[i] for i in _kept_dims(self, self.x.type.rank)], self.x.dtype.accumulator)

    def jax(j, x, *, axes, out):
        wide = x.astype(out.dtype.numpy)
        size = j.np.where(j.np.isfinite(wide), j.np.abs(wide), 0)
        return j.np.max(size, axis=axes, initial=0)


@op("neuron.scale_for", traits=["elementwise"])
class ScaleFor(Op):
    """The scale that maps ``amax`` to the largest finite value of ``element``: ``amax / max * 2**margin``.

    1 where ``amax`` is 0; at least 2**-126, so that no scale is a subnormal number; NaN where ``amax`` is not finite or negative.
    """

    amax = operand(frozenset((F32, dtype("f64"))))
    element = attr(DType, choices=SCALED)
    margin = attr(int, 0)

    def infer(self):
        return self.amax.type

    def jax(j, amax, *, element, margin):
        kind = amax.dtype.type
        scale = j.np.maximum(amax * kind(2.0**margin) / kind(element.max), kind(SMALLEST_NORMAL))
        return j.np.where(amax == 0, kind(1), j.np.where((amax > 0) & j.np.isfinite(amax), scale, kind("nan")))


@op("neuron.scaled_cast")
class ScaledCast(Op):
    """``x / scale`` in ``element``, rounded to nearest even.

    ``scale`` has the shape of x without ``axes`` (absent: without any) and counts for all of them. Finite quotients beyond the
    largest finite value of ``element`` become that value; infinities become infinity, or NaN in f8e4m3fn, which has none; NaN
    stays. The quotient is formed in f32 (f64 for f64).
    """

    x = operand(FLOAT)
    scale = operand(FLOAT)
    element = attr(DType, choices=SCALED)
    axes = attr(INTS, None)

    def infer(self):
        wanted = [self.x.shape[i] for i in _kept_dims(self, self.x.type.rank)]
        if not same_shape(self.scale.shape, wanted):
            raise self.error("shape", f"the scale of {self.x.type} must be {wanted}, not {list(self.scale.shape)}")
        return self.x.type.with_dtype(self.element)

    def jax(j, x, scale, *, element, axes):
        gone = tuple(range(x.ndim)) if axes is None else tuple(a % x.ndim for a in axes)
        wide = "float64" if x.dtype == "float64" else "float32"
        y = x.astype(wide) / j.np.expand_dims(scale.astype(wide), gone)
        return _saturated(j, y, element).astype(element.numpy)


def _saturated(j: Any, y: Any, element: DType) -> Any:
    """Finite values within the range of ``element``; infinities and NaN as they are."""
    most = y.dtype.type(element.max)
    return j.np.where(j.np.isfinite(y), j.np.clip(y, -most, most), y)


# --- blocks -----------------------------------------------------------------------------------------------------------


def _blocks(self: Op, shape: Any) -> tuple[int, list[Any]]:
    """The axis of the blocks, and the shape of their scales."""
    axis = axis_of(self, self.get("axis"), len(shape))
    if isinstance(shape[axis], Dim):
        raise self.error("unsupported", f"blocks along a dim of the symbolic size {shape[axis]}")
    return axis, [-(-d // BLOCK) if i == axis else d for i, d in enumerate(shape)]


@op("neuron.quantize_mx")
class QuantizeMx(Op):
    """OCP Microscaling: blocks of 32 elements along ``axis`` (the last may be shorter) share one power of two as their scale.

    Gives the elements, rounded to nearest even, and the scales (f8e8m0, one for each block). With m the largest finite magnitude
    of a block the scale is ``2**(floor(log2(m)) - e + headroom)``, within 2**-127..2**127 and 2**-127 for m = 0, where e is the
    largest exponent of ``element``: 8 (f8e4m3fn) or 15 (f8e5m2). ``headroom`` 1 is trn3's, with which no finite element
    saturates; 0 is that of the OCP standard. Infinities and NaN as in scaled_cast, without an effect on their block. f64 is rounded
    to f32 first.
    """

    x = operand(FLOAT)
    element = attr(DType, MX_ELEMENTS[0], choices=MX_ELEMENTS)
    axis = attr(int, -1)
    headroom = attr(int, 1, choices=(0, 1))

    def infer(self):
        _, scales = _blocks(self, self.x.shape)
        return self.x.type.with_dtype(self.element), TensorType(scales, MX_SCALE)

    def jax(j, x, *, element, axis, headroom, out):
        axis %= x.ndim
        wide = x.astype("float64")
        size = j.np.where(j.np.isfinite(wide), j.np.abs(wide), 0)
        missing = out[1].shape[axis] * BLOCK - x.shape[axis]
        padded = j.np.pad(size, [(0, missing if i == axis else 0) for i in range(x.ndim)])
        most = j.np.max(
            padded.reshape((*x.shape[:axis], out[1].shape[axis], BLOCK, *x.shape[axis + 1 :])), axis=axis + 1, initial=0
        )
        power = j.np.where(most > 0, _exponent(j, most) - _LARGEST_EXPONENT[element.name] + headroom, -127)
        code = j.np.clip(power + 127, 0, 254).astype("uint8")
        scale = _spread(j, _value(j, code), x.shape, axis)
        y = _saturated(j, wide / scale, element).astype("float32")
        return y.astype(element.numpy), j.lax.bitcast_convert_type(code, MX_SCALE.numpy)


def _exponent(j: Any, x: Any) -> Any:
    """``floor(log2(x))`` of positive normal f64 numbers, exactly."""
    bits = j.lax.bitcast_convert_type(x, j.np.int64)
    return ((bits >> 52) & 0x7FF) - 1023


def _value(j: Any, code: Any) -> Any:
    """The f64 value of codes of f8e8m0. XLA flushes 2**-127 in f32, hence f64."""
    power = j.lax.bitcast_convert_type((code.astype("int64") - 127 + 1023) << 52, j.np.float64)
    return j.np.where(code == 255, j.np.float64("nan"), power)


def _spread(j: Any, scale: Any, shape: Any, axis: int) -> Any:
    """Each block's scale beside each of its elements."""
    return j.lax.slice_in_dim(j.np.repeat(scale, BLOCK, axis=axis), 0, shape[axis], axis=axis)


@op("neuron.dequantize_mx")
class DequantizeMx(Op):
    """What elements in blocks of 32 along ``axis`` with one scale each mean: ``x * scale``, in ``element`` (bf16 holds it)."""

    x = operand(FLOAT)
    scales = operand(frozenset((MX_SCALE,)))
    element = attr(DType, BF16, choices=(BF16, F32, dtype("f64")))
    axis = attr(int, -1)

    def infer(self):
        _, scales = _blocks(self, self.x.shape)
        if not same_shape(self.scales.shape, scales):
            raise self.error("shape", f"the scales of {self.x.type} must be {scales}, not {list(self.scales.shape)}")
        return self.x.type.with_dtype(self.element)

    def jax(j, x, scales, *, element, axis):
        axis %= x.ndim
        if scales.dtype == MX_SCALE.numpy:  # an executor that keeps subnormal numbers hands over f64
            scales = _value(j, j.lax.bitcast_convert_type(scales, "uint8"))
        y = x.astype("float32").astype("float64") * _spread(j, scales, x.shape, axis)
        return y.astype("float32" if element.bits < 64 else "float64").astype(element.numpy)


# --- stochastic rounding ----------------------------------------------------------------------------------------------


@op("neuron.round_stochastic", traits=["random"])
class RoundStochastic(Op):
    """Each element as one of its two neighbours in ``element``, and the next state; nearer is likelier, so the mean is x.

    The neighbour away from 0 is taken where a random u32 word is below ``2**32`` times the way to it. Values of ``element`` stay;
    finite ones beyond its largest become that; infinities and NaN as in scaled_cast. ``state`` is that of random_bits; the shape
    is static.
    """

    x = operand(FLOAT)
    state = operand(frozenset({U64}))
    element = attr(DType, choices=(*SCALED, F16, BF16))
    algorithm = attr(str, "PHILOX", choices=ALGORITHMS)

    def infer(self):
        check_state(self)
        if not self.x.type.is_static:
            raise self.error("unsupported", f"random numbers for a symbolic shape: {self.x.type}")
        return self.x.type.with_dtype(self.element), STATE

    def jax(j, x, state, *, element, algorithm):
        state, bits = words(j, state, x.size, algorithm)
        wide = x.astype("float64")
        size = j.np.where(j.np.isfinite(wide), j.np.abs(wide), 0)
        least = _LEAST_EXPONENT[element.name]
        power = j.np.where(size > 0, j.np.maximum(_exponent(j, size), least), least) - _MANTISSA[element.name]
        step = j.lax.bitcast_convert_type((power + 1023) << 52, j.np.float64)
        whole = j.np.floor(size / step)
        up = bits.reshape(x.shape).astype("float64") < (size / step - whole) * 2.0**32
        rounded = j.np.copysign((whole + up) * step, wide)
        y = _saturated(j, j.np.where(j.np.isfinite(wide), rounded, wide), element)
        return y.astype("float32").astype(element.numpy), state
