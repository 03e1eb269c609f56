"""torch's ``prims``, against torch's own implementations of them; a few dozen in each program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import neuron_ir

P = torch.ops.prims
X = torch.tensor([0.25, 0.75, 0.5, 0.9])
Y = torch.tensor([0.5, -0.25, 2.5, -1.0])
K, J = torch.tensor([7, -7, 12, 5]), torch.tensor([2, 2, 8, -3])
M = torch.arange(12.0).reshape(3, 4) - 5
Z = torch.complex(X, Y)

UNARY = """
    abs acos asin asinh atan atanh bessel_i0 bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 cbrt ceil clone cos cosh digamma
    erf erf_inv erfc exp exp2 expm1 floor isfinite lgamma log log10 log1p log2 ndtri neg reciprocal round rsqrt sign sin sinh
    spherical_bessel_j0 sqrt tan tanh trunc view_of frexp
""".split()
BINARY = """
    add atan2 div eq fmax fmin fmod ge gt hypot le lt maximum minimum mul ne nextafter pow remainder sub zeta
""".split()
INTEGER = """
    add bitwise_and bitwise_or bitwise_xor div eq fmod gcd maximum mul remainder sub
""".split()
CPU = torch.device("cpu")

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "unary": (lambda x: [getattr(P, name)(x) for name in UNARY] + [P.acosh(x + 1)], (X,)),
    "binary": (lambda x, y: [getattr(P, name)(x, y) for name in BINARY] + [P.igamma(x, x + 1), P.igammac(x, x + 1)], (X, Y)),
    "integers": (
        lambda x, y: [
            *[getattr(P, name)(x, y) for name in INTEGER], P.bitwise_not(x), P.shift_left(x, y * y), P.sum(x, [0]), P.abs(x),
            P.shift_right_arithmetic(x, y * y), P.prod(x, [0]), P.amax(x, [0]), P.convert_element_type(x, torch.float16),
        ],
        (K, J),
    ),
    "shapes": (
        lambda x: [
            P.broadcast_in_dim(x, [2, 3, 5, 4], [1, 3]), P.cat([x, x + 1], 1), P.collapse_view(x, 0, 1), P.rev(x, [0]),
            P.reshape(x, [2, 6]), P.split_dim(x, 1, 2), P.squeeze(x.reshape(3, 1, 4), [1]), P.transpose(x, [1, 0]),
            P.fill(x, 3.0), P.full([2], 7, dtype=torch.int32, device=CPU, requires_grad=False), P.where(x > 0, x, -x),
            P.iota(4, start=3, step=2, dtype=torch.int64, device=CPU, requires_grad=False), P.view_of_dtype(x, torch.int32),
            P.full_like(x, 2.0, dtype=torch.float64, device=CPU, requires_grad=False), P.copy_strided(x, [1, 3]),
        ],
        (M,),
    ),
    "reductions": (
        lambda x: [
            P.sum(x, [1]), P.prod(x, [0, 1]), P.amax(x, [0]),
            P.amin(x, [1]), P.var(x, [1], 1), P.var(x, [0], 0), P.svd(x, full_matrices=False)[1],
        ],
        (M,),
    ),
    "complex": (
        lambda x, z: [
            P.real(z), P.imag(z), P.conj_physical(z), P.mul(z, z), P.fft_c2c(z, dim=[0], forward=True),
            P.fft_r2c(x, dim=[0], onesided=True), P.fft_c2r(z, dim=[0], last_dim_size=6),
        ],
        (X, Z),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_mean_what_torch_means(name: str) -> None:
    function, inputs = PROGRAMS[name]
    actual = neuron_ir.compile(neuron_ir.from_torch(function, inputs))(*inputs)
    leaves = torch.utils._pytree.tree_leaves
    expected = leaves(function(*inputs))
    for place, (mine, wanted) in enumerate(zip(leaves(actual), expected, strict=True)):
        torch.testing.assert_close(mine, wanted, equal_nan=True, check_stride=False, msg=lambda m, i=place: f"result {i}: {m}")
