"""Rewrites of a JAX program that keep XLA's CPU compiler from changing its numbers.

XLA simplifies algebra as if floats were reals: ``log(exp(x))`` becomes ``x``, ``(x * c) * d`` becomes ``x * (c * d)``, and a mask
of 0 and 1 times ``x`` becomes a select, which hides ``0 * inf``. Turning its simplifier off doubles the time of a transformer's
forward pass, so :func:`protect` puts an optimization barrier on one operand exactly where such a rewrite could apply. A barrier is
gone before fusion: it costs nothing at run time beyond the rewrite it prevents. Other errors get a repair of their own, named at
each function.

What is left as XLA does it: subnormal numbers are flushed to zero (:mod:`neuron_ir.backends.jax_cpu.subnormals` keeps them),
``x * y + z`` may be one fused multiply-add, ``-0.0 + 0.0`` may be ``-0.0``, float64 to bf16 or f16 rounds through float32, and the
order of a reduction is XLA's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuron_ir.backends.jax_cpu._compat import ClosedJaxpr, Literal, bind_equation

__all__ = ["COMPILER_OPTIONS", "protect", "widen_index", "integer_divide", "integer_remainder", "angle"]

# Both at no measurable cost. With excess precision allowed, a rounding to bf16 that is followed by a cast to f32 disappears;
# fast min and max are free to lose a NaN.
COMPILER_OPTIONS: dict[str, bool] = {"xla_allow_excess_precision": False, "xla_cpu_enable_fast_min_max": False}

# Ops that XLA's patterns look through, by moving or merging them.
_TRANSPARENT = frozenset({"broadcast_in_dim", "reshape", "transpose", "squeeze", "copy", "slice", "rev"})

_POWERS = frozenset({"pow", "integer_pow", "square", "sqrt", "rsqrt", "cbrt"})

# Consumer -> producers of an operand that XLA would merge with it, per operand position.
_MERGES: dict[str, tuple[frozenset[str], ...]] = {
    "log": (_POWERS | {"exp", "exp2"},),  # log(exp(89)) is 89 instead of inf
    "log1p": (frozenset({"expm1"}),),
    "exp": (frozenset({"log"}),),
    "expm1": (frozenset({"log1p"}),),
    "sqrt": (_POWERS | {"abs", "mul", "exp"},),  # sqrt(abs(x * x)) is abs(x), finite where x * x is inf
    "rsqrt": (_POWERS | {"abs", "mul", "exp"},),
    "pow": (_POWERS | {"exp"}, frozenset()),  # pow(exp(89), 0.5) is exp(44.5)
    "integer_pow": (_POWERS | {"exp"},),
    "square": (_POWERS,),
    "div": (frozenset({"div", "exp"}), frozenset({"div", "exp", "pow", "sqrt", "rsqrt"})),  # (a / b) / c is a / (b * c)
    "dynamic_slice": (frozenset({"dynamic_slice", "gather"}),),  # two starts are added and clamped once
    "gather": (frozenset({"dynamic_slice", "gather"}),),
}

# Primitives whose operands from this position on are indices.
_INDEX_OPERANDS = {"dynamic_slice": 1, "dynamic_update_slice": 2}
_SCATTERS = frozenset({"scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max"})
_INDEX_ARRAYS = {"gather": 1, **dict.fromkeys(_SCATTERS, 1)}

# Calls that XLA inlines: patterns reach across them, so the walk does too.
_INLINED = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}

# Bodies that XLA recognises as one operation of a monoid or an order; a barrier inside would hide that.
_SCALAR_BODIES = frozenset({"reduce", "reduce_window", "select_and_scatter", "sort"}) | _SCATTERS


def widen_index(index: Any) -> Any:
    """An integer index array as int32 when it is narrower.

    XLA compares a narrow index with the bound in the index's own type: a constant uint8 200 into 300 elements reads element 0.
    """
    from jax import lax

    if index.dtype.itemsize >= 4 or index.dtype.kind not in "iu":
        return index
    return lax.convert_element_type(index, "int32")


def integer_divide(a: Any, b: Any) -> Any:
    """Truncating division of two integer arrays of one type and shape; all bits set where ``b`` is 0.

    XLA folds a constant ``7 / 0`` with the processor's own division, which ends the whole process.
    """
    from jax import lax

    zero = lax.eq(b, lax.full_like(b, 0))
    quotient = lax.div(a, lax.select(zero, lax.full_like(b, 1), b))
    return lax.select(zero, lax.bitwise_not(lax.full_like(a, 0)), quotient)


def integer_remainder(a: Any, b: Any) -> Any:
    """Remainder of truncating division, with the sign of ``a``; ``a`` where ``b`` is 0. See :func:`integer_divide`."""
    from jax import lax

    zero = lax.eq(b, lax.full_like(b, 0))
    return lax.select(zero, a, lax.rem(a, lax.select(zero, lax.full_like(b, 1), b)))


def angle(y: Any, x: Any) -> Any:
    """``atan2`` of two float arrays of one type and shape, right at the origin too: +-0 for x = +0, +-pi for x = -0.

    XLA's expansion divides 0 by 0 there and relies on a select that its code generator folds to NaN when it knows both to be 0.
    """
    from jax import lax

    origin = lax.bitwise_and(lax.eq(y, lax.full_like(y, 0)), lax.eq(x, lax.full_like(x, 0)))
    apart = lax.atan2(y, lax.select(origin, lax.full_like(x, 1), x))
    one = lax.full_like(x, 1)
    half_turn = lax.mul(_with_sign(one, y), lax.full_like(y, 3.141592653589793))
    negative = lax.lt(_with_sign(one, x), lax.full_like(x, 0))
    return lax.select(origin, lax.select(negative, half_turn, y), apart)


def _with_sign(size: Any, sign: Any) -> Any:
    """``size`` with the sign bit of ``sign``; XLA has no such op, and comparing does not see the sign of -0."""
    from jax import lax

    bits = {2: "uint16", 4: "uint32", 8: "uint64"}[size.dtype.itemsize]
    top = 1 << (8 * size.dtype.itemsize - 1)
    raw = lax.bitcast_convert_type(sign, bits)
    magnitude = lax.bitcast_convert_type(size, bits)
    return lax.bitcast_convert_type(lax.bitwise_or(magnitude, lax.bitwise_and(raw, lax.full_like(raw, top))), size.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """A value and the equation that made it: primitive's name and operands; no name for inputs, ``"constant"`` for constants."""

    value: Any
    made_by: str = ""
    operands: tuple[_Known, ...] = ()

    def origin(self) -> _Known:
        """What made this value, before broadcasts and reshapes."""
        known = self
        while known.made_by in _TRANSPARENT and known.operands:
            known = known.operands[0]
        return known


def protect(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of flat arrays, to be jitted with :data:`COMPILER_OPTIONS`: compiled, it has the numbers of running op by op.

    The function is traced once, and what it does is written again with guards, loops and branches included.
    """

    def guarded(*inputs: Any) -> Any:
        import jax

        closed, shape = jax.make_jaxpr(function, return_shape=True)(*inputs)
        results = _walk(closed.jaxpr, closed.consts, [_Known(x) for x in jax.tree.leaves(inputs)])
        return jax.tree.unflatten(jax.tree.structure(shape), [r.value for r in results])

    return guarded


def _walk(
    jaxpr: Any, consts: Sequence[Any], inputs: Sequence[_Known], wanted: Sequence[bool] = (), guarded: bool = True
) -> list[_Known]:
    """Evaluate a jaxpr equation by equation, with guards. Only the ``wanted`` results are valid, where there is a choice.

    Equations that no result needs are left out: XLA's compiler ends the process on an unused reduction whose body calls a function.
    """
    env: dict[Any, _Known] = dict(zip(jaxpr.invars, inputs, strict=True))
    env.update((v, _Known(c, "constant")) for v, c in zip(jaxpr.constvars, consts, strict=True))

    def read(atom: Any) -> _Known:
        return _Known(atom.val, "constant") if isinstance(atom, Literal) else env.get(atom, _UNUSED)

    live, needed = _live(jaxpr, wanted or [True] * len(jaxpr.outvars))
    for eqn in live:
        operands = [read(a) for a in eqn.invars]
        env.update(zip(eqn.outvars, _equation(eqn, operands, [v in needed for v in eqn.outvars], guarded), strict=True))
    return [read(v) for v in jaxpr.outvars]


_UNUSED = _Known(None)


def _live(jaxpr: Any, wanted: Sequence[bool]) -> tuple[list[Any], set[Any]]:
    """The equations that the wanted results and effects need, in order, and the variables that are read."""
    needed = {v for v, w in zip(jaxpr.outvars, wanted, strict=True) if w and not isinstance(v, Literal)}
    live = []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or not needed.isdisjoint(eqn.outvars):
            live.append(eqn)
            needed.update(v for v in eqn.invars if not isinstance(v, Literal))
    return live[::-1], needed


def _equation(eqn: Any, operands: list[_Known], wanted: Sequence[bool], guarded: bool) -> list[_Known]:
    name = eqn.primitive.name
    if name in _INLINED:
        body = eqn.params[_INLINED[name]]
        jaxpr, consts = (body.jaxpr, body.consts) if isinstance(body, ClosedJaxpr) else (body, ())
        return _walk(jaxpr, consts, operands, wanted, guarded)
    if not guarded:
        return [_Known(r) for r in bind_equation(eqn, [o.value for o in operands], eqn.params)]
    values = _guarded_operands(name, eqn, operands)
    repaired = _repair(name, eqn, values)
    if repaired is not None:
        return [_Known(repaired, name, tuple(operands))]
    params = {k: _rewrite_bodies(v, name not in _SCALAR_BODIES) for k, v in eqn.params.items()}
    results = bind_equation(eqn, values, params)
    return [_Known(r, name, tuple(operands)) for r in results]


def _repair(name: str, eqn: Any, values: list[Any]) -> Any:
    """The result of an equation that needs more than a barrier; None for the others."""
    if name not in ("div", "rem", "atan2"):
        return None
    if name == "atan2":
        return angle(*map(_array, values)) if eqn.outvars[0].aval.dtype.kind != "c" else None
    if _is_inexact(eqn.outvars[0].aval.dtype):
        return None
    return (integer_divide if name == "div" else integer_remainder)(*map(_array, values))


def _guarded_operands(name: str, eqn: Any, operands: list[_Known]) -> list[Any]:
    values = [o.value for o in operands]
    if name in _INDEX_OPERANDS:
        first = _INDEX_OPERANDS[name]
        values[first:] = [widen_index(_array(v)) for v in values[first:]]
    elif name in _INDEX_ARRAYS:
        values[_INDEX_ARRAYS[name]] = widen_index(_array(values[_INDEX_ARRAYS[name]]))
    shape = eqn.outvars[0].aval.shape if name == "div" else None
    for position in _merged_operands(name, eqn, operands):
        # A scalar divisor is found again behind a barrier of its own; its broadcast is not.
        values[position] = _barrier(values[position], shape)
    return values


def _merged_operands(name: str, eqn: Any, operands: list[_Known]) -> list[int]:
    """Positions of operands that XLA would merge with this equation, changing its number."""
    aval = eqn.invars[0].aval if eqn.invars else None
    real_move = name in ("dynamic_slice", "gather")
    if not real_move and (aval is None or not hasattr(aval, "dtype") or not _is_inexact(aval.dtype)):
        return []
    made = [o.origin().made_by for o in operands]
    merges = _MERGES.get(name, ())
    found = [i for i, producers in enumerate(merges) if made[i] in producers]
    if name == "div" and 1 not in found and _is_spread(operands[1], eqn.outvars[0].aval.size):
        found.append(1)  # x / c becomes x * (1 / c): another rounding, and 0 where 1 / c is subnormal
    if name == "mul":
        found += _merged_factors(operands, made)
    elif name in ("add", "sub"):
        for i in (0, 1):
            if made[i] in ("add", "sub") and made[1 - i] == "constant" and _has_constant(operands[i]):
                found.append(i)  # (x + 1e10) - 1e10 becomes x
    return found


def _merged_factors(operands: list[_Known], made: list[str]) -> list[int]:
    found = []
    if made[0] == made[1] and made[0] in ("exp", "sqrt", "rsqrt"):
        found.append(1)  # exp(a) * exp(b) becomes exp(a + b)
    for i in (0, 1):
        if made[i] in ("mul", "div") and made[1 - i] == "constant" and _has_constant(operands[i]):
            found.append(i)  # (x * 1e30) * 1e-30 becomes x
        if made[i] == "convert_element_type" and operands[i].origin().operands[0].value.dtype == bool:
            found.append(i)  # mask * x becomes select(mask, x, 0): 0 * inf is lost
    return found


def _has_constant(known: _Known) -> bool:
    return any(o.origin().made_by == "constant" for o in known.origin().operands)


def _is_spread(known: _Known, size: int) -> bool:
    """Whether a value repeats a smaller one over ``size`` elements: a broadcast, written out or implied, or a constant."""
    if np.size(known.value) < size:
        return True
    while known.made_by in _TRANSPARENT:
        if known.made_by == "broadcast_in_dim" and known.operands[0].value.size < known.value.size:
            return True
        known = known.operands[0]
    return known.made_by == "constant"


def _is_inexact(dtype: Any) -> bool:
    from jax import numpy

    return bool(numpy.issubdtype(dtype, numpy.inexact))


def _array(value: Any) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(value)


def _barrier(value: Any, shape: Sequence[int] | None = None) -> Any:
    from jax import lax, numpy

    array = _array(value)
    return lax.optimization_barrier(array if shape is None else numpy.broadcast_to(array, shape))


def _rewrite_bodies(param: Any, guarded: bool) -> Any:
    """A parameter of an equation with every jaxpr in it rewritten: bodies of loops and branches with guards, others only where they
    hold calls, which are put in place.
    """
    import jax

    if isinstance(param, tuple) and any(isinstance(p, ClosedJaxpr) for p in param):
        bodies = [_rewrite_bodies(p, guarded) for p in param]
        return param._make(bodies) if hasattr(param, "_make") else tuple(bodies)
    if isinstance(param, ClosedJaxpr):
        if any(not hasattr(v.aval, "dtype") or not hasattr(v.aval, "shape") for v in param.jaxpr.invars):
            return param
        if not guarded and not any(e.primitive.name in _INLINED for e in param.jaxpr.eqns):
            return param

        def body(*xs: Any) -> list[Any]:
            return [k.value for k in _walk(param.jaxpr, param.consts, [_Known(x) for x in xs], guarded=guarded)]

        return jax.make_jaxpr(body)(
            *(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype, weak_type=v.aval.weak_type) for v in param.jaxpr.invars)
        )
    return param
