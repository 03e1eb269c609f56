"""Gradients that autograd leaves as operations of their own, against torch's: all in one joint program."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from tests.unit.frontends.torch.aten.test_rules import check

GENERATOR = torch.Generator().manual_seed(0)


def r(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=GENERATOR)


FUNCTIONS = [
    (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), r(1, 2, 8, 6)),
    (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), r(2, 7, 6)),
    (lambda x: F.adaptive_max_pool2d(x, (3, 2)), r(2, 7, 6)),
    (lambda x: F.interpolate(x, 8, mode="nearest-exact"), r(1, 2, 5)),
    (lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), r(1, 1, 5, 4)),
    (lambda x: F.interpolate(x, (3, 9), mode="bicubic", antialias=True), r(1, 1, 7, 8)),
    (lambda x: F.pad(x, (2, 1, -1, 3), mode="replicate"), r(1, 2, 5, 4)),
    (lambda x: torch.cdist(x, x[:2], 1.5), r(4, 3)),
    (lambda x: F.pdist(x, math.inf), r(4, 3)),
    (lambda x: F.hardshrink(x) + F.softshrink(2 * x), r(20)),
    (lambda x: F.multi_margin_loss(x, torch.tensor([2, 0]), p=2, margin=0.7, reduction="sum"), r(2, 3)),
    (lambda x: F.multilabel_margin_loss(x, torch.tensor([[1, -1, 0], [2, 0, 1]]), reduction="none"), r(2, 3)),
    (lambda x: F.embedding_bag(torch.tensor([0, 2, 1]), x, torch.tensor([0, 2, 2]), mode="max"), r(4, 3)),
    (lambda x: F.embedding_bag(torch.tensor([0, 2, 1]), x, torch.tensor([0, 2, 2]), mode="mean"), r(4, 3)),
    (lambda x: F.scaled_dot_product_attention(x, x[:, :1], x[:, :1], is_causal=True, enable_gqa=True), r(1, 2, 3, 4)),
    (lambda x: x.sin().masked_scatter(x > 0, x.reshape(5, 4).cos()), r(4, 5)),
]


def test_gradients_are_torchs() -> None:
    functions, inputs = zip(*FUNCTIONS, strict=True)

    def step(*inputs: torch.Tensor) -> Any:
        leaves = [x.detach().requires_grad_() for x in inputs]
        results = [f(x) for f, x in zip(functions, leaves, strict=True)]
        loss = sum((y * torch.arange(y.numel(), dtype=y.dtype).reshape(y.shape).cos()).sum() for y in results)
        return torch.autograd.grad(loss, leaves)

    check(make_fx(step, tracing_mode="fake")(*inputs), *inputs)
