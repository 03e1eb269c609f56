"""Makes ops by name: ``b.softmax(x, axis=-1)`` appends ``neuron.softmax`` and gives its result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

from neuron_ir.attrs import Dense, same_attr
from neuron_ir.core import Block, Op, Value
from neuron_ir.diagnostics import fail, nearest
from neuron_ir.dtypes import DType
from neuron_ir.locations import UNKNOWN_LOC, Loc
from neuron_ir.opdef import REQUIRED, OpSpec, result_types
from neuron_ir.registry import all_ops, op_spec
from neuron_ir.types import TensorType, Type

__all__ = ["Builder", "create"]

BlockMaker = Callable[..., Any]


class Builder:
    """Appends ops to ``block``, or puts them before ``before``; ``loc`` is the location of everything it makes.

    Each op of the ``neuron`` dialect is a method (``b.add``; words that Python reserves end in ``_``: ``b.and_``); others
    go through :meth:`make`. Operands come first, in the order of the declaration (``None`` for an absent optional one, a
    variadic group spread out), then attributes by keyword. Keyword ``out`` gives the result type(s) of ops whose result type is
    a free choice. A region is given by keyword as a :class:`Block`, or as a function ``f(b, *args)`` that builds the body and
    returns the value(s) to yield. An op with one result gives that value, otherwise a tuple of values.
    """

    def __init__(self, block: Block, loc: Loc = UNKNOWN_LOC, before: Op | None = None):
        self.block = block
        self.loc = loc
        self.before = before

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return partial(self.make, _full_name(name))

    @contextlib.contextmanager
    def at(self, loc: Loc) -> Iterator[Builder]:
        """Use ``loc`` for the ops made inside the ``with`` block."""
        saved, self.loc = self.loc, loc
        try:
            yield self
        finally:
            self.loc = saved

    def make(self, op_name: str, /, *operands: Value | None, out: Type | Sequence[Type] | None = None, **fields: Any) -> Any:
        """Append the op of that full name; see the class."""
        op = self.insert(create(op_name, operands, out, fields, self.loc))
        return op.results[0] if len(op.results) == 1 else op.results

    def insert(self, op: Op) -> Op:
        """Put a finished op at the builder's place."""
        return self.block.insert_before(op, self.before)

    def const(self, value: Any, dtype: DType, shape: Sequence[int] = ()) -> Value:
        """A constant: ``value`` is a Python number spread over ``shape``, or an array whose shape then counts."""
        dense = Dense.of(value, dtype)
        if not dense.shape and shape:
            dense = Dense(dtype, tuple(shape), dense.data)
        return self.make("neuron.constant", value=dense, out=TensorType(dense.shape, dtype))  # type: ignore[no-any-return]


@cache
def _full_name(name: str) -> str:
    return "neuron." + name.rstrip("_")


def create(op_name: str, operands: Sequence[Value | None], out: Any, fields: dict[str, Any], loc: Loc = UNKNOWN_LOC) -> Op:
    """One op, not yet in a block. Attributes are checked and brought to canonical form, result types are inferred."""
    try:
        spec = op_spec(op_name)
    except KeyError:
        raise fail("op", f"there is no op {op_name}{nearest(op_name, [s.name for s in all_ops()])}", loc) from None
    attrs = _attributes(spec, fields, loc)
    given = [v for v in operands if v is not None]
    if len(given) != len(operands):
        _mark_absent(spec, operands, attrs)
    out_types: Sequence[Type] = () if out is None else (out,) if isinstance(out, Type) else out
    op = spec.cls(given, out_types, attrs, (), loc)
    if spec.regions:
        _build_regions(op, spec, fields, loc)
    if spec.infer is not None:
        inferred = result_types(op)
        op.results = tuple(Value(t, op, i) for i, t in enumerate(inferred or ()))
    return op


def _attributes(spec: OpSpec, fields: dict[str, Any], loc: Loc) -> dict[str, Any]:
    """The attributes among ``fields``, coerced and checked, without those that equal their default."""
    attrs: dict[str, Any] = {}
    for name, value in fields.items():
        declared = spec.attrs.get(name)
        if declared is None:
            if any(r.name == name for r in spec.regions):
                continue
            raise fail("attr", f"{spec.name} has no attribute {name}{nearest(name, spec.attrs)}", loc)
        if value is None:
            continue
        value = declared.kind.coerce(value)
        problem = declared.problem(value)
        if problem:
            raise fail("attr", f"{spec.name}: {problem}", loc)
        if not same_attr(value, declared.default):
            attrs[name] = value
    for name, declared in spec.attrs.items():
        if declared.default is REQUIRED and name not in attrs:
            raise fail("attr", f"{spec.name} needs the attribute {name} ({declared.kind.name})", loc)
    return attrs


def _mark_absent(spec: OpSpec, operands: Sequence[Value | None], attrs: dict[str, Any]) -> None:
    last = max((i for i, v in enumerate(operands) if v is not None), default=-1)
    absent = tuple(i for i, v in enumerate(operands[:last]) if v is None)
    if absent:
        attrs["absent"] = absent


def _build_regions(op: Op, spec: OpSpec, fields: dict[str, Any], loc: Loc) -> None:
    blocks: list[Block] = []
    for declared in spec.regions:
        given = fields.get(declared.name)
        if given is None and declared.optional:
            continue
        if given is None:
            raise fail("region", f"{spec.name} needs the region {declared.name}", loc)
        for item in given if declared.variadic else (given,):
            blocks.append(item if isinstance(item, Block) else build_block(item, declared.args(op) if declared.args else (), loc))
    for block in blocks:
        block.parent = op
    op.regions = tuple(blocks)


def build_block(maker: BlockMaker, arg_types: Sequence[Type], loc: Loc = UNKNOWN_LOC) -> Block:
    """A block with arguments of the given types whose body ``maker(b, *args)`` builds; what it returns is yielded."""
    block = Block(arg_types)
    b = Builder(block, loc)
    values = maker(b, *block.args)
    if block.last is None or "terminator" not in block.last.spec.traits:
        b.make("neuron.yield", *(values if isinstance(values, tuple | list) else (values,)))
    return block
