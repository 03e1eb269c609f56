"""Programs whose subnormal numbers count: the mode ``subnormals="exact"`` of the reference accelerator.

XLA's CPU client sets the processor's flush-to-zero and denormals-are-zero bits in every thread that runs a program, so an f32 below
1.18e-38 is 0 there, as an operand and as a result. Every f32, bf16 and c64 number, subnormal ones included, is a normal number of
f64. So the exact mode computes each operation in f64 and rounds its results once. The two conversions between the types take the
bits apart with integer arithmetic, which the processor's bits do not touch.

f64 itself has no wider type: an operation that computes in f64 or c128 is refused by name, casts to and from them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from neuron_ir.attrs import Dense
from neuron_ir.core import Module, Op, Value
from neuron_ir.diagnostics import fail
from neuron_ir.dtypes import BF16, BOOL, C64, C128, F32, F64, DType, dtype, dtype_of_numpy
from neuron_ir.meaning import Frame, spread
from neuron_ir.types import TensorType

__all__ = ["ExactFrame", "check_exact", "constants", "holds_subnormals", "narrow", "widen"]

# Types whose subnormal numbers the processor would flush, and the types that hold the same numbers as normal ones.
_FLUSHED = {F32: F64, BF16: F64, C64: C128, dtype("tf32"): F64, dtype("f8e8m0"): F64}
_WIDE = frozenset({F64, C128})

# Operations that hand bits on, or work on integers, whatever the type; and those whose regions are run op by op.
_MOVES = frozenset(
    {
        "neuron.all_gather", "neuron.collective_broadcast", "neuron.collective_permute", "neuron.all_to_all", "neuron.custom_call",
        "neuron.optimization_barrier", "neuron.reduce_precision", "neuron.select",
    }
)  # fmt: skip
_STRUCTURE = frozenset({"func.call", "neuron.fused"})

# Below this scale a quotient of subnormal numbers could reach one half, and so another integer.
_LEAST_SCALE = 2.0**-125


class ExactFrame(Frame):
    """Values of a function of which every operation keeps subnormal numbers; see the module."""

    def op(self, op: Op, operands: list[Any]) -> tuple[Any, ...]:
        traits = op.spec.traits
        if op.spec.jax is None or op.name in _STRUCTURE or "random" in traits or ("control" in traits and op.name != "neuron.vjp"):
            return super().op(op, operands)
        if op.name in _MOVES or "constant" in traits or ("view" in traits and op.name != "neuron.scatter"):
            return super().op(op, operands)
        used = {v.type.dtype for v in _values(op) if isinstance(v.type, TensorType)}
        self._refuse(op, used)
        if used.isdisjoint(_FLUSHED):
            return super().op(op, operands)
        if op.name == "neuron.next_after":
            return (_next_after(*operands),)
        wide = [widen(x, v.type) for x, v in zip(operands, op.operands, strict=True)]
        around = {v: widen(self.values[v], v.type) for v in _captured(op)}
        results = WideFrame(self.j, None, around).op(op, wide)
        return tuple(narrow(r, v.type) for r, v in zip(results, op.results, strict=True))

    def _refuse(self, op: Op, used: set[DType]) -> None:
        """Raise where the exact values cannot be had."""
        cast = op.name == "neuron.cast" and op.results[0].type.dtype is not BOOL
        if used & _WIDE and not cast:
            named = " and ".join(sorted(t.name for t in used & _WIDE))
            message = f'{op.name} computes in {named}, whose subnormal numbers subnormals = "exact" cannot keep'
            raise fail("unsupported", message, op.loc, [f"see current operation: {op!r}"])
        if any(scale < _LEAST_SCALE for scale in op.attrs.get("scales", ()) if isinstance(scale, float)):
            message = f'{op.name} has a scale below {_LEAST_SCALE:.3g}, whose quotients subnormals = "exact" cannot keep'
            raise fail("unsupported", message, op.loc, [f"see current operation: {op!r}"])


class WideFrame(Frame):
    """Values of one operation, and of its regions, with f64 in the place of every narrower type that would be flushed."""

    def meaning(self, op: Op, operands: list[Any]) -> Any:
        if op.spec.jax is None:
            return self.block_of_expansion(op, operands)
        if op.spec.traits & {"constant", "random"}:
            results = Frame.meaning(self, op, operands)
            return widen(results, op.results[0].type) if len(op.results) == 1 else results
        fields = self.fields(op)
        if op.name in ("neuron.quantize", "neuron.dequantize"):  # each of their steps rounds to f32
            operands = [narrow(x, v.type) for x, v in zip(operands, op.operands, strict=True)]
        else:
            fields = {name: _widened(value) for name, value in fields.items()}
        results = op.spec.jax(self.j, *spread(op, operands), **fields)
        return _rounded(results, op.results[0].type) if op.name == "neuron.cast" else results


def _values(op: Op) -> Iterator[Value]:
    """The operands, results and captured values of an op."""
    yield from op.operands
    yield from op.results
    yield from _captured(op)


def _captured(op: Op) -> list[Value]:
    """The values that the regions of an op use from around it."""
    inner = [o for region in op.regions for o in region.walk()]
    blocks = [*op.regions, *(region for o in inner for region in o.regions)]
    own = {v for block in blocks for v in block.args} | {v for o in inner for v in o.results}
    return [v for v in dict.fromkeys(v for o in inner for v in o.operands) if v not in own]


def _widened(value: Any) -> Any:
    """A field of a facet with every flushed type in it replaced."""
    if isinstance(value, DType):
        return _FLUSHED.get(value, value)
    if isinstance(value, TensorType):
        return value.with_dtype(_FLUSHED.get(value.dtype, value.dtype))
    return tuple(map(_widened, value)) if isinstance(value, tuple) else value


# --- conversions ------------------------------------------------------------------------------------------------------


def widen(x: Any, type: Any) -> Any:
    """An array of the tensor type ``type`` as f64 (c128 for c64) where its type is one that is flushed; exact."""
    if not isinstance(type, TensorType) or type.dtype not in _FLUSHED:
        return x
    from jax import lax
    from jax import numpy as jnp

    x = jnp.asarray(x)
    if type.dtype is C64:
        return lax.complex(_widen_f32(lax.real(x)), _widen_f32(lax.imag(x)))
    if type.dtype.bits == 8:
        code = lax.bitcast_convert_type(x, jnp.uint8).astype(jnp.int64)
        power = lax.bitcast_convert_type((code + (1023 - 127)) << 52, jnp.float64)
        return jnp.where(code == 255, jnp.nan, power)
    if type.dtype is BF16:
        x = lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.uint16).astype(jnp.uint32) << 16, jnp.float32)
    return _widen_f32(x)


def _rounded(x: Any, type: Any) -> Any:
    """Wide numbers rounded to the type that they stand for, still wide. Its derivative is 1, which the bits do not show."""
    import jax

    @jax.custom_jvp
    def rounded(x: Any) -> Any:
        return widen(narrow(x, type), type)

    rounded.defjvp(lambda primals, tangents: (rounded(*primals), *tangents))
    return rounded(x) if x.dtype.kind in "fc" and type.dtype in _FLUSHED else x


def _widen_f32(x: Any) -> Any:
    from jax import lax
    from jax import numpy as jnp

    bits = lax.bitcast_convert_type(x, jnp.int32)
    small = (bits & 0x7F800000) == 0
    mantissa = (bits & 0x007FFFFF).astype(jnp.float64) * 2.0**-149
    signed = jnp.where(bits < 0, -mantissa, mantissa)
    return jnp.where(small, signed, x.astype(jnp.float64))


def narrow(x: Any, type: Any) -> Any:
    """An array rounded once to the element type of ``type``, ties to even. bf16 is rounded by way of f32, as torch computes it."""
    if not isinstance(type, TensorType) or x.dtype == type.dtype.numpy:
        return x
    from jax import lax

    if type.dtype is C64:
        return lax.complex(_narrow_f32(lax.real(x)), _narrow_f32(lax.imag(x)))
    if type.dtype.is_float and type.dtype.bits == 32:
        return _narrow_f32(x)
    return _bf16(_narrow_f32(x)) if type.dtype is BF16 else x.astype(type.dtype.numpy)


def _narrow_f32(x: Any) -> Any:
    from jax import lax
    from jax import numpy as jnp

    if x.dtype != jnp.float64:
        return x.astype(jnp.float32)
    small = jnp.abs(x) < 2.0**-126
    units = lax.round(jnp.where(small, jnp.abs(x), 0.0) * 2.0**149, lax.RoundingMethod.TO_NEAREST_EVEN).astype(jnp.int32)
    sign = (lax.bitcast_convert_type(x, jnp.int64) >> 63).astype(jnp.int32) << 31
    return jnp.where(small, lax.bitcast_convert_type(sign | units, jnp.float32), x.astype(jnp.float32))


def _bf16(x: Any) -> Any:
    """f32 to bf16 by the bits, since the processor's own instruction takes subnormal numbers for 0 whatever its mode."""
    from jax import lax
    from jax import numpy as jnp

    bits = lax.bitcast_convert_type(x, jnp.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(jnp.uint16)
    return jnp.where((bits & 0x7F800000) == 0, lax.bitcast_convert_type(rounded, jnp.bfloat16), x.astype(jnp.bfloat16))


def _next_after(x: Any, y: Any) -> Any:
    """The neighbour of each ``x`` towards ``y``, in their own type, by the bits read as a number of steps from zero."""
    from jax import lax
    from jax import numpy as jnp

    integer = jnp.dtype(f"int{x.dtype.itemsize * 8}")
    least = jnp.iinfo(integer).min
    bits_x, bits_y = lax.bitcast_convert_type(x, integer), lax.bitcast_convert_type(y, integer)
    at, end = (jnp.where(bits < 0, least - bits, bits) for bits in (bits_x, bits_y))
    moved = at + (at < end).astype(integer) - (at > end).astype(integer)
    bits = jnp.where((moved < 0) | ((moved == 0) & (bits_x < 0)), least - moved, moved)
    stepped = lax.bitcast_convert_type(jnp.where(at == end, bits_y, bits), x.dtype)
    return jnp.where(jnp.isnan(x) | jnp.isnan(y), jnp.nan, stepped)


# --- knowing ----------------------------------------------------------------------------------------------------------


@cache
def check_exact() -> None:
    """Refuse a JAX whose compiled conversions lose subnormal numbers, once per process.

    Raises :class:`IRError`. A program of the conversions around a product, a sum and a comparison is compiled as programs are; its
    right results are written out as bits.
    """
    import jax
    import numpy

    from neuron_ir.backends.jax_cpu.guards import COMPILER_OPTIONS, protect

    flat = TensorType((4,), F32)

    def trial(x: Any, y: Any) -> tuple[Any, ...]:
        a, b = widen(x, flat), widen(y, flat)
        return narrow(a * b, flat), narrow(a + b, flat), a == b

    # 1e-20, the two least and the largest subnormal number; 1e-20, 1, and twice the least.
    x = numpy.array([0x1E3CE508, 1, 0x80000001, 0x007FFFFF], numpy.uint32).view(numpy.float32)
    y = numpy.array([0x1E3CE508, 0x3F800000, 0x00000001, 0x00000001], numpy.uint32).view(numpy.float32)
    right = [0x000116C2, 1, 0x80000000, 0], [0x1EBCE508, 0x3F800000, 0, 0x00800000], [1, 0, 0, 0]
    with jax.enable_x64(True):
        results = jax.jit(protect(trial)).lower(x, y).compile(compiler_options=dict(COMPILER_OPTIONS))(x, y)
    product, total, equal = map(numpy.asarray, results)
    if [product.view(numpy.uint32).tolist(), total.view(numpy.uint32).tolist(), equal.tolist()] != list(map(list, right)):
        raise fail("runtime", f'jax {jax.__version__} loses subnormal numbers even in f64: subnormals = "exact" cannot be had')


# Bits of a float -> the count of its subnormal bit patterns of one sign, doubled. f16 is computed in f32 and keeps its own.
_PATTERNS = {16: 1 << 8, 32: 1 << 24, 64: 1 << 53}
_CHUNK = 1 << 16  # elements that are looked at together, within the processor's cache: 1 ns per element


def holds_subnormals(array: Any) -> bool:
    """Whether a NumPy or JAX array on the host has a subnormal number that the processor's bits would flush."""
    import numpy

    kind = dtype_of_numpy(array.dtype)
    if kind not in _FLUSHED and kind not in _WIDE or kind.bits == 8 or not array.size:
        return False
    width = kind.real.bits
    bits = numpy.ascontiguousarray(array).reshape(-1).view(f"uint{width}")
    room = numpy.empty(_CHUNK, bits.dtype)
    for start in range(0, bits.size, _CHUNK):
        chunk = bits[start : start + _CHUNK]
        shifted = numpy.add(chunk, chunk, out=room[: chunk.size])  # without the sign
        if numpy.subtract(shifted, 1, out=shifted).min() < _PATTERNS[width] - 1:  # zero became the largest
            return True
    return False


def constants(module: Module) -> Iterator[tuple[str, Any]]:
    """The constants written in a module, each with the name of its value."""
    for op in module.walk():
        value = op.attrs.get("value")
        if isinstance(value, Dense):
            yield op.results[0].name or op.name, value.array.reshape(-1)[:1] if value.is_splat else value.array
