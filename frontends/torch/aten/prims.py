"""torch's own small vocabulary, ``prims``, which its Python references are written in: most have the meaning of an ATen operation.

They do not promote: operands come in the element type of the operation, which the rules of the ATen operations leave as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.frontends.torch.aten.hops import shown
from neuron_ir.frontends.torch.aten.pointwise import terms
from neuron_ir.frontends.torch.aten.random import normal, uniform
from neuron_ir.frontends.torch.lowering import Context, lowers, rules

# prims -> the ATen operation of the same meaning and arguments, where its name is another or it has no overload "default".
_COUNTERPARTS = {
    "add": "add.Tensor", "sub": "sub.Tensor", "mul": "mul.Tensor", "pow": "pow.Tensor_Tensor", "fmod": "fmod.Tensor",
    "remainder": "remainder.Tensor", "eq": "eq.Tensor", "ne": "ne.Tensor", "lt": "lt.Tensor", "le": "le.Tensor",
    "gt": "gt.Tensor", "ge": "ge.Tensor", "bitwise_and": "bitwise_and.Tensor", "bitwise_or": "bitwise_or.Tensor",
    "bitwise_xor": "bitwise_xor.Tensor", "shift_left": "bitwise_left_shift.Tensor",
    "shift_right_arithmetic": "bitwise_right_shift.Tensor", "where": "where.self", "rev": "flip.default",
    "transpose": "permute.default", "erf_inv": "erfinv.default", "bessel_i0": "i0.default",
    "bessel_i0e": "special_i0e.default", "bessel_i1": "special_i1.default", "bessel_i1e": "special_i1e.default",
    "bessel_j0": "special_bessel_j0.default", "bessel_j1": "special_bessel_j1.default", "ndtri": "special_ndtri.default",
    "spherical_bessel_j0": "special_spherical_bessel_j0.default", "zeta": "special_zeta.default", "frexp": "frexp.Tensor",
    "view_of_dtype": "view.dtype",
}  # fmt: skip
_SAME_NAME = """
    abs acos acosh as_strided_scatter asin asinh atan atan2 atanh bitwise_not cat ceil clone cos cosh digamma empty_permuted erf
    erfc exp exp2 expm1 floor fmax fmin full_like gcd hypot igamma igammac imag isfinite lgamma log log10 log1p log2 maximum
    minimum neg nextafter real reciprocal round rsqrt scalar_tensor sign sin sinh sqrt tan tanh trunc
""".split()


def _as_aten(c: Context, overload: str, *args: Any, **options: Any) -> Any:
    """The results by the rule of an ATen operation, which is shown a node of that operation."""
    import torch

    name, _, kind = overload.partition(".")
    with shown(c, getattr(getattr(torch.ops.aten, name), kind)):
        return rules()[f"aten.{overload}"](c, *args, **options)


def _counterpart(overload: str) -> Callable[..., Any]:
    def rule(c: Context, *args: Any, **options: Any) -> Any:
        return _as_aten(c, overload, *args, **options)

    return rule


for _name, _overload in {**_COUNTERPARTS, **{name: f"{name}.default" for name in _SAME_NAME}}.items():
    lowers(f"prims.{_name}.default")(_counterpart(_overload))


@lowers("prims.div.default")
def div(c: Context, x: Any, y: Any) -> Value:
    """The quotient; of integers without its fraction."""
    mode = {"rounding_mode": "trunc"} if c.out.dtype.is_integer else {}
    return _as_aten(c, "div.Tensor_mode" if mode else "div.Tensor", x, y, **mode)  # type: ignore[no-any-return]


@lowers("prims.fma.default")
def fma(c: Context, a: Any, b: Any, addend: Any) -> Value:
    """``a * b + addend``, which Dynamo makes of an optimizer's in-place ``addcmul``; torch rounds the product, XLA may not."""
    x, y, z = terms(c, a, b, addend, dtype=c.out.dtype)
    return c.cast((x * y + z).value, c.out.dtype)


@lowers("prims.cbrt.default")
def cbrt(c: Context, x: Value) -> Value:
    """The power 1/3, as torch has it: NaN below 0."""
    return _as_aten(c, "pow.Tensor_Scalar", x, 1 / 3)  # type: ignore[no-any-return]


@lowers("prims.conj.default", "prims.conj_physical.default")
def conj(c: Context, x: Value) -> Value:
    return c.b.conj(x) if x.dtype.is_complex else x


@lowers("prims.copy_strided.default", "prims.device_put.default", "prims.view_of.default")
def same(c: Context, x: Value, *_args: Any, **_options: Any) -> Value:
    """Strides and devices have no counterpart."""
    return x


@lowers(
    "prims.collapse.default", "prims.collapse_view.default", "prims.reshape.default", "prims.split_dim.default",
    "prims.squeeze.default",
)  # fmt: skip
def reshape(c: Context, x: Value, *_args: Any) -> Value:
    return c.reshape(x, c.out.shape)


@lowers("prims.broadcast_in_dim.default")
def broadcast_in_dim(c: Context, x: Value, shape: Sequence[Any], dims: Sequence[int]) -> Value:
    return Expr(c.b, x).broadcast(c.out.shape, tuple(dims)).value


@lowers("prims.fill.default", "prims.full.default")
def full(c: Context, _like: Any, value: Any, **_options: Any) -> Value:
    return c.scalar(value, c.out.dtype, c.out.shape)


@lowers("prims.empty.default", "prims.empty_strided.default")
def empty(c: Context, *_args: Any, **_options: Any) -> Value:
    """What is not initialised is 0 here."""
    return c.scalar(0, c.out.dtype, c.out.shape)


@lowers("prims.iota.default")
def iota(c: Context, length: Any, *, start: Any, step: Any, **options: Any) -> Value:
    return _as_aten(c, "arange.start_step", start, start + length * step, step, dtype=options.get("dtype"))  # type: ignore[no-any-return]


# --- reductions -------------------------------------------------------------------------------------------------------


@lowers("prims.sum.default", "prims.prod.default", "prims.amax.default", "prims.amin.default")
def reduce(c: Context, x: Value, dims: Sequence[int] | None, *, output_dtype: Any = None) -> Value:
    """Over all dims where ``dims`` is ``None``, over none where it is empty."""
    x = c.cast(x, c.out.dtype.accumulator)
    axes = tuple(range(len(x.shape)) if dims is None else dims)
    name = str(c.node.target).split(".")[1]
    op = {"sum": "reduce_sum", "prod": "reduce_prod", "amax": "reduce_max", "amin": "reduce_min"}[name]
    return c.cast(c.b.make(f"neuron.{op}", x, axes=axes) if axes else x, c.out.dtype)


@lowers("prims.var.default")
def var(c: Context, x: Value, dims: Sequence[int] | None, correction: float | None = 1, *, output_dtype: Any = None) -> Value:
    axes = list(range(len(x.shape))) if dims is None else list(dims)
    return _as_aten(c, "var.correction", x, axes, correction=correction)  # type: ignore[no-any-return]


# --- factors, transforms, random numbers ------------------------------------------------------------------------------


@lowers("prims.svd.default")
def svd(c: Context, x: Value, *, full_matrices: bool) -> Any:
    return _as_aten(c, "_linalg_svd.default", x, full_matrices)


@lowers("prims.fft_c2c.default")
def fft_c2c(c: Context, x: Value, *, dim: Sequence[int], forward: bool) -> Any:
    return _as_aten(c, "_fft_c2c.default", x, dim, 0, forward)


@lowers("prims.fft_r2c.default")
def fft_r2c(c: Context, x: Value, *, dim: Sequence[int], onesided: bool) -> Any:
    return _as_aten(c, "_fft_r2c.default", x, dim, 0, onesided)


@lowers("prims.fft_c2r.default")
def fft_c2r(c: Context, x: Value, *, dim: Sequence[int], last_dim_size: Any) -> Any:
    return _as_aten(c, "_fft_c2r.default", x, dim, 0, last_dim_size)


@lowers("prims.normal.default")
def normal_(c: Context, _shape: Any, *, mean: float, std: float, **_options: Any) -> Value:
    return normal(c, float(mean), float(std), c.out)


@lowers("prims.uniform.default")
def uniform_(c: Context, _shape: Any, *, low: float, high: float, **_options: Any) -> Value:
    return uniform(c, float(low), float(high), c.out)
