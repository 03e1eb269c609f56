"""Shape operations: the same elements under another shape, in another order, cut, joined or repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.shapes import product
from neuron_ir.dims import Dim, DimLike, function
from neuron_ir.dtypes import BOOL, I64
from neuron_ir.frontends.torch.lowering import Context, axes_of, axis_of, lowers
from neuron_ir.types import TensorType

# --- one shape for another --------------------------------------------------------------------------------------------


@lowers(
    "view.default", "reshape.default", "_unsafe_view.default", "_reshape_alias.default", "view_copy.default", "view_as.default",
    "reshape_as.default", "flatten.using_ints", "unflatten.int", "squeeze.default", "squeeze.dim", "squeeze.dims",
    "unsqueeze.default", "squeeze_copy.dim", "squeeze_copy.default", "squeeze_copy.dims", "unsqueeze_copy.default",
)  # fmt: skip
def reshape(c: Context, x: Value, *_shape: Any, **_options: Any) -> Value:
    return c.reshape(x, c.out.shape)


@lowers("expand.default", "expand_as.default", "expand_copy.default", "broadcast_to.default")
def expand(c: Context, x: Value, *_sizes: Any, **_options: Any) -> Value:
    return c.broadcast(x, c.out.shape)


@lowers("permute.default", "permute_copy.default")
def permute(c: Context, x: Value, dims: Sequence[int]) -> Value:
    return transposed(c, x, [axis_of(d, len(x.shape)) for d in dims])


def transposed(c: Context, x: Value, order: Sequence[int]) -> Value:
    """Dims in another order; the value itself where it is the same order."""
    return x if list(order) == list(range(len(x.shape))) else c.b.transpose(x, permutation=tuple(order))


@lowers("transpose.int", "swapaxes.default", "swapdims.default", "transpose_copy.int")
def transpose(c: Context, x: Value, first: int, second: int) -> Value:
    order = list(range(len(x.shape)))
    if order:
        i, j = axis_of(first, len(order)), axis_of(second, len(order))
        order[i], order[j] = j, i
    return transposed(c, x, order)


@lowers("t.default", "mT.default", "mH.default", "matrix_H.default", "adjoint.default", "t_copy.default")
def matrix_transpose(c: Context, x: Value) -> Value:
    if x.dtype.is_complex and str(c.node.target) in ("aten.mH.default", "aten.matrix_H.default", "aten.adjoint.default"):
        x = c.b.conj(x)
    n = len(x.shape)
    return x if n < 2 else transposed(c, x, [*range(n - 2), n - 1, n - 2])


@lowers("numpy_T.default")
def reversed_dims(c: Context, x: Value) -> Value:
    return transposed(c, x, list(reversed(range(len(x.shape)))))


@lowers("movedim.intlist", "movedim.int", "moveaxis.intlist", "moveaxis.int")
def movedim(c: Context, x: Value, source: Any, destination: Any) -> Value:
    n = len(x.shape)
    pairs = zip(*([axis_of(d, n) for d in ([s] if isinstance(s, int) else s)] for s in (source, destination)), strict=True)
    placed = {to: at for at, to in pairs}
    rest = iter([d for d in range(n) if d not in placed.values()])
    return transposed(c, x, [placed[i] if i in placed else next(rest) for i in range(n)])


# --- parts ------------------------------------------------------------------------------------------------------------


def section(c: Context, x: Value, axis: int, start: DimLike, end: DimLike, step: int = 1) -> Value:
    """``x[start:end:step]`` along one axis, bounds within the size."""
    if start == 0 and end == x.shape[axis] and step == 1:
        return x
    low = [start if i == axis else 0 for i in range(len(x.shape))]
    high = [end if i == axis else d for i, d in enumerate(x.shape)]
    strides = [step if i == axis else 1 for i in range(len(x.shape))] if step != 1 else ()
    return c.b.slice(x, start_indices=low, limit_indices=high, strides=strides)


def within(c: Context, bound: Any, size: DimLike, default: DimLike) -> DimLike:
    """A slice bound as torch reads it: negative ones count from the end, what lies outside moves to the edge."""
    if bound is None:
        return default
    if isinstance(bound, int) and isinstance(size, int):
        return min(max(bound + size if bound < 0 else bound, 0), size)
    if isinstance(bound, int):
        if bound == 0:
            return 0
        if bound >= 2**62:
            return size
        low, high = c.symbols.bounds(size)
        if bound < 0:
            return size + bound if low >= -bound else function("max", size + bound, 0)
        if low >= bound:
            return bound
        return size if high is not None and high <= bound else function("min", bound, size)
    if bound is size:
        return size
    return bound


@lowers("slice.Tensor", "slice_copy.Tensor")
def slice_(c: Context, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    axis = axis_of(dim, len(x.shape))
    if c.symbols.of_data(start) or c.symbols.of_data(end):
        return _slice_by_data(c, x, axis, 0 if start is None else start, x.shape[axis] if end is None else end, step)
    first, last = slice_bounds(c, x, axis, start, end, step)
    return section(c, x, axis, first, last, step)


def _slice_by_data(c: Context, x: Value, axis: int, start: DimLike, end: DimLike, step: int) -> Value:
    """``x[start:end:step]`` where the data decide a bound: bounds are moved into the size, and the result's size is counted."""
    b, size, zero = c.b, c.size_as_value(x.shape[axis]), c.scalar(0, I64)

    def inside(bound: DimLike) -> Value:
        value = c.size_as_value(min(bound, 2**62) if isinstance(bound, int) else bound)
        value = b.select(b.compare(value, zero, direction="LT"), b.add(value, size), value)
        return b.minimum(b.maximum(value, zero), size)  # type: ignore[no-any-return]

    first, last = inside(start), inside(end)
    length = b.divide(b.add(b.subtract(last, first), c.scalar(step - 1, I64)), c.scalar(step, I64))
    n = c.bind_size(b.maximum(length, zero), c.out.shape[axis])
    if step == 1:
        return part_at(c, x, axis, first, n)
    places = b.multiply(b.iota(iota_dimension=0, out=TensorType((n,), I64)), c.scalar(step, I64, (n,)))
    return b.take(x, b.add(places, c.broadcast(first, (n,))), axis=axis)  # type: ignore[no-any-return]


def part_at(c: Context, x: Value, axis: int, start: Value, size: DimLike) -> Value:
    """``size`` slices along one axis from a place that is a value; negative ones count from the end."""
    starts = [start if i == axis else c.scalar(0, I64) for i in range(len(x.shape))]
    return c.b.dynamic_slice(x, *starts, slice_sizes=_resized(x, axis, size), policy="wrap_raise")  # type: ignore[no-any-return]


def slice_bounds(c: Context, x: Value, axis: int, start: Any, end: Any, step: int) -> tuple[DimLike, DimLike]:
    """The bounds of a slice whose result has the size that torch computed (``c.out``)."""
    size = x.shape[axis]
    first, last = within(c, start, size, 0), within(c, end, size, size)
    if isinstance(first, int) and isinstance(last, int):
        return first, max(first, last)
    if step == 1 and str(c.node.target).startswith("aten.slice"):
        return first, first + c.out.shape[axis]  # torch knows from its guards which bound counts
    return first, last


@lowers("narrow.default", "narrow_copy.default")
def narrow(c: Context, x: Value, dim: int, start: Any, length: Any) -> Value:
    axis = axis_of(dim, len(x.shape))
    if isinstance(start, Value):
        return part_at(c, x, axis, c.cast(c.reshape(start, ()), I64), c.out.shape[axis])
    if c.symbols.of_data(start):
        return part_at(c, x, axis, c.size_as_value(start), c.out.shape[axis])
    first = start + x.shape[axis] if isinstance(start, int) and start < 0 else start
    return section(c, x, axis, first, first + c.out.shape[axis])


@lowers("select.int", "select_copy.int")
def select(c: Context, x: Value, dim: int, index: Any) -> Value:
    axis = axis_of(dim, len(x.shape))
    if c.symbols.of_data(index):
        return c.reshape(part_at(c, x, axis, c.size_as_value(index), 1), c.out.shape)
    first = at(x, axis, index)
    return c.reshape(section(c, x, axis, first, first + 1), c.out.shape)


def at(x: Value, axis: int, index: Any) -> DimLike:
    """An index counted from the front."""
    return x.shape[axis] + index if isinstance(index, int) and index < 0 else index


@lowers(
    "split.Tensor", "split.sizes", "split_with_sizes.default", "chunk.default", "tensor_split.sections", "tensor_split.indices",
    "unsafe_split.Tensor", "unsafe_split_with_sizes.default", "unsafe_chunk.default", "split_with_sizes_copy.default",
    "split_copy.Tensor",
)  # fmt: skip
def split(c: Context, x: Value, _sizes: Any, dim: int = 0) -> tuple[Value, ...]:
    axis, parts = axis_of(dim, len(x.shape)), []
    start: DimLike = 0
    for type in c.outs:
        parts.append(section(c, x, axis, start, start + type.shape[axis]))
        start = start + type.shape[axis]
    return tuple(parts)


@lowers("unbind.int", "unbind_copy.int")
def unbind(c: Context, x: Value, dim: int = 0) -> tuple[Value, ...]:
    axis = axis_of(dim, len(x.shape))
    return tuple(c.reshape(section(c, x, axis, i, i + 1), type.shape) for i, type in enumerate(c.outs))


@lowers("diagonal.default", "diagonal_copy.default")
def diagonal(c: Context, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    n = len(x.shape)
    first, second = axis_of(dim1, n), axis_of(dim2, n)
    moved = transposed(c, x, [*(d for d in range(n) if d not in (first, second)), first, second])
    length = TensorType(c.out.shape[-1:], I64)
    places = c.b.iota(iota_dimension=0, out=length)
    shifted = c.b.add(places, c.scalar(abs(offset), I64, length.shape)) if offset else places
    rows, columns = (shifted, places) if offset < 0 else (places, shifted)
    return c.b.index(moved, rows, columns, dims=(n - 2, n - 1), policy="clamp")


@lowers("unfold.default", "unfold_copy.default")
def unfold(c: Context, x: Value, dim: int, size: int, step: int) -> Value:
    axis = axis_of(dim, len(x.shape))
    if not x.shape:
        return c.reshape(x, c.out.shape)
    count = c.out.shape[axis]
    if not isinstance(count, int):
        raise c.unsupported("a symbolic number of windows")
    columns = [section(c, x, axis, i, i + (count - 1) * step + 1, step) for i in range(size)]
    return c.b.concatenate(*[c.reshape(v, (*v.shape, 1)) for v in columns], dimension=len(x.shape))


# --- joined and repeated ----------------------------------------------------------------------------------------------


@lowers("cat.default", "concat.default", "concatenate.default")
def cat(c: Context, parts: Sequence[Value], dim: int = 0) -> Value:
    # torch lets an empty vector stand among tensors of any rank
    kept = [p for p in parts if tuple(p.shape) != (0,)] or list(parts[:1])
    kept = [c.cast(p, c.out.dtype) for p in kept]
    return kept[0] if len(kept) == 1 else c.b.concatenate(*kept, dimension=axis_of(dim, len(kept[0].shape)))


@lowers("stack.default")
def stack(c: Context, parts: Sequence[Value], dim: int = 0) -> Value:
    axis = axis_of(dim, len(c.out.shape))
    one = [c.cast(c.reshape(p, (*p.shape[:axis], 1, *p.shape[axis:])), c.out.dtype) for p in parts]
    return one[0] if len(one) == 1 else c.b.concatenate(*one, dimension=axis)


@lowers("repeat.default", "tile.default")
def repeat(c: Context, x: Value, counts: Sequence[Any]) -> Value:
    shape = c.out.shape
    counts = [1] * (len(shape) - len(counts)) + list(counts)
    sizes = [1] * (len(shape) - len(x.shape)) + list(x.shape)
    if all(n == 1 or d == 1 for n, d in zip(counts, sizes, strict=True)):
        return c.broadcast(x, shape)
    pairs = list(zip(counts, sizes, strict=True))
    wide = tuple(v for pair in pairs for v in pair)
    flat = c.reshape(x, tuple(v for _, d in pairs for v in (1, d)))
    return c.reshape(c.broadcast(flat, wide), shape)


@lowers("repeat_interleave.self_int")
def repeat_interleave(c: Context, x: Value, count: int, dim: int | None = None, output_size: Any = None) -> Value:
    if dim is None:
        x, dim = c.reshape(x, (product(x.shape),)), 0
    axis = axis_of(dim, len(x.shape))
    apart = c.reshape(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
    wide = c.broadcast(apart, (*x.shape[: axis + 1], count, *x.shape[axis + 1 :]))
    return c.reshape(wide, c.out.shape)


@lowers("flip.default", "fliplr.default", "flipud.default")
def flip(c: Context, x: Value, dims: Sequence[int] | None = None) -> Value:
    if dims is None:
        dims = [1 if str(c.node.target) == "aten.fliplr.default" else 0]
    axes = axes_of(dims, len(x.shape)) if dims else ()
    return c.b.reverse(x, dimensions=axes) if axes else x


@lowers("roll.default")
def roll(c: Context, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    shape = x.shape
    if not dims:
        x, dims = c.reshape(x, (product(shape),)), [0]
    for shift, dim in zip(shifts, dims, strict=True):
        axis = axis_of(dim, len(x.shape))
        size = x.shape[axis]
        if not isinstance(size, int) and not 0 < abs(shift) <= c.symbols.bounds(size)[0]:
            raise c.unsupported(f"a roll by {shift} of the symbolic size {size}")
        cut = (
            (-shift) % size
            if isinstance(size, int) and size
            else 0
            if isinstance(size, int)
            else -shift
            if shift < 0
            else size - shift
        )
        if cut != 0:
            parts = section(c, x, axis, cut, size), section(c, x, axis, 0, cut)
            x = c.b.concatenate(*parts, dimension=axis)
    return c.reshape(x, shape)


# --- padding ----------------------------------------------------------------------------------------------------------


@lowers("constant_pad_nd.default")
def constant_pad(c: Context, x: Value, pad: Sequence[Any], value: Any = 0) -> Value:
    low, high = _edges(pad, len(x.shape))
    return c.b.pad(x, c.scalar(value, x.dtype), edge_padding_low=low, edge_padding_high=high)


def _edges(pad: Sequence[Any], rank: int) -> tuple[list[Any], list[Any]]:
    """torch lists (low, high) of the last dim first."""
    pairs = [(pad[2 * i], pad[2 * i + 1]) for i in range(len(pad) // 2)]
    pairs = [(0, 0)] * (rank - len(pairs)) + pairs[::-1]
    return [p[0] for p in pairs], [p[1] for p in pairs]


@lowers("pad.default")
def pad(c: Context, x: Value, pad: Sequence[Any], mode: str = "constant", value: Any = None) -> Value:
    if mode == "constant":
        return constant_pad(c, x, pad, 0 if value is None else value)
    return _mirror(c, x, pad, mode)


@lowers("reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default")
def reflection_pad(c: Context, x: Value, pad: Sequence[int]) -> Value:
    return _mirror(c, x, pad, "reflect")


@lowers("replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default")
def replication_pad(c: Context, x: Value, pad: Sequence[int]) -> Value:
    return _mirror(c, x, pad, "replicate")


def _mirror(c: Context, x: Value, pad: Sequence[int], mode: str) -> Value:
    for axis, (low, high) in enumerate(zip(*_edges(pad, len(x.shape)), strict=True)):
        if (low, high) != (0, 0):
            x = _mirrored(c, x, axis, low, high, mode)
    return x


def _mirrored(c: Context, x: Value, axis: int, low: int, high: int, mode: str) -> Value:
    size = x.shape[axis]
    if mode != "circular" and isinstance(size, int) and low * high < 0:  # what is cut off on one side still shows on the other
        import numpy

        at = numpy.arange(-low, size + high)
        at = numpy.clip(at, 0, size - 1) if mode == "replicate" else size - 1 - abs(size - 1 - abs(at))
        return c.b.take(x, c.b.const(at, I64), axis=axis, policy="clamp")
    x = section(c, x, axis, max(-low, 0), size + min(high, 0))
    low, high, size = max(low, 0), max(high, 0), x.shape[axis]
    if mode == "reflect":
        ends = [(1, 1 + low), (size - 1 - high, size - 1)]
    elif mode == "circular":
        ends = [(size - low, size), (0, high)]
    else:
        ends = [(0, 1), (size - 1, size)]
    parts = []
    for count, (start, end) in zip((low, high), ends, strict=True):
        part = section(c, x, axis, start, end) if count else None
        if part is not None and mode == "reflect":
            part = c.b.reverse(part, dimensions=(axis,))
        if part is not None and mode == "replicate":
            part = c.broadcast(part, [count if i == axis else d for i, d in enumerate(x.shape)])
        parts.append(part)
    joined = [p for p in (parts[0], x, parts[1]) if p is not None]
    return c.b.concatenate(*joined, dimension=axis) if len(joined) > 1 else x


# --- a part replaced --------------------------------------------------------------------------------------------------


@lowers("slice_scatter.default")
def slice_scatter(
    c: Context, x: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:  # fmt: skip
    axis = axis_of(dim, len(x.shape))
    first, last = slice_bounds(c, x, axis, start, end, step)
    source = c.cast(source, x.dtype)
    if step == 1:
        return replaced(c, x, c.broadcast(source, _resized(x, axis, last - first)), axis, first)
    if not (isinstance(first, int) and isinstance(x.shape[axis], int)):
        raise c.unsupported(f"a step of {step} along a symbolic size")
    return _every(c, x, source, axis, first, last, step)


def _resized(x: Value, axis: int, size: DimLike) -> list[DimLike]:
    return [size if i == axis else d for i, d in enumerate(x.shape)]


def _every(c: Context, x: Value, source: Value, axis: int, first: int, last: Any, step: int) -> Value:
    """Every ``step``-th slice replaced: the new ones are spread by interior padding, and a mask picks them."""
    size, count = x.shape[axis], (last - first + step - 1) // step
    if not count:
        return x
    low = [first if i == axis else 0 for i in range(len(x.shape))]
    high = [size - first - (count - 1) * step - 1 if i == axis else 0 for i in range(len(x.shape))]
    inside = [step - 1 if i == axis else 0 for i in range(len(x.shape))]
    edges = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": inside}
    shape = _resized(x, axis, count)
    spread = c.b.pad(c.broadcast(source, shape), c.scalar(0, x.dtype), **edges)
    mask = c.b.pad(c.scalar(True, BOOL, shape), c.scalar(False, BOOL), **edges)
    return c.b.select(mask, spread, x)


def replaced(c: Context, x: Value, part: Value, axis: int, start: DimLike) -> Value:
    """``x`` with ``part`` in place of as many slices from ``start`` on."""
    size = x.shape[axis]
    if start == 0 and part.shape[axis] == size:
        return part
    end = start + part.shape[axis]
    before = section(c, x, axis, 0, start) if start != 0 else None
    after = section(c, x, axis, end, size) if end != size else None
    return c.b.concatenate(*[p for p in (before, part, after) if p is not None], dimension=axis)


@lowers("select_scatter.default")
def select_scatter(c: Context, x: Value, source: Value, dim: int, index: Any) -> Value:
    axis = axis_of(dim, len(x.shape))
    part = c.broadcast(c.cast(source, x.dtype), [d for i, d in enumerate(x.shape) if i != axis])
    return replaced(c, x, c.reshape(part, _resized(x, axis, 1)), axis, at(x, axis, index))


@lowers("copy.default")
def copy(c: Context, x: Value, source: Value, _non_blocking: bool = False) -> Value:
    return c.broadcast(c.cast(source, c.out.dtype), c.out.shape)


# --- pixels and channels ----------------------------------------------------------------------------------------------


@lowers("pixel_shuffle.default")
def pixel_shuffle(c: Context, x: Value, factor: int) -> Value:
    *lead, channels, height, width = x.shape
    n = len(lead)
    split = c.reshape(x, (*lead, channels // factor**2, factor, factor, height, width))
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    return c.reshape(transposed(c, split, order), c.out.shape)


@lowers("pixel_unshuffle.default")
def pixel_unshuffle(c: Context, x: Value, factor: int) -> Value:
    *lead, channels, height, width = x.shape
    n = len(lead)
    split = c.reshape(x, (*lead, channels, height // factor, factor, width // factor, factor))
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    return c.reshape(transposed(c, split, order), c.out.shape)


@lowers("channel_shuffle.default", "native_channel_shuffle.default")
def channel_shuffle(c: Context, x: Value, groups: int) -> Value:
    batch, channels, *rest = x.shape
    split = c.reshape(x, (batch, groups, channels // groups, *rest))
    return c.reshape(transposed(c, split, [0, 2, 1, *range(3, len(split.shape))]), c.out.shape)


@lowers("sym_size.int")
def sym_size(c: Context, x: Value, dim: int) -> int | Dim:
    return x.shape[axis_of(dim, len(x.shape))]
