"""Fusion: ops that one kernel runs, with the values between them on chip."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from neuron_ir.builder import create
from neuron_ir.core import Block, Func, Op, Value, clone_op
from neuron_ir.diagnostics import fail
from neuron_ir.grouping import Groups
from neuron_ir.locations import fuse_locations
from neuron_ir.passes.cse import op_key
from neuron_ir.passmanager import Context, FuncPass, option
from neuron_ir.target import Target, target
from neuron_ir.tiling import TILE_BYTES, least_bytes, sbuf_peak
from neuron_ir.traffic import FREE, Sizes
from neuron_ir.types import TensorType

__all__ = ["Fuse", "KINDS"]

KINDS = ("elementwise", "reduction", "matmul", "convolution", "attention", "update")

# Ops without arithmetic that each reader can do for itself while it loads: a copy of them costs nothing.
_VIEWS = frozenset(f"neuron.{n}" for n in ("reshape", "transpose", "broadcast_in_dim", "slice", "reverse", "iota"))
# Work that runs by itself: whole-array algorithms, and what draws or exchanges in order.
_ALONE = frozenset(
    f"neuron.{n}"
    for n in """
    argsort sort sort_by_key top_k cholesky eig eigh fft householder_product lu qr schur svd triangular_solve custom_call
    optimization_barrier create_token after_all fused get_dimension_size dim_size constant map
    """.split()
)
_ROUNDS = 3


@dataclass(frozen=True)
class Fuse(FuncPass):
    """Group ops into `neuron.fused` regions, each of which runs as one kernel, so that fewer bytes go to HBM and back.

    Groups grow along the edges that save most bytes first, then to kernels that read the same value, then across parameters
    whose updates depend on nothing else. A group never depends on itself by way of another, nothing is computed twice but
    constants of one number and views, and what it keeps on chip fits the target's SBUF, what it sums up over all rows the banks
    of PSUM. Attention is fused as a row of queries at a time, so that no score matrix reaches HBM. The same module always gives
    the same groups. Ops are not changed, so every bit of every result stays.
    """

    max_ops: int = option(1024, "the most ops in one group, constants and reshapes not counted")
    kinds: tuple[str, ...] = option((), f"kinds of groups to make (default: all): {', '.join(KINDS)}")
    max_products: int = option(24, "the most matrix products and convolutions in one group")
    capacity: int = option(0, "bytes of SBUF per partition that a group may use (default: the target's)")
    target: str = option("", "whose SBUF and PSUM count: trn1, trn2, trn3 (default: the module's target, else trn2)")

    def __post_init__(self) -> None:
        for name, value in (("max-ops", self.max_ops), ("max-products", self.max_products)):
            if value < 1:
                raise fail("pass", f"pass {self.name}: {name} = {value}, but a group has at least 1 op")
        if self.capacity < 0:
            raise fail("pass", f"pass {self.name}: capacity = {self.capacity} is negative")
        for kind in self.kinds:
            if kind not in KINDS:
                raise fail("pass", f"pass {self.name}: there is no kind {kind!r}; known: {', '.join(KINDS)}")
        if self.target:
            target(self.target)

    def run_func(self, func: Func, ctx: Context) -> None:
        on = self.chosen_target(func)
        blocks = [func.body]
        blocks += [region for op in func.walk() if "control" in op.spec.traits for region in op.regions]
        for block in blocks:
            if not _isolated(block):
                _Fusion(block, self, on, ctx).run()

    def chosen_target(self, func: Func) -> Target:
        """The target whose memories count: the option, else the module's, where that has limits."""
        name = self.target or (func.module.attrs.get("target") if func.module is not None else "") or "trn2"
        return target("trn2" if name == "reference" and not self.target else name)


def _isolated(block: Block) -> bool:
    """Whether the block lies in a region of an op that is no control flow, and so is part of that op's meaning."""
    parent = block.parent
    while isinstance(parent, Op):
        if "control" not in parent.spec.traits:
            return True
        parent = parent.block.parent if parent.block is not None else None
    return False


def _may_join(op: Op) -> bool:
    """Whether an op may be part of a group."""
    if op.name in _ALONE or op.spec.traits & {"effect", "collective", "control", "terminator"} or op.name == "func.call":
        return False
    return all(isinstance(v.type, TensorType) for v in (*op.operands, *op.results)) and bool(op.results)


def _splat(value: Value) -> Op | None:
    """The constant of one repeated number that defines ``value``."""
    return value.op if value.dense is not None and value.dense.is_splat else None


class _Fusion:
    """Finds and makes the groups of one block."""

    def __init__(self, block: Block, options: Fuse, on: Target, ctx: Context):
        self.block, self.options, self.on, self.ctx = block, options, on, ctx
        self.sizes = Sizes(block.func)
        self.kinds = set(options.kinds or KINDS)
        self.capacity = (options.capacity or on.sbuf_bytes) * on.partitions
        self.origin: dict[Op, Op] = {}
        self.copy_views()
        self.groups = Groups(block)
        self.joins = [_may_join(op) for op in self.groups.ops]
        self.count = [int(op.name not in FREE) for op in self.groups.ops]
        self.products = [int("matmul" in op.spec.traits) for op in self.groups.ops]
        self.batched = [int(_is_batched(op)) for op in self.groups.ops]
        # Upper bounds of what a group keeps on chip: all its values at once, and two tiles of each operand and result.
        self.volume = [sum(self.sizes.bytes(r.type) for r in op.results) for op in self.groups.ops]
        self.tiles = [sum(map(self.two_tiles, {*op.operands, *op.results})) for op in self.groups.ops]
        self.traits = [_traits(op) for op in self.groups.ops]

    def run(self) -> None:
        self.check_capacity()
        self.join_views()
        edges = self.edges()
        for _ in range(_ROUNDS):
            edges = self.grow(edges)
        for *_, reason in edges:
            self.ctx.decline(str(reason))
        self.grow(self.siblings())
        if "update" in self.kinds:
            self.join_updates()
        self.make()

    def check_capacity(self) -> None:
        """Refuse a capacity in which an op cannot run even alone."""
        there = self.capacity / self.on.partitions
        for op, joins in zip(self.groups.ops, self.joins, strict=True):
            if joins and op.name not in FREE and (needed := least_bytes(op, self.on)) > there:
                raise op.error("capacity", f"one tile of it takes {needed} bytes of SBUF per partition, and there are {int(there)}")

    # --- views ---

    def copy_views(self) -> None:
        """Give each reader of a view a copy of its own, so that a view never keeps two kernels from parting."""
        for op in reversed(list(self.block.ops)):
            if op.name not in _VIEWS or not isinstance(op.result.type, TensorType):
                continue
            users = [u for u in op.result.users if u.block is self.block and _may_join(u)]
            for user in users[1:] if len(users) == len(op.result.users) else users:
                copy = clone_op(op, {})
                self.origin[copy] = self.origin.get(op, op)
                self.block.insert_before(copy, user)
                user.replace_uses_of(op.result, copy.result)

    def join_views(self) -> None:
        """Put each view into the group of its one reader; a reshape without one stays outside, where it costs nothing."""
        groups = self.groups
        for i in reversed(range(len(groups.ops))):
            op = groups.ops[i]
            if op.name not in _VIEWS:
                continue
            readers = {groups.top(u) for u in op.result.users}
            reader = groups.at.get(next(iter(readers))) if len(readers) == 1 else None
            if reader is not None and self.joins[reader]:
                self.unite(i, groups.find(reader))
            elif op.name == "neuron.reshape":
                self.joins[i] = False

    # --- growing ---

    def edges(self) -> list[tuple[int, int, int, int, int, str]]:
        """From producers to readers, those that save most bytes first: a value with one reader is neither written nor read."""
        groups, found = self.groups, []
        for i, op in enumerate(groups.ops):
            for result in op.results if self.joins[i] else ():
                readers = {groups.at.get(top, -1) for top in map(groups.top, result.users)}
                size = self.sizes.bytes(result.type) * (2 if len(readers) == 1 else 1)
                found += [(-size, j - i, i, i, j, "") for j in readers if j >= 0 and self.joins[j]]
        return sorted(found)

    def siblings(self) -> list[tuple[int, int, int, int, int, str]]:
        """Pairs of readers of one value."""
        groups, found = self.groups, []
        values = [*self.block.args, *(r for op in groups.ops for r in op.results)]
        for value in values:
            if len(value.users) < 2 or not isinstance(value.type, TensorType):
                continue
            readers = sorted({groups.at.get(top, -1) for top in map(groups.top, value.users)})
            readers = [j for j in readers if j >= 0 and self.joins[j]]
            size = self.sizes.bytes(value.type)
            found += [(-size, b - a, a, a, b, "") for a, b in pairwise(readers)]
        return sorted(found)

    def grow(self, edges: list[tuple[int, int, int, int, int, str]]) -> list[tuple[int, int, int, int, int, str]]:
        """Merge along ``edges`` where allowed; gives those left, each with the reason."""
        left = []
        for *key, i, j, _ in edges:
            a, b = self.groups.find(i), self.groups.find(j)
            if a == b:
                continue
            reason = self.obstacle(a, b)
            if reason:
                left.append((*key, i, j, reason))
            else:
                self.unite(a, b)
        return left  # type: ignore[return-value]

    def obstacle(self, a: int, b: int) -> str:
        """Why two groups cannot be one, or nothing."""
        if self.count[a] + self.count[b] > self.options.max_ops:
            return f"a group would have more than {self.options.max_ops} ops"
        if self.products[a] + self.products[b] > self.options.max_products:
            return f"a group would have more than {self.options.max_products} products"
        kind = _kind(self.traits[a] | self.traits[b], self.batched[a] + self.batched[b])
        if kind not in self.kinds:
            return f"groups of kind {kind} are not asked for"
        if not self.groups.may_merge(a, b):
            return "another group stands between"
        if not self.fits(a, b):
            return "a group would not fit the capacity of SBUF"
        return ""

    def fits(self, a: int, b: int) -> bool:
        """Whether the united group fits on chip."""
        if self.volume[a] + self.volume[b] + self.tiles[a] + self.tiles[b] <= self.capacity:
            return True
        ops = [self.groups.ops[i] for i in sorted([*self.groups.members[a], *self.groups.members[b]])]
        inputs, outputs = self.boundary(ops)
        return sbuf_peak(ops, inputs, outputs, self.on, self.sizes) <= self.capacity

    def two_tiles(self, value: Value) -> int:
        """Bytes of SBUF through which an input or output streams."""
        return min(self.sizes.bytes(value.type), 2 * TILE_BYTES * self.on.partitions)

    def boundary(self, ops: list[Op]) -> tuple[list[Value], list[Value]]:
        """What comes into a group and what leaves it, in the order of the program."""
        inside = set(ops)
        inputs = {v: None for op in ops for v in op.operands if v.op not in inside and _splat(v) is None}
        outputs = [r for op in ops for r in op.results if any(u not in inside for u in r.users)]
        return list(inputs), outputs

    def unite(self, a: int, b: int) -> int:
        c = self.groups.merge(a, b)
        for table in (self.count, self.products, self.batched, self.volume, self.tiles):
            table[c] = table[a] + table[b]
        self.traits[c] = self.traits[a] | self.traits[b]
        return c

    def join_updates(self) -> None:
        """Unite elementwise groups of which nothing but results of the function come out: one optimiser step, many parameters."""
        groups, last = self.groups, -1
        for i in range(len(groups.ops)):
            group = groups.find(i)
            if group != i or not self.joins[i] or not self.count[i] or groups.next_groups(group):
                continue
            if self.traits[group]:
                continue
            if last >= 0 and self.count[last] + self.count[group] <= self.options.max_ops and self.fits(last, group):
                group = self.unite(last, group)
            last = group

    # --- making ---

    def make(self) -> None:
        """Put the ops in an order in which each group stands together, and make the regions."""
        order = [(g, self.groups.group_ops(g)) for g in self.groups.in_order()]
        terminator = self.block.terminator
        left: dict[tuple[Op, tuple[Value, ...]], Op] = {}
        for group, ops in order:
            for op in ops:
                op.unlink()
            if self.count[group] > 1:
                self.block.insert_before(make_fused(ops, _kind(self.traits[group], self.batched[group])), terminator)
                self.ctx.count("groups made")
                self.ctx.count("ops fused", self.count[group])
                continue
            for op in ops:
                first = left.setdefault((self.origin.get(op, op), tuple(op.operands)), op)
                if first is op:
                    self.block.insert_before(op, terminator)
                else:
                    op.replace_with(first.results)
        for op in [op for op in self.block.ops if op.name == "neuron.constant" and not op.result.users]:
            op.erase()


def _is_batched(op: Op) -> bool:
    return op.name in ("neuron.matmul", "neuron.dot_general") and op.result.type.rank > 2


def _traits(op: Op) -> frozenset[str]:
    """What decides the kind of a group that holds ``op``."""
    if op.name in ("neuron.conv", "neuron.convolution"):
        return frozenset(["convolution"])
    if op.name == "neuron.attention":
        return frozenset(["attention"])
    return op.spec.traits & {"matmul", "reduction"}


def _kind(traits: frozenset[str], batched: int) -> str:
    """The kind of a group, by its heaviest ops. Two products with batches and a reduction between are attention."""
    if "attention" in traits or (batched > 1 and "reduction" in traits):
        return "attention"
    return next((k for k in ("convolution", "matmul", "reduction") if k in traits), "elementwise")


def make_fused(ops: list[Op], kind: str) -> Op:
    """A ``neuron.fused`` of ops that stand in no block, in order; their uses elsewhere become those of its results."""
    inside = set(ops)
    inputs: dict[Value, None] = {}
    constants: dict[Value, Op] = {}
    for op in ops:
        for v in op.operands:
            splat = _splat(v)
            if splat is not None and v.op not in inside:
                constants[v] = splat
            elif v.op not in inside:
                inputs[v] = None
    outputs = [r for op in ops for r in op.results if any(u not in inside for u in r.users)]
    body = Block([v.type for v in inputs], [v.name for v in inputs])
    mapping: dict[Value, Value] = dict(zip(inputs, body.args, strict=True))
    for constant in constants.values():
        body.append(clone_op(constant, mapping))
    views: dict[object, Op] = {}
    for op in ops:
        for i, v in enumerate(op.operands):
            op.set_operand(i, mapping.get(v, v))
        first = views.setdefault(op_key(op), op) if op.name in _VIEWS else op
        if first is op:
            body.append(op)
        else:
            outputs = [first.result if v is op.result else v for v in outputs]
            for user in [u for u in op.result.users if u not in inside]:
                user.replace_uses_of(op.result, first.result)
            op.replace_with(first.results)
    outputs = list(dict.fromkeys(outputs))
    body.append(create("neuron.yield", outputs, None, {}, ops[-1].loc))
    fused = create("neuron.fused", list(inputs), None, {"kind": kind, "body": body}, fuse_locations([op.loc for op in ops]))
    for old, new in zip(outputs, fused.results, strict=True):
        new.name = old.name
        for user in [u for u in old.users if u not in inside and u is not body.terminator]:
            user.replace_uses_of(old, new)
    return fused
