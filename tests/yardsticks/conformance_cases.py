"""The cases of ``conformance.py``: functions of a device that give what is to be the same on every platform."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

Case = Callable[[Any], Any]

F = np.linspace(0.1, 0.9, 12, dtype=np.float32).reshape(3, 4)
S = np.float32([[4, 1, 0.5], [1, 3, 0.2], [0.5, 0.2, 5]])  # symmetric and positive
N = np.arange(12, dtype=np.int32).reshape(3, 4)
KEY_KINDS = ("threefry2x32", "rbg", "unsafe_rbg")

_DTYPES = (
    "bool int4 uint4 int8 uint8 int16 uint16 int32 uint32 float8_e4m3fn float8_e5m2 float8_e4m3b11fnuz float8_e4m3fnuz "
    "float8_e5m2fnuz float8_e3m4 float8_e4m3 float8_e8m0fnu float4_e2m1fn bfloat16 float16 float32 complex64"
).split()


def all_cases() -> dict[str, Case]:
    """Every case by its name, ``subject/name``."""
    found: dict[str, Case] = {}
    for subject, cases in _SUBJECTS.items():
        found.update({f"{subject}/{name}": case for name, case in cases().items()})
    return found


def _jitted(function: Callable[..., Any], *args: Any) -> Case:
    return lambda device: jax.jit(function)(*jax.device_put(args, device))


def _table(module: Any, unary: str, binary: str, x: Any, y: Any) -> dict[str, Case]:
    one = {name: _jitted(getattr(module, name), x) for name in unary.split()}
    return one | {name: _jitted(getattr(module, name), x, y) for name in binary.split()}


def _lax() -> dict[str, Case]:
    unary = (
        "abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil cos cosh digamma erf erf_inv erfc exp exp2 expm1 "
        "floor is_finite lgamma log log1p logistic neg real round rsqrt sign sin sinh sqrt square tan tanh"
    )
    table = _table(lax, unary, "add atan2 div eq ge gt igamma igammac le lt max min mul ne nextafter pow rem sub", F, F[::-1] + 0.5)
    whole = _table(lax, "bitwise_not clz population_count", "bitwise_and bitwise_or bitwise_xor shift_left", N, N[::-1] % 7)
    return table | {f"{name} of integers": case for name, case in whole.items()} | {
        "argmax": _jitted(lambda x: lax.argmax(x, 1, jnp.int32), F),
        "batch_matmul": _jitted(lambda x: lax.batch_matmul(x[None], x.T[None]), F),
        "bitcast_convert_type": _jitted(lambda x: lax.bitcast_convert_type(x, jnp.int32), F),
        "broadcasted_iota": _jitted(lambda: lax.broadcasted_iota(jnp.int32, (2, 3), 1)),
        "clamp": _jitted(lambda x: lax.clamp(0.2, x, 0.5), F),
        "conv": _jitted(lambda x: lax.conv(x.reshape(1, 1, 3, 4), jnp.ones((2, 1, 2, 2)), (1, 1), "SAME"), F),
        "cumsum": _jitted(lambda x: lax.cumsum(x, 1, reverse=True), F),
        "dynamic_slice": _jitted(lambda x: lax.dynamic_slice(x, (2, 2), (2, 2)), F),
        "dynamic_update_slice": _jitted(lambda x: lax.dynamic_update_slice(x, x[:1, :1] * 0, (9, 9)), F),
        "fft": _jitted(lambda x: lax.fft(x, "RFFT", (4,)), F),
        "gather": _jitted(lambda x: x[jnp.array([2, 0])], F),
        "pad": _jitted(lambda x: lax.pad(x, 0.0, ((1, -1, 0), (0, 2, 1))), F),
        "reduce": _jitted(lambda x: lax.reduce(x, -jnp.inf, lax.max, (0,)), F),
        "reduce_window": _jitted(lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID"), F),
        "rev": _jitted(lambda x: lax.rev(x, (1,)), F),
        "scatter_add": _jitted(lambda x: x.at[jnp.array([0, 0, 5])].add(1.0), F),
        "sort": _jitted(lambda x: lax.sort((x % 0.3, x), dimension=1, num_keys=1), F),
        "top_k": _jitted(lambda x: lax.top_k(x, 2), F),
        "approx_max_k": _jitted(lambda x: lax.approx_max_k(x, 2), F),
    }  # fmt: skip


def _numpy() -> dict[str, Case]:
    unary = (
        "all any argmin argsort average cumprod diagonal diff exp fliplr flipud max mean median min nanmax prod ptp ravel rot90 "
        "sinc sort std sum trace transpose var"
    )
    binary = "allclose arctan2 array_equal fmod heaviside hypot inner kron logaddexp maximum outer power remainder vdot"
    table = _table(jnp, unary, binary, F, F[::-1] + 0.5)
    return table | {
        "nonzero": lambda d: jnp.nonzero(jax.device_put(N % 2, d)),
        "unique": lambda d: jnp.unique(jax.device_put(N % 5, d)),
        "boolean mask": lambda d: jax.device_put(F, d)[jax.device_put(N % 2 == 1, d)],
        "einsum": _jitted(lambda x: jnp.einsum("ij,kj->ik", x, x), F),
        "interp": _jitted(lambda x: jnp.interp(x, jnp.arange(3.0), jnp.arange(3.0) ** 2), F),
        "histogram": _jitted(lambda x: jnp.histogram(x, 4), F),
        "searchsorted": _jitted(lambda x: jnp.searchsorted(x.ravel(), x[:, 1]), F),
        "where": _jitted(lambda x: jnp.where(x > 0.5, x, 0), F),
        "take_along_axis": _jitted(lambda x: jnp.take_along_axis(x, jnp.argsort(-x, 1), 1), F),
        "percentile": _jitted(lambda x: jnp.percentile(x, 30.0), F),
        "convolve": _jitted(lambda x: jnp.convolve(x[0], x[1]), F),
        "eager arithmetic": lambda d: (jax.device_put(F, d) + 1) ** 2 / 3 - jnp.ones((), jnp.float32),
        "in-place update": lambda d: jax.device_put(F, d).at[1].set(0),
        "out of bounds": lambda d: jax.device_put(F, d)[7],
        "printing": lambda d: [str(jax.device_put(F, d)), repr(jax.device_put(N, d)), f"{jax.device_put(np.float32(2), d):.3f}"],
        "iteration": lambda d: [float(x[0]) for x in jax.device_put(F, d)],
        "len, bool, int": lambda d: [len(jax.device_put(F, d)), bool(jnp.bool_(True)), int(jnp.int32(3)), jnp.int32(2).item()],
    }


def _linalg() -> dict[str, Case]:
    table = {
        name: _jitted(getattr(jnp.linalg, name), S) for name in "cholesky det eigvalsh inv matrix_rank norm pinv slogdet".split()
    }
    return table | {
        "solve": _jitted(lambda a: jnp.linalg.solve(a, a[0]), S),
        "lstsq": _jitted(lambda a: jnp.linalg.lstsq(a, a[0])[0], S),
        "qr": _jitted(lambda a: jnp.abs(jnp.linalg.qr(a)[1]), S),
        "svd": _jitted(lambda a: jnp.linalg.svd(a, compute_uv=False), S),
        "eigh": _jitted(lambda a: (lambda w, v: (v * w) @ v.T)(*jnp.linalg.eigh(a)), S),
        "eig": _jitted(lambda a: jnp.sort(jnp.linalg.eigvals(a).real), S),
        "expm": _jitted(lambda a: jax.scipy.linalg.expm(a / 5), S),
        "lu": _jitted(jax.scipy.linalg.lu, S),
        "solve_triangular": _jitted(lambda a: jax.scipy.linalg.solve_triangular(a, a[0], lower=True), S),
        "gradient of cholesky": _jitted(jax.grad(lambda a: jnp.linalg.cholesky(a).sum()), S),
        "gradient of eigh": _jitted(jax.grad(lambda a: jnp.linalg.eigh(a)[0][0]), S),
    }


def _random() -> dict[str, Case]:
    draws: dict[str, Callable[[Any], Any]] = {
        "normal": lambda k: jax.random.normal(k, (4,)), "uniform": lambda k: jax.random.uniform(k, (4,)),
        "bits": lambda k: jax.random.bits(k, (4,)), "split": lambda k: jax.random.key_data(jax.random.split(k, 3)),
    }  # fmt: skip
    found = {
        f"{name} of {kind}": _jitted(lambda kind=kind, draw=draw: draw(jax.random.key(3, impl=kind)))
        for kind in KEY_KINDS
        for name, draw in draws.items()
    }
    more = "bernoulli cauchy exponential gumbel laplace logistic rademacher rayleigh".split()
    found |= {name: _jitted(partial(getattr(jax.random, name), jax.random.key(0), shape=(4,))) for name in more}
    return found | {
        "categorical": _jitted(lambda x: jax.random.categorical(jax.random.key(1), x), F),
        "permutation": _jitted(lambda x: jax.random.permutation(jax.random.key(1), x), F),
        "choice": _jitted(lambda x: jax.random.choice(jax.random.key(1), x.ravel(), (3,), replace=False), F),
        "gamma": _jitted(lambda: jax.random.gamma(jax.random.key(2), 2.0, (3,))),
        "poisson": _jitted(lambda: jax.random.poisson(jax.random.key(2), 3.0, (5,))),
        "randint": _jitted(lambda: jax.random.randint(jax.random.key(2), (5,), 0, 100)),
        "truncated_normal": _jitted(lambda: jax.random.truncated_normal(jax.random.key(2), -1, 1, (5,))),
        "old keys": lambda d: jax.random.normal(jax.random.PRNGKey(0), (2,)),
        "fold_in": _jitted(lambda: jax.random.key_data(jax.random.fold_in(jax.random.key(2), 7))),
    }


def _control_flow() -> dict[str, Case]:
    return {
        "scan": _jitted(lambda x: lax.scan(lambda c, r: (c + r.sum(), c * r), 0.0, x), F),
        "scan reversed": _jitted(lambda x: lax.scan(lambda c, r: (c * 0.5 + r, c), x[0], x, reverse=True, unroll=2), F),
        "while_loop": _jitted(lambda x: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2), (0, x)), F),
        "fori_loop": _jitted(lambda x: lax.fori_loop(0, 4, lambda i, c: c + i, x), F),
        "cond": _jitted(lambda x: lax.cond(x.sum() > 3, lambda: x, lambda: -x), F),
        "switch": _jitted(lambda x: [lax.switch(i, [lambda: x, lambda: x + 1, lambda: x + 2]) for i in (-1, 1, 9)], F),
        "map": _jitted(lambda x: lax.map(lambda r: r @ r, x), F),
        "associative_scan": _jitted(lambda x: lax.associative_scan(jnp.add, x), F),
        "nested loops": _jitted(lambda x: lax.fori_loop(0, 2, lambda i, c: lax.fori_loop(0, i + 1, lambda j, e: e + j, c), x), F),
        "batched while": _jitted(jax.vmap(lambda x: lax.while_loop(lambda c: c < 9, lambda c: c * 2 + 1, x)), F[0]),
        "batched cond": _jitted(jax.vmap(lambda x: lax.cond(x > 0.3, lambda v: v * 2, lambda v: v - 1, x)), F[0]),
        "custom_root": _jitted(
            lambda x: lax.custom_root(lambda y: y - x, x, lambda f, y: y - f(y), lambda g, y: y / g(1.0)), F[0, 0]
        ),
        "fixed trip count gradient": _jitted(jax.grad(lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c), x).sum()), F),
        "scan of a loop with a branch": _jitted(
            lambda x: lax.scan(lambda c, r: (lax.cond(c > 1, lambda: c - 1, lambda: c + r.sum()), c), 0.0, x), F
        ),
        "reduce_precision": _jitted(lambda x: lax.reduce_precision(x, 5, 3), F),
        "optimization_barrier": _jitted(lambda x: lax.optimization_barrier((x, x + 1)), F),
    }


def _autodiff() -> dict[str, Case]:
    def f(x: Any) -> Any:
        return (jnp.sin(x) * jnp.log(x) @ jnp.exp(x.T)).sum()

    @jax.custom_vjp
    def clipped(x: Any) -> Any:
        return x * 2

    clipped.defvjp(lambda x: (x * 2, x), lambda x, g: (jnp.clip(g, -1, 1) * x,))

    @jax.custom_jvp
    def tripled(x: Any) -> Any:
        return x * 3

    tripled.defjvp(lambda p, t: (tripled(*p), 7 * t[0]))
    return {
        "grad": _jitted(jax.grad(f), F),
        "value_and_grad": _jitted(jax.value_and_grad(f), F),
        "jacfwd": _jitted(jax.jacfwd(lambda x: x[0] ** 2), F),
        "jacrev": _jitted(jax.jacrev(lambda x: x[0] ** 2), F),
        "hessian": _jitted(jax.hessian(lambda x: (x**3).sum()), F[0]),
        "jvp": _jitted(lambda x: jax.jvp(f, (x,), (x,)), F),
        "vjp": _jitted(lambda x: jax.vjp(f, x)[1](1.0), F),
        "linearize": lambda d: jax.linearize(f, jax.device_put(F, d))[1](jax.device_put(F, d)),
        "checkpoint": _jitted(jax.grad(jax.checkpoint(f)), F),
        "custom_vjp": _jitted(jax.grad(lambda x: (clipped(x) * 9).sum()), F),
        "custom_jvp": _jitted(jax.grad(lambda x: tripled(x).sum()), F),
        "stop_gradient": _jitted(jax.grad(lambda x: (x * lax.stop_gradient(x)).sum()), F),
        "vmap of grad": _jitted(jax.vmap(jax.grad(lambda x: (x**2).sum())), F),
        "grad of scan": _jitted(jax.grad(lambda x: lax.scan(lambda c, r: (c * r.sum(), None), 1.0, x)[0]), F),
        "grad of sort": _jitted(jax.grad(lambda x: (jnp.sort(x, 1) * jnp.arange(4)).sum()), F),
        "eager grad": lambda d: jax.grad(f)(jax.device_put(F, d)),
        "per-example gradients": _jitted(lambda w, x: jax.vmap(jax.grad(lambda w, x: jnp.tanh(w @ x)), (None, 0))(w, x), F[0], F),
        "complex gradient": _jitted(jax.grad(lambda x: jnp.abs(jnp.exp(1j * x)).sum()), F),
    }


def _neural() -> dict[str, Case]:
    names = "celu elu gelu glu hard_sigmoid hard_silu leaky_relu log_sigmoid log_softmax relu relu6 selu silu "
    names += "soft_sign softmax softplus"
    return {name: _jitted(getattr(jax.nn, name), F - 0.5) for name in names.split()} | {
        "standardize": _jitted(jax.nn.standardize, F),
        "logsumexp": _jitted(lambda x: jax.nn.logsumexp(x, 1), F),
        "one_hot": _jitted(lambda x: jax.nn.one_hot(x % 4, 4), N),
        "attention": _jitted(lambda x: jax.nn.dot_product_attention(*[x.reshape(1, 3, 1, 4)] * 3, is_causal=True), F),
        "initialisers": _jitted(lambda: jax.nn.initializers.orthogonal()(jax.random.key(0), (3, 3)) ** 2),
    }


def _dtypes() -> dict[str, Case]:
    def there_and_back(wanted: Any) -> Case:
        host = np.array([[0, 1, 1], [1, 0, 1]]).astype(wanted)
        return lambda device: (lambda x: [np.asarray(x).tobytes(), str(x.dtype), x.nbytes])(jax.device_put(host, device))

    def computed(wanted: Any) -> Case:
        host = np.array([0, 1, 1, 1]).astype(wanted)
        return lambda device: jax.jit(lambda x: (x.astype(jnp.float32) + 1).astype(x.dtype))(jax.device_put(host, device))

    found = {}
    for name in _DTYPES:
        wanted = np.dtype(getattr(ml_dtypes, name, name))
        found[f"{name} there and back"] = there_and_back(wanted)
        if wanted.kind != "c" and name != "bool":
            found[f"{name} cast"] = computed(wanted)
    return found | {
        "int64 with 64-bit types": _wide(np.arange(4) + 2**40),
        "float64 with 64-bit types": _wide(np.linspace(0, 1, 4)),
        "complex128 with 64-bit types": _wide(np.linspace(0, 1, 4) * 1j),
        "int64 without": lambda d: jax.device_put(np.arange(4), d),
    }


def _wide(host: Any) -> Case:
    def case(device: Any) -> Any:
        with jax.enable_x64(True):
            return jax.jit(lambda x: x * 3)(jax.device_put(host, device))

    return case


def _buffers() -> dict[str, Case]:
    def donated(device: Any) -> Any:
        x = jax.device_put(F, device)
        jax.jit(lambda v: v + 1, donate_argnums=0)(x)
        return x + 1

    def deleted(device: Any) -> Any:
        x = jax.device_put(F, device)
        x.delete()
        return np.asarray(x)

    def unchanged(device: Any) -> Any:
        host = F.copy()
        x = jax.device_put(host, device).block_until_ready()
        view = np.asarray(x)
        host[:] = 0 if device.platform == "neuron" else host
        return x + 0, not view.flags.writeable

    views: dict[str, Any] = {
        "reversed": F[::-1, ::2], "transposed": F.T, "broadcast": np.broadcast_to(F[:1], (5, 4)), "empty": F[:, 1:1],
        "rank 0": np.float32(3), "Fortran order": np.asfortranarray(F), "offset": F[1:, 1:3], "python number": 2.5, "list": [1, 2],
    }  # fmt: skip
    return {f"put {name}": lambda d, v=view: jax.device_put(v, d) if not isinstance(v, list) else jnp.array(v)
            for name, view in views.items()} | {
        "donated arrays raise": donated,
        "deleted arrays raise": deleted,
        "host memory is copied": unchanged,
        "from the CPU": lambda d: jax.device_put(jax.device_put(F, jax.devices("cpu")[0]), d),
        "to the CPU": lambda d: [np.asarray(jax.device_put(jax.device_put(F, d), jax.devices("cpu")[0])).tolist()],
        "copy": lambda d: jax.device_put(F, d).copy(),
        "copy_to_host_async": lambda d: (lambda x: (x.copy_to_host_async(), x)[1])(jax.device_put(F, d)),
        "numpy protocols": lambda d: [np.add(jax.device_put(F, d), 1).tolist(), np.array(jax.device_put(F, d)).sum().item()],
        "is_ready": lambda d: [jax.device_put(F, d).block_until_ready().is_ready()],
        "on_device_size": lambda d: [jax.device_put(F, d).on_device_size_in_bytes()],
        "pickle": lambda d: [np.asarray(__import__("pickle").loads(__import__("pickle").dumps(jax.device_put(F, d)))).tolist()],
        "pytrees": lambda d: jax.device_put({"a": F, "b": (N, 1.5)}, d),
        "identity": lambda d: jax.jit(lambda x: (x, x))(jax.device_put(F, d)),
        "unsafe pointer": lambda d: [isinstance(jax.device_put(F, d).unsafe_buffer_pointer(), int)],
        "sharding": lambda d: [jax.device_put(F, d).sharding.is_fully_replicated, len(jax.device_put(F, d).addressable_shards)],
        "from a callback": lambda d: jax.make_array_from_callback((3, 4), jax.sharding.SingleDeviceSharding(d), lambda i: F[i]),
        "weak types": lambda d: [jnp.asarray(2.0).weak_type, (jax.device_put(N, d) * 2.0).dtype.name],
    }  # fmt: skip


def _callbacks() -> dict[str, Case]:
    struct = jax.ShapeDtypeStruct((3, 4), np.float32)

    def printed(device: Any, ordered: bool = False) -> Any:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            jax.jit(lambda x: jax.debug.print("sum {s:.2f} {n}", s=x.sum(), n=3, ordered=ordered))(jax.device_put(F, device))
            jax.effects_barrier()
        return [out.getvalue()]

    def order(device: Any) -> Any:
        seen: list[int] = []
        note = jax.experimental.io_callback
        jax.jit(lambda x: [note(lambda v, i=i: seen.append(i), None, x, ordered=True) for i in range(4)])(jax.device_put(F, device))
        jax.effects_barrier()
        return seen

    def raising(device: Any) -> Any:
        def fails(x: Any) -> Any:
            raise ValueError("from the user's function")

        return jax.block_until_ready(jax.jit(lambda x: jax.pure_callback(fails, struct, x))(jax.device_put(F, device)))

    def in_a_loop(device: Any) -> Any:
        seen: list[float] = []
        body = lambda i, c: (jax.debug.callback(lambda v: seen.append(float(v)), c, ordered=True), c + 1)[1]  # noqa: E731
        jax.jit(lambda: lax.fori_loop(0, 3, body, jnp.float32(0)))()
        jax.effects_barrier()
        return seen

    from jax.experimental import io_callback

    return {
        "debug.print": printed,
        "debug.print in order": lambda d: printed(d, True),
        "debug.callback in a loop": in_a_loop,
        "pure_callback": _jitted(lambda x: jax.pure_callback(lambda v: np.asarray(v) * 2, struct, x), F),
        "pure_callback under vmap": _jitted(
            jax.vmap(lambda x: jax.pure_callback(lambda v: np.sin(v), struct.update(shape=(4,)), x, vmap_method="sequential")), F
        ),
        "io_callback": _jitted(lambda x: io_callback(lambda v: np.asarray(v) + 1, struct, x), F),
        "ordered effects": order,
        "an exception of the user's function": raising,
        "callback with several results": _jitted(lambda x: jax.pure_callback(lambda v: (v, v), (struct, struct), x), F),
    }


def _compilation() -> dict[str, Case]:
    def exported(device: Any) -> Any:
        made = jax.export.export(jax.jit(lambda x: jnp.tanh(x) * 2), platforms=[device.platform])(F)
        return jax.export.deserialize(made.serialize()).call(jax.device_put(F, device))

    def symbolic(device: Any) -> Any:
        struct = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 4"), np.float32)
        made = jax.export.export(jax.jit(lambda x: x.sum(0) / x.shape[0]), platforms=[device.platform])(struct)
        return made.call(jax.device_put(F, device))

    def gradient_of_export(device: Any) -> Any:
        made = jax.export.export(jax.jit(lambda x: jnp.sin(x).sum()), platforms=[device.platform])(F)
        return jax.grad(jax.export.deserialize(made.serialize(vjp_order=1)).call)(jax.device_put(F, device))

    def several_platforms(device: Any) -> Any:
        made = jax.export.export(jax.jit(lambda x: jnp.cos(x)), platforms=["cpu", "neuron"])(F)
        return made.call(jax.device_put(F, device))

    def ahead(device: Any) -> Any:
        return jax.jit(lambda x, y: x @ y.T).lower(F, F).compile()(*jax.device_put((F, F), device))

    def wrong_shape(device: Any) -> Any:
        return jax.jit(lambda x: x + 1).lower(F).compile()(jax.device_put(F[0], device))

    return {
        "lower and compile": ahead,
        "an argument of another shape": wrong_shape,
        "export": exported,
        "export of symbolic sizes": symbolic,
        "gradient of an export": gradient_of_export,
        "export for several platforms": several_platforms,
        "static arguments": lambda d: jax.jit(lambda x, n: x * n, static_argnums=1)(jax.device_put(F, d), 3),
        "unused arguments": lambda d: jax.jit(lambda x, y: x, keep_unused=True)(*jax.device_put((F, N), d)),
        "platform_dependent": _jitted(lambda x: lax.platform_dependent(x, default=lambda v: v + 1), F),
        "no results": lambda d: jax.jit(lambda x: ())(jax.device_put(F, d)),
        "constants": lambda d: jax.jit(lambda: jnp.asarray(np.arange(5000.0, dtype=np.float32)))(),
        "device argument": lambda d: jax.jit(lambda x: x + 1, device=d)(F),
        "inline": _jitted(jax.jit(lambda x: x + 1, inline=True), F),
        "disable_jit": lambda d: _without_jit(d),
        "named_call": _jitted(jax.named_call(lambda x: x + 1, name="mine"), F),
        "named_scope": _jitted(lambda x: _scoped(x), F),
        "ensure_compile_time_eval": lambda d: jax.jit(lambda: _at_compile_time())(),
        "eval_shape": lambda d: [str(jax.eval_shape(lambda x: x @ x.T, jax.device_put(F, d)))],
        "cost_analysis has flops": lambda d: ["flops" in jax.jit(lambda x: x @ x.T).lower(F).compile().cost_analysis()],
        "memory_analysis": lambda d: [jax.jit(lambda x: x + 1).lower(F).compile().memory_analysis().argument_size_in_bytes],
    }


def _without_jit(device: Any) -> Any:
    with jax.disable_jit():
        return jax.jit(lambda x: x * 2)(jax.device_put(F, device))


def _scoped(x: Any) -> Any:
    with jax.named_scope("mine"):
        return x * 2


def _at_compile_time() -> Any:
    with jax.ensure_compile_time_eval():
        return jnp.arange(3) * 2


def _errors() -> dict[str, Case]:
    def checked(device: Any) -> Any:
        from jax.experimental import checkify

        def body(x: Any) -> Any:
            checkify.check(x.sum() < 0, "the sum is {s}", s=x.sum())
            return x

        error, _ = jax.jit(checkify.checkify(body))(jax.device_put(F, device))
        return [error.get()]

    def not_a_number(device: Any) -> Any:
        with jax.debug_nans(True):
            return jax.jit(lambda x: jnp.log(x - 5))(jax.device_put(F, device)).block_until_ready()

    return {
        "shapes that do not fit": lambda d: jax.device_put(F, d) @ jax.device_put(F, d),
        "a tracer leaks": lambda d: jax.jit(lambda x: bool(x[0, 0] > 0))(jax.device_put(F, d)),
        "an index of a wrong type": lambda d: jax.device_put(F, d)["a"],
        "assignment": lambda d: jax.device_put(F, d).__setitem__(0, 1),
        "devices that differ": lambda d: jax.jit(jnp.add)(jax.device_put(F, d), "text"),
        "checkify": checked,
        "debug_nans": not_a_number,
        "division by zero": _jitted(lambda x: (x // 0, x % 0), N),
        "nan and inf": _jitted(lambda x: (x / 0, jnp.log(-x), jnp.maximum(x, jnp.nan)), F),
    }


def _transforms() -> dict[str, Case]:
    return {
        "vmap": _jitted(jax.vmap(lambda x: x @ x), F),
        "vmap in_axes": _jitted(jax.vmap(lambda x, y: x * y, (0, None)), F, F[0]),
        "vmap out_axes": _jitted(jax.vmap(lambda x: x * 2, out_axes=1), F),
        "vmap with an axis name": _jitted(jax.vmap(lambda x: x - lax.pmean(x, "i"), axis_name="i"), F),
        "vmap of gather": _jitted(jax.vmap(lambda x, i: x[i]), F, N[:, 1] % 4),
        "pmap on one device": lambda d: np.asarray(
            jax.pmap(lambda x: lax.psum(x, "i"), axis_name="i", devices=[d])(F[None])
        ).tolist(),
        "shard_map on one device": lambda d: _on_a_mesh(d),
        "jit of jit": _jitted(jax.jit(jax.jit(lambda x: x + 1)), F),
        "closed arrays": lambda d: (lambda y: jax.jit(lambda x: x + y)(jax.device_put(F, d)))(jax.device_put(F, d)),
        "pytrees": _jitted(lambda t: {"sum": t["a"] + t["b"][0]}, {"a": F, "b": (F, None)}),
        "tree_map": lambda d: jax.tree.map(lambda x: x * 2, jax.device_put([F, {"n": N}], d)),
        "profiler": lambda d: _profiled(d),
    }


def _profiled(device: Any) -> Any:
    with jax.profiler.TraceAnnotation("mine"):
        return jax.jit(lambda x: x * 5)(jax.device_put(F, device))


def _on_a_mesh(device: Any) -> Any:
    from jax.sharding import Mesh, PartitionSpec

    mesh = Mesh(np.array([device]), ("i",))
    part = PartitionSpec("i")
    return jax.jit(jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=part, out_specs=PartitionSpec()))(F)


_SUBJECTS: dict[str, Callable[[], dict[str, Case]]] = {
    "lax": _lax, "numpy": _numpy, "linalg": _linalg, "random": _random, "control flow": _control_flow, "autodiff": _autodiff,
    "nn": _neural, "element types": _dtypes, "buffers": _buffers, "callbacks": _callbacks, "compilation": _compilation,
    "errors": _errors, "transforms": _transforms,
}  # fmt: skip
