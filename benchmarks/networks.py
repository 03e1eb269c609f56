"""Networks of the benchmarks that no installed package has: ResNet-18, a Mamba block, a block of experts."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MambaBlock", "MoeBlock", "ResNet18"]


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs, track_running_stats=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs, track_running_stats=False)
        self.down: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.down = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs, track_running_stats=False)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
        return functional.relu(y + self.down(x))


class ResNet18(nn.Module):
    """He et al. 2015 without its head: images to 512 features. Batch statistics, as in training."""

    def __init__(self, width: int = 64):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.norm = nn.BatchNorm2d(width, track_running_stats=False)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        stages = [nn.Sequential(_Residual(a, b, 1 if a == b else 2), _Residual(b, b, 1)) for a, b in pairwise(widths)]
        self.stages = nn.Sequential(*stages)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.norm(self.stem(x))), 3, 2, 1)
        return self.stages(x).mean((2, 3))


class MambaBlock(nn.Module):
    """Gu and Dao 2023: gated selective state space, its recurrence over tokens step by step."""

    def __init__(self, width: int, state: int = 16, rank: int = 16):
        super().__init__()
        inner = 2 * width
        self.state, self.rank = state, rank
        self.norm = nn.RMSNorm(width)
        self.into = nn.Linear(width, 2 * inner, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
        self.select = nn.Linear(inner, rank + 2 * state, bias=False)
        self.step = nn.Linear(rank, inner)
        self.decay = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.shape[1]
        u, gate = self.into(self.norm(x)).chunk(2, -1)
        u = functional.silu(self.conv(u.transpose(1, 2))[..., :tokens].transpose(1, 2))
        low, b, c = self.select(u).split([self.rank, self.state, self.state], -1)
        delta = functional.softplus(self.step(low))
        keep = torch.exp(delta[..., None] * -torch.exp(self.decay))
        put = delta[..., None] * b[:, :, None] * u[..., None]
        h, ys = torch.zeros_like(put[:, 0]), []
        for t in range(tokens):
            h = keep[:, t] * h + put[:, t]
            ys.append((h * c[:, t, None]).sum(-1))
        y = torch.stack(ys, 1) + u * self.skip
        return x + self.out(y * functional.silu(gate))


class MoeBlock(nn.Module):
    """A mixture of experts: each token's output is the weighted sum of its ``chosen`` best ones, all computed densely."""

    def __init__(self, width: int, inner: int, experts: int, chosen: int):
        super().__init__()
        self.chosen = chosen
        self.norm = nn.RMSNorm(width)
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, inner) * 0.02)
        self.gate = nn.Parameter(torch.randn(experts, width, inner) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        weights, index = torch.topk(torch.softmax(self.router(h), -1), self.chosen)
        share = torch.zeros(*h.shape[:-1], self.up.shape[0]).scatter(-1, index, weights / weights.sum(-1, keepdim=True))
        inner = functional.silu(torch.einsum("btd,edf->ebtf", h, self.gate)) * torch.einsum("btd,edf->ebtf", h, self.up)
        outer = torch.einsum("ebtf,efd->ebtd", inner, self.down)
        return x + (outer * share.permute(2, 0, 1)[..., None]).sum(0)
