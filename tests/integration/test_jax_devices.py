"""Several devices of the platform ``neuron`` in one process: each device's values against those of JAX's own CPU devices.

How many devices there are is settled when JAX first looks, so all cases run in one process of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys

_SCRIPT = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

X = np.arange(64, dtype=np.float32).reshape(8, 8) / 10


def mesh(devices, shape=(2, 4), names=("x", "y"), kind=AxisType.Auto):
    return Mesh(np.array(devices).reshape(shape), names, axis_types=(kind,) * len(names))


def collectives(devices):
    def body(x):
        return (
            lax.psum(x, "x"), lax.pmax(x, ("x", "y")), lax.all_gather(x, "y", axis=1, tiled=True),
            lax.all_gather(x, ("y", "x"), tiled=True), lax.psum_scatter(x, "x", scatter_dimension=0, tiled=True),
            lax.all_to_all(x, "x", 0, 1, tiled=True), lax.ppermute(x, "y", [(i, (i + 1) % 4) for i in range(4)]),
            lax.ppermute(x, ("x", "y"), [(0, 5), (5, 1)]), x + 100 * lax.axis_index("x") + 1000 * lax.axis_index("y"),
            lax.scan(lambda c, _: (c / 2 + lax.psum(c, "x"), lax.pmin(c.sum(), "y")), x, None, length=3)[0],
            lax.psum((x + 1j).astype(jnp.complex64), "y"), lax.psum(x.astype(jnp.bfloat16), "x").astype(jnp.float8_e4m3fn),
        )

    per_device = P(("x", "y"), None)
    return jax.jit(jax.shard_map(body, mesh=mesh(devices), in_specs=P("x", "y"), out_specs=per_device, check_vma=False))(X)


def parts_of_axes(devices):
    whole = mesh(devices)
    inner = jax.shard_map(lambda x: lax.psum(x, "y"), in_specs=P(None, "y"), out_specs=P(), axis_names={"y"})
    nested = jax.shard_map(lambda x: lax.psum(inner(x), "x"), mesh=whole, in_specs=P("x"), out_specs=P(), axis_names={"x"})
    partly = jax.shard_map(lambda x: x + lax.axis_index("x"), mesh=whole, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    line = mesh(devices, (8,), ("z",))
    groups = [[0, 1, 2, 3], [4, 5, 6, 7]]
    halves = jax.shard_map(
        lambda x: lax.psum(x, "z", axis_index_groups=groups), mesh=line, in_specs=P("z"), out_specs=P("z"), check_vma=False
    )
    return jax.jit(lambda x: (nested(x), partly(x), halves(x)))(X)


def partitioned(devices):
    m = mesh(devices[::-1])
    x, w = jax.device_put(X, NamedSharding(m, P("x", "y"))), jax.device_put(X.T, NamedSharding(m, P(None, "y")))
    table = jnp.asarray(np.arange(8 * 256, dtype=np.float32).reshape(8, 256))

    def step(w, x):
        h = lax.with_sharding_constraint(jnp.tanh(x @ w), NamedSharding(m, P(P.UNCONSTRAINED, "x")))
        return (h**2).mean(), (h @ table).sum(0), jnp.sort(x, 0)

    (loss, (row, ordered)), grad = jax.jit(jax.value_and_grad(lambda w, x: (lambda a, *b: (a, b))(*step(w, x)), has_aux=True))(w, x)
    noise = jax.jit(lambda: jax.random.normal(jax.random.key(0), (8, 8)), out_shardings=NamedSharding(m, P("x", "y")))()
    return loss, row, ordered, grad, noise


def explicit(devices):
    x = jax.device_put(X, NamedSharding(mesh(devices, kind=AxisType.Explicit), P("x", None)))
    y = jax.jit(lambda x: jnp.sin(x) * 2 + x.sum(1, keepdims=True), donate_argnums=0)(x)
    assert x.is_deleted()
    return y, jax.device_put(y, NamedSharding(mesh(devices), P(None, "y")))


def pmapped(devices):
    seen = []
    callback = lambda x: jax.pure_callback(lambda v: seen.append(1) or np.asarray(v) * 2, jax.ShapeDtypeStruct((8,), np.float32), x)
    double = jax.pmap(lambda x: callback(x) + lax.psum(x, "i"), axis_name="i", devices=devices)(X).block_until_ready()
    assert len(seen) >= 8
    return double, jax.pmap(lambda x: lax.all_gather(x, "i"), axis_name="i", devices=devices[2:6])(X[:4])


def one_of_many(devices):
    return jax.jit(lambda x: x + 1)(jax.device_put(X.astype(jnp.int4), devices[5]))


for case in (collectives, parts_of_axes, partitioned, explicit, pmapped, one_of_many):
    ours, theirs = (jax.tree.leaves(case(jax.devices(p))) for p in ("neuron", "cpu"))
    assert len(ours) == len(theirs)
    for i, (x, y) in enumerate(zip(ours, theirs)):
        facts = [(v.dtype, v.shape, str(getattr(v.sharding, "spec", ""))) for v in (x, y)]
        assert facts[0] == facts[1], (case, i)
        assert {d.platform for d in x.devices()} == {"neuron"}
        wide = np.complex64 if x.dtype.kind == "c" else np.float32
        for a, b in zip(x.addressable_shards, y.addressable_shards, strict=True):
            assert (a.device.id, a.index) == (b.device.id, b.index), (case, i)
            got, want = (np.asarray(v.data).astype(wide) for v in (a, b))
            np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6, err_msg=f"{case} {i}")

sizes = jnp.ones(2, jnp.int32)
ragged = lambda x: lax.ragged_all_to_all(x, x, sizes, sizes, sizes, sizes, axis_name="x")
try:
    jax.jit(jax.shard_map(ragged, mesh=mesh(jax.devices("neuron")), in_specs=P("x"), out_specs=P("x"), check_vma=False))(X)
except jax.errors.JaxRuntimeError as error:
    assert "ragged_all_to_all" in str(error), error
else:
    raise AssertionError("a ragged exchange was not refused")
print("done")
"""


def test_collectives_and_partitioned_programs_give_each_device_its_values() -> None:
    environment = {
        **os.environ, "JAX_PLATFORMS": "neuron,cpu", "NEURON_IR_NUM_DEVICES": "8",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, env=environment, timeout=600)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
