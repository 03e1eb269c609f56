"""Operations whose result's size the data decide: it is counted and bound to torch's symbol for it."""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.broadcasting import broadcast_dims
from neuron_ir.dialects.neuron.shapes import product as size_of
from neuron_ir.dims import DimLike
from neuron_ir.dtypes import BOOL, F64, I64
from neuron_ir.frontends.torch.aten.indexing import columns, flat, ranked, true_places
from neuron_ir.frontends.torch.aten.views import part_at, section
from neuron_ir.frontends.torch.lowering import Context, axis_of, lowers
from neuron_ir.types import TensorType

# --- numbers ----------------------------------------------------------------------------------------------------------


@lowers("item.default", "_local_scalar_dense.default")
def item(c: Context, x: Value) -> Any:
    """A float or a truth value stays a tensor of rank 0; an integer becomes a size, which may be negative."""
    kind = type(c.node.meta.get("val")).__name__
    x = c.reshape(x, ())
    if kind == "SymFloat":
        return c.cast(x, F64)
    if kind == "SymInt":
        return c.bind_size(c.cast(x, I64), c.symbols.dim(c.node.meta["val"]), signed=True)
    if kind == "SymBool" and x.dtype is BOOL:  # torch calls it "is the number u0 equal to 1"
        for symbol in c.node.meta["val"].node.expr.free_symbols:
            c.bind_size(c.cast(x, I64), c.symbols.expression(symbol))
        return x
    raise c.unsupported(f"a Python number of {x.type}")


# --- places of what is true -------------------------------------------------------------------------------------------


def places(c: Context, mask: Value, size: DimLike) -> Value:
    """Where a vector of truth values is true, as a vector of that size; its size is bound to ``size``."""
    (column,) = columns(c, true_places(c, mask, size))
    return column


@lowers("nonzero.default", "argwhere.default")
def nonzero(c: Context, x: Value) -> Value:
    return true_places(c, x, c.out.shape[0])


@lowers("nonzero_numpy.default", "where.default")
def nonzero_columns(c: Context, x: Value) -> tuple[Value, ...]:
    return columns(c, true_places(c, ranked(c, x), c.out.shape[0]))


@lowers("masked_select.default")
def masked_select(c: Context, x: Value, mask: Value) -> Value:
    shape = broadcast_dims(x.shape, mask.shape)
    assert shape is not None  # torch has checked it
    if shape != x.shape:  # torch takes the elements of x for the most that there can be, before the mask spreads them
        c.symbols.widen(c.out.shape[0], size_of(x.shape), size_of(shape))
    x, mask = flat(c, c.broadcast(x, shape)), flat(c, c.broadcast(c.cast(mask, BOOL), shape))
    return c.b.take(x, places(c, mask, c.out.shape[0]), axis=0)


# --- elements that occur ----------------------------------------------------------------------------------------------


@lowers("_unique2.default", "_unique.default")
def unique(c: Context, x: Value, sorted: bool = True, inverse: bool = False, counts: bool = False) -> tuple[Any, ...]:
    values = flat(c, x)
    order = c.b.argsort(values, dimension=0)
    found = _groups(c, c.b.take(values, order, axis=0), 0, order, inverse, counts)
    return (found[0], c.reshape(found[1], x.shape) if inverse else None, found[2])[: 2 + counts]


@lowers("unique_consecutive.default")
def unique_consecutive(
    c: Context, x: Value, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> tuple[Any, ...]:
    if dim is not None:
        return _groups(c, x, axis_of(dim, len(x.shape)), None, inverse, counts)
    found = _groups(c, flat(c, x), 0, None, inverse, counts)
    return found[0], c.reshape(found[1], x.shape) if inverse else None, found[2]


@lowers("unique_dim.default")
def unique_dim(c: Context, x: Value, dim: int, sorted: bool = True, inverse: bool = False, counts: bool = False) -> tuple[Any, ...]:
    axis = axis_of(dim, len(x.shape))
    order = _order_of_slices(c, x, axis)
    return _groups(c, c.b.take(x, order, axis=axis), axis, order, inverse, counts)


@lowers("unique_dim_consecutive.default")
def unique_dim_consecutive(c: Context, x: Value, dim: int, inverse: bool = False, counts: bool = False) -> tuple[Any, ...]:
    return _groups(c, x, axis_of(dim, len(x.shape)), None, inverse, counts)


def _rows(c: Context, x: Value, axis: int) -> Value:
    """The slices along ``axis`` as the rows of a matrix."""
    order = [axis, *(d for d in range(len(x.shape)) if d != axis)]
    moved = c.b.transpose(x, permutation=order) if axis else x
    return c.reshape(moved, (x.shape[axis], size_of(moved.shape[1:])))


def _order_of_slices(c: Context, x: Value, axis: int) -> Value:
    """The places of the slices along ``axis`` in lexicographic order: sorted stably by each element, the last first."""
    rows = _rows(c, x, axis)
    n, width = rows.shape
    start = c.b.iota(iota_dimension=0, out=TensorType((n,), I64))
    if not isinstance(width, int):
        raise c.unsupported(f"slices of the symbolic size {width}")
    if width < 2:
        return c.b.argsort(c.reshape(rows, (n,)), dimension=0) if width else start
    elements = c.b.reverse(c.b.transpose(rows, permutation=(1, 0)), dimensions=(0,))

    def step(b: Any, order: Value, element: Value) -> Value:
        return b.take(order, b.argsort(b.take(element, order, axis=0), dimension=0), axis=0)

    return c.b.scan(start, elements, num_carry=1, length=width, body=step)


def _groups(c: Context, x: Value, axis: int, order: Value | None, inverse: bool, counts: bool) -> tuple[Any, ...]:
    """One of each run of equal slices along ``axis``, the run of each slice (before ``order`` sorted them), the runs' lengths."""
    rows, b = _rows(c, x, axis), c.b
    n = rows.shape[0]
    zero, one = c.scalar(0, I64, (n,)), c.scalar(1, I64, (n,))
    place = b.iota(iota_dimension=0, out=zero.type)
    before = b.take(rows, b.maximum(b.subtract(place, one), zero), axis=0, policy="clamp")
    other = b.reduce_or(b.compare(rows, before, direction="NE"), axes=(1,))
    starts = b.or_(other, b.compare(place, zero, direction="EQ"))
    first = places(c, starts, c.out.shape[axis])
    run = lengths = None
    if inverse:
        run = b.subtract(b.cumsum(c.cast(starts, I64), axis=0), one)
        if order is not None:
            run = b.index_put(zero, run, order, dims=(0,))
    if counts:
        size = first.shape[0]
        ends = b.concatenate(first, c.scalar(n, I64, (1,)), dimension=0)
        lengths = b.subtract(section(c, ends, 0, 1, size + 1), first)
    return b.take(x, first, axis=axis), run, lengths


# --- lengths ----------------------------------------------------------------------------------------------------------


def _check_not_negative(c: Context, x: Value) -> None:
    c.require(c.b.compare(x, c.scalar(0, x.dtype, x.shape), direction="GE"), f"a number in {x.type} is negative")


@lowers("bincount.default")
def bincount(c: Context, x: Value, weights: Value | None = None, minlength: int = 0) -> Value:
    x = flat(c, c.cast(x, I64))
    _check_not_negative(c, x)
    most = c.b.reduce_max(c.b.concatenate(x, c.scalar(minlength - 1, I64, (1,)), dimension=0), axes=(0,))
    size = c.bind_size(c.b.add(most, c.scalar(1, I64)), c.out.shape[0])
    ones = c.scalar(1, c.out.dtype, x.shape) if weights is None else c.cast(flat(c, weights), c.out.dtype)
    return c.b.scatter_elements(c.scalar(0, c.out.dtype, (size,)), x, ones, axis=0, mode="add")


@lowers("repeat_interleave.Tensor")
def repeated_places(c: Context, repeats: Value, *, output_size: Any = None) -> Value:
    return _repeated_places(c, repeats, c.out.shape[0])


def _repeated_places(c: Context, repeats: Value, size: DimLike) -> Value:
    """The place of each number, as often as the number says."""
    b, repeats = c.b, c.cast(repeats, I64)
    shape = repeats.shape
    _check_not_negative(c, repeats)
    size = c.bind_size(b.reduce_sum(repeats, axes=(0,)), size)
    starts = b.subtract(b.cumsum(repeats, axis=0), repeats)
    marks = b.scatter_elements(c.scalar(0, I64, (size,)), starts, c.scalar(1, I64, shape), axis=0, mode="add", policy="drop")
    return b.subtract(b.cumsum(marks, axis=0), c.scalar(1, I64, (size,)))


@lowers("repeat_interleave.self_Tensor")
def repeat_interleave(c: Context, x: Value, repeats: Value, dim: int | None = None, *, output_size: Any = None) -> Value:
    axis = axis_of(dim or 0, len(x.shape))
    x = flat(c, x) if dim is None else ranked(c, x)
    repeats = c.broadcast(ranked(c, repeats), (x.shape[axis],))
    return c.b.take(x, _repeated_places(c, repeats, c.out.shape[axis]), axis=axis)


@lowers("tensor_split.tensor_indices_or_sections")
def tensor_split(c: Context, x: Value, cuts: Value, dim: int = 0) -> tuple[Value, ...]:
    """The parts between the places ``cuts``. Negative ones count from the end; a part that would end before it begins is empty."""
    axis, b = axis_of(dim, len(x.shape)), c.b
    if len(cuts.shape) != 1:
        raise c.unsupported("a number of parts that depends on the data")
    size, zero = c.size_as_value(x.shape[axis]), c.scalar(0, I64)
    cuts = c.cast(cuts, I64)
    bounds = [zero]
    for i in range(len(c.outs) - 1):
        cut = c.reshape(section(c, cuts, 0, i, i + 1), ())
        cut = b.select(b.compare(cut, zero, direction="LT"), b.add(cut, size), cut)
        bounds.append(b.minimum(b.maximum(cut, zero), size))
    lengths = [b.maximum(b.subtract(end, start), zero) for start, end in zip(bounds, [*bounds[1:], size], strict=True)]
    sizes = [c.bind_size(n, type.shape[axis]) for n, type in zip(lengths, c.outs, strict=True)]
    return tuple(part_at(c, x, axis, start, n) for start, n in zip(bounds, sizes, strict=True))
