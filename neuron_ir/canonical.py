"""A normal form of values that is equal for graphs which compute the same up to how they move elements around.

Two graphs have the same form exactly when they apply the same ops to the same leaves, where these do not count: transposes,
broadcasts, reshapes that split or merge dims, dims of size 1, the order of operands of commutative ops, whether a composite is
whole or expanded, and a few other spellings (``x * x`` for a square, division by a number for a product with its reciprocal;
see ``_same_as``).

A form is a *core*, numbered in a table shared by the graphs that are compared, and for each dim of the value the *pieces* of core
axes that it runs over, outermost first. A piece ``(axis, size, inner)`` is the part of an axis that advances by ``inner``
elements ``size`` times; axis -1 is a repetition.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from neuron_ir.core import Op, Value
from neuron_ir.meaning import expansion
from neuron_ir.types import TensorType

__all__ = ["Canonical", "NoForm"]

Piece = tuple[int, int, int]
_MOST_OPS = 256
_SWAPPED = {"LE": "GE", "LT": "GT"}
_REDUCERS = frozenset(f"neuron.reduce_{n}" for n in ("sum", "max", "min", "prod", "and", "or", "xor"))


class NoForm(Exception):
    """The value has no form within the limits: a shape is not static, or the graph is too large."""


class Form(NamedTuple):
    core: int
    dims: tuple[tuple[Piece, ...], ...]


class Canonical:
    """Forms of values above ``leaves`` (which become cores of that number). ``table`` is shared by what is compared."""

    def __init__(self, table: dict[Hashable, int], leaves: Mapping[Value, int]):
        self.table = table
        self.forms: dict[Value, Form] = {v: self.whole(("leaf", n), shape_of(v)) for v, n in leaves.items()}
        self.seen: dict[Value, None] = {}  # values above the leaves, in the order in which they were finished
        self.budget = _MOST_OPS

    def core(self, key: Hashable) -> int:
        return self.table.setdefault(key, len(self.table))

    def whole(self, key: Hashable, shape: Sequence[int]) -> Form:
        """A new core whose axes are the dims of ``shape`` that are not 1."""
        dims, axis = [], 0
        for d in shape:
            dims.append(((axis, d, 1),) if d != 1 else ())
            axis += d != 1
        return Form(self.core(key), tuple(dims))

    def key(self, v: Value) -> Form:
        """The form of ``v``."""
        found = self.forms.get(v)
        if found is not None:
            return found
        op = v.op
        self.budget -= 1
        if op is None or self.budget < 0 or not isinstance(v.type, TensorType):
            raise NoForm
        found = self.forms[v] = self.of_op(op, v)
        self.seen[v] = None
        return found

    def of_op(self, op: Op, v: Value) -> Form:
        shape = shape_of(v)
        if op.name == "neuron.constant":
            dense = v.dense
            if dense is None:
                raise NoForm
            if dense.is_splat:
                return Form(self.core(("splat", dense.dtype, dense.data)), repeated(shape))
            return self.whole(("dense", dense.dtype, dense.data, tuple(d for d in shape if d != 1)), shape)
        if op.name == "neuron.iota":
            axis = op.get("iota_dimension")
            core = self.core(("iota", v.dtype.kind if v.dtype.bits >= 32 else v.dtype, shape[axis]))
            return Form(core, tuple(((0, d, 1),) if i == axis else piece_of_repeat(d) for i, d in enumerate(shape)))
        view = _VIEWS.get(op.name)
        if view is not None:
            return Form((x := self.key(op.operands[0])).core, view(op, x.dims, shape_of(op.operands[0]), shape))
        if op.name == "neuron.dot_general":
            return self.product(op)
        if op.spec.expand is not None and len(op.results) >= 1:
            return self.expanded(op, v)
        if op.name in _REDUCERS:
            return self.reduction(op)
        if "elementwise" in op.spec.traits and not op.regions:
            return self.elementwise(op)
        if op.regions or op.spec.traits & {"effect", "random", "collective", "control"}:
            raise NoForm
        key = (op.name, v.index, attributes(op), v.type, tuple([self.key(x) for x in op.operands]))
        return self.whole(key, shape)

    def expanded(self, op: Op, v: Value) -> Form:
        """The form of a composite is that of what it is made of."""
        body = expansion(op)
        inner = Canonical(self.table, {})
        inner.forms = {a: self.key(x) for a, x in zip(body.args, op.operands, strict=True)}
        inner.budget = self.budget
        return inner.key(body.terminator.operands[v.index])

    def elementwise(self, op: Op) -> Form:
        operands = [self.key(x) for x in op.operands]
        name, attrs = op.name, attributes(op)
        known = _same_as(self, op, operands)
        if known is not None:
            return known
        if name == "neuron.compare":
            fields = {k: x for k, x in op.attrs.items() if k != "compare_type"}
            direction = op.get("direction")
            if direction in _SWAPPED:
                operands.reverse()
                direction = _SWAPPED[direction]
            attrs = (("direction", direction), *((k, x) for k, x in fields.items() if k != "direction"))
        return self.apply(name, attrs, operands, shape_of(op.result), op.result.dtype, "commutative" in op.spec.traits)

    def apply(
        self, name: str, attrs: Hashable, operands: Sequence[Form], shape: Sequence[int], dtype: Any, swaps: bool = False
    ) -> Form:
        """An elementwise op of forms of one shape."""
        if swaps:
            operands = sorted(operands, key=lambda f: (f.core, f.dims))
        where: list[int] = []
        rows: list[list[Piece]] = []
        for i in range(len(shape)):
            parts = refine([f.dims[i] for f in operands], shape[i])
            rows += parts
            where += [i] * len(parts)
        axes, pieces = fuse_rows(rows)
        key = (name, attrs, dtype, tuple(f.core for f in operands), tuple(axes))
        return Form(self.core(key), gather(where, pieces, len(shape)))

    def reduction(self, op: Op) -> Form:
        """A reduction is one over pieces of the operand's core; what is left of the core are the axes of the new one."""
        x, v = self.key(op.operands[0]), op.result
        rank = len(x.dims)
        axes = {a % rank for a in op.get("axes")}
        gone = tuple(sorted(p for i in axes for p in x.dims[i]))
        where = [i for i in range(rank) if i not in axes for _ in x.dims[i]]
        rows = [[p] for i in range(rank) if i not in axes for p in x.dims[i]]
        left, pieces = fuse_rows(rows)
        fields = tuple(f for f in attributes(op) if f[0] not in ("axes", "keepdims"))
        core = self.core((op.name, fields, v.dtype, x.core, fuse_run(gone), tuple(left)))
        dims = gather(where, pieces, rank)
        return Form(core, tuple(d for i, d in enumerate(dims) if op.get("keepdims") or i not in axes))

    def product(self, op: Op) -> Form:
        """A ``dot_general`` is a set of pairs of pieces, summed over or kept."""
        x, y = (self.key(v) for v in op.operands)
        batch = list(zip(op.get("lhs_batch"), op.get("rhs_batch"), strict=True))
        contract = list(zip(op.get("lhs_contract"), op.get("rhs_contract"), strict=True))
        used = [{i for i, _ in batch + contract}, {j for _, j in batch + contract}]
        left = [(i, None) for i in range(len(x.dims)) if i not in used[0]]
        right = [(None, j) for j in range(len(y.dims)) if j not in used[1]]
        sizes = (shape_of(op.operands[0]), shape_of(op.operands[1]))
        kept: list[list[Piece]] = []
        where: list[int] = []
        for n, (i, j) in enumerate([*batch, *left, *right]):
            size = sizes[0][i] if i is not None else sizes[1][j]
            nothing = piece_of_repeat(size)
            parts = refine([x.dims[i] if i is not None else nothing, y.dims[j] if j is not None else nothing], size)
            kept += parts
            where += [n] * len(parts)
        summed = [part for i, j in contract for part in refine([x.dims[i], y.dims[j]], sizes[0][i])]
        swap = (y.core, y.dims) < (x.core, x.dims)
        if swap:
            x, y = y, x
            kept, summed = [p[::-1] for p in kept], [p[::-1] for p in summed]
        axes, pieces = fuse_rows(kept)
        sums, _ = fuse_rows(summed)
        acc = op.get("acc") or op.result.dtype
        core = self.core(("dot", acc, op.result.dtype, x.core, y.core, tuple(axes), tuple(sums)))
        return Form(core, gather(where, pieces, len(batch) + len(left) + len(right)))


# --- pieces -----------------------------------------------------------------------------------------------------------


def shape_of(v: Value) -> tuple[int, ...]:
    """The shape in numbers."""
    if not isinstance(v.type, TensorType) or not v.type.is_static or 0 in v.shape:
        raise NoForm
    return v.type.shape  # type: ignore[return-value]


def piece_of_repeat(size: int) -> tuple[Piece, ...]:
    """A dim of equal elements."""
    return ((-1, size, 1),) if size != 1 else ()


def repeated(shape: Sequence[int]) -> tuple[tuple[Piece, ...], ...]:
    return tuple(map(piece_of_repeat, shape))


def refine(dims: Sequence[tuple[Piece, ...]], size: int) -> list[list[Piece]]:
    """One dim of several values cut where any of them is cut: for each cut, outermost first, the piece of each value."""
    rests = [list(d) if d else list(piece_of_repeat(size)) for d in dims]
    rows: list[list[Piece]] = []
    while any(rests):
        least = min(r[-1][1] for r in rests)
        row = []
        for r in rests:
            axis, n, inner = r.pop()
            if n % least:
                raise NoForm
            if n != least:
                r.append((axis, n // least, inner * least if axis >= 0 else 1))
            row.append((axis, least, inner))
        rows.append(row)
    return rows[::-1]


def fuse_rows(rows: Sequence[list[Piece]]) -> tuple[list[tuple[Piece, ...]], list[Piece | None]]:
    """New axes for rows of pieces, in an order that is that of the pieces themselves; neighbours that run on become one axis.

    Gives each axis (as the pieces it stands for), and for each row its piece of the new axes (``None``: equal elements).
    """
    live = [n for n, row in enumerate(rows) if any(p[0] >= 0 for p in row)]
    order = sorted(live, key=lambda n: [(p[0] < 0, p[0], -p[2]) for p in rows[n]])
    axes: list[tuple[Piece, ...]] = []
    members: list[list[int]] = []
    for n in order:
        row = rows[n]
        if axes and all(_runs_on(a, p) for a, p in zip(axes[-1], row, strict=True)):
            axes[-1] = tuple((a[0], a[1] * p[1], p[2]) for a, p in zip(axes[-1], row, strict=True))
            members[-1].append(n)
        else:
            axes.append(tuple(row))
            members.append([n])
    pieces: list[Piece | None] = [None] * len(rows)
    for axis, group in enumerate(members):
        inner = 1
        for n in reversed(group):
            pieces[n] = (axis, rows[n][0][1], inner)
            inner *= rows[n][0][1]
    for n, row in enumerate(rows):
        if pieces[n] is None:
            pieces[n] = (-1, row[0][1], 1)
    return axes, pieces


def _runs_on(outer: Piece, inner: Piece) -> bool:
    if outer[0] < 0 or inner[0] < 0:
        return outer[0] == inner[0]
    return outer[0] == inner[0] and outer[2] == inner[1] * inner[2]


def fuse_run(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Pieces that are summed over, neighbours joined."""
    axes, _ = fuse_rows([[p] for p in pieces])
    repeats = math.prod(p[1] for p in pieces if p[0] < 0)
    return (*(a[0] for a in axes), (-1, repeats, 1))


def gather(where: Sequence[int], pieces: Sequence[Piece | None], rank: int) -> tuple[tuple[Piece, ...], ...]:
    """The pieces of each dim, neighbours joined."""
    dims: list[list[Piece]] = [[] for _ in range(rank)]
    for i, piece in zip(where, pieces, strict=True):
        if piece is not None:
            dims[i].append(piece)
    return tuple(joined(d) for d in dims)


def joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Pieces of one dim with neighbours that run on joined and repetitions without effect dropped."""
    found: list[Piece] = []
    for p in pieces:
        if p[1] == 1:
            continue
        if found and _runs_on(found[-1], p):
            found[-1] = (p[0], found[-1][1] * p[1], p[2])
        else:
            found.append(p)
    return tuple(found)


def _reshape(op: Op, dims: tuple[tuple[Piece, ...], ...], old: Sequence[int], new: Sequence[int]) -> tuple[tuple[Piece, ...], ...]:
    """Take pieces from the end, and cut them where a new dim ends inside of one."""
    flat = [p for d in dims for p in d]
    result: list[tuple[Piece, ...]] = []
    for size in reversed(new):
        parts: list[Piece] = []
        left = size
        while left > 1:
            axis, n, inner = flat.pop()
            if n <= left:
                if left % n:
                    raise NoForm
                parts.append((axis, n, inner))
                left //= n
            else:
                if n % left:
                    raise NoForm
                flat.append((axis, n // left, inner * left if axis >= 0 else 1))
                parts.append((axis, left, inner))
                left = 1
        result.append(joined(parts[::-1]))
    return tuple(result[::-1])


def _broadcast(
    op: Op, dims: tuple[tuple[Piece, ...], ...], old: Sequence[int], new: Sequence[int]
) -> tuple[tuple[Piece, ...], ...]:
    made = list(repeated(new))
    for i, to in enumerate(op.get("broadcast_dimensions")):
        if old[i] != 1:
            made[to] = dims[i]
    return tuple(made)


def _transpose(
    op: Op, dims: tuple[tuple[Piece, ...], ...], old: Sequence[int], new: Sequence[int]
) -> tuple[tuple[Piece, ...], ...]:
    return tuple(dims[i] for i in op.get("permutation"))


_VIEWS = {"neuron.reshape": _reshape, "neuron.broadcast_in_dim": _broadcast, "neuron.transpose": _transpose}


def attributes(op: Op) -> tuple[tuple[str, Hashable], ...]:
    """The attributes as a key: equal exactly for equal bits."""
    fields = list(op.attrs.items())
    if op.name == "neuron.slice":  # strides of 1 may be written or not
        fields = [(name, value) for name, value in fields if name != "strides" or any(n != 1 for n in value)]
    return tuple(sorted((name, repr(value)) for name, value in fields))


# --- other spellings --------------------------------------------------------------------------------------------------


def _splat_of(v: Value) -> Any:
    """The number that every element of ``v`` equals, seen through views; ``None`` otherwise."""
    while v.op is not None and v.op.name in _VIEWS:
        v = v.op.operands[0]
    dense = v.dense
    return dense.item if dense is not None and dense.is_splat and dense.array.size else None


def _same_as(c: Canonical, op: Op, forms: list[Form]) -> Form | None:
    """The form of the other spelling of the same values, where ``op`` is a spelling that has one."""
    name, shape, dtype = op.name.removeprefix("neuron."), shape_of(op.results[0]), op.results[0].dtype

    def build(what: str, *operands: Form) -> Form:
        return c.apply(f"neuron.{what}", (), operands, shape, dtype, what in ("add", "multiply"))

    numbers = [_splat_of(v) for v in op.operands]
    if name == "square" or (name == "power" and numbers[1] == 2):
        return build("multiply", forms[0], forms[0])
    if name == "power" and numbers[1] == 3:
        return build("multiply", build("multiply", forms[0], forms[0]), forms[0])
    if name == "maximum" and -math.inf in numbers:
        return forms[1 - numbers.index(-math.inf)]
    if name == "and" and True in numbers and dtype.kind == "bool":
        return forms[1 - numbers.index(True)]
    if name == "select" and numbers[1] is True and numbers[2] is False:
        return forms[0]
    if name == "add" and dtype.is_integer and 0 in numbers:
        return forms[1 - numbers.index(0)]
    if name == "cast" and (op.operands[0].dtype is dtype):
        return forms[0]
    if name == "divide" and dtype.is_float and numbers[1]:
        number = dtype.numpy.type(1) / dtype.numpy.type(numbers[1])
        return build("multiply", forms[0], Form(c.core(("splat", dtype, number.tobytes())), repeated(shape)))
    return None
