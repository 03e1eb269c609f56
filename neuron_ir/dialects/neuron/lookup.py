"""Indexing as programs write it, kept whole: each op expands into ``gather`` or ``scatter``. Policies as there."""

from __future__ import annotations

from neuron_ir.dialects.neuron.broadcasting import broadcast_dims
from neuron_ir.dialects.neuron.elementwise import WITHOUT_TF32
from neuron_ir.dialects.neuron.indexing import POLICIES, resolve
from neuron_ir.dialects.neuron.shapes import above, axis_of, check_axes, check_same_dtype, differ
from neuron_ir.dtypes import BOOL, I64, DType
from neuron_ir.opdef import ANY, DIM, INT, INTS, Op, attr, op, operand, variadic
from neuron_ir.types import TensorType


@op("neuron.take", traits=["view"], aten="index_select.default")
class Take(Op):
    """Slices of ``x`` along ``axis`` at ``indices``, whose dims take the place of that axis (numpy's ``take``)."""

    x = operand(ANY)
    indices = operand(INT)
    axis = attr(int, 0)
    policy = attr(str, "raise", choices=POLICIES)

    def infer(self):
        axis = axis_of(self, self.axis, self.x.type.rank)
        shape = self.x.shape
        return TensorType((*shape[:axis], *self.indices.shape, *shape[axis + 1 :]), self.x.dtype)

    def expand(b, x, indices, *, axis, policy):
        rank, axis, k = len(x.shape), axis % len(x.shape), len(indices.shape)
        return b.gather(
            x, indices, start_index_map=[axis], collapsed_slice_dims=[axis], index_vector_dim=k, policy=policy,
            offset_dims=[i for i in range(rank - 1 + k) if not axis <= i < axis + k],
            slice_sizes=[1 if i == axis else d for i, d in enumerate(x.shape)],
        )  # fmt: skip


@op("neuron.take_along_axis", traits=["view"], aten="gather.default")
class TakeAlongAxis(Op):
    """Element ``i, j, k`` is ``x[i, indices[i, j, k], k]`` (for axis 1): torch's ``gather``.

    ``indices`` has the rank of ``x``; its sizes besides ``axis`` are at most those of ``x``.
    """

    x = operand(ANY)
    indices = operand(INT)
    axis = attr(int)
    policy = attr(str, "raise", choices=POLICIES)

    def infer(self):
        _check_alongside(self, self.x.type, self.indices.type, axis_of(self, self.axis, self.x.type.rank))
        return TensorType(self.indices.shape, self.x.dtype)

    def expand(b, x, indices, *, axis, policy):
        rank = len(x.shape)
        axis %= rank
        sizes = [d if i == axis else n for i, (d, n) in enumerate(zip(x.shape, indices.shape, strict=True))]
        if tuple(sizes) != x.shape:
            x = b.slice(x, start_indices=[0] * rank, limit_indices=sizes)
        others = [i for i in range(rank) if i != axis]
        return b.gather(
            x, indices, start_index_map=[axis], collapsed_slice_dims=[axis], operand_batching_dims=others,
            start_indices_batching_dims=others, index_vector_dim=rank, slice_sizes=[1] * rank, policy=policy,
        )  # fmt: skip


def _check_alongside(self, x, indices, axis):
    if x.rank != indices.rank:
        raise self.error("shape", f"indices {indices} must have the rank of {x}")
    for i, (d, n) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if i != axis and above(n, d):
            raise self.error("shape", f"indices of size {n} do not fit dim {i} of size {d}")


REDUCTIONS = ("none", "add", "mul", "amin", "amax", "mean")


@op(
    "neuron.scatter_elements", traits=["view"],
    aten=("scatter.src", "scatter_add.default", "scatter_reduce.two"),
)  # fmt: skip
class ScatterElements(Op):
    """``x`` with ``updates[i, j, k]`` combined into place ``i, indices[i, j, k], k`` (for axis 1), in row-major order.

    ``mode`` is torch's: ``none`` replaces (the last of equal places wins), ``add``, ``mul``, ``amin``, ``amax`` combine, ``mean``
    divides the sum by the number of contributions (integers: floor). ``include_self = false`` leaves the old value of every place
    that is hit out of the reduction. Sizes of ``indices`` are at most those of ``updates``, and besides ``axis`` of ``x``.
    """

    x = operand(WITHOUT_TF32)
    indices = operand(INT)
    updates = operand(WITHOUT_TF32)
    axis = attr(int)
    mode = attr(str, "none", choices=REDUCTIONS)
    include_self = attr(bool, True)
    policy = attr(str, "raise", choices=POLICIES)

    def infer(self):
        x, indices, updates = (v.type for v in self.operands)
        check_same_dtype(self, x, updates, "x and updates")
        _check_alongside(self, x, indices, axis_of(self, self.axis, x.rank))
        if updates.rank != x.rank or any(map(above, indices.shape, updates.shape)):
            raise self.error("shape", f"indices {indices} reach beyond updates {updates}")
        return x

    def expand(b, x, indices, updates, *, axis, mode, include_self, policy):
        if indices.shape != updates.shape:
            updates = b.slice(updates, start_indices=[0] * len(x.shape), limit_indices=indices.shape)
        places = _coordinates(b, indices, axis % len(x.shape))

        def scatter(target, values, combine):
            return _scatter_at(b, target, places, values, combine, policy)

        if mode == "none":
            return scatter(x, updates, None)
        if not include_self:
            x = scatter(x, _spread(b, _neutral(mode, x.dtype), updates), None)
        if mode != "mean":
            return scatter(x, updates, {"add": "add", "mul": "multiply", "amin": "minimum", "amax": "maximum"}[mode])
        ones = _spread(b, 1, updates)
        count = scatter(_spread(b, 1 if include_self else 0, x), ones, "add")
        count = b.maximum(count, _spread(b, 1, x))
        total = scatter(x, updates, "add")
        return b.floor_divide(total, count) if x.dtype.is_integer else b.divide(total, count)


def _neutral(mode, dtype):
    if mode in ("add", "mean"):
        return 0
    if mode == "mul":
        return 1
    if dtype.is_float:
        return float("-inf") if mode == "amax" else float("inf")
    if dtype.kind == "bool":
        return mode == "amin"
    high = int(dtype.max)
    return high if mode == "amin" else 0 if dtype.kind == "uint" else -high - 1


def _spread(b, value, like):
    return b.broadcast_in_dim(b.const(value, like.dtype), out=TensorType(like.shape, like.dtype))


def _coordinates(b, indices, axis):
    """Index vectors of all dims: ``indices`` along ``axis``, each element's own place along the others."""
    wide = indices if indices.dtype.name in ("i64", "u64") else b.cast(indices, out=TensorType(indices.shape, I64))
    type = TensorType((*indices.shape, 1), wide.dtype)
    parts = [b.reshape(wide, out=type) if i == axis else b.iota(iota_dimension=i, out=type) for i in range(len(indices.shape))]
    return b.concatenate(*parts, dimension=len(indices.shape))


def _scatter_at(b, x, places, values, combine, policy):
    """Single elements scattered at full coordinates."""
    rank = len(x.shape)
    return b.scatter(
        x, places, values, inserted_window_dims=list(range(rank)), scatter_dims_to_operand_dims=list(range(rank)),
        index_vector_dim=rank, policy=policy, update_computation=_combining(combine),
    )  # fmt: skip


def _combining(combine):
    return (lambda b, old, new: new) if combine is None else (lambda b, old, new: b.make(f"neuron.{combine}", old, new))


# --- advanced indexing ------------------------------------------------------------------------------------------------


def _indexed_shape(self, x, indices, dims):
    """The result shape of advanced indexing by numpy's rule, and where the broadcast index dims begin in it."""
    check_axes(self, dims, x.rank, "dims", increasing=True)
    if not dims or len(dims) != len(indices):
        raise self.error("operand", f"dims {list(dims)} must name one dim per index, and at least one; there are {len(indices)}")
    shape = ()
    for v in indices:
        if not v.dtype.is_integer:
            raise self.error("operand", f"an index must be of integers, not {v.type}")
        both = broadcast_dims(shape, v.shape)
        if both is None:
            raise self.error("shape", f"the indices {', '.join(str(v.type) for v in indices)} do not broadcast")
        shape = both
    return shape


def _front(dims):
    """Adjacent indexed dims are replaced in place; otherwise the index dims come first."""
    return dims[0] if list(dims) == list(range(dims[0], dims[0] + len(dims))) else 0


def _result_shape(x_shape, index_shape, dims):
    rest = [d for i, d in enumerate(x_shape) if i not in dims]
    front = _front(dims)
    return (*rest[:front], *index_shape, *rest[front:])


def _index_vectors(b, indices):
    shape = ()
    for v in indices:
        shape = broadcast_dims(shape, v.shape)
    parts = []
    for v in indices:
        wide = v if v.dtype is I64 else b.cast(v, out=TensorType(v.shape, I64))
        lead = len(shape) - len(v.shape)
        placed = range(lead, len(shape))
        parts.append(b.broadcast_in_dim(wide, broadcast_dimensions=list(placed), out=TensorType((*shape, 1), I64)))
    return shape, b.concatenate(*parts, dimension=len(shape))


@op("neuron.index", traits=["view"], aten="index.Tensor")
class Index(Op):
    """Advanced indexing by integer arrays: ``x[..., i0, ..., i1]``, where ``indices[k]`` counts along dim ``dims[k]``.

    The indices broadcast to one shape. It takes the place of the indexed dims where these are adjacent, else it comes first.
    """

    x = operand(ANY)
    indices = variadic(INT)
    dims = attr(INTS)
    policy = attr(str, "wrap_raise", choices=POLICIES)

    def infer(self):
        shape = _indexed_shape(self, self.x.type, self.indices, self.dims)
        return TensorType(_result_shape(self.x.shape, shape, self.dims), self.x.dtype)

    def expand(b, x, *indices, dims, policy):
        shape, vectors = _index_vectors(b, indices)
        rank, front = len(x.shape) - len(dims) + len(shape), _front(dims)
        return b.gather(
            x, vectors, start_index_map=dims, collapsed_slice_dims=dims, index_vector_dim=len(shape), policy=policy,
            offset_dims=[i for i in range(rank) if not front <= i < front + len(shape)],
            slice_sizes=[1 if i in dims else d for i, d in enumerate(x.shape)],
        )  # fmt: skip


@op("neuron.index_put", traits=["view"], aten="index_put.default")
class IndexPut(Op):
    """``x`` with ``values`` written (``accumulate``: added) where ``index`` with the same indices would read.

    ``values`` broadcasts to that shape. Of equal places the last write wins; additions all count.
    """

    x = operand(WITHOUT_TF32)
    values = operand(WITHOUT_TF32)
    indices = variadic(INT)
    dims = attr(INTS)
    accumulate = attr(bool, False)
    policy = attr(str, "wrap_raise", choices=POLICIES)

    def infer(self):
        x, values = self.x.type, self.values.type
        check_same_dtype(self, x, values, "x and values")
        shape = _result_shape(x.shape, _indexed_shape(self, x, self.indices, self.dims), self.dims)
        extra = len(shape) - values.rank
        if extra < 0 or any(d != 1 and differ(d, n) for d, n in zip(values.shape, shape[extra:], strict=True)):
            raise self.error("shape", f"values {values} do not broadcast to the indexed shape {list(shape)}")
        return x

    def expand(b, x, values, *indices, dims, accumulate, policy):
        shape, vectors = _index_vectors(b, indices)
        whole, front = _result_shape(x.shape, shape, dims), _front(dims)
        if values.shape != whole:
            placed = range(len(whole) - len(values.shape), len(whole))
            values = b.broadcast_in_dim(values, broadcast_dimensions=list(placed), out=TensorType(whole, x.dtype))
        return b.scatter(
            x, vectors, values, inserted_window_dims=dims, scatter_dims_to_operand_dims=dims, index_vector_dim=len(shape),
            update_window_dims=[i for i in range(len(whole)) if not front <= i < front + len(shape)],
            policy=policy, update_computation=_combining("add" if accumulate else None),
        )  # fmt: skip


@op("neuron.checked_index", traits=["elementwise"])
class CheckedIndex(Op):
    """The indices themselves, in range of a dim of ``size`` after ``policy``; ``drop`` leaves them as they are."""

    indices = operand(INT)
    size = attr(DIM)
    policy = attr(str, "raise", choices=POLICIES)

    def infer(self):
        return self.indices.type

    def jax(j, indices, *, size, policy):
        if policy == "drop":
            return indices
        inside, fits = resolve(j, indices, size, 1, policy)
        return (j.np.where(fits, inside, -1) if policy != "clamp" and policy != "wrap" else inside).astype(indices.dtype)


@op("neuron.one_hot", traits=["view"], aten="one_hot.default")
class OneHot(Op):
    """1 where an index equals the position along a new dim ``axis`` of size ``size``, else 0, of element type ``dtype``.

    ``policy``: ``drop`` gives an index out of range zeros only (JAX), ``raise`` stops the program (torch).
    """

    indices = operand(INT)
    size = attr(DIM)
    axis = attr(int, -1)
    dtype = attr(DType, I64)
    policy = attr(str, "drop", choices=("drop", "raise"))

    def infer(self):
        axis = axis_of(self, self.axis, self.indices.type.rank + 1)
        shape = self.indices.shape
        return TensorType((*shape[:axis], self.size, *shape[axis:]), self.get("dtype"))

    def expand(b, indices, *, size, axis, dtype, policy):
        wide = indices if indices.dtype.name == "u64" else b.cast(indices, out=TensorType(indices.shape, I64))
        if policy == "raise":
            wide = b.checked_index(wide, size=size)
        rank = len(indices.shape)
        axis %= rank + 1
        shape = (*indices.shape[:axis], size, *indices.shape[axis:])
        type = TensorType(shape, wide.dtype)
        spread = b.broadcast_in_dim(wide, broadcast_dimensions=[i + (i >= axis) for i in range(rank)], out=type)
        hit = b.compare(spread, b.iota(iota_dimension=axis, out=type), direction="EQ")
        return hit if dtype is BOOL else b.cast(hit, out=TensorType(shape, dtype))


@op("neuron.embedding", traits=["view"], aten="embedding.default")
class Embedding(Op):
    """Rows of ``weight`` (rank 2) at ``indices``. ``padding_idx`` names a row that gets no gradient; it changes no value here."""

    weight = operand(ANY)
    indices = operand(INT)
    padding_idx = attr(int, None)
    policy = attr(str, "raise", choices=POLICIES)

    def infer(self):
        if self.weight.type.rank != 2:
            raise self.error("shape", f"weight must be of rank 2, not {self.weight.type}")
        return TensorType((*self.indices.shape, self.weight.shape[1]), self.weight.dtype)

    def expand(b, weight, indices, *, padding_idx, policy):
        return b.take(weight, indices, axis=0, policy=policy)
