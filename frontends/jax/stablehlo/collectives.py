"""Exchange between devices, with the host, and notes on where values live."""

from __future__ import annotations

from typing import Any

from neuron_ir.frontends.jax._compat import sdy, stablehlo
from neuron_ir.frontends.jax.stablehlo.rule import Translator, rule, unsupported
from neuron_ir.types import TensorType


def _channel(op: Any) -> dict[str, int]:
    """The number and kind of an op's channel, where it has one."""
    if "channel_handle" not in op.attributes:
        return {}
    handle = stablehlo.ChannelHandle(op.attributes["channel_handle"])
    return {"channel_id": handle.handle, "channel_type": handle.channel_type}


def _groups(c: Translator, op: Any) -> tuple[tuple[int, ...], ...]:
    """The groups of a reduction or gathering. With a channel and without global ids a group holds replicas, each with all of its
    partitions, which the groups of the IR do not say.
    """
    if c.num_partitions > 1 and _channel(op).get("channel_id") and "use_global_device_ids" not in op.attributes:
        raise unsupported(
            op, f"groups of replicas with all of their {c.num_partitions} partitions; use_global_device_ids is needed"
        )
    return c.rows(op, "replica_groups")


@rule("stablehlo.all_reduce")
def _all_reduce(c: Translator, op: Any, *inputs: Any) -> Any:
    scalars = [TensorType((), inputs[0].dtype)] * 2
    return c.b.all_reduce(*inputs, replica_groups=_groups(c, op), computation=c.region(op, 0, scalars))


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
        replica_groups=_groups(c, op),
        computation=c.region(op, 0, [TensorType((), x.dtype)] * 2),
        out=c.out(op),
    )


@rule("stablehlo.all_gather")
def _all_gather(c: Translator, op: Any, *inputs: Any) -> Any:
    return c.b.all_gather(
        *inputs,
        all_gather_dim=c.value(op, "all_gather_dim"),
        replica_groups=_groups(c, op),
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
    layout = [str(part) for part in op.attributes["layout"]] if "layout" in op.attributes else []
    return c.b.infeed(token, infeed_config=c.value(op, "infeed_config", ""), layout=layout, out=outs)


@rule("stablehlo.outfeed")
def _outfeed(c: Translator, op: Any, *values: Any) -> Any:
    return c.b.outfeed(*values, outfeed_config=c.value(op, "outfeed_config", ""), out=c.out(op))


@rule("stablehlo.send")
def _send(c: Translator, op: Any, *values: Any) -> Any:
    return c.b.send(*values, **_transfer(c, op), out=c.out(op))


@rule("stablehlo.recv")
def _recv(c: Translator, op: Any, token: Any) -> Any:
    return c.b.recv(token, **_transfer(c, op), out=[c.out(op, None, i) for i in range(len(op.results))])


def _transfer(c: Translator, op: Any) -> dict[str, Any]:
    """What a send and a receive say of their channel."""
    transfer = c.value(op, "is_host_transfer", False)
    return {"is_host_transfer": transfer, "source_target_pairs": c.rows(op, "source_target_pairs"), **_channel(op)}


@rule("sdy.sharding_constraint")
def _sharding_constraint(c: Translator, op: Any, x: Any) -> Any:
    if not x.type.rank:
        return x  # nothing to divide; JAX notes it inside of reductions, whose bodies would not be known as sums any more
    return c.b.custom_call(x, call_target_name="Sharding", backend_config=str(op.attributes["sharding"]), out=[x.type])


@rule("sdy.manual_computation")
def _manual_computation(c: Translator, op: Any, *inputs: Any) -> Any:
    shardings = {
        name: [str(part) for part in sdy.TensorShardingPerValueAttr(op.attributes[name]).shardings]
        for name in ("in_shardings", "out_shardings")
    }
    axes = [str(axis) for axis in sdy.ManualAxesAttr(op.attributes["manual_axes"])]
    return c.b.manual_computation(
        *inputs,
        **shardings,
        manual_axes=axes,
        body=c.region(op, 0, [c.type_of(a.type) for a in op.regions[0].blocks[0].arguments]),
        out=[c.out(op, None, i) for i in range(len(op.results))],
    )
