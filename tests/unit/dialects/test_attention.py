"""attention and rotary_embedding against torch: masks, alignments, grouped heads, hidden rows, NaN."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from neuron_ir.diagnostics import IRError

from .judge import apply, close, expanded, program, symbolic

inf, nan = float("inf"), float("nan")


def randn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def qkv(heads=4, kv_heads=4, length=5, keys=7, width=8, value_width=8, batch=(2,), dtype=torch.float32):
    return (
        randn(*batch, heads, length, width, dtype=dtype),
        randn(*batch, kv_heads, keys, width, dtype=dtype, seed=1),
        randn(*batch, kv_heads, keys, value_width, dtype=dtype, seed=2),
    )


def reference(q, k, v, mask=None, scale=None, visible=None):
    """The formula in float64, rounded once."""
    shared = q.shape[-3] // k.shape[-3]
    k, v = (t.repeat_interleave(shared, -3) for t in (k, v))
    s = q.double() @ k.double().mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if mask is not None:
        s = s + (torch.where(mask, 0.0, -inf) if mask.dtype is torch.bool else mask.double())
    if visible is not None:
        s = s.masked_fill(~visible, -inf)
    p = torch.where((s == -inf).all(-1, keepdim=True), 0.0, torch.softmax(s, -1))
    return (p @ v.double()).to(q.dtype)


@pytest.mark.parametrize("dtype, ulps", [(torch.float32, 8), (torch.bfloat16, 1), (torch.float16, 1), (torch.float64, 8)])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_attention_in_every_type_and_with_shared_heads(dtype, ulps, kv_heads):
    q, k, v = qkv(kv_heads=kv_heads, dtype=dtype)
    y = apply("attention", q, k, v, None)
    close(y, reference(q, k, v), ulps)
    close(y, F.scaled_dot_product_attention(q, k, v, enable_gqa=True), 8 if ulps == 8 else 2)


def test_causal_alignments():
    q, k, v = qkv()
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    close(apply("attention", q, k, v, None, causal="top_left"), expected, 8)
    below = torch.ones(5, 7, dtype=torch.bool).tril(2)
    close(apply("attention", q, k, v, None, causal="bottom_right"), reference(q, k, v, below), 8)
    q, k, v = qkv(length=7, keys=3)
    below = torch.ones(7, 3, dtype=torch.bool).tril(-4)
    y = apply("attention", q, k, v, None, causal="bottom_right")
    close(y, reference(q, k, v, below), 8)
    assert torch.equal(y[:, :, :4], torch.zeros(2, 4, 4, 8))


MASKS = {
    "bool": torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(3)) > 0.4,
    "keys": torch.tensor([True, True, False, True, True, False, True]),
    "heads": torch.rand(4, 5, 7, generator=torch.Generator().manual_seed(4)) > 0.4,
    "float": randn(2, 4, 5, 7, seed=5),
    "infinite": torch.where(torch.rand(5, 7, generator=torch.Generator().manual_seed(6)) > 0.4, 0.0, -inf),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_masks_broadcast_and_add(mask, kv_heads):
    q, k, v = qkv(kv_heads=kv_heads)
    close(apply("attention", q, k, v, mask, scale=0.3), reference(q, k, v, mask, 0.3), 8)
    full = mask.expand(2, 4, 5, 7) if mask.ndim < 3 else mask
    expected = F.scaled_dot_product_attention(q, k, v, full, scale=0.3, enable_gqa=True)
    close(apply("attention", q, k, v, mask, scale=0.3), expected, 8)


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_a_query_that_sees_nothing_gives_zero_as_on_both_paths_of_torch(backend):
    q, k, v = qkv()
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[1] = False
    with sdpa_kernel([backend]):
        expected = F.scaled_dot_product_attention(q, k, v, mask)
    assert torch.equal(expected[:, :, 1], torch.zeros(2, 4, 8))
    close(apply("attention", q, k, v, mask), expected, 8)


def test_plain_softmax_gives_nan_there():
    q, k, v = qkv()
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[1] = False
    y = apply("attention", q, k, v, mask, masked_rows="nan")
    assert y[:, :, 1].isnan().all() and y[:, :, [0, 2, 3, 4]].isfinite().all()


def test_no_keys_give_zero():
    q, k, v = qkv(keys=0)
    close(apply("attention", q, k, v, None), F.scaled_dot_product_attention(q, k, v), 0)
    q, k, v = qkv(length=0)
    assert apply("attention", q, k, v, None).shape == (2, 4, 0, 8)


def test_nan_in_a_hidden_key_spreads_by_a_mask_and_not_by_causal_as_in_torch():
    q, k, v = qkv(length=3, keys=5)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[:, 1] = False
    hidden = k.clone()
    hidden[:, :, 1, 0] = nan
    close(apply("attention", q, hidden, v, mask), F.scaled_dot_product_attention(q, hidden, v, mask), 8)
    late = k.clone()
    late[:, :, 4, 0] = nan
    expected = F.scaled_dot_product_attention(q, late, v, is_causal=True)
    assert expected.isfinite().all()
    close(apply("attention", q, late, v, None, causal="top_left"), expected, 8)
    value = v.clone()
    value[:, :, 4, 0] = nan
    expected = F.scaled_dot_product_attention(q, k, value, is_causal=True)
    close(apply("attention", q, k, value, None, causal="top_left"), expected, 8)


def test_log_sum_exp_is_what_torchs_kernel_returns():
    q, k, v = qkv()
    mask = torch.zeros(5, 7)
    mask[1] = -inf
    y, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=mask)
    for actual, expected in zip(apply("attention", q, k, v, mask, lse=True), (y, lse), strict=True):
        close(actual, expected, 8)


@pytest.mark.parametrize("batch", [(), (3, 2)])
def test_other_ranks_and_widths(batch):
    q, k, v = qkv(batch=batch, value_width=3)
    close(apply("attention", q, k, v, None), reference(q, k, v), 8)


def test_without_heads_and_with_one_batch_of_keys_for_all():
    q, k, v = randn(5, 8), randn(7, 8, seed=1), randn(7, 8, seed=2)
    close(apply("attention", q, k, v, None), F.scaled_dot_product_attention(q, k, v), 8)
    q, k, v = randn(3, 2, 5, 8), randn(1, 2, 7, 8, seed=1), randn(1, 2, 7, 8, seed=2)
    close(apply("attention", q, k, v, None), reference(q, k, v), 8)


def test_huge_scores_do_not_overflow():
    q, k, v = (t * 1e3 for t in qkv())
    close(apply("attention", q, k, v, None), reference(q, k, v), 64)


def rotate_half(x):
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def test_rotary_embedding_of_halves_and_of_neighbours():
    x = randn(2, 3, 5, 8)
    angles = torch.outer(torch.arange(5.0), 10000 ** (-torch.arange(4) / 4))
    cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
    expected = x * cos + rotate_half(x) * sin
    close(apply("rotary_embedding", x, cos, sin), expected, 2)
    close(apply("rotary_embedding", x, angles.cos(), angles.sin()), expected, 2)
    turned = torch.view_as_complex(x.reshape(2, 3, 5, 4, 2)) * torch.polar(torch.ones(5, 4), angles)
    neighbours = apply("rotary_embedding", x, angles.cos(), angles.sin(), interleaved=True)
    close(neighbours, torch.view_as_real(turned).reshape(x.shape), 4)
    wide = apply("rotary_embedding", x.bfloat16(), cos, sin)
    b = x.bfloat16().double()
    close(wide, (b * cos.double() + rotate_half(b) * sin.double()).bfloat16(), 1)


def test_what_does_not_fit_is_refused_with_its_numbers():
    f = symbolic
    q = f((2, 4, 5, 8))
    for name, types, message in (
        ("attention", [q, f((2, 3, 7, 8)), f((2, 3, 7, 8)), None], "4 heads of q are no multiple of the 3 heads of k and v"),
        ("attention", [q, f((2, 4, 7, 9)), f((2, 4, 7, 8)), None], "q and k differ in width: 8 and 9"),
        ("attention", [q, f((2, 4, 7, 8)), f((2, 4, 6, 8)), None], "k and v differ in length: 7 and 6"),
        ("attention", [q, f((3, 4, 7, 8)), f((3, 4, 7, 8)), None], "[2], [3] and [3] do not broadcast"),
        (
            "attention",
            [q, f((2, 4, 7, 8)), f((2, 4, 7, 8)), f((5, 6))],
            "a mask of shape [5, 6] does not broadcast to [2, 4, 5, 7]",
        ),
        ("attention", [q, f((2, 4, 7, 8), "bf16"), f((2, 4, 7, 8)), None], "k must be f32 like the first operand, not bf16"),
        ("rotary_embedding", [f((5, 7)), f((5, 7)), f((5, 7))], "the last dim of tensor<5x7xf32> has no pairs"),
        ("rotary_embedding", [f((5, 8)), f((5, 3)), f((5, 3))], "the last dim must be 4 or 8"),
    ):
        with pytest.raises(IRError) as caught:
            program(f"neuron.{name}", types)
        assert message in str(caught.value)


def test_shapes_may_be_symbols():
    f = symbolic
    q, k = f(("B", 4, "L", 8)), f(("B", 2, "S", 8))
    module = program("neuron.attention", [q, k, k, f(("B", 1, "L", "S"), "bool")], lse=True)
    assert module.main.result_types == [q, f(("B", 4, "L"))]
    expanded(module)
    expanded(program("neuron.attention", [q, k, k, None], causal="bottom_right"))
    assert program("neuron.rotary_embedding", [q, f(("L", 8)), f(("L", 8))]).main.result_types == [q]
