"""Dimensions of a shape: an int, the unknown ``?``, or a symbolic expression such as ``S`` or ``2*S+1``.

A symbolic dimension is an interned polynomial with integer coefficients. Its monomials are products of *atoms*: symbols, or a
``floordiv``, ``mod``, ``max`` or ``min`` of two expressions. Two dims that are equal as polynomials are the same object, so the
verifier compares shapes with ``is``.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["UNKNOWN", "Dim", "DimLike", "Range", "evaluate", "function", "sides", "symbol"]

Range = tuple[int, "int | None"]  # inclusive lower and upper bound of a symbol; None: unbounded

_Monomial = tuple["Atom", ...]  # sorted, with repetition for powers; () is the constant term


class Atom:
    """A symbol (``function`` is "") or a function of two expressions."""

    __slots__ = ("text", "function", "args")
    _interned: dict[str, Atom] = {}
    text: str
    function: str
    args: tuple[DimLike, ...]

    @classmethod
    def make(cls, text: str, function: str = "", args: tuple[DimLike, ...] = ()) -> Atom:
        atom = cls._interned.get(text)
        if atom is None:
            atom = cls._interned[text] = cls()
            atom.text, atom.function, atom.args = text, function, args
        return atom

    def __lt__(self, other: Atom) -> bool:
        return self.text < other.text


class Dim:
    """A symbolic dimension. Supports ``+ - * // %`` with ints and other dims; the result is an int where it is constant."""

    __slots__ = ("terms", "text")
    _interned: dict[tuple[tuple[_Monomial, int], ...], Dim] = {}
    terms: tuple[tuple[_Monomial, int], ...]
    text: str

    def __repr__(self) -> str:
        return self.text

    @property
    def is_symbol(self) -> bool:
        """Whether this is one plain symbol with coefficient 1."""
        return len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1 and not self.terms[0][0][0].function

    @property
    def symbols(self) -> set[str]:
        """The names of all symbols in the expression."""
        names: set[str] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                if not atom.function:
                    names.add(atom.text)
                for arg in atom.args:
                    names |= arg.symbols if isinstance(arg, Dim) else set()
        return names

    def __add__(self, other: DimLike) -> DimLike:
        return _normal(_collect([*self.terms, *_terms(other)])) if other is not UNKNOWN and self is not UNKNOWN else UNKNOWN

    def __mul__(self, other: DimLike) -> DimLike:
        if other is UNKNOWN or self is UNKNOWN:
            return UNKNOWN
        return _normal(_collect([(tuple(sorted(m + n)), a * b) for m, a in self.terms for n, b in _terms(other)]))

    def __neg__(self) -> DimLike:
        return self * -1

    def __sub__(self, other: DimLike) -> DimLike:
        return self + (-other)

    def __rsub__(self, other: int) -> DimLike:
        return -self + other

    def __floordiv__(self, other: DimLike) -> DimLike:
        if isinstance(other, int) and other and all(c % other == 0 for _, c in self.terms):
            return _normal({m: c // other for m, c in self.terms})
        return function("floordiv", self, other)

    def __rfloordiv__(self, other: int) -> DimLike:
        return function("floordiv", other, self)

    def __mod__(self, other: DimLike) -> DimLike:
        if isinstance(other, int) and other and all(c % other == 0 for _, c in self.terms):
            return 0
        return function("mod", self, other)

    def __rmod__(self, other: int) -> DimLike:
        return function("mod", other, self)

    __radd__, __rmul__ = __add__, __mul__

    def __reduce__(self) -> tuple[object, ...]:
        return _parse_again, (self.text,)


DimLike = int | Dim


def _parse_again(text: str) -> DimLike:
    from neuron_ir.parser import parse_dim

    return parse_dim(text)


def _terms(d: DimLike) -> tuple[tuple[_Monomial, int], ...]:
    return d.terms if isinstance(d, Dim) else (((), d),)


def _collect(terms: list[tuple[_Monomial, int]]) -> dict[_Monomial, int]:
    sums: dict[_Monomial, int] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    return sums


def _normal(sums: dict[_Monomial, int]) -> DimLike:
    """The interned dim of a sum of monomials; an int when nothing symbolic is left."""
    kept = sorted(((m, c) for m, c in sums.items() if c), key=lambda t: (not t[0], -len(t[0]), [a.text for a in t[0]]))
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    key = tuple(kept)
    dim = Dim._interned.get(key)
    if dim is None:
        dim = Dim._interned[key] = Dim()
        dim.terms, dim.text = key, _print(key)
    return dim


def _print(terms: tuple[tuple[_Monomial, int], ...]) -> str:
    text = ""
    for monomial, coefficient in terms:
        factors = [a.text for a in monomial]
        if abs(coefficient) != 1 or not factors:
            factors.insert(0, str(abs(coefficient)))
        text += ("-" if coefficient < 0 else "+" if text else "") + "*".join(factors)
    return text


UNKNOWN = Dim()
UNKNOWN.terms, UNKNOWN.text = (), "?"


def symbol(name: str) -> Dim:
    """The symbolic dimension of that name."""
    dim = _normal({(Atom.make(name),): 1})
    assert isinstance(dim, Dim)
    return dim


def sides(d: Dim) -> tuple[DimLike, DimLike]:
    """Two dims without negative terms whose difference is ``d``."""
    return _normal({m: c for m, c in d.terms if c > 0}), _normal({m: -c for m, c in d.terms if c < 0})


def function(name: str, a: DimLike, b: DimLike) -> DimLike:
    """``floordiv``, ``mod``, ``max`` or ``min`` of two dims, computed where both are ints."""
    if a is UNKNOWN or b is UNKNOWN:
        return UNKNOWN
    if isinstance(a, int) and isinstance(b, int):
        return _apply(name, a, b)
    if a is b:
        return {"floordiv": 1, "mod": 0}.get(name, a)
    if name in ("max", "min") and str(b) < str(a):
        a, b = b, a
    return _normal({(Atom.make(f"{name}({a},{b})", name, (a, b)),): 1})


def _apply(name: str, a: int, b: int) -> int:
    if name == "floordiv":
        return a // b
    if name == "mod":
        return a % b
    return max(a, b) if name == "max" else min(a, b)


def evaluate(d: DimLike, sizes: Mapping[str, DimLike]) -> DimLike:
    """``d`` with the given symbols replaced; an int when every symbol has an int. ``KeyError`` names a missing symbol."""
    if isinstance(d, int) or d is UNKNOWN:
        return d
    total: DimLike = 0
    for monomial, coefficient in d.terms:
        product: DimLike = coefficient
        for atom in monomial:
            product = product * (
                function(atom.function, *(evaluate(x, sizes) for x in atom.args)) if atom.function else sizes[atom.text]
            )
        total = total + product
    return total
