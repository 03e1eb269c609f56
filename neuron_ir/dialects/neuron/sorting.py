"""Sorting, with a comparator of one's own or by keys, and the largest elements."""

from __future__ import annotations

from typing import Any, NamedTuple

from neuron_ir.attrs import Dense
from neuron_ir.core import Block, Value
from neuron_ir.dtypes import BOOL as BOOL_TYPE
from neuron_ir.dtypes import I64
from neuron_ir.opdef import ANY, BOOL, REAL, Op, attr, op, operand, region, variadic
from neuron_ir.types import TensorType, same_shape

from .reduce import check_index
from .shapes import axis_of
from .windows import choose


class Key(NamedTuple):
    """One level of an order: the operand, the direction, and whether floats compare by total order (-NaN first, -0 before 0)."""

    operand: int
    descending: bool
    total: bool


# --- what order a comparator stands for -------------------------------------------------------------------------------


def order_of(comparator: Block) -> list[Key] | None:
    """The keys by which a comparator region orders, most significant first; ``None`` where it is no order by keys.

    Known are ``compare LT/GT`` of one operand's two elements and its lexicographic extension ``less or (equal and ...)``, each side
    possibly with -0 made 0 and all NaNs made one NaN, as JAX writes it.
    """
    end = comparator.last
    if end is None or end.name != "neuron.yield" or len(end.operands) != 1:
        return None
    return _order(end.operands[0], comparator)


def _order(value: Value, block: Block) -> list[Key] | None:
    op = value.op
    if op is None:
        return None
    if op.name == "neuron.compare" and op.get("direction") in ("LT", "GT"):
        key = _key(op, block)
        return [key] if key else None
    if op.name != "neuron.or":
        return None
    for less, rest in (op.operands, op.operands[::-1]):
        if rest.op is None or rest.op.name != "neuron.and":
            continue
        for equal, further in (rest.op.operands, rest.op.operands[::-1]):
            first, then = _order(less, block), _order(further, block)
            if first and then and len(first) == 1 and _is_equality(equal, less):
                return first + then
    return None


def _is_equality(equal: Value, less: Value) -> bool:
    """Whether ``equal`` compares for equality, in the same sense, the two values that ``less`` compares."""
    a, b = equal.op, less.op
    return (
        a is not None
        and b is not None
        and a.name == "neuron.compare"
        and a.get("direction") == "EQ"
        and a.get("compare_type") == b.get("compare_type")
        and a.operands == b.operands
    )


def _key(compare: Op, block: Block) -> Key | None:
    """The key that one comparison of two arguments stands for."""
    (left, clean_left), (right, clean_right) = map(_argument, compare.operands)
    if left is None or right is None or left.owner is not block or right.owner is not block or clean_left != clean_right:
        return None
    if left.index // 2 != right.index // 2 or left.index == right.index:
        return None
    descending = (compare.get("direction") == "GT") != (left.index % 2 == 1)
    total = left.dtype.is_float and compare.get("compare_type") == "TOTALORDER" and not clean_left
    return Key(left.index // 2, descending, total)


def _argument(value: Value) -> tuple[Value | None, bool]:
    """The block argument behind ``value``, and whether -0 and NaNs were made one on the way; ``None`` where it is anything else."""
    cleaned: dict[str, Value] = {}  # what was made one -> the value that was tested for it
    while (op := value.op) is not None:
        test = op.operands[0].op if op.name == "neuron.select" else None
        if test is None or test.name != "neuron.compare":
            return None, False
        source, other = test.operands
        if test.get("direction") == "EQ" and _is_zero(other) and _is_zero(op.operands[1]):
            cleaned["zero"] = source
        elif test.get("direction") == "NE" and other is source and _is_nan(op.operands[1]):
            cleaned["nan"] = source
        else:
            return None, False
        value = op.operands[2]
    if len(cleaned) == 1 or any(v is not value for v in cleaned.values()):
        return None, False
    return value, bool(cleaned)


def _item(value: Value) -> Any:
    """The number that a constant holds everywhere, else ``None``."""
    op = value.op
    dense = op.get("value") if op is not None and op.name == "neuron.constant" else None
    return dense.item if isinstance(dense, Dense) and dense.is_splat else None


def _is_zero(value: Value) -> bool:
    return bool(_item(value) == 0)


def _is_nan(value: Value) -> bool:
    item = _item(value)
    return bool(item != item)


# --- evaluation -------------------------------------------------------------------------------------------------------


def order_key(j: Any, x: Any, descending: bool, total: bool) -> Any:
    """Integers that stand in the order wanted of ``x``. Not ``total``: -0 equals 0, and NaNs are one value beyond infinity."""
    if x.dtype == bool:
        x = x.astype(j.np.uint8)
    if j.np.issubdtype(x.dtype, j.np.floating):
        if x.dtype.itemsize == 1:
            x = x.astype(j.np.float32)
        if not total:
            x = j.np.where(x == 0, j.np.zeros((), x.dtype), j.np.where(j.np.isnan(x), j.np.array(j.np.nan, x.dtype), x))
        bits = j.lax.bitcast_convert_type(x, j.np.dtype(f"int{x.dtype.itemsize * 8}"))
        x = j.np.where(bits < 0, bits ^ j.np.iinfo(bits.dtype).max, bits)
    return ~x if descending else x


def sort_by(j: Any, arrays: Any, keys: list[Key], axis: int) -> tuple[Any, ...]:
    """The arrays, sorted stably along ``axis`` by ``keys``."""
    if len(arrays) == 1 and not keys[0].descending and not keys[0].total and arrays[0].dtype != bool:
        return (j.lax.sort(arrays[0], axis, is_stable=True),)
    made = [order_key(j, arrays[k.operand], k.descending, k.total) for k in keys]
    return tuple(j.lax.sort([*made, *arrays], axis, is_stable=True, num_keys=len(made)))[len(made) :]


def sort_by_network(j: Any, arrays: Any, comparator: Any, axis: int) -> tuple[Any, ...]:
    """The arrays, sorted stably along ``axis`` by any comparator: a bitonic network, ``log2(n)**2 / 2`` steps of whole arrays."""
    moved = [j.np.moveaxis(x, axis, -1) for x in arrays]
    n = moved[0].shape[-1]
    if n < 2 or not moved[0].size:
        return tuple(arrays)
    full = 1 << (n - 1).bit_length()
    places = j.np.arange(full)
    steps = [(2 << i, 1 << k) for i in range(full.bit_length() - 1) for k in range(i, -1, -1)]
    state = [j.np.pad(x.reshape(-1, n), ((0, 0), (0, full - n)), mode="edge") for x in moved]
    state.append(j.np.broadcast_to(places, state[0].shape))
    compare = j.jax.vmap(lambda *xs: comparator(*xs)[0])

    def step(i, state):
        block, distance = j.np.array([s[0] for s in steps])[i], j.np.array([s[1] for s in steps])[i]
        other = [s[:, places ^ distance] for s in state]
        keep = precedes(state, other) == (((places & distance) == 0) == ((places & block) == 0))
        return [j.np.where(keep, a, b) for a, b in zip(state, other, strict=True)]

    def precedes(a, b):
        pairs = [v.reshape(-1) for pair in zip(a[:-1], b[:-1], strict=True) for v in pair]
        swapped = [v.reshape(-1) for pair in zip(b[:-1], a[:-1], strict=True) for v in pair]
        less, more = compare(*pairs).reshape(a[0].shape), compare(*swapped).reshape(a[0].shape)
        known = (a[-1] < n) & (b[-1] < n)
        return j.np.where(known & (less | more), less, a[-1] < b[-1])

    done = j.lax.fori_loop(0, len(steps), step, state)
    return tuple(j.np.moveaxis(s[:, :n].reshape(m.shape), -1, axis) for s, m in zip(done[:-1], moved, strict=True))


# --- the ops ----------------------------------------------------------------------------------------------------------


def _same_shapes(self: Op) -> list[TensorType]:
    """The operands' types; an error where their shapes differ."""
    if not self.operands:
        raise self.error("operand", "takes at least 1 operand(s), not 0")
    first = self.operands[0]
    for v in self.operands[1:]:
        if not same_shape(v.shape, first.shape):
            raise self.error("shape", f"operands of one shape are needed, not {first.type} and {v.type}")
    return [v.type for v in self.operands]


def _pair_types(op: Op) -> list[TensorType]:
    return [v.type.with_shape(()) for v in op.operands for _ in range(2)]


@op("neuron.sort")
class Sort(Op):
    """Sorts several operands together along ``dimension`` by ``comparator``, stably.

    ``comparator`` takes two elements of each operand (the first operand's two, then the second's ...) and yields whether the former
    comes first. ``is_stable`` says whether equals must keep their order; they always do.
    """

    inputs = variadic(ANY)
    dimension = attr(int, -1)
    is_stable = attr(bool, False)
    comparator = region(_pair_types, lambda op: [TensorType((), BOOL_TYPE)])

    def infer(self):
        types = _same_shapes(self)
        axis_of(self, self.dimension, types[0].rank)
        return types

    def jax(j, *inputs, dimension, is_stable, comparator):
        axis = dimension % inputs[0].ndim
        keys = order_of(comparator.block)
        return sort_by(j, inputs, keys, axis) if keys else sort_by_network(j, inputs, comparator, axis)


@op("neuron.sort_by_key")
class SortByKey(Op):
    """Sorts several operands together along ``dimension`` by the first ``num_keys`` of them, most significant first, stably.

    -0 equals 0; NaN is larger than everything, so it comes last, or first with ``descending``. Equals keep their order either way.
    """

    inputs = variadic(ANY)
    dimension = attr(int, -1)
    num_keys = attr(int, 1)
    descending = attr(bool, False)

    def infer(self):
        types = _same_shapes(self)
        axis_of(self, self.dimension, types[0].rank)
        if not 1 <= self.num_keys <= len(types):
            raise self.error("attr", f"num_keys = {self.num_keys} of {len(types)} operand(s)")
        for t in types[: self.num_keys]:
            if t.dtype.is_complex:
                raise self.error("operand", f"complex numbers have no order: key of type {t}")
        return types

    def jax(j, *inputs, dimension, num_keys, descending):
        return sort_by(j, inputs, [Key(i, descending, False) for i in range(num_keys)], dimension % inputs[0].ndim)


@op("neuron.argsort")
class Argsort(Op):
    """The indices that sort along ``dimension``, stably; order as in sort_by_key. The integer type may be chosen (default i64)."""

    x = operand(REAL | BOOL)
    dimension = attr(int, -1)
    descending = attr(bool, False)

    def infer(self):
        type = self.x.type
        axis = axis_of(self, self.dimension, type.rank)
        result = choose(self, type.shape, I64)
        check_index(self, result.dtype, [type.shape[axis]])
        return result

    def jax(j, x, *, dimension, descending, out):
        axis = dimension % x.ndim
        places = j.lax.broadcasted_iota(out.dtype.numpy, x.shape, axis)
        return j.lax.sort([order_key(j, x, descending, False), places], axis, is_stable=True, num_keys=1)[1]


@op("neuron.top_k", aten="topk.default")
class TopK(Op):
    """The ``k`` largest (or smallest) elements along ``axis``, best first, and their indices; of equals the first comes first.

    NaN counts as larger than everything, -0 equals 0; with ``total_order`` (JAX) floats compare by IEEE 754's total order instead:
    -NaN below -inf, -0 below 0, NaN above inf. ``sorted`` says whether the order matters; it is kept either way. The integer type
    of the indices may be chosen (default i64).
    """

    x = operand(REAL | BOOL)
    k = attr(int)
    axis = attr(int, -1)
    largest = attr(bool, True)
    sorted = attr(bool, True)
    total_order = attr(bool, False)

    def infer(self):
        type = self.x.type
        axis = axis_of(self, self.axis, type.rank)
        size = type.shape[axis]
        if self.k < 0 or (isinstance(size, int) and self.k > size):
            raise self.error("shape", f"k = {self.k} elements of {size} along axis {axis} of {type}")
        shape = [self.k if i == axis else d for i, d in enumerate(type.shape)]
        indices = choose(self, shape, I64, 1)
        check_index(self, indices.dtype, [size])
        return choose(self, shape, type.dtype), indices

    def check(self):
        if self.results[0].dtype is not self.x.dtype:
            raise self.error("type", f"the values are of the operand's {self.x.dtype}, not {self.results[0].dtype}")

    def jax(j, x, *, k, axis, largest, sorted, total_order, out):
        last = j.np.moveaxis(x, axis, -1)
        if j.np.issubdtype(x.dtype, j.np.floating) and x.dtype.itemsize <= 4 and (largest or not total_order):
            wide = last.astype(j.np.float32)
            indices = j.lax.top_k(wide, k)[1] if total_order else _top_floats(j, wide, k, largest)
        else:
            key = order_key(j, last, largest, total_order)
            indices = j.lax.sort([key, j.lax.broadcasted_iota(j.np.int64, last.shape, last.ndim - 1)], is_stable=True, num_keys=1)[
                1
            ]
            indices = indices[..., :k]
        values = j.np.take_along_axis(last, indices, -1)
        return j.np.moveaxis(values, -1, axis), j.np.moveaxis(indices.astype(out[1].dtype.numpy), -1, axis)


def _top_floats(j, x, k, largest):
    """Indices by JAX's own top_k, which compares f32 by total order: NaNs get the sign and zeros the form that this order needs."""
    x = x if largest else -x
    x = j.np.where(x == 0, j.np.float32(0), x)
    nan = j.lax.bitcast_convert_type(j.np.uint32(0x7FC00000 if largest else 0xFFC00000), j.np.float32)
    return j.lax.top_k(j.np.where(j.np.isnan(x), nan, x), k)[1]
