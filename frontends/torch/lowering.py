"""How an ATen operation becomes ops of the IR: the table of rules, and what a rule sees.

A rule is a function ``rule(c, *args, **kwargs)`` in ``frontends/torch/aten/``, registered under the overloads it serves. It
gets the node's arguments with every tensor as a :class:`Value` and every symbolic integer as a :class:`Dim`, and gives the
node's value: one :class:`Value`, or a tuple of them (``None`` for an output that nobody may use). ``c`` is the
:class:`Context`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, reduce
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from neuron_ir.builder import Builder
from neuron_ir.core import Func, Value
from neuron_ir.diagnostics import IRError, fail
from neuron_ir.dims import Dim, DimLike, symbol
from neuron_ir.dtypes import BOOL, F32, I64, U32, DType
from neuron_ir.explanation import Journal
from neuron_ir.frontends.torch.decompositions import KEEP
from neuron_ir.frontends.torch.promotion import promoted
from neuron_ir.frontends.torch.symbols import Symbols
from neuron_ir.locations import Loc
from neuron_ir.types import TensorType

__all__ = ["RULES", "Context", "RandomState", "axes_of", "axis_of", "kept_operations", "lowers", "register_lowering", "rules"]

RULES: dict[str, Callable[..., Any]] = {}


def lowers(*overloads: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule for overloads, named without ``aten.`` where they are ATen's: ``@lowers("add.Tensor", "add.Scalar")``.

    ``"library.*"`` stands for those of a library that have no rule of their own.
    """

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for overload in overloads:
            name = overload if overload.count(".") > 1 or overload.endswith(".*") else f"aten.{overload}"
            if name in RULES:
                raise ValueError(f"{name} has two rules")
            RULES[name] = rule
        return rule

    return register


def register_lowering(operation: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give an operation of your own, which torch knows from ``torch.library``, a meaning: a decorator of a rule.

    ``operation`` is the operation itself or its name, ``"library::name"`` or ``"library.name.overload"``. The rule is called as
    ``rule(c, *args, **kwargs)`` with every tensor as a :class:`~neuron_ir.core.Value`; ``c.b`` builds ops, ``c.out`` is the type
    that torch computed for the (first) result, ``raise c.unsupported(reason)`` refuses a form. It gives the result, or a tuple of
    results; an operation that writes to arguments gives their new values after its results, in the order of the arguments.
    """
    name = _overload_name(operation)

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        if name in rules():
            raise fail("op", f"{name} has a lowering already")
        RULES[name] = rule
        return rule

    return register


def _overload_name(operation: Any) -> str:
    """``library.name.overload`` of an operation, or of what names one."""
    text = str(getattr(operation, "_opoverload", operation)).replace("::", ".")
    if text.count(".") == 1:
        text += ".default"
    if text.count(".") != 2 or not all(part.isidentifier() for part in text.split(".")):
        raise fail("op", f"{operation!r} names no operation of torch; a name is written library::name or library.name.overload")
    return text


@cache
def rules() -> dict[str, Callable[..., Any]]:
    """The whole table, with every module of ``frontends/torch/aten`` loaded and the ops' own ``aten=`` names filled in."""
    from neuron_ir.frontends.torch import aten
    from neuron_ir.registry import all_ops

    for module in iter_modules(aten.__path__):
        import_module(f"{aten.__name__}.{module.name}")
    for spec in all_ops():
        for overload in spec.aten:
            RULES.setdefault(f"aten.{overload}", _direct(spec.name))
    return RULES


def kept_operations() -> frozenset[str]:
    """The operations that an import keeps whole, since they have a rule."""
    return KEEP & rules().keys()


def _direct(op_name: str) -> Callable[..., Any]:
    """The rule of an overload that one op stands for: tensors cast to the result's element type, nothing else."""

    def rule(c: Context, *operands: Any, **others: Any) -> Any:
        if others or len(c.outs) != 1 or not all(isinstance(v, Value) for v in operands):
            raise c.unsupported("this form of the operation has no rule")
        return c.b.make(op_name, *(c.cast(v, c.out.dtype) for v in operands))

    return rule


class RandomState:
    """The state of a program's random numbers: ``make`` adds it to the program's arguments on the first draw."""

    def __init__(self, make: Callable[[], Value]):
        self.make = make
        self.present: Value | None = None

    def value(self) -> Value:
        if self.present is None:
            self.present = self.make()
        return self.present


class Context:
    """What a rule works with: ``b`` the builder (at the user's line), ``node`` the FX node, ``out`` the result's type."""

    def __init__(self, b: Builder, symbols: Symbols, random: RandomState | None = None):
        self.b = b
        self.symbols = symbols
        self.random = random
        self.node: Any = None
        self.journal: Journal | None = None
        self.reader: Any = None  # the GraphReader at work; rules of control flow read inner graphs with it
        self._outs: tuple[Any, list[TensorType]] = (None, [])

    @property
    def loc(self) -> Loc:
        return self.b.loc

    @property
    def out(self) -> TensorType:
        """The type of the (first) result, as torch computed it."""
        return self.outs[0]

    @property
    def outs(self) -> list[TensorType]:
        """The types of the results; a result that is no tensor is left out."""
        if self._outs[0] is not self.node:
            val = self.node.meta.get("val")
            values = val if isinstance(val, tuple | list) else (val,)
            self._outs = self.node, [self.symbols.type_of(v) for v in values if hasattr(v, "dtype")]
        return self._outs[1]

    def unsupported(self, reason: str) -> IRError:
        """An error at the user's line, to be raised: ``reason`` says which form of the operation has no rule."""
        return fail("unsupported", f"{self.node.target}: {reason}", self.loc, self.operand_types())

    def require(self, ok: Value, reason: str, *values: Value) -> None:
        """Stop the program, when it runs, with ``reason`` unless all of ``ok`` holds; ``{0}``, ... in it stand for ``values``."""
        self.b.check(ok, *values, message=f"{self.node.target}: {reason}")

    def operand_types(self) -> list[str]:
        """A note with the types of the operation's tensors, where the IR can write them."""
        try:
            types = [self.symbols.type_of(v) for n in self.node.all_input_nodes if hasattr(v := n.meta.get("val"), "dtype")]
        except IRError:
            return []
        return [f"called with {', '.join(map(str, types))}"] if types else []

    # --- random state ---

    def random_state(self) -> Value:
        """The present state of the program's random numbers (u64[2])."""
        if self.random is None:
            raise self.unsupported("random numbers inside a region of control flow")
        return self.random.value()

    def advance(self, state: Value) -> None:
        """The state after a draw."""
        assert self.random is not None
        self.random.present = state

    # --- sizes of the data ---

    def bind_size(self, value: Value, size: DimLike | None, *, most: DimLike | None = None, signed: bool = False) -> DimLike:
        """Let a size be the number ``value`` (i64, rank 0). ``size``: what torch calls it; where that is known already the program
        checks that both are the same; ``None``: a new symbol, at most ``most``. ``signed``: a number that is no size.
        """
        if size is None:
            size = symbol(self.symbols.fresh((0, most if isinstance(most, int) else None)))
        elif not (isinstance(size, Dim) and size.is_symbol and str(size) in self.symbols.open):
            message = f"{self.node.target}: the data give another size than {size}, for which the program was made"
            self.b.check(self.b.compare(value, self.size_as_value(size), direction="EQ"), message=message)
            return size
        if not isinstance(self.b.block.parent, Func):
            raise self.unsupported("a size that depends on the data, inside a region of control flow")
        if signed:
            self.symbols.sign(str(size), self.node.meta["val"].node.expr)
        self.b.bind_size(value, size=size)
        self.symbols.open.discard(str(size))
        return size

    def condition(self, expr: Any) -> Value:
        """A sympy condition on sizes as a truth value of rank 0."""
        head, b = type(expr).__name__, self.b
        if head in ("BooleanTrue", "BooleanFalse"):
            return b.const(head == "BooleanTrue", BOOL)
        if head == "Not":
            return b.not_(self.condition(expr.args[0]))  # type: ignore[no-any-return]
        if head in ("And", "Or"):
            parts = [self.condition(a) for a in expr.args]
            return reduce(b.and_ if head == "And" else b.or_, parts)
        if head not in _RELATIONS:
            raise self.unsupported(f"the condition {expr}")
        sides = [self.size_as_value(self.symbols.expression(a)) for a in expr.args]
        return b.compare(*sides, direction=_RELATIONS[head])  # type: ignore[no-any-return]

    # --- values ---

    def cast(self, x: Value, dtype: DType) -> Value:
        """``x`` in another element type, by torch's rules: integers wrap, floats out of an integer's range wrap too."""
        if x.dtype is dtype:
            return x
        if x.dtype.is_complex and not dtype.is_complex:
            if dtype is BOOL:
                return self.b.compare(x, self.scalar(0, x.dtype, x.shape), direction="NE")  # type: ignore[no-any-return]
            x = self.b.real(x)
        if dtype is BOOL:
            return self.b.compare(x, self.scalar(0, x.dtype, x.shape), direction="NE")  # type: ignore[no-any-return]
        mode = "wrap" if x.dtype.is_float and dtype.is_integer else "saturate" if dtype.name == "f8e4m3fn" else "nan"
        if dtype.name == "f8e8m0":
            x, mode = self._magnitude(x), "saturate"
        return self.b.cast(x, mode=mode, out=TensorType(x.shape, dtype))  # type: ignore[no-any-return]

    def _magnitude(self, x: Value) -> Value:
        """``x`` as torch takes it for a power of two: without its sign, NaN from where it rounds past the largest one.

        What lies between the two smallest powers goes to the greater one; those are numbers that a processor may take for 0, so
        that they are told by their bits.
        """
        x = self.b.abs(self.cast(x, F32))
        word = self.b.bitcast_convert(x, out=x.type.with_dtype(U32))
        low, high = (self.scalar(n, U32, x.shape) for n in (0x00400000, 0x00800000))
        between = self.b.and_(self.b.compare(word, low, direction="GT"), self.b.compare(word, high, direction="LT"))
        x = self.b.select(between, self.scalar(2.0**-126, F32, x.shape), x)
        over = self.b.compare(x, self.scalar(1.5 * 2.0**127, F32, x.shape), direction="GE")
        return self.b.select(over, self.scalar(float("nan"), F32, x.shape), x)  # type: ignore[no-any-return]

    def scalar(self, value: Any, dtype: DType, shape: Sequence[DimLike] = ()) -> Value:
        """A number (or symbolic size) of that element type, spread over ``shape``."""
        if isinstance(value, Value):
            return self.broadcast(self.cast(value, dtype), shape)
        if isinstance(value, Dim):
            return self.broadcast(self.cast(self.b.dim_size(size=value), dtype), shape)
        if all(isinstance(d, int) for d in shape):
            return self.b.const(_number(value, dtype), dtype, tuple(d for d in shape if isinstance(d, int)))
        return self.broadcast(self.b.const(_number(value, dtype), dtype), shape)

    def broadcast(self, x: Value, shape: Sequence[DimLike]) -> Value:
        """``x`` spread over ``shape`` by NumPy's rules: aligned at the right, size 1 repeated."""
        if tuple(x.shape) == tuple(shape):
            return x
        lead = len(shape) - len(x.shape)
        if lead < 0:
            raise self.unsupported(f"{x.type} cannot be spread over the shape {list(shape)}")
        return self.b.broadcast_in_dim(x, broadcast_dimensions=tuple(range(lead, len(shape))), out=TensorType(shape, x.dtype))

    def reshape(self, x: Value, shape: Sequence[DimLike]) -> Value:
        """``x`` in another shape of as many elements."""
        return x if tuple(x.shape) == tuple(shape) else self.b.reshape(x, out=TensorType(shape, x.dtype))

    def spread(self, *operands: Any, dtype: DType | None = None, shape: Sequence[DimLike] | None = None) -> list[Value]:
        """Operands of an elementwise op in one element type (default: torch's promotion) and shape (default: the result's)."""
        wanted = dtype or promoted(operands)
        over = self.out.shape if shape is None else shape
        return [self.scalar(v, wanted, over) for v in operands]

    def sizes(self, x: Value) -> list[int]:
        """The shape of ``x`` as numbers; refused by name where a size is symbolic."""
        sizes = [d for d in x.shape if isinstance(d, int)]
        if len(sizes) != len(x.shape):
            raise self.unsupported(f"a tensor of symbolic sizes, {x.type}")
        return sizes

    def size_as_value(self, d: DimLike) -> Value:
        """A size as an i64 tensor of rank 0."""
        return self.b.dim_size(size=d) if isinstance(d, Dim) else self.b.const(d, I64)


_RELATIONS = {
    "Equality": "EQ", "Unequality": "NE", "GreaterThan": "GE", "StrictGreaterThan": "GT", "LessThan": "LE", "StrictLessThan": "LT",
}  # fmt: skip


def _number(value: Any, dtype: DType) -> Any:
    """A Python number as torch would store it in ``dtype``."""
    if dtype is BOOL:
        return bool(value)
    if dtype.is_integer:
        low = int(value) % 2**dtype.bits  # integers wrap
        return low - 2**dtype.bits if dtype.kind == "int" and low >= 2 ** (dtype.bits - 1) else low
    return value


def axis_of(axis: int, rank: int) -> int:
    """A possibly negative axis counted from the front; rank 0 has one virtual axis, as in torch."""
    return axis % max(rank, 1)


def axes_of(axes: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Several axes counted from the front, in rising order; ``None`` or none given: all."""
    if axes is None or axes == [] or axes == ():
        return tuple(range(rank))
    listed = [axes] if isinstance(axes, int) else axes
    return tuple(sorted({axis_of(a, rank) for a in listed})) if rank else ()
