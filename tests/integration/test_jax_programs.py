"""JAX programs through from_jax, text, the reference accelerator and back to StableHLO, judged by JAX on the CPU.

Where JAX on the CPU is known to be wrong the judge is NumPy or arithmetic by hand. Tolerances are relative to the largest expected
magnitude: f32 2e-6, bf16 one step (2**-8), integers and bool exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import neuron_ir
from tests.quick_compile import UNOPTIMISED

TOLERANCE = {"float32": 2e-6, "complex64": 2e-6, "float64": 1e-14, "bfloat16": 2.0**-8}
RANDOM = np.random.RandomState(7)


def draw(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(dtype)


X = draw(4, 5)
SQUARE = draw(5, 5)
POSITIVE = SQUARE @ SQUARE.T + np.eye(5, dtype=np.float32)


def through_text(function: Callable[..., Any], *args: Any) -> neuron_ir.Module:
    """The function's module, read back from its text, which is a fixpoint."""
    module = neuron_ir.from_jax(function, *args)
    again = neuron_ir.parse(module.text())
    assert again.text() == module.text()
    again.weights.update(module.weights)
    return again


def run(function: Callable[..., Any], *args: Any, compiled: Any = None) -> list[np.ndarray]:
    """The flat results by way of the text and the reference accelerator."""
    if compiled is None:
        compiled = neuron_ir.compile(through_text(function, *args))
    result = compiled(*jax.tree.leaves(args))
    return [np.asarray(r) for r in jax.tree.leaves(result)]


def by_jax(function: Callable[..., Any]) -> Callable[..., Any]:
    """The judge, compiled cheaply: only our own programs are to be compiled as users do."""
    return jax.jit(function, compiler_options=UNOPTIMISED)


def assert_close(got: list[np.ndarray], expected: Any, loosen: float = 1) -> None:
    expected = [np.asarray(e) for e in jax.tree.leaves(expected)]
    assert [(g.dtype, g.shape) for g in got] == [(e.dtype, e.shape) for e in expected]
    for g, e in zip(got, expected, strict=True):
        name = str(e.dtype)
        if name not in TOLERANCE:
            np.testing.assert_array_equal(g, e)
            continue
        wide = np.complex128 if e.dtype.kind == "c" else np.float64
        e, g = e.astype(wide), g.astype(wide)
        finite = np.abs(e[np.isfinite(e)])
        np.testing.assert_allclose(g, e, rtol=0, atol=TOLERANCE[name] * loosen * max(1.0, finite.max(initial=0.0)))


def layers(sizes: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(draw(a, b) / np.float32(np.sqrt(a)), draw(b)) for a, b in itertools.pairwise(sizes)]


def mlp(params: Any, x: Any) -> Any:
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def mlp_step(params: Any, x: Any, labels: Any) -> Any:
    def loss(p: Any) -> Any:
        logits = jax.nn.log_softmax(mlp(p, x))
        return -jnp.take_along_axis(logits, labels[:, None], axis=1).mean()

    value, grads = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def cnn_step(params: Any, images: Any, labels: Any) -> Any:
    def loss(p: Any) -> Any:
        y = lax.conv_general_dilated(images, p["conv"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        y = lax.reduce_window(jax.nn.relu(y + p["bias"]), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        logits = y.reshape(y.shape[0], -1) @ p["dense"]
        return -(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, 3)).sum(-1).mean()

    value, grads = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def rnn(w: Any, u: Any, h: Any, xs: Any) -> Any:
    def cell(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ w + x @ u)
        return h, h.sum(-1)

    return lax.scan(cell, h, xs)


def collatz(n: Any) -> Any:
    return lax.while_loop(lambda c: c[0] != 1, lambda c: (jnp.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1), (n, 0))


def cnn_params() -> dict[str, np.ndarray]:
    return {"conv": draw(3, 3, 2, 4), "bias": draw(4), "dense": draw(4 * 4 * 4, 3)}


KEY = np.array([0, 42], np.uint32)
INDICES = np.array([[0, 4], [1, 2], [-1, 7], [3, 3]], np.int32)

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mlp_step": (mlp_step, (layers([6, 16, 3]), draw(8, 6), np.arange(8, dtype=np.int32) % 3)),
    "cnn_step": (cnn_step, (cnn_params(), draw(2, 8, 8, 2), np.array([0, 2], np.int32))),
    "scan_rnn": (rnn, (draw(6, 6), draw(4, 6), np.zeros((2, 6), np.float32), draw(7, 2, 4))),
    "rnn_gradient": (jax.grad(lambda w, u, h, xs: rnn(w, u, h, xs)[1].sum()), (draw(6, 6), draw(4, 6), draw(2, 6), draw(7, 2, 4))),
    "while_loop": (collatz, (np.int32(27),)),
    "cond_true": (lambda p, x: lax.cond(p > 0, jnp.sin, lambda y: y * 2, x), (np.float32(1), X)),
    "cond_false": (lambda p, x: lax.cond(p > 0, jnp.sin, lambda y: y * 2, x), (np.float32(-1), X)),
    "switch_beyond": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, jnp.square], x), (np.int32(7), X)),
    "cholesky": (jnp.linalg.cholesky, (POSITIVE,)),
    "solve": (jnp.linalg.solve, (POSITIVE, SQUARE)),
    "fft": (lambda x: (jnp.fft.fft(x), jnp.fft.rfft(x), jnp.fft.irfft(jnp.fft.rfft(x)), jnp.fft.fft2(x)), (X,)),
    "threefry": (
        lambda k: (jax.random.normal(k, (3, 4)), jax.random.randint(k, (5,), 0, 10), jax.random.permutation(k, 9)),
        (KEY,),
    ),
    "typed_key": (lambda k: (jax.random.normal(k, (3, 4)), jax.random.bits(jax.random.fold_in(k, 3))), (jax.random.key(5),)),
    "typed_key_batch": (jax.vmap(lambda k: jax.random.uniform(k, (4,))), (jax.random.split(jax.random.key(5), 3),)),
    "rbg": (lambda s: jax.random.uniform(jax.random.wrap_key_data(s, impl="rbg"), (3, 4)), (np.arange(4, dtype=np.uint32),)),
    "sorting": (lambda x: (jnp.sort(x, 0), jnp.argsort(x, 1), *lax.top_k(x, 3), jnp.argmax(x, 1), jnp.argmin(x)), (X,)),
    "vmap_gather": (jax.vmap(lambda x, i: x[i]), (X, INDICES)),
    "vmap_scatter": (jax.vmap(lambda x, i: (x.at[i].add(1.0), x.at[i].set(2.0))), (X, INDICES)),
    "bf16": (lambda x: (x.astype(jnp.bfloat16) @ x.T.astype(jnp.bfloat16), x.astype(jnp.bfloat16).sum()), (X,)),
    "fp8": (
        lambda x: (x.astype(jnp.float8_e4m3fn).astype(jnp.float32), x.astype(jnp.float8_e5m2).astype(jnp.float32)),
        (np.float32([448, 464, 465, 1000, np.inf, -np.inf, np.nan, 0.3, -2e-3, 1e-8]),),
    ),
    "running": (lambda x: (jnp.cumsum(x, 0), jnp.cumprod(x, 1), lax.cummax(x), lax.cummin(x, reverse=True)), (X,)),
    "special": (
        lambda x: (jax.scipy.special.erf(x), jax.scipy.special.gammaln(x + 4), jax.scipy.special.i1e(x), jax.nn.gelu(x)),
        (X,),
    ),
    "complex": (lambda x: (jnp.abs(x + 1j * x), jnp.exp(1j * x), jnp.conj(x * 1j)), (X,)),
    "bits": (lambda x: (lax.bitcast_convert_type(x, jnp.int32), lax.bitcast_convert_type(x, jnp.uint8)), (X,)),
    "int4": (lambda x: (x.astype(jnp.int4) + x.astype(jnp.int4)).astype(jnp.int8), (np.int8([1, 2, 3, -4]),)),
    "structure": (lambda x: {"a": x + 1, "b": (x * 2, None)}, (X,)),
    "unused_argument": (lambda x, y: x * 2, (X, draw(3))),
    "associative_scan": (lambda x: lax.associative_scan(jnp.multiply, x), (X,)),
    "checkpoint": (jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.cos(y)).sum())(x)), (X,)),
}  # fmt: skip


@cache
def compiled_program(name: str) -> tuple[neuron_ir.Module, Any]:
    """One of ``PROGRAMS`` by way of the text, and compiled: once for the tests that run it."""
    function, args = PROGRAMS[name]
    module = through_text(function, *args)
    return module, neuron_ir.compile(module)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_gives_what_jax_gives(name: str) -> None:
    function, args = PROGRAMS[name]
    assert_close(run(function, *args, compiled=compiled_program(name)[1]), by_jax(function)(*args))


@pytest.mark.parametrize(
    "name", ["mlp_step", "scan_rnn", "while_loop", "cond_true", "vmap_scatter", "sorting", "rbg", "fp8", "running"]
)
def test_program_comes_back_from_stablehlo_bit_for_bit(name: str) -> None:
    function, args = PROGRAMS[name]
    module, compiled = compiled_program(name)
    again = neuron_ir.from_stablehlo(neuron_ir.to_stablehlo(module))
    expected = run(function, *args, compiled=compiled)
    for got, want in zip(run(function, *args, compiled=neuron_ir.compile(again)), expected, strict=True):
        assert got.tobytes() == want.tobytes()


def test_factorisations_hold_their_equations() -> None:
    q, r = (x.astype(np.float64) for x in run(jnp.linalg.qr, SQUARE))
    np.testing.assert_allclose(q @ r, SQUARE, atol=1e-5)
    np.testing.assert_allclose(q.T @ q, np.eye(5), atol=1e-5)
    w, v = run(jnp.linalg.eigh, POSITIVE)
    np.testing.assert_allclose(w, np.linalg.eigvalsh(POSITIVE.astype(np.float64)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(POSITIVE @ v, v * w, atol=1e-4)
    u, s, vh = run(lambda x: jnp.linalg.svd(x, full_matrices=False), X)
    np.testing.assert_allclose(s, np.linalg.svd(X.astype(np.float64), compute_uv=False), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose((u * s) @ vh, X, atol=1e-5)


def test_host_callbacks_run_in_order() -> None:
    seen: list[float] = []

    def program(x: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(float(v)), x.sum(), ordered=True)
        y = jax.pure_callback(lambda v: np.cumsum(v, dtype=np.float32), jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        jax.debug.callback(lambda v: seen.append(float(v)), y.sum(), ordered=True)
        return y * 2

    x = np.float32([1, 2, 3])
    compiled = neuron_ir.compile(neuron_ir.from_jax(program, x))
    np.testing.assert_array_equal(compiled(x), [2, 6, 12])
    jax.effects_barrier()
    assert seen == [6.0, 10.0]


# --- symbolic sizes ---------------------------------------------------------------------------------------------------


def encoder(x: Any, w: Any) -> Any:
    scores = x @ x.transpose(0, 2, 1)
    mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    y = jax.nn.softmax(jnp.where(mask, scores, -1e9)) @ x
    return (y @ w).reshape(-1, 3), y[:, ::2].mean(), jnp.cumsum(x, 1)


def test_one_symbolic_module_serves_many_sizes() -> None:
    b, s = jax.export.symbolic_shape("b, s")
    module = neuron_ir.from_jax(encoder, jax.ShapeDtypeStruct((b, s, 4), np.float32), jax.ShapeDtypeStruct((4, 3), np.float32))
    text = module.text()
    assert "tensor<bxsx4xf32>" in text and "tensor<(b*s)x3xf32>" in text
    assert "dynamic" not in text and "shape_assertion" not in text
    compiled = neuron_ir.compile(neuron_ir.parse(text))
    w = draw(4, 3)
    for sizes in ((1, 1), (2, 5), (3, 8)):
        x = draw(*sizes, 4)
        assert_close(run(encoder, x, w, compiled=compiled), by_jax(encoder)(x, w))


def test_sizes_that_do_not_fit_are_refused_with_the_numbers() -> None:
    (b,) = jax.export.symbolic_shape("b")
    shapes = [jax.ShapeDtypeStruct((b, 2), np.float32), jax.ShapeDtypeStruct((2 * b,), np.float32)]
    compiled = neuron_ir.compile(neuron_ir.from_jax(lambda x, y: x.sum() + y.sum(), *shapes))
    with pytest.raises(neuron_ir.IRError, match=r"axis 0 of y is 5, but 2\*b is 6 with b = 3"):
        compiled(draw(3, 2), draw(5))


def test_symbolic_slice_inside_a_loop() -> None:
    (b,) = jax.export.symbolic_shape("b")

    def scanned(x: Any) -> Any:
        return lax.scan(lambda c, y: (c + y, c * y), jnp.zeros(x.shape[1]), x)

    compiled = neuron_ir.compile(neuron_ir.from_jax(scanned, jax.ShapeDtypeStruct((4, b), np.float32)))
    for n in (1, 6):
        x = draw(4, n)
        assert_close(run(scanned, x, compiled=compiled), by_jax(scanned)(x))


# --- names, weights, state --------------------------------------------------------------------------------------------


def test_arguments_and_results_are_named_by_path_and_ops_by_line() -> None:
    module = neuron_ir.from_jax(lambda params, x: {"y": x @ params["w"]}, {"w": draw(5, 2)}, X)
    assert [a["name"] for a in module.main.arg_attrs] == ["params['w']", "x"]
    assert [a["name"] for a in module.main.result_attrs] == ["result['y']"]
    assert module.attrs["source"] == "jax"
    (dot,) = [op for op in module.walk() if op.name == "neuron.dot_general"]
    assert dot.loc.file == __file__ and dot.loc.line > 0


def test_long_constants_become_weights_without_a_copy_and_short_ones_stay() -> None:
    table, bias = draw(64, 32), draw(32)
    module = neuron_ir.from_jax(lambda x: x @ table + bias, draw(2, 64))
    (array,) = module.weights.values()
    assert np.shares_memory(np.asarray(array), table) and list(module.weights) == ["table"]
    x = draw(2, 64)
    assert_close([np.asarray(neuron_ir.compile(module)(x))], x @ table + bias, loosen=4)


def test_donated_state_comes_back_whole_in_every_order_of_outputs() -> None:
    """Two results that are equal must not share the donated buffer of a third."""

    def program(state: Any, v: Any) -> Any:
        y = v - v
        return (y, y, y), state

    state = tuple(np.float32(i + 1) for i in range(3))
    step = jax.jit(program, donate_argnums=0)
    module = neuron_ir.from_jax(step, state, np.float32(4))
    assert [a.get("donated", False) for a in module.main.arg_attrs] == [True, True, True, False]
    compiled = neuron_ir.compile(module)
    for _ in range(2):
        assert compiled(*state, np.float32(4)) == ((0, 0, 0), (1, 2, 3))


def test_int64_stays_whole_with_x64() -> None:
    big = np.array([2**40 + 5, -(2**62)], np.int64)
    with jax.enable_x64(True):
        module = neuron_ir.from_jax(lambda x: (x + 1, x // 3, x.sum()), big)
    got = neuron_ir.compile(module)(big)  # outside: the caller's own settings do not count
    assert [np.asarray(g).tolist() for g in got] == [
        [2**40 + 6, -(2**62) + 1],
        [366503875927, -1537228672809129302],
        2**40 + 5 - 2**62,
    ]


# --- meanings: JAX's own, and the right one where JAX on the CPU is wrong -----------------------------------------------


def test_float_to_integer_saturates_and_nan_is_zero() -> None:
    x = np.float32([200, -200, 300, 1e10, np.nan, np.inf, -1])
    got = run(lambda x: (x.astype(jnp.int8), x.astype(jnp.uint8), x.astype(jnp.int32)), x)
    assert got[0].tolist() == [127, -128, 127, 127, 0, 127, -1]
    assert got[1].tolist() == [200, 0, 255, 255, 0, 255, 0]
    assert got[2].tolist() == [200, -200, 300, 2**31 - 1, 0, 2**31 - 1, -1]


def test_sign_keeps_nan_and_integer_division_truncates_or_floors_as_written() -> None:
    assert str(run(jnp.sign, np.float32([np.nan, -2, 0]))[0].tolist()) == "[nan, -1.0, 0.0]"
    a, b = np.int32([-7, 7, -7, 5]), np.int32([2, -2, -2, 0])
    got = run(lambda a, b: (lax.div(a, b), a // b, lax.rem(a, b)), a, b)
    assert got[0].tolist() == [-3, -3, 3, -1]
    assert got[1].tolist()[:3] == [-4, -4, 3]
    assert got[2].tolist() == [-1, 1, -1, 5]
    folded = run(lambda v: lax.fori_loop(0, 3, lambda i, c: c // v[i], jnp.int32(1)), np.int32([2, 2, -3]))
    assert folded[0] == ((1 // 2) // 2) // -3


def test_top_k_orders_nans_by_sign_and_zeros_apart() -> None:
    x = np.float32([np.inf, np.nan, -np.nan, -np.inf, -0.0, 0.0])
    for dtype in (np.float32, jnp.bfloat16):
        assert run(lambda x: lax.top_k(x, 6), x.astype(dtype))[1].tolist() == [1, 0, 5, 4, 3, 2]


def test_each_of_two_slices_clamps_its_own_start() -> None:
    buffer = np.arange(10, dtype=np.int32)

    def program(x: Any, i: Any, j: Any) -> Any:
        return lax.dynamic_slice(lax.dynamic_slice(x, (i,), (4,)), (j,), (1,))

    for i, j in ((9, 0), (3, 5)):
        assert run(program, buffer, np.int32(i), np.int32(j))[0].tolist() == [6]


def test_small_index_types_reach_every_element() -> None:
    x = np.arange(300, dtype=np.int32)
    (got,) = run(lambda x: lax.dynamic_slice(x, (jnp.uint8(200),), (1,)), x)
    assert got.tolist() == [200]


def test_folds_do_not_change_numbers() -> None:
    big = np.full(3, 89, np.float32)
    assert np.isinf(run(lambda x: jnp.log(jnp.exp(x)), big)[0]).all()

    def angle(x: Any) -> Any:
        m = (jnp.isnan(x) ^ jnp.isnan(x)).astype(jnp.float32)
        return jnp.arctan2(m, m)

    assert run(angle, X)[0].tolist() == np.zeros_like(X).tolist()


def test_two_sum_in_bf16_keeps_its_error_term() -> None:
    x, y = draw(32).astype(jnp.bfloat16), draw(32).astype(jnp.bfloat16)

    def two_sum(x: Any, y: Any) -> Any:
        r = x + y
        return y - (r - x)

    r = (x + y).astype(jnp.bfloat16)
    expected = (y - (r - x).astype(jnp.bfloat16)).astype(jnp.bfloat16)
    assert np.any(expected != 0)
    np.testing.assert_array_equal(run(two_sum, x, y)[0], expected)


def test_product_algorithm_rounds_its_operands() -> None:
    (got,) = run(lambda x: lax.dot_general(x, x.T, (((1,), (0,)), ((), ())), precision="BF16_BF16_F32"), X)
    rounded = X.astype(jnp.bfloat16).astype(np.float64)
    np.testing.assert_allclose(got, rounded @ rounded.T, atol=1e-5)


# --- refusals ---------------------------------------------------------------------------------------------------------

_UNKNOWN = """module {
  func.func public @main(%a: tensor<4xf32>, %b: tensor<1xi32>) -> tensor<?xf32> {
    %0 = stablehlo.custom_call @first(%a) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = stablehlo.tanh %0 : tensor<4xf32>
    %2 = stablehlo.custom_call @second(%1) : (tensor<4xf32>) -> tensor<4xf32>
    %3 = stablehlo.dynamic_iota %b, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
    return %3 : tensor<?xf32>
  }
}
"""


def test_every_unsupported_op_is_listed_with_its_line() -> None:
    with pytest.raises(neuron_ir.IRError) as caught:
        neuron_ir.from_stablehlo(_UNKNOWN, file="program.mlir")
    found = [(d.code, d.loc.line, d.message.split(": ", 1)[1][:22]) for d in caught.value.diagnostics]
    assert found == [
        ("unsupported", 3, "the target 'first' has"),
        ("unsupported", 5, "the target 'second' ha"),
        ("unsupported", 6, "the result's sizes dep"),
    ]


def test_export_needs_numbers_for_symbols() -> None:
    (b,) = jax.export.symbolic_shape("b")
    module = neuron_ir.from_jax(lambda x: x * 2, jax.ShapeDtypeStruct((b, 2), np.float32))
    with pytest.raises(neuron_ir.IRError, match=r"a number for the size\(s\) b"):
        neuron_ir.to_stablehlo(module)
    assert "tensor<3x2xf32>" in neuron_ir.to_stablehlo(module, {"b": 3})


def test_exported_text_keeps_names_and_places() -> None:
    module = neuron_ir.from_jax(lambda params, x: jax.nn.softmax(x @ params["w"]), {"w": draw(5, 2)}, X)
    again = neuron_ir.from_stablehlo(neuron_ir.to_stablehlo(module, locations=True))
    assert [a["name"] for a in again.main.arg_attrs] == ["params['w']", "x"]
    (dot,) = [op for op in again.walk() if op.name == "neuron.dot_general"]
    assert dot.loc.file == __file__
