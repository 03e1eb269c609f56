"""Gather and scatter with all of StableHLO's dimension numbers.

``policy`` says what happens to an index whose window would reach outside the operand (one of size ``w`` fits at 0 to ``d - w``):

* ``"clamp"``: it moves to the nearest that fits;
* ``"drop"``: a gathered window is 0, a scattered one is left out whole;
* ``"raise"``: the program stops; where that is impossible, gathered elements are NaN (integers: the end of the range);
* ``"wrap"``, ``"wrap_drop"``, ``"wrap_raise"``: negative indices count from the end first, then as ``clamp``, ``drop``, ``raise``.

Indices of any integer type are widened before any arithmetic on them.
"""

from __future__ import annotations

import math
from typing import Any

from neuron_ir.dialects.neuron.shapes import above, check_axes, check_same_dtype, differ
from neuron_ir.dims import DimLike
from neuron_ir.opdef import ANY, DIMS, INT, INTS, Op, attr, op, operand, region, variadic
from neuron_ir.types import TensorType

POLICIES = ("clamp", "drop", "raise", "wrap", "wrap_drop", "wrap_raise")


def at_the_edge(policy: str) -> str:
    """What the policy does out of range, negative indices aside: clamp, drop or raise."""
    return {"wrap": "clamp", "wrap_drop": "drop", "wrap_raise": "raise"}.get(policy, policy)


def wide_index(j: Any, index: Any, size: int = 0) -> Any:
    """An index array as i32, or as i64 where i32 could not hold it or ``size``; u64 beyond i64 becomes the largest i64."""
    if index.dtype.name in ("uint64", "int64", "uint32") or size >= 2**31:
        if index.dtype.name == "uint64":
            index = j.np.minimum(index, j.np.uint64(2**63 - 1))
        return index.astype("int64")
    return index.astype("int32")


def resolve(j: Any, index: Any, size: int, window: int, policy: str) -> tuple[Any, Any]:
    """The index into a dim of ``size`` after ``policy``, always in range, and whether it was in range before."""
    wide = wide_index(j, index, size)
    if policy.startswith("wrap"):
        wide = j.np.where(wide < 0, wide + size, wide)
    inside = (wide >= 0) & (wide <= size - window)
    if at_the_edge(policy) == "raise":
        j.require(inside, f"an index lies outside 0..{size - window}")
    return j.np.clip(wide, 0, max(size - window, 0)), inside


def _vectors(j: Any, indices: Any, index_vector_dim: int) -> Any:
    """Indices with the index vector as the last dim."""
    indices = j.np.asarray(indices)
    return indices[..., None] if index_vector_dim == indices.ndim else j.np.moveaxis(indices, index_vector_dim, -1)


def _without(dims: Any, index_vector_dim: int) -> tuple[int, ...]:
    """Dims of the indices once the index vector's dim is gone."""
    return tuple(d - (d > index_vector_dim) for d in dims)


def _resolve_all(j: Any, vectors: Any, sizes: Any, windows: Any, policy: str) -> tuple[Any, Any]:
    """Index vectors after ``policy`` and, per vector, whether all of it was in range."""
    if not sizes:
        return vectors.astype("int32"), j.np.ones(vectors.shape[:-1], bool)
    parts = [resolve(j, vectors[..., k], d, w, policy) for k, (d, w) in enumerate(zip(sizes, windows, strict=True))]
    inside = parts[0][1]
    for _, other in parts[1:]:
        inside = inside & other
    widest = "int64" if any(p.dtype == "int64" for p, _ in parts) else "int32"
    return j.np.stack([p.astype(widest) for p, _ in parts], -1), inside


def _check_index_vectors(op: Op, indices: TensorType, dim: int, index_map: Any, map_name: str, rank: int) -> list[DimLike]:
    """The shape of the indices without the index vector, whose length fits the map."""
    if not 0 <= dim <= indices.rank:
        raise op.error("shape", f"index_vector_dim {dim} does not exist in indices of rank {indices.rank}")
    length = 1 if dim == indices.rank else indices.shape[dim]
    if differ(length, len(index_map)):
        raise op.error("shape", f"{map_name} {list(index_map)} does not fit index vectors of length {length}")
    check_axes(op, index_map, rank, map_name)
    return [d for i, d in enumerate(indices.shape) if i != dim]


def _check_batching(op: Op, x: TensorType, x_dims: Any, indices: TensorType, index_dims: Any, vector: int, taken: Any) -> None:
    """Batching dims go in pairs of equal size and are used for nothing else."""
    if len(x_dims) != len(index_dims):
        raise op.error("shape", f"batching dims {list(x_dims)} of the operand and {list(index_dims)} of the indices do not pair up")
    check_axes(op, x_dims, x.rank, "operand batching dims", increasing=True)
    check_axes(op, index_dims, indices.rank, "index batching dims")
    for a, b in zip(x_dims, index_dims, strict=True):
        if differ(x.shape[a], indices.shape[b]):
            raise op.error("shape", f"batching dims differ: dim {a} of {x} and dim {b} of {indices}")
    if vector in index_dims or set(x_dims) & set(taken):
        raise op.error("shape", f"batching dims {list(x_dims)} and {list(index_dims)} are also used as window or index dims")


def _gather_shape(self: Any, slice_sizes: Any) -> list[DimLike]:
    """The result shape of a gather, everything checked."""
    x, indices = self.x.type, self.start_indices.type
    batch = _check_index_vectors(self, indices, self.index_vector_dim, self.start_index_map, "start_index_map", x.rank)
    check_axes(self, self.collapsed_slice_dims, x.rank, "collapsed_slice_dims", increasing=True)
    taken = (*self.collapsed_slice_dims, *self.start_index_map)
    pairs = self.operand_batching_dims, indices, self.start_indices_batching_dims
    _check_batching(self, x, *pairs, self.index_vector_dim, taken)
    if len(slice_sizes) != x.rank:
        raise self.error("shape", f"slice_sizes {list(slice_sizes)} do not fit {x}")
    gone = (*self.collapsed_slice_dims, *self.operand_batching_dims)
    for i, (size, d) in enumerate(zip(slice_sizes, x.shape, strict=True)):
        if above(size, d) and 0 not in batch:
            raise self.error("shape", f"a slice of size {size} does not fit dim {i} of size {d}")
        if i in gone and differ(size, 1) and size != 0:
            raise self.error("shape", f"dim {i} is collapsed or batched, so its slice size must be 1, not {size}")
    window = [size for i, size in enumerate(slice_sizes) if i not in gone]
    if len(window) != len(self.offset_dims):
        raise self.error("shape", f"offset_dims {list(self.offset_dims)} must name {len(window)} dims")
    rank = len(window) + len(batch)
    check_axes(self, self.offset_dims, rank, "offset_dims", increasing=True)
    window_sizes, batch_sizes = iter(window), iter(batch)
    return [next(window_sizes) if i in self.offset_dims else next(batch_sizes) for i in range(rank)]


@op("neuron.gather", traits=["view"])
class Gather(Op):
    """Windows of ``x`` at the places that the vectors of ``start_indices`` give.

    Attributes as StableHLO's ``gather`` has them: component ``k`` of a vector counts along dim ``start_index_map[k]``; windows have
    ``slice_sizes`` and keep all dims but ``collapsed_slice_dims`` and ``operand_batching_dims`` as the result's ``offset_dims``;
    the other result dims are those of the indices. Where there are no indices, windows may be larger than ``x``.
    """

    x = operand(ANY)
    start_indices = operand(INT)
    offset_dims = attr(INTS, ())
    collapsed_slice_dims = attr(INTS, ())
    operand_batching_dims = attr(INTS, ())
    start_indices_batching_dims = attr(INTS, ())
    start_index_map = attr(INTS)
    index_vector_dim = attr(int)
    slice_sizes = attr(DIMS)
    indices_are_sorted = attr(bool, False)
    policy = attr(str, "clamp", choices=POLICIES)

    def infer(self):
        return TensorType(_gather_shape(self, self.slice_sizes), self.x.dtype)

    def jax(j, x, start_indices, *, slice_sizes, indices_are_sorted, policy, out, **dims):
        return _gather(j, x, start_indices, slice_sizes, policy, out, **dims)


def _gather(j, x, start_indices, slice_sizes, policy, out, **dims):
    if 0 in out.shape:
        return j.np.zeros(out.shape, x.dtype)
    index_map, vector_dim, offset_dims = dims["start_index_map"], dims["index_vector_dim"], dims["offset_dims"]
    vectors = _vectors(j, start_indices, vector_dim)
    sizes, windows = [x.shape[d] for d in index_map], [slice_sizes[d] for d in index_map]
    vectors, inside = _resolve_all(j, vectors, sizes, windows, policy)
    numbers = j.lax.GatherDimensionNumbers(
        offset_dims=offset_dims,
        collapsed_slice_dims=dims["collapsed_slice_dims"],
        start_index_map=index_map,
        operand_batching_dims=dims["operand_batching_dims"],
        start_indices_batching_dims=_without(dims["start_indices_batching_dims"], vector_dim),
    )
    result = j.lax.gather(x, vectors, numbers, slice_sizes, mode=j.lax.GatherScatterMode.PROMISE_IN_BOUNDS)
    if at_the_edge(policy) == "clamp":
        return result
    places = tuple(i for i in range(len(out.shape)) if i not in offset_dims)
    inside = j.lax.broadcast_in_dim(inside, out.shape, places)
    return j.lax.select(inside, result, j.np.full_like(result, 0 if at_the_edge(policy) == "drop" else loudest(out.dtype)))


def loudest(t: Any) -> Any:
    """The value that stands where there is none: NaN, or the end of an integer's range."""
    if t.is_float or t.is_complex:
        return math.nan
    return True if t.kind == "bool" else int(t.max) if t.kind == "uint" else -int(t.max) - 1


@op("neuron.dynamic_gather", traits=["view"])
class DynamicGather(Op):
    """``gather`` whose slice sizes are an operand (a vector); the result type says what is known of them."""

    x = operand(ANY)
    start_indices = operand(INT)
    slice_sizes = operand(INT)
    offset_dims = attr(INTS, ())
    collapsed_slice_dims = attr(INTS, ())
    operand_batching_dims = attr(INTS, ())
    start_indices_batching_dims = attr(INTS, ())
    start_index_map = attr(INTS)
    index_vector_dim = attr(int)
    indices_are_sorted = attr(bool, False)
    policy = attr(str, "clamp", choices=POLICIES)

    def check(self):
        x, out = self.x.type, self.results[0].type
        check_same_dtype(self, x, out, "element types")
        if self.slice_sizes.type.rank != 1 or differ(self.slice_sizes.shape[0], x.rank):
            raise self.error("shape", f"slice_sizes must be a vector of {x.rank} integers, not {self.slice_sizes.type}")
        check_axes(self, self.offset_dims, out.rank, "offset_dims", increasing=True)
        gone = (*self.collapsed_slice_dims, *self.operand_batching_dims)
        shape = _gather_shape(self, _window_sizes(out.shape, self.offset_dims, gone, x.rank))
        if len(shape) != out.rank or any(map(differ, shape, out.shape)):
            raise self.error("shape", f"the result shape is {list(out.shape)}, but {shape} is computed")

    def jax(j, x, start_indices, slice_sizes, *, indices_are_sorted, policy, out, **dims):
        gone = (*dims["collapsed_slice_dims"], *dims["operand_batching_dims"])
        sizes = _window_sizes(out.shape, dims["offset_dims"], gone, x.ndim)
        return _gather(j, x, start_indices, sizes, policy, out, **dims)


def _window_sizes(result_shape, offset_dims, gone, rank):
    """Slice sizes read off a result shape: 1 for the dims that are gone."""
    sizes = iter([result_shape[i] for i in offset_dims])
    return tuple(1 if i in gone else next(sizes, 0) for i in range(rank))


# --- scatter ----------------------------------------------------------------------------------------------------------


def _scatter_parts(values: Any) -> tuple[Any, Any, Any]:
    """Inputs, indices, updates."""
    n = len(values) // 2
    return values[:n], values[n], values[n + 1 :]


def _scalar_types(op: Any) -> list[TensorType]:
    inputs, _, _ = _scatter_parts(op.operands)
    return [TensorType((), v.dtype) for v in inputs]


@op("neuron.scatter", traits=["view"])
class Scatter(Op):
    """``inputs`` with the windows of ``updates`` combined into them at the places that the vectors of the indices give.

    ``values`` are N inputs, the indices, and N updates. ``update_computation`` takes N elements there and N elements of the updates
    and yields the N new ones; windows come one after another in row-major order of the indices, so that of equal places each update
    counts (the last one, where the body yields the update). Other attributes as StableHLO's ``scatter`` has them; ``policy`` is
    ``"drop"`` there. ``indices_are_sorted`` and ``unique_indices`` are hints that change no value.
    """

    values = variadic(ANY)
    update_window_dims = attr(INTS, ())
    inserted_window_dims = attr(INTS, ())
    input_batching_dims = attr(INTS, ())
    scatter_indices_batching_dims = attr(INTS, ())
    scatter_dims_to_operand_dims = attr(INTS)
    index_vector_dim = attr(int)
    indices_are_sorted = attr(bool, False)
    unique_indices = attr(bool, False)
    policy = attr(str, "drop", choices=POLICIES)
    update_computation = region(lambda op: _scalar_types(op) * 2, _scalar_types)

    def infer(self):
        if len(self.operands) < 3 or len(self.operands) % 2 == 0:
            raise self.error("operand", f"takes N inputs, indices and N updates, not {len(self.operands)} operands")
        inputs, indices, updates = _scatter_parts(self.operands)
        if not indices.dtype.is_integer:
            raise self.error("operand", f"the indices must be integers, not {indices.type}")
        for x, u in zip(inputs, updates, strict=True):
            check_same_dtype(self, x.type, u.type, "input and update")
            if any(map(differ, x.shape, inputs[0].shape)) or any(map(differ, u.shape, updates[0].shape)):
                raise self.error("shape", "all inputs have one shape, and all updates")
        _check_scatter(self, inputs[0].type, indices.type, updates[0].type)
        return [v.type for v in inputs]

    def jax(j, *values, update_computation, indices_are_sorted, unique_indices, **dims):
        return _scatter(j, *_scatter_parts(values), update_computation, **dims)


def _check_scatter(self: Any, x: TensorType, indices: TensorType, updates: TensorType) -> None:
    index_map = self.scatter_dims_to_operand_dims
    batch = _check_index_vectors(self, indices, self.index_vector_dim, index_map, "scatter_dims_to_operand_dims", x.rank)
    check_axes(self, self.inserted_window_dims, x.rank, "inserted_window_dims", increasing=True)
    check_axes(self, self.update_window_dims, updates.rank, "update_window_dims", increasing=True)
    pairs = self.input_batching_dims, indices, self.scatter_indices_batching_dims
    _check_batching(self, x, *pairs, self.index_vector_dim, (*self.inserted_window_dims, *index_map))
    gone = (*self.inserted_window_dims, *self.input_batching_dims)
    kept = [i for i in range(x.rank) if i not in gone]
    if len(kept) != len(self.update_window_dims):
        raise self.error("shape", f"update_window_dims {list(self.update_window_dims)} must name {len(kept)} dims")
    for i, u in zip(kept, self.update_window_dims, strict=True):
        if above(updates.shape[u], x.shape[i]):
            raise self.error("shape", f"a window of size {updates.shape[u]} does not fit dim {i} of size {x.shape[i]}")
    outer = [d for i, d in enumerate(updates.shape) if i not in self.update_window_dims]
    if len(outer) != len(batch) or any(map(differ, outer, batch)):
        raise self.error("shape", f"updates {updates} have the sizes {outer} besides the windows, the indices {batch}")


def _scatter(j, inputs, indices, updates, body, *, policy, **dims):
    x, update = inputs[0], updates[0]
    if 0 in update.shape:
        return tuple(inputs)
    vector_dim, index_map = dims["index_vector_dim"], dims["scatter_dims_to_operand_dims"]
    gone = (*dims["inserted_window_dims"], *dims["input_batching_dims"])
    kept = [i for i in range(x.ndim) if i not in gone]
    window = dict(zip(kept, [update.shape[u] for u in dims["update_window_dims"]], strict=True))
    vectors = _vectors(j, indices, vector_dim)
    sizes, windows = [x.shape[d] for d in index_map], [window.get(d, 1) for d in index_map]
    vectors, inside = _resolve_all(j, vectors, sizes, windows, policy)
    if at_the_edge(policy) == "clamp":
        inside = j.np.ones_like(inside)
    numbers = j.lax.ScatterDimensionNumbers(
        update_window_dims=dims["update_window_dims"],
        inserted_window_dims=dims["inserted_window_dims"],
        scatter_dims_to_operand_dims=index_map,
        operand_batching_dims=dims["input_batching_dims"],
        scatter_indices_batching_dims=_without(dims["scatter_indices_batching_dims"], vector_dim),
    )
    native = _native_scatter(j, body, x.dtype) if len(inputs) == 1 else None
    if native is None:
        return _scatter_one_by_one(j, inputs, vectors, inside, updates, body, numbers, window)
    outside = j.np.asarray(-1, vectors.dtype)
    vectors = j.np.where(inside[..., None], vectors, outside) if index_map else vectors
    return native(x, vectors, update, numbers, mode=j.lax.GatherScatterMode.FILL_OR_DROP)


_NATIVE = {
    "neuron.add": "scatter_add",
    "neuron.multiply": "scatter_mul",
    "neuron.minimum": "scatter_min",
    "neuron.maximum": "scatter_max",
}  # op -> the function of jax.lax


def _native_scatter(j, body, element):
    """JAX's own scatter for a body that yields the update, or the sum, product, minimum or maximum of the two; else nothing."""
    block = body.block
    op, end = block.first, block.last
    if op is end:
        return j.lax.scatter if end.operands == [block.args[1]] else None
    known = op.next is end and op.name in _NATIVE and end.operands == list(op.results) and set(op.operands) == set(block.args)
    if not known or element.kind == "b" or element.kind == "c" and op.name in ("neuron.minimum", "neuron.maximum"):
        return None
    return getattr(j.lax, _NATIVE[op.name])


def _scatter_one_by_one(j, inputs, vectors, inside, updates, body, numbers, window):
    """The definition: windows in order, each read, combined element by element, and written back."""
    x, batch_shape = inputs[0], vectors.shape[:-1]
    n, outer = math.prod(batch_shape), [i for i in range(updates[0].ndim) if i not in numbers.update_window_dims]
    window_shape = tuple(window.get(i, 1) for i in range(x.ndim))
    flat = [j.np.transpose(u, (*outer, *numbers.update_window_dims)).reshape(n, *window_shape) for u in updates]
    starts = j.np.zeros((n, x.ndim), vectors.dtype)
    for k, d in enumerate(numbers.scatter_dims_to_operand_dims):
        starts = starts.at[:, d].set(vectors.reshape(n, -1)[:, k])
    for d, b in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
        starts = starts.at[:, d].set(j.lax.broadcasted_iota(vectors.dtype, batch_shape, b).reshape(n))
    inside = inside.reshape(n)

    def combine(*elements):
        return tuple(body(*elements))

    def step(k, state):
        at = list(starts[k])
        old = [j.lax.dynamic_slice(s, at, window_shape) for s in state]
        new = j.jax.vmap(combine)(*[a.reshape(-1) for a in (*old, *(f[k] for f in flat))])
        kept = [j.np.where(inside[k], v.reshape(window_shape), o) for v, o in zip(new, old, strict=True)]
        return tuple(j.lax.dynamic_update_slice(s, v, at) for s, v in zip(state, kept, strict=True))

    return j.lax.fori_loop(0, n, step, tuple(j.np.asarray(x) for x in inputs))
