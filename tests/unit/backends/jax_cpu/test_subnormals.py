"""Numbers below the smallest normal one. Expected values are torch's and NumPy's, bit for bit unless a tolerance is named."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
import torch

import neuron_ir
from neuron_ir.backends.jax_cpu.executable import key_parts
from neuron_ir.backends.jax_cpu.subnormals import check_exact, holds_subnormals
from neuron_ir.builder import Builder
from neuron_ir.core import Func, Module
from neuron_ir.diagnostics import IRError, IRWarning
from neuron_ir.dtypes import BF16, BOOL, F32, dtype, dtype_of_numpy
from neuron_ir.types import TensorType

X = np.float32([1e-40, -3e-41, 2e-42, 7e-39, -1.1e-38, 0.0, -0.0, 1e-45, 1.5e-38, 1e-20, 1.1754942e-38, np.nan, np.inf, -3e38])
Y = np.float32([3e-39, 1e-44, -5e-40, 1.0, 2e-38, 1e-45, 0.0, 1e-45, 0.5, 1e-20, 1e-45, 1.0, 2.0, 1e-45])
M = np.float32([[1e-40, -3e-41, 2e-42], [7e-39, -1.1e-38, 0.0]])
W = np.float32([[0.5, 1, 2], [3, 0.25, 1]])


def module(build, *arrays: np.ndarray) -> Module:
    func = Func("main", [TensorType(a.shape, dtype_of_numpy(a.dtype)) for a in arrays])
    func.set_results(list(build(Builder(func.body), *func.args)))
    made = Module()
    made.add(func)
    return made


def exact(build, *arrays: np.ndarray) -> list[np.ndarray]:
    results = neuron_ir.compile(module(build, *arrays), subnormals="exact")(*arrays)
    return list(results) if isinstance(results, tuple) else [results]


def same_bits(got: np.ndarray, want: np.ndarray, name: str) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, name
    if want.dtype == ml_dtypes.bfloat16:
        got, want = got.astype(np.float32), want.astype(np.float32)
    np.testing.assert_array_equal(got, want, name)
    if want.dtype.kind == "f":
        known = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known], name)


def test_arithmetic_and_comparisons() -> None:
    pairs = {
        "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum,
        "remainder": np.fmod, "next_after": np.nextafter,
    }  # fmt: skip
    singles = {
        "negate": np.negative, "abs": np.abs, "sqrt": np.sqrt, "ceil": np.ceil, "square": np.square, "is_finite": np.isfinite,
        "sign_bit": np.signbit,
    }  # fmt: skip
    orders = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "GE": np.greater_equal}
    with np.errstate(all="ignore"):
        want = [f(X, Y) for f in pairs.values()] + [f(X) for f in singles.values()] + [f(X, Y) for f in orders.values()]
        want += [X.astype(bool), X.astype(np.float64), X.astype(ml_dtypes.bfloat16), X.view(np.int32)]

    def build(b: Builder, x, y):
        yield from (getattr(b, name)(x, y) for name in pairs)
        yield from (getattr(b, name)(x) for name in singles)
        yield from (b.compare(x, y, direction=order) for order in orders)
        yield from (b.cast(x, out=x.type.with_dtype(t)) for t in (BOOL, dtype("f64"), BF16))
        yield b.bitcast_convert(x, out=x.type.with_dtype(dtype("i32")))

    names = [*pairs, *singles, *orders, "to bool", "to f64", "to bf16", "bits"]
    for name, got, wanted in zip(names, exact(build, X, Y), want, strict=True):
        same_bits(got, wanted, name)


def test_functions_sums_and_products() -> None:
    """f32 within 2e-6 of torch, or the two least subnormal numbers."""
    t = torch.from_numpy
    functions = {
        "exponential": (torch.exp, M - np.float32(90)), "log": (torch.log, np.abs(M)), "log2": (torch.log2, np.abs(M)),
        "rsqrt": (torch.rsqrt, np.abs(M)), "tanh": (torch.tanh, M), "exponential_minus_one": (torch.expm1, M),
        "erf": (torch.erf, M), "gelu": (torch.nn.functional.gelu, M), "reciprocal": (torch.reciprocal, M),
    }  # fmt: skip
    arrays = [array for _, array in functions.values()]

    def build(b: Builder, x, w, *rest):
        yield from (getattr(b, name)(v) for name, v in zip(functions, rest, strict=True))
        yield from (b.reduce_sum(x, axes=(1,)), b.reduce_max(x, axes=(1,)), b.cumsum(x, axis=1), b.softmax(x, axis=1))
        yield from (b.matmul(x, w, transpose_b=True), b.linear(x, w), b.argmin(x, axis=1), *b.top_k(x, k=2))
        yield b.reduce(x, b.const(0.0, F32), dimensions=(1,), body=lambda b, p, q: b.add(p, q))
        yield b.sort(x, dimension=1, comparator=lambda b, p, q: b.compare(p, q, direction="LT"))
        yield b.map(x, body=lambda b, v: b.multiply(v, b.const(0.5, F32)))
        yield b.while_(
            x,
            cond=lambda b, v: b.compare(b.reduce_max(v, axes=(0, 1)), b.const(1e-38, F32), direction="LT"),
            body=lambda b, v: b.add(v, v),
        )
        narrow = b.cast(b.multiply(w, b.const(1e-39, F32, (2, 3))), out=x.type.with_dtype(BF16))
        yield b.cast(b.multiply(narrow, narrow), out=x.type)
        yield b.cast(b.multiply(narrow, b.const(0.5, BF16, (2, 3))), out=x.type)
        z = b.multiply(b.complex(x, w), b.complex(w, x))
        yield from (b.real(z), b.imag(z))

    x, w = t(M), t(W)
    narrow = (w * 1e-39).bfloat16()
    z = torch.complex(x, w) * torch.complex(w, x)
    want = [f(t(array)) for f, array in functions.values()]
    want += [x.sum(1), x.amax(1), x.cumsum(1), x.softmax(1), x @ w.T, x @ w.T, x.argmin(1), *x.topk(2), x.sum(1), x.sort(1)[0]]
    want += [x * 0.5, x + x, (narrow * narrow).float(), (narrow * 0.5).float(), z.real, z.imag]
    for i, (got, wanted) in enumerate(zip(exact(build, M, W, *arrays), want, strict=True)):
        np.testing.assert_allclose(got, wanted.numpy(), rtol=2e-6, atol=3e-45, err_msg=f"result {i}")
        assert got.dtype == wanted.numpy().dtype


def test_large_arrays_on_several_threads() -> None:
    """XLA splits such loops among its threads, each of which flushes."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((300, 1000)) * 1e-39).astype(np.float32)
    w = np.eye(1000, dtype=np.float32) * np.float32(0.5)
    product, total = exact(lambda b, x, w: [b.matmul(x, w), b.reduce_sum(b.abs(x), axes=(1,))], x, w)
    same_bits(product, x * np.float32(0.5), "product")
    np.testing.assert_array_equal(total, np.abs(x).sum(1, dtype=np.float64).astype(np.float32))


def test_a_training_step_keeps_small_gradients() -> None:
    text = """
    func @main(%x: tensor<2xf32>, %w: tensor<2xf32>) -> tensor<2xf32> {
      %s = neuron.multiply(%x, %w) : tensor<2xf32>
      %d = neuron.vjp(%s, %x) {
      ^(%a: tensor<2xf32>):
        %n = neuron.cast(%a) : tensor<2xbf16>
        %f = neuron.cast(%n) : tensor<2xf32>
        %q = neuron.multiply(%f, %f) : tensor<2xf32>
        neuron.yield(%q)
      } : tensor<2xf32>
      func.return(%d)
    }"""
    x, w = np.float32([1e-20, 3.0]), np.float32([1e-20, 1e-40])
    got = neuron_ir.compile(neuron_ir.parse(text), subnormals="exact")(x, w)
    rounded = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    same_bits(got, 2 * rounded * (x * w), "gradient")


def test_what_cannot_be_exact_is_refused_by_name() -> None:
    double = X.astype(np.float64)
    with pytest.raises(IRError, match=r"neuron.add computes in f64, whose subnormal numbers"):
        exact(lambda b, x: [b.add(x, x)], double)
    with pytest.raises(IRError, match=r"neuron.cast computes in f64"):
        exact(lambda b, x: [b.cast(x, out=x.type.with_dtype(BOOL))], double)
    with pytest.raises(IRError, match=r"neuron.quantize has a scale below 2.35e-38"):
        exact(lambda b, x: [b.quantize(x, scales=(1e-38,), out=x.type.with_dtype(dtype("i8")))], X)
    small = module(lambda b, x: [b.add(x, x)], X)
    with pytest.raises(IRError, match=r'subnormals is "flush" or "exact", not \'keep\''):
        neuron_ir.compile(small, subnormals="keep")
    with pytest.raises(IRError, match="needs the guards"):
        neuron_ir.compile(small, subnormals="exact", guards=False)


def test_the_mode_is_part_of_the_key_and_is_checked() -> None:
    made = module(lambda b, x: [b.add(x, x)], X)
    assert key_parts(made, {}) != key_parts(made, {"subnormals": "exact"})
    check_exact()


@pytest.mark.parametrize("kind", [np.float32, np.float64, ml_dtypes.bfloat16, np.complex64])
def test_subnormal_numbers_are_found(kind: type) -> None:
    array = np.ones(70_000, kind)
    assert not holds_subnormals(array)
    array[:4] = [0, -0.0, np.inf, np.nan]
    assert not holds_subnormals(array)
    array[-1] = -np.finfo(np.float64).smallest_subnormal if kind is np.float64 else -1e-40
    assert holds_subnormals(array) and not holds_subnormals(array[:-1]) and holds_subnormals(array[::-1])


def test_flushed_constants_weights_and_inputs_give_a_warning() -> None:
    made = neuron_ir.parse("""
    func @main(%x: tensor<2xf32>, %w: tensor<2xf32> {kind = "weight", name = "gain"}) -> tensor<2xf32> {
      %c = neuron.constant() {value = dense<1e-40>} : tensor<2xf32>
      %y = neuron.add(%x, %c) : tensor<2xf32>
      %z = neuron.multiply(%y, %w) : tensor<2xf32>
      func.return(%z)
    }""")
    made.weights["gain"] = np.float32([1, -1e-40])
    x = np.float32([1e-45, 0])
    with pytest.warns(IRWarning) as caught:
        neuron_ir.compile(made)(x)
    told = [str(w.message) for w in caught]
    assert len(told) == 3 and all('note: compile with subnormals = "exact"' in text for text in told)
    assert all("warning[subnormal]: subnormal numbers in the" in text for text in told)
    assert [next(n for n in ("'gain'", "'c'", "'x'") if n in text) for text in told] == ["'gain'", "'c'", "'x'"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = neuron_ir.compile(made, subnormals="exact")(x)
    same_bits(result, (x + np.float32(1e-40)) * made.weights["gain"], "result")
