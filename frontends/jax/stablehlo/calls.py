"""Custom calls, by a table of targets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from neuron_ir.core import Value
from neuron_ir.diagnostics import nearest
from neuron_ir.dialects.neuron.custom import TARGETS
from neuron_ir.dims import DimLike
from neuron_ir.dtypes import dtype
from neuron_ir.frontends.jax import callbacks
from neuron_ir.frontends.jax._compat import ir
from neuron_ir.frontends.jax.stablehlo.dynamic import numbers_of, sizes_of
from neuron_ir.frontends.jax.stablehlo.elementwise import same
from neuron_ir.frontends.jax.stablehlo.movement import top_k
from neuron_ir.frontends.jax.stablehlo.reduction import Window, reduce_window
from neuron_ir.frontends.jax.stablehlo.rule import Translator, rule, unsupported
from neuron_ir.frontends.jax.stablehlo.sizes import known
from neuron_ir.types import TensorType

#: Targets that are ops of the IR: target -> rule.
NAMED: dict[str, Callable[..., Any]] = {}

# Ops of CHLO that exporters of portable artefacts spell as custom calls.
for _name in ("erf", "erf_inv", "erfc", "tan", "acos", "acosh", "asin", "asinh", "atan", "atanh", "sinh", "cosh"):
    NAMED[f"mhlo.{_name}"] = same(_name)


def named(*targets: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule for custom calls of these targets. Its operands may be sizes."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        NAMED.update(dict.fromkeys(targets, function))
        return function

    return register


@rule("stablehlo.custom_call", sized=True)
def _custom_call(c: Translator, op: Any, *operands: Any) -> Any:
    target = known_target(op)
    if target in NAMED:
        return NAMED[target](c, op, *operands)
    values = [c.value_of(x) for x in operands]
    shapes = c.ints(op, "indices_of_shape_operands")
    inputs = values[: len(values) - len(op.results)] if shapes else values
    result_shapes = operands[len(inputs) :]
    outs = [
        c.out(op, sizes_of(op, result_shapes[i], "result's sizes") if shapes and not c.is_static(op, i) else None, i)
        for i in range(len(op.results))
    ]
    return c.b.custom_call(
        *inputs,
        call_target_name=target,
        backend_config=json.dumps(config) if (config := _config(op)) else "",
        has_side_effect=bool(c.value(op, "has_side_effect", False)),
        out=outs,
    )


def known_target(op: Any) -> str:
    """The name of what a call calls; a refusal where it has no meaning."""
    target = str(op.attributes["call_target_name"].value)
    if target not in NAMED and target not in TARGETS:
        raise unsupported(op, f"the target {target!r} has no meaning here{nearest(target, [*TARGETS, *NAMED])}")
    return target


def _config(op: Any) -> dict[str, Any]:
    """The configuration of a call as a dict, from either of the two places that have it."""
    for name in ("mhlo.backend_config", "backend_config"):
        attribute = op.attributes[name] if name in op.attributes else None
        if isinstance(attribute, ir.DictAttr):
            return {entry.name: entry.attr.value for entry in attribute}
        if isinstance(attribute, ir.StringAttr) and attribute.value:
            try:
                parsed = json.loads(attribute.value)
            except ValueError:
                parsed = attribute.value
            return parsed if isinstance(parsed, dict) else {"": parsed}
    return {}


@named("shape_assertion")
def _shape_assertion(c: Translator, op: Any, *operands: Any) -> Any:
    """A check of symbolic sizes: proven ones go, those that settle a symbol become its definition or range, others stay."""
    holds = known(operands[0])
    message = c.value(op, "error_message", "")
    if holds is not None and holds.values[0] is True:
        return ()
    test = operands[0].op if isinstance(operands[0], Value) else None
    if test is not None and test.name == "neuron.compare" and not test.operands[0].type.rank:
        left, right = (c.sizes_behind(v) for v in test.operands)
        if left and right and c.learn(test.get("direction"), left[0], right[0]):
            return ()
    values = [c.value_of(x) for x in operands]
    config = json.dumps({"error_message": message})
    return c.b.custom_call(*values, call_target_name="shape_assertion", backend_config=config, has_side_effect=True, out=())


@named("Sharding", "xla.sdy.FuncResultSharding")
def _sharding(c: Translator, op: Any, x: Any) -> Any:
    x = c.value_of(x)
    sharding = c.value(op, "mhlo.sharding", "") or str(_config(op).get("", ""))
    return c.b.custom_call(x, call_target_name="Sharding", backend_config=sharding, out=[x.type])


@named("mhlo.topk")
def _topk(c: Translator, op: Any, x: Any) -> Any:
    fields = ir.DictAttr(op.attributes["mhlo.attributes"]) if "mhlo.attributes" in op.attributes else {}
    largest = not ("largest" in fields and not fields["largest"].value)
    return top_k(c, op, c.value_of(x), int(op.results[0].type.shape[-1]), largest)


@named("stablehlo.dynamic_top_k")
def _dynamic_top_k(c: Translator, op: Any, x: Any, k: Any) -> Any:
    x = c.value_of(x)
    (number,) = sizes_of(op, k, "number of elements")
    if isinstance(number, int):
        return top_k(c, op, x, number)
    order = {"compare_type": "TOTALORDER"} if x.dtype.is_float else {}
    index = c.b.iota(iota_dimension=x.type.rank - 1, out=x.type.with_dtype(dtype("i32")))

    def before(b: Any, one: Any, other: Any, *indices: Any) -> Any:
        return b.compare(one, other, direction="GT", **order)

    return _first(c, c.b.sort(x, index, dimension=x.type.rank - 1, is_stable=True, comparator=before), -1, number)


@named("stablehlo.dynamic_approx_top_k", "ApproxTopK", "PartialReduce")
def _approx_top_k(c: Translator, op: Any, *operands: Any) -> Any:
    """Inputs, as many initial values (which only fill what no element does), then numbers of the dynamic form. The answer is exact,
    which meets every recall that is asked for.
    """
    n = len(op.results)
    inputs = [c.value_of(x) for x in operands[:n]]
    axis = int(_config(op)["reduction_dim"])
    if c.is_static(op):
        number = c.out(op).shape[axis]
    else:
        (number,) = sizes_of(op, operands[2 * n], "number of elements")
    (body,) = (ir.FlatSymbolRefAttr(a).value for a in op.attributes["called_computations"])
    comparator = c.function_region(body, [x.type.with_shape(()) for x in inputs for _ in range(2)])
    return _first(c, c.b.sort(*inputs, dimension=axis, is_stable=True, comparator=comparator), axis, number)


def _first(c: Translator, values: Any, axis: int, number: DimLike) -> list[Value]:
    """The first ``number`` elements of each value along an axis."""
    kept = []
    for v in values:
        limits = [number if i == axis % v.type.rank else d for i, d in enumerate(v.shape)]
        kept.append(c.b.slice(v, start_indices=(0,) * v.type.rank, limit_indices=tuple(limits)))
    return kept


@named("stablehlo.dynamic_rng_bit_generator")
def _dynamic_rng_bit_generator(c: Translator, op: Any, state: Any, shape: Any) -> Any:
    state = c.value_of(state)
    algorithm = str(_config(op).get("rng_algorithm", "DEFAULT"))
    if "rng_algorithm" in op.attributes:
        algorithm = str(op.attributes["rng_algorithm"]).rpartition(" ")[2].rstrip(">")
    bits = c.out(op, sizes_of(op, shape, "result's sizes"), 1)
    return c.b.rng_bit_generator(state, rng_algorithm=algorithm, out=[state.type, bits])


@named("stablehlo.dynamic_reduce_window")
def _dynamic_reduce_window(c: Translator, op: Any, *operands: Any) -> Any:
    """Inputs, as many initial values, then the numbers of the window as operands; the body is a function of the module."""
    n = len(op.results)
    values = [c.value_of(x) for x in operands[: 2 * n]]
    sizes, strides, base, dilations, padding = operands[2 * n :]
    flat = sizes_of(op, padding, "padding")
    window = Window(
        sizes_of(op, sizes, "window's sizes"),
        numbers_of(op, strides, "strides"),
        numbers_of(op, base, "base dilations"),
        numbers_of(op, dilations, "window's dilations"),
        tuple(zip(flat[::2], flat[1::2], strict=True)),
    )
    (body,) = (ir.FlatSymbolRefAttr(a).value for a in op.attributes["called_computations"])
    scalars = [TensorType((), v.dtype) for v in values[n:]]
    return reduce_window(c, op, values, window, c.function_region(body, scalars * 2))


@named(callbacks.TARGET)
def _host_callback(c: Translator, op: Any, *operands: Any) -> Any:
    outs = [c.out(op, None, i) for i in range(len(op.results))]
    return c.b.custom_call(
        *[c.value_of(x) for x in operands],
        call_target_name=callbacks.TARGET,
        backend_config=json.dumps(_config(op)),
        has_side_effect=bool(c.value(op, "has_side_effect", False)),
        out=outs,
    )
