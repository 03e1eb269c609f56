"""Which order in memory of an op's operand goes with which order of its result, so that the op itself moves nothing around.

An order lists the dims of a value from slowest to fastest. A :class:`Link` tells for one operand which groups of its dims are
which dims of the result. The two orders agree when both run through these groups in the same sequence: ``relu`` of a value in
``[0, 2, 3, 1]`` gives a value in ``[0, 2, 3, 1]``, and a transpose may give any order by renaming dims, without moving a byte.
Dims of size 1 lie anywhere. What has no link needs the default order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from neuron_ir.core import Op, Value
from neuron_ir.types import TensorType

__all__ = [
    "Link",
    "Order",
    "agree",
    "default_order",
    "follow",
    "handed_on",
    "hands_on_in_order",
    "inner_relayout",
    "is_renaming",
    "links",
    "order_of",
    "same",
]

_KEPT = 16_384  # answers: layers ask the same over and over

Order = tuple[int, ...]
Group = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Link:
    """How one operand's order depends on that of the first result.

    ``groups`` pairs dims of the operand with dims of the result; dims in no group are free. ``fastest`` and ``fastest_result``
    name the dims of which one has to be the fastest (empty: any). ``exact`` is an operand's order and the result's where the op
    takes no other but the default.
    """

    groups: tuple[Group, ...] = ()
    fastest: tuple[int, ...] = ()
    fastest_result: tuple[int, ...] = ()
    exact: tuple[Order, Order] | None = None


def default_order(type: TensorType) -> Order:
    """The dims in their own order."""
    return tuple(range(type.rank))


def order_of(value: Value) -> Order:
    """The order in which a value is held."""
    return value.type.layout.order or default_order(value.type)


@lru_cache(maxsize=_KEPT)
def agree(link: Link, operand: Order, of: TensorType, result: Order, to: TensorType) -> bool:
    """Whether the operand in one order gives the result in the other without a move. In default orders every op runs, but for
    those that rename dims.
    """
    if operand == default_order(of) and result == default_order(to) and not _renames(link):
        return True
    if link.exact is not None:
        return (operand, result) == link.exact
    if not _fast(operand, of, link.fastest) or not _fast(result, to, link.fastest_result):
        return False
    live = [(a, b) for a, b in link.groups if _moves(a, of) and _moves(b, to)]
    found = _sequence(operand, of, [a for a, _ in live])
    return found is not None and found == _sequence(result, to, [b for _, b in live])


def _renames(link: Link) -> bool:
    """Whether default orders of the two do not agree, as those of a transpose."""
    pairs = sorted((b[0], a[0]) for a, b in link.groups if a and b)
    return any(a > c for (_, a), (_, c) in pairwise(pairs))


def _fast(order: Order, type: TensorType, allowed: tuple[int, ...]) -> bool:
    last = next((d for d in reversed(order) if type.shape[d] != 1), None)
    return not allowed or last is None or last in allowed


def _moves(dims: tuple[int, ...], type: TensorType) -> bool:
    """Whether the place of these dims in an order matters."""
    return any(type.shape[d] != 1 for d in dims)


def _sequence(order: Order, type: TensorType, groups: Sequence[tuple[int, ...]]) -> list[int] | None:
    """The groups of dims from slowest to fastest; ``None`` where one is torn apart or turned around."""
    home = {d: g for g, dims in enumerate(groups) for d in dims}
    found: list[int] = []
    last = -1
    for d in order:
        if d not in home or type.shape[d] == 1:
            continue
        if not found or found[-1] != home[d]:
            if home[d] in found:
                return None
            found.append(home[d])
        elif d < last:
            return None
        last = d
    return found


@lru_cache(maxsize=_KEPT)
def follow(link: Link, order: Order, forward: bool, onto: TensorType) -> Order:
    """The order of the result for that of the operand, or the other way round; dims that nothing decides stay behind the dim
    before them.
    """
    if link.exact is not None:
        return link.exact[forward]
    here, there = (0, 1) if forward else (1, 0)
    made: list[int] = []
    for d in order:
        for pair in link.groups:
            if pair[here] and pair[here][0] == d:
                made.extend(pair[there])
    for d in range(onto.rank):
        if d not in made:
            made.insert(made.index(d - 1) + 1 if d else 0, d)
    return tuple(made)


def is_renaming(op: Op) -> bool:
    """Whether a transpose only gives other names to the dims of what lies in memory."""
    x, y = op.operands[0], op.results[0]
    return agree(links(op)[0], order_of(x), x.type, order_of(y), y.type)


def inner_relayout(op: Op) -> Sequence[Value]:
    """What an op has to turn around within itself: operands and result of a convolution that is not given the order it wants."""
    wanted = [link.exact for link in links(op) if link is not None and link.exact is not None] if op.results else []
    if not wanted or wanted[0] is None or order_of(op.results[0]) == wanted[0][1]:
        return ()
    return (*op.operands[:2], op.results[0])


class Handed(NamedTuple):
    """Values that an op hands on unchanged: ``slots`` share one order, and an operand of ``uses`` takes the order of its target."""

    slots: list[list[Value]]
    uses: list[tuple[Op, int, Value]]


HANDING_ON = frozenset(f"neuron.{n}" for n in ("while", "for", "scan", "if", "case", "fused", "optimization_barrier"))


def handed_on(op: Op) -> Handed:
    """What a loop, a choice, a fused group or a barrier hands on."""
    if op.name not in HANDING_ON:
        return Handed([], [])
    regions = list(op.regions)
    if op.name in ("neuron.while", "neuron.for", "neuron.scan"):
        count = int(op.get("num_carry")) if op.name == "neuron.scan" else len(op.operands)
        skipped = int(op.name == "neuron.for")  # its body counts the trips in its first argument
        slots = [[op.results[i], *(r.args[i + skipped] for r in regions)] for i in range(count)]
        last = regions[-1].terminator
        uses = [(user, i, op.results[i]) for user in (op, last) for i in range(count)]
        return Handed(slots, uses)
    uses = [(r.terminator, i, result) for r in regions for i, result in enumerate(op.results)]
    targets = regions[0].args if op.name == "neuron.fused" else op.results if op.name == "neuron.optimization_barrier" else ()
    return Handed([], [*uses, *((op, i, target) for i, target in enumerate(targets))])


def hands_on_in_order(op: Op) -> bool:
    """Whether all that the op hands on has one order from end to end, and whatever else it takes and gives the default one."""
    handed = handed_on(op)
    free = {v for slot in handed.slots for v in slot} | {target for _, _, target in handed.uses}
    places = {(user, i) for user, i, _ in handed.uses}  # a carried value may be stacked input or output as well
    users = [op, *(region.terminator for region in op.regions)]
    given = [v for v in (*op.results, *(arg for region in op.regions for arg in region.args)) if v not in free]
    taken = [v for user in users for i, v in enumerate(user.operands) if (user, i) not in places]
    others = [v for v in (*given, *taken) if isinstance(v.type, TensorType)]
    return (
        bool(handed.slots or handed.uses)
        and all(order_of(v) == order_of(slot[0]) for slot in handed.slots for v in slot if isinstance(v.type, TensorType))
        and all(order_of(u.operands[i]) == order_of(t) for u, i, t in handed.uses if isinstance(t.type, TensorType))
        and all(order_of(v) == default_order(v.type) for v in others)
    )


# --- rules per op -----------------------------------------------------------------------------------------------------


def links(op: Op) -> list[Link | None]:
    """For each operand its link, or ``None`` where operand and result need their default orders."""
    none: list[Link | None] = [None] * len(op.operands)
    if not op.results or not all(isinstance(v.type, TensorType) for v in (*op.operands, *op.results)):
        return none
    rule = _RULES.get(op.name)
    if rule is None:
        rule = _each if "elementwise" in op.spec.traits else None
    return rule(op) if rule is not None else none


def same(rank: int) -> Link:
    """Dim for dim."""
    return Link(tuple(((d,), (d,)) for d in range(rank)))


def _each(op: Op) -> list[Link | None]:
    """Dim for dim, for all operands of the result's rank."""
    rank = op.results[0].type.rank
    return [same(rank) if v.type.rank == rank else None for v in op.operands]


def _first(op: Op) -> list[Link | None]:
    """Dim for dim for the first operand; the others are vectors or numbers."""
    return [same(op.results[0].type.rank), *[None] * (len(op.operands) - 1)]


def _transpose(op: Op) -> list[Link | None]:
    return [Link(tuple(((d,), (i,)) for i, d in enumerate(op.get("permutation"))))]


def _broadcast(op: Op) -> list[Link | None]:
    return [Link(tuple(((i,), (d,)) for i, d in enumerate(op.get("broadcast_dimensions"))))]


def _reduce(op: Op) -> list[Link | None]:
    rank, axes = op.operands[0].type.rank, op.get("axes")
    away = range(rank) if axes is None else {d % rank for d in axes}
    kept = [d for d in range(rank) if d not in away]
    return [Link(tuple(((d,), (d if op.get("keepdims") else i,)) for i, d in enumerate(kept)))]


def _reshape(op: Op) -> list[Link | None]:
    """Dims that are merged or split stay together and in order; the others may lie anywhere."""
    a, b = op.operands[0].shape, op.results[0].shape
    if 0 in a or 0 in b:
        return [Link()]  # nothing to keep together
    groups: list[Group] = []
    i = j = 0
    while i < len(a) and j < len(b):
        left, right, m, n = [i], [j], a[i], b[j]
        i, j = i + 1, j + 1
        while m != n:
            if not (isinstance(m, int) and isinstance(n, int)):
                left, right, i, j = list(range(left[0], len(a))), list(range(right[0], len(b))), len(a), len(b)
                break
            if m < n:
                left.append(i)
                m, i = m * a[i], i + 1
            else:
                right.append(j)
                n, j = n * b[j], j + 1
        groups.append((tuple(left), tuple(right)))
    return [Link(tuple(groups))]


def _linear(op: Op) -> list[Link | None]:
    """Rows lie in any order; the summed dim and the dim of outputs are the fastest. Weights are read either way round."""
    last = op.results[0].type.rank - 1
    x = Link(tuple(((d,), (d,)) for d in range(last)), (last,), (last,))
    return [x, Link(), *[None] * (len(op.operands) - 2)]


def _matmul(op: Op) -> list[Link | None]:
    ranks = [v.type.rank for v in (*op.operands, op.results[0])]
    if min(ranks) < 2:
        return [None, None]
    a, b, out = ((r - 2, r - 1) for r in ranks)
    return [Link((), a, out), Link((), b, out)]


def _dot_general(op: Op) -> list[Link | None]:
    batches = (op.get("lhs_batch"), op.get("rhs_batch"))
    rank = op.results[0].type.rank
    out = tuple(range(len(batches[0]), rank))
    return [
        Link((), tuple(d for d in range(v.type.rank) if d not in batch), out) for v, batch in zip(op.operands, batches, strict=True)
    ]


def _attention(op: Op) -> list[Link | None]:
    rank = op.results[0].type.rank
    one = Link((), (rank - 1,), (rank - 1,))
    return [one if i < 3 and v.type.rank == rank else None for i, v in enumerate(op.operands)]


def _conv(op: Op) -> list[Link | None]:
    """Channels last in and out, and the kernel as window x inputs x outputs."""
    rank = op.operands[0].type.rank
    window = tuple(range(2, rank))
    if op.get("transposed") or rank < 3:
        return [None] * len(op.operands)
    last = (0, *window, 1)
    return [Link(exact=(last, last)), Link(exact=((*window, 1, 0), last)), *[None] * (len(op.operands) - 2)]


def _convolution(op: Op) -> list[Link | None]:
    rank = op.operands[0].type.rank
    digits = "".join(map(str, range(rank - 2)))

    def order(given: str, plain: str, wanted: str) -> Order:
        given = given or plain + digits
        return tuple(given.index(c) for c in wanted)

    lhs = order(op.get("input_dims"), "bf", f"b{digits}f")
    rhs = order(op.get("kernel_dims"), "oi", f"{digits}io")
    out = order(op.get("output_dims"), "bf", f"b{digits}f")
    return [Link(exact=(lhs, out)), Link(exact=(rhs, out))]


def _names(text: str, rule: Callable[[Op], list[Link | None]]) -> dict[str, Callable[[Op], list[Link | None]]]:
    return {f"neuron.{name}": rule for name in text.split()}


_RULES: dict[str, Callable[[Op], list[Link | None]]] = {
    **_names("relayout concatenate dynamic_update_slice", _each),
    **_names("pad slice dynamic_slice reverse softmax log_softmax max_pool avg_pool adaptive_avg_pool adaptive_max_pool", _first),
    **_names("batch_norm batch_norm_inference batch_norm_training group_norm cumsum cummax cummin cumprod", _first),
    **_names("reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or", _reduce),
    "neuron.transpose": _transpose,
    "neuron.broadcast_in_dim": _broadcast,
    "neuron.reshape": _reshape,
    "neuron.linear": _linear,
    "neuron.matmul": _matmul,
    "neuron.dot_general": _dot_general,
    "neuron.attention": _attention,
    "neuron.conv": _conv,
    "neuron.convolution": _convolution,
}
