"""Quantised types (``!quant.uniform<i8:f32, 0.5:3>``): a value is its integers; what they stand for is spelled out op by op.

Arguments, results and constants of a quantised type have the storage type. Ops that only move elements move the integers, ops
with a body hand them to it. All others are what the specification says of them: operands dequantised, the op in floats, the result
quantised. Matrix products and convolutions are summed in f64, which holds every sum of products of 16-bit integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dtypes import dtype
from neuron_ir.frontends.jax.stablehlo.quantisation import Quantisation
from neuron_ir.frontends.jax.stablehlo.rule import Translator, rule, unsupported

__all__ = ["translate"]

_PASSED_ON = frozenset(
    ("func.call", "call")
    + tuple(
        f"stablehlo.{name}"
        for name in (
            "composite tuple get_tuple_element async_start async_done while if case optimization_barrier "
            "get_dimension_size constant"
        ).split()
    )
)
_MOVED = frozenset(
    f"stablehlo.{name}"
    for name in (
        "reshape transpose broadcast broadcast_in_dim concatenate slice pad reverse dynamic_slice dynamic_update_slice gather "
        "select dynamic_reshape dynamic_broadcast_in_dim dynamic_pad dynamic_gather real_dynamic_slice all_gather all_to_all "
        "collective_permute collective_broadcast set_dimension_size"
    ).split()
)
# Ops with a body, which takes and gives the integers.
_FOLDED = frozenset(
    f"stablehlo.{name}" for name in "reduce reduce_window sort scatter select_and_scatter all_reduce reduce_scatter".split()
)
_SUMMED = frozenset(f"stablehlo.{name}" for name in ("dot_general", "dot", "convolution", "dynamic_conv"))
_REFUSED = frozenset(
    f"stablehlo.{name}" for name in ("bitcast_convert", "convert", "custom_call", "infeed", "outfeed", "send", "recv")
)


def translate(c: Translator, op: Any, function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """The results of an op of which an operand or a result is quantised."""
    name = op.name
    given = [c.quantisation(v.type) for v in op.operands]
    made = [c.quantisation(v.type) for v in op.results]
    if name in _PASSED_ON or name in ("stablehlo.uniform_quantize", "stablehlo.uniform_dequantize"):
        return function(c, op, *operands)
    if name in _REFUSED or (name not in (*_MOVED, *_FOLDED) and len(op.regions)):
        raise unsupported(op, "it has no meaning on quantised values here; dequantise before it")
    if name in _FOLDED:
        if any(a != b for a, b in zip(given, made, strict=False)):
            raise unsupported(op, "its results are quantised in another way than its operands")
        return function(c, op, *operands)
    if name in _MOVED:
        kinds = {q._replace(axis=None) for q in (*given, *made) if q}
        if len(kinds) > 1:
            raise unsupported(op, "its quantised operands and results differ in scale, zero point or storage")
        return function(c, op, *operands)
    wide = name in _SUMMED and all(given)
    floats = [_dequantised(c, c.value_of(x), q, wide) if q else x for x, q in zip(operands, given, strict=True)]
    with c.reading("wide" if wide else "expressed"):
        values = function(c, op, *floats)
    values = [values] if isinstance(values, Value) else list(values)
    return [_quantised(c, v, q) if q else v for v, q in zip(values, made, strict=True)]


def _dequantised(c: Translator, x: Value, q: Quantisation, wide: bool = False) -> Value:
    return c.b.dequantize(x, **q.fields, out=x.type.with_dtype(dtype("f64") if wide else q.expressed))  # type: ignore[no-any-return]


def _quantised(c: Translator, x: Value, q: Quantisation) -> Value:
    return c.b.quantize(x, **q.fields, out=x.type.with_dtype(q.storage))  # type: ignore[no-any-return]


@rule("stablehlo.uniform_quantize")
def _uniform_quantize(c: Translator, op: Any, x: Value) -> Any:
    """Floats into integers, or from one quantisation into another."""
    before, after = c.quantisation(op.operands[0].type), c.quantisation(op.results[0].type)
    assert after is not None
    return _quantised(c, _dequantised(c, x, before) if before else x, after)


@rule("stablehlo.uniform_dequantize")
def _uniform_dequantize(c: Translator, op: Any, x: Value) -> Any:
    q = c.quantisation(op.operands[0].type)
    assert q is not None
    return _dequantised(c, x, q)
