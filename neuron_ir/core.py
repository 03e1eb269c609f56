"""The IR's objects: ``Module > Func > Block > Op > Value``.

A mutable SSA tree. Control flow is structured, so a region is exactly one :class:`Block`: its arguments and a linked list of ops
that ends with a terminator. Identity is object identity; names exist only as hints for print.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from neuron_ir.attrs import Dense
from neuron_ir.diagnostics import IRError, fail
from neuron_ir.dims import Dim, DimLike, Range, evaluate
from neuron_ir.locations import UNKNOWN_LOC, Loc
from neuron_ir.types import TensorType, Type

if TYPE_CHECKING:
    from neuron_ir.opdef import OpSpec

__all__ = ["IR_VERSION", "Block", "Func", "Module", "Op", "Value", "bulk", "clone_block", "clone_func", "clone_op"]

IR_VERSION = 1


@contextlib.contextmanager
def bulk() -> Iterator[None]:
    """Pause Python's cyclic garbage collector while many ops are made; nothing made here is garbage before the end."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Value:
    """A result of an op or an argument of a block. ``users`` counts, for each op, how many of its operands are this value."""

    __slots__ = ("type", "owner", "index", "users", "name")

    def __init__(self, type: Any, owner: Op | Block, index: int, name: str = ""):
        self.type: Any = type  # a TensorType nearly everywhere, TOKEN for ordering; Any keeps op code free of casts
        self.owner = owner
        self.index = index
        self.users: dict[Op, int] = {}
        self.name = name

    @property
    def op(self) -> Op | None:
        """The op that defines this value, ``None`` for a block argument."""
        return self.owner if isinstance(self.owner, Op) else None

    @property
    def shape(self) -> tuple[DimLike, ...]:
        """The tensor's shape."""
        shape: tuple[DimLike, ...] = self.type.shape
        return shape

    @property
    def dtype(self) -> Any:
        """The tensor's element type."""
        return self.type.dtype

    @property
    def dense(self) -> Dense | None:
        """The elements of a constant that the text itself holds; ``None`` for any other value."""
        op = self.op
        value = op.attrs.get("value") if op is not None and op.name == "neuron.constant" else None
        return value if isinstance(value, Dense) else None

    @property
    def loc(self) -> Loc:
        return self.owner.loc

    def replace_all_uses_with(self, new: Value) -> None:
        """Make every user of this value use ``new`` instead."""
        if new is self:
            return
        for op in list(self.users):
            op.replace_uses_of(self, new)

    def __repr__(self) -> str:
        return f"%{self.name or self.index}: {self.type}"


class _Slotted(type):
    """Gives every op class empty ``__slots__``, so that ops carry no instance dict."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
        namespace.setdefault("__slots__", ())
        return super().__new__(mcs, name, bases, namespace)


class Op(metaclass=_Slotted):
    """An operation: operands, results, attributes (only those that differ from their defaults), and regions.

    Subclasses are made by :func:`neuron_ir.opdef.op`; ``spec`` is the record of what the class declares.
    """

    __slots__ = ("operands", "results", "attrs", "regions", "loc", "block", "prev", "next")
    spec: ClassVar[OpSpec]
    name: ClassVar[str]

    def __init__(
        self,
        operands: Sequence[Value],
        result_types: Sequence[Type],
        attrs: dict[str, Any],
        regions: Sequence[Block] = (),
        loc: Loc = UNKNOWN_LOC,
    ):
        self.operands = list(operands)
        self.results = tuple(Value(t, self, i) for i, t in enumerate(result_types))
        self.attrs = attrs
        self.regions = tuple(regions)
        self.loc = loc
        self.block: Block | None = None
        self.prev: Op | None = None
        self.next: Op | None = None
        for v in operands:
            v.users[self] = v.users.get(self, 0) + 1
        for r in regions:
            r.parent = self

    @property
    def result(self) -> Value:
        """The only result."""
        (result,) = self.results
        return result

    def get(self, attr: str) -> Any:
        """An attribute's value, its default where it is not given."""
        value = self.attrs.get(attr)
        return self.spec.attrs[attr].default if value is None else value

    @property
    def own_attrs(self) -> dict[str, Any]:
        """The attributes as a builder takes them, without the note of absent operands, which it makes itself."""
        return {name: value for name, value in self.attrs.items() if name != "absent"}

    @property
    def all_attrs(self) -> dict[str, Any]:
        """The attributes as facets take them, defaults filled in."""
        return {a.name: self.attrs.get(a.name, a.default) for a in self.spec.own_attrs}

    @property
    def operand_groups(self) -> list[Any]:
        """The operands by declared field: a value, ``None`` for an absent one, a tuple for the variadic group."""
        return self.spec.split(self.operands, self.attrs.get("absent", ()))

    def error(self, code: str, message: str, *notes: str) -> IRError:
        """A diagnostic at this op, to be raised; it ends with the op's own text."""
        return fail(code, f"{self.name}: {message}", self.loc, (*notes, f"see current operation: {self!r}"))

    def set_operand(self, index: int, new: Value) -> None:
        """Replace one operand."""
        old = self.operands[index]
        if old is new:
            return
        if old.users[self] == 1:
            del old.users[self]
        else:
            old.users[self] -= 1
        self.operands[index] = new
        new.users[self] = new.users.get(self, 0) + 1

    def set_operands(self, new: Sequence[Value]) -> None:
        """Replace the whole operand list."""
        for v in self.operands:
            v.users.pop(self, None)
        self.operands = list(new)
        for v in new:
            v.users[self] = v.users.get(self, 0) + 1

    def replace_uses_of(self, old: Value, new: Value) -> None:
        """Replace every operand that is ``old``."""
        for i, v in enumerate(self.operands):
            if v is old:
                self.set_operand(i, new)

    def replace_with(self, values: Sequence[Value]) -> None:
        """Give this op's uses to ``values``, one per result, and erase it."""
        for old, new in zip(self.results, values, strict=True):
            old.replace_all_uses_with(new)
            new.name = new.name or old.name
        self.erase()

    def unlink(self) -> None:
        """Take the op out of its block; operands and results stay."""
        block, prev, next_ = self.block, self.prev, self.next
        if block is None:
            return
        if prev:
            prev.next = next_
        else:
            block.first = next_
        if next_:
            next_.prev = prev
        else:
            block.last = prev
        self.block = self.prev = self.next = None

    def erase(self) -> None:
        """Remove the op for good. Its results must be unused."""
        if any(r.users for r in self.results):
            raise ValueError(f"{self.name} cannot be erased: a result is still used")
        for region in self.regions:
            region.erase_all()
        self.set_operands(())
        self.unlink()

    def walk(self) -> Iterator[Op]:
        """This op and all ops inside its regions, in order; the current op may be erased."""
        yield self
        for region in self.regions:
            yield from region.walk()

    def __repr__(self) -> str:
        from neuron_ir.printer import print_op

        return print_op(self)


class Block:
    """A region's body: arguments and a linked list of ops. ``parent`` is the :class:`Op` or :class:`Func` that holds it."""

    __slots__ = ("args", "parent", "first", "last")

    def __init__(self, arg_types: Sequence[Type] = (), names: Sequence[str] = ()):
        self.args = tuple(Value(t, self, i, names[i] if i < len(names) else "") for i, t in enumerate(arg_types))
        self.parent: Op | Func | None = None
        self.first: Op | None = None
        self.last: Op | None = None

    @property
    def loc(self) -> Loc:
        return self.parent.loc if self.parent is not None else UNKNOWN_LOC

    @property
    def ops(self) -> Iterator[Op]:
        """The ops in order. The op just yielded may be erased or replaced while iterating."""
        op = self.first
        while op is not None:
            following = op.next
            yield op
            op = following

    def __len__(self) -> int:
        return sum(1 for _ in self.ops)

    def __bool__(self) -> bool:
        return True

    def append(self, op: Op) -> Op:
        """Put ``op`` at the end."""
        op.block, op.prev, op.next = self, self.last, None
        if self.last is not None:
            self.last.next = op
        else:
            self.first = op
        self.last = op
        return op

    def insert_before(self, op: Op, ref: Op | None) -> Op:
        """Put ``op`` before ``ref`` (at the end where ``ref`` is ``None``)."""
        if ref is None:
            return self.append(op)
        op.block, op.prev, op.next = self, ref.prev, ref
        if ref.prev is not None:
            ref.prev.next = op
        else:
            self.first = op
        ref.prev = op
        return op

    def add_arg(self, type: Type, name: str = "") -> Value:
        """Append an argument."""
        arg = Value(type, self, len(self.args), name)
        self.args = (*self.args, arg)
        return arg

    def remove_args(self, indices: Iterable[int]) -> None:
        """Drop the unused arguments at ``indices``."""
        dropped = set(indices)
        if any(self.args[i].users for i in dropped):
            raise ValueError("a block argument that is still used cannot be removed")
        self.args = tuple(a for i, a in enumerate(self.args) if i not in dropped)
        for i, a in enumerate(self.args):
            a.index = i

    @property
    def terminator(self) -> Op:
        """The last op."""
        assert self.last is not None, "empty block"
        return self.last

    @property
    def func(self) -> Func | None:
        """The function around this block."""
        parent = self.parent
        while isinstance(parent, Op):
            parent = parent.block.parent if parent.block else None
        return parent

    def erase_all(self) -> None:
        """Erase every op, last first."""
        op = self.last
        while op is not None:
            previous = op.prev
            op.erase()
            op = previous

    def walk(self) -> Iterator[Op]:
        """All ops, nested ones after their parent, in order."""
        for op in self.ops:
            yield op
            for region in op.regions:
                yield from region.walk()


class Func:
    """A function of a module: ``func @name[S in 1..64](%x: tensor<...> {...}) -> (tensor<...> {...}) {attrs} { body }``.

    ``body`` ends with ``func.return``. ``dims`` gives the range of each symbolic dimension. ``arg_attrs`` and ``result_attrs`` hold
    one dict per argument and result:

    * arguments: ``kind`` (``"input"`` by default, ``"weight"`` or ``"buffer"``), ``name`` (the user's name), ``weight`` (the key in
      ``Module.weights`` bound to it), ``donated``, ``sharding``;
    * results: ``updates`` (the index of the argument whose new value it is), ``name``, ``number`` (the caller gets a number),
      ``role``, ``sharding``.

    ``specs/language.md`` says what each means, and what ``attrs`` may hold.
    """

    __slots__ = ("name", "body", "result_types", "arg_attrs", "result_attrs", "dims", "attrs", "loc", "module")

    def __init__(self, name: str, arg_types: Sequence[Type] = (), result_types: Sequence[Type] = (), loc: Loc = UNKNOWN_LOC):
        self.name = name
        self.body = Block(arg_types)
        self.body.parent = self
        self.result_types = list(result_types)
        self.arg_attrs: list[dict[str, Any]] = [{} for _ in arg_types]
        self.result_attrs: list[dict[str, Any]] = [{} for _ in result_types]
        self.dims: dict[str, Range] = {}
        self.attrs: dict[str, Any] = {}
        self.loc = loc
        self.module: Module | None = None

    @property
    def args(self) -> tuple[Value, ...]:
        return self.body.args

    def add_arg(self, type: Type, hint: str = "", **attrs: Any) -> Value:
        """Append an argument with its attributes; ``hint`` is its name in the text."""
        self.arg_attrs.append(attrs)
        return self.body.add_arg(type, hint)

    def set_results(self, values: Sequence[Value], attrs: Sequence[dict[str, Any]] | None = None, loc: Loc = UNKNOWN_LOC) -> None:
        """Put (or replace) the ``func.return`` and declare the result types accordingly."""
        from neuron_ir.registry import op_class

        if self.body.last is not None and self.body.last.name == "func.return":
            self.body.last.erase()
        self.body.append(op_class("func.return")(values, (), {}, (), loc))
        self.result_types = [v.type for v in values]
        self.result_attrs = [dict(a) for a in attrs] if attrs is not None else [{} for _ in values]

    def walk(self) -> Iterator[Op]:
        """All ops, nested ones included, in order."""
        return self.body.walk()

    def __repr__(self) -> str:
        from neuron_ir.printer import print_func

        return print_func(self)


class Module:
    """A program: functions by name, attributes (``target``, ``source``, ...), and the weights that stand beside the text.

    ``weights`` maps a name to an array-like (numpy array or torch tensor, shared with the user's model, never copied).
    """

    __slots__ = ("name", "funcs", "attrs", "weights", "loc")

    def __init__(self, name: str = "main"):
        self.name = name
        self.funcs: dict[str, Func] = {}
        self.attrs: dict[str, Any] = {}
        self.weights: dict[str, Any] = {}
        self.loc: Loc = UNKNOWN_LOC

    def add(self, func: Func) -> Func:
        """Add a function; its name must be new."""
        if func.name in self.funcs:
            raise ValueError(f"the module already has a function @{func.name}")
        self.funcs[func.name] = func
        func.module = self
        return func

    @property
    def main(self) -> Func:
        """The entry function: ``@main``, or the first."""
        return self.funcs.get("main") or next(iter(self.funcs.values()))

    def walk(self) -> Iterator[Op]:
        """All ops of all functions."""
        for func in self.funcs.values():
            yield from func.walk()

    def clone(self) -> Module:
        """A copy that shares only types, attributes and weights."""
        with bulk():
            copy = Module(self.name)
            copy.attrs, copy.weights, copy.loc = dict(self.attrs), dict(self.weights), self.loc
            for func in self.funcs.values():
                copy.add(clone_func(func))
        return copy

    def text(self, locations: bool = False) -> str:
        """The module as Neuron IR text. ``locations``: with each op's ``loc(...)``."""
        from neuron_ir.printer import print_module

        return print_module(self, locations)

    def __reduce__(self) -> tuple[Any, ...]:
        """A module is pickled as its text and its weights; op classes are made at run time, so ops cannot be."""
        return _unpickled, (self.text(locations=True), self.weights)

    def save(self, path: str) -> None:
        """Write the text to ``path`` and the weights, if any, to the ``.safetensors`` file beside it; each whole or not at all."""
        from neuron_ir.weights import save

        save(self, path)

    def verify(self) -> None:
        """Check every rule of the IR; raises :class:`IRError` with all violations."""
        from neuron_ir.verify import verify

        verify(self)

    __str__ = text
    __repr__ = text


def _unpickled(text: str, weights: dict[str, Any]) -> Module:
    from neuron_ir.parser import parse

    module = parse(text)
    module.weights = weights
    return module


def clone_func(func: Func, sizes: Mapping[str, DimLike] | None = None) -> Func:
    """A copy of a function, with the symbols in its types and attributes replaced by ``sizes``."""
    copy = Func(func.name, [_sized(a.type, sizes) for a in func.args], [_sized(t, sizes) for t in func.result_types], func.loc)
    copy.arg_attrs, copy.result_attrs = [dict(a) for a in func.arg_attrs], [dict(a) for a in func.result_attrs]
    copy.dims = {name: bounds for name, bounds in func.dims.items() if name not in (sizes or ())}
    copy.attrs = dict(func.attrs)
    mapping: dict[Value, Value] = {}
    for old, new in zip(func.args, copy.args, strict=True):
        new.name = old.name
        mapping[old] = new
    clone_ops(func.body, copy.body, mapping, sizes)
    return copy


def clone_block(block: Block, mapping: dict[Value, Value], sizes: Mapping[str, DimLike] | None = None) -> Block:
    """A copy of a block. ``mapping`` maps values from outside (others stay as they are) and is extended with the block's own."""
    copy = Block([_sized(a.type, sizes) for a in block.args], [a.name for a in block.args])
    mapping.update(zip(block.args, copy.args, strict=True))
    for op in block.ops:  # as clone_ops, with one call less for each level of regions
        copy.append(clone_op(op, mapping, sizes))
    return copy


def clone_ops(source: Block, target: Block, mapping: dict[Value, Value], sizes: Mapping[str, DimLike] | None = None) -> None:
    """Append copies of all ops of ``source`` to ``target``."""
    for op in source.ops:
        target.append(clone_op(op, mapping, sizes))


def clone_op(op: Op, mapping: dict[Value, Value], sizes: Mapping[str, DimLike] | None = None) -> Op:
    """A copy of one op (with its regions), not yet in a block; its results are added to ``mapping``."""
    types = [r.type if sizes is None else _sized(r.type, sizes) for r in op.results]
    attrs = dict(op.attrs) if sizes is None else {name: _sized(value, sizes) for name, value in op.attrs.items()}
    regions = []
    for region in op.regions:  # no comprehension, which is a call of its own: the deepest regions must fit Python's stack
        regions.append(clone_block(region, mapping, sizes))
    copy = type(op)([mapping.get(v, v) for v in op.operands], types, attrs, regions, op.loc)
    for old, new in zip(op.results, copy.results, strict=True):
        new.name = old.name
        mapping[old] = new
    return copy


def _sized(item: Any, sizes: Mapping[str, DimLike] | None) -> Any:
    """A type or attribute with its symbols replaced."""
    if sizes is None:
        return item
    if isinstance(item, TensorType):
        return item.specialise(sizes)
    if isinstance(item, Dim):
        return evaluate(item, sizes)
    if isinstance(item, tuple):
        return tuple(_sized(part, sizes) for part in item)
    return item
