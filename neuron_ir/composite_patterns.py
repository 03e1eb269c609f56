"""What simple ops may be a composite: patterns that propose, and are held to no rule, for each proposal is checked afterwards.

A pattern looks at an op that tells a composite from other ops (the exponential of a softmax, the root of a norm), walks to its
inputs and its result, and yields a :class:`Proposal`. :mod:`neuron_ir.passes.raise_composites` compares it with what is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from itertools import product as product_of
from typing import Any

from neuron_ir.builder import Builder
from neuron_ir.canonical import NoForm
from neuron_ir.core import Op, Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.types import TensorType

__all__ = ["NAMES", "PATTERNS", "Build", "Pattern", "Proposal"]

Build = Callable[..., Value]
_VIEWS = ("neuron.reshape", "neuron.broadcast_in_dim", "neuron.transpose")


@dataclass
class Proposal:
    """``root``'s result may be what ``build(b, *leaves)`` gives, whose formula may also read as one of ``spellings``."""

    root: Op
    leaves: Sequence[Value]
    build: Build
    spellings: Sequence[Build] = ()
    alike: dict[Value, float] = field(default_factory=dict)  # constants that count as another number


Pattern = Callable[[Any], Iterator[Proposal]]
PATTERNS: dict[str, dict[str, list[Pattern]]] = {}
NAMES: set[str] = set()


def proposes(name: str, *anchors: str) -> Callable[[Pattern], Pattern]:
    """Declare a pattern for the composite ``name``, called on each op with one of the names ``anchors``."""

    def add(pattern: Pattern) -> Pattern:
        NAMES.add(name)
        for anchor in anchors:
            PATTERNS.setdefault(f"neuron.{anchor}", {}).setdefault(name, []).append(pattern)
        return pattern

    return add


# --- looking around ---------------------------------------------------------------------------------------------------


def through(v: Value) -> Value:
    """The value before views."""
    while v.op is not None and v.op.name in _VIEWS:
        v = v.op.operands[0]
    return v


def made_by(v: Value, *names: str) -> Any:
    """The op that makes ``v``, seen through views, where it has one of these names."""
    op = through(v).op
    return op if op is not None and op.name.removeprefix("neuron.") in names else None


def number_of(v: Value) -> float | None:
    """The number that every element of ``v`` equals, as the shortest text that reads back to it."""
    dense = through(v).dense
    if dense is None or not dense.is_splat or not dense.array.size or not dense.dtype.is_float:
        return None
    return float(str(dense.array.flat[0]))


def onwards(op: Op, most: int) -> list[Op]:
    """The ops that follow ``op`` one after the other, the last first, as long as each result has one user."""
    found: list[Op] = []
    while len(found) < most:
        users = list(op.results[0].users)
        if len(users) != 1 or "terminator" in users[0].spec.traits or len(users[0].results) != 1 or users[0].regions:
            break
        op = users[0]
        found.append(op)
    return found[::-1]


def single_axis(op: Any) -> int | None:
    axes = op.get("axes")
    return axes[0] % op.operands[0].type.rank if len(axes) == 1 else None


# --- softmax ----------------------------------------------------------------------------------------------------------


@proposes("softmax", "divide")
def softmax(op: Any) -> Iterator[Proposal]:
    exponential, total = made_by(op.a, "exponential"), made_by(op.b, "reduce_sum")
    shifted = made_by(exponential.x, "subtract") if exponential is not None else None
    axis = single_axis(total) if total is not None else None
    if shifted is not None and axis is not None:
        yield Proposal(op, [shifted.a], lambda b, x: b.softmax(x, axis=axis if axis != x.type.rank - 1 else -1))


@proposes("log_softmax", "subtract")
def log_softmax(op: Any) -> Iterator[Proposal]:
    log = made_by(op.b, "log")
    total = made_by(log.x, "reduce_sum") if log is not None else None
    shifted = made_by(op.a, "subtract")
    axis = single_axis(total) if total is not None else None
    if shifted is not None and axis is not None:
        yield Proposal(op, [shifted.a], lambda b, x: b.log_softmax(x, axis=axis if axis != x.type.rank - 1 else -1))


# --- activations ------------------------------------------------------------------------------------------------------


@proposes("silu", "multiply", "divide")
def silu(op: Any) -> Iterator[Proposal]:
    spellings: list[Build] = [
        lambda b, x: (Expr(b, x) * (1.0 / ((-Expr(b, x)).exp() + 1.0))).value,
        lambda b, x: (Expr(b, x) / ((-Expr(b, x)).exp() + 1.0)).value,
    ]
    gates = [made_by(v, "logistic", "divide") for v in op.operands] if op.name == "neuron.multiply" else [made_by(op.b, "add")]
    if any(g is not None for g in gates):
        for x in dict.fromkeys(op.operands):
            yield Proposal(op, [x], lambda b, x: b.silu(x), spellings)


_ROOT = math.sqrt(2 / math.pi)


def _half_erfc(b: Builder, x: Value) -> Value:
    e = Expr(b, x)
    return e.binary("multiply", 0.5).binary("multiply", (-e).binary("multiply", 0.5**0.5).unary("erfc")).value


def _gelu_spellings(approximate: str) -> list[Build]:
    """The other ways to group the factors."""

    def inner(e: Expr) -> Expr:
        if approximate == "none":
            return e.binary("multiply", 0.5**0.5).erf()
        return (e + e * e * e * 0.044715).binary("multiply", _ROOT).tanh()

    def factored(e: Expr) -> Expr:
        return e.binary("multiply", _ROOT).binary("multiply", e * e * 0.044715 + 1.0).tanh()

    made: list[Build] = [lambda b, x: (Expr(b, x) * ((inner(Expr(b, x)) + 1.0) * 0.5)).value]
    made.append(lambda b, x: (Expr(b, x) * (inner(Expr(b, x)) + 1.0) * 0.5).value)
    if approximate == "none":
        return [*made, _half_erfc]
    made.append(lambda b, x: (Expr(b, x) * 0.5 * (factored(Expr(b, x)) + 1.0)).value)
    return [*made, lambda b, x: (Expr(b, x) * ((factored(Expr(b, x)) + 1.0) * 0.5)).value]


@proposes("gelu", "erf", "erfc", "tanh")
def gelu(op: Any) -> Iterator[Proposal]:
    approximate = "tanh" if op.name == "neuron.tanh" else "none"
    inputs: dict[Value, None] = {}
    work = [op.operands[0]]
    for _ in range(8):
        if work:
            v = work.pop(0)
            inputs[v] = None
            work += [o for o in v.op.operands if o.type is v.type] if v.op is not None and "elementwise" in v.op.spec.traits else []
    for root in onwards(op, 4):
        if root.name == "neuron.multiply":
            for x in inputs:
                if number_of(x) is None:
                    yield Proposal(root, [x], lambda b, x: b.gelu(x, approximate=approximate), _gelu_spellings(approximate))


# --- norms ------------------------------------------------------------------------------------------------------------


@proposes("norm", "rsqrt", "sqrt")
def norm(op: Any) -> Iterator[Proposal]:
    """Layer, root-mean-square and group norm, from the root of the variance onwards to scale and shift."""
    variance = made_by(op.operands[0], "add")
    eps = None if variance is None else number_of(variance.b) if number_of(variance.b) is not None else number_of(variance.a)
    mean = variance and made_by(variance.a if number_of(variance.b) is not None else variance.b, "divide", "multiply")
    total = mean and (made_by(mean.operands[0], "reduce_sum") or made_by(mean.operands[1], "reduce_sum"))
    if eps is None or not total:
        return
    chain = onwards(op, 8)
    first = next((o for o in chain[::-1] if o.name in ("neuron.multiply", "neuron.divide") and o is not op), None)
    if first is None:
        return
    deviation = next((v for v in first.operands if through(v) is not op.results[0]), first.operands[0])
    centred = made_by(deviation, "subtract")
    for root in [o for o in chain if o.name in ("neuron.multiply", "neuron.divide", "neuron.add", "neuron.cast", "neuron.reshape")]:
        after = chain[chain.index(root) : chain.index(first)]
        parameters = [through(v) for o in after[::-1] for v in o.operands if o.name in ("neuron.multiply", "neuron.add")]
        given = [v for v in parameters if not _follows(v, first)]
        axes = sorted(a % total.operands[0].type.rank for a in total.get("axes"))
        if centred is not None:
            yield from _layer_norm(root, centred.a, given, axes, eps)
            yield from _group_norm(root, through(centred.a), given, eps)
        elif len(given) <= 1:
            yield from _rms_norm(root, deviation, given, axes, eps)


def _follows(v: Value, op: Op) -> bool:
    """Whether ``v`` is computed from ``op``, along first-come ops."""
    for _ in range(8):
        if v.op is None:
            return False
        if v.op is op:
            return True
        v = (
            next((o for o in v.op.operands if o.op is not None and o.op.name not in ("neuron.constant",)), v.op.operands[0])
            if v.op.operands
            else v
        )
    return False


def _normalised(e: Expr, axes: Sequence[int], eps: float, centred: bool, divide: bool) -> Expr:
    d = e - e.mean(axes) if centred else e
    root = (d * d).mean(axes) + eps
    return d / root.sqrt() if divide else d * root.rsqrt()


def _layer_norm(root: Op, x: Value, given: Sequence[Value], axes: Sequence[int], eps: float) -> Iterator[Proposal]:
    rank, n = x.type.rank, len(axes)
    if list(axes) != list(range(rank - n, rank)) or len(given) > 2 or any(v.shape != x.shape[rank - n :] for v in given):
        return

    def build(b: Builder, x: Value, *parameters: Value) -> Value:
        return b.layer_norm(x, *parameters, eps=eps, trailing_dims=n)  # type: ignore[no-any-return]

    def divided(b: Builder, x: Value, *parameters: Value) -> Value:
        y = _normalised(Expr(b, x), axes, eps, True, True)
        for v, name in zip(parameters, ("multiply", "add"), strict=False):
            y = y.binary(name, Expr(b, v))
        return y.value

    yield Proposal(root, [x, *given], build, [divided])


def _rms_norm(root: Op, x: Value, given: Sequence[Value], axes: Sequence[int], eps: float) -> Iterator[Proposal]:
    rank, n = x.type.rank, len(axes)
    if list(axes) != list(range(rank - n, rank)) or any(v.shape != x.shape[rank - n :] for v in given):
        return

    def divided(b: Builder, x: Value, *parameters: Value) -> Value:
        y = _normalised(Expr(b, x), axes, eps, False, True)
        return (y * Expr(b, parameters[0]) if parameters else y).value

    yield Proposal(root, [x, *given], lambda b, x, *w: b.rms_norm(x, *w, eps=eps, trailing_dims=n), [divided])


def _group_norm(root: Op, x: Value, given: Sequence[Value], eps: float) -> Iterator[Proposal]:
    if not x.type.is_static or x.type.rank < 3 or root.results[0].shape != x.shape:
        return
    if len(given) > 2 or any(v.shape != x.shape[1:2] for v in given):
        return
    for groups in (g for g in range(1, int(x.shape[1]) + 1) if int(x.shape[1]) % g == 0):  # type: ignore[arg-type]
        yield Proposal(root, [x, *given], lambda b, x, *p, g=groups: b.group_norm(x, *p, groups=g, eps=eps))


# --- linear -----------------------------------------------------------------------------------------------------------


@proposes("linear", "add")
def linear(op: Any) -> Iterator[Proposal]:
    for product, other in ((op.a, op.b), (op.b, op.a)):
        made, bias = made_by(product, "dot_general", "matmul"), through(other)
        if made is None or bias.type.rank != 1 or made.operands[1].type.rank != 2:
            continue
        x, weight = made.operands
        source = through(x) if through(x).shape[-1:] == x.shape[-1:] else x
        for leaf in dict.fromkeys([source, x]):
            yield Proposal(op, [leaf, weight, bias], lambda b, x, w, c: b.linear(x, b.transpose(w, permutation=(1, 0)), c))
            yield Proposal(op, [leaf, weight, bias], lambda b, x, w, c: b.linear(x, w, c))


# --- attention --------------------------------------------------------------------------------------------------------


@proposes("attention", "dot_general", "matmul")
def attention(op: Any) -> Iterator[Proposal]:
    for at in (0, 1):
        scores = _scores(op.operands[at])
        if scores is not None:
            yield from _attention(op, at, *scores)


def _scores(p: Value) -> tuple[Any, float, str, Value | None, dict[Value, float]] | None:
    """From the weights down to the product of queries and keys: that product, scale, causal, mask, constants like -inf."""
    made = made_by(p, "softmax", "divide")
    if made is not None and made.name == "neuron.divide":
        exponential = made_by(made.a, "exponential")
        made = made_by(exponential.x, "subtract") if exponential is not None else None
    if made is None:
        return None
    s, scale, causal, mask = made.operands[0], 1.0, "none", None
    alike: dict[Value, float] = {}
    for _ in range(4):
        step = made_by(s, "dot_general", "matmul", "multiply", "divide", "add", "select")
        if step is None:
            return None
        if step.name in ("neuron.dot_general", "neuron.matmul"):
            return step, scale, causal, mask, alike
        if step.name == "neuron.select":
            filled = number_of(step.b)
            if filled is None or filled > -1e30:
                return None
            causal, s = "top_left", step.a
            alike[step.b] = float("-inf")  # every query sees key 0, so the weight of a hidden key is 0 either way
        elif step.name == "neuron.add":
            s, mask = (step.a, step.b) if _has_product(step.a) else (step.b, step.a)
        else:
            factor = number_of(step.b) if number_of(step.b) is not None else number_of(step.a)
            if factor is None:
                return None
            s = step.a if number_of(step.b) is not None else step.b
            narrow = step.results[0].dtype.numpy.type
            scale *= factor if step.name == "neuron.multiply" else float(str(narrow(1) / narrow(factor)))
    return None


def _has_product(v: Value) -> bool:
    """Whether scores, scaled or not, make up ``v``."""
    step = made_by(v, "dot_general", "matmul", "multiply", "divide", "select")
    return step is not None and (step.name in ("neuron.dot_general", "neuron.matmul") or any(map(_has_product, step.operands)))


def _dims(op: Any) -> tuple[list[int], list[int], int, int] | None:
    """Batch dims of both operands and the one contracted dim of each."""
    if op.name == "neuron.dot_general":
        if len(op.get("lhs_contract")) != 1:
            return None
        return list(op.get("lhs_batch")), list(op.get("rhs_batch")), op.get("lhs_contract")[0], op.get("rhs_contract")[0]
    rank = op.a.type.rank
    if rank < 2 or op.b.type.rank != rank or op.a.shape[:-2] != op.b.shape[:-2]:
        return None
    batch = list(range(rank - 2))
    return batch, batch, rank - 2 if op.get("transpose_a") else rank - 1, rank - 1 if op.get("transpose_b") else rank - 2


def _attention(
    op: Any, at: int, product: Any, scale: float, causal: str, mask: Value | None, alike: dict[Value, float]
) -> Iterator[Proposal]:
    first, second = _dims(product), _dims(op)
    if first is None or second is None:
        return
    q, k, v = product.operands[0], product.operands[1], op.operands[1 - at]
    keys = [i for i in range(k.type.rank) if i not in (*first[1], first[3])]
    width = [i for i in range(v.type.rank) if i not in (*second[1 - at], second[3 - at])]  # type: ignore[misc]
    free = [i for i in range(q.type.rank) if i not in (*first[0], first[2])]
    queries = [i for i in free if q.shape[i] != 1] or free[:1]
    if len(keys) != 1 or len(width) != 1 or not 1 <= len(queries) <= 2 or len(first[0]) != len(second[0]):
        return
    widths = ((q, first[2]), (k, first[3]), (v, width[0]))
    if not all(_is_last(operand, dim) for operand, dim in widths):
        return  # products of other dims, for all their shapes may fit
    masks: list[tuple[Value, ...]] = [()] if mask is None else [(m,) for m in _mask_leaves(mask)]
    causals = [causal] if causal == "none" else ["top_left", "bottom_right"]
    batches: list[int] = second[1 - at]  # type: ignore[assignment]
    choices: Any = product_of(permutations(queries), permutations(batches), masks, causals, ("nan", "zero"))
    for (*group, length), order, bias, side, rows in choices:
        if side == "bottom_right" and q.shape[length] == k.shape[keys[0]]:
            continue  # the same as top_left
        fields = {"scale": scale, "causal": side, "masked_rows": rows}

        def build(
            b: Builder,
            q: Value,
            k: Value,
            v: Value,
            *m: Value,
            g: Any = tuple(group),
            n: Any = length,
            o: Any = order,
            f: Any = fields,
        ) -> Value:
            shape = [q.shape[i] for i in (*first[0], *g, n, first[2])]
            q = b.transpose(q, permutation=(*first[0], *g, *_others(q, first, (*g, n)), n, first[2]))
            heads = [*shape[: len(first[0]) - 1], shape[len(first[0]) - 1] * shape[len(first[0])]] if g else shape[:-2]
            q = b.reshape(q, out=TensorType([*heads, *shape[-2:]], q.dtype))
            k = b.transpose(k, permutation=(*first[1], keys[0], first[3]))
            v = b.transpose(v, permutation=(*o, second[3 - at], width[0]))
            y = b.attention(q, k, v, *(_fitted(b, x, y_rank=q.type.rank) for x in m), **f)
            return _as_result(b, y, op, shape[:-1], v.shape[-1], at)

        exact_fill = side == "bottom_right" or rows == "zero"  # then a row may see no key, and the number that hides keys counts
        yield Proposal(op, [q, k, v, *bias], build, (), {} if exact_fill else alike)


def _is_last(v: Value, dim: int) -> bool:
    """Whether ``dim`` of ``v`` is the last one of the value that was transposed, split or repeated to make it."""
    while v.op is not None and v.op.name in _VIEWS:
        source = v.op.operands[0]
        if v.op.name == "neuron.transpose":
            dim = v.op.get("permutation")[dim]
        elif v.op.name == "neuron.broadcast_in_dim":
            if dim not in v.op.get("broadcast_dimensions"):
                return False
            dim = v.op.get("broadcast_dimensions").index(dim)
        elif dim != v.type.rank - 1 or source.shape[-1:] != v.shape[-1:]:
            break
        else:
            dim = source.type.rank - 1
        v = source
    return bool(dim == v.type.rank - 1)


def _others(q: Value, first: Any, named: Sequence[int]) -> list[int]:
    """The dims of size 1 that are left."""
    return [i for i in range(q.type.rank) if i not in (*first[0], first[2], *named)]


def _mask_leaves(mask: Value) -> list[Value]:
    """The mask before it was spread over the scores, and the bool one that it was made of."""
    spread = mask.op
    leaf = spread.operands[0] if spread is not None and spread.name == "neuron.broadcast_in_dim" else mask
    chosen = leaf.op
    bools = [chosen.operands[0]] if chosen is not None and chosen.name == "neuron.select" else []
    return [*bools, leaf]


def _fitted(b: Builder, mask: Value, y_rank: int) -> Value:
    """A mask of the scores' rank at most; leading dims of size 1 go."""
    shape = list(mask.shape)
    while len(shape) > y_rank and shape[0] == 1:
        shape = shape[1:]
    return mask if len(shape) == mask.type.rank else b.reshape(mask, out=TensorType(shape, mask.dtype))


def _as_result(b: Builder, y: Value, op: Any, rows: Sequence[Any], width: Any, at: int) -> Value:
    """``[..., heads, length, width]`` in the order of dims that the second product gives: its rows first, or its width first."""
    out = op.results[0].type
    split = b.reshape(y, out=TensorType([*rows, width], y.dtype))
    rank, batch = len(rows) + 1, len(_dims(op)[0])  # type: ignore[index]
    tail = list(range(batch, rank - 1))
    candidates = [(*range(batch), *t, rank - 1) if at == 0 else (*range(batch), rank - 1, *t) for t in permutations(tail)]
    wanted = [d for d in out.shape if d != 1]
    for order in candidates:
        shape = [split.shape[i] for i in order]
        if [d for d in shape if d != 1] == wanted:
            return b.reshape(b.transpose(split, permutation=order), out=out)  # type: ignore[no-any-return]
    raise NoForm


# --- rotary embedding -------------------------------------------------------------------------------------------------


@proposes("rotary_embedding", "concatenate")
def rotary_embedding(op: Any) -> Iterator[Proposal]:
    if len(op.operands) != 2:
        return
    for root in [op, *onwards(op, 3)]:
        products = [made_by(v, "multiply") for v in root.operands] if root.name in ("neuron.add", "neuron.subtract") else []
        halves = [made_by(v, "add", "subtract") for v in op.operands] if root is op else []
        if len(products) == 2 and None not in products:
            for own, turned in (products, products[::-1]):
                for x, cos in ((own.a, own.b), (own.b, own.a)):
                    sin = turned.b if through(turned.a) is op.results[0] else turned.a
                    yield _rotated(root, x, cos, sin)
        elif len(halves) == 2 and None not in halves:
            terms = made_by(halves[0].operands[0], "multiply"), made_by(halves[0].operands[1], "multiply")
            if None not in terms:
                for (first, cos), (_, sin) in (
                    (t, u)
                    for t in (terms[0].operands, terms[0].operands[::-1])
                    for u in (terms[1].operands, terms[1].operands[::-1])
                ):
                    part = made_by(first, "slice")
                    if part is not None:
                        yield _rotated(root, part.x, cos, sin)


def _rotated(root: Any, x: Value, cos: Value, sin: Value) -> Proposal:
    """The tables with as many dims as ``x``, those of size 1 where they were repeated."""

    def table(b: Builder, v: Value, spread: Value) -> Value:
        shape: list[Any] = [1] * x.type.rank
        op = spread.op
        dims = op.get("broadcast_dimensions") if op is not None and op.name == "neuron.broadcast_in_dim" else range(x.type.rank)
        for i, d in zip(dims, v.shape, strict=True):
            shape[i] = d
        return v if tuple(shape) == v.shape else b.reshape(v, out=TensorType(shape, v.dtype))

    def leaf(v: Value) -> Value:
        return v.op.operands[0] if v.op is not None and v.op.name == "neuron.broadcast_in_dim" else v

    return Proposal(root, [x, leaf(cos), leaf(sin)], lambda b, x, c, s: b.rotary_embedding(x, table(b, c, cos), table(b, s, sin)))


# --- cross entropy ----------------------------------------------------------------------------------------------------


@proposes("cross_entropy", "take_along_axis", "gather")
def cross_entropy(op: Any) -> Iterator[Proposal]:
    """Class numbers against logits, from the pick of each target's log-probability onwards to the mean or the sum."""
    logs = made_by(op.x, "log_softmax")
    if logs is None:
        return
    target = through(op.operands[1])
    chosen = target.op if target.op is not None and target.op.name == "neuron.select" else None
    if chosen is not None:
        target = through(chosen.operands[2])
    for root in onwards(op, 8):
        for reduction in ("none", "sum", "mean"):
            yield Proposal(root, [logs.x, target], lambda b, x, t, r=reduction: b.cross_entropy(x, t, reduction=r))


# --- narrow floats ----------------------------------------------------------------------------------------------------

_ROUND_ONCE = (
    "softmax",
    "log_softmax",
    "layer_norm",
    "rms_norm",
    "group_norm",
    "gelu",
    "silu",
    "rotary_embedding",
    "cross_entropy",
)


@proposes("narrow", "cast")
def narrow(op: Any) -> Iterator[Proposal]:
    """A composite of widened inputs whose result is narrowed again is the composite of the narrow inputs itself."""
    made = made_by(op.x, *_ROUND_ONCE)
    if made is None or made.result is not op.x:
        return
    leaves = [v.op.operands[0] if v.op is not None and v.op.name == "neuron.cast" else v for v in made.operands]
    if not made.attrs.get("absent") and leaves != list(made.operands):
        yield Proposal(op, leaves, lambda b, *given: b.make(made.name, *given, **made.own_attrs))
