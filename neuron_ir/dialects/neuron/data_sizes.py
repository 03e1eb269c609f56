"""Sizes that the data decide: where one is bound to a symbol, what has such a size, and conditions on the data."""

from __future__ import annotations

from neuron_ir.datasizes import out_of_range
from neuron_ir.dims import Dim
from neuron_ir.dtypes import I64
from neuron_ir.opdef import ANY, BOOL, DIM, INT, Op, attr, op, operand, variadic
from neuron_ir.types import TensorType


@op("neuron.bind_size", traits=["effect"])
class BindSize(Op):
    """Gives the symbol ``size`` the value ``x`` (an i64 of rank 0), and gives that value back.

    The symbol is one of the function's head, of no argument's type, and may stand in types and attributes from here on. The program
    stops where the value is outside of the symbol's range. Stands at a function's own level, not inside a region, once per symbol.

    ```nir
    func @main[n in 0..4](%x: tensor<4xf32>) -> tensor<nx1xi64> {
      %zero = neuron.constant() {value = dense<0.0>} : tensor<4xf32>
      %mask = neuron.compare(%x, %zero) {direction = "NE"} : tensor<4xbool>
      %ones = neuron.cast(%mask) : tensor<4xi64>
      %count = neuron.reduce_sum(%ones) {axes = [0]} : tensor<i64>
      %n = neuron.bind_size(%count) {size = n} : tensor<i64>
      %places = neuron.nonzero(%x) {size = n} : tensor<nx1xi64>
      func.return(%places)
    }
    ```
    """

    x = operand(INT)
    size = attr(DIM)

    def infer(self):
        if self.x.type is not TensorType((), I64):
            raise self.error("operand", f"a size is an i64 of rank 0, not {self.x.type}")
        if not (isinstance(self.size, Dim) and self.size.is_symbol):
            raise self.error("attr", f"size must be one symbol, not {self.size}")
        return self.x.type

    def jax(j, x, *, size):
        func = j.op.block.func if j.op is not None and j.op.block is not None else None
        low, high = func.dims.get(str(size), (0, None)) if func is not None else (0, None)
        j.require((x >= low) & (x <= (2**63 - 1 if high is None else high)), out_of_range(str(size), "a value", (low, high)))
        return x


@op("neuron.nonzero")
class Nonzero(Op):
    """The coordinates of the elements that are not 0, in row-major order: the first ``size`` of them, one row each.

    Where there are fewer, the other rows hold ``fill_value``. NaN is not 0.
    """

    x = operand(ANY)
    size = attr(DIM)
    fill_value = attr(int, -1)

    def infer(self):
        return TensorType((self.size, self.x.type.rank), I64)

    def jax(j, x, *, size, fill_value):
        if not x.ndim:
            return j.np.zeros((size, 0), "int64")
        if not x.size or not size:
            return j.np.full((size, x.ndim), fill_value, "int64")
        return j.np.stack(j.np.nonzero(x, size=size, fill_value=fill_value), axis=1).astype("int64")


@op("neuron.check", traits=["effect"])
class Check(Op):
    """Stops the program with ``message`` unless all of ``ok`` holds. No result.

    ``{0}``, ``{1}``, ... in the message stand for the ``values`` of that run, integers of rank 0.
    """

    ok = operand(BOOL)
    values = variadic(INT)
    message = attr(str)

    def infer(self):
        return ()

    def check(self):
        ranked = next((v.type for v in self.values if v.type.rank), None)
        if ranked is not None:
            raise self.error("operand", f"a value of the message has rank 0, not {ranked}")
        try:
            self.message.format(*range(len(self.values))) if self.values else None
        except (IndexError, KeyError, ValueError):
            raise self.error(
                "attr", f"the message {self.message!r} names other values than the {len(self.values)} there are"
            ) from None

    def jax(j, ok, *values, message):
        j.require(ok, message, values)
        return ()
