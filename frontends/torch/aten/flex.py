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

__all__ = ["block_sparse_attention", "is_block_sparse"]


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


def _step(
    blocks: Blocks, score_mod: Any, scale: float, sizes: tuple[int, int, int, int], n_score: int,
    t: Tensor, top: Tensor, sums: Tensor, mixed: Tensor,
    q: Tensor, k: Tensor, v: Tensor, listed: Tensor, _total: Tensor, *buffers: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Add one pair of blocks to the running largest score, sum and result of its rows."""
    import torch

    batch, heads, q_length, kv_length = sizes
    read, write = torch.ops.aten._unsafe_index, torch.ops.aten._unsafe_index_put  # every place is in range
    batch_at, head_at, q_at, kv_at, is_full = (part.reshape(1) for part in read(listed, [t.reshape(1)]).unbind(1))
    is_shared = blocks.kv_counts.shape[:2] == (1, 1)
    b = torch.arange(batch) if blocks.kv_counts.shape[0] == 1 else batch_at
    h = torch.arange(heads) if blocks.kv_counts.shape[1] == 1 else head_at
    group = heads // k.shape[1]

    def of(x: Tensor) -> Tensor:
        if is_shared:
            kept = read(x, [None, None, kv_at]).squeeze(2)
            return kept.repeat_interleave(group, 1) if group > 1 else kept
        return read(x, [(b if x.shape[0] > 1 else torch.zeros_like(b))[:, None], (h // group)[None], kv_at[None]])

    at = [None, None, q_at] if is_shared else [b[:, None], h[None], q_at[None]]

    def rows(x: Tensor) -> Tensor:
        return read(x, at).squeeze(2) if is_shared else read(x, at)

    def put(x: Tensor, new: Tensor) -> Tensor:
        return write(x, at, new.unsqueeze(2) if is_shared else new)

    m, n = q_at * blocks.q_size + torch.arange(blocks.q_size), kv_at * blocks.kv_size + torch.arange(blocks.kv_size)
    places = (b, h, m.clamp(max=q_length - 1), n.clamp(max=kv_length - 1))
    scores = rows(q) @ of(k).transpose(-2, -1) * scale
    scores, allowed = _scored(blocks, score_mod, scores, places, buffers, n_score)
    scores = torch.where((allowed | (is_full == 1)) & (n < kv_length), scores, -math.inf)
    before = rows(top)
    largest = torch.maximum(before, scores.amax(-1))
    base = torch.where(largest == -math.inf, 0.0, largest)
    share, weights = torch.exp(before - base), torch.exp(scores - base[..., None])
    return (
        t + 1,
        put(top, largest),
        put(sums, rows(sums) * share + weights.sum(-1)),
        put(mixed, rows(mixed) * share[..., None] + weights @ of(v)),
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
