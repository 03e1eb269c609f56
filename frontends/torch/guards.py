"""The conditions on input sizes under which torch traced a program, as constraints of the IR.

torch.export keeps them as Python text about the user's arguments: ``L['x'].size()[0] > L['y'].size()[0]``. A program must not run
for sizes that break one: torch took a branch, or left one out, because it held.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from neuron_ir.constraints import RELATIONS, Constraint, Either, any_of, constraint
from neuron_ir.diagnostics import fail
from neuron_ir.dims import DimLike, function
from neuron_ir.frontends.torch.symbols import Symbols

__all__ = ["read_guards"]

_RELATION = {ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.Lt: "<", ast.Eq: "==", ast.NotEq: "!="}
_OPPOSITE = {">=": "<", "<": ">=", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
_NAMED_RELATION = {"Eq": "==", "Ne": "!=", "Ge": ">=", "Gt": ">", "Le": "<=", "Lt": "<"}
_FUNCTIONS = {"FloorDiv": "floordiv", "Mod": "mod", "PythonMod": "mod", "Max": "max", "Min": "min", "max": "max", "min": "min"}
_VARIADIC = re.compile(r"^L\['(\w+)_(\d+)'\]")
_LAYOUT = (".stride()", ".storage_offset()")  # how an input lies in memory, of which no value depends


def read_guards(codes: Sequence[str], inputs: Mapping[str, Any], symbols: Symbols) -> list[Constraint | Either]:
    """The guards as constraints, without those that the ranges of the symbols imply.

    ``inputs`` maps the text of an argument (``L['x']``) to its fake tensor or ``SymInt``. Raises :class:`IRError` (``unsupported``)
    with the text of a guard that cannot be written as comparisons of sizes.
    """
    aliases = {_VARIADIC.sub(r"L['\1'][\2]", text): fake for text, fake in inputs.items()}  # the first of *rest is named rest_0
    inputs, found = {**aliases, **inputs}, []
    for code in codes:
        if any(word in code for word in _LAYOUT):
            continue
        try:
            made = list(_Guard(inputs, symbols).conditions(ast.parse(code, mode="eval").body))
        except _Unreadable:
            raise fail("unsupported", f"the condition {code} on the inputs' sizes, under which torch traced the program") from None
        found += [c for c in made if not isinstance(c, bool)]
    return found


class _Unreadable(Exception):
    """A piece of a guard that is no arithmetic on sizes."""


class _Guard:
    """Reads one guard."""

    def __init__(self, inputs: Mapping[str, Any], symbols: Symbols):
        self.inputs = inputs
        self.symbols = symbols

    def conditions(self, node: ast.expr) -> Iterator[Constraint | Either | bool]:
        """The constraints that must all hold, those as truth values that the ranges of the symbols decide."""
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for part in node.values:
                yield from self.conditions(part)
        elif isinstance(node, ast.BoolOp):
            yield any_of(self.one(part) for part in node.values)
        elif isinstance(node, ast.Compare):
            sides = [self.size(n) for n in (node.left, *node.comparators)]
            for relation, left, right in zip(node.ops, sides, sides[1:], strict=False):
                yield self.decided(constraint(left, self.relation(type(relation)), right))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield _opposite(self.one(node.operand))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMED_RELATION:
            left, right = (self.size(a) for a in node.args)
            yield self.decided(constraint(left, _NAMED_RELATION[node.func.id], right))
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node.value
        else:
            raise _Unreadable

    def one(self, node: ast.expr) -> Constraint | bool:
        """A condition that is a single comparison."""
        inner = list(self.conditions(node))
        if len(inner) != 1 or isinstance(inner[0], Either):
            raise _Unreadable
        return inner[0]

    def decided(self, made: Constraint | bool) -> Constraint | bool:
        """A truth value where the ranges of the symbols decide a constraint."""
        if isinstance(made, bool):
            return made
        if _is_implied(made, self.symbols):
            return True
        opposite = _opposite(made)
        return made if isinstance(opposite, Constraint) and not _is_implied(opposite, self.symbols) else False

    def relation(self, kind: type[ast.cmpop]) -> str:
        relation = _RELATION.get(kind)
        if relation not in RELATIONS:
            raise _Unreadable
        return relation

    def size(self, node: ast.expr) -> DimLike:
        """An arithmetic expression of sizes."""
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.size(node.operand)
        if isinstance(node, ast.BinOp):
            return self.arithmetic(node.op, self.size(node.left), self.size(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
            first, *rest = (self.size(a) for a in node.args)
            for other in rest:
                first = function(_FUNCTIONS[node.func.id], first, other)
            return first
        return self.of_input(node)

    def arithmetic(self, op: ast.operator, left: DimLike, right: DimLike) -> DimLike:
        if isinstance(op, ast.Add):
            return left + right
        if isinstance(op, ast.Sub):
            return left - right
        if isinstance(op, ast.Mult):
            return left * right
        if isinstance(op, ast.FloorDiv):
            return left // right
        if isinstance(op, ast.Mod):
            return left % right
        if isinstance(op, ast.Pow) and isinstance(right, int) and right >= 0:
            power: DimLike = 1
            for _ in range(right):
                power = power * left
            return power
        raise _Unreadable

    def of_input(self, node: ast.expr) -> DimLike:
        """``L['x'].size()[0]``, or ``L['n']`` of an input that is a number."""
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            source: Any = self.inputs.get(ast.unparse(node.value.func.value))
            axis = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if node.value.func.attr in ("size", "shape") and hasattr(source, "shape") and isinstance(axis, int):
                return self.symbols.dim(source.shape[axis])
        number = self.inputs.get(ast.unparse(node))
        if type(number).__name__ in ("SymInt", "int"):
            return self.symbols.dim(number)
        raise _Unreadable


def _opposite(one: Constraint | bool) -> Constraint | bool:
    return not one if isinstance(one, bool) else constraint(one.left, _OPPOSITE[one.relation], one.right)


def _is_implied(c: Constraint, symbols: Symbols) -> bool:
    """Whether the ranges of the symbols say that it holds."""
    (least, most), (low, high) = symbols.bounds(c.left), symbols.bounds(c.right)
    above = {">=": high is not None and least >= high, ">": high is not None and least > high}
    below = {"<=": most is not None and most <= low, "<": most is not None and most < low}
    if c.relation == "!=":
        return above[">"] or below["<"]
    return above.get(c.relation, False) or below.get(c.relation, False)
