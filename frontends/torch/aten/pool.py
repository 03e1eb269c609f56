"""Pooling and interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dims import DimLike
from neuron_ir.frontends.torch.aten.views import section
from neuron_ir.frontends.torch.lowering import Context, lowers


def _ints(values: Any, n: int) -> list[int]:
    """One entry per dim; none given: the op's default."""
    return [values] * n if isinstance(values, int) else list(values) if len(values) != 1 else list(values) * n


@lowers("max_pool1d.default", "max_pool2d.default", "max_pool3d.default")
def max_pool(
    c: Context, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Value:  # fmt: skip
    return c.b.max_pool(x, **_window(c, kernel, stride, padding), dilation=_ints(dilation, dims_of(c)), ceil_mode=ceil_mode)


@lowers("max_pool2d_with_indices.default", "max_pool3d_with_indices.default", "max_pool1d_with_indices.default")
def max_pool_with_indices(
    c: Context, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:  # fmt: skip
    window = _window(c, kernel, stride, padding)
    return c.b.max_pool(x, **window, dilation=_ints(dilation, dims_of(c)), ceil_mode=ceil_mode, indices=True)


def dims_of(c: Context) -> int:
    """The number of pooled dims, which is in the operation's name."""
    return next(int(n) for n in "123" if f"{n}d" in str(c.node.target))


def _window(c: Context, kernel: Any, stride: Any, padding: Any) -> dict[str, Any]:
    n = dims_of(c)
    return {"kernel": _ints(kernel, n), "stride": _ints(stride, n) if stride else (), "padding": _ints(padding, n)}


@lowers("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def avg_pool(
    c: Context, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:  # fmt: skip
    window = _window(c, kernel, stride, padding)
    return c.b.avg_pool(x, **window, ceil_mode=ceil_mode, count_include_pad=count_include_pad, divisor=divisor_override)


@lowers(
    "adaptive_avg_pool1d.default", "adaptive_avg_pool2d.default", "adaptive_avg_pool3d.default", "_adaptive_avg_pool2d.default",
    "_adaptive_avg_pool3d.default",
)  # fmt: skip
def adaptive_avg_pool(c: Context, x: Value, size: Any) -> Value:
    return c.b.adaptive_avg_pool(x, size=c.out.shape[len(c.out.shape) - dims_of(c) :])


@lowers("adaptive_max_pool1d.default", "adaptive_max_pool2d.default", "adaptive_max_pool3d.default")
def adaptive_max_pool(c: Context, x: Value, size: Any) -> Any:
    return c.b.adaptive_max_pool(x, size=c.out.shape[len(c.out.shape) - dims_of(c) :], indices=True)


@lowers("fractional_max_pool2d.default", "fractional_max_pool3d.default")
def fractional_max_pool(c: Context, x: Value, kernel: Any, size: Any, samples: Value) -> tuple[Value, Value]:
    """torch's samples for two dims stand in the order width, height; for three in that of the dims."""
    n = dims_of(c)
    if n == 2:
        samples = c.b.reverse(samples, dimensions=(len(samples.shape) - 1,))
    images = c.reshape(x, (1, *x.shape)) if len(x.shape) == n + 1 else x
    if images.shape[0] == 1:  # torch takes more rows of samples than there are images, and reads the first ones
        samples = section(c, samples, 0, 0, 1)
    y, indices = c.b.fractional_max_pool(images, samples, kernel=_ints(kernel, n), size=_ints(size, n), indices=True)
    return c.reshape(y, c.outs[0].shape), c.reshape(indices, c.outs[1].shape)


# --- reading at any points --------------------------------------------------------------------------------------------


@lowers("grid_sampler_2d.default", "grid_sampler_3d.default", "_grid_sampler_2d_cpu_fallback.default")
def grid_sampler(c: Context, x: Value, grid: Value, mode: int, padding: int, align_corners: bool) -> Value:
    modes, paddings = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")
    return c.b.grid_sample(x, grid, mode=modes[mode], padding=paddings[padding], align_corners=align_corners)  # type: ignore[no-any-return]


# --- interpolation ----------------------------------------------------------------------------------------------------

_MODES = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
    "lanczos": "lanczos",
}


def _mode(name: str) -> str:
    if "nearest_exact" in name:
        return "nearest_exact"
    return next(mode for word, mode in _MODES.items() if word in name)


_NEAREST = [f"{prefix}{n}d" for prefix in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)]
_SMOOTH = ["upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"]
_ANTIALIASED = [f"_upsample_{kind}2d_aa" for kind in ("bilinear", "bicubic", "lanczos")]


@lowers(*(f"{name}.vec" for name in _NEAREST))
def nearest_vec(c: Context, x: Value, _size: Any, factors: Sequence[float] | None) -> Value:
    return interpolated(c, x, c.out.shape[2:], False, factors or ())


@lowers(*(f"{name}.vec" for name in _SMOOTH + _ANTIALIASED))
def smooth_vec(c: Context, x: Value, _size: Any, align_corners: bool, factors: Sequence[float] | None) -> Value:
    return interpolated(c, x, c.out.shape[2:], align_corners, factors or ())


@lowers(*(f"{name}.default" for name in _NEAREST))
def nearest(c: Context, x: Value, _size: Any, *factors: float | None) -> Value:
    return interpolated(c, x, c.out.shape[2:], False, factors)


@lowers(*(f"{name}.default" for name in _SMOOTH + _ANTIALIASED))
def smooth(c: Context, x: Value, _size: Any, align_corners: bool, *factors: float | None) -> Value:
    return interpolated(c, x, c.out.shape[2:], align_corners, factors)


def interpolated(c: Context, x: Value, size: Sequence[DimLike], align_corners: bool, factors: Sequence[float | None]) -> Value:
    """``x`` resampled to ``size`` in the mode that the operation's name says."""
    n, name = len(x.shape) - 2, str(c.node.target)
    scales = [float(f or 0.0) for f in factors] if any(factors) else []
    if len(scales) not in (0, n):
        scales = scales * n
    return c.b.interpolate(  # type: ignore[no-any-return]
        x, size=size, mode=_mode(name), align_corners=bool(align_corners), scales=scales, antialias="2d_aa" in name
    )
