"""Matrix products as torch and NumPy spell them; each is one ``dot_general`` with its surroundings."""

from __future__ import annotations

from neuron_ir.dims import UNKNOWN
from neuron_ir.dtypes import I32, DType, dtype_of_numpy
from neuron_ir.opdef import NUMERIC, Op, attr, op, operand, optional
from neuron_ir.types import TensorType

from .broadcasting import agree, broadcast_shape, known, need_rank, need_shape
from .expression import Expr, concatenate, count, dot


def result_dtype(self, a, b):
    """``dtype`` where it is given, else the operands' common element type."""
    if a.dtype.kind != b.dtype.kind and not (a.dtype.is_float and b.dtype.is_float):
        raise self.error("type", f"operands of one kind are needed, not {a.dtype} and {b.dtype}")
    if self.dtype is not None:
        if self.dtype.kind != a.dtype.kind:
            raise self.error("attr", f"dtype = {self.dtype} cannot hold products of {a.dtype}")
        return self.dtype
    if a.dtype is not b.dtype:
        raise self.error("type", f"operands of {a.dtype} and {b.dtype} need the attribute dtype")
    return a.dtype


def need_bias_dtype(self, bias, x, weight, dtype):
    """A bias has the type of an operand, of the result, or of the sums."""
    if bias is not None and bias.dtype not in (x.dtype, weight.dtype, dtype, sum_type(self.acc, dtype)):
        raise self.error("type", f"a bias of {bias.dtype} does not go with {x.dtype} and a result of {dtype}")


def _acc(self, *dtypes):
    """Check ``acc``: at least as exact as f32 and as every operand."""
    if self.acc is None:
        return
    widest = max((d.accumulator for d in dtypes), key=lambda d: d.bits)
    if self.acc.kind != widest.kind or self.acc.bits < widest.bits:
        raise self.error("attr", f"acc = {self.acc} is narrower than {widest}, which products of these operands need")


def sum_type(acc: DType | None, *dtypes: DType) -> DType:
    """The type in which products are summed: ``acc``, or the widest accumulator of the given types."""
    return acc or max((d.accumulator for d in dtypes), key=lambda d: d.bits)


def _same_inner(self, a, b, left, right):
    if not agree(left, right):
        raise self.error("shape", f"the contracted sizes differ: {left} of {a.type} and {right} of {b.type}")


@op("neuron.linear", aten=["linear.default"], traits=["matmul"])
class Linear(Op):
    """``x @ weight.T + bias``: x ``[..., in]``, weight ``[out, in]``, bias ``[out]``, result ``[..., out]``.

    Products and the bias are summed in ``acc`` (default f32 for narrower floats) and rounded once to ``dtype`` (default: the
    operands').
    """

    x = operand(NUMERIC)
    weight = operand(NUMERIC)
    bias = optional(NUMERIC)
    acc = attr(DType, None)
    dtype = attr(DType, None)

    def infer(self):
        x, weight = self.x, self.weight
        need_rank(self, "weight", weight, 2)
        if not x.type.rank:
            raise self.error("shape", "x must be [..., in], but is a scalar")
        _same_inner(self, x, weight, x.shape[-1], weight.shape[1])
        need_shape(self, "bias", self.bias, (weight.shape[0],))
        dtype = result_dtype(self, x, weight)
        _acc(self, x.dtype, weight.dtype, dtype)
        need_bias_dtype(self, self.bias, x, weight, dtype)
        return TensorType((*x.shape[:-1], weight.shape[0]), dtype)

    def expand(b, x, weight, bias, *, acc, dtype, out):
        wide = sum_type(acc, x.dtype, weight.dtype, out.dtype)
        y = dot(Expr(b, x), Expr(b, weight), ((), ()), ((len(x.shape) - 1,), (1,)), wide)
        if bias is not None:
            y = y + Expr(b, bias).cast(wide)
        return y.cast(out.dtype).value


@op("neuron.matmul", aten=["matmul.default", "mm.default", "bmm.default", "mv.default", "dot.default"], traits=["matmul"])
class Matmul(Op):
    """Matrix product by NumPy's rules: ``[..., m, k] @ [..., k, n]`` with broadcast batch dims; a vector counts as a row or
    column.

    ``transpose_a`` and ``transpose_b`` swap the last two dims first. Products are summed in ``acc`` (default f32 for narrower
    floats) and rounded once to ``dtype`` (default: the operands').
    """

    a = operand(NUMERIC)
    b = operand(NUMERIC)
    transpose_a = attr(bool, False)
    transpose_b = attr(bool, False)
    acc = attr(DType, None)
    dtype = attr(DType, None)

    def infer(self):
        a, b = self.a, self.b
        for name, value, swap in (("a", a, self.transpose_a), ("b", b, self.transpose_b)):
            if value.type.rank < 1 + swap:
                raise self.error("shape", f"{name} must have rank {1 + swap} or more, but is {value.type}")
        left, right = _swapped(a.shape, self.transpose_a), _swapped(b.shape, self.transpose_b)
        _same_inner(self, a, b, left[-1], right[max(len(right) - 2, 0)])
        dtype = result_dtype(self, a, b)
        _acc(self, a.dtype, b.dtype, dtype)
        batch = broadcast_shape(self, "batch dims", left[:-2], right[:-2])
        return TensorType((*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ())), dtype)

    def expand(builder, a, b, *, transpose_a, transpose_b, acc, dtype, out):
        wide = sum_type(acc, a.dtype, b.dtype, out.dtype)
        x, y = Expr(builder, a), Expr(builder, b)
        batch = out.shape[: len(out.shape) - (x.rank > 1) - (y.rank > 1)]
        inner_x = x.rank - 2 if transpose_a else x.rank - 1
        inner_y = max(y.rank - 2, 0) if not transpose_b else y.rank - 1
        if y.rank <= 2:  # the left operand's batch dims are free dims of one product
            z = dot(x, y, ((), ()), ((inner_x,), (inner_y,)), wide)
            if transpose_a and x.rank > 2 or x.rank < 2:
                z = z.reshape(out.shape)
            return z.cast(out.dtype).value
        x, y = (e.broadcast((*batch, *e.shape[-2:])) if e.rank > 2 else e for e in (x, y))
        if x.rank <= 2:
            return _broadcast_left(x, y, inner_x % 2 if x.rank == 2 else 0, transpose_b, wide).cast(out.dtype).value
        dims = tuple(range(len(batch)))
        z = dot(x, y, (dims, dims), ((inner_x,), (y.rank - 1 if transpose_b else y.rank - 2,)), wide)
        return z.cast(out.dtype).value


def _swapped(shape, swap):
    return (*shape[:-2], shape[-1], shape[-2]) if swap else tuple(shape)


def _broadcast_left(x, y, inner_x, transpose_b, wide):
    """A matrix or vector times a batch: one product whose free dims are then put in order."""
    z = dot(y, x, ((), ()), ((y.rank - 1 if transpose_b else y.rank - 2,), (inner_x,)), wide)
    if x.rank == 1:
        return z
    return z.transpose((*range(y.rank - 2), y.rank - 1, y.rank - 2))


@op("neuron.grouped_matmul", aten=["_grouped_mm.default"], traits=["matmul"])
class GroupedMatmul(Op):
    """Products of groups of rows, columns or depth with a matrix each: torch's ``grouped_mm``, the heart of mixture-of-experts
    models.

    ``offsets`` (i32 ``[groups]``) holds where each group ends along the dim that is cut:

    * a ``[m, k]``, b ``[groups, k, n]``: rows of a are cut; result ``[m, n]``;
    * a ``[groups, m, k]``, b ``[k, n]``: columns of b are cut; result ``[m, n]``;
    * a ``[m, k]``, b ``[k, n]``: the depth k is cut; result ``[groups, m, n]``;
    * a ``[groups, m, k]``, b ``[groups, k, n]``: no offsets; result ``[groups, m, n]``.

    What lies past the last offset gives 0 (torch leaves it unspecified). Offsets must not decrease. Accumulation as in matmul.
    """

    a = operand(NUMERIC)
    b = operand(NUMERIC)
    offsets = optional(frozenset((I32,)))
    acc = attr(DType, None)
    dtype = attr(DType, None)

    def infer(self):
        a, b, offsets = self.a, self.b, self.offsets
        need_rank(self, "a", a, 2, 3)
        need_rank(self, "b", b, 2, 3)
        _same_inner(self, a, b, a.shape[-1], b.shape[-2])
        cut = not (a.type.rank == b.type.rank == 3)
        if cut != (offsets is not None):
            raise self.error("operand", f"offsets are {'needed' if cut else 'not taken'} for {a.type} and {b.type}")
        if cut:
            need_rank(self, "offsets", offsets, 1)
        groups = [t.shape[0] for t in (a, b) if t.type.rank == 3] + ([offsets.shape[0]] if cut else [])
        if not all(agree(groups[0], g) for g in groups):
            raise self.error("shape", f"the numbers of groups {groups} differ")
        dtype = result_dtype(self, a, b)
        _acc(self, a.dtype, b.dtype, dtype)
        shape = (a.shape[-2], b.shape[-1])
        if a.type.rank == b.type.rank:
            count = UNKNOWN
            for g in groups:
                count = known(g, count)
            shape = (count, *shape)
        return TensorType(shape, dtype)

    def jax(j, a, b, offsets, *, acc, dtype, out):
        wide = sum_type(acc, *(dtype_of_numpy(x.dtype) for x in (a, b)), out.dtype).numpy
        a, b = a.astype(wide), b.astype(wide)
        if offsets is None:
            return j.lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,)))).astype(out.dtype.numpy)
        a, b, ends = (j.np.asarray(x) for x in (a, b, offsets.astype("int64")))
        if a.ndim == b.ndim:
            return _cut_depth(j, a, b, ends).astype(out.dtype.numpy)
        if a.ndim == 3:
            return _cut_rows(j, b.T, j.np.swapaxes(a, 1, 2), ends).T.astype(out.dtype.numpy)
        return _cut_rows(j, a, b, ends).astype(out.dtype.numpy)

    def expand(builder, a, b, offsets, *, acc, dtype, out):
        wide = sum_type(acc, a.dtype, b.dtype, out.dtype)
        x, y = Expr(builder, a).cast(wide), Expr(builder, b).cast(wide)
        if offsets is None:
            return dot(x, y, ((0,), (0,)), ((2,), (1,)), wide).cast(out.dtype).value
        groups = count(offsets.shape)
        inside = _membership(Expr(builder, offsets), x.shape[-1] if x.rank == y.rank else out.shape[1 if x.rank == 3 else 0])
        if x.rank == y.rank:
            parts = [_depth_product(x, y, inside.section(0, g, g + 1), wide) for g in range(groups)]
            if not parts:
                return x.lift(0).broadcast(out.shape).cast(out.dtype).value
            return concatenate([p.reshape((1, *p.shape)) for p in parts], 0).cast(out.dtype).value
        total = x.lift(0).broadcast(out.shape)
        for g in range(groups):
            left, right = (e.section(0, g, g + 1).reshape(e.shape[1:]) if e.rank == 3 else e for e in (x, y))
            mine = inside.section(0, g, g + 1).reshape(_mask_shape(out.shape, x.rank))
            total = mine.where(dot(left, right, ((), ()), ((1,), (0,)), wide), total)
        return total.cast(out.dtype).value


def _membership(ends, size):
    """Bool ``[groups, size]``: whether position ``i`` of the cut dim belongs to group ``g``."""
    groups = ends.shape[0]
    at = ends.iota((groups, size), 1, ends.dtype)
    starts = (
        concatenate([ends.lift(0).reshape((1,)), ends.section(0, 0, groups - 1)], 0) if groups > 1 else ends.lift(0).reshape((1,))
    )
    ends, starts = (e.reshape((groups, 1)) for e in (ends, starts))
    return at.compare("GE", starts).both(at.compare("LT", ends))


def _mask_shape(shape, a_rank):
    """A group's mask beside the result: columns are cut where ``a`` has rank 3, rows otherwise."""
    return (1, shape[1]) if a_rank == 3 else (shape[0], 1)


def _depth_product(x, y, inside, wide):
    """The product over one group's part of the depth; both sides are zeroed elsewhere, so that no inf or NaN leaks in."""
    k = x.shape[1]
    return dot(inside.where(x, 0), inside.reshape((k, 1)).where(y, 0), ((), ()), ((1,), (0,)), wide)


TILE = 64  # rows per product: enough to pay for reading a group's matrix once more where a group spans several tiles


def _cut_rows(j, a, b, ends):
    """Rows of ``a [m, k]`` times the matrix of their group, ``b [groups, k, n]``.

    Goes through the rows tile by tile, a new tile at each group's beginning, so that the work is ``m + groups * TILE`` rows at most
    and groups without rows cost nothing.
    """
    m, groups = a.shape[0], b.shape[0]
    tile = min(m, TILE)
    out = j.np.zeros((m, b.shape[2]), a.dtype)
    if not m or not groups:
        return out

    def product(row, g, out):
        start = j.np.minimum(row, m - tile)
        rows = start + j.np.arange(tile)[:, None]
        y = j.lax.dynamic_slice(a, (start, 0), (tile, a.shape[1])) @ b[g]
        old = j.lax.dynamic_slice(out, (start, 0), (tile, out.shape[1]))
        inside = (rows >= row) & (rows < ends[g])
        return j.lax.dynamic_update_slice(out, j.np.where(inside, y, old), (start, 0))

    def step(state):
        row, g, out = state
        end = ends[g]
        out = j.lax.cond(row < end, product, lambda row, g, out: out, row, g, out)
        row = j.np.minimum(row + tile, j.np.maximum(end, row))
        return row, g + (row >= end), out

    zero = j.np.zeros((), ends.dtype)
    return j.lax.while_loop(lambda state: state[1] < groups, step, (zero, zero, out))[2]


def _cut_depth(j, a, b, ends):
    """``a [m, k] @ b [k, n]`` over each group's part of k."""
    at = j.np.arange(a.shape[1])
    starts = j.np.concatenate([j.np.zeros((1,), ends.dtype), ends[:-1]])

    def group(bounds):
        inside = (at >= bounds[0]) & (at < bounds[1])
        return j.np.where(inside[None], a, 0) @ j.np.where(inside[:, None], b, 0)

    return j.lax.map(group, (starts, ends))
