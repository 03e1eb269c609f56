"""What torch raises where a factorisation fails: checks that stop the program and name the matrix of the batch.

torch counts from 1 where a factorisation failed, 0 stands for none; matrices of a batch are numbered from 0 in row-major order.
"""

from __future__ import annotations

import math
import operator
from functools import reduce

from neuron_ir.builder import Builder
from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dtypes import I64
from neuron_ir.frontends.torch.aten.creation import identity, indices
from neuron_ir.frontends.torch.lowering import Context, lowers
from neuron_ir.types import TensorType

# What the name of torch's function contains -> what the number {n} says.
_REASONS = {
    "inv": "the diagonal element {n} is zero, so that the matrix is singular and has no inverse",
    "solve": "the diagonal element {n} of U is zero, so that the matrix is singular and the system has no one solution",
    "cholesky": "the leading minor of order {n} is not positive-definite",
    "lu_factor": "U[{n},{n}] is zero, and solving with it would divide by zero",
    "ldl_factor": "the block of D at {n} is zero",
}
_OTHER = "the factorisation failed at {n}"
_STEPS = 24  # of a bisection over a symbolic size, which a matrix in memory does not exceed


@lowers("_linalg_check_errors.default")
def check_errors(c: Context, info: Value, api_name: str, *, is_matrix: bool) -> None:
    """torch's own check, which it leaves in the program behind each operation whose number it does not give to the user."""
    stop_where_failed(c, info, api_name)


def stop_where_failed(c: Context, info: Value, api_name: str) -> None:
    """Stop the program where a number in ``info`` is not 0."""
    if any(d == 0 for d in info.shape):
        return
    reason = next((text for part, text in _REASONS.items() if part in api_name), _OTHER)
    message = f"{api_name}: {{batch}}{reason}"
    info = c.cast(info, I64)
    ok = c.b.compare(info, c.scalar(0, I64, info.shape), direction="EQ")
    if not info.shape:
        c.b.check(ok, info, message=message.format(batch="", n="{0}"))
        return
    place, number = _first(c, ok, info)
    c.b.check(ok, place, number, message=message.format(batch="matrix {0} of the batch: ", n="{1}"))


def stop_unless(c: Context, ok: Value, api_name: str, reason: str) -> None:
    """Stop the program with ``reason`` unless all of ``ok``, one truth value per matrix, holds."""
    if any(d == 0 for d in ok.shape):
        return
    if not ok.shape:
        c.b.check(ok, message=f"{api_name}: {reason}")
        return
    place, _ = _first(c, ok, c.cast(ok, I64))
    c.b.check(ok, place, message=f"{api_name}: matrix {{0}} of the batch: {reason}")


def _first(c: Context, ok: Value, numbers: Value) -> tuple[Value, Value]:
    """The place of the first matrix that is not ok, and its number."""
    flat = (reduce(operator.mul, ok.shape),)
    places = Expr(c.b, c.b.iota(iota_dimension=0, out=TensorType(flat, I64)))
    failed = Expr(c.b, c.reshape(ok, flat)).where(2**62, places)
    first = Expr(c.b, c.b.reduce_min(failed.value, axes=(0,)))
    here = places.compare("EQ", first.broadcast(flat, ()))
    return first.value, here.where(Expr(c.b, c.reshape(numbers, flat)), 0).sum((0,), False).value


def has_nan(c: Context, x: Value) -> Value:
    """Whether there is NaN in a matrix, for each one."""
    return c.b.reduce_or(c.b.is_nan(x), axes=(len(x.shape) - 2, len(x.shape) - 1))  # type: ignore[no-any-return]


def stop_unless_finite(c: Context, x: Value, api_name: str) -> None:
    """Stop the program where a matrix has an element that is not finite."""
    finite = c.b.is_finite(c.b.abs(x))
    ok = c.b.reduce_and(finite, axes=(len(x.shape) - 2, len(x.shape) - 1))
    stop_unless(c, ok, api_name, "an element is not finite")


def stop_unless_converged(c: Context, result: Value, axes: tuple[int, ...], api_name: str) -> None:
    """Stop the program where a result of an iteration is NaN throughout ``axes``, as one that did not come to an end leaves it."""
    ok = c.b.not_(c.b.reduce_and(c.b.is_nan(result), axes=axes))
    stop_unless(c, ok, api_name, "the algorithm did not converge, or an element of the matrix is NaN")


def failed_minor(c: Context, x: Value, factor: Value, lower: bool) -> Value:
    """The order of the first leading minor of ``x`` that is not positive-definite, 0 where ``factor`` is one of Cholesky's (i64).

    A minor that is not positive-definite makes all greater ones so: bisection finds the first, in a branch that is taken only
    where a factorisation failed.
    """
    bad = has_nan(c, factor)
    batch, n = bad.shape, x.shape[-1]
    steps = math.ceil(math.log2(n)) if isinstance(n, int) else _STEPS

    def search(b: Builder) -> Value:
        inner = Context(b, c.symbols)
        rows, columns = (Expr(b, v) for v in indices(inner, x.shape))
        one = Expr(b, identity(inner, x.type))
        low, high = (Expr(b, inner.scalar(v, I64, batch)) for v in (0, n))
        for _ in range(steps):
            middle = (low + high) / 2
            size = middle.broadcast(x.shape, tuple(range(len(batch))))
            minor = rows.compare("LT", size).both(columns.compare("LT", size)).where(Expr(b, x), one)
            failed = Expr(b, has_nan(inner, b.cholesky(minor.value, lower=lower)))
            low, high = failed.where(low, middle), failed.where(middle, high)
        return Expr(b, bad).where(high, 0).value

    def nothing(b: Builder) -> Value:
        return Context(b, c.symbols).scalar(0, I64, batch)

    any_bad = c.b.reduce_or(bad, axes=tuple(range(len(batch)))) if batch else bad
    return c.b.if_(any_bad, true_branch=search, false_branch=nothing)  # type: ignore[no-any-return]
