"""How an op is declared: one class holds every fact about it.

    @op("neuron.softmax", aten="_softmax.default")
    class Softmax(Op):
        \"\"\"Stable softmax along one axis.\"\"\"
        x = operand(FLOAT)
        axis = attr(int, -1)
        def infer(self): return self.x.type
        def jax(j, x, *, axis): return j.nn.softmax(x, axis=axis)

Fields (:func:`operand`, :func:`variadic`, :func:`optional`, :func:`attr`, :func:`region`) are given in the order of the text.
Facets are plain functions in the class body:

* ``infer(self)`` gives the result type, or a sequence of them. An op whose result type is a free choice (``cast``, ``reshape``,
  ``constant``) has ``check(self)`` instead, which only checks ``self.results``; ``check`` may stand beside ``infer`` too.
* ``jax(j, *operands, **attrs)`` *is the meaning*. ``j`` offers ``j.np``, ``j.lax``, ``j.nn``, ``j.random`` and friends; operands
  arrive as JAX arrays (absent optional ones as ``None``, a variadic group spread out); attributes by keyword, defaults filled in;
  regions by keyword as functions from arrays to a tuple of arrays; ``out`` (the static result type, or a tuple of them) where the
  function has a parameter of that name. It returns one array, or a tuple for several results.
* ``expand(b, *operands, **attrs)`` of a composite op builds the same value out of simpler ops with the builder ``b`` and returns
  the result value(s); ``out`` as above. A composite without ``jax`` takes its meaning from ``expand``.
* ``cost(self)`` gives a :class:`neuron_ir.cost.Cost` where the default for the op's traits is wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from neuron_ir.attrs import Dense, Resource, Symbol
from neuron_ir.core import Block, Op, Value
from neuron_ir.dims import Dim
from neuron_ir.dtypes import DType, all_dtypes
from neuron_ir.types import TOKEN, TensorType, Type

__all__ = [
    "ANY", "ANY_OR_TOKEN", "BOOL", "COMPLEX", "CONSTANT", "DIM", "DIMS", "FLOAT", "FLOATS", "INT", "INTS", "INT_LISTS",
    "NUMERIC", "REAL", "REQUIRED", "SPECS", "STRINGS", "TOKENS", "TRAITS", "AttrField", "Kind", "Op", "OpSpec", "OperandField",
    "RegionField", "attr", "declare", "op", "operand", "optional", "region", "result_types", "variadic",
]  # fmt: skip

T = TypeVar("T")

# --- constraints on operands: sets of element types -------------------------------------------------------------------


def _dtypes(*kinds: str) -> frozenset[DType]:
    return frozenset(t for t in all_dtypes() if t.kind in kinds)


BOOL, FLOAT, COMPLEX, INT = _dtypes("bool"), _dtypes("float"), _dtypes("complex"), _dtypes("int", "uint")
REAL = FLOAT | INT
NUMERIC = REAL | COMPLEX
ANY = NUMERIC | BOOL
TOKENS: frozenset[DType] = frozenset()  # accepts only tokens
ANY_OR_TOKEN = None  # accepts everything

# --- traits: plain words, closed set ----------------------------------------------------------------------------------

TRAITS = {
    "elementwise": "Result element i depends on element i of each operand only; operands and result have one shape.",
    "commutative": "Swapping the two operands changes nothing, bit for bit.",
    "terminator": "Ends a block.",
    "matmul": "The Tensor engine does the work; inputs may be lowered in precision, with f32 accumulation.",
    "reduction": "Combines many elements into one.",
    "view": "Moves or renames elements without arithmetic.",
    "effect": "Must run even if the result is unused, in order with other effects.",
    "random": "Draws random numbers from an explicit state.",
    "collective": "Exchanges data between devices.",
    "constant": "Has no operands and always gives the same value.",
    "control": "Runs its regions under control flow.",
}


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED: Any = _Required()


@dataclass(frozen=True)
class Kind:
    """A kind of attribute that is no plain Python type: ``accepts`` checks one, ``coerce`` makes it canonical."""

    name: str
    accepts: Callable[[Any], bool]
    coerce: Callable[[Any], Any] = lambda v: v


def _is_int(v: Any) -> bool:
    return isinstance(v, int) and not isinstance(v, bool)


def _tuple(v: Any) -> Any:
    return tuple(v) if isinstance(v, list | tuple) else v


INTS: Any = Kind("a list of integers", lambda v: isinstance(v, tuple) and all(map(_is_int, v)), _tuple)
INT_LISTS: Any = Kind(
    "a list of lists of integers",
    lambda v: isinstance(v, tuple) and all(isinstance(r, tuple) and all(map(_is_int, r)) for r in v),
    lambda v: tuple(map(_tuple, v)) if isinstance(v, list | tuple) else v,
)
DIMS: Any = Kind("a list of sizes", lambda v: isinstance(v, tuple) and all(_is_int(d) or isinstance(d, Dim) for d in v), _tuple)
DIM: Any = Kind("a size", lambda v: _is_int(v) or isinstance(v, Dim))
FLOATS: Any = Kind(
    "a list of floats",
    lambda v: isinstance(v, tuple) and all(isinstance(x, float) for x in v),
    lambda v: tuple(float(x) for x in v) if isinstance(v, list | tuple) else v,
)
STRINGS: Any = Kind("a list of strings", lambda v: isinstance(v, tuple) and all(isinstance(s, str) for s in v), _tuple)
CONSTANT: Any = Kind("a constant", lambda v: isinstance(v, Dense | Resource))

_PLAIN = {
    int: Kind("an integer", _is_int),
    float: Kind("a float", lambda v: isinstance(v, float), lambda v: float(v) if _is_int(v) else v),
    bool: Kind("true or false", lambda v: isinstance(v, bool)),
    str: Kind("a string", lambda v: type(v) is str),
    DType: Kind("an element type", lambda v: isinstance(v, DType)),
    TensorType: Kind("a tensor type", lambda v: isinstance(v, TensorType)),
    Symbol: Kind("a function's name", lambda v: isinstance(v, Symbol)),
}


@dataclass
class OperandField:
    """One operand, or the one variadic group, of an op."""

    constraint: frozenset[DType] | None
    variadic: bool = False
    optional: bool = False
    name: str = ""

    def accepts(self, type: Type) -> bool:
        if self.constraint is None:
            return True
        if type is TOKEN:
            return self.constraint is TOKENS
        return isinstance(type, TensorType) and type.dtype in self.constraint


@dataclass
class AttrField:
    """One attribute: its kind, default (``REQUIRED``: none), and the closed set of its values where it has one."""

    kind: Kind
    default: Any
    choices: tuple[Any, ...] = ()
    name: str = ""

    def problem(self, value: Any) -> str:
        """What is wrong with ``value``, or nothing."""
        if not self.kind.accepts(value):
            return f"attribute {self.name} must be {self.kind.name}, not {value!r}"
        if self.choices and value not in self.choices:
            return f"attribute {self.name} must be one of {', '.join(map(repr, self.choices))}, not {value!r}"
        return ""


@dataclass
class RegionField:
    """One region. ``args(op)`` gives its argument types, or ``None`` where any will do; ``optional`` regions may be absent."""

    args: Callable[[Any], Sequence[Type]] | None
    results: Callable[[Any], Sequence[Type]] | None
    variadic: bool = False
    optional: bool = False
    name: str = ""


def operand(constraint: frozenset[DType] | None = ANY) -> Value:
    """Declare an operand whose element type is in ``constraint``."""
    return OperandField(constraint)  # type: ignore[return-value]


def optional(constraint: frozenset[DType] | None = ANY) -> Value | None:
    """Declare an operand that may be absent (``None`` in facets). ``absent`` lists those before a present one."""
    return OperandField(constraint, optional=True)  # type: ignore[return-value]


def variadic(constraint: frozenset[DType] | None = ANY) -> tuple[Value, ...]:
    """Declare a group of any number of operands; at most one per op, and the op then has no optional ones."""
    return OperandField(constraint, variadic=True)  # type: ignore[return-value]


def attr(kind: type[T], default: Any = REQUIRED, choices: Sequence[Any] = ()) -> T:
    """Declare an attribute. ``kind``: int, float, bool, str, DType, Symbol, INTS, DIMS, ...; default ``None``: optional."""
    resolved: Kind = kind if isinstance(kind, Kind) else _PLAIN[kind]
    return AttrField(resolved, default, tuple(choices))  # type: ignore[return-value]


def region(
    args: Callable[[Any], Sequence[Type]] | None = None,
    results: Callable[[Any], Sequence[Type]] | None = None,
    *,
    variadic: bool = False,
    optional: bool = False,
) -> Block:
    """Declare a region by the types of its arguments and of what it yields (functions of the op; ``None``: not fixed)."""
    return RegionField(args, results, variadic, optional)  # type: ignore[return-value]


@dataclass
class OpSpec:
    """Everything one op class declares, as the parser, verifier, builder, executor, importers and documentation read it."""

    name: str
    cls: type[Op]
    doc: str
    operands: list[OperandField] = field(default_factory=list)
    attrs: dict[str, AttrField] = field(default_factory=dict)
    regions: list[RegionField] = field(default_factory=list)
    traits: frozenset[str] = frozenset()
    aten: tuple[str, ...] = ()
    infer: Callable[[Any], Any] | None = None
    check: Callable[[Any], None] | None = None
    jax: Callable[..., Any] | None = None
    expand: Callable[..., Any] | None = None
    cost: Callable[[Any], Any] | None = None
    jax_wants_out: bool = False
    expand_wants_out: bool = False

    @property
    def variadic(self) -> bool:
        """Whether one of the operands is a variadic group."""
        return any(o.variadic for o in self.operands)

    @property
    def own_attrs(self) -> list[AttrField]:
        """The attributes that the class declares, without the note of absent operands."""
        return [a for name, a in self.attrs.items() if name != "absent"]

    @property
    def min_operands(self) -> int:
        return sum(not (o.variadic or o.optional) for o in self.operands)

    def split(self, operands: Sequence[T], absent: Sequence[int] = ()) -> list[Any]:
        """``operands`` by field: one item per field, ``None`` where absent, a tuple for the variadic group."""
        groups: list[Any] = []
        spare, at = len(operands) - self.min_operands, 0
        for i, o in enumerate(self.operands):
            if o.variadic:
                groups.append(tuple(operands[at : at + spare]))
                at += spare
            elif o.optional and (i in absent or spare <= 0):
                groups.append(None)
            else:
                groups.append(operands[at])
                at += 1
                spare -= o.optional
        return groups


SPECS: dict[str, OpSpec] = {}


def op(name: str, *, aten: str | Iterable[str] = (), traits: Iterable[str] = ()) -> Callable[[type[Op]], type[Op]]:
    """Register the decorated class as the op ``name``. ``aten``: the overloads that it stands for."""

    def register(cls: type[Op]) -> type[Op]:
        spec = OpSpec(name, cls, inspect.cleandoc(cls.__doc__ or ""), traits=frozenset(traits))
        spec.aten = (aten,) if isinstance(aten, str) else tuple(aten)
        unknown = spec.traits - TRAITS.keys()
        if unknown or name in SPECS:
            raise ValueError(f"op {name}: " + (f"unknown traits {sorted(unknown)}" if unknown else "declared twice"))
        for field_name, value in list(vars(cls).items()):
            _declare_field(cls, spec, field_name, value)
        for facet in ("infer", "check", "jax", "expand", "cost"):
            setattr(spec, facet, getattr(cls, facet, None))
        spec.jax_wants_out = spec.jax is not None and "out" in inspect.signature(spec.jax).parameters
        spec.expand_wants_out = spec.expand is not None and "out" in inspect.signature(spec.expand).parameters
        if any(o.optional for o in spec.operands):
            spec.attrs["absent"] = AttrField(INTS, (), (), "absent")
        cls.spec, cls.name = spec, name
        SPECS[name] = spec
        return cls

    return register


def declare(name: str, fields: dict[str, Any], *, aten: str | Iterable[str] = (), traits: Iterable[str] = ()) -> None:
    """Declare an op without a class statement, for tables of ops that differ in little: ``fields`` is the class body."""
    cls: Any = type(Op)
    op(name, aten=aten, traits=traits)(cls(name.rpartition(".")[2], (Op,), fields))


def _declare_field(cls: type[Op], spec: OpSpec, name: str, value: Any) -> None:
    """Put one field of the class body into the spec and an accessor in its place."""
    if not isinstance(value, OperandField | AttrField | RegionField):
        return
    if hasattr(Op, name):
        raise ValueError(f"op {spec.name}: the field name {name!r} is taken by Op itself")
    value.name = name
    index = len(spec.operands) if isinstance(value, OperandField) else len(spec.regions)
    if isinstance(value, AttrField):
        spec.attrs[name] = value
        accessor = _attr_accessor(name, value.default)
    elif isinstance(value, OperandField):
        spec.operands.append(value)
        simple = not (value.optional or value.variadic or spec.variadic)
        accessor = _operand_accessor(index) if simple else _group_accessor(index)
    else:
        spec.regions.append(value)
        accessor = _region_accessor(index, value.variadic, value.optional)
    setattr(cls, name, accessor)


def _attr_accessor(name: str, default: Any) -> property:
    return property(lambda self: self.attrs.get(name, default))


def _operand_accessor(index: int) -> property:
    return property(lambda self: self.operands[index])


def _group_accessor(index: int) -> property:
    return property(lambda self: self.operand_groups[index])


def _region_accessor(index: int, variadic: bool, optional: bool) -> property:
    if variadic:
        return property(lambda self: self.regions[index:])
    if optional:
        return property(lambda self: self.regions[index] if index < len(self.regions) else None)
    return property(lambda self: self.regions[index])


def result_types(op: Op) -> tuple[Type, ...] | None:
    """The result types that the op computes from its operands and attributes; ``None`` where they are a free choice."""
    if op.spec.infer is None:
        return None
    types = op.spec.infer(op)
    return (types,) if isinstance(types, Type) else tuple(types)
