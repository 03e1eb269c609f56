"""Ops that move elements: reshapes, slices, pads, concatenation, sorting."""

from __future__ import annotations

from typing import Any

from neuron_ir.frontends.jax.stablehlo.rule import Translator, rule


@rule("stablehlo.reshape")
def _reshape(c: Translator, op: Any, x: Any) -> Any:
    out = c.out(op)
    return x if out is x.type else c.b.reshape(x, out=out)


@rule("stablehlo.transpose")
def _transpose(c: Translator, op: Any, x: Any) -> Any:
    permutation = c.ints(op, "permutation")
    return x if permutation == tuple(range(x.type.rank)) else c.b.transpose(x, permutation=permutation)


@rule("stablehlo.broadcast_in_dim")
def _broadcast_in_dim(c: Translator, op: Any, x: Any) -> Any:
    dims, out = c.ints(op, "broadcast_dimensions"), c.out(op)
    if out is x.type and dims == tuple(range(x.type.rank)):
        return x
    return c.b.broadcast_in_dim(x, broadcast_dimensions=dims, out=out)


@rule("stablehlo.broadcast")
def _broadcast(c: Translator, op: Any, x: Any) -> Any:
    sizes = c.ints(op, "broadcast_sizes")
    dims = tuple(range(len(sizes), len(sizes) + x.type.rank))
    return c.b.broadcast_in_dim(x, broadcast_dimensions=dims, out=c.out(op, (*sizes, *x.shape)))


@rule("stablehlo.concatenate")
def _concatenate(c: Translator, op: Any, *inputs: Any) -> Any:
    return c.b.concatenate(*inputs, dimension=c.value(op, "dimension"))


@rule("stablehlo.slice")
def _slice(c: Translator, op: Any, x: Any) -> Any:
    strides = c.ints(op, "strides")
    return c.b.slice(
        x,
        start_indices=c.ints(op, "start_indices"),
        limit_indices=c.ints(op, "limit_indices"),
        strides=strides if any(s != 1 for s in strides) else (),
    )


@rule("stablehlo.pad")
def _pad(c: Translator, op: Any, x: Any, value: Any) -> Any:
    interior = c.ints(op, "interior_padding")
    return c.b.pad(
        x,
        value,
        edge_padding_low=c.ints(op, "edge_padding_low"),
        edge_padding_high=c.ints(op, "edge_padding_high"),
        interior_padding=interior if any(interior) else (),
    )


@rule("stablehlo.reverse")
def _reverse(c: Translator, op: Any, x: Any) -> Any:
    return c.b.reverse(x, dimensions=c.ints(op, "dimensions"))


@rule("stablehlo.dynamic_slice")
def _dynamic_slice(c: Translator, op: Any, x: Any, *starts: Any) -> Any:
    return c.b.dynamic_slice(x, *starts, slice_sizes=c.ints(op, "slice_sizes"), policy="clamp")


@rule("stablehlo.dynamic_update_slice")
def _dynamic_update_slice(c: Translator, op: Any, x: Any, update: Any, *starts: Any) -> Any:
    return c.b.dynamic_update_slice(x, update, *starts, policy="clamp")


@rule("stablehlo.sort")
def _sort(c: Translator, op: Any, *inputs: Any) -> Any:
    scalars = [v.type.with_shape(()) for v in inputs for _ in range(2)]
    return c.b.sort(
        *inputs,
        dimension=c.value(op, "dimension", -1),
        is_stable=c.value(op, "is_stable", False),
        comparator=c.region(op, 0, scalars),
    )


@rule("chlo.top_k")
def _top_k(c: Translator, op: Any, x: Any) -> Any:
    return top_k(c, op, x, c.value(op, "k"))


def top_k(c: Translator, op: Any, x: Any, k: int, largest: bool = True) -> Any:
    """The ``k`` best along the last dim, in XLA's order of floats."""
    shape = (*x.shape[:-1], k)
    outs = [c.out(op, shape, 0), c.out(op, shape, 1)]
    return c.b.top_k(x, k=k, axis=-1, largest=largest, total_order=x.dtype.is_float, out=outs)


@rule("stablehlo.map")
def _map(c: Translator, op: Any, *inputs: Any) -> Any:
    body = c.region(op, 0, [v.type.with_shape(()) for v in inputs])
    return c.b.map(*inputs, dimensions=c.ints(op, "dimensions"), body=body)
