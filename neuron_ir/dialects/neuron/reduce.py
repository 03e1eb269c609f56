"""Reductions: with a body of one's own, and the common ones by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from neuron_ir.attrs import Dense
from neuron_ir.dtypes import BOOL as BOOL_TYPE
from neuron_ir.dtypes import I64, DType
from neuron_ir.opdef import ANY, BOOL, COMPLEX, FLOAT, INT, INTS, REAL, Op, attr, declare, op, operand, region, variadic
from neuron_ir.types import TensorType

from .shapes import axes_of, axis_of
from .windows import PADDING, accumulator_name, choose, fill, fill_pads, window_count

# --- with a body of one's own -----------------------------------------------------------------------------------------

MONOIDS = {
    "neuron.add": "add",
    "neuron.multiply": "mul",
    "neuron.maximum": "max",
    "neuron.minimum": "min",
    "neuron.and": "bitwise_and",
    "neuron.or": "bitwise_or",
    "neuron.xor": "bitwise_xor",
}  # op -> the function of jax.lax
MEANS_AND = ("neuron.and", "neuron.multiply", "neuron.minimum")  # of bool


def monoid(j: Any, body: Any) -> Callable[..., Any] | None:
    """The function of ``jax.lax`` that a body of two scalars is, or ``None`` where it is something else."""
    block = body.block
    op, end = block.first, block.last
    if op.next is not end or op.name not in MONOIDS or end.operands != list(op.results):
        return None
    if set(op.operands) != set(block.args):
        return None
    if block.args[0].dtype is BOOL_TYPE:
        return j.lax.bitwise_and if op.name in MEANS_AND else j.lax.bitwise_xor if op.name == "neuron.xor" else j.lax.bitwise_or
    return getattr(j.lax, MONOIDS[op.name])


def keeps_nan(j: Any, body: Any, dtype: Any) -> Any:
    """The body for reductions. XLA on CPU loses NaN in a plain maximum or minimum of more than some 32 floats."""
    if not j.np.issubdtype(dtype, j.np.floating):
        return body
    if body is j.lax.max:
        return lambda a, b: j.np.where((a > b) | (a != a), a, b)
    return (lambda a, b: j.np.where((a < b) | (a != a), a, b)) if body is j.lax.min else body


def rounds(j: Any, body: Callable[..., Any] | None, dtype: Any) -> bool:
    """Whether repeating ``body`` in a narrow float would round again and again, so that f32 is needed between."""
    return body in (j.lax.add, j.lax.mul) and j.np.issubdtype(dtype, j.np.floating) and dtype.itemsize < 4


def written(operand: Any, value: Any) -> Any:
    """The number itself where the operand is a constant in the text: JAX differentiates a sum of windows only from a known 0."""
    constant = operand.op.get("value") if operand.op is not None and operand.op.name == "neuron.constant" else None
    return constant.array.reshape(()) if isinstance(constant, Dense) else value


def on_tuples(body: Callable[..., Any], n: int) -> Callable[..., Any]:
    """A body of ``2n`` scalars as JAX calls it: on two tuples (two values where ``n`` is 1)."""
    if n == 1:
        return lambda a, b: body(a, b)[0]
    return lambda a, b: body(*a, *b)


def once(j: Any, body: Any, values: Any, shape: Any) -> tuple[Any, ...]:
    """The body applied to initial value and element, once each. XLA forgets the initial value where it reduces one element."""
    n = len(values) // 2
    starts = [j.np.broadcast_to(v, values[0].size) for v in values[n:]]
    made = j.jax.vmap(body)(*starts, *[x.reshape(-1) for x in values[:n]])
    return tuple(y.reshape(shape) for y in made)


def _halves(self: Op) -> tuple[list[Any], list[Any]]:
    """Inputs and their initial values; an error where they do not match one to one."""
    values = self.operands
    if not values or len(values) % 2:
        raise self.error("operand", f"takes inputs and as many initial values, not {len(values)} operand(s)")
    inputs, inits = values[: len(values) // 2], values[len(values) // 2 :]
    for x, init in zip(inputs, inits, strict=True):
        if init.type is not TensorType((), x.dtype):
            raise self.error("operand", f"the initial value of {x.type} must be {TensorType((), x.dtype)}, not {init.type}")
        if x.shape != inputs[0].shape:
            raise self.error("shape", f"the inputs must have one shape, not {list(inputs[0].shape)} and {list(x.shape)}")
    return inputs, inits


def _scalars(self: Op) -> list[TensorType]:
    """The types of the initial values."""
    return [TensorType((), v.dtype) for v in self.operands[len(self.operands) // 2 :]]


@op("neuron.reduce", traits=["reduction"])
class Reduce(Op):
    """Combines the elements along ``dimensions`` with ``body``, beginning with the initial value.

    Operands: n inputs of one shape, then n scalars. ``body`` takes n accumulated values and n elements and yields n values; it must
    be associative and commutative, since the order is not fixed. A body that is one add or mul of floats narrower than f32
    accumulates in f32 and rounds once.
    """

    values = variadic(ANY)
    dimensions = attr(INTS)
    body = region(lambda op: _scalars(op) * 2, _scalars)

    def infer(self):
        inputs, _ = _halves(self)
        axes = axes_of(self, self.dimensions, inputs[0].type.rank)
        shape = [d for i, d in enumerate(inputs[0].shape) if i not in axes]
        return [x.type.with_shape(shape) for x in inputs]

    def jax(j, *values, dimensions, body):
        n = len(values) // 2
        dims = tuple(d % values[0].ndim for d in dimensions)
        if math.prod(values[0].shape[d] for d in dims) == 1:
            return once(j, body, values, [s for i, s in enumerate(values[0].shape) if i not in dims])
        if n > 1:
            return tuple(j.lax.reduce(values[:n], values[n:], on_tuples(body, n), dims))
        x, init = values
        known = monoid(j, body)
        wide = j.np.float32 if rounds(j, known, x.dtype) else x.dtype
        reducer = keeps_nan(j, known, x.dtype) or on_tuples(body, 1)
        return j.lax.reduce(x.astype(wide), init.astype(wide), reducer, dims).astype(x.dtype)


@op("neuron.reduce_window", traits=["reduction"])
class ReduceWindow(Op):
    """Combines the elements of each window with ``body``, beginning with the initial value, which also stands in the padding.

    Operands and ``body`` as in reduce. ``window_dimensions`` has one entry per dim of the input; ``window_strides``,
    ``base_dilations`` (holes between elements, filled with the initial value), ``window_dilations`` and ``padding`` (pairs) too, or
    are empty (1 or 0).
    """

    values = variadic(ANY)
    window_dimensions = attr(INTS)
    window_strides = attr(INTS, ())
    base_dilations = attr(INTS, ())
    window_dilations = attr(INTS, ())
    padding = attr(PADDING, ())
    body = region(lambda op: _scalars(op) * 2, _scalars)

    def infer(self):
        inputs, _ = _halves(self)
        rank = inputs[0].type.rank
        per_dim = zip(
            inputs[0].shape,
            fill(self, "window_dimensions", self.window_dimensions, rank),
            fill(self, "window_strides", self.window_strides, rank),
            fill_pads(self, self.padding, rank),
            fill(self, "base_dilations", self.base_dilations, rank),
            fill(self, "window_dilations", self.window_dilations, rank),
            strict=True,
        )
        shape = [window_count(*d) for d in per_dim]
        return [choose(self, shape, x.dtype, i) for i, x in enumerate(inputs)]

    def check(self):
        for x, r in zip(self.operands, self.results, strict=False):
            if x.dtype is not r.dtype:
                raise self.error("type", f"the result of {x.type} cannot be {r.type}")

    def jax(j, *values, window_dimensions, window_strides, base_dilations, window_dilations, padding, body):
        n, ones = len(values) // 2, (1,) * values[0].ndim
        if not ones:
            return once(j, body, values, ())
        window = (
            window_dimensions or ones,
            window_strides or ones,
            padding or ((0, 0),) * values[0].ndim,
            base_dilations or ones,
            window_dilations or ones,
        )
        if n > 1:
            return tuple(j.lax.reduce_window(values[:n], values[n:], on_tuples(body, n), *window))
        x, init = values
        known = monoid(j, body)
        wide = j.np.float32 if rounds(j, known, x.dtype) else x.dtype
        reducer = keeps_nan(j, known, x.dtype) or on_tuples(body, 1)
        init = written(j.op.operands[1], init).astype(wide)
        return j.lax.reduce_window(x.astype(wide), init, reducer, *window).astype(x.dtype)


@op("neuron.select_and_scatter", traits=["reduction"])
class SelectAndScatter(Op):
    """Picks one element of each window of ``x`` and combines the window's element of ``source`` into its place.

    The gradient of max pooling. ``select`` takes the element picked so far and the next one in row-major order, and yields true to
    keep the former; padding is never picked. ``scatter`` combines a value, beginning with ``init``, with an element of ``source``.
    """

    x = operand(ANY)
    source = operand(ANY)
    init = operand(ANY)
    window_dimensions = attr(INTS)
    window_strides = attr(INTS, ())
    padding = attr(PADDING, ())
    select = region(lambda op: [TensorType((), op.operands[0].dtype)] * 2, lambda op: [TensorType((), BOOL_TYPE)])
    scatter = region(lambda op: [TensorType((), op.operands[0].dtype)] * 2, lambda op: [TensorType((), op.operands[0].dtype)])

    def infer(self):
        x, rank = self.x.type, self.x.type.rank
        per_dim = zip(
            x.shape,
            fill(self, "window_dimensions", self.window_dimensions, rank),
            fill(self, "window_strides", self.window_strides, rank),
            fill_pads(self, self.padding, rank),
            strict=True,
        )
        shape = [window_count(*d) for d in per_dim]
        given = self.source.shape
        if len(given) != rank or any(
            isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(given, shape, strict=True)
        ):
            raise self.error("shape", f"{shape} windows fit {x}, but the source is {self.source.type}")
        if self.source.dtype is not x.dtype or self.init.type is not TensorType((), x.dtype):
            raise self.error(
                "operand", f"source and init must be of {x.dtype}, init a scalar, not {self.source.type} and {self.init.type}"
            )
        return x

    def jax(j, x, source, init, *, window_dimensions, window_strides, padding, select, scatter):
        ones = (1,) * x.ndim
        places = j.lax.iota(j.np.int64, x.size).reshape(x.shape)

        def pick(kept, new):
            (a, at_a), (b, at_b) = kept, new
            swap = (at_b >= 0) & (at_b < at_a)  # XLA does not promise an order
            a, b = j.np.where(swap, b, a), j.np.where(swap, a, b)
            at_a, at_b = j.np.where(swap, at_b, at_a), j.np.where(swap, at_a, at_b)
            keep = (at_b < 0) | ((at_a >= 0) & select(a, b)[0])
            return j.np.where(keep, a, b), j.np.where(keep, at_a, at_b)

        nothing = (j.np.zeros((), x.dtype), j.np.full((), -1, j.np.int64))
        window = (window_dimensions, window_strides or ones, padding or ((0, 0),) * x.ndim)
        _, picked = j.lax.reduce_window((x, places), nothing, pick, *window)
        return _scatter_one_by_one(j, j.np.broadcast_to(init, (x.size,)), picked.ravel(), source.ravel(), scatter).reshape(x.shape)


def _scatter_one_by_one(j, flat, places, updates, scatter):
    """``flat`` after combining each update into its place; a plain sum goes in one step."""
    places, updates = j.np.where(places < 0, flat.size, places), j.np.asarray(updates)
    if monoid(j, scatter) is j.lax.add:
        wide = accumulator_name(j, flat)
        return flat.astype(wide).at[places].add(updates.astype(wide), mode="drop").astype(flat.dtype)

    def step(i, values):
        old = values.at[places[i]].get(mode="clip")
        return values.at[places[i]].set(scatter(old, updates[i])[0], mode="drop")

    return j.lax.fori_loop(0, updates.size, step, flat)


# --- by name ----------------------------------------------------------------------------------------------------------


def _reduced(self: Any, dtype: DType, empty: bool = True) -> TensorType:
    """The result type over ``axes``. ``empty``: whether there is a value for no elements at all."""
    type = self.operands[0].type
    axes = axes_of(self, self.axes, type.rank)
    if not empty and any(type.shape[a] == 0 for a in axes):
        raise self.error("shape", f"no elements along axes {list(axes)} of {type}: there is no result for nothing")
    keep = self.keepdims
    return choose(self, [1 if i in axes else d for i, d in enumerate(type.shape) if keep or i not in axes], dtype)


def _sum_type(self):
    """Sums of bool count in i64 where no type is asked for; the result keeps the kind."""
    x = self.operands[0].dtype
    type = _reduced(self, I64 if x is BOOL_TYPE else x)
    acc = self.attrs.get("acc")
    for what, t in (("a result", type.dtype), ("acc =", acc)):
        if t is not None and (t.is_float, t.is_complex) != (x.is_float, x.is_complex):
            raise self.error("type", f"{what} {t} is of another kind than {x}")
    if acc is not None and (acc.is_float or acc.is_complex) and acc.bits < max(x.bits, 32):
        raise self.error("attr", f"acc = {acc} is narrower than the sums need; f32 or the operand's {x} is the least")
    return type


def _sum(name: str, doc: str, reduce: Callable[..., Any]) -> None:
    """Declare a reduction that forms sums or products in a wide type."""

    def jax(j, x, *, axes, keepdims, acc, out):
        wide = acc.numpy if acc is not None else out.dtype.numpy if not out.dtype.is_float else accumulator_name(j, x)
        wide = j.np.promote_types(wide, out.dtype.numpy) if out.dtype.bits > 32 else wide
        return reduce(j)(x.astype(wide), axis=axes, keepdims=keepdims, dtype=wide).astype(out.dtype.numpy)

    body = {
        "__doc__": doc, "x": operand(ANY), "axes": attr(INTS, None), "keepdims": attr(bool, False), "acc": attr(DType, None),
        "infer": _sum_type, "jax": staticmethod(jax),
    }  # fmt: skip
    declare(f"neuron.{name}", body, traits=["reduction"])


def _extreme(name: str, types: Any, doc: str, reduce: Callable[..., Any], empty: bool = False) -> None:
    """Declare a reduction that stays in the operand's type."""

    def jax(j, x, *, axes, keepdims):
        dims = tuple(range(x.ndim)) if axes is None else tuple(a % x.ndim for a in axes)
        y = reduce(j, x, dims)
        return j.np.expand_dims(y, dims) if keepdims else y

    def check(self):
        if self.results[0].dtype is not self.operands[0].dtype:
            raise self.error("type", f"the result is of the operand's {self.operands[0].dtype}, not {self.results[0].dtype}")

    body = {
        "__doc__": doc, "x": operand(types), "axes": attr(INTS, None), "keepdims": attr(bool, False),
        "infer": lambda self: _reduced(self, self.operands[0].dtype, empty), "check": check, "jax": staticmethod(jax),
    }  # fmt: skip
    declare(f"neuron.{name}", body, traits=["reduction"])


def _extreme_of(j: Any, x: Any, dims: Any, body: Any, other: Any) -> Any:
    """Maximum or minimum that keeps NaN; floats of one byte, some of which have no infinity, are compared in f32."""
    if not j.np.issubdtype(x.dtype, j.np.floating):
        return other(x, dims)
    wide = x.astype(j.np.float32) if x.dtype.itemsize == 1 else x
    start = j.np.array(-j.np.inf if body is j.lax.max else j.np.inf, wide.dtype)
    return j.lax.reduce(wide, start, keeps_nan(j, body, wide.dtype), dims).astype(x.dtype)


_AXES = "``axes``: the dims that go (absent: all; negative ones count from the end), kept with size 1 by ``keepdims``."
_WIDE = (
    f"{_AXES} The result is of the element type asked for (default: the operand's, i64 for bool). Floats accumulate in ``acc`` "
    "(default: f32 where narrower, else their own type) and are rounded once; integers wrap in the result's type."
)

_sum("reduce_sum", f"Sum over axes; 0 for no elements.\n\n{_WIDE}", lambda j: j.np.sum)
_sum("reduce_prod", f"Product over axes; 1 for no elements.\n\n{_WIDE}", lambda j: j.np.prod)
_extreme(
    "reduce_max",
    REAL | BOOL,
    f"Largest element over axes; NaN wins; no elements: an error.\n\n{_AXES}",
    lambda j, x, d: _extreme_of(j, x, d, j.lax.max, j.np.max),
)
_extreme(
    "reduce_min",
    REAL | BOOL,
    f"Smallest element over axes; NaN wins; no elements: an error.\n\n{_AXES}",
    lambda j, x, d: _extreme_of(j, x, d, j.lax.min, j.np.min),
)
_extreme(
    "reduce_and", INT | BOOL, f"And over axes, bit by bit; all ones (true) for no elements.\n\n{_AXES}",
    lambda j, x, d: j.lax.reduce(x, j.np.array(True if x.dtype == bool else ~j.np.zeros((), x.dtype)), j.lax.bitwise_and, d), True,
)  # fmt: skip
_extreme(
    "reduce_or", INT | BOOL, f"Or over axes, bit by bit; 0 (false) for no elements.\n\n{_AXES}",
    lambda j, x, d: j.lax.reduce(x, j.np.zeros((), x.dtype), j.lax.bitwise_or, d), True,
)  # fmt: skip
_extreme(
    "reduce_xor", INT | BOOL, f"Exclusive or over axes, bit by bit; 0 (false) for no elements.\n\n{_AXES}",
    lambda j, x, d: j.lax.reduce(x, j.np.zeros((), x.dtype), j.lax.bitwise_xor, d), True,
)  # fmt: skip


def _arg(name: str, what: str, pick: Callable[..., Any]) -> None:
    """Declare argmax or argmin."""

    def infer(self):
        type, axis = self.operands[0].type, self.axis
        dims = range(type.rank) if axis is None else [axis_of(self, axis, type.rank)]
        if any(type.shape[d] == 0 for d in dims):
            raise self.error("shape", f"no elements along axis {axis} of {type}: there is no {what} one")
        keep = self.keepdims
        result = choose(self, [1 if i in dims else d for i, d in enumerate(type.shape) if keep or i not in dims], I64)
        check_index(self, result.dtype, [type.shape[d] for d in dims])
        return result

    def jax(j, x, *, axis, keepdims, out):
        x = x.astype(j.np.uint8) if x.dtype == bool else x
        if axis is None:
            return pick(j)(x.reshape(-1), 0, out.dtype.numpy).reshape(out.shape)
        return pick(j)(x, axis % x.ndim, out.dtype.numpy).reshape(out.shape)

    doc = (
        f"Index of the {what} element along ``axis`` (absent: in the flattened operand); first of equals, first NaN wins.\n\n"
        "The result is of the integer type asked for (default i64), which must hold every index. ``keepdims`` keeps size 1."
    )
    body = {
        "__doc__": doc, "x": operand(REAL | BOOL), "axis": attr(int, None), "keepdims": attr(bool, False),
        "infer": infer, "jax": staticmethod(jax),
    }  # fmt: skip
    declare(f"neuron.{name}", body, traits=["reduction"])


def check_index(self: Op, dtype: DType, sizes: Any) -> None:
    """``dtype`` is an integer type that holds every index into ``sizes``."""
    if not dtype.is_integer:
        raise self.error("type", f"indices are integers, not {dtype}")
    count = 1
    for size in sizes:
        count = count * size if isinstance(size, int) else count
    if count - 1 > (dtype.max or 0):
        raise self.error("type", f"{dtype} cannot hold the indices of {count} elements")


_arg("argmax", "largest", lambda j: j.lax.argmax)
_arg("argmin", "smallest", lambda j: j.lax.argmin)


def _cumulative(name: str, types: Any, doc: str, scan: Callable[..., Any], wide: bool = False) -> None:
    """Declare a running reduction. ``wide``: floats narrower than f32 run in f32, and the result's type may be chosen."""

    def infer(self):
        type = self.operands[0].type
        axis_of(self, self.axis, type.rank)
        default = I64 if wide and type.dtype is BOOL_TYPE else type.dtype
        return choose(self, type.shape, default) if wide else type

    def jax(j, x, *, axis, reverse, out):
        between = x.dtype
        if wide:
            between = accumulator_name(j, x) if out.dtype.is_float and out.dtype.bits <= 32 else out.dtype.numpy
        return scan(j, x.astype(between), axis % x.ndim, reverse).astype(out.dtype.numpy)

    body = {
        "__doc__": doc, "x": operand(types), "axis": attr(int), "reverse": attr(bool, False),
        "infer": infer, "jax": staticmethod(jax),
    }  # fmt: skip
    declare(f"neuron.{name}", body, traits=["reduction"])


_RUN = "Element i covers elements 0..i along ``axis``, or i..end with ``reverse``."
_RUN_WIDE = (
    f"{_RUN} The result's element type may be chosen (bool: i64); floats narrower than f32 run in f32 and are rounded at the end."
)
_cumulative("cumsum", ANY, f"Running sum. {_RUN_WIDE}", lambda j, x, a, r: j.lax.cumsum(x, a, r), wide=True)
_cumulative("cumprod", ANY, f"Running product. {_RUN_WIDE}", lambda j, x, a, r: j.lax.cumprod(x, a, r), wide=True)
_cumulative("cummax", REAL, f"Running maximum; NaN wins from where it stands on. {_RUN}", lambda j, x, a, r: j.lax.cummax(x, a, r))
_cumulative("cummin", REAL, f"Running minimum; NaN wins from where it stands on. {_RUN}", lambda j, x, a, r: j.lax.cummin(x, a, r))


def _run_logsumexp(j, x, axis, reverse):
    if not j.np.issubdtype(x.dtype, j.np.complexfloating):
        return j.lax.cumlogsumexp(x, axis, reverse)

    def step(total, new):
        total = _log_add_exp(j, new, total)
        return total, total

    rows = j.np.moveaxis(x.astype(j.np.complex128), axis, 0)
    start = j.np.full(rows.shape[1:], -j.np.inf, rows.dtype)
    return j.np.moveaxis(j.lax.scan(step, start, rows, reverse=reverse)[1], 0, axis)


def _log_add_exp(j, x, y):
    """``log(exp(x) + exp(y))`` of complex numbers: the one of the larger real part plus a correction within +-pi/2. The imaginary
    part is not brought back into +-pi, so the order in which many are added matters.
    """
    is_less = x.real < y.real
    small, large = j.np.where(is_less, x, y), j.np.where(is_less, y, x)
    sum = large + j.np.log1p(j.np.exp(small - large))
    infinite = j.np.log(_exp_of_infinite(j, small) + _exp_of_infinite(j, large))
    edge = j.np.where(small.real < 0, small, infinite)
    sum = j.np.where(j.np.isinf(small.real) & (small.real == large.real), edge, sum)
    return j.np.where(j.np.isnan(x) | j.np.isnan(y), j.lax.complex(j.np.nan, j.np.nan), sum)


def _exp_of_infinite(j, x):
    size = j.np.exp(x.real)
    return j.lax.complex(size * j.np.cos(x.imag), j.np.where(x.imag == 0, 0.0, size * j.np.sin(x.imag)))


_RUN_LOG = (
    "Complex sums add one element after another, in c128; the imaginary part follows the element of the largest real part and is"
    " not brought back into +-pi."
)
_cumulative(
    "cumlogsumexp", FLOAT | COMPLEX, f"Running log of the sum of exponentials. {_RUN_WIDE} {_RUN_LOG}", _run_logsumexp, wide=True
)


def _cumulative_arg(name: str, what: str, scan: Callable[..., Any]) -> None:
    """Declare the running index that goes with a running extreme."""

    def infer(self):
        type = self.operands[0].type
        result = choose(self, type.shape, I64)
        check_index(self, result.dtype, [type.shape[axis_of(self, self.axis, type.rank)]])
        return result

    def jax(j, x, *, axis, out):
        axis = axis % x.ndim
        best = scan(j)(x, axis)
        here = (x == best) | (x != x)
        places = j.lax.broadcasted_iota(j.np.int64, x.shape, axis)
        return j.lax.cummax(j.np.where(here, places, 0), axis).astype(out.dtype.numpy)

    doc = (
        f"Index of the {what} element so far along ``axis``, the last of equal ones; NaN wins, the last one so far.\n\n"
        "The integer type may be chosen (default i64)."
    )
    body = {"__doc__": doc, "x": operand(REAL), "axis": attr(int), "infer": infer, "jax": staticmethod(jax)}
    declare(f"neuron.{name}", body, traits=["reduction"])


_cumulative_arg("cumargmax", "largest", lambda j: j.lax.cummax)
_cumulative_arg("cumargmin", "smallest", lambda j: j.lax.cummin)
