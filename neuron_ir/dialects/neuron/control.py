"""Structured control flow."""

from __future__ import annotations

from neuron_ir.dtypes import I64
from neuron_ir.opdef import ANY_OR_TOKEN, BOOL, INT, INTS, Op, attr, op, operand, region, variadic
from neuron_ir.types import TensorType, Type, same_shape


@op("neuron.yield", traits=["terminator"])
class Yield(Op):
    """Ends a region and gives its values to the op around it."""

    values = variadic(ANY_OR_TOKEN)

    def infer(self):
        return ()


def _init_types(op: Op) -> list[Type]:
    return [v.type for v in op.operands]


def _yielded(op: Op, index: int = 0) -> list[Type]:
    """The types that region ``index`` yields."""
    last = op.regions[index].last if index < len(op.regions) else None
    if last is None or last.name != "neuron.yield":
        raise op.error("region", f"region {index} must end with neuron.yield")
    return [v.type for v in last.operands]


def _scalar(self: Op, value) -> None:
    if value.type.rank:
        raise self.error("operand", f"the scalar that decides cannot be {value.type}")


@op("neuron.if", traits=["control"])
class If(Op):
    """Runs ``true_branch`` where the scalar ``pred`` holds, else ``false_branch``; both take no arguments and yield equal types."""

    pred = operand(BOOL)
    true_branch = region(lambda op: (), lambda op: _yielded(op, 0))
    false_branch = region(lambda op: (), lambda op: _yielded(op, 0))

    def infer(self):
        _scalar(self, self.pred)
        return _yielded(self)

    def jax(j, pred, *, true_branch, false_branch):
        return j.lax.cond(pred, true_branch, false_branch)


@op("neuron.case", traits=["control"])
class Case(Op):
    """Runs branch number ``index``, the last one where ``index`` is out of range; branches take no arguments, yield equal types."""

    index = operand(INT)
    branches = region(lambda op: (), lambda op: _yielded(op, 0), variadic=True)

    def infer(self):
        _scalar(self, self.index)
        return _yielded(self)

    def jax(j, index, *, branches):
        last = len(branches) - 1
        known = (index >= 0) & (index < last)
        return j.lax.switch(j.np.where(known, index, last).astype(j.np.int32), branches)


@op("neuron.while", traits=["control"])
class While(Op):
    """Runs ``body`` on the carried values as long as ``cond`` gives true."""

    inits = variadic(ANY_OR_TOKEN)
    cond = region(_init_types, lambda op: [TensorType((), next(iter(BOOL)))])
    body = region(_init_types, _init_types)

    def infer(self):
        return [v.type for v in self.operands]

    def jax(j, *inits, cond, body):
        return j.lax.while_loop(lambda c: cond(*c)[0], lambda c: body(*c), inits)


def _for_args(op: Op) -> list[Type]:
    return [TensorType((), I64), *_init_types(op)]


@op("neuron.for", traits=["control"])
class For(Op):
    """Runs ``body`` ``trip_count`` times on the carried values; its first argument counts from 0 in i64."""

    inits = variadic(ANY_OR_TOKEN)
    trip_count = attr(int)
    body = region(_for_args, _init_types)

    def infer(self):
        if self.trip_count < 0:
            raise self.error("attr", f"trip_count = {self.trip_count} is negative")
        return [v.type for v in self.operands]

    def jax(j, *inits, trip_count, body):
        return j.lax.fori_loop(j.np.int64(0), j.np.int64(trip_count), lambda i, c: body(i, *c), inits)


def _scan_args(op: Op) -> list[Type]:
    n = op.get("num_carry")
    return [v.type if i < n else v.type.with_shape(v.shape[1:]) for i, v in enumerate(op.operands)]


def _scan_results(op: Op) -> list[Type]:
    """Carried values keep their types; what is stacked is free."""
    n = op.get("num_carry")
    return [v.type for v in op.operands[:n]] + _yielded(op)[n:]


@op("neuron.scan", traits=["control"])
class Scan(Op):
    """Runs ``body`` ``length`` times on carried values and one slice of each stacked input.

    Operands: ``num_carry`` carried values, then inputs stacked along dim 0 (of size ``length``). ``body`` yields new carried values
    and one slice of each stacked result. Results: the last carried values, then the stacked ones. ``reverse`` runs from the last
    slice to the first; slice i of a result still belongs to slice i of the inputs.
    """

    values = variadic(ANY_OR_TOKEN)
    num_carry = attr(int)
    length = attr(int)
    reverse = attr(bool, False)
    body = region(_scan_args, _scan_results)

    def infer(self):
        n = self.num_carry
        if not 0 <= n <= len(self.operands) or self.length < 0:
            raise self.error("attr", f"num_carry = {n} and length = {self.length} do not fit {len(self.operands)} operands")
        for v in self.operands[n:]:
            if not v.shape or not same_shape(v.shape[:1], [self.length]):
                raise self.error("shape", f"a stacked input of {self.length} slices cannot be {v.type}")
        types = _yielded(self)
        if len(types) < n:
            raise self.error("region", f"the body yields {len(types)} values, fewer than the {n} carried ones")
        return [v.type for v in self.operands[:n]] + [t.with_shape((self.length, *t.shape)) for t in types[n:]]

    def jax(j, *values, num_carry, length, reverse, body):
        def step(carry, xs):
            results = body(*carry, *xs)
            return results[:num_carry], results[num_carry:]

        carry, stacked = j.lax.scan(step, tuple(values[:num_carry]), tuple(values[num_carry:]), length, reverse)
        return (*carry, *stacked)


@op("neuron.optimization_barrier")
class OptimizationBarrier(Op):
    """Gives its operands unchanged; no computation moves across."""

    values = variadic(ANY_OR_TOKEN)

    def infer(self):
        return [v.type for v in self.operands]

    def jax(j, *values):
        return j.lax.optimization_barrier(values) if values else ()


@op("neuron.fused")
class Fused(Op):
    """A group of ops that an accelerator runs as one; values inside stay on chip. ``kind`` says what group it is.

    The region sees its arguments, one per operand, and nothing else around it.
    """

    inputs = variadic(ANY_OR_TOKEN)
    kind = attr(str, "")
    body = region(_init_types)

    def infer(self):
        return _yielded(self)

    def jax(j, *inputs, kind, body):
        return body(*inputs)


@op("neuron.map", traits=["elementwise"])
class Map(Op):
    """Applies ``body``, a function of one scalar per operand, to each element. ``dimensions``: all dims in order, or empty."""

    inputs = variadic()
    dimensions = attr(INTS, ())
    body = region(lambda op: [v.type.with_shape(()) for v in op.operands])

    def infer(self):
        if not self.operands:
            raise self.error("operand", "takes at least 1 operand(s), not 0")
        first = self.operands[0]
        for v in self.operands[1:]:
            if not same_shape(v.shape, first.shape):
                raise self.error("shape", f"operands of one shape are needed, not {first.type} and {v.type}")
        if self.dimensions and self.dimensions != tuple(range(first.type.rank)):
            raise self.error("attr", f"dimensions {list(self.dimensions)} must list all {first.type.rank} dims in order")
        types = _yielded(self)
        if len(types) != 1 or types[0].shape:
            raise self.error("region", f"the body yields one scalar, not ({', '.join(map(str, types))})")
        return first.type.with_dtype(types[0].dtype)

    def jax(j, *inputs, dimensions, body, out):
        y = j.jax.vmap(lambda *xs: body(*xs)[0])(*[x.reshape(-1) for x in inputs])
        return y.reshape(out.shape)
