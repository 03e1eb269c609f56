"""Gather, scatter and advanced indexing. An index out of range stops the program, as in torch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.broadcasting import broadcast_dims
from neuron_ir.dialects.neuron.shapes import product as size_of
from neuron_ir.dims import DimLike
from neuron_ir.dtypes import BOOL, I64, U8
from neuron_ir.frontends.torch.aten.views import section, transposed
from neuron_ir.frontends.torch.lowering import Context, axis_of, lowers
from neuron_ir.types import TensorType


def flat(c: Context, x: Value) -> Value:
    """All elements in one dim, row-major."""
    return c.reshape(x, (size_of(x.shape),))


def ranked(c: Context, x: Value) -> Value:
    """``x`` with at least one dim: a scalar counts as a vector of one."""
    return x if x.shape else c.reshape(x, (1,))


def true_places(c: Context, x: Value, size: DimLike | None = None) -> Value:
    """The coordinates of the elements that are not 0, one row each. Their number is bound to ``size`` or to a symbol of its own."""
    mask = c.cast(x, BOOL)
    count = c.b.reduce_sum(c.cast(flat(c, mask), I64), axes=(0,))
    return c.b.nonzero(mask, size=c.bind_size(count, size, most=size_of(x.shape)))


def columns(c: Context, rows: Value) -> tuple[Value, ...]:
    """The columns of a matrix as vectors."""
    return tuple(c.reshape(section(c, rows, 1, i, i + 1), (rows.shape[0],)) for i in range(rows.type.shape[1]))


# --- reading ----------------------------------------------------------------------------------------------------------


@lowers("index.Tensor", "_unsafe_index.Tensor")
def index(c: Context, x: Value, indices: Sequence[Value | None]) -> Value:
    dims, given = _indexed(c, indices, reads=True)
    if _is_one_place(c, given):
        sizes = [1 if i == dims[0] else d for i, d in enumerate(x.shape)]
        return c.b.dynamic_slice(x, *_starts(c, x, dims[0], given[0]), slice_sizes=sizes, policy="wrap")  # type: ignore[no-any-return]
    return c.b.index(x, *given, dims=dims, policy=_policy(c)) if dims else x


def _policy(c: Context) -> str:
    """What an index out of range does: torch's unsafe forms are those that need not look."""
    return "wrap" if "unsafe" in str(c.node.target) else "wrap_raise"


def _is_one_place(c: Context, given: Sequence[Value]) -> bool:
    """Whether an unsafe form names one slice, which is one piece of memory and needs no gather or scatter."""
    return _policy(c) == "wrap" and len(given) == 1 and given[0].shape == (1,)


def _starts(c: Context, x: Value, dim: int, place: Value) -> list[Value]:
    """Where the slice at a place along ``dim`` begins."""
    at = c.reshape(c.cast(place, I64), ())
    return [at if i == dim else c.scalar(0, I64) for i in range(len(x.shape))]


def _indexed(c: Context, indices: Sequence[Value | None], reads: bool = False) -> tuple[list[int], list[Value]]:
    """The indexed dims and their indices. A mask stands for the coordinates of its true elements, one index for each of its dims.

    ``reads``: the number of those is a size of the result.
    """
    dims: list[int] = []
    masks, d = 0, 0
    for v in indices:
        is_mask = v is not None and v.dtype in (BOOL, U8)
        wide = len(v.shape) if is_mask and v is not None else 1
        dims += range(d, d + wide) if v is not None else ()
        masks, d = masks + is_mask, d + wide
    size = None
    if masks and reads and dims:
        front = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
        rank = max(1 if v.dtype in (BOOL, U8) else len(v.shape) for v in indices if v is not None)
        size = c.out.shape[front + rank - 1]
    given: list[Value] = []
    for v in indices:
        if v is not None:
            given += columns(c, true_places(c, v, size)) if v.dtype in (BOOL, U8) else (v,)
    return dims, given


@lowers("index_select.default")
def index_select(c: Context, x: Value, dim: int, indices: Value) -> Value:
    taken = c.b.take(ranked(c, x), ranked(c, indices), axis=axis_of(dim, len(x.shape)))
    return c.reshape(taken, c.out.shape)


@lowers("gather.default")
def gather(c: Context, x: Value, dim: int, indices: Value, *, sparse_grad: bool = False) -> Value:
    if size_of(indices.shape) == 0:
        return c.scalar(0, x.dtype, c.out.shape)
    x, indices = ranked(c, x), ranked(c, indices)
    return c.reshape(c.b.take_along_axis(x, indices, axis=axis_of(dim, len(x.shape))), c.out.shape)


@lowers("take_along_dim.default")
def take_along_dim(c: Context, x: Value, indices: Value, dim: int | None = None) -> Value:
    if dim is None:
        x, indices, dim = flat(c, x), flat(c, indices), 0
    axis = axis_of(dim, len(x.shape))
    shape = broadcast_dims(
        [1 if i == axis else d for i, d in enumerate(x.shape)], [1 if i == axis else d for i, d in enumerate(indices.shape)]
    )
    assert shape is not None  # torch has checked it
    x, indices = (c.broadcast(v, [v.shape[i] if i == axis else d for i, d in enumerate(shape)]) for v in (x, indices))
    return c.b.take_along_axis(x, indices, axis=axis, policy="wrap_raise")


@lowers("take.default")
def take(c: Context, x: Value, indices: Value) -> Value:
    return c.b.take(flat(c, x), indices, axis=0, policy="wrap_raise")


# --- writing ----------------------------------------------------------------------------------------------------------


@lowers("index_put.default", "_unsafe_index_put.default")
def index_put(c: Context, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    values = c.cast(values, x.dtype)
    given = [v for v in indices if v is not None]
    if not given:
        return c.b.add(x, c.broadcast(values, x.shape)) if accumulate else c.broadcast(values, x.shape)
    if len(given) == 1 and given[0].dtype in (BOOL, U8):
        return _masked_put(
            c, x, c.cast(given[0], BOOL), next(d for d, v in enumerate(indices) if v is not None), values, accumulate
        )
    dims, given = _indexed(c, indices)
    if _is_one_place(c, given) and not accumulate:
        part = c.broadcast(values, [1 if i == dims[0] else d for i, d in enumerate(x.shape)])
        return c.b.dynamic_update_slice(x, part, *_starts(c, x, dims[0], given[0]), policy="wrap")  # type: ignore[no-any-return]
    return c.b.index_put(x, values, *given, dims=dims, accumulate=accumulate, policy=_policy(c))


def _masked_put(c: Context, x: Value, mask: Value, before: int, values: Value, accumulate: bool) -> Value:
    """``x[:, mask] = values`` with ``before`` dims in front of the mask: the k-th true place takes the k-th of the values."""
    k = len(mask.shape)
    count = size_of(mask.shape)
    wide = c.reshape(x, (*x.shape[:before], count, *x.shape[before + k :]))
    places, mask = _running_place(c, mask)
    extra = len(wide.shape) - len(values.shape)
    if extra > before or values.shape[before - extra] == 1:
        new = c.broadcast(values, wide.shape)
    else:
        new = c.b.take(values, places, axis=before - extra, policy="raise")
        new = c.broadcast(new, wide.shape)
    where = c.b.broadcast_in_dim(mask, broadcast_dimensions=(before,), out=TensorType(wide.shape, BOOL))
    new = c.b.add(wide, new) if accumulate else new
    return c.reshape(c.b.select(where, new, wide), x.shape)


def _running_place(c: Context, mask: Value) -> tuple[Value, Value]:
    """For each element of the flattened mask how many true ones stand before it (0 where it is false), and the flattened mask."""
    mask = flat(c, mask)
    b, shape = c.b, mask.shape
    counted = b.cumsum(c.cast(mask, I64), axis=0)
    return b.select(mask, b.subtract(counted, c.scalar(1, I64, shape)), c.scalar(0, I64, shape)), mask


@lowers("masked_scatter.default")
def masked_scatter(c: Context, x: Value, mask: Value, source: Value) -> Value:
    shape = c.out.shape
    if mask.dtype is not BOOL:
        raise c.unsupported(f"a mask of {mask.dtype}; torch takes bool")
    x, mask, source = c.broadcast(x, shape), c.broadcast(mask, shape), flat(c, source)
    if source.shape[0] == 0:
        c.require(c.b.not_(mask), "a true element of the mask, and nothing to take for it")
        return x
    places, mask = _running_place(c, c.cast(mask, BOOL))
    taken = c.b.take(source, places, axis=0)
    return c.reshape(c.b.select(mask, taken, flat(c, x)), shape)


_MODES = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amin": "amin", "amax": "amax", "mean": "mean"}


def _scattered(c: Context, x: Value, dim: int, indices: Value, source: Any, mode: str = "none", include_self: bool = True) -> Value:
    """torch's scatter family; a scalar counts as a vector of one, and without indices nothing changes."""
    if size_of(indices.shape) == 0:
        return x
    shape, dtype = x.shape, x.dtype
    x, indices = ranked(c, x), ranked(c, indices)
    source = ranked(c, c.cast(source, dtype)) if isinstance(source, Value) else c.scalar(source, dtype, indices.shape)
    wide = dtype.accumulator if mode in ("add", "mul", "mean") else dtype
    y = c.b.scatter_elements(
        c.cast(x, wide), indices, c.cast(source, wide), axis=axis_of(dim, len(x.shape)), mode=mode, include_self=include_self
    )
    return c.reshape(c.cast(y, dtype), shape)


@lowers("scatter.src", "scatter.value")
def scatter(c: Context, x: Value, dim: int, indices: Value, source: Any) -> Value:
    return _scattered(c, x, dim, indices, source)


@lowers("scatter_add.default")
def scatter_add(c: Context, x: Value, dim: int, indices: Value, source: Value) -> Value:
    return _scattered(c, x, dim, indices, source, "add")


@lowers("scatter.reduce", "scatter.value_reduce")
def scatter_by(c: Context, x: Value, dim: int, indices: Value, source: Any, *, reduce: str) -> Value:
    return _scattered(c, x, dim, indices, source, _MODES[reduce])


@lowers("scatter_reduce.two")
def scatter_reduce(
    c: Context, x: Value, dim: int, indices: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:  # fmt: skip
    return _scattered(c, x, dim, indices, source, _MODES[reduce], include_self)


# --- writing slices ---------------------------------------------------------------------------------------------------


@lowers("index_add.default")
def index_add(c: Context, x: Value, dim: int, indices: Value, source: Value, *, alpha: Any = 1) -> Value:
    if alpha != 1:
        source = c.b.multiply(source, c.scalar(alpha, source.dtype, source.shape))
    wide = x.dtype.accumulator
    return c.cast(_slices_put(c, c.cast(x, wide), dim, indices, c.cast(source, wide), accumulate=True), x.dtype)


@lowers("index_copy.default")
def index_copy(c: Context, x: Value, dim: int, indices: Value, source: Value) -> Value:
    return _slices_put(c, x, dim, indices, c.cast(source, x.dtype))


@lowers("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(c: Context, x: Value, dim: int, indices: Value, value: Any) -> Value:
    return _slices_put(c, x, dim, indices, c.scalar(value, x.dtype))


def _slices_put(c: Context, x: Value, dim: int, indices: Value, source: Value, accumulate: bool = False) -> Value:
    """The slices of ``x`` along ``dim`` at a vector of indices replaced by (or added to) those of ``source``."""
    shape = x.shape
    x, indices = ranked(c, x), ranked(c, indices)
    if source.shape and len(source.shape) != len(x.shape):
        source = c.reshape(source, (1,) * len(x.shape))
    put = c.b.index_put(x, source, indices, dims=(axis_of(dim, len(x.shape)),), accumulate=accumulate)
    return c.reshape(put, shape)


@lowers("index_reduce.default")
def index_reduce(
    c: Context, x: Value, dim: int, indices: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:  # fmt: skip
    shape, x, source = x.shape, ranked(c, x), ranked(c, source)
    axis = axis_of(dim, len(x.shape))
    along = c.reshape(indices, [size_of(indices.shape) if i == axis else 1 for i in range(len(x.shape))])
    return c.reshape(_scattered(c, x, axis, c.broadcast(along, source.shape), source, _MODES[reduce], include_self), shape)


@lowers("put.default")
def put(c: Context, x: Value, indices: Value, source: Value, accumulate: bool = False) -> Value:
    written = c.b.index_put(flat(c, x), flat(c, source), flat(c, indices), dims=(0,), accumulate=accumulate)
    return c.reshape(written, x.shape)


@lowers("diagonal_scatter.default")
def diagonal_scatter(c: Context, x: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    n = len(x.shape)
    order = [*(d for d in range(n) if d not in (axis_of(dim1, n), axis_of(dim2, n))), axis_of(dim1, n), axis_of(dim2, n)]
    moved = transposed(c, x, order)
    places = c.b.iota(iota_dimension=0, out=TensorType(source.shape[-1:], I64))
    shifted = c.b.add(places, c.scalar(abs(offset), I64, places.shape))
    rows, columns = (shifted, places) if offset < 0 else (places, shifted)
    written = c.b.index_put(moved, c.cast(source, x.dtype), rows, columns, dims=(n - 2, n - 1))
    return transposed(c, written, [order.index(d) for d in range(n)])


# --- memory as it lies ------------------------------------------------------------------------------------------------


def _memory(c: Context, x: Value) -> tuple[Value, list[int]]:
    """The elements of ``x`` in the order in which torch has them in memory, and the order of dims that leads there."""
    fake = c.node.args[0].meta["val"]
    strides, sizes = fake.stride(), fake.shape
    order = sorted(range(len(sizes)), key=lambda d: (-strides[d], d))
    step = 1
    for d in reversed(order):
        if sizes[d] != 1 and strides[d] != step:
            raise c.unsupported(f"a tensor of strides {list(strides)}, whose memory holds more than its elements")
        step *= sizes[d]
    return flat(c, transposed(c, x, order)), order


def _strided(c: Context, shape: Sequence[Any], strides: Sequence[Any], offset: Any, count: DimLike) -> Any:
    """The places in memory of each element, as an array."""
    import numpy

    start = c.node.args[0].meta["val"].storage_offset()
    numbers = [count, start, *shape, *strides, *(() if offset is None else (offset,))]
    if not all(isinstance(n, int) for n in numbers):
        raise c.unsupported("symbolic sizes")
    places = numpy.full(tuple(shape), 0 if offset is None else offset - start, "int64")
    for d, stride in enumerate(strides):
        places += (numpy.arange(shape[d]) * stride).reshape([-1 if i == d else 1 for i in range(len(shape))])
    if places.size and (places.min() < 0 or places.max() >= count):
        raise c.unsupported(f"places {places.min()} to {places.max()} of a tensor of {count} elements")
    return places


@lowers("as_strided.default", "as_strided_copy.default")
def as_strided(c: Context, x: Value, shape: Sequence[Any], strides: Sequence[Any], offset: Any = None) -> Value:
    memory, _ = _memory(c, x)
    places = _strided(c, shape, strides, offset, memory.shape[0])
    return c.b.take(memory, c.b.const(places, I64), axis=0, policy="clamp") if places.size else c.scalar(0, x.dtype, c.out.shape)


@lowers("as_strided_scatter.default")
def as_strided_scatter(
    c: Context, x: Value, source: Value, shape: Sequence[Any], strides: Sequence[Any], offset: Any = None
) -> Value:  # fmt: skip
    memory, order = _memory(c, x)
    places = _strided(c, shape, strides, offset, memory.shape[0])
    if len(set(places.reshape(-1).tolist())) != places.size:
        raise c.unsupported("strides by which several elements share one place: the order of the writes is undefined")
    written = c.b.index_put(memory, c.cast(source, x.dtype), c.b.const(places, I64), dims=(0,)) if places.size else memory
    stored = c.reshape(written, [x.shape[d] for d in order])
    return transposed(c, stored, [order.index(d) for d in range(len(order))])


@lowers("nonzero_static.default")
def nonzero_static(c: Context, x: Value, *, size: int, fill_value: int = -1) -> Value:
    """Coordinates of the elements that are not 0, in order, cut or filled up to ``size`` rows."""
    if not x.shape:
        return c.scalar(0, I64, c.out.shape)
    mask = c.cast(flat(c, x), BOOL)
    (count,) = c.sizes(mask)
    kept = min(size, count)
    first = section(c, c.b.argsort(c.b.not_(mask), dimension=0), 0, 0, kept)
    found = c.b.take(mask, first, axis=0, policy="clamp")
    columns: list[Value] = []
    for dims in itertools.accumulate(reversed(x.shape[1:] + (1,)), lambda a, b: a * b):
        columns.insert(0, c.b.divide(first, c.scalar(dims, I64, first.shape)))
    parts = []
    for column, d in zip(columns, x.shape, strict=True):
        place = c.b.remainder(column, c.scalar(d, I64, column.shape))
        parts.append(c.reshape(c.b.select(found, place, c.scalar(fill_value, I64, place.shape)), (kept, 1)))
    rows = c.b.concatenate(*parts, dimension=1)
    return c.b.pad(rows, c.scalar(fill_value, I64), edge_padding_low=(0, 0), edge_padding_high=(size - kept, 0))


@lowers("diff.default")
def diff(c: Context, x: Value, n: int = 1, dim: int = -1, prepend: Value | None = None, append: Value | None = None) -> Value:
    axis = axis_of(dim, len(x.shape))
    parts = [c.cast(v, c.out.dtype) for v in (prepend, x, append) if v is not None]
    x = c.b.concatenate(*parts, dimension=axis) if len(parts) > 1 else parts[0]
    for _ in range(n):
        size = x.shape[axis]
        if size == 0:
            break
        later, earlier = section(c, x, axis, 1, size), section(c, x, axis, 0, size - 1)
        x = c.b.compare(later, earlier, direction="NE") if x.dtype is BOOL else c.b.subtract(later, earlier)
    return x
