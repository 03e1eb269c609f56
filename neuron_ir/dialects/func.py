"""The ``func`` dialect: calls and returns."""

from neuron_ir.attrs import Symbol
from neuron_ir.opdef import ANY_OR_TOKEN, Op, attr, op, variadic
from neuron_ir.types import TensorType


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
        if module is not None:
            callee = module.funcs[self.callee]
            _check_types(self, "takes", [v.type for v in self.operands], [a.type for a in callee.args])
            _check_types(self, "gives", [r.type for r in self.results], callee.result_types)


def _check_types(call, verb, given, declared):
    """The call's types against the function's: equal, but for sizes that are symbols on one side."""
    fits = len(given) == len(declared) and all(map(_fits, given, declared))
    if not fits:
        texts = [f"({', '.join(map(str, types))})" for types in (declared, given)]
        raise call.error("type", f"@{call.callee} {verb} {texts[0]}, not {texts[1]}")


def _fits(a, b):
    if a is b:
        return True
    if not (isinstance(a, TensorType) and isinstance(b, TensorType)) or a.dtype is not b.dtype or a.rank != b.rank:
        return False
    return all(d == e or not (isinstance(d, int) and isinstance(e, int)) for d, e in zip(a.shape, b.shape, strict=True))
