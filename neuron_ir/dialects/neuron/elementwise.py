"""Elementwise ops. Families are one table line each; ops with a rule of their own are classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neuron_ir.opdef import ANY, COMPLEX, FLOAT, Op, op, operand


def _same(self):
    a = self.operands[0].type
    for v in self.operands[1:]:
        if v.type is not a and not (v.type.dtype is a.dtype and v.type.shape == a.shape):
            raise self.error("operand", f"operands of one type are needed, not {a} and {v.type}")
    return a


def unary(name: str, types: frozenset, doc: str, jax: Callable[..., Any], aten: Any = ()) -> None:
    """Declare a function of one operand whose result has the operand's type."""
    body = {"__doc__": doc, "x": operand(types), "infer": lambda self: self.operands[0].type, "jax": staticmethod(jax)}
    op(f"neuron.{name}", traits=["elementwise"], aten=aten)(type(Op)(name, (Op,), body))


def binary(name: str, types: frozenset, doc: str, jax: Callable[..., Any], aten: Any = (), commutative: bool = False) -> None:
    """Declare a function of two operands of one type whose result has that type."""
    body = {"__doc__": doc, "a": operand(types), "b": operand(types), "infer": _same, "jax": staticmethod(jax)}
    op(f"neuron.{name}", traits=["elementwise", *(["commutative"] if commutative else [])], aten=aten)(type(Op)(name, (Op,), body))


unary("exp", FLOAT | COMPLEX, "``e**x``.", lambda j, x: j.lax.exp(x))
binary("add", ANY, "``a + b``; integers wrap; bool: or.", lambda j, a, b: j.lax.add(a, b), commutative=True)
