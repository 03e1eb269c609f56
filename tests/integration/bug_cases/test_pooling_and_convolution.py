"""Windows: what the edge of a pool holds, its divisor, and the edge of a transposed convolution."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.integration.bug_cases.judge import check, each

SQUARE = torch.arange(25.0).view(1, 1, 5, 5)
LINE = torch.arange(5.0).view(1, 1, 5)


# seen in apple/coremltools#2772 and pytorch/xla#746: the overhang was counted in the divisor
def test_average_pools_with_ceil_mode() -> None:
    check(lambda x: F.avg_pool1d(x, 2, 2, ceil_mode=True), LINE, want=torch.tensor([[[0.5, 2.5, 4.0]]]))
    pools = each(
        lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True),
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        lambda x: F.avg_pool2d(x, (2, 3), (3, 2), (1, 0), ceil_mode=True),
        lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True, divisor_override=3),
    )
    assert pools(SQUARE)[0][0, 0, 2, 2] == 24
    check(pools, SQUARE)
    check(lambda x: F.avg_pool3d(x, 2, 2, ceil_mode=True), torch.arange(27.0).view(1, 1, 3, 3, 3))


# seen in kulinseth/pytorch#273: the first result was used again for the others
def test_pools_that_differ_in_the_divisor_only() -> None:
    check(lambda x: F.avg_pool2d(x, 2, 2, 1), SQUARE)
    check(lambda x: F.avg_pool2d(x, 2, 2, 1, divisor_override=3), SQUARE)
    check(lambda x: F.avg_pool2d(x, 2, 2, 1, count_include_pad=False), SQUARE)


# seen in llvm/torch-mlir#826: huge numbers at the edge
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_max_pools_of_negative_data(dtype: torch.dtype) -> None:
    check(lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True), torch.full((1, 1, 5, 5), -1).to(dtype))
    check(lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), torch.full((1, 1, 4, 4), -1).to(dtype))


def test_max_pools_with_places_and_dilation() -> None:
    x = -torch.arange(25.0).view(1, 1, 5, 5)
    x[0, 0, 2, 2] = float("-inf")
    x[0, 0, 3, 4] = float("nan")
    pools = each(
        lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True, return_indices=True),
        lambda x: F.max_pool2d(x, 2, 1, 0, dilation=2),
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
        lambda x: F.adaptive_max_pool2d(x, (2, 3)),
        lambda x: F.adaptive_avg_pool2d(x.nan_to_num(0, 0, 0), (2, 3)),
    )
    check(pools, x)
    check(lambda x: F.max_pool1d(x, 3, 2, 1, ceil_mode=True), -LINE - 1)


# seen in llvm/torch-mlir#2026 and pytorch/pytorch#98129: the extra rows were filled with zeros
def test_transposed_convolution_with_output_padding() -> None:
    ones = torch.ones(1, 1, 2, 2)
    wide = lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, output_padding=1)  # noqa: E731
    bias = torch.tensor([10.0])
    assert (wide(ones, torch.ones(1, 1, 3, 3), bias)[0, 0, 5] == 10).all()
    check(wide, ones, torch.ones(1, 1, 3, 3), bias)
    narrow = lambda x, w: F.conv_transpose2d(x, w, None, stride=2, padding=1, output_padding=1)  # noqa: E731
    check(narrow, ones, torch.ones(1, 1, 2, 2), want=torch.ones(1, 1, 3, 3))


def test_convolutions_of_every_kind() -> None:
    seed = torch.Generator().manual_seed(0)
    x, w, b = torch.randn(2, 4, 5, 6, generator=seed), torch.randn(6, 2, 3, 2, generator=seed), torch.randn(6, generator=seed)
    kinds = each(
        lambda x, w, b: F.conv2d(x, w, b, groups=2),
        lambda x, w, b: F.conv2d(x, w, None, (2, 1), (1, 2), (1, 2), 2),
        lambda x, w, b: F.conv2d(x, w, b, padding="same", groups=2),
        lambda x, w, b: F.conv_transpose2d(x, w[:4], None, (2, 3), (1, 0), (1, 1), 2, (2, 1)),
        lambda x, w, b: F.conv1d(x[:, :, 0], w[:, :, 0], b, groups=2),
    )
    check(kinds, x, w, b)
