"""Structured control flow."""

from __future__ import annotations

from neuron_ir.opdef import ANY_OR_TOKEN, Op, op, region, variadic


@op("neuron.yield", traits=["terminator"])
class Yield(Op):
    """Ends a region and gives its values to the op around it."""

    values = variadic(ANY_OR_TOKEN)

    def infer(self):
        return ()


def _init_types(op):
    return [v.type for v in op.operands]


@op("neuron.while", traits=["control"])
class While(Op):
    """Runs ``body`` on the carried values as long as ``cond`` gives true."""

    inits = variadic(ANY_OR_TOKEN)
    cond = region(_init_types)
    body = region(_init_types, _init_types)

    def infer(self):
        return [v.type for v in self.operands]

    def jax(j, *inits, cond, body):
        return j.lax.while_loop(lambda c: cond(*c)[0], lambda c: body(*c), inits)
