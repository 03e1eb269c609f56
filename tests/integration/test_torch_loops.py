"""Loops and other higher-order operations of torch, each beside the same program written out in Python: both are imported."""

from __future__ import annotations

import math
from math import prod

import pytest
import torch
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.invoke_subgraph import mark_compile_region
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

import neuron_ir

XS = torch.arange(1.0, 13.0).reshape(4, 3) / 7
W = torch.tensor([0.5, -1.0, 2.0])  # handed over, since torch exports no scan that reads a tensor of the module's globals


def powers(xs, w):
    def step(i, y):
        return i + 1, y * 2 + xs[0]

    return while_loop(lambda i, y: (i < 5) & (y.sum() < 100), step, (torch.tensor(0), xs[0] * 1))[1]


def powers_unrolled(xs, w):
    y = xs[0]
    for _ in range(5):
        y = y * 2 + xs[0]
    return y


def recurrence(xs, w):
    return scan(lambda c, e: (c * 0.5 + e * w, c * e), torch.zeros(3), xs)


def recurrence_unrolled(xs, w):
    c, ys = torch.zeros(3), []
    for e in xs:
        ys.append(c * e)
        c = c * 0.5 + e * w
    return c, torch.stack(ys)


def mapped(xs, w):
    return torch_map(lambda e, z: e.exp() * 2 + z, xs, xs[1] * 3)


def mapped_unrolled(xs, w):
    return torch.stack([e.exp() * 2 + xs[1] * 3 for e in xs])


def nested(xs, w):
    """A scan in a while in a branch."""

    def inner(x):
        return scan(lambda c, e: (c * 0.5 + e * w, c * 1), x, xs)[0]

    def outer(xs):
        start = (xs.sum() * 0).long()  # a new tensor in an inner graph is more than torch can export
        return while_loop(lambda i, x: (i < 3) & (x.sum() < 50), lambda i, x: (i + 1, inner(x)), (start, xs[0] * 1))[1]

    return torch.cond(xs.sum() > 0, outer, lambda xs: xs[0] + w, (xs,))


def nested_unrolled(xs, w):
    x = xs[0]
    for _ in range(3):
        for e in xs:
            x = x * 0.5 + e * w
    return x


def linear_recurrence(xs, w):
    """``y[t] = a[t] * y[t-1] + b[t] + w`` by a tree of pairs."""
    return associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (xs, xs.sin() + w), dim=0, combine_mode="generic")[1]


def linear_recurrence_unrolled(xs, w):
    y, ys = torch.zeros(3), []
    for e in xs:
        y = e * y + e.sin() + w
        ys.append(y)
    return torch.stack(ys)


PAIRS = [
    (powers, powers_unrolled),
    (recurrence, recurrence_unrolled),
    (mapped, mapped_unrolled),
    (nested, nested_unrolled),
    (linear_recurrence, linear_recurrence_unrolled),
]


def test_loops_are_their_unrolled_programs() -> None:
    every = neuron_ir.compile(neuron_ir.from_torch(lambda xs, w: [f(xs, w) for f, _ in PAIRS], (XS, W)))
    unrolled = neuron_ir.compile(neuron_ir.from_torch(lambda xs, w: [f(xs, w) for _, f in PAIRS], (XS, W)))
    want = torch.utils._pytree.tree_leaves([f(XS, W) for _, f in PAIRS])
    for got, name in ((every(XS, W), "structured"), (unrolled(XS, W), "unrolled")):
        for g, w in zip(torch.utils._pytree.tree_leaves(got), want, strict=True):
            torch.testing.assert_close(g, w, msg=lambda m, name=name: f"{name}: {m}")
    _, _, _, _, other_branch, *_ = torch.utils._pytree.tree_leaves(every(-XS, W))
    torch.testing.assert_close(other_branch, -XS[0] + W)
    torch.testing.assert_close(every(XS * 1000, W)[0], XS[0] * 1000, msg="a loop of no steps")


class Running(nn.Module):
    """A buffer that a loop reads and that takes the loop's result."""

    def __init__(self, unrolled):
        super().__init__()
        self.unrolled = unrolled
        self.register_buffer("seen", torch.ones(3))

    def forward(self, xs):
        if self.unrolled:
            total = self.seen
            for e in xs:
                total = total + e * self.seen
        else:
            total = scan(lambda c, e: (c + e * self.seen, e * 1), self.seen * 1, xs)[0]
        self.seen.copy_(total)
        return total * 2


def test_a_captured_buffer_that_is_updated() -> None:
    eager = Running(True)
    program = neuron_ir.compile(neuron_ir.from_torch(Running(False), (XS,)))
    for call in range(2):
        torch.testing.assert_close(program(XS), eager(XS), msg=f"call {call}")
        torch.testing.assert_close(torch.from_numpy(program.state["seen"]), eager.seen)


def test_regions_that_draw_random_numbers() -> None:
    def noisy(x):
        a = torch.cond(x.sum() > 0, lambda x: torch.rand(64) + torch.dropout(x, 0.5, True), lambda x: x * 1, (x,))
        b = while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + torch.rand(64)), (torch.tensor(0), x * 0))[1]
        c, each = scan(lambda c, e: (c + torch.rand(64), torch.rand(64) + e), x * 0, torch.zeros(3, 64))
        return a, b, c, each, torch.rand(64)

    x = torch.ones(64)
    module = neuron_ir.from_torch(noisy, (x,))
    assert neuron_ir.parse(module.text()).text() == module.text()
    a, b, c, each, after = first = neuron_ir.compile(module)(x)
    again = neuron_ir.compile(module)
    assert all(torch.equal(p, q) for p, q in zip(first, again(x), strict=True)), "one seed, one stream"
    assert not any(torch.equal(p, q) for p, q in zip(first, again(x), strict=True)), "the state moves on"
    kept = (a >= 2).double().mean()  # rand + 2 where kept, rand alone where dropped
    assert 0.2 < kept < 0.8 and a.min() >= 0 and a.max() < 3
    for total, draws in ((b, 3), (c, 3)):
        assert 0 <= total.min() and total.max() < draws and 0.8 < total.double().mean() / (draws / 2) < 1.2
    rows = [*each, after]
    assert not any(torch.equal(p, q) for i, p in enumerate(rows) for q in rows[:i]), "each draw is another"
    quiet = again(-x)[0]
    assert torch.equal(quiet, -x)


def test_the_condition_of_a_loop_draws_no_random_numbers() -> None:
    def f(x):
        return while_loop(lambda y: torch.rand(()) + y.sum() < 3, lambda y: (y + 1,), (x,))

    with pytest.raises(neuron_ir.IRError, match=r"while_loop: random numbers in the condition of a loop"):
        neuron_ir.from_torch(f, (torch.zeros(2),))


def test_vmap_is_carried_out() -> None:
    def f(x, y):
        return torch.vmap(lambda a, b: torch.softmax(a, 0) * b.sum() + nn.functional.layer_norm(a, (3,)), in_dims=(0, 1))(x, y)

    args = (XS, torch.arange(8.0).reshape(2, 4))
    got = neuron_ir.compile(neuron_ir.from_torch(f, args))(*args)
    torch.testing.assert_close(got, f(*args))
    torch.testing.assert_close(
        got,
        torch.stack(
            [torch.softmax(a, 0) * b.sum() + nn.functional.layer_norm(a, (3,)) for a, b in zip(XS, args[1].T, strict=True)]
        ),
    )


@mark_compile_region
def layer(x, w):
    return (x @ w).sin()


def test_marked_regions_under_compile() -> None:
    """Nested compile regions and checkpoints, forward and backward."""

    def f(x, w):
        return checkpoint(lambda x: layer(layer(x, w), w) * 2, x, use_reentrant=False).sum()

    w = torch.arange(9.0).reshape(3, 3).div(9).requires_grad_()
    x = XS.clone().requires_grad_()
    got = torch.compile(f, backend="neuron", fullgraph=True)(x, w)
    grads = torch.autograd.grad(got, (x, w))
    want = ((((x @ w).sin()) @ w).sin() * 2).sum()
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(grads, torch.autograd.grad(want, (x, w)))


def test_a_checkpoint_draws_the_same_numbers_again() -> None:
    def f(x, w):
        return checkpoint(lambda x: nn.functional.dropout((x * w).sin(), 0.5, True), x, use_reentrant=False) * 1.0

    x, w = torch.ones(256, requires_grad=True), torch.full((256,), 0.7, requires_grad=True)
    y = torch.compile(f, backend="neuron", fullgraph=True)(x, w)
    y.sum().backward()
    kept = (y != 0).float()
    assert 64 < kept.sum() < 192
    torch.testing.assert_close(y, kept * 2 * (x * w).sin())
    torch.testing.assert_close(x.grad, (kept * 2 * (x * w).cos() * w).detach())


def _written_out(q, k, v, slope):
    m, n = torch.arange(16)[:, None], torch.arange(16)[None, :]
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return torch.softmax((scores - slope[:, None, None] * (m - n)).masked_fill(m < n, -torch.inf), -1) @ v


def test_flex_attention_with_a_score_and_a_mask() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 16, 8) for _ in range(3))
    slope = torch.tensor([0.5, 0.25])
    mask = create_block_mask(lambda b, h, m, n: m >= n, 1, 1, 16, 16, device="cpu", BLOCK_SIZE=16)

    def f(q, k, v, slope):
        return flex_attention(q, k, v, lambda s, b, h, m, n: s - slope[h] * (m - n), mask)

    want = _written_out(q, k, v, slope)
    torch.testing.assert_close(neuron_ir.compile(neuron_ir.from_torch(f, (q, k, v, slope)))(q, k, v, slope), want)


def _shifted(s, b, h, m, n):
    return s - 0.25 * h * (m - n)


def _by_head(b, h, m, n):
    return (m >= n) & ((h % 2 == 0) | (m - n < 7)) & (b * 20 <= m)


def _window(b, h, m, n):
    return (m >= n) & (m - n < 20)


def test_flex_attention_computes_the_blocks_of_its_masks_with_grouped_heads() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 50, 8), torch.randn(2, 2, 40, 8), torch.randn(2, 2, 40, 12)
    shared = create_block_mask(_window, None, None, 50, 40, device="cpu", BLOCK_SIZE=16)
    own = create_block_mask(_by_head, 2, 4, 50, 40, device="cpu", BLOCK_SIZE=16)

    def f(q, k, v):
        return tuple(flex_attention(q, k, v, _shifted, mask, enable_gqa=True, return_lse=True) for mask in (shared, own))

    module = neuron_ir.from_torch(f, (q, k, v))
    assert sum(op.name == "neuron.while" for op in module.walk()) == 2
    largest = max(prod(r.shape) for op in module.walk() for r in op.results if hasattr(r.type, "shape"))
    assert largest < 2 * 4 * 50 * 40  # no matrix of all scores
    results = neuron_ir.compile(module)(q, k, v)
    b, h, m, n = torch.meshgrid(*map(torch.arange, (2, 4, 50, 40)), indexing="ij")
    keys, values = (t.double().repeat_interleave(2, 1) for t in (k, v))
    for (got, sums), mask in zip(results, (_window, _by_head), strict=True):
        scores = _shifted(q.double() @ keys.transpose(-2, -1) / 8**0.5, b, h, m, n).masked_fill(~mask(b, h, m, n), -torch.inf)
        torch.testing.assert_close(got, (torch._safe_softmax(scores, -1) @ values).float())
        torch.testing.assert_close(sums, scores.logsumexp(-1).float())


def test_flex_attention_backward() -> None:
    """torch's own front door has no backward on the CPU; the operation itself has."""
    torch.manual_seed(0)
    inputs = [torch.randn(2, 2, 16, 8, requires_grad=True) for _ in range(3)]
    mask = create_block_mask(lambda b, h, m, n: m >= n, 1, 1, 16, 16, device="cpu", BLOCK_SIZE=16)
    out = _written_out(*inputs, torch.full((2,), 0.25))
    seed = torch.randn_like(out)
    expected = torch.autograd.grad(out, inputs, seed)
    q, k, v = (t.detach() for t in inputs)
    m, n = torch.arange(16)[:, None], torch.arange(16)[None, :]
    scores = (q @ k.transpose(-2, -1) / 8**0.5 - 0.25 * (m - n)).masked_fill(m < n, -torch.inf)
    log2 = scores.logsumexp(-1) / torch.log(torch.tensor(2.0))

    def f(q, k, v, out, log2, seed):
        score = lambda s, b, h, m, n: s - 0.25 * (m - n)  # noqa: E731
        return torch.ops.higher_order.flex_attention_backward(
            q, k, v, out, log2, seed, None, score, None, mask.as_tuple(), 8**-0.5, {}, (), ()
        )[:3]

    args = (q, k, v, out.detach(), log2, seed)
    got = neuron_ir.compile(neuron_ir.from_torch(f, args, strict=True))(*args)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_flex_attention_backward_computes_the_blocks_of_its_mask() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 50, 8), torch.randn(2, 2, 40, 8), torch.randn(2, 2, 40, 12)
    seed, of_sums = torch.randn(2, 4, 50, 12), torch.randn(2, 4, 50)
    shared = create_block_mask(_window, None, None, 50, 40, device="cpu", BLOCK_SIZE=16)
    own = create_block_mask(_by_head, 2, 4, 50, 40, device="cpu", BLOCK_SIZE=16)
    b, h, m, n = torch.meshgrid(*map(torch.arange, (2, 4, 50, 40)), indexing="ij")
    for mask, allowed in ((shared, _window), (own, _by_head)):
        doubles = [t.double().requires_grad_() for t in (q, k, v)]
        keys, values = (t.repeat_interleave(2, 1) for t in doubles[1:])
        scores = doubles[0] @ keys.transpose(-2, -1) / 8**0.5
        scores = (scores.square() - 0.25 * h * (m - n)).masked_fill(~allowed(b, h, m, n), -torch.inf)
        out, log2 = torch._safe_softmax(scores, -1) @ values, scores.logsumexp(-1) / math.log(2)
        some = log2 > -torch.inf  # rows without a score have no gradient
        total = (out * seed).sum() + (log2[some] * of_sums[some]).sum()
        expected = torch.autograd.grad(total, doubles)

        def f(q, k, v, out, log2, seed, of_sums, mask=mask):
            def score(s, b, h, m, n):
                return s.square() - 0.25 * h * (m - n)

            return torch.ops.higher_order.flex_attention_backward(
                q, k, v, out, log2, seed, of_sums, score, None, mask.as_tuple(), 8**-0.5, {}, (), ()
            )[:3]

        args = (q, k, v, out.detach().float(), log2.detach().float(), seed, of_sums)
        module = neuron_ir.from_torch(f, args, strict=True)
        assert sum(op.name == "neuron.while" for op in module.walk()) == 1
        assert max(prod(r.shape) for op in module.walk() for r in op.results if hasattr(r.type, "shape")) < 2 * 4 * 50 * 40
        for got, want in zip(neuron_ir.compile(module)(*args), expected, strict=True):
            torch.testing.assert_close(got, want.float(), rtol=1e-4, atol=1e-5)
