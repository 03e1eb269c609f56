"""Elementwise operations of two and three operands: arithmetic, comparisons, bits, choices.

torch computes arithmetic of f16 and bf16 in f32 and rounds once, and so do the rules here wherever that can be seen: more than one
step, or a number or a rank-0 tensor that the narrow type cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dtypes import BF16, BOOL, F16, F32, DType
from neuron_ir.frontends.torch.lowering import Context, lowers
from neuron_ir.frontends.torch.promotion import is_exact, promoted, rounded

NARROW = (F16, BF16)


def widened(t: DType) -> DType:
    """The element type in which torch computes ``t``."""
    return F32 if t in NARROW else t


def terms(c: Context, *operands: Any, dtype: DType | None = None) -> list[Expr]:
    """The operands as expressions of the type in which torch computes, spread over the result's shape."""
    wide = widened(dtype or promoted(operands))
    return [Expr(c.b, v) for v in c.spread(*operands, dtype=wide)]


def _is_rounded(operand: Any, t: DType) -> bool:
    """Whether the narrow type ``t`` cannot hold the operand, which torch uses as it is."""
    if isinstance(operand, Value):
        return not operand.shape and operand.dtype is not t and operand.dtype.is_float
    return not is_exact(operand, t)


def arithmetic(c: Context, op: Callable[..., Value], *operands: Any, dtype: DType | None = None, wide: bool = False) -> Value:
    """``op`` of the promoted operands; ``wide``: it takes several steps, so that narrow floats are computed in f32."""
    t = dtype or promoted(operands)
    if t in NARROW and (wide or any(_is_rounded(v, t) for v in operands)):
        t = F32
    return c.cast(op(*c.spread(*operands, dtype=t)), c.out.dtype)


def check_divisor(c: Context, a: Any, b: Any) -> None:
    """Integers divided by 0 stop the program, as in torch."""
    if not promoted((a, b)).is_integer:
        return
    if isinstance(b, Value) and b.dense is not None and b.dense.array.all() or isinstance(b, int) and b:
        return
    if any(d == 0 for d in c.out.shape):  # nothing is divided
        return
    is_open = any(not isinstance(d, int) for d in c.out.shape)  # a symbolic size may be 0
    dtype = promoted((a, b))
    b = c.spread(a, b, dtype=dtype)[1] if is_open else c.scalar(b, dtype, b.shape if isinstance(b, Value) else ())
    c.require(c.b.compare(b, c.scalar(0, b.dtype, b.shape), direction="NE"), f"an integer is divided by 0 in {b.type}")


# --- families ---------------------------------------------------------------------------------------------------------

_ALL = ("Tensor", "Scalar")

# Operation -> its op and its overloads; the operands are promoted and the op does the rest.
_BINARY = {
    "mul": ("multiply", _ALL), "maximum": ("maximum", ("default",)), "minimum": ("minimum", ("default",)),
    "max": ("maximum", ("other",)), "min": ("minimum", ("other",)),
    "bitwise_and": ("and", (*_ALL, "Scalar_Tensor")), "bitwise_or": ("or", (*_ALL, "Scalar_Tensor")),
    "bitwise_xor": ("xor", (*_ALL, "Scalar_Tensor")),
    "__and__": ("and", _ALL), "__or__": ("or", _ALL), "__xor__": ("xor", _ALL),
    "gcd": ("gcd", ("default",)), "lcm": ("lcm", ("default",)), "nextafter": ("next_after", ("default",)),
    "hypot": ("hypot", ("default",)), "logaddexp": ("logaddexp", ("default",)), "logaddexp2": ("logaddexp2", ("default",)),
    "remainder": ("remainder_floor", (*_ALL, "Scalar_Tensor")), "fmod": ("remainder", _ALL),
    "bitwise_left_shift": ("shift_left", ("Tensor", "Tensor_Scalar", "Scalar_Tensor")), "__lshift__": ("shift_left", _ALL),
}  # fmt: skip

# The same where integers become floats: the result's type is the one to compute in.
_FLOAT_BINARY = {
    "atan2": ("atan2", ("default",)), "copysign": ("copysign", _ALL), "igamma": ("igamma", ("default",)),
    "igammac": ("igammac", ("default",)), "xlogy": ("xlogy", ("Tensor", "Scalar_Self", "Scalar_Other")),
    "special_xlog1py": ("xlog1py", ("default", "self_scalar", "other_scalar")),
}  # fmt: skip

_COMPARE = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}
_LOGICAL = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
_SEVERAL_STEPS = (
    "remainder_floor",
    "remainder",
    "hypot",
    "logaddexp",
    "logaddexp2",
    "xlogy",
    "xlog1py",
    "zeta",
    "igamma",
    "igammac",
)


def _binary_rule(op_name: str, floats: bool) -> Any:
    def rule(c: Context, a: Any, b: Any) -> Value:
        if op_name.startswith("remainder"):
            check_divisor(c, a, b)
        op = getattr(c.b, f"{op_name}_" if op_name in ("and", "or") else op_name)
        return arithmetic(c, op, a, b, dtype=c.out.dtype if floats else None, wide=op_name in _SEVERAL_STEPS)

    return rule


def _compare_rule(direction: str) -> Any:
    def rule(c: Context, a: Any, b: Any) -> Value:
        return c.b.compare(*c.spread(a, b), direction=direction)

    return rule


def _logical_rule(op_name: str) -> Any:
    def rule(c: Context, a: Any, b: Any) -> Value:
        return c.b.make(f"neuron.{op_name}", *c.spread(a, b, dtype=BOOL))

    return rule


for _table, _floats in ((_BINARY, False), (_FLOAT_BINARY, True)):
    for _name, (_op, _overloads) in _table.items():
        lowers(*(f"{_name}.{o}" for o in _overloads))(_binary_rule(_op, _floats))
for _name, _direction in _COMPARE.items():
    lowers(f"{_name}.Tensor", f"{_name}.Scalar")(_compare_rule(_direction))
for _name, _op in _LOGICAL.items():
    lowers(f"{_name}.default")(_logical_rule(_op))

# --- sums and products ------------------------------------------------------------------------------------------------


@lowers("add.Tensor", "add.Scalar")
def add(c: Context, a: Any, b: Any, alpha: Any = 1) -> Value:
    alpha = rounded(alpha, c.out.dtype)  # torch rounds this number first, unlike one that is an operand
    return arithmetic(c, lambda x, y: c.b.add(x, scaled(c, y, alpha)), a, b, wide=alpha != 1)


@lowers("sub.Tensor", "sub.Scalar")
def sub(c: Context, a: Any, b: Any, alpha: Any = 1) -> Value:
    alpha = rounded(alpha, c.out.dtype)
    return arithmetic(c, lambda x, y: c.b.subtract(x, scaled(c, y, alpha)), a, b, wide=alpha != 1)


@lowers("rsub.Tensor", "rsub.Scalar")
def rsub(c: Context, a: Any, b: Any, alpha: Any = 1) -> Value:
    return sub(c, b, a, alpha)


def scaled(c: Context, x: Value, alpha: Any) -> Value:
    """``alpha * x``."""
    return x if alpha == 1 else c.b.multiply(x, c.scalar(alpha, x.dtype, x.shape))


@lowers("addcmul.default", "addcdiv.default")
def addcmul(c: Context, x: Value, a: Value, b: Value, value: Any = 1) -> Value:
    """``x + value * a * b``, or ``x + value * a / b``, multiplied in that order."""
    x_, a_, b_ = terms(c, x, a, b, dtype=c.out.dtype)
    product = a_ if value == 1 else a_.lift(value) * a_
    step = product / b_ if str(c.node.target) == "aten.addcdiv.default" else product * b_
    return c.cast((x_ + step).value, c.out.dtype)


@lowers("lerp.Scalar", "lerp.Tensor")
def lerp(c: Context, start: Value, end: Value, weight: Any) -> Value:
    """From whichever end is nearer, so that weights 0 and 1 give the ends."""
    a, b, w = terms(c, start, end, weight, dtype=c.out.dtype)
    up, down = a + w * (b - a), b - (b - a) * (w.lift(1) - w)
    size = Expr(c.b, c.b.complex_abs(w.value)) if w.dtype.is_complex else w.abs()
    return c.cast(size.compare("LT", 0.5).where(up, down).value, c.out.dtype)


@lowers("floor_divide.default", "floor_divide.Scalar")
def floor_divide(c: Context, a: Any, b: Any) -> Value:
    return div_mode(c, a, b, rounding_mode="floor")


@lowers("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(c: Context, a: Any, b: Any) -> Value:
    return arithmetic(c, c.b.divide, a, b, dtype=c.out.dtype)


@lowers("div.Tensor_mode", "div.Scalar_mode")
def div_mode(c: Context, a: Any, b: Any, *, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return div(c, a, b)
    check_divisor(c, a, b)
    if rounding_mode == "floor":
        return arithmetic(c, c.b.floor_divide, a, b, wide=True)
    if c.out.dtype.is_integer:
        return arithmetic(c, c.b.divide, a, b)
    return arithmetic(c, lambda x, y: c.b.trunc(c.b.divide(x, y)), a, b, wide=True)


# --- powers -----------------------------------------------------------------------------------------------------------


@lowers(
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "pow.Scalar",
    "float_power.Tensor_Scalar",
    "float_power.Tensor_Tensor",
    "float_power.Scalar",
)
def pow_(c: Context, a: Any, b: Any) -> Value:
    t = c.out.dtype
    if not isinstance(b, Value) and not isinstance(b, complex):
        by_number = _power_of(terms(c, a, dtype=t)[0], b)
        if by_number is not None:
            return c.cast(by_number.value, t)
    return arithmetic(c, c.b.power, a, b, dtype=t, wide=True)


def _power_of(x: Expr, exponent: Any) -> Expr | None:
    """torch's short ways for a few exponents, which round and treat -0 and -inf in their own way."""
    if exponent == 2:
        return x * x
    if exponent == 3:
        return x * x * x
    if x.dtype.is_integer or x.dtype is BOOL:
        return None
    if exponent == 0.5:
        return x.sqrt()
    if exponent == -0.5:
        return x.rsqrt()
    if exponent == -1:
        return x.unary("reciprocal")
    return (x * x).unary("reciprocal") if exponent == -2 else None


@lowers("ldexp.Tensor")
def ldexp(c: Context, x: Value, exponent: Value) -> Value:
    x_, e = terms(c, x, exponent, dtype=c.out.dtype)
    return c.cast((x_ * e.unary("exp2")).value, c.out.dtype)


# --- larger and smaller -----------------------------------------------------------------------------------------------


@lowers("fmax.default", "fmin.default")
def fmax(c: Context, a: Any, b: Any) -> Value:
    a, b = c.spread(a, b)
    name = str(c.node.target).removeprefix("aten.").removesuffix(".default")
    return c.b.make(f"neuron.{name}" if a.dtype.is_float else {"fmax": "neuron.maximum", "fmin": "neuron.minimum"}[name], a, b)


@lowers("clamp.default", "clamp.Tensor", "clip.default", "clip.Tensor")
def clamp(c: Context, x: Value, min: Any = None, max: Any = None) -> Value:
    """``min(max(x, low), high)``: NaN in a bound gives NaN, and a low bound above the high one gives the high one."""
    t, shape = c.out.dtype, c.out.shape
    y = c.scalar(x, t, shape)
    if min is not None:
        y = c.b.maximum(y, c.scalar(min, t, shape))
    return y if max is None else c.b.minimum(y, c.scalar(max, t, shape))


@lowers("clamp_min.default", "clamp_min.Tensor")
def clamp_min(c: Context, x: Value, min: Any) -> Value:
    return clamp(c, x, min, None)


@lowers("clamp_max.default", "clamp_max.Tensor")
def clamp_max(c: Context, x: Value, max: Any) -> Value:
    return clamp(c, x, None, max)


@lowers("heaviside.default")
def heaviside(c: Context, x: Value, at_zero: Value) -> Value:
    """0 below 0, 1 above it and for NaN's sake 0; at 0 the given value."""
    x_, value = (Expr(c.b, v) for v in c.spread(x, at_zero))
    step = x_.compare("GT", 0).where(x_.lift(1), x_.lift(0).broadcast(x_.shape))
    return x_.compare("EQ", 0).where(value, step).value


# --- choices ----------------------------------------------------------------------------------------------------------


@lowers("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(c: Context, condition: Value, a: Any, b: Any) -> Value:
    (condition,) = c.spread(condition, dtype=BOOL)
    return c.b.select(condition, *c.spread(a, b, dtype=c.out.dtype))


@lowers("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(c: Context, x: Value, mask: Value, value: Any) -> Value:
    return where(c, mask, value, x)


# --- bits -------------------------------------------------------------------------------------------------------------


@lowers(
    "bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar", "bitwise_right_shift.Scalar_Tensor", "__rshift__.Tensor",
    "__rshift__.Scalar",
)  # fmt: skip
def shift_right(c: Context, a: Any, b: Any) -> Value:
    a, b = c.spread(a, b)
    return c.b.shift_right_logical(a, b) if a.dtype.kind == "uint" else c.b.shift_right_arithmetic(a, b)


# --- complex numbers --------------------------------------------------------------------------------------------------


@lowers("complex.default")
def complex_(c: Context, re: Value, im: Value) -> Value:
    if re.dtype is not im.dtype:
        raise c.unsupported(f"parts of {re.dtype} and {im.dtype}; torch takes one type")
    return c.b.complex(*c.spread(re, im, dtype=c.out.dtype.real))


@lowers("polar.default")
def polar(c: Context, size: Value, angle: Value) -> Value:
    r, a = terms(c, size, angle)
    return c.b.complex((r * a.unary("cosine")).value, (r * a.unary("sine")).value)


# --- a product and what follows it -----------------------------------------------------------------------------------


@lowers("_addmm_activation.default")
def addmm_activation(
    c: Context, bias: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False
) -> Value:
    y = terms(c, bias)[0] * beta + Expr(c.b, c.b.matmul(a, b)).cast(widened(c.out.dtype)) * alpha
    z = c.b.gelu(y.value, approximate="none") if use_gelu else c.b.relu(y.value)
    return c.cast(z, c.out.dtype)
