"""Exchange between devices, with the host, and notes on where values live."""

from __future__ import annotations

from typing import Any

from neuron_ir.frontends.jax.stablehlo.rule import Translator, rule
from neuron_ir.types import TensorType


@rule("stablehlo.all_reduce")
def _all_reduce(c: Translator, op: Any, *inputs: Any) -> Any:
    scalars = [TensorType((), inputs[0].dtype)] * 2
    return c.b.all_reduce(*inputs, replica_groups=c.rows(op, "replica_groups"), computation=c.region(op, 0, scalars))


@rule("stablehlo.cross-replica-sum")
def _cross_replica_sum(c: Translator, op: Any, x: Any) -> Any:
    """The deprecated form of a sum over replicas."""
    groups = c.rows(op, "replica_groups")
    return c.b.all_reduce(x, replica_groups=groups, computation=lambda b, one, other: b.add(one, other))


@rule("stablehlo.reduce_scatter")
def _reduce_scatter(c: Translator, op: Any, x: Any) -> Any:
    return c.b.reduce_scatter(
        x,
        scatter_dimension=c.value(op, "scatter_dimension"),
        replica_groups=c.rows(op, "replica_groups"),
        computation=c.region(op, 0, [TensorType((), x.dtype)] * 2),
        out=c.out(op),
    )


@rule("stablehlo.all_gather")
def _all_gather(c: Translator, op: Any, *inputs: Any) -> Any:
    return c.b.all_gather(
        *inputs,
        all_gather_dim=c.value(op, "all_gather_dim"),
        replica_groups=c.rows(op, "replica_groups"),
        out=[c.out(op, None, i) for i in range(len(inputs))],
    )


@rule("stablehlo.all_to_all")
def _all_to_all(c: Translator, op: Any, *inputs: Any) -> Any:
    fields = {name: c.value(op, name) for name in ("split_dimension", "concat_dimension", "split_count")}
    outs = [c.out(op, None, i) for i in range(len(inputs))]
    return c.b.all_to_all(*inputs, replica_groups=c.rows(op, "replica_groups"), out=outs, **fields)


@rule("stablehlo.collective_permute")
def _collective_permute(c: Translator, op: Any, x: Any) -> Any:
    return c.b.collective_permute(x, source_target_pairs=c.rows(op, "source_target_pairs"))


@rule("stablehlo.collective_broadcast")
def _collective_broadcast(c: Translator, op: Any, x: Any) -> Any:
    return c.b.collective_broadcast(x, replica_groups=c.rows(op, "replica_groups"))


@rule("stablehlo.infeed")
def _infeed(c: Translator, op: Any, token: Any) -> Any:
    outs = [c.out(op, None, i) for i in range(len(op.results))]
    return c.b.infeed(token, infeed_config=c.value(op, "infeed_config", ""), out=outs)


@rule("stablehlo.outfeed")
def _outfeed(c: Translator, op: Any, *values: Any) -> Any:
    return c.b.outfeed(*values, outfeed_config=c.value(op, "outfeed_config", ""), out=c.out(op))


@rule("stablehlo.send")
def _send(c: Translator, op: Any, *values: Any) -> Any:
    transfer = c.value(op, "is_host_transfer", False)
    return c.b.send(*values, is_host_transfer=transfer, source_target_pairs=c.rows(op, "source_target_pairs"), out=c.out(op))


@rule("stablehlo.recv")
def _recv(c: Translator, op: Any, token: Any) -> Any:
    transfer = c.value(op, "is_host_transfer", False)
    outs = [c.out(op, None, i) for i in range(len(op.results))]
    return c.b.recv(token, is_host_transfer=transfer, source_target_pairs=c.rows(op, "source_target_pairs"), out=outs)


@rule("sdy.sharding_constraint")
def _sharding_constraint(c: Translator, op: Any, x: Any) -> Any:
    return c.b.custom_call(x, call_target_name="Sharding", backend_config=str(op.attributes["sharding"]), out=[x.type])
