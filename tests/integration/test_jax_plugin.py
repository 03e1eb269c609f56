"""``jax.devices("neuron")``: JAX programs unchanged on the platform of the plugin, against JAX's own CPU."""

from __future__ import annotations

import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

from neuron_ir.diagnostics import IRError
from neuron_ir.frontends.jax.pjrt.plugin import client
from neuron_ir.frontends.jax.pjrt.programs import load_program


@pytest.fixture(autouse=True)
def on_neuron():
    with jax.default_device(jax.devices("neuron")[0]):
        yield


def same(function, *args, rtol: float = 1e-6) -> None:
    """The function jitted on both platforms; results have the same values, types, and are where they should be."""
    got = jax.jit(function)(*args)
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        want = jax.jit(function)(*args)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (ours.devices(), ours.dtype, ours.shape) == ({jax.devices("neuron")[0]}, theirs.dtype, theirs.shape)
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=rtol, atol=rtol)


def test_the_default_platform_stays_the_cpu() -> None:
    assert jax.default_backend() == "cpu"
    assert [d.platform for d in jax.devices("neuron")] == ["neuron"]
    assert repr(jax.devices("neuron")[0]) == "NeuronCore(id=0)"


def test_control_flow_derivatives_and_random_numbers() -> None:
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)

    def program(x):
        c, ys = lax.scan(lambda c, row: (c + row.sum(), jnp.tanh(row) * c), jnp.float32(1), x)
        n = lax.while_loop(lambda n: n < 5, lambda n: n + 2, 0)
        return c, ys, n, lax.cond(c > 0, lambda: x, lambda: -x), jax.grad(lambda v: (v @ v.T).sum() ** 2)(x)

    same(program, x)
    same(lambda: jax.random.normal(jax.random.key(3), (4,)))
    same(lambda x: jnp.linalg.qr(x.T @ x + jnp.eye(3))[1] ** 2, x, rtol=1e-5)


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "uint8",
        "int32",
        "uint32",
        "float16",
        "bfloat16",
        "complex64",
        "float8_e4m3fn",
        "float8_e5m2",
        "int4",
        "uint4",
    ],
)
def test_element_types_to_the_device_and_back(dtype: str) -> None:
    wanted = np.dtype(getattr(ml_dtypes, dtype, dtype))
    host = np.array([[0, 1, 1], [1, 0, 1]]).astype(wanted)
    there = jax.device_put(host, jax.devices("neuron")[0])
    back = np.asarray(there)
    assert back.dtype == wanted
    assert back.tobytes() == host.tobytes()


def test_host_memory_of_any_strides_and_arrays_without_elements() -> None:
    host = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    for view in (host[::-1, :, ::2].T, host[:, 1:1], np.broadcast_to(host[:1], (5, 3, 4)), np.float32(2)):
        np.testing.assert_array_equal(np.asarray(jax.device_put(view, jax.devices("neuron")[0])), view)
    host[:] = 0  # the device has a copy of its own
    same(lambda: jnp.zeros((0, 3)).sum(0))


def test_large_constants_are_part_of_the_program() -> None:
    table = np.arange(2048, dtype=np.float32)  # JAX compares the compiled program's arguments with the function's
    same(lambda x: x + jnp.asarray(table), np.float32(1))
    same(lambda: jnp.asarray(table))


def test_donation_and_deletion() -> None:
    x = jnp.ones(3)
    y = jax.jit(lambda v: v + 1, donate_argnums=0)(x)
    assert y.tolist() == [2, 2, 2]
    for gone in (x, y):
        if gone is y:
            y.delete()
        assert gone.is_deleted()
        with pytest.raises(RuntimeError, match="deleted"):
            gone + 1


def test_copies_between_platforms() -> None:
    cpu, neuron = jax.devices("cpu")[0], jax.devices("neuron")[0]
    there = jax.device_put(jax.device_put(np.float32([1, 2]), cpu), neuron)
    assert there.devices() == {neuron}
    assert jax.device_put(there, cpu).tolist() == [1, 2]


def test_callbacks(capfd) -> None:
    seen = []

    def program(x):
        jax.debug.print("x is {x}", x=x)
        first = io_callback(
            lambda v: seen.append("first") or np.float32(v + 1), jax.ShapeDtypeStruct((), np.float32), x, ordered=True
        )
        io_callback(lambda v: seen.append("second"), None, first, ordered=True)
        return jax.pure_callback(lambda v: np.float32(v * 2), jax.ShapeDtypeStruct((), np.float32), first)

    assert float(jax.jit(program)(jnp.float32(3))) == 8
    jax.effects_barrier()
    assert seen == ["first", "second"]
    assert "x is 3.0" in capfd.readouterr().out


def test_a_compiled_program_tells_about_itself() -> None:
    compiled = jax.jit(lambda x, y: jnp.sin(x) @ y).lower(jnp.ones((3, 4)), jnp.ones((4, 5))).compile()
    # Two operations for each of 3 x 5 x 4 products, one for each of 12 sines; 3 x 4 + 4 x 5 + 3 x 5 floats go in and out.
    assert compiled.cost_analysis() == {"flops": 132.0, "transcendentals": 12.0, "bytes accessed": 188.0}
    assert compiled.memory_analysis().argument_size_in_bytes == 128
    assert "f32[3,5]" in compiled.as_text()


def test_a_compiled_program_is_written_and_read_again() -> None:
    from jax.experimental.serialize_executable import deserialize_and_load, serialize

    x = np.float32([[2, 1], [1, 2]])
    written = serialize(jax.jit(lambda x: jnp.linalg.inv(x)).lower(x).compile())
    for _ in range(2):  # what was read is written again
        read = deserialize_and_load(*written, backend="neuron", execution_devices=jax.devices("neuron"))
        np.testing.assert_allclose(read(x), [[2 / 3, -1 / 3], [-1 / 3, 2 / 3]], rtol=1e-6)
        written = serialize(read)
    host = jax.jit(lambda x: jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((2, 2), np.float32), x)).lower(x).compile()
    with pytest.raises(jax.errors.JaxRuntimeError, match="Python functions cannot be kept for another process"):
        serialize(host)
    for damaged in (b"nothing", b"neuron-ir program 1\n", b"neuron-ir program 1\n" + bytes(8) + b"{}"):
        with pytest.raises(IRError, match="damaged, or none of the neuron platform"):
            load_program(client(), damaged, b"")


def test_the_passes_are_an_option_of_the_compiler() -> None:
    def add(**options: str) -> float:
        return float(jax.jit(lambda x: x + 1, compiler_options=options)(jnp.float32(1)))

    assert add(neuron_ir_pipeline="O3") == 2
    with pytest.raises(jax.errors.JaxRuntimeError, match="there is no pass 'O9'"):
        add(neuron_ir_pipeline="O9")
    with pytest.raises(jax.errors.JaxRuntimeError, match="did you mean 'neuron_ir_pipeline'"):
        add(neuron_ir_pipline="O1")


def test_what_has_no_meaning_is_an_error_of_jax_with_our_message() -> None:
    def unknown(x):
        return jax.ffi.ffi_call("a_library_of_mine", jax.ShapeDtypeStruct((2,), np.float32))(x)

    with pytest.raises(jax.errors.JaxRuntimeError, match="a_library_of_mine"):
        jax.jit(unknown)(jnp.ones(2))


def test_memory_that_does_not_suffice_is_an_error_of_its_own_kind() -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED: Out of memory"):
        jnp.zeros((1 << 20, 1 << 22))


def test_threads_make_arrays_and_call_functions_at_once() -> None:
    device, double, wrong = jax.devices("neuron")[0], jax.jit(lambda x: x * 2), []

    def work(start: int) -> None:
        for i in range(start, start + 30):
            if float(double(jax.device_put(np.full(3, i, np.float32), device))[0]) != 2 * i:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(100 * k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


_SCRIPT = """
import jax, jax.numpy as jnp
assert jax.default_backend() == "neuron" and jnp.ones(2).devices() == {jax.devices()[0]}
f = jax.jit(lambda x: x + 1)
for _ in range(100):
    try:
        (1,).index(f(jnp.ones(3)), "a")  # an array dies while an exception is on its way
    except TypeError as error:
        assert "__index__" in str(error), error
from neuron_ir.frontends.jax.pjrt import live_handles
before = live_handles()
for _ in range(200):
    f(jnp.ones(3))
assert live_handles() == before, (before, live_handles())
f(jnp.ones(3))
print("done")
"""


def test_a_script_of_its_own_keeps_exceptions_and_memory_and_ends_well() -> None:
    import os

    environment = {**os.environ, "JAX_PLATFORMS": "neuron"}
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, env=environment, timeout=300)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
