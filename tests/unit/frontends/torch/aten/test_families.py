"""Families of operations against torch eager, many in one program each."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.unit.frontends.torch.aten.test_rules import check

GENERATOR = torch.Generator().manual_seed(0)


def r(*shape: int, dtype: Any = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=GENERATOR, dtype=dtype)


def test_images_read_at_points_and_by_fractional_windows() -> None:
    flat, points = r(2, 3, 4, 2) * 1.3, r(1, 2, 2, 3, 3)  # some of them outside
    samples = torch.rand((2, 1, 2), generator=GENERATOR)

    def program(x: torch.Tensor, volume: torch.Tensor, flat: torch.Tensor, points: torch.Tensor, samples: torch.Tensor) -> Any:
        return (
            F.grid_sample(x, flat, padding_mode="reflection", align_corners=True),
            F.grid_sample(x, flat, "nearest", align_corners=False),
            F.grid_sample(volume, points, padding_mode="border", align_corners=False),
            *F.fractional_max_pool2d(x, (2, 3), output_size=(3, 1), _random_samples=samples, return_indices=True),
        )

    check(program, r(2, 1, 5, 4), r(1, 2, 3, 5, 4), flat, points, samples)


def test_symmetric_matrices_that_are_not_definite() -> None:
    x = r(4, 4, 4, dtype=torch.complex128)
    x[1].diagonal().zero_()
    x[2] = 0
    x[3, :, 0] = x[3, 0, :] = 0  # of these two the factors are singular

    def program(a: torch.Tensor, b: torch.Tensor) -> Any:
        packed, pivots, info = torch.linalg.ldl_factor_ex(a, hermitian=True)
        solved = torch.linalg.ldl_solve(packed[:2], pivots[:2], b, hermitian=True)
        return packed, pivots, info, solved, *torch.geqrf(a[0, :3])

    check(program, x + x.mH, r(4, 3, dtype=torch.complex128))
