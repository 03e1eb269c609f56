"""NaN: where it wins, where it is hidden, and what its sign is."""

from __future__ import annotations

import jax.numpy as jnp
import numpy
import torch
from torch.nn import functional as F

from tests.integration.bug_cases.judge import check, check_jax, each, same, torch_programs

NAN, INF = float("nan"), float("inf")


# seen in apache/tvm#19540 and openvinotoolkit/openvino#35886
def test_places_of_the_least_and_greatest_with_nan() -> None:
    x = torch.tensor([[8, NAN, 3, 1, 5], [1, 2, 3, NAN, NAN]])
    places = each(
        lambda x: x.argmin(1),
        lambda x: x.argmax(1),
        lambda x: x.argmin(),
        lambda x: x.max(1),
        lambda x: x.min(1),
        lambda x: x.cummax(1),
        lambda x: x.sort(1),
        lambda x: x.topk(2, 1).values,
        lambda x: x[0].topk(3),
        lambda x: x.amax(0),
        lambda x: torch.aminmax(x),
        lambda x: F.max_pool1d(x, 2),
    )
    check(places, x)
    check(each(lambda x: x.argmax(), lambda x: x.argmin(), lambda x: x.max()), torch.full((61,), NAN))
    check_jax(
        lambda x: (jnp.argmin(x), jnp.argmax(x[::-1])), numpy.float32([8, NAN, 3, 1, 5]), want=[numpy.int64(1), numpy.int64(3)]
    )
    check_jax(lambda x: jnp.argmax(x), numpy.full(61, NAN, numpy.float32), want=numpy.int64(0))


# seen in iree-org/iree#24502: one shared lowering cannot serve both
def test_the_sign_of_nan_is_the_frameworks() -> None:
    x = torch.tensor([NAN, -2.0, 0.0, INF])
    check(lambda x: x.sign(), x, want=torch.tensor([0.0, -1, 0, 1]))
    check_jax(jnp.sign, x.numpy(), want=numpy.float32([NAN, -1, 0, 1]))
    check(each(lambda x: x.sgn(), lambda x: x.half().sign(), lambda x: x.heaviside(torch.tensor(0.5)), lambda x: x.signbit()), x)


def test_nan_passes_through_selections_as_in_torch() -> None:
    x, y = torch.tensor([NAN, 1.0, NAN, -0.0]), torch.tensor([2.0, NAN, NAN, 0.0])
    choices = each(
        lambda x, y: torch.maximum(x, y),
        lambda x, y: torch.fmax(x, y),
        lambda x, y: torch.fmin(x, y),
        lambda x, y: x.clamp(0, 1),
        lambda x, y: x.clamp(max=y),
        lambda x, y: F.relu(x),
        lambda x, y: F.hardtanh(x),
        lambda x, y: F.threshold(x, 0.5, 7.0),
        lambda x, y: (x == x, x != x, x < y, x.isclose(y, equal_nan=True)),
        lambda x, y: x.nan_to_num(3.0),
        lambda x, y: (x.nansum(), x.nanmean()),
        lambda x, y: (x.bool(), x.any(), x.all(), torch.logical_not(x)),
        lambda x, y: torch.where(x.isnan(), y, x),
        lambda x, y: x.pow(0),
        lambda x, y: x * 0,
        lambda x, y: (x > 0).float() * y,
    )
    check(choices, x, y)


# seen in pytorch/pytorch#101967: what a masked key holds, as an unused slot of a cache does
def test_nan_in_a_masked_key() -> None:
    seed = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 3, 4, generator=seed) for _ in range(3))
    k[:, :, 1] = NAN
    mask = torch.tensor([True, False, True]).expand(3, 3)
    masked = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # noqa: E731
    check(masked, q, k, v, want=torch.full((1, 2, 3, 4), NAN))
    # eager's kernel for a causal mask skips the key, its kernel for strided inputs does not: the first is taken
    causal = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)  # noqa: E731
    for run in torch_programs(causal, q, k, v):
        same(run(q, k, v), causal(q, k, v))


def test_rows_with_nothing_to_attend_to() -> None:
    seed = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 3, 4, generator=seed) for _ in range(3))
    mask = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    ways = each(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        lambda q, k, v: torch.where(mask, q @ k.mT, -INF).softmax(-1) @ v,
        lambda q, k, v: F.log_softmax(torch.where(mask, q @ k.mT, -INF), -1),
        lambda q, k, v: torch.where(mask, q @ k.mT, -INF).logsumexp(-1),
    )
    check(ways, q, k, v)
