"""The ``func`` dialect: calls and returns."""

from neuron_ir.attrs import Symbol
from neuron_ir.opdef import ANY_OR_TOKEN, Op, attr, op, variadic


@op("func.return", traits=["terminator"])
class Return(Op):
    """Ends a function and gives its results."""

    values = variadic(ANY_OR_TOKEN)

    def infer(self):
        return ()


@op("func.call", traits=["control"])
class Call(Op):
    """Calls a function of the module. The result types are the callee's."""

    inputs = variadic(ANY_OR_TOKEN)
    callee = attr(Symbol)

    def check(self):
        func = self.block.func if self.block else None
        module = func.module if func else None
        if module is not None and self.callee not in module.funcs:
            raise self.error("name", f"there is no function @{self.callee}")
