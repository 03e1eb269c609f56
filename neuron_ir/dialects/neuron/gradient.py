"""Gradients of a piece of a program, by the chain rule through its own meaning: no op needs a second one for its backward pass."""

from __future__ import annotations

from neuron_ir.opdef import ANY, FLOAT, INTS, Op, attr, op, region, variadic
from neuron_ir.types import same_shape

from .control import _yielded


@op("neuron.vjp", traits=["control"])
class Vjp(Op):
    """The gradient of its region: ``sum over results y of grad(y) * dy / dx`` for each argument x that ``wrt`` counts (empty: all).

    Operands: ``num_grads`` gradients, one for each value that ``body`` yields and of its type, then one value for each argument of
    ``body``. Results have the types of the arguments in ``wrt``, which are floats. Values that the region sees around it are
    constants. Where the function has a kink, one of its one-sided derivatives, or their mean, is taken.
    """

    values = variadic(ANY)
    num_grads = attr(int, 1)
    wrt = attr(INTS, ())
    body = region(lambda op: [v.type for v in op.operands[op.get("num_grads") :]])

    def infer(self):
        n, yields = self.num_grads, _yielded(self)
        if not 0 < n <= len(self.operands) or n != len(yields):
            raise self.error("attr", f"num_grads = {n} does not fit {len(self.operands)} operands and {len(yields)} yielded values")
        for v, t in zip(self.operands, yields, strict=False):
            if v.dtype is not t.dtype or not same_shape(v.shape, t.shape) or t.dtype not in FLOAT:
                raise self.error("type", f"the gradient of a yielded {t} cannot be {v.type}")
        inputs = [v.type for v in self.operands[n:]]
        for i in self.wrt:
            if not 0 <= i < len(inputs):
                raise self.error("attr", f"wrt = {list(self.wrt)} must count arguments, of which there are {len(inputs)}")
        chosen = [inputs[i] for i in self.wrt] or inputs
        for t in chosen:
            if t.dtype not in FLOAT:
                raise self.error("type", f"an argument of {t} has no gradient")
        return chosen

    def jax(j, *values, num_grads, wrt, body):
        grads, inputs = values[:num_grads], list(values[num_grads:])
        places = wrt or range(len(inputs))

        def of_chosen(*chosen):
            for place, value in zip(places, chosen, strict=True):
                inputs[place] = value
            return body(*inputs)

        _, backward = j.jax.vjp(of_chosen, *[inputs[i] for i in places])
        return backward(tuple(grads))
