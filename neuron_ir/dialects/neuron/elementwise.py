"""Elementwise arithmetic: StableHLO's ops, and the few that torch needs beyond.

Families are one table line each; ops with a rule of their own are classes. Operands have one type; nothing is broadcast or promoted
here (front ends write that out). Element types narrower than 32 bits are computed in f32 and rounded once. ``tf32`` is a storage
format: cast it to f32 before arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neuron_ir.dialects.neuron.shapes import merged
from neuron_ir.dims import UNKNOWN
from neuron_ir.dtypes import BOOL as BOOL_DTYPE
from neuron_ir.dtypes import dtype
from neuron_ir.opdef import ANY, BOOL, COMPLEX, INT, Op, attr, declare, op, operand
from neuron_ir.opdef import FLOAT as STORED_FLOAT
from neuron_ir.types import TensorType, same_shape

FLOAT = STORED_FLOAT - {dtype("tf32")}
REAL = FLOAT | INT
NUMERIC = REAL | COMPLEX
LOGICAL = BOOL | INT
WITHOUT_TF32 = ANY - {dtype("tf32")}


def _same(self):
    return merged(self, self.operands)


def _predicate(self):
    return merged(self, self.operands).with_dtype(BOOL_DTYPE)


def _family(
    name: str, fields: str, types: frozenset[Any], doc: str, jax: Callable[..., Any], infer: Any, traits: Any, aten: Any
) -> None:
    body = {"__doc__": doc, **{f: operand(types) for f in fields}, "infer": infer, "jax": staticmethod(jax)}
    declare(f"neuron.{name}", body, traits=["elementwise", *traits], aten=aten)


def rounded_once(jax: Callable[..., Any]) -> Callable[..., Any]:
    """The function with floats narrower than 32 bits computed in f32: where JAX takes several steps, it would round after each."""

    def in_f32(j, *xs):
        narrow = xs[0].dtype
        if narrow.itemsize > 2 or is_int(xs[0]) or is_bool(xs[0]):
            return jax(j, *xs)
        return jax(j, *[x.astype("float32") for x in xs]).astype(narrow)

    return in_f32


def unary(name: str, types: frozenset[Any], doc: str, jax: Callable[..., Any], aten: Any = ()) -> None:
    """Declare a function of one operand whose result has the operand's type."""
    _family(name, "x", types, doc, jax if types & INT else rounded_once(jax), lambda self: self.operands[0].type, (), aten)


def test(name: str, types: frozenset[Any], doc: str, jax: Callable[..., Any], aten: Any = ()) -> None:
    """Declare a function of one operand whose result is bool."""
    _family(name, "x", types, doc, jax, _predicate, (), aten)


def binary(name: str, types: frozenset[Any], doc: str, jax: Callable[..., Any], aten: Any = (), commutative: bool = False) -> None:
    """Declare a function of two operands of one type whose result has that type."""
    exact = name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "next_after", "copysign")
    jax = jax if exact or not types & FLOAT else rounded_once(jax)
    _family(name, "ab", types, doc, jax, _same, ("commutative",) if commutative else (), aten)


def is_int(x: Any) -> bool:
    """Whether an array is of integers (bool aside)."""
    return x.dtype.kind in "iu" or str(x.dtype).startswith(("int", "uint"))


def is_unsigned(x: Any) -> bool:
    """Whether an array is of unsigned integers."""
    return x.dtype.kind == "u" or str(x.dtype).startswith("uint")


def is_bool(x: Any) -> bool:
    """Whether an array is of bool."""
    return x.dtype.kind == "b"


def is_complex(x: Any) -> bool:
    """Whether an array is complex."""
    return x.dtype.kind == "c"


def bits_of(x: Any) -> int:
    """Bits of one integer element."""
    return int("".join(c for c in str(x.dtype) if c.isdigit()))


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _abs(j, x):
    if not is_int(x):
        return j.lax.abs(x)
    return x if is_unsigned(x) else j.lax.select(x < 0, j.lax.neg(x), x)


def _power(j, a, b):
    """Integers by repeated squaring, wrapping; a negative exponent gives the truncated inverse: 1 for 1, +-1 for -1, else 0."""
    if not is_int(a):
        return j.lax.pow(a, b)
    one = j.np.ones_like(a)
    result, square, left = one, a, b
    for _ in range(bits_of(a)):
        result = j.lax.select(left & one != 0, result * square, result)
        square, left = square * square, j.lax.shift_right_logical(left, one)
    if is_unsigned(a):
        return result
    inverse = j.np.where(a == 1, one, j.np.where(a == -1, j.np.where(b & one != 0, -one, one), 0 * one))
    return j.lax.select(b < 0, inverse, result)


def _floor_divide(j, a, b):
    if is_unsigned(a):
        return j.lax.div(a, b)
    quotient, rest = j.lax.div(a, b), j.lax.rem(a, b)
    if is_int(a):
        return j.np.where((b != 0) & (rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient).astype(a.dtype)
    exact = (a - rest) / b
    exact = j.np.where((rest != 0) & ((b < 0) != (rest < 0)), exact - 1, exact)
    floor = j.lax.floor(exact)
    floor = j.np.where(exact - floor > 0.5, floor + 1, floor)
    zero = j.lax.mul(j.np.zeros_like(a), j.lax.sign(quotient))
    return j.np.where(b == 0, quotient, j.np.where(exact == 0, zero, floor)).astype(a.dtype)


def _magnitude(j, x):
    """``|x|`` as unsigned, so that the smallest integer has one too."""
    return _abs(j, x).astype(f"uint{bits_of(x)}")


def _gcd(j, a, b):
    return j.np.gcd(_magnitude(j, a), _magnitude(j, b)).astype(a.dtype)


def _lcm(j, a, b):
    a_size, b_size = _magnitude(j, a), _magnitude(j, b)
    divisor = j.np.maximum(j.np.gcd(a_size, b_size), 1).astype(a_size.dtype)
    return (j.lax.div(a_size, divisor) * b_size).astype(a.dtype)


def _remainder_floor(j, a, b):
    rest = j.lax.rem(a, b)
    if is_unsigned(a):
        return rest
    return j.np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest).astype(a.dtype)


binary(
    "add", WITHOUT_TF32, "``a + b``; integers wrap; bool: or.",
    lambda j, a, b: a | b if is_bool(a) else j.lax.add(a, b), commutative=True,
)  # fmt: skip
binary("subtract", NUMERIC, "``a - b``; integers wrap.", lambda j, a, b: j.lax.sub(a, b))
binary(
    "multiply", WITHOUT_TF32, "``a * b``; integers wrap; bool: and.",
    lambda j, a, b: a & b if is_bool(a) else j.lax.mul(a, b), commutative=True,
)  # fmt: skip
binary(
    "divide", NUMERIC,
    "``a / b``; integers truncate towards zero, by zero they give -1 (all ones), and the smallest by -1 gives itself.",
    lambda j, a, b: j.lax.div(a, b),
)  # fmt: skip
binary(
    "floor_divide", REAL,
    "``floor(a / b)`` of the exact quotient. Integers by zero give -1 (all ones). Floats by zero give ``a / b``; a zero "
    "result has the sign of the quotient.",
    _floor_divide,
)  # fmt: skip
binary(
    "remainder", REAL | COMPLEX,
    "``a - b * trunc(a / b)``, exact, with the sign of ``a`` (C's fmod). By zero: ``a`` for integers, NaN for floats.",
    lambda j, a, b: j.lax.rem(a, b), aten="fmod.Tensor",
)  # fmt: skip
binary(
    "remainder_floor", REAL,
    "``a - b * floor(a / b)`` with the sign of ``b`` (Python's ``%``); a zero keeps the sign of ``a``. By zero: ``a`` for "
    "integers, NaN for floats.",
    _remainder_floor, aten="remainder.Tensor",
)  # fmt: skip
binary(
    "power", NUMERIC,
    "``a ** b``. Integers wrap; a negative integer exponent gives the truncated inverse (1 for 1, +-1 for -1, else 0). "
    "``x ** 0`` and ``1 ** y`` are 1, NaN included.",
    _power,
)  # fmt: skip
binary(
    "maximum", WITHOUT_TF32, "The larger; NaN if either is NaN; +0 above -0; complex: by real, then imaginary part; bool: or.",
    lambda j, a, b: j.lax.max(a, b), aten="maximum.default",
)  # fmt: skip
binary(
    "minimum", WITHOUT_TF32, "The smaller; NaN if either is NaN; -0 below +0; complex: by real, then imaginary part; bool: and.",
    lambda j, a, b: j.lax.min(a, b), aten="minimum.default",
)  # fmt: skip
binary(
    "fmax", FLOAT, "The larger; of a number and NaN the number.",
    lambda j, a, b: j.np.where(j.np.isnan(a), b, j.np.where(j.np.isnan(b), a, j.lax.max(a, b))), aten="fmax.default",
)  # fmt: skip
binary(
    "fmin", FLOAT, "The smaller; of a number and NaN the number.",
    lambda j, a, b: j.np.where(j.np.isnan(a), b, j.np.where(j.np.isnan(b), a, j.lax.min(a, b))), aten="fmin.default",
)  # fmt: skip
binary("atan2", FLOAT | COMPLEX, "The angle of the point (b, a), in (-pi, pi].", lambda j, a, b: j.lax.atan2(a, b), "atan2.default")
binary(
    "next_after", FLOAT, "The next float after ``a`` towards ``b``; NaN if either is NaN.", lambda j, a, b: j.lax.nextafter(a, b),
    aten="nextafter.default",
)  # fmt: skip
binary(
    "copysign", FLOAT, "The magnitude of ``a`` with the sign bit of ``b``.", lambda j, a, b: j.np.copysign(a, b), "copysign.Tensor"
)
binary("hypot", FLOAT, "``sqrt(a*a + b*b)`` without overflow on the way.", lambda j, a, b: j.np.hypot(a, b), "hypot.default", True)
binary(
    "logaddexp", FLOAT, "``log(e**a + e**b)`` without overflow.", lambda j, a, b: j.np.logaddexp(a, b), "logaddexp.default", True
)
binary(
    "logaddexp2",
    FLOAT,
    "``log2(2**a + 2**b)`` without overflow.",
    lambda j, a, b: j.np.logaddexp2(a, b),
    "logaddexp2.default",
    True,
)
binary("gcd", INT, "The greatest common divisor, never negative; ``gcd(0, 0)`` is 0.", _gcd, "gcd.default")
binary("lcm", INT, "The least common multiple, never negative; 0 if either is 0.", _lcm, "lcm.default")

unary("abs", NUMERIC - COMPLEX, "``|x|``; the smallest integer stays itself.", _abs, "abs.default")
unary("negate", NUMERIC, "``-x``; integers wrap.", lambda j, x: j.lax.neg(x), "neg.default")
unary("square", NUMERIC, "``x * x``; integers wrap.", lambda j, x: j.lax.mul(x, x), "square.default")
unary("reciprocal", FLOAT | COMPLEX, "``1 / x``.", lambda j, x: j.lax.div(j.np.ones_like(x), x), "reciprocal.default")

# --- rounding ---------------------------------------------------------------------------------------------------------


def _rounding(j, x, method):
    return j.lax.round(x, j.lax.RoundingMethod[method])


unary("ceil", FLOAT, "The smallest integer not below ``x``.", lambda j, x: j.lax.ceil(x), "ceil.default")
unary("floor", FLOAT, "The largest integer not above ``x``.", lambda j, x: j.lax.floor(x), "floor.default")
unary("trunc", FLOAT, "``x`` without its fraction; keeps the sign of zero.", lambda j, x: j.np.trunc(x), "trunc.default")
unary("frac", FLOAT, "``x - trunc(x)``; NaN for infinities.", lambda j, x: x - j.np.trunc(x), "frac.default")
unary(
    "round_nearest_even", FLOAT, "The nearest integer, halves to the even one.",
    lambda j, x: _rounding(j, x, "TO_NEAREST_EVEN"), "round.default",
)  # fmt: skip
unary("round_nearest_afz", FLOAT, "The nearest integer, halves away from zero.", lambda j, x: _rounding(j, x, "AWAY_FROM_ZERO"))

# --- exponentials, roots, trigonometry --------------------------------------------------------------------------------

TRANSCENDENTAL = FLOAT | COMPLEX


def _exp2(j, x):
    """The integer part goes into the exponent as it is: XLA's ``exp(x * log(2))`` magnifies the rounding of the product."""
    if j.np.iscomplexobj(x):
        return j.lax.exp(x * j.np.log(j.np.asarray(2, x.real.dtype)))
    wide = x if x.dtype in ("float32", "float64") else x.astype("float32")
    whole = j.np.where(j.lax.is_finite(wide), _rounding(j, wide, "TO_NEAREST_EVEN"), 0)
    whole = j.np.clip(whole, -2000, 2000)
    return j.np.ldexp(j.lax.exp((wide - whole) * wide.dtype.type(0.6931471805599453)), whole.astype("int32")).astype(x.dtype)


unary("exponential", TRANSCENDENTAL, "``e**x``.", lambda j, x: j.lax.exp(x), "exp.default")
unary("exponential_minus_one", TRANSCENDENTAL, "``e**x - 1``, exact near 0.", lambda j, x: j.lax.expm1(x), "expm1.default")
unary("exp2", TRANSCENDENTAL, "``2**x``.", _exp2, "exp2.default")
unary("log", TRANSCENDENTAL, "The natural logarithm; -inf at 0, NaN below.", lambda j, x: j.lax.log(x), "log.default")
unary("log_plus_one", TRANSCENDENTAL, "``log(1 + x)``, exact near 0.", lambda j, x: j.lax.log1p(x), "log1p.default")
unary("log2", TRANSCENDENTAL, "The logarithm to base 2.", lambda j, x: j.np.log2(x), "log2.default")
unary("log10", TRANSCENDENTAL, "The logarithm to base 10.", lambda j, x: j.np.log10(x), "log10.default")
unary("logistic", TRANSCENDENTAL, "``1 / (1 + e**-x)``.", lambda j, x: j.lax.logistic(x), "sigmoid.default")
unary("sqrt", TRANSCENDENTAL, "The square root; NaN below 0; -0 stays -0.", lambda j, x: j.lax.sqrt(x), "sqrt.default")
unary("rsqrt", TRANSCENDENTAL, "``1 / sqrt(x)``; inf at 0.", lambda j, x: j.lax.rsqrt(x), "rsqrt.default")
unary("cbrt", FLOAT, "The real cube root, also of negative numbers.", lambda j, x: j.lax.cbrt(x))
unary("sine", TRANSCENDENTAL, "The sine of an angle in radians.", lambda j, x: j.lax.sin(x), "sin.default")
unary("cosine", TRANSCENDENTAL, "The cosine of an angle in radians.", lambda j, x: j.lax.cos(x), "cos.default")
unary("tan", TRANSCENDENTAL, "The tangent of an angle in radians.", lambda j, x: j.lax.tan(x), "tan.default")
unary("asin", TRANSCENDENTAL, "The arc sine, in [-pi/2, pi/2]; NaN outside [-1, 1].", lambda j, x: j.lax.asin(x), "asin.default")
unary("acos", TRANSCENDENTAL, "The arc cosine, in [0, pi]; NaN outside [-1, 1].", lambda j, x: j.lax.acos(x), "acos.default")
unary("atan", TRANSCENDENTAL, "The arc tangent, in [-pi/2, pi/2].", lambda j, x: j.lax.atan(x), "atan.default")
unary("sinh", TRANSCENDENTAL, "The hyperbolic sine.", lambda j, x: j.lax.sinh(x), "sinh.default")
unary("cosh", TRANSCENDENTAL, "The hyperbolic cosine.", lambda j, x: j.lax.cosh(x), "cosh.default")
unary("tanh", TRANSCENDENTAL, "The hyperbolic tangent.", lambda j, x: j.lax.tanh(x), "tanh.default")
unary("asinh", TRANSCENDENTAL, "The inverse hyperbolic sine.", lambda j, x: j.lax.asinh(x), "asinh.default")
unary("acosh", TRANSCENDENTAL, "The inverse hyperbolic cosine; NaN below 1.", lambda j, x: j.lax.acosh(x), "acosh.default")
unary("atanh", TRANSCENDENTAL, "The inverse hyperbolic tangent; NaN outside [-1, 1].", lambda j, x: j.lax.atanh(x), "atanh.default")

# --- bits and logic ---------------------------------------------------------------------------------------------------


binary("and", LOGICAL, "Bitwise (bool: logical) and.", lambda j, a, b: a & b, ("bitwise_and.Tensor", "logical_and.default"), True)
binary("or", LOGICAL, "Bitwise (bool: logical) or.", lambda j, a, b: a | b, ("bitwise_or.Tensor", "logical_or.default"), True)
binary("xor", LOGICAL, "Bitwise (bool: logical) exclusive or.", lambda j, a, b: a ^ b, "bitwise_xor.Tensor", True)
unary("not", LOGICAL, "Bitwise (bool: logical) negation.", lambda j, x: ~x, "bitwise_not.default")
binary(
    "shift_left", INT, "``a`` shifted left by ``b`` bits; 0 where ``b`` is negative or not below the width.",
    lambda j, a, b: j.lax.shift_left(a, b), aten="bitwise_left_shift.Tensor",
)  # fmt: skip
binary(
    "shift_right_arithmetic", INT,
    "``a`` shifted right by ``b`` bits, filled with copies of the top bit, also of unsigned integers; all copies where ``b`` is "
    "negative or not below the width.",
    lambda j, a, b: j.lax.shift_right_arithmetic(a, b),
)  # fmt: skip
binary(
    "shift_right_logical", INT, "``a`` shifted right by ``b`` bits, filled with zeros; 0 where ``b`` is negative or too large.",
    lambda j, a, b: j.lax.shift_right_logical(a, b),
)  # fmt: skip
unary("popcnt", INT, "The number of one bits.", lambda j, x: j.lax.population_count(x))
unary("count_leading_zeros", INT, "The number of zero bits above the highest one bit; the width for 0.", lambda j, x: j.lax.clz(x))

# --- tests ------------------------------------------------------------------------------------------------------------

test("is_finite", FLOAT, "Neither infinite nor NaN.", lambda j, x: j.lax.is_finite(x), "isfinite.default")
test("is_inf", FLOAT, "Plus or minus infinity.", lambda j, x: j.np.isinf(x), "isinf.default")
test("is_pos_inf", FLOAT, "Plus infinity.", lambda j, x: j.np.isposinf(x), "isposinf.default")
test("is_neg_inf", FLOAT, "Minus infinity.", lambda j, x: j.np.isneginf(x), "isneginf.default")
test("is_nan", FLOAT | COMPLEX, "NaN (complex: in either part).", lambda j, x: j.np.isnan(x), "isnan.default")
test(
    "sign_bit",
    REAL,
    "Whether the sign bit is set: below zero, -0 and negative NaN.",
    lambda j, x: j.np.signbit(x),
    "signbit.default",
)

DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


@op("neuron.compare", traits=["elementwise"])
class Compare(Op):
    """Compares element by element and gives bool.

    ``direction`` is EQ, NE, LT, LE, GT or GE; complex numbers know EQ and NE only. Any comparison with NaN is false, NE is true.
    ``compare_type = "TOTALORDER"`` compares floats by the total order of IEEE 754: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
    """

    a = operand(WITHOUT_TF32)
    b = operand(WITHOUT_TF32)
    direction = attr(str, choices=DIRECTIONS)
    compare_type = attr(str, "", choices=("", "TOTALORDER"))

    def infer(self):
        if self.a.dtype.is_complex and self.direction not in ("EQ", "NE"):
            raise self.error("operand", f"complex numbers have no order: {self.direction} of {self.a.type}")
        return _predicate(self)

    def jax(j, a, b, *, direction, compare_type):
        if compare_type == "TOTALORDER" and not is_int(a) and not is_bool(a) and not is_complex(a):
            a, b = _total_order_key(j, a), _total_order_key(j, b)
        if is_bool(a):
            a, b = a.astype("uint8"), b.astype("uint8")
        return getattr(j.lax, direction.lower())(a, b)


def _total_order_key(j, x):
    """Integers in the order of the floats: the bits, with the magnitude of negative ones flipped."""
    bits = j.lax.bitcast_convert_type(x, f"int{x.dtype.itemsize * 8}" if "float4" not in str(x.dtype) else "int4")
    wide = bits.astype("int64")
    top = (1 << (bits_of(bits) - 1)) - 1
    return j.np.where(wide < 0, wide ^ top, wide)


@op("neuron.select", traits=["elementwise"], aten="where.self")
class Select(Op):
    """``a`` where ``pred`` is true, else ``b``; ``pred`` has the shape of ``a`` and ``b``, or rank 0."""

    pred = operand(BOOL)
    a = operand(ANY)
    b = operand(ANY)

    def infer(self):
        type = merged(self, [self.a, self.b])
        if self.pred.type.rank:
            shape = merged_shape(self, self.pred.type, type)
            return type if shape == type.shape else TensorType(shape, type.dtype, type.layout)
        return type

    def jax(j, pred, a, b):
        return j.lax.select(pred, a, b)


def merged_shape(self, a, b):
    """The shape of two operands whose element types may differ; an error where the shapes do."""
    if not same_shape(a.shape, b.shape):
        raise self.error("shape", f"operands of one shape are needed, not {a} and {b}")
    return tuple(d if d is not UNKNOWN else e for d, e in zip(b.shape, a.shape, strict=True))


@op("neuron.clamp", traits=["elementwise"])
class Clamp(Op):
    """``min(max(x, low), high)``; NaN in any operand gives NaN; ``low`` above ``high`` gives ``high``.

    ``low`` and ``high`` have the shape of ``x`` or rank 0.
    """

    low = operand(REAL | COMPLEX)
    x = operand(REAL | COMPLEX)
    high = operand(REAL | COMPLEX)

    def infer(self):
        return merged(self, [self.x, *(v for v in (self.low, self.high) if v.type.rank or v.dtype is not self.x.dtype)])

    def jax(j, low, x, high):
        return j.lax.min(j.lax.max(x, j.np.broadcast_to(low, x.shape)), j.np.broadcast_to(high, x.shape))


@op("neuron.sign", traits=["elementwise"])
class Sign(Op):
    """-1, 0 or 1 by the sign of ``x``; for complex ``x / |x|``, and 0 for 0.

    ``nan = "propagate"`` (StableHLO): NaN stays NaN and -0 stays -0; ``nan = "zero"`` (torch): NaN and both zeros give +0.
    """

    x = operand(NUMERIC)
    nan = attr(str, "propagate", choices=("propagate", "zero"))

    def infer(self):
        if self.nan == "zero" and self.x.dtype.is_complex:
            raise self.error("attr", f"nan = 'zero' has no meaning for {self.x.dtype}")
        return self.x.type

    def jax(j, x, *, nan):
        if nan == "propagate" and not is_int(x):
            return j.lax.sign(x)
        if is_unsigned(x):
            return (x > 0).astype(x.dtype)
        return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


# --- complex ----------------------------------------------------------------------------------------------------------


@op("neuron.complex", traits=["elementwise"], aten="complex.default")
class Complex(Op):
    """``re + i * im`` of two f32 (c64) or two f64 (c128)."""

    re = operand(frozenset({dtype("f32"), dtype("f64")}))
    im = operand(frozenset({dtype("f32"), dtype("f64")}))

    def infer(self):
        type = merged(self, self.operands)
        if type.dtype.name not in ("f32", "f64"):
            raise self.error("operand", f"there is no complex type whose parts are {type.dtype}")
        return type.with_dtype(type.dtype.complex)

    def jax(j, re, im):
        return j.lax.complex(re, im)


def _part(name: str, doc: str, jax: Callable[..., Any], types: frozenset[Any] = FLOAT | COMPLEX, aten: Any = ()) -> None:
    def infer(self):
        return self.x.type.with_dtype(self.x.dtype.real)

    _family(name, "x", types, doc, jax, infer, (), aten)


_part("real", "The real part; floats stay as they are.", lambda j, x: j.lax.real(x) if is_complex(x) else x, aten="real.default")
_part(
    "imag",
    "The imaginary part; 0 for floats.",
    lambda j, x: j.lax.imag(x) if is_complex(x) else j.np.zeros_like(x),
    aten="imag.default",
)
_part("complex_abs", "``|x|`` of a complex number, without overflow on the way.", lambda j, x: j.lax.abs(x), COMPLEX)
_part("angle", "``atan2(imag, real)`` of a complex number.", lambda j, x: j.lax.atan2(j.lax.imag(x), j.lax.real(x)), COMPLEX)
unary("conj", COMPLEX, "The complex conjugate.", lambda j, x: j.lax.conj(x), "_conj.default")
