"""Ops that move, rename or number elements without arithmetic."""

from __future__ import annotations

from neuron_ir.dialects.neuron.indexing import resolve
from neuron_ir.dialects.neuron.shapes import (
    above,
    axis_of,
    check_axes,
    check_lengths,
    check_same_dtype,
    differ,
    product,
)
from neuron_ir.dims import UNKNOWN
from neuron_ir.dtypes import I32, I64
from neuron_ir.opdef import ANY, DIM, DIMS, INT, INTS, NUMERIC, Op, attr, op, operand, variadic
from neuron_ir.types import TensorType

SLICE_POLICIES = ("clamp", "raise", "wrap", "wrap_raise")


@op("neuron.reshape", traits=["view"])
class Reshape(Op):
    """The same elements in row-major order under another shape of as many elements."""

    x = operand(ANY)

    def check(self):
        source, target = self.x.type, self.results[0].type
        check_same_dtype(self, source, target, "element types")
        if differ(product(source.shape), product(target.shape)):
            n, m = product(source.shape), product(target.shape)
            raise self.error("shape", f"{source} of {n} elements cannot become {target} of {m}")

    def jax(j, x, *, out):
        return j.lax.reshape(x, out.shape)


@op("neuron.dynamic_reshape", traits=["view"])
class DynamicReshape(Op):
    """``reshape`` to the sizes in ``output_shape`` (rank 1, one per dim); the result type says what is known of them."""

    x = operand(ANY)
    output_shape = operand(INT)

    def check(self):
        check_same_dtype(self, self.x.type, self.results[0].type, "element types")
        _check_index_vectors(self, self.results[0].type.rank, "output_shape")
        if differ(product(self.x.shape), product(self.results[0].shape)):
            raise self.error("shape", f"{self.x.type} cannot become {self.results[0].type}: the numbers of elements differ")

    def jax(j, x, output_shape, *, out):
        return j.lax.reshape(x, out.shape)


def _check_index_vectors(op, n, *names):
    for name in names:
        vector = getattr(op, name)
        if vector.type.rank != 1 or differ(vector.shape[0], n):
            raise op.error("shape", f"{name} must be a vector of {n} integers, not {vector.type}")


@op("neuron.transpose", traits=["view"])
class Transpose(Op):
    """Dim ``i`` of the result is dim ``permutation[i]`` of the operand."""

    x = operand(ANY)
    permutation = attr(INTS)

    def infer(self):
        check_lengths(self, self.x.type.rank, permutation=self.permutation)
        check_axes(self, self.permutation, self.x.type.rank, "permutation")
        return TensorType([self.x.shape[i] for i in self.permutation], self.x.dtype)

    def jax(j, x, *, permutation):
        return j.lax.transpose(x, permutation)


@op("neuron.relayout")
class Relayout(Op):
    """The operand in another order in memory, the one of the result's layout; no value changes."""

    x = operand(ANY)

    def check(self):
        x, y = self.x.type, self.results[0].type
        if x.shape != y.shape or x.dtype is not y.dtype:
            raise self.error("shape", f"a layout changes neither shape nor element type: {x} and {y}")

    def jax(j, x):
        return x


def _check_broadcast(self, dims):
    source, target = self.x.type, self.results[0].type
    check_same_dtype(self, source, target, "element types")
    if len(dims) != source.rank:
        raise self.error("shape", f"broadcast_dimensions {list(dims)} must name one dim of the result per dim of {source}")
    check_axes(self, dims, target.rank, "broadcast_dimensions")
    for i, d in enumerate(dims):
        size, wanted = source.shape[i], target.shape[d]
        if size != 1 and differ(size, wanted):
            raise self.error("shape", f"dim {i} of size {size} cannot be spread over dim {d} of size {wanted}")


@op("neuron.broadcast_in_dim", traits=["view"])
class BroadcastInDim(Op):
    """Dim ``i`` of the operand becomes dim ``broadcast_dimensions[i]`` of the result; size 1 and all other dims are repeated."""

    x = operand(ANY)
    broadcast_dimensions = attr(INTS, ())

    def check(self):
        _check_broadcast(self, self.broadcast_dimensions)

    def jax(j, x, *, broadcast_dimensions, out):
        return _broadcast(j, x, broadcast_dimensions, out)


def _broadcast(j, x, dims, out):
    if list(dims) != sorted(dims):
        order = sorted(range(len(dims)), key=lambda i: dims[i])
        x, dims = j.lax.transpose(x, order), sorted(dims)
    return j.lax.broadcast_in_dim(x, out.shape, tuple(dims))


@op("neuron.dynamic_broadcast_in_dim", traits=["view"])
class DynamicBroadcastInDim(Op):
    """``broadcast_in_dim`` to the sizes in ``output_shape``; the result type says what is known of them.

    ``known_expanding_dimensions`` and ``known_nonexpanding_dimensions`` list dims of the operand known to be repeated or not; they
    change no value.
    """

    x = operand(ANY)
    output_shape = operand(INT)
    broadcast_dimensions = attr(INTS, ())
    known_expanding_dimensions = attr(INTS, ())
    known_nonexpanding_dimensions = attr(INTS, ())

    def check(self):
        _check_broadcast(self, self.broadcast_dimensions)
        _check_index_vectors(self, self.results[0].type.rank, "output_shape")

    def jax(j, x, output_shape, *, broadcast_dimensions, known_expanding_dimensions, known_nonexpanding_dimensions, out):
        return _broadcast(j, x, broadcast_dimensions, out)


@op("neuron.concatenate", traits=["view"])
class Concatenate(Op):
    """The operands one after another along ``dimension``; all other sizes are equal."""

    inputs = variadic(ANY)
    dimension = attr(int)

    def infer(self):
        if not self.operands:
            raise self.error("operand", "at least one operand is needed")
        first = self.operands[0].type
        axis = axis_of(self, self.dimension, first.rank, "dimension")
        shape = list(first.shape)
        for v in self.operands[1:]:
            check_same_dtype(self, first, v.type, "element types")
            if v.type.rank != first.rank:
                raise self.error("shape", f"{first} and {v.type} differ in rank")
            for i, d in enumerate(v.shape):
                if i == axis:
                    shape[i] = shape[i] + d
                elif shape[i] is UNKNOWN:
                    shape[i] = d
                elif differ(shape[i], d):
                    raise self.error("shape", f"{first} and {v.type} differ in dim {i}: {shape[i]} and {d}")
        return TensorType(shape, first.dtype)

    def jax(j, *inputs, dimension):
        return j.lax.concatenate(inputs, dimension % inputs[0].ndim)


@op("neuron.slice", traits=["view"])
class Slice(Op):
    """Every ``strides[i]``-th element from ``start_indices[i]`` up to, not including, ``limit_indices[i]`` along each dim.

    ``strides`` may be left out (1). Needs ``0 <= start <= limit <= size``.
    """

    x = operand(ANY)
    start_indices = attr(DIMS)
    limit_indices = attr(DIMS)
    strides = attr(INTS, ())

    def infer(self):
        shape = self.x.shape
        strides = self.strides or (1,) * len(shape)
        check_lengths(self, len(shape), start_indices=self.start_indices, limit_indices=self.limit_indices, strides=strides)
        sizes = []
        for i, (d, start, limit, stride) in enumerate(zip(shape, self.start_indices, self.limit_indices, strides, strict=True)):
            bad = stride < 1 or (isinstance(start, int) and start < 0)
            bad = bad or above(start, limit) or above(limit, d)
            if bad:
                raise self.error("shape", f"{start}:{limit}:{stride} does not lie within dim {i} of size {d}")
            sizes.append((limit - start + (stride - 1)) // stride if stride > 1 else limit - start)
        return TensorType(sizes, self.x.dtype)

    def jax(j, x, *, start_indices, limit_indices, strides):
        return j.lax.slice(x, start_indices, limit_indices, strides or None)


def _scalars(op, group):
    for v in group:
        if v.type.rank or not v.dtype.is_integer:
            raise op.error("operand", f"start indices are integers of rank 0, not {v.type}")
        if v.dtype is not group[0].dtype:
            raise op.error("operand", f"start indices of one type are needed, not {group[0].type} and {v.type}")


@op("neuron.dynamic_slice", traits=["view"])
class DynamicSlice(Op):
    """The part of ``x`` of the sizes ``slice_sizes`` that begins at ``starts`` (one rank-0 integer per dim).

    ``policy`` says what happens to a start from which the part would reach outside: ``"clamp"`` (StableHLO) moves it to the nearest
    that fits, ``"raise"`` stops the program; with ``"wrap"`` and ``"wrap_raise"`` negative ones count from the end first.
    """

    x = operand(ANY)
    starts = variadic(INT)
    slice_sizes = attr(DIMS)
    policy = attr(str, "clamp", choices=SLICE_POLICIES)

    def infer(self):
        check_lengths(self, self.x.type.rank, starts=self.starts, slice_sizes=self.slice_sizes)
        _scalars(self, self.starts)
        for i, (d, size) in enumerate(zip(self.x.shape, self.slice_sizes, strict=True)):
            if above(size, d):
                raise self.error("shape", f"a part of size {size} does not fit dim {i} of size {d}")
        return TensorType(self.slice_sizes, self.x.dtype)

    def jax(j, x, *starts, slice_sizes, policy):
        return j.lax.dynamic_slice(x, _starts(j, x.shape, slice_sizes, starts, policy), slice_sizes)


def _starts(j, shape, sizes, starts, policy):
    """Start indices in range after ``policy``; left to JAX, negative ones would count from the end."""
    return [resolve(j, start, d, size, policy)[0] for d, size, start in zip(shape, sizes, starts, strict=True)]


@op("neuron.dynamic_update_slice", traits=["view"])
class DynamicUpdateSlice(Op):
    """``x`` with the part that begins at ``starts`` replaced by ``update``; ``policy`` as for ``dynamic_slice``."""

    x = operand(ANY)
    update = operand(ANY)
    starts = variadic(INT)
    policy = attr(str, "clamp", choices=SLICE_POLICIES)

    def infer(self):
        x, update = self.x.type, self.update.type
        check_same_dtype(self, x, update, "element types")
        check_lengths(self, x.rank, starts=self.starts, **{"the shape of update": update.shape})
        _scalars(self, self.starts)
        for i, (d, size) in enumerate(zip(x.shape, update.shape, strict=True)):
            if above(size, d):
                raise self.error("shape", f"an update of size {size} does not fit dim {i} of size {d}")
        return x

    def jax(j, x, update, *starts, policy):
        return j.lax.dynamic_update_slice(x, update, _starts(j, x.shape, update.shape, starts, policy))


def _padded(op, shape, low, high, interior):
    check_lengths(op, len(shape), edge_padding_low=low, edge_padding_high=high, interior_padding=interior)
    sizes = []
    for i, (d, before, after, between) in enumerate(zip(shape, low, high, interior, strict=True)):
        if between < 0:
            raise op.error("shape", f"interior padding of dim {i} is {between}")
        spread = d if not between or d == 0 else d + (d - 1) * between
        size = spread + before + after
        if isinstance(size, int) and size < 0:
            raise op.error("shape", f"padding of {before} and {after} takes more than dim {i} of size {spread} has")
        sizes.append(size)
    return sizes


@op("neuron.pad", traits=["view"])
class Pad(Op):
    """Puts copies of ``value`` (rank 0) before, after and between the elements of each dim.

    ``edge_padding_low`` and ``edge_padding_high`` may be negative: they cut elements off, after
    ``interior_padding`` (default 0) was put between.
    """

    x = operand(ANY)
    value = operand(ANY)
    edge_padding_low = attr(DIMS)
    edge_padding_high = attr(DIMS)
    interior_padding = attr(INTS, ())

    def infer(self):
        check_same_dtype(self, self.x.type, self.value.type, "x and value")
        if self.value.type.rank:
            raise self.error("operand", f"value must be of rank 0, not {self.value.type}")
        interior = self.interior_padding or (0,) * self.x.type.rank
        return TensorType(_padded(self, self.x.shape, self.edge_padding_low, self.edge_padding_high, interior), self.x.dtype)

    def jax(j, x, value, *, edge_padding_low, edge_padding_high, interior_padding):
        interior = interior_padding or (0,) * x.ndim
        return j.lax.pad(x, value, list(zip(edge_padding_low, edge_padding_high, interior, strict=True)))


@op("neuron.dynamic_pad", traits=["view"])
class DynamicPad(Op):
    """``pad`` whose amounts are operands (vectors of one integer per dim); the result type says what is known of the sizes."""

    x = operand(ANY)
    value = operand(ANY)
    edge_padding_low = operand(INT)
    edge_padding_high = operand(INT)
    interior_padding = operand(INT)

    def check(self):
        out = self.results[0].type
        check_same_dtype(self, self.x.type, self.value.type, "x and value")
        check_same_dtype(self, self.x.type, out, "element types")
        _check_index_vectors(self, self.x.type.rank, "edge_padding_low", "edge_padding_high", "interior_padding")
        if out.rank != self.x.type.rank or self.value.type.rank:
            raise self.error("shape", f"the result {out} must have the rank of {self.x.type}, and value rank 0")

    def jax(j, x, value, edge_padding_low, edge_padding_high, interior_padding, *, out):
        return _dynamic_pad(j, x, value, edge_padding_low, interior_padding, out)


def _dynamic_pad(j, x, value, low, interior, out):
    """Per dim: result element ``i`` is element ``(i - low) / (interior + 1)`` where that is one, else ``value``."""
    for axis, n in enumerate(out.shape):
        step = interior[axis].astype("int64") + 1
        place = j.lax.iota("int64", n) - low[axis].astype("int64")
        source = j.lax.div(place, step)
        inside = (place >= 0) & (j.lax.rem(place, step) == 0) & (source < x.shape[axis])
        shape = tuple(n if i == axis else d for i, d in enumerate(x.shape))
        if not x.shape[axis]:
            x = j.np.full(shape, value, x.dtype)
            continue
        taken = j.np.take(x, j.np.clip(source, 0, x.shape[axis] - 1), axis)
        x = j.lax.select(j.lax.broadcast_in_dim(inside, shape, (axis,)), taken, j.np.full(shape, value, x.dtype))
    return x


@op("neuron.real_dynamic_slice", traits=["view"])
class RealDynamicSlice(Op):
    """``slice`` whose bounds and strides are operands (vectors of one integer per dim); the result type says what is known of it.

    An index beyond the end reads the last element, as StableHLO leaves it open.
    """

    x = operand(ANY)
    start_indices = operand(INT)
    limit_indices = operand(INT)
    strides = operand(INT)

    def check(self):
        out = self.results[0].type
        check_same_dtype(self, self.x.type, out, "element types")
        _check_index_vectors(self, self.x.type.rank, "start_indices", "limit_indices", "strides")
        if out.rank != self.x.type.rank:
            raise self.error("shape", f"the result {out} must have the rank of {self.x.type}")

    def jax(j, x, start_indices, limit_indices, strides, *, out):
        for axis, n in enumerate(out.shape):
            places = start_indices[axis].astype("int64") + j.lax.iota("int64", n) * strides[axis].astype("int64")
            x = j.np.take(x, j.np.clip(places, 0, max(x.shape[axis] - 1, 0)), axis)
        return x


@op("neuron.reverse", traits=["view"], aten="flip.default")
class Reverse(Op):
    """The elements in opposite order along each of ``dimensions``."""

    x = operand(ANY)
    dimensions = attr(INTS)

    def infer(self):
        check_axes(self, self.dimensions, self.x.type.rank, "dimensions")
        return self.x.type

    def jax(j, x, *, dimensions):
        return j.lax.rev(x, dimensions)


@op("neuron.iota", traits=["constant"])
class Iota(Op):
    """Each element is its own index along ``iota_dimension``; integers wrap, narrow floats round."""

    iota_dimension = attr(int)

    def check(self):
        type = self.results[0].type
        if type.dtype not in NUMERIC:
            raise self.error("type", f"indices cannot be {type.dtype}")
        axis_of(self, self.iota_dimension, type.rank, "iota_dimension")

    def jax(j, *, iota_dimension, out):
        return _iota(j, iota_dimension, out)


def _iota(j, axis, out):
    wide = j.lax.broadcasted_iota("int64", out.shape, axis % len(out.shape))
    return j.lax.convert_element_type(wide, out.dtype.numpy)


@op("neuron.dynamic_iota", traits=["view"])
class DynamicIota(Op):
    """``iota`` of the sizes in ``output_shape``; the result type says what is known of them."""

    output_shape = operand(INT)
    iota_dimension = attr(int)

    def check(self):
        type = self.results[0].type
        if type.dtype not in NUMERIC:
            raise self.error("type", f"indices cannot be {type.dtype}")
        axis_of(self, self.iota_dimension, type.rank, "iota_dimension")
        _check_index_vectors(self, type.rank, "output_shape")

    def jax(j, output_shape, *, iota_dimension, out):
        return _iota(j, iota_dimension, out)


@op("neuron.get_dimension_size", traits=["view"])
class GetDimensionSize(Op):
    """The size of ``dimension`` as an i32 of rank 0."""

    x = operand(ANY)
    dimension = attr(int)

    def infer(self):
        axis_of(self, self.dimension, self.x.type.rank, "dimension")
        return TensorType((), I32)

    def jax(j, x, *, dimension):
        return j.np.int32(x.shape[dimension])


@op("neuron.dim_size", traits=["constant"])
class DimSize(Op):
    """The value of a size, such as ``S`` or ``2*S+1``, as an i64 of rank 0."""

    size = attr(DIM)

    def infer(self):
        return TensorType((), I64)

    def jax(j, *, size):
        return j.np.int64(size)
