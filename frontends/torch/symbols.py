"""torch's symbolic sizes, dtypes and fake tensors as dims, element types and tensor types of the IR."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from neuron_ir.diagnostics import fail
from neuron_ir.dialects.neuron.shapes import product
from neuron_ir.dims import Dim, DimLike, Range, function, symbol
from neuron_ir.dtypes import DType, dtype_of_torch
from neuron_ir.types import TensorType

__all__ = ["Symbols", "dim_names"]

_UNBOUNDED = 2**48
_UNBACKED = re.compile(r"u\d+")  # torch's names of sizes that the data decide


class Symbols:
    """Translates what torch knows about a value.

    ``ranges`` maps torch's symbols to their value ranges, ``names`` torch's symbol names to the user's own.
    """

    def __init__(self, ranges: Mapping[Any, Any], names: Mapping[str, str] | None = None):
        self.ranges = ranges
        self.names = dict(names or {})
        self.used: dict[str, Range] = {}
        self.data: dict[str, str] = {}  # torch's symbol of a size of the data -> its name in the text
        self.open: set[str] = set()  # names of such sizes that no operation has given yet
        self._waived: set[tuple[str, int]] = set()  # upper bounds that torch asserts by mistake
        self._owners: dict[str, str] = {}

    def dtype(self, torch_dtype: Any) -> DType:
        """The element type of a ``torch.dtype``; :class:`IRError` naming it where the IR has none."""
        try:
            return dtype_of_torch(torch_dtype)
        except KeyError:
            raise fail("unsupported", f"the element type {torch_dtype} has no counterpart in the IR") from None

    def type_of(self, fake: Any) -> TensorType:
        """The tensor type of a fake (or real) tensor."""
        return TensorType([self.dim(d) for d in fake.shape], self.dtype(fake.dtype))

    def dim(self, size: Any) -> DimLike:
        """A size, given as an int or a ``SymInt``."""
        if isinstance(size, int):
            return size
        return self.expression(size.node.expr)

    def expression(self, expr: Any) -> DimLike:
        """A sympy expression of sizes as a dim."""
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            return self._symbol(expr)
        head = type(expr).__name__
        if head == "Piecewise" and _is_truth_value(expr):
            return self.expression(expr.args[0].args[1].args[0])
        parts = [self.expression(a) for a in expr.args]
        if expr.is_Add:
            return sum(parts[1:], parts[0])
        if expr.is_Mul:
            return product(parts)
        if (expr.is_Pow or head == "PowByNatural") and isinstance(parts[1], int) and parts[1] >= 0:
            return product([parts[0]] * parts[1])
        if head in _FUNCTIONS and len(parts) >= 2:
            result = parts[0]
            for part in parts[1:]:
                result = function(_FUNCTIONS[head], result, part)
            return result
        raise fail("unsupported", f"the size {expr} cannot be written in the IR")

    def _symbol(self, expr: Any) -> DimLike:
        raw = str(expr)
        if _UNBACKED.fullmatch(raw):
            return symbol(self.data.get(raw) or self._of_data(expr))
        name = self.names.get(raw, raw)
        if self._owners.setdefault(name, raw) != raw:  # one name for two sizes would make them equal
            name = raw
        self.used[name] = self._range(expr)
        return symbol(name)

    def _range(self, expr: Any) -> Range:
        bounds = self.ranges.get(expr)
        low = int(bounds.lower) if bounds is not None and bounds.lower.is_Integer else 0
        high = int(bounds.upper) if bounds is not None and bounds.upper.is_Integer and bounds.upper < _UNBOUNDED else None
        return max(low, 0), high

    def _of_data(self, expr: Any) -> str:
        """A name for a size that the data decide; open until an operation gives it."""
        name = self.fresh(self._range(expr))
        self.data[str(expr)] = name
        self.open.add(name)
        return name

    def fresh(self, bounds: Range) -> str:
        """A new symbol's name, ``n0``, ``n1``, ..."""
        known = self.used.keys() | self._owners.keys() | set(self.names.values())
        name = next(n for i in range(len(known) + 1) if (n := f"n{i}") not in known)
        self.used[name] = bounds
        return name

    def sign(self, name: str, expr: Any) -> None:
        """Let a number that is no size be negative."""
        bounds = self.ranges.get(expr)
        low = int(bounds.lower) if bounds is not None and bounds.lower.is_Integer else -(2**63)
        self.used[name] = (max(low, -(2**63)), self.used[name][1])

    def of_data(self, size: Any) -> bool:
        """Whether the data decide a size."""
        return isinstance(size, Dim) and not size.symbols.isdisjoint(self.data.values())

    def given(self) -> dict[str, Range]:
        """The range of every symbol but those that nothing gives."""
        return {name: bounds for name, bounds in sorted(self.used.items()) if name not in self.open}

    def widen(self, size: DimLike, mistaken: DimLike, most: DimLike) -> None:
        """Let a size of the data be up to ``most`` where torch believes, and asserts, that it is up to ``mistaken``."""
        if isinstance(size, Dim) and size.text in self.open and isinstance(mistaken, int) and self.used[size.text][1] == mistaken:
            self.used[size.text] = (self.used[size.text][0], most if isinstance(most, int) else None)
            self._waived.add((size.text, mistaken))

    def implies(self, relation: Any) -> bool:
        """Whether the ranges of symbols say that a sympy relation of one symbol and a number holds."""
        head, sides = type(relation).__name__, relation.args
        if head in ("LessThan", "StrictLessThan"):
            head, sides = {"LessThan": "GreaterThan", "StrictLessThan": "StrictGreaterThan"}[head], sides[::-1]
        if head not in ("GreaterThan", "StrictGreaterThan") or len(sides) != 2:
            return False
        above, below = (self.expression(s) for s in sides)
        strict = head == "StrictGreaterThan"
        if isinstance(below, int) and isinstance(above, Dim) and above.is_symbol:
            return self.used[above.text][0] >= below + strict
        if isinstance(above, int) and isinstance(below, Dim) and below.is_symbol:
            high = self.used[below.text][1]
            if not strict and (below.text, above) in self._waived:
                return True
            return high is not None and high <= above - strict
        return False

    def bounds(self, d: DimLike) -> Range:
        """The least and the largest value that a size can have, where it is a sum of products of symbols; else ``(0, None)``."""
        if isinstance(d, int):
            return d, d
        if not d.terms:
            return 0, None
        low, high = 0, 0
        open_end = False
        for monomial, coefficient in d.terms:
            least, most = coefficient, coefficient
            for atom in monomial:
                known = self.used.get(atom.text) if not atom.function else None
                if known is None or coefficient < 0:
                    return 0, None
                least *= known[0]
                open_end = open_end or known[1] is None
                most *= known[1] or 1
            low, high = low + least, high + most
        return low, None if open_end else high


_FUNCTIONS = {"FloorDiv": "floordiv", "CleanDiv": "floordiv", "Mod": "mod", "PythonMod": "mod", "Max": "max", "Min": "min"}


def _is_truth_value(expr: Any) -> bool:
    """Whether this is 1 where a symbol, which is a truth value, is 1, and 0 elsewhere."""
    (value, condition), *others = (a.args for a in expr.args)
    is_one = type(condition).__name__ == "Equality" and condition.args[0].is_Symbol and condition.args[1] == 1
    return is_one and value == 1 and [tuple(o) for o in others] == [(0, True)]


def dim_names(graph: Any) -> dict[str, str]:
    """torch's symbol -> the name of the user's ``torch.export.Dim``, where the axis that the symbol stands for has one."""
    names: dict[str, str] = {}
    for node in graph.nodes:
        if node.op != "placeholder":
            break
        env = getattr(getattr(node.meta.get("val"), "fake_mode", None), "shape_env", None)
        if env is not None:
            names.update(_names_of(env))
            break
    return names


def _names_of(env: Any) -> dict[str, str]:
    given = getattr(env, "source_name_to_debug_name", {})
    sources = getattr(env, "var_to_sources", {})
    words = {word for text in given.values() for word in re.findall(r"[^\W\d]\w*", text)}  # those of 2*S too, where S is no axis
    found: dict[str, str] = {}
    for sym, places in sources.items():
        name = next((given.get(p.name, p.name) for p in places if p.name in given or p.name in words), "")
        if name.isidentifier():
            found[str(sym)] = name
    return found
