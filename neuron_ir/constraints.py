"""Conditions on symbolic sizes beyond their ranges, such as ``a >= b``, ``mod(S,2) == 0`` or ``a == b or b == 1``.

A function keeps them as text in its attribute ``where``. They hold for sizes that follow from the inputs.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from neuron_ir.dims import Dim, DimLike, evaluate, sides, symbol

if TYPE_CHECKING:
    from neuron_ir.core import Func

__all__ = ["RELATIONS", "Constraint", "Either", "any_of", "constraint", "constraints_of", "parse_constraint", "set_constraints"]

RELATIONS = {
    ">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_TEXT = re.compile(r"\s*([^<>=!]+?)\s*(>=|<=|==|!=|<|>)\s*([^<>=!]+?)\s*")


class Constraint(NamedTuple):
    """``left relation right``; made by :func:`constraint`, which brings it to one form."""

    left: DimLike
    relation: str
    right: DimLike

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"

    @property
    def symbols(self) -> set[str]:
        """The names of all symbols on both sides."""
        return {name for side in (self.left, self.right) if isinstance(side, Dim) for name in side.symbols}

    def at(self, sizes: Mapping[str, DimLike]) -> Constraint | bool:
        """The constraint with symbols replaced, or whether it holds where nothing symbolic is left."""
        full = {**{name: symbol(name) for name in self.symbols}, **sizes}
        return constraint(evaluate(self.left, full), self.relation, evaluate(self.right, full))


class Either(NamedTuple):
    """At least one of several constraints holds; made by :func:`any_of`."""

    parts: tuple[Constraint, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.parts))

    @property
    def symbols(self) -> set[str]:
        """The names of all symbols in the parts."""
        return {name for part in self.parts for name in part.symbols}

    def at(self, sizes: Mapping[str, DimLike]) -> Constraint | Either | bool:
        """The condition with symbols replaced, or whether it holds where nothing symbolic is left."""
        return any_of(part.at(sizes) for part in self.parts)


def any_of(parts: Iterable[Constraint | bool]) -> Constraint | Either | bool:
    """The condition that at least one part holds; a truth value where that is known."""
    kept = list(dict.fromkeys(part for part in parts if part is not False))
    if any(part is True for part in kept):
        return True
    constraints = tuple(part for part in kept if isinstance(part, Constraint))
    return Either(constraints) if len(constraints) > 1 else constraints[0] if constraints else False


def constraint(left: DimLike, relation: str, right: DimLike) -> Constraint | bool:
    """The constraint with no negative term on either side and no common one; a truth value where both sides are numbers."""
    difference = left - right
    if isinstance(difference, int):
        return bool(RELATIONS[relation](difference, 0))
    above, below = sides(difference)
    return Constraint(above, relation, below)


@lru_cache(maxsize=4096)
def parse_constraint(text: str) -> Constraint | Either | bool:
    """The constraint that a text describes; ``ValueError`` where it describes none."""
    return any_of(map(_parse_one, text.split(" or ")))


def _parse_one(text: str) -> Constraint | bool:
    from neuron_ir.parser import parse_dim

    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no condition on sizes; write two sizes with one of {' '.join(RELATIONS)} between")
    return constraint(parse_dim(match[1]), match[2], parse_dim(match[3]))


def constraints_of(func: Func) -> list[Constraint | Either]:
    """The constraints of a function."""
    parsed = [parse_constraint(text) for text in func.attrs.get("where", ())]
    return [c for c in parsed if not isinstance(c, bool)]


def set_constraints(func: Func, constraints: Iterable[Constraint | Either]) -> None:
    """Let the function have these constraints, each once, and no others."""
    texts = tuple(dict.fromkeys(map(str, constraints)))
    if texts:
        func.attrs["where"] = texts
    else:
        func.attrs.pop("where", None)
