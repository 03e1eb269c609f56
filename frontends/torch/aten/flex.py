"""FlexAttention that computes the blocks which its mask names and no others: a loop over them with a running softmax.

Time falls with the share of empty blocks, and no matrix of all scores is made. Written in torch, and traced with the user's score
and mask functions in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from neuron_ir.frontends.torch import _compat

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["block_sparse_attention", "block_sparse_gradients", "is_block_sparse"]


class Blocks(NamedTuple):
    """A block mask as flex_attention hands it over: for each block of queries the blocks of keys, masked and full ones."""

    q_length: int
    kv_length: int
    kv_counts: Tensor
    kv_indices: Tensor
    full_counts: Tensor | None
    full_indices: Tensor | None
    q_size: int
    kv_size: int
    mask_mod: Any

    @classmethod
    def of(cls, block_mask: Sequence[Any]) -> Blocks:
        """From the tuple of :meth:`BlockMask.as_tuple`, which names blocks of queries per block of keys in between."""
        return cls(*block_mask[:6], *block_mask[-3:])


def is_block_sparse(query: Tensor, key: Tensor, block_mask: Sequence[Any], buffers: Sequence[Any]) -> bool:
    """Whether there is more than one block, all sizes are known, and what the functions capture are tensors."""
    import torch

    blocks = Blocks.of(block_mask)
    sizes = [*query.shape, *key.shape, *blocks.kv_counts.shape, *blocks.kv_indices.shape, blocks.q_size, blocks.kv_size]
    if not all(type(s) is int for s in sizes) or not all(isinstance(b, torch.Tensor) for b in buffers):
        return False
    return query.shape[2] > blocks.q_size or key.shape[2] > blocks.kv_size


def block_sparse_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Any, block_mask: Sequence[Any], scale: float, _options: Any,
    score_buffers: Sequence[Tensor] = (), mask_buffers: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Queries ``[B, H, Q, D]``, keys ``[B or 1, H / G, K, D]`` and values to the result, and the logarithm to base 2 of the sum,
    and the largest, of its scores. Rows without a score give 0 and -inf. Scores, sums and the result are computed in f32, or f64.
    """
    import torch

    blocks = Blocks.of(block_mask)
    working = torch.float64 if query.dtype == torch.float64 else torch.float32
    batch, heads, q_length, _ = query.shape
    q = _in_blocks(query.to(working), blocks.q_size)
    k, v = (_in_blocks(t.to(working), blocks.kv_size) for t in (key, value))
    listed, total = _listed(blocks)
    rows = (batch, heads, q.shape[2], blocks.q_size)
    carried = (
        torch.zeros((), dtype=torch.int64),
        torch.full(rows, -math.inf, dtype=working),
        torch.zeros(rows, dtype=working),
        torch.zeros((*rows, value.shape[-1]), dtype=working),
    )
    step = partial(_step, blocks, score_mod, scale, (batch, heads, q_length, key.shape[2]), len(score_buffers))
    extra = (q, k, v, listed, total, *score_buffers, *mask_buffers)
    _, top, sums, mixed = _compat.get("while_loop")(lambda t, *rest: t < rest[7], step, carried, extra)
    top, sums = (t.flatten(2)[..., :q_length] for t in (top, sums))
    mixed = mixed.flatten(2, 3)[:, :, :q_length]
    result = torch.where(sums[..., None] == 0, 0.0, mixed / sums[..., None])
    return result.to(query.dtype), (top + sums.log()) / math.log(2), top / math.log(2)


def _in_blocks(x: Tensor, size: int) -> Tensor:
    """``[B, H, N, D]`` as ``[B, H, blocks, size, D]``, filled up with zeros."""
    import torch

    missing = -x.shape[2] % size
    padded = torch.nn.functional.pad(x, (0, 0, 0, missing)) if missing else x
    return padded.unflatten(2, (-1, size))


def _listed(blocks: Blocks) -> tuple[Tensor, Tensor]:
    """The pairs of blocks to compute, as rows of batch, head, block of queries, block of keys, and whether it is full, those to
    compute before the others; and how many they are.
    """
    import torch

    kinds = [(blocks.kv_counts, blocks.kv_indices)]
    if blocks.full_counts is not None:
        kinds.append((blocks.full_counts, blocks.full_indices))  # type: ignore[arg-type]
    tables, used = [], []
    for is_full, (counts, indices) in enumerate(kinds):
        places = torch.meshgrid(*(torch.arange(n) for n in indices.shape), indexing="ij")
        columns = [*places[:3], indices.to(torch.int64), torch.full(indices.shape, is_full)]
        tables.append(torch.stack([c.reshape(-1) for c in columns], 1))
        used.append((places[3] < counts[..., None]).reshape(-1))
    table, chosen = torch.cat(tables), torch.cat(used)
    order = torch.argsort((~chosen).to(torch.int32), stable=True)
    return table[order], chosen.sum()


class Pair:
    """A block of queries and a block of keys, number ``t`` of the list: reads and writes what belongs to it."""

    def __init__(self, blocks: Blocks, sizes: tuple[int, int, int, int], t: Tensor, listed: Tensor):
        import torch

        batch, heads, q_length, kv_length = sizes
        row = torch.ops.aten._unsafe_index(listed, [t.reshape(1)])  # every place is in range
        batch_at, head_at, q_at, kv_at, self.is_full = (part.reshape(1) for part in row.unbind(1))
        self.is_shared = blocks.kv_counts.shape[:2] == (1, 1)
        self.b = torch.arange(batch) if blocks.kv_counts.shape[0] == 1 else batch_at
        self.h = torch.arange(heads) if blocks.kv_counts.shape[1] == 1 else head_at
        self.heads, self.q_at, self.kv_at = heads, q_at, kv_at
        self.m = q_at * blocks.q_size + torch.arange(blocks.q_size)
        self.n = kv_at * blocks.kv_size + torch.arange(blocks.kv_size)
        self.inside = (self.m < q_length)[:, None] & (self.n < kv_length)  # the rest fills up the last blocks
        self.places = (self.b, self.h, self.m.clamp(max=q_length - 1), self.n.clamp(max=kv_length - 1))

    def keys(self, x: Tensor) -> Tensor:
        """The pair's block of keys or values, for each head of the queries."""
        import torch

        read, group = torch.ops.aten._unsafe_index, self.heads // x.shape[1]
        if self.is_shared:
            kept = read(x, [None, None, self.kv_at]).squeeze(2)
            return kept.repeat_interleave(group, 1) if group > 1 else kept
        b = self.b if x.shape[0] > 1 else torch.zeros_like(self.b)
        return read(x, [b[:, None], (self.h // group)[None], self.kv_at[None]])

    def rows(self, x: Tensor, at: Tensor | None = None) -> Tensor:
        """The block of ``x``, which has all heads, at the pair's block of queries, or at another."""
        import torch

        found = torch.ops.aten._unsafe_index(x, self._place(at))
        return found.squeeze(2) if self.is_shared else found

    def put(self, x: Tensor, new: Tensor, at: Tensor | None = None) -> Tensor:
        """``x`` with another block there."""
        import torch

        return torch.ops.aten._unsafe_index_put(x, self._place(at), new.unsqueeze(2) if self.is_shared else new)

    def add(self, x: Tensor, more: Tensor, at: Tensor | None = None) -> Tensor:
        """``x`` with more in the block there."""
        return self.put(x, self.rows(x, at) + more, at)

    def _place(self, at: Tensor | None) -> list[Tensor | None]:
        at = self.q_at if at is None else at
        return [None, None, at] if self.is_shared else [self.b[:, None], self.h[None], at[None]]


def _step(
    blocks: Blocks, score_mod: Any, scale: float, sizes: tuple[int, int, int, int], n_score: int,
    t: Tensor, top: Tensor, sums: Tensor, mixed: Tensor,
    q: Tensor, k: Tensor, v: Tensor, listed: Tensor, _total: Tensor, *buffers: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Add one pair of blocks to the running largest score, sum and result of its rows."""
    import torch

    pair = Pair(blocks, sizes, t, listed)
    scores = pair.rows(q) @ pair.keys(k).transpose(-2, -1) * scale
    scores, allowed = _scored(blocks, score_mod, scores, pair.places, buffers, n_score)
    scores = torch.where((allowed | (pair.is_full == 1)) & pair.inside, scores, -math.inf)
    before = pair.rows(top)
    largest = torch.maximum(before, scores.amax(-1))
    base = torch.where(largest == -math.inf, 0.0, largest)
    share, weights = torch.exp(before - base), torch.exp(scores - base[..., None])
    return (
        t + 1,
        pair.put(top, largest),
        pair.put(sums, pair.rows(sums) * share + weights.sum(-1)),
        pair.put(mixed, pair.rows(mixed) * share[..., None] + weights @ pair.keys(v)),
    )


def block_sparse_gradients(
    query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, grad_out: Tensor | None,
    grad_logsumexp: Tensor | None, score_mod: Any, joint: Any, block_mask: Sequence[Any], scale: float, _options: Any,
    score_buffers: Sequence[Tensor] = (), mask_buffers: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor, Tensor, tuple[None, ...]]:  # fmt: skip
    """The gradients of :func:`block_sparse_attention` for queries, keys and values, pair of blocks by pair of blocks.

    ``logsumexp`` and its gradient are to base 2. ``joint`` gives the gradient of ``score_mod``'s score, and is made where it is
    ``None``. Sums are computed in f32, or f64. What the functions capture has no gradient here.
    """
    import torch

    if joint is None:
        example = [query.new_zeros((), requires_grad=True), *(query.new_zeros((), dtype=torch.int) for _ in range(4))]
        with _compat.get("getitem_as_index")():
            _, joint = _compat.get("flex_attention_joint")(score_mod, tuple(example), tuple(score_buffers))
    blocks = Blocks.of(block_mask)
    working = torch.float64 if query.dtype == torch.float64 else torch.float32
    batch, heads, q_length, _ = query.shape
    kv_length = key.shape[2]
    q, seed, result = (torch.zeros_like(out, dtype=working) if t is None else t.to(working) for t in (query, grad_out, out))
    shift = (
        -(seed * result).sum(-1) if grad_logsumexp is None else grad_logsumexp.to(working) / math.log(2) - (seed * result).sum(-1)
    )
    per_query = (q, seed, (logsumexp.to(working) * math.log(2))[..., None], shift[..., None])
    in_blocks = [_in_blocks(x, blocks.q_size) for x in per_query]
    in_blocks += [_in_blocks(x.to(working), blocks.kv_size) for x in (key, value)]
    listed, total = _listed(blocks)
    carried = [torch.zeros((), dtype=torch.int64), torch.zeros(in_blocks[0].shape, dtype=working)]
    carried += [torch.zeros((batch, heads, *x.shape[2:]), dtype=working) for x in in_blocks[4:]]
    step = partial(_gradient_step, blocks, score_mod, joint, scale, (batch, heads, q_length, kv_length), len(score_buffers))
    extra = (total, listed, *in_blocks, *score_buffers, *mask_buffers)
    _, *found = _compat.get("while_loop")(lambda t, *rest: t < rest[3], step, tuple(carried), extra)
    gradients = []
    for gradient, x in zip(found, (query, key, value), strict=True):
        rows = gradient.flatten(2, 3)[:, :, : x.shape[2]]
        rows = rows.unflatten(1, (x.shape[1], heads // x.shape[1])).sum(2)
        gradients.append((rows.sum(0, keepdim=True) if x.shape[0] < batch else rows).to(x.dtype))
    return gradients[0], gradients[1], gradients[2], (None,) * len(score_buffers)


def _gradient_step(
    blocks: Blocks, score_mod: Any, joint: Any, scale: float, sizes: tuple[int, int, int, int], n_score: int,
    t: Tensor, of_q: Tensor, of_k: Tensor, of_v: Tensor, _total: Tensor, listed: Tensor,
    q: Tensor, seed: Tensor, logsumexp: Tensor, shift: Tensor, k: Tensor, v: Tensor, *buffers: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Add one pair of blocks to the gradients of its queries, keys and values."""
    import torch

    pair = Pair(blocks, sizes, t, listed)
    rows, keys, seeds, sums = pair.rows(q), pair.keys(k), pair.rows(seed), pair.rows(logsumexp)
    scores = rows @ keys.transpose(-2, -1) * scale
    changed, allowed = _scored(blocks, score_mod, scores, pair.places, buffers, n_score)
    counts = (allowed | (pair.is_full == 1)) & pair.inside & (sums != -math.inf)
    weights = torch.exp(torch.where(counts, changed - sums, -math.inf))
    of_changed = weights * (seeds @ pair.keys(v).transpose(-2, -1) + pair.rows(shift))
    captured = (None,) * n_score
    over_places = _compat.get("vmap_for_places")(joint, prefix=(0,), suffix=(0, *captured), out_dims=[0, *[None] * 4, *captured])
    with _compat.get("getitem_as_index")():
        of_scores = over_places(scores, *pair.places, of_changed, *buffers[:n_score])[0]
    of_scores = torch.where(counts, of_scores.to(scores.dtype), 0.0) * scale
    return (
        t + 1,
        pair.add(of_q, of_scores @ keys),
        pair.add(of_k, of_scores.transpose(-2, -1) @ rows, pair.kv_at),
        pair.add(of_v, weights.transpose(-2, -1) @ seeds, pair.kv_at),
    )


def _scored(
    blocks: Blocks, score_mod: Any, scores: Tensor, places: tuple[Tensor, ...], buffers: Sequence[Tensor], n_score: int
) -> tuple[Tensor, Tensor]:
    """The user's functions on a block: its scores, and which of them count."""
    over_places = _compat.get("vmap_for_places")
    for_scores, for_mask = buffers[:n_score], buffers[n_score:]
    score = over_places(score_mod, prefix=(0,), suffix=(None,) * len(for_scores))
    mask = over_places(blocks.mask_mod, prefix=(), suffix=(None,) * len(for_mask))
    with _compat.get("getitem_as_index")():
        return score(scores, *places, *for_scores).to(scores.dtype), mask(*places, *for_mask)
