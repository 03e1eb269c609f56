"""Conversions between element types: values (``cast``), bits (``bitcast_convert``), precision, and quantisation."""

from __future__ import annotations

from neuron_ir.dialects.neuron.elementwise import FLOAT, is_bool, is_complex, is_int
from neuron_ir.dialects.neuron.shapes import check_result_shape, differ
from neuron_ir.dtypes import dtype
from neuron_ir.opdef import ANY, FLOATS, INT, INTS, Op, attr, op, operand

MODES = ("nan", "saturate", "wrap")


@op("neuron.cast", traits=["elementwise"])
class Cast(Op):
    """Each element as a value of the result's element type; the rounding is to nearest even.

    * float to float: rounds. Beyond the largest finite value, ``mode`` decides: ``"nan"`` and ``"wrap"`` give infinity, or NaN in
      formats without infinity (f8e4m3fn, ...), or the largest value in f4e2m1, which has neither; ``"saturate"`` always gives the
      largest finite value, for infinities too. NaN stays NaN (0 in f4e2m1). f8e8m0 holds powers of two only: negative values are
      NaN, positive ones below 2**-127 give 2**-127, zero is NaN (``"saturate"``: 2**-127).
    * float to integer: truncates towards zero. Out of range, ``"nan"`` and ``"saturate"`` (JAX, StableHLO) give the nearest end of
      the range, and 0 for NaN; ``"wrap"`` (torch on x86) converts to a 32-bit integer (i64 and u8: 64-bit), which is -2**31
      (-2**63) where even that cannot hold the value, NaN included, and keeps the low bits; for u32 and u64, values in the upper
      half of the range first have the half taken off (f16 to u32: converts to a 64-bit integer).
    * integer to integer: keeps the low bits in every mode. Integer to float: rounds, then as float to float.
    * to bool: ``x != 0``, true for NaN. From bool: 0 and 1.
    * complex to complex: each part. Complex to real: drops the imaginary part (to bool: ``x != 0``). Real to complex: adds 0.
    """

    x = operand(ANY)
    mode = attr(str, "nan", choices=MODES)

    def check(self):
        check_result_shape(self, self.x.shape)

    def jax(j, x, *, mode, out):
        target = out.dtype
        if target.name == "tf32":
            return j.lax.reduce_precision(x.astype("float32"), 8, 10)
        if is_complex(x) and not target.is_complex and target.kind != "bool":
            x = j.lax.real(x)
        if target.kind == "bool":
            return x if is_bool(x) else j.lax.ne(x, j.np.zeros_like(x))
        if target.is_integer and not (is_int(x) or is_bool(x)):
            return (_wrap if mode == "wrap" else _saturate)(j, x, target)
        if target.is_float and target.bits < 64:
            return _to_float(j, x, target, mode)
        return j.lax.convert_element_type(x, target.numpy)


def _to_float(j, x, target, mode):
    if is_int(x) and target.bits <= 8:
        x = x.astype("float64" if x.dtype.itemsize > 2 else "float32")
    floating = not (is_int(x) or is_bool(x))
    if mode == "saturate" and floating and (wide := x.dtype.type(target.max)) == target.max:
        x = j.lax.clamp(-wide, x, wide)
    y = j.lax.convert_element_type(x, target.numpy)
    if target.name == "f8e8m0" and floating:
        return _to_scale(j, x, y, mode)
    return j.np.where(j.np.isnan(x), j.np.zeros_like(y), y) if target.name == "f4e2m1" and floating else y


def _to_scale(j, x, y, mode):
    """``y`` is XLA's conversion, where zero and f64 values below 2**-126 are NaN. Codes 0 and 1 are 2**-127 and 2**-126."""
    if x.dtype == "float64":
        code = (x > 2.0**-127).astype("uint8")  # as from f32, where all subnormal numbers above 2**-127 round up
        y = j.np.where((x > 0) & (x < 2.0**-126), j.lax.bitcast_convert_type(code, y.dtype), y)
    if mode == "saturate":
        least = j.lax.bitcast_convert_type(j.np.zeros(x.shape, "uint8"), y.dtype)
        y = j.np.where((x == 0) & j.np.isnan(y), least, y)
    return y


def _saturate(j, x, target):
    """Clamped to the range by comparisons in the float's own precision, so that no end of the range is rounded."""
    if x.dtype.itemsize < 4:
        x = x.astype("float32")
    low, high = _range(target)
    whole = j.lax.convert_element_type(j.np.where((x > float(low - 1)) & (x < float(high + 1)), j.np.trunc(x), 0), target.numpy)
    edge = j.np.where(x >= high + 1, high, j.np.where(x <= low - 1, low, 0)) if target.bits < 64 else None
    if edge is None:
        as_int = target.numpy.type
        return j.np.where(
            x >= float(high),
            as_int(high),
            j.np.where(x <= float(low), as_int(low), j.np.where(_inside(x, low, high), whole, as_int(0))),
        )
    return j.np.where((x >= high + 1) | (x <= low - 1), edge.astype(target.numpy), whole)


def _inside(x, low, high):
    return (x > float(low)) & (x < float(high))


def _range(target):
    high = int(target.max)
    return (0 if target.kind == "uint" else -high - 1), high


def _wrap(j, x, target):
    from_half = x.dtype == "float16" and target.name == "u32"  # torch's own conversion from f16 takes the wide way
    wide = "i64" if target.name in ("i64", "u64", "u8") or from_half else "i32"
    half = 2.0 ** (63 if wide == "i64" else 31)
    x = x.astype("float64") if x.dtype.itemsize < 8 else x
    upper = (x >= half) if target.name in ("u32", "u64") and not from_half else None
    y = x if upper is None else j.np.where(upper, x - half, x)
    fits = (y > -half - (1 if wide == "i32" else 0)) & (y < half)
    number = dtype(wide).numpy.type
    lowest = number(-(2 ** (dtype(wide).bits - 1)))
    whole = j.np.where(fits, j.lax.convert_element_type(j.np.where(fits, y, 0), number), lowest)
    if upper is not None:
        whole = j.np.where(upper, whole ^ lowest, whole)
    return j.lax.convert_element_type(whole, target.numpy)


@op("neuron.bitcast_convert", traits=["view"])
class BitcastConvert(Op):
    """The same bits read as another element type.

    Equal widths keep the shape. To a type ``n`` times narrower, a last dim of size ``n`` is added, lowest bits first; to a type
    ``n`` times wider, the last dim, which must be ``n``, is taken away.
    """

    x = operand(ANY)

    def check(self):
        source, target = self.x.type, self.results[0].type
        a, b = _width(source.dtype), _width(target.dtype)
        if (source.dtype.kind == "bool") != (target.dtype.kind == "bool") or max(a, b) % min(a, b):
            raise self.error("type", f"the bits of {source.dtype} cannot be read as {target.dtype}")
        if a == b:
            return check_result_shape(self, source.shape)
        if a > b:
            return check_result_shape(self, (*source.shape, a // b))
        if not source.rank or differ(source.shape[-1], b // a):
            raise self.error("shape", f"to {target.dtype} the last dim of {source} must be {b // a}")
        return check_result_shape(self, source.shape[:-1])

    def jax(j, x, *, out):
        if out.dtype.is_complex or is_complex(x):
            return _complex_bits(j, x, out)
        return x if is_bool(x) else j.lax.bitcast_convert_type(x, out.dtype.numpy)


def _width(t):
    return 32 if t.name == "tf32" else t.bits


def _complex_bits(j, x, out):
    """Complex numbers are pairs of reals in memory, real part first."""
    if is_complex(x) and out.dtype.is_complex and x.dtype == out.dtype.numpy:
        return x
    if is_complex(x):
        parts = j.np.stack([j.lax.real(x), j.lax.imag(x)], -1)
        if out.dtype.is_complex or _width(out.dtype) > parts.dtype.itemsize * 8:
            return _from_parts(j, j.lax.bitcast_convert_type(parts, "uint64"), out)
        bits = j.lax.bitcast_convert_type(parts, out.dtype.numpy)
        return bits.reshape(out.shape)
    return _from_parts(j, x, out)


def _from_parts(j, x, out):
    if not out.dtype.is_complex:
        return j.lax.bitcast_convert_type(x, out.dtype.numpy).reshape(out.shape)
    real = out.dtype.real.numpy
    width, have = real.itemsize, x.dtype.itemsize
    if have < width:
        x = j.lax.bitcast_convert_type(x.reshape(*out.shape, 2, width // have), real)
    else:
        x = j.lax.bitcast_convert_type(x, real).reshape(*out.shape, 2)
    return j.lax.complex(x[..., 0], x[..., 1])


@op("neuron.reduce_precision", traits=["elementwise"])
class ReducePrecision(Op):
    """Rounds each element as if stored with ``exponent_bits`` and ``mantissa_bits``, to nearest even.

    What overflows becomes infinity, what underflows zero of its sign; the element type stays.
    """

    x = operand(FLOAT)
    exponent_bits = attr(int)
    mantissa_bits = attr(int)

    def infer(self):
        if self.exponent_bits < 1 or self.mantissa_bits < 0:
            bits = f"exponent_bits = {self.exponent_bits}, mantissa_bits = {self.mantissa_bits}"
            raise self.error("attr", f"at least 1 exponent bit and 0 mantissa bits are needed, not {bits}")
        return self.x.type

    def jax(j, x, *, exponent_bits, mantissa_bits):
        return j.lax.reduce_precision(x, exponent_bits, mantissa_bits)


def _check_quantization(self, type, storage):
    """One scale and zero point, or one per index of ``axis``; the storage range fits the storage type."""
    n = len(self.scales)
    if len(self.zero_points) not in (0, n) or n == 0 or not all(0 < s < float("inf") for s in self.scales):
        raise self.error("attr", f"positive finite scales and as many zero points are needed, not {n} and {len(self.zero_points)}")
    if self.axis is None and n != 1:
        raise self.error("attr", f"{n} scales need an axis")
    if self.axis is not None:
        if not 0 <= self.axis < type.rank:
            raise self.error("shape", f"axis {self.axis} does not exist in a tensor of rank {type.rank}")
        if differ(type.shape[self.axis], n):
            raise self.error("shape", f"{n} scales for axis {self.axis} of size {type.shape[self.axis]}")
    low, high = _storage_range(storage, self.storage_min, self.storage_max)
    least, most = _range(storage)
    if not least <= low <= high <= most:
        raise self.error("attr", f"the storage range {low}..{high} does not fit {storage}")
    if not all(low <= z <= high for z in self.zero_points):
        raise self.error("attr", f"a zero point lies outside the storage range {low}..{high}")


def _storage_range(storage, low, high):
    least, most = _range(storage)
    return least if low is None else low, most if high is None else high


def _per_axis(j, values, axis, rank, as_type):
    if axis is None:
        return j.jax.dtypes.canonicalize_dtype(as_type).type(values[0])  # a literal, which the body of a reduction may hold
    return j.np.asarray(values, as_type).reshape([-1 if i == axis else 1 for i in range(rank)])


@op("neuron.quantize", traits=["elementwise"])
class Quantize(Op):
    """Uniform quantisation: ``round_nearest_even(clamp(x / scale + zero_point, storage_min, storage_max))``.

    ``scales`` and ``zero_points`` (absent: 0) hold one value, or one per index of ``axis``. The result's element type is the
    storage type, whose whole range counts where no narrower one is given. NaN gives the zero point. Computed in f32, or in f64
    where ``x`` is f64 or the storage type is wider than 16 bits.
    """

    x = operand(FLOAT)
    scales = attr(FLOATS)
    zero_points = attr(INTS, ())
    axis = attr(int, None)
    storage_min = attr(int, None)
    storage_max = attr(int, None)

    def check(self):
        target = self.results[0].type
        check_result_shape(self, self.x.shape)
        if not target.dtype.is_integer or target.dtype.bits > 32:
            raise self.error("type", f"the storage type must be an integer of at most 32 bits, not {target.dtype}")
        _check_quantization(self, self.x.type, target.dtype)

    def jax(j, x, *, scales, zero_points, axis, storage_min, storage_max, out):
        compute = "float64" if x.dtype == "float64" or out.dtype.bits > 16 else "float32"
        low, high = _storage_range(out.dtype, storage_min, storage_max)
        x = x.astype(compute)
        scaled = x / _per_axis(j, scales, axis, x.ndim, compute)
        moved = j.np.where(j.np.isnan(scaled), 0, scaled) + _per_axis(j, zero_points or (0,) * len(scales), axis, x.ndim, compute)
        whole = j.lax.round(j.np.clip(moved, low, high), j.lax.RoundingMethod.TO_NEAREST_EVEN)
        return whole.astype(out.dtype.numpy)


@op("neuron.dequantize", traits=["elementwise"])
class Dequantize(Op):
    """What a quantised value means: ``(x - zero_point) * scale``, in the result's float type; attributes as in ``quantize``."""

    x = operand(INT)
    scales = attr(FLOATS)
    zero_points = attr(INTS, ())
    axis = attr(int, None)
    storage_min = attr(int, None)
    storage_max = attr(int, None)

    def check(self):
        target = self.results[0].type
        check_result_shape(self, self.x.shape)
        if target.dtype not in FLOAT:
            raise self.error("type", f"the result must be of floats, not {target.dtype}")
        _check_quantization(self, self.x.type, self.x.dtype)

    def jax(j, x, *, scales, zero_points, axis, storage_min, storage_max, out):
        compute = "float64" if out.dtype.name == "f64" else "float32"
        offset = x.astype("int64") - _per_axis(j, zero_points or (0,) * len(scales), axis, x.ndim, "int64")
        return (offset.astype(compute) * _per_axis(j, scales, axis, x.ndim, compute)).astype(out.dtype.numpy)
