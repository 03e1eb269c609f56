"""Fourier transforms over any dims, of which three at a time go into one op."""

from __future__ import annotations

from collections.abc import Sequence

from neuron_ir.core import Value
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.frontends.torch.aten.views import section, transposed
from neuron_ir.frontends.torch.lowering import Context, axis_of, lowers

_MOST = 3  # dims of one op


def _transformed(c: Context, x: Value, axes: Sequence[int], kind: str, lengths: Sequence[int]) -> Value:
    """``x`` transformed along ``axes``, of which the last one is halved where one side is real."""
    if not all(isinstance(n, int) for n in lengths):
        raise c.unsupported("symbolic sizes")
    rank = len(x.shape)
    order = [*(d for d in range(rank) if d not in axes), *axes]
    y = c.b.fft(transposed(c, x, order), fft_type=kind, fft_length=tuple(lengths))
    return transposed(c, y, [order.index(d) for d in range(rank)])


def _complex_transform(c: Context, x: Value, axes: Sequence[int], kind: str) -> Value:
    for i in range(0, len(axes), _MOST):
        some = axes[i : i + _MOST]
        x = _transformed(c, x, some, kind, [c.sizes(x)[a] for a in some])
    return x


def _normalised(c: Context, x: Value, mode: int, count: int, divided: bool) -> Value:
    """The scale of torch's mode (0 none, 1 by the root of the count, 2 by the count); ``divided``: the op has divided already."""
    factor = {0: 1.0, 1: count**-0.5, 2: 1.0 / count}[mode] if count else 1.0
    factor = factor * count if divided and count else factor
    return x if factor == 1.0 else (Expr(c.b, x) * factor).value


def _count(c: Context, sizes: Sequence[int]) -> int:
    n = 1
    for d in sizes:
        if not isinstance(d, int):
            raise c.unsupported("symbolic sizes")
        n *= d
    return n


@lowers("_fft_c2c.default")
def complex_to_complex(c: Context, x: Value, dims: Sequence[int], normalization: int, forward: bool) -> Value:
    axes = [axis_of(d, len(x.shape)) for d in dims]
    if not axes:
        return x
    y = _complex_transform(c, x, axes, "FFT" if forward else "IFFT")
    return _normalised(c, y, normalization, _count(c, [c.sizes(x)[a] for a in axes]), not forward)


@lowers("_fft_r2c.default")
def real_to_complex(c: Context, x: Value, dims: Sequence[int], normalization: int, onesided: bool) -> Value:
    axes = [axis_of(d, len(x.shape)) for d in dims]
    count = _count(c, [c.sizes(x)[a] for a in axes])
    if not onesided:
        wide = c.cast(x, c.out.dtype)
        return _normalised(c, _complex_transform(c, wide, axes, "FFT"), normalization, count, False)
    first = axes[-_MOST:]
    y = _transformed(c, x, first, "RFFT", [c.sizes(x)[a] for a in first])
    return _normalised(c, _complex_transform(c, y, axes[:-_MOST], "FFT"), normalization, count, False)


@lowers("_fft_c2r.default")
def complex_to_real(c: Context, x: Value, dims: Sequence[int], normalization: int, last_dim_size: int) -> Value:
    axes = [axis_of(d, len(x.shape)) for d in dims]
    y = _complex_transform(c, x, axes[:-1], "IFFT")
    needed, last = last_dim_size // 2 + 1, axes[-1]
    y = section(c, y, last, 0, needed)
    y = _transformed(c, y, axes[-1:], "IRFFT", [last_dim_size])
    return _normalised(c, y, normalization, _count(c, [c.sizes(x)[a] for a in axes[:-1]] + [last_dim_size]), True)
