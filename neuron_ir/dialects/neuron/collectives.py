"""Exchange between devices. Where a group has one participant, each op has its one-device meaning.

Groups of several devices need an axis, ``j.axis``: the name of a mapped one, or the names of those axes of ``j.mesh`` along which
the enclosing ``neuron.manual_computation`` divides its arrays. Without one the op is refused.
"""

from __future__ import annotations

from typing import Any

from neuron_ir.diagnostics import fail
from neuron_ir.dims import UNKNOWN
from neuron_ir.dtypes import U32
from neuron_ir.opdef import ANY, ANY_OR_TOKEN, INT_LISTS, STRINGS, TOKENS, Op, attr, op, operand, region, variadic
from neuron_ir.shardings import axes_of_groups, moves_along
from neuron_ir.types import TOKEN, TensorType

from .reduce import monoid
from .shapes import axis_of
from .windows import choose


def _group_size(self: Any) -> int | None:
    """Participants per group; ``None`` where the groups are not spelled out (all devices form one)."""
    groups = self.replica_groups
    if not groups:
        return None
    if len({len(g) for g in groups}) != 1 or not groups[0]:
        raise self.error("attr", f"replica_groups {[list(g) for g in groups]} must be of one size, at least 1")
    members = [m for g in groups for m in g]
    if len(set(members)) != len(members) or min(members) < 0:
        raise self.error("attr", f"replica_groups {[list(g) for g in groups]} must name each device once")
    return len(groups[0])


def alone(j: Any, name: str, groups: Any) -> bool:
    """Whether every participant is alone in its group; an error where it is not and no axis is offered."""
    if j.axis is not None:
        return bool(groups) and len(groups[0]) == 1
    if j.devices is not None:
        raise fail("unsupported", f"{name}: an exchange between devices outside of neuron.manual_computation")
    if any(len(g) > 1 for g in groups):
        raise fail("unsupported", f"{name}: groups of {max(map(len, groups))} devices, but the reference accelerator runs one")
    return True


def among(j: Any, name: str, groups: Any) -> tuple[Any, Any]:
    """The axis that a collective of these groups runs along, and the groups on it, as JAX takes both.

    The groups are ``None`` where all devices along the axis form one, in order.
    """
    if j.mesh is None:
        whole = not groups or (len(groups) == 1 and list(groups[0]) == list(range(len(groups[0]))))
        return j.axis, None if whole else [list(g) for g in groups]
    axes = axes_of_groups(groups, j.mesh)
    if axes is not None and set(axes) <= set(j.axis):
        return axes, None
    sizes = j.mesh.sizes
    divided = [n for n, size in sizes.items() if size > 1]
    if len(divided) == 1 and divided[0] in j.axis:
        return divided[0], [list(g) for g in groups]
    raise fail(
        "unsupported", f"{name}: the groups {[list(g) for g in groups]} do not lie along the axes {j.axis} of a mesh {sizes}"
    )


def _resized(self: Op, x: Any, axis: int, factor: int | None, divide: bool = False) -> TensorType:
    """The type of ``x`` with one dim times (or divided by) the group's size, which the result tells where the groups do not."""
    axis = axis_of(self, axis, x.type.rank)
    size = x.shape[axis]
    if factor is None:
        index = list(self.operands).index(x)
        asked = self.results[index].type if index < len(self.results) else None
        new = asked.shape[axis] if isinstance(asked, TensorType) and asked.rank == x.type.rank else UNKNOWN if asked else size
    elif divide and isinstance(size, int) and size % factor:
        raise self.error("shape", f"dim {axis} of {x.type} cannot be split among {factor} devices")
    else:
        new = size // factor if divide else size * factor
    return choose(self, [new if i == axis else d for i, d in enumerate(x.shape)], x.dtype, list(self.operands).index(x))


def _combine(j: Any, x: Any, body: Any, axis: Any, groups: Any) -> Any:
    """``x`` combined over the group by ``body``, a function of two scalars."""
    known = monoid(j, body)
    for function, collective in ((j.lax.add, j.lax.psum), (j.lax.max, j.lax.pmax), (j.lax.min, j.lax.pmin)):
        if known is function and x.dtype != bool:
            return collective(x, axis, axis_index_groups=groups)
    parts = j.lax.all_gather(x, axis, axis_index_groups=groups)
    each = j.jax.vmap(lambda a, b: body(a, b)[0])
    total = parts[0].reshape(-1)
    for part in parts[1:]:
        total = each(total, part.reshape(-1))
    return total.reshape(x.shape)


def _two_scalars(op: Op) -> list[TensorType]:
    return [op.operands[0].type.with_shape(())] * 2


def _one_scalar(op: Op) -> list[TensorType]:
    return [op.operands[0].type.with_shape(())]


@op("neuron.all_reduce", traits=["collective"])
class AllReduce(Op):
    """Each operand combined over all devices of the group, element by element, with ``computation``; all get the result."""

    inputs = variadic(ANY)
    replica_groups = attr(INT_LISTS, ())
    computation = region(_two_scalars, _one_scalar)

    def infer(self):
        _group_size(self)
        if len({v.dtype for v in self.operands}) != 1:
            raise self.error(
                "operand", f"operands of one element type are needed, not {', '.join(str(v.type) for v in self.operands)}"
            )
        return [v.type for v in self.operands]

    def jax(j, *inputs, replica_groups, computation):
        if alone(j, "neuron.all_reduce", replica_groups):
            return inputs
        axis, groups = among(j, "neuron.all_reduce", replica_groups)
        return tuple(_combine(j, x, computation, axis, groups) for x in inputs)


@op("neuron.reduce_scatter", traits=["collective"])
class ReduceScatter(Op):
    """The operand combined over the group; device i gets slice i of the result, cut along ``scatter_dimension``."""

    x = operand(ANY)
    scatter_dimension = attr(int)
    replica_groups = attr(INT_LISTS, ())
    computation = region(_two_scalars, _one_scalar)

    def infer(self):
        return _resized(self, self.x, self.scatter_dimension, _group_size(self), divide=True)

    def jax(j, x, *, scatter_dimension, replica_groups, computation):
        if alone(j, "neuron.reduce_scatter", replica_groups):
            return x
        dim, (axis, groups) = scatter_dimension % x.ndim, among(j, "neuron.reduce_scatter", replica_groups)
        if monoid(j, computation) is j.lax.add and x.dtype != bool:
            return j.lax.psum_scatter(x, axis, scatter_dimension=dim, axis_index_groups=groups, tiled=True)
        parts = j.lax.all_to_all(x, axis, dim, dim, axis_index_groups=groups, tiled=True)
        count = len(replica_groups[0]) if replica_groups else j.lax.axis_size(axis)
        each = j.jax.vmap(lambda a, b: computation(a, b)[0])
        total, *rest = j.np.split(parts, count, dim)
        for part in rest:
            total = each(total.reshape(-1), part.reshape(-1)).reshape(total.shape)
        return total


@op("neuron.all_gather", traits=["collective"])
class AllGather(Op):
    """The operands of all devices of the group, one after the other along ``all_gather_dim``."""

    inputs = variadic(ANY)
    all_gather_dim = attr(int)
    replica_groups = attr(INT_LISTS, ())

    def infer(self):
        size = _group_size(self)
        return [_resized(self, v, self.all_gather_dim, size) for v in self.operands]

    def jax(j, *inputs, all_gather_dim, replica_groups):
        if alone(j, "neuron.all_gather", replica_groups):
            return inputs
        axis, groups = among(j, "neuron.all_gather", replica_groups)
        return tuple(j.lax.all_gather(x, axis, axis_index_groups=groups, axis=all_gather_dim % x.ndim, tiled=True) for x in inputs)


@op("neuron.all_to_all", traits=["collective"])
class AllToAll(Op):
    """Cuts each operand into ``split_count`` pieces along ``split_dimension`` and sends piece i to device i of the group.

    What arrives is joined along ``concat_dimension``.
    """

    inputs = variadic(ANY)
    split_dimension = attr(int)
    concat_dimension = attr(int)
    split_count = attr(int)
    replica_groups = attr(INT_LISTS, ())

    def infer(self):
        size, count = _group_size(self), self.split_count
        if count < 1 or (size is not None and size != count):
            raise self.error("attr", f"split_count = {count} pieces for groups of {size} devices")
        return [self._type(i, v) for i, v in enumerate(self.operands)]

    def _type(self, index, v):
        split, concat = (axis_of(self, a, v.type.rank) for a in (self.split_dimension, self.concat_dimension))
        shape = list(v.shape)
        if isinstance(shape[split], int) and shape[split] % self.split_count:
            raise self.error("shape", f"dim {split} of {v.type} cannot be split into {self.split_count} pieces")
        shape[split] = shape[split] // self.split_count
        shape[concat] = shape[concat] * self.split_count
        return choose(self, shape, v.dtype, index)

    def jax(j, *inputs, split_dimension, concat_dimension, split_count, replica_groups):
        if split_count == 1:
            return inputs
        if alone(j, "neuron.all_to_all", replica_groups or (tuple(range(split_count)),)):
            raise AssertionError("split_count equals the group's size")
        split, concat, (axis, groups) = split_dimension, concat_dimension, among(j, "neuron.all_to_all", replica_groups)
        return tuple(
            j.lax.all_to_all(x, axis, split % x.ndim, concat % x.ndim, axis_index_groups=groups, tiled=True) for x in inputs
        )


@op("neuron.collective_permute", traits=["collective"])
class CollectivePermute(Op):
    """Sends the operand from the first to the second device of each pair; a device that nobody sends to gets zeros."""

    x = operand(ANY)
    source_target_pairs = attr(INT_LISTS)

    def infer(self):
        pairs = self.source_target_pairs
        sources, targets = [p[0] for p in pairs if len(p) == 2], [p[1] for p in pairs if len(p) == 2]
        if len(sources) != len(pairs) or len(set(sources)) != len(pairs) or len(set(targets)) != len(pairs):
            raise self.error(
                "attr", f"source_target_pairs {[list(p) for p in pairs]} must be pairs with each source and target once"
            )
        return self.x.type

    def jax(j, x, *, source_target_pairs):
        if j.axis is not None:
            return j.lax.ppermute(x, *_moves(j, source_target_pairs))
        if any(p != (0, 0) for p in source_target_pairs):
            pairs = [list(p) for p in source_target_pairs]
            raise fail("unsupported", f"neuron.collective_permute: pairs {pairs}, but the reference accelerator runs one device")
        return x if source_target_pairs else j.np.zeros_like(x)


@op("neuron.collective_broadcast", traits=["collective"])
class CollectiveBroadcast(Op):
    """The operand of the first device of each group, given to the whole group; devices outside all groups get zeros."""

    x = operand(ANY)
    replica_groups = attr(INT_LISTS, ())

    def infer(self):
        _group_size(self)
        return self.x.type

    def jax(j, x, *, replica_groups):
        if alone(j, "neuron.collective_broadcast", replica_groups):
            return x if not replica_groups or any(0 in g for g in replica_groups) or j.axis is not None else j.np.zeros_like(x)
        axis, groups = among(j, "neuron.collective_broadcast", replica_groups)
        return j.lax.all_gather(x, axis, axis_index_groups=groups)[0]


def _moves(j: Any, pairs: Any) -> tuple[Any, list[tuple[int, int]]]:
    """The axis along which values move, and pairs of places on it."""
    if j.mesh is None:
        return j.axis, [tuple(p) for p in pairs]
    moves = moves_along(pairs, j.mesh, j.axis)
    if moves is None:
        what = f"pairs {[list(p) for p in pairs]} that do not lie along the axes {j.axis} of a mesh {j.mesh.sizes}"
        raise fail("unsupported", f"neuron.collective_permute: {what}")
    return j.axis, moves


def _axis_index(j: Any, name: str) -> Any:
    """This device's number."""
    if j.axis is None and j.devices is None:
        return j.np.uint32(0)
    if j.axis is None or (j.mesh is not None and any(size > 1 and n not in j.axis for n, size in j.mesh.axes)):
        raise fail("unsupported", f"{name}: a device's number where the program is that of several devices")
    return j.lax.axis_index(j.axis).astype(j.np.uint32)


@op("neuron.replica_id", traits=["collective"])
class ReplicaId(Op):
    """The number of the replica that runs this, u32; 0 on one device, and where the devices are partitions."""

    def infer(self):
        return TensorType((), U32)

    def jax(j):
        return j.np.uint32(0) if j.devices is not None else _axis_index(j, "neuron.replica_id")


@op("neuron.partition_id", traits=["collective"])
class PartitionId(Op):
    """The number of the partition that runs this, u32; 0 on one device."""

    def infer(self):
        return TensorType((), U32)

    def jax(j):
        return _axis_index(j, "neuron.partition_id")


# --- tokens -----------------------------------------------------------------------------------------------------------


@op("neuron.create_token")
class CreateToken(Op):
    """A token that waits for nothing."""

    def infer(self):
        return TOKEN

    def jax(j):
        return j.np.zeros(0, bool)


@op("neuron.after_all")
class AfterAll(Op):
    """A token that waits for all the given ones."""

    inputs = variadic(TOKENS)

    def infer(self):
        return TOKEN

    def jax(j, *inputs):
        return j.np.zeros(0, bool)


# --- channels to the host and between programs: part of the language, without a meaning on the reference accelerator ---


@op("neuron.send", traits=["effect"])
class Send(Op):
    """Sends values over a channel after the token, the last operand; gives a token. Not run by the reference accelerator."""

    values = variadic(ANY_OR_TOKEN)
    channel_id = attr(int, 0)
    channel_type = attr(int, 0)
    is_host_transfer = attr(bool, False)
    source_target_pairs = attr(INT_LISTS, ())

    def check(self):
        _needs_token(self, self.operands, self.results, "last operand")
        if len(self.results) != 1:
            raise self.error("type", f"gives one token, not {len(self.results)} results")


@op("neuron.recv", traits=["effect"])
class Recv(Op):
    """Receives values of the result types over a channel, and a token, the last result. Not run by the reference accelerator."""

    token = operand(TOKENS)
    channel_id = attr(int, 0)
    channel_type = attr(int, 0)
    is_host_transfer = attr(bool, False)
    source_target_pairs = attr(INT_LISTS, ())

    def check(self):
        _needs_token(self, self.operands, self.results, "operand")


@op("neuron.infeed", traits=["effect"])
class Infeed(Op):
    """Reads values of the result types from the host, and a token, the last result. Not run by the reference accelerator."""

    token = operand(TOKENS)
    infeed_config = attr(str, "")
    layout = attr(STRINGS, ())

    def check(self):
        _needs_token(self, self.operands, self.results, "operand")


@op("neuron.outfeed", traits=["effect"])
class Outfeed(Op):
    """Writes values to the host after the token, the last operand; gives a token. Not run by the reference accelerator."""

    values = variadic(ANY_OR_TOKEN)
    outfeed_config = attr(str, "")

    def check(self):
        _needs_token(self, self.operands, self.results, "last operand")
        if len(self.results) != 1:
            raise self.error("type", f"gives one token, not {len(self.results)} results")


def _needs_token(self: Op, operands: Any, results: Any, what: str) -> None:
    if not operands or operands[-1].type is not TOKEN:
        raise self.error("operand", f"the {what} must be a token")
    if not results or results[-1].type is not TOKEN:
        raise self.error("type", "the last result must be a token")
