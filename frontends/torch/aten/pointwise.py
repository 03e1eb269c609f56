"""Elementwise operations."""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
from neuron_ir.dtypes import BOOL
from neuron_ir.frontends.torch.lowering import Context, lowers

# Overload -> op, where the operands are promoted and the op does the rest.
_UNARY = {
    "abs": "abs", "neg": "negate", "exp": "exponential", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "tanh": "tanh", "sigmoid": "logistic",
    "cos": "cosine", "sin": "sine", "erf": "erf", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "log1p": "log_plus_one",
    "expm1": "exponential_minus_one", "reciprocal": "reciprocal", "square": "square", "logical_not": "not", "bitwise_not": "not",
}  # fmt: skip

_BINARY = {
    "mul": "multiply",
    "maximum": "maximum",
    "minimum": "minimum",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
}

_COMPARE = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}


def _unary_rule(op_name: str, of_bool: bool = False) -> Any:
    def rule(c: Context, x: Value) -> Value:
        return c.b.make(op_name, c.cast(x, BOOL if of_bool else c.out.dtype))  # type: ignore[no-any-return]

    return rule


def _binary_rule(op_name: str) -> Any:
    def rule(c: Context, a: Any, b: Any) -> Value:
        return c.b.make(op_name, *c.spread(a, b))  # type: ignore[no-any-return]

    return rule


def _compare_rule(direction: str) -> Any:
    def rule(c: Context, a: Any, b: Any) -> Value:
        return c.b.compare(*c.spread(a, b), direction=direction)  # type: ignore[no-any-return]

    return rule


for _name, _op in _UNARY.items():
    lowers(f"{_name}.default")(_unary_rule(f"neuron.{_op}", of_bool=_name == "logical_not"))
for _name, _op in _BINARY.items():
    overloads = ["default"] if _name in ("maximum", "minimum") else ["Tensor", "Scalar"]
    lowers(*(f"{_name}.{o}" for o in overloads))(_binary_rule(f"neuron.{_op}"))
for _name, _direction in _COMPARE.items():
    lowers(f"{_name}.Tensor", f"{_name}.Scalar")(_compare_rule(_direction))


@lowers("add.Tensor", "add.Scalar")
def add(c: Context, a: Any, b: Any, alpha: Any = 1) -> Value:
    a, b = c.spread(a, b)
    return c.b.add(a, _scaled(c, b, alpha))  # type: ignore[no-any-return]


@lowers("sub.Tensor", "sub.Scalar")
def sub(c: Context, a: Any, b: Any, alpha: Any = 1) -> Value:
    a, b = c.spread(a, b)
    return c.b.subtract(a, _scaled(c, b, alpha))  # type: ignore[no-any-return]


def _scaled(c: Context, x: Value, alpha: Any) -> Value:
    return x if alpha == 1 else c.b.multiply(x, c.scalar(alpha, x.dtype, x.shape))


@lowers("div.Tensor", "div.Scalar")
def div(c: Context, a: Any, b: Any) -> Value:
    return c.b.divide(*c.spread(a, b, dtype=c.out.dtype))  # type: ignore[no-any-return]


@lowers("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def pow_(c: Context, a: Any, b: Any) -> Value:
    if isinstance(a, Value) and not isinstance(b, Value) and a.dtype is c.out.dtype:
        if b == 2:
            return c.b.multiply(a, a)  # type: ignore[no-any-return]
        if b == 3:
            return c.b.multiply(c.b.multiply(a, a), a)  # type: ignore[no-any-return]
    return c.b.power(*c.spread(a, b, dtype=c.out.dtype))  # type: ignore[no-any-return]


@lowers("where.self")
def where(c: Context, condition: Value, a: Value, b: Value) -> Value:
    (condition,) = c.spread(condition, dtype=BOOL)
    return c.b.select(condition, *c.spread(a, b, dtype=c.out.dtype))  # type: ignore[no-any-return]
