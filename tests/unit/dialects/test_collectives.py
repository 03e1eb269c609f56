"""Collectives: alone on one device, among several under a mapped axis, and refused where neither is so."""

import jax
import numpy as np
import pytest

from neuron_ir.builder import Builder
from neuron_ir.core import Block, Func, Module
from neuron_ir.diagnostics import IRError
from neuron_ir.meaning import Meaning, compute, run, x64
from neuron_ir.parser import parse
from neuron_ir.types import TOKEN, TensorType, tensor

X = np.arange(24, dtype=np.float32).reshape(4, 6)  # one row per device
ALL = [[0, 1, 2, 3]]


def total(b, x, y):
    return b.add(x, y)


def odd_body(b, x, y):
    """A sum that is not recognised as one."""
    return b.subtract(x, b.negate(y))


def on_devices(name, rows, out=None, **fields):
    """The op on four devices; row i is device i's operand."""
    func = Func("main", [tensor(rows.shape[1:], "f32")])
    func.set_results([Builder(func.body).make(f"neuron.{name}", func.args[0], out=out, **fields)])
    j = Meaning()
    j.axis = "devices"
    with x64():
        return np.asarray(jax.vmap(lambda x: run(func, [x], j)[0], axis_name="devices")(rows))


@pytest.mark.parametrize("groups", [[], [[0]]], ids=str)
def test_alone_everything_stays(groups):
    x = X[0]
    for name, fields in {
        "all_reduce": {"computation": total},
        "reduce_scatter": {"computation": total, "scatter_dimension": 0},
        "all_gather": {"all_gather_dim": 0},
        "all_to_all": {"split_dimension": 0, "concat_dimension": 0, "split_count": 1},
        "collective_broadcast": {},
    }.items():
        np.testing.assert_array_equal(compute(f"neuron.{name}", x, replica_groups=groups, **fields), x)
    np.testing.assert_array_equal(compute("neuron.collective_permute", x, source_target_pairs=[[0, 0]]), x)
    assert not compute("neuron.collective_permute", x, source_target_pairs=[]).any()
    assert compute("neuron.replica_id") == compute("neuron.partition_id") == 0


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("all_reduce", {"computation": total}),
        ("reduce_scatter", {"computation": total, "scatter_dimension": 0}),
        ("all_gather", {"all_gather_dim": 0}),
        ("all_to_all", {"split_dimension": 0, "concat_dimension": 0, "split_count": 2}),
        ("collective_broadcast", {}),
    ],
)
def test_groups_of_several_are_refused_on_one_device(name, fields):
    with pytest.raises(IRError, match=f"neuron.{name}: groups of 2 devices, but the reference accelerator runs one") as refused:
        compute(f"neuron.{name}", X[0], replica_groups=[[0, 1]], **fields)
    assert refused.value.code == "unsupported"


@pytest.mark.parametrize("body", [total, odd_body])
def test_sums_over_an_axis(body):
    np.testing.assert_array_equal(on_devices("all_reduce", X, computation=body), np.broadcast_to(X.sum(0), X.shape))
    rows = np.arange(32, dtype=np.float32).reshape(4, 8)
    got = on_devices("reduce_scatter", rows, computation=body, scatter_dimension=0, replica_groups=ALL)
    np.testing.assert_array_equal(got, rows.sum(0).reshape(4, 2))


def test_movement_over_an_axis():
    np.testing.assert_array_equal(
        on_devices("all_gather", X, all_gather_dim=0, replica_groups=ALL), np.broadcast_to(X.reshape(-1), (4, 24))
    )
    got = on_devices("all_to_all", X[:, :4], split_dimension=0, concat_dimension=0, split_count=4, replica_groups=ALL)
    np.testing.assert_array_equal(got, X[:, :4].T)
    got = on_devices("collective_permute", X, source_target_pairs=[[0, 1], [1, 2], [2, 3], [3, 0]])
    np.testing.assert_array_equal(got, X[[3, 0, 1, 2]])
    np.testing.assert_array_equal(on_devices("collective_broadcast", X), np.broadcast_to(X[0], X.shape))


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("all_reduce", {"computation": total, "replica_groups": [[0, 1], [2]]}, "must be of one size, at least 1"),
        ("all_reduce", {"computation": total, "replica_groups": [[0, 0]]}, "must name each device once"),
        (
            "reduce_scatter",
            {"computation": total, "scatter_dimension": 0, "replica_groups": ALL},
            "cannot be split among 4 devices",
        ),
        ("all_to_all", {"split_dimension": 0, "concat_dimension": 0, "split_count": 3, "replica_groups": ALL}, "for groups of 4"),
        ("all_gather", {"all_gather_dim": 1}, "axis 1 does not exist in a tensor of rank 1"),
        ("collective_permute", {"source_target_pairs": [[0, 1], [0, 2]]}, "with each source and target once"),
    ],
)
def test_invalid_collectives(name, fields, message):
    with pytest.raises(IRError, match=message):
        compute(f"neuron.{name}", X[0], **fields)


def test_sizes_follow_the_groups():
    block = Block([tensor([8], "f32")])
    b = Builder(block)
    assert b.all_gather(block.args[0], all_gather_dim=0, replica_groups=ALL).type is tensor([32], "f32")
    assert b.reduce_scatter(block.args[0], scatter_dimension=0, replica_groups=ALL, computation=total).type is tensor([2], "f32")
    assert b.all_gather(block.args[0], all_gather_dim=0, out=tensor([24], "f32")).type is tensor([24], "f32")


def test_tokens_order_and_channels_are_refused_by_name():
    func = Func("main", [tensor([2], "f32")])
    b = Builder(func.body)
    token = b.after_all(b.create_token(), b.create_token())
    sent = b.send(func.args[0], token, channel_id=3, out=TOKEN)
    got, after = b.recv(sent, channel_id=4, out=(tensor([2], "f32"), TOKEN))
    fed, after = b.infeed(after, infeed_config="a", out=(TensorType((), got.dtype), TOKEN))
    func.set_results([got, fed, b.outfeed(got, after, out=TOKEN)])
    module = Module()
    module.add(func)
    module.verify()
    assert parse(module.text()).text() == module.text()
    with pytest.raises(IRError, match=r"neuron\.send: the op has neither") as refused, x64():
        run(func, [X[0, :2]], Meaning())
    assert refused.value.code == "unsupported"
    with pytest.raises(IRError, match="the last operand must be a token"):
        compute("neuron.outfeed", X[0], out=TOKEN)
