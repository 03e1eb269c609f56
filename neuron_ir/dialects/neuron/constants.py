"""Values that need no operand."""

from __future__ import annotations

from neuron_ir.opdef import CONSTANT, Op, attr, op


@op("neuron.constant", traits=["constant"])
class Constant(Op):
    """A constant tensor; ``value`` holds the elements (``dense``) or names an array of the module's weights (``resource``)."""

    value = attr(CONSTANT)

    def check(self):
        type = self.results[0].type
        if hasattr(self.value, "dtype") and (self.value.dtype is not type.dtype or self.value.shape != type.shape):
            raise self.error("type", f"the constant is {self.value.dtype} {list(self.value.shape)}")

    def jax(j, *, value, out):
        return j.constant(value, out)
