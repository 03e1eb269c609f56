"""Whether a kernel's working set fits on chip: the bytes of SBUF that a group of ops needs when it runs as one.

A kernel runs in one of two ways, whichever needs less:

* *by rows*: the leading dims of its values are cut into tiles of 128 rows, one row per partition, and each tile goes through all
  ops; what does not depend on the rows (weights, the keys of one head) stays on chip;
* *whole*: each value inside of the group is on chip at once while it lives, and inputs stream past.

One op alone can always be cut further; :func:`least_bytes` is the smallest tile it works on.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from neuron_ir.core import Op, Value
from neuron_ir.target import Target
from neuron_ir.traffic import Sizes

__all__ = ["TILE_BYTES", "least_bytes", "sbuf_peak"]

TILE_BYTES = 2048  # bytes per partition of the tiles in which an input or output streams past; longer ones fill no DMA better (S5)
_REDUCERS = frozenset("reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor".split())
_ALONG_AXIS = frozenset("softmax log_softmax cumsum cumprod cummax cummin cumlogsumexp argmax argmin glu".split())
# Ops that a load does by itself, when all that they read comes from HBM.
_LOADS = frozenset(
    f"neuron.{n}" for n in ("reshape", "transpose", "relayout", "broadcast_in_dim", "slice", "reverse", "concatenate")
)
_MAX_SPLITS = 4


def sbuf_peak(ops: Sequence[Op], inputs: Sequence[Value], outputs: Collection[Value], on: Target, sizes: Sizes) -> float:
    """Bytes of SBUF, over all partitions, that the ops (in order) need as one kernel."""
    whole = _live_peak(ops, inputs, outputs, on, sizes)
    splits: dict[int, None] = {}
    for op in reversed(ops):
        if op.results and sizes.bytes(op.results[0].type) * 8 >= whole:
            rows = 1
            for d in sizes.shape(op.results[0].type)[:-1]:
                rows *= d
                splits[rows] = None
    best = whole
    for rows in sorted(splits, reverse=True)[:_MAX_SPLITS]:
        if rows > 1:
            best = min(best, _Rows(rows, ops, inputs, outputs, on, sizes).peak())
    return best


def _live_peak(ops: Sequence[Op], inputs: Sequence[Value], outputs: Collection[Value], on: Target, sizes: Sizes) -> float:
    """The most bytes of inner values that live at once, with two tiles for each value that streams past.

    What is loaded in another order (a view of inputs) streams past as well, from where it is read first to where it is read last.
    """
    last: dict[Value, int] = {}
    for i, op in enumerate(ops):
        for v in op.operands:
            last[v] = i
    outside = {*inputs, *outputs}
    loaded = set(inputs)

    def tiles(v: Value) -> int:
        return min(sizes.bytes(v.type), 2 * TILE_BYTES * on.partitions)

    def held(v: Value) -> int:
        return tiles(v) if v in loaded else sizes.bytes(v.type)

    streamed = sum(map(tiles, outside))
    live = peak = 0
    for i, op in enumerate(ops):
        if _is_loaded(op, loaded):
            loaded.update(op.results)
        live += sum(held(r) for r in op.results if r in last and (r not in outside or last[r] > i))
        peak = max(peak, live)
        live -= sum(held(v) for v in dict.fromkeys(op.operands) if last[v] == i and v not in inputs)
    return streamed + peak


def _is_loaded(op: Op, loaded: Collection[Value]) -> bool:
    """Whether an op only says in which order values of HBM are read."""
    return op.name in _LOADS and all(v in loaded for v in op.operands)


def least_bytes(op: Op, on: Target) -> int:
    """Bytes of SBUF per partition without which ``op`` cannot run alone: one tile of each operand and result."""
    if "matmul" in op.spec.traits:
        width: int = max(v.dtype.nbytes for v in op.operands)
        return width * (on.stationary_free + 2 * on.moving_free)
    tile = 32 * 4  # elements along the free axis: the smallest square that the Vector engine transposes, in f32
    return tile * len({*op.operands, *op.results})


_Split = int | str  # how many leading dims are rows; or one of the words below
FIXED, SUMMED, STORED = "does not depend on the rows", "a sum over the rows", "leaves in another order"
TURNED = "the rows lie along the last dim"
ANY = "made of what is on chip, whichever part is asked for"


@dataclass
class _Rows:
    """Follows a cut of the leading dims, ``rows`` rows in all, through the ops of a group."""

    rows: int
    ops: Sequence[Op]
    inputs: Sequence[Value]
    outputs: Collection[Value]
    on: Target
    sizes: Sizes
    state: dict[Value, _Split] = field(default_factory=dict)
    resident: dict[Value, float] = field(default_factory=dict)  # bytes that stay on chip beside the tile
    banks: int = 0

    def peak(self) -> float:
        """Bytes of SBUF that this cut needs; infinite where it does not go through."""
        self.direct = set(self.inputs)
        for v in self.inputs:
            self.state[v] = self.cut(v) or FIXED
        for op in self.ops:
            if _is_loaded(op, self.direct):
                self.direct.update(op.results)  # loaded in this order
                self.state.update((r, self.cut(r) or FIXED) for r in op.results)
                continue
            found = self.visit(op)
            if found is None:
                return math.inf
            for r in op.results:
                self.state[r] = found if isinstance(found, str) else self.cut(r) or SUMMED
                if found == FIXED:
                    self.resident[r] = self.sizes.bytes(r.type)
        return self.tile() + sum(self.resident.values())

    def cut(self, v: Value) -> int:
        """How many leading dims of ``v`` make up the rows; 0 where none do."""
        product = 1
        for i, d in enumerate(self.sizes.shape(v.type)):
            product *= d
            if product >= self.rows:
                return i + 1 if product == self.rows else 0
        return 0

    def tile(self) -> float:
        """The most bytes of one tile's values that live at once."""
        last = {v: i for i, op in enumerate(self.ops) for v in op.operands}
        partitions = min(self.rows, self.on.partitions)
        tile = {}
        for v, s in self.state.items():
            if s in (ANY, TURNED) or isinstance(s, int):
                rows = self.rows if s == TURNED or self.cut(v) else math.prod(self.sizes.shape(v.type)[:-1])
                tile[v] = self.sizes.bytes(v.type) / max(rows, 1) * min(partitions, rows)
        outside = {*self.inputs, *self.outputs}
        live = peak = 2 * sum(min(n, TILE_BYTES * self.on.partitions) for v, n in tile.items() if v in outside)
        for i, op in enumerate(self.ops):
            live += sum(tile.get(r, 0) for r in op.results if r in last)
            peak = max(peak, live)
            live -= sum(tile.get(v, 0) for v in dict.fromkeys(op.operands) if last[v] == i and v not in self.inputs)
        return peak

    def visit(self, op: Op) -> _Split | None:
        """What the results of ``op`` are, or ``None`` where it needs more than its own rows."""
        states = [self.state.get(v, FIXED) for v in op.operands]
        if SUMMED in states or STORED in states:
            return self.after(op, states)
        if "matmul" in op.spec.traits:
            return self.product(op)
        if TURNED in states:
            return None
        if all(s == FIXED for s in states):
            return ANY if op.name in ("neuron.broadcast_in_dim", "neuron.iota", "neuron.constant") else FIXED
        name = op.name.removeprefix("neuron.")
        if "elementwise" in op.spec.traits and not op.regions:
            return (self.cut(op.results[0]) or None) if any(isinstance(s, int) for s in states) else ANY
        if ANY in states and "view" in op.spec.traits and len(states) == 1:
            return ANY
        rows = [s if isinstance(s, int) else self.cut(v) for v, s in zip(op.operands, states, strict=True) if s != FIXED]
        handler = getattr(self, f"on_{name}", None)
        if not all(rows):
            return None
        if handler is not None:
            return handler(op, max(rows))  # type: ignore[no-any-return]
        if name in _REDUCERS:
            return self.reduction(op, [a % op.operands[0].type.rank for a in op.get("axes")])
        if name in _ALONG_AXIS:
            return self.reduction(op, [op.get("axis") % op.operands[0].type.rank])
        if name in ("layer_norm", "rms_norm"):
            rank = op.operands[0].type.rank
            return self.reduction(op, list(range(rank - op.get("trailing_dims"), rank)))
        return None

    def after(self, op: Op, states: Sequence[_Split]) -> _Split | None:
        """An op behind a sum over all rows, or behind a store: only another name for what leaves may stand there."""
        return STORED if STORED in states and "view" in op.spec.traits else None

    def reduction(self, op: Op, axes: Sequence[int]) -> _Split | None:
        """A reduction inside of each row goes on; one over rows ends in a sum."""
        k = self.cut(op.operands[0])
        if min(axes, default=k) >= k:
            return self.cut(op.results[0]) or k
        return SUMMED if op.name.removeprefix("neuron.") in _REDUCERS else None

    def on_reshape(self, op: Op, k: int) -> _Split | None:
        return self.cut(op.results[0]) or self.leaving(op)

    def on_transpose(self, op: Op, k: int) -> _Split | None:
        permutation = op.get("permutation")
        if tuple(permutation[:k]) == tuple(range(k)):
            return k
        turns = k == len(permutation) - 1 and tuple(permutation) == (*range(k - 1), k, k - 1)
        return self.leaving(op) or (TURNED if turns else None)

    def on_broadcast_in_dim(self, op: Op, k: int) -> _Split | None:
        dims = op.get("broadcast_dimensions")
        return k if tuple(dims[:k]) == tuple(range(k)) and self.cut(op.results[0]) == k else None

    def on_slice(self, op: Op, k: int) -> _Split | None:
        return k if op.operands[0].shape[:k] == op.results[0].shape[:k] else None

    def on_concatenate(self, op: Op, k: int) -> _Split | None:
        return k if op.get("dimension") >= k else None

    def on_embedding(self, op: Op, k: int) -> _Split | None:
        return self.cut(op.results[0]) or None

    def leaving(self, op: Op) -> _Split | None:
        """A view that breaks up the rows is how a tile is stored, where nothing but what leaves comes after it."""
        work, seen = [*op.results], 0
        while work and seen < 8:
            v, seen = work.pop(), seen + 1
            inside = [u for u in v.users if u in self.members]
            if any("view" not in u.spec.traits for u in inside):
                return None
            work += [r for u in inside for r in u.results]
        return STORED

    @property
    def members(self) -> set[Op]:
        return set(self.ops)

    def product(self, op: Op) -> _Split | None:
        """A product whose left operand has the rows; the right one stays on chip: of each batch element at its time.

        One of operands that are all on chip gives whichever rows are asked for.
        """
        batch = self.batches(op, self.state.get(op.operands[0], FIXED))
        held = op.operands[1:] if batch else op.operands
        parts = 0 if batch else self.sums_rows(op)
        if parts:
            self.resident[op.result] = self.sizes.bytes(op.result.type) / parts
            self.resident.update((v, self.sizes.bytes(v.type) / parts) for v in op.operands if self.state[v] == FIXED)
            self.banks += 1  # each such sum has a bank of PSUM as long as the tiles go through
            return SUMMED if self.banks <= self.on.psum_banks else None
        for v in held:
            if v not in self.direct and self.state.get(v, FIXED) != FIXED:
                return None
            self.resident[v] = max(self.resident.get(v, 0), self.sizes.bytes(v.type) / max(batch, 1))
        if op.name == "neuron.attention":  # a row of scores, and of their exponentials, in f32
            keys = self.sizes.dim(op.operands[1].shape[-2])
            self.resident[op.results[0]] = 8 * keys * self.on.partitions
        return (self.cut(op.results[0]) or None) if batch else ANY

    def batches(self, op: Op, k: _Split) -> int:
        """In how many parts the right operand of a product is needed, one after the other; 0 where the left one has no rows."""
        if not isinstance(k, int):
            return 0
        left, right = op.operands[0], op.operands[1]
        shape = self.sizes.shape(left.type)
        if op.name == "neuron.linear":
            return int(k <= left.type.rank - 1)
        if op.name in ("neuron.conv", "neuron.convolution"):
            by_batch = str(op.attrs.get("input_dims", "b")).startswith("b") and op.attrs.get("batch_group_count", 1) == 1
            return int(k == 1 and by_batch)
        if op.name == "neuron.dot_general":
            dims = len(op.get("lhs_batch"))
            ok = tuple(op.get("lhs_batch")) == tuple(range(dims)) and min(op.get("lhs_contract"), default=k) >= k
            return math.prod(shape[: min(k, dims)]) if ok else 0
        if op.name not in ("neuron.attention", "neuron.matmul") or k > left.type.rank - 1 or op.attrs.get("transpose_a"):
            return 0
        dims = max(right.type.rank - 2, 0)
        if op.name == "neuron.matmul" and shape[:dims] != self.sizes.shape(right.type)[:dims]:
            return 0
        return math.prod(shape[: min(k, dims)])

    def sums_rows(self, op: Op) -> int:
        """In how many parts, one after the other, a product is a sum over rows; 0 where it is none.

        ``x.T @ dy`` over all rows is one part; over the queries of each head, as in attention's gradients, one for each head. Both
        operands stream past and the result of one part adds up on chip.
        """
        left, right = op.operands[0], op.operands[1]
        if op.name == "neuron.dot_general":
            dims = len(op.get("lhs_batch"))
            end = dims + len(op.get("lhs_contract"))
            sides = ((op.get("lhs_batch"), op.get("lhs_contract")), (op.get("rhs_batch"), op.get("rhs_contract")))
            if any((*batch, *summed) != tuple(range(end)) for batch, summed in sides):
                return 0
            fits = self.state.get(left) == self.state.get(right) == end
        elif op.name == "neuron.matmul" and left.type.rank == right.type.rank and not op.attrs.get("transpose_b"):
            dims, end = right.type.rank - 2, right.type.rank - 1
            turned = self.state.get(left) == end if op.attrs.get("transpose_a") else self.is_turned(left)
            fits = dims >= 0 and turned and self.state.get(right) == end
        else:
            return 0
        shapes = [self.sizes.shape(v.type)[:dims] for v in (left, right)]
        return math.prod(shapes[0]) if fits and shapes[0] == shapes[1] else 0

    def is_turned(self, value: Value) -> bool:
        """Whether the rows of ``value`` lie along its last dim: turned on chip, or loaded so."""
        state = self.state.get(value)
        return state == TURNED or state == FIXED and value in self.direct
