"""Scaled dot-product attention and rotary position embedding."""

from __future__ import annotations

import math

from neuron_ir.dtypes import BOOL, F32, I64, DType
from neuron_ir.opdef import Op, attr, op, operand, optional
from neuron_ir.types import TensorType, compatible

from .broadcasting import COMPUTED, agree, broadcast_dims, broadcast_shape, known, need_dtype
from .expression import Expr, concatenate, count, dot


@op(
    "neuron.attention",
    aten=["scaled_dot_product_attention.default", "_scaled_dot_product_flash_attention_for_cpu.default"],
    traits=["matmul", "reduction"],
)
class Attention(Op):
    """``softmax(q @ k.T * scale + mask) @ v``, softmax and sums in f32 for f16 and bf16, rounded once to ``dtype`` (default: the
    operands').

    q ``[..., heads, L, E]``, k ``[..., kv_heads, S, E]``, v ``[..., kv_heads, S, Ev]``, result ``[..., heads, L, Ev]``; leading
    dims broadcast; heads must be a multiple of kv_heads, and each kv head serves as many consecutive heads. ``mask`` broadcasts
    to ``[..., heads, L, S]``: bool (true: attend) or a float that is added. ``scale``: default ``1 / sqrt(E)``.

    ``causal``: ``"top_left"`` lets query i see keys up to i (torch), ``"bottom_right"`` keys up to ``i + S - L`` (a decoder
    with a cache); ``"none"``. ``masked_rows``: what a query gives that may see no key at all: ``"zero"`` (torch 2.13, both of
    its CPU paths) or ``"nan"`` (plain softmax). NaN: a key hidden by ``mask`` still spreads its NaN, since -inf is added to its
    score; a key hidden by ``causal`` does not. A value's NaN always spreads. With ``lse`` also gives f32 (f64 for f64)
    ``log(sum(exp(scores)))`` of shape ``[..., heads, L]``, 0 where no key is seen and ``masked_rows`` is ``"zero"``.
    """

    q = operand(COMPUTED)
    k = operand(COMPUTED)
    v = operand(COMPUTED)
    mask = optional(COMPUTED | {BOOL})
    scale = attr(float, None)
    causal = attr(str, "none", ["none", "top_left", "bottom_right"])
    masked_rows = attr(str, "zero", ["zero", "nan"])
    lse = attr(bool, False)
    dtype = attr(DType, None)

    def infer(self):
        q, k, v = self.q, self.k, self.v
        need_dtype(self, q.dtype, k=k, v=v)
        if min(t.type.rank for t in (q, k, v)) < 2 or len({min(t.type.rank, 3) for t in (q, k, v)}) > 1:
            raise self.error("shape", f"q, k and v must be [..., heads, length, width], not {q.type}, {k.type} and {v.type}")
        if not agree(q.shape[-1], k.shape[-1]):
            raise self.error("shape", f"q and k differ in width: {q.shape[-1]} and {k.shape[-1]}")
        if not agree(k.shape[-2], v.shape[-2]):
            raise self.error("shape", f"k and v differ in length: {k.shape[-2]} and {v.shape[-2]}")
        rows = (*_heads(self), q.shape[-2])
        mask = self.mask
        if mask is not None:
            if mask.dtype not in (BOOL, q.dtype, q.dtype.accumulator):
                raise self.error("type", f"a mask of {mask.dtype} does not go with {q.dtype}")
            scores = (*rows, known(k.shape[-2], v.shape[-2]))
            full = broadcast_dims(mask.shape, scores)
            if full is None or len(full) != len(scores) or not all(map(agree, full, scores)):
                raise self.error("shape", f"a mask of shape {list(mask.shape)} does not broadcast to {list(scores)}")
        if self.dtype is not None and self.dtype not in (q.dtype, q.dtype.accumulator):
            raise self.error("attr", f"dtype = {self.dtype} does not go with {q.dtype}, whose sums are {q.dtype.accumulator}")
        y = TensorType((*rows, v.shape[-1]), self.dtype or q.dtype)
        return (y, TensorType(rows, q.dtype.accumulator)) if self.lse else y

    def expand(b, q, k, v, mask, *, scale, causal, masked_rows, lse, dtype, out):
        y_type = out[0] if lse else out
        wide = q.dtype.accumulator
        scale = 1 / math.sqrt(q.shape[-1]) if scale is None and q.shape[-1] else scale or 1.0
        heads = y_type.shape[:-2]
        q, k, v = (Expr(b, t) for t in (q, k, v))
        batch, groups, q, k, v = _grouped(q, k, v, heads)
        n = len(batch)
        dims = tuple(range(n))
        s = dot(q, k, (dims, dims), ((q.rank - 1,), (k.rank - 1,)), wide) * scale
        if mask is not None:
            s = s + _additive(Expr(b, mask), wide, heads, s.shape, groups)
        if causal != "none":
            s = _causal(s, causal).where(s, -math.inf)
        p, total = _weights(s, masked_rows == "zero" and (mask is not None or causal != "none" or s.shape[-1] == 0), lse)
        y = dot(p, v, (dims, dims), ((p.rank - 1,), (n,)), wide).cast(y_type.dtype).reshape(y_type.shape).value
        return (y, total.reshape(out[1].shape).value) if lse else y


def _heads(self):
    """The result's dims before length and width."""
    q, k, v = self.q, self.k, self.v
    if q.type.rank == 2:
        return ()
    batch = broadcast_shape(self, "batch dims of q, k and v", q.shape[:-3], k.shape[:-3], v.shape[:-3])
    heads, keys, values = (t.shape[-3] for t in (q, k, v))
    if not agree(keys, values):
        raise self.error("shape", f"k and v differ in heads: {keys} and {values}")
    shared = known(keys, values)
    if isinstance(heads, int) and isinstance(shared, int) and (shared == 0 or heads % shared):
        raise self.error("shape", f"{heads} heads of q are no multiple of the {shared} heads of k and v")
    return (*batch, heads)


def _grouped(q, k, v, heads):
    """All three with batch dims first; where several heads share a kv head, q gets a group dim after the batch dims."""
    if not heads:
        return (), 1, q, k, v
    shared = k.shape[-3]
    groups = heads[-1] // shared if heads[-1] != shared else 1
    batch = (*heads[:-1], shared)
    q = q.broadcast((*heads, *q.shape[-2:]))
    if groups != 1:
        q = q.reshape((*batch, groups, *q.shape[-2:]))
    k, v = (e.broadcast((*batch, *e.shape[-2:])) for e in (k, v))
    return batch, groups, q, k, v


def _additive(mask, wide, heads, shape, groups):
    """The mask as what is added to scores of ``shape``: 0 and -inf for a bool one."""
    if mask.dtype is BOOL:
        mask = mask.where(Expr(mask.b, mask.b.const(0.0, wide)), -math.inf)
    mask = mask.cast(wide)
    if groups != 1 and mask.rank > 2:
        of_heads = mask.shape[-3]
        split = (1, 1) if of_heads == 1 else (heads[-1] // groups, groups)
        mask = mask.reshape((*mask.shape[:-3], *split, *mask.shape[-2:]))
    return mask


def _causal(s, alignment):
    """Bool ``[L, S]``: whether the query may see the key."""
    length, keys = s.shape[-2:]
    offset = 0 if alignment == "top_left" else keys - length
    rows, columns = (s.iota((length, keys), axis, I64) for axis in (0, 1))
    return (rows + offset).compare("GE", columns)


def _weights(s, zero_rows, lse):
    """Softmax over keys and, where ``lse``, the logarithm of the sum; with ``zero_rows`` a row of -inf only gives zeros."""
    axes = [s.rank - 1]
    top = s.max(axes)
    if zero_rows:
        unseen = top.compare("EQ", -math.inf)
        top = unseen.where(0.0, top)
    p = (s - top).exp()
    total = p.sum(axes)
    log = None
    if lse:
        log = total.log() + top
        log = unseen.where(0.0, log) if zero_rows else log
    if zero_rows:
        total = unseen.where(1.0, total)
    return p / total, log


@op("neuron.rotary_embedding")
class RotaryEmbedding(Op):
    """Turns pairs of elements of the last dim by angles whose cosine and sine are given.

    x ``[..., D]``; cos and sin broadcast to ``[..., D]`` or, one value per pair, to ``[..., D/2]``. Default: element i is
    paired with ``i + D/2`` (GPT-NeoX, Llama): ``x * cos + concat(-x2, x1) * sin``; ``interleaved``: elements 2i and 2i+1
    (GPT-J), for which one value per pair is needed. Computed in f32 for narrower floats.
    """

    x = operand(COMPUTED)
    cos = operand(COMPUTED)
    sin = operand(COMPUTED)
    interleaved = attr(bool, False)

    def infer(self):
        x, cos, sin = self.x, self.cos, self.sin
        if not x.type.rank or (isinstance(x.shape[-1], int) and x.shape[-1] % 2):
            raise self.error("shape", f"the last dim of {x.type} has no pairs")
        if not compatible(cos.type, sin.type):
            raise self.error("type", f"cos and sin must have one type, not {cos.type} and {sin.type}")
        if cos.dtype not in (x.dtype, F32, x.dtype.accumulator):
            raise self.error("type", f"cos and sin of {cos.dtype} do not go with {x.dtype}")
        width = cos.shape[-1] if cos.type.rank else 0
        half = x.shape[-1] // 2
        wanted = half if self.interleaved or width != x.shape[-1] else x.shape[-1]
        full = broadcast_dims(cos.shape[:-1], x.shape[:-1])
        if width != wanted or full is None or len(full) != x.type.rank - 1 or not all(map(agree, full, x.shape)):
            wide = "" if self.interleaved else f" or {x.shape[-1]}"
            raise self.error(
                "shape", f"cos and sin of shape {list(cos.shape)} do not fit {x.type}: the last dim must be {half}{wide}"
            )
        return x.type

    def expand(b, x, cos, sin, *, interleaved):
        e, c, s = (Expr(b, t) for t in (x, cos, sin))
        wide = e.dtype.accumulator
        e, c, s = e.cast(wide), c.cast(wide), s.cast(wide)
        half, last = count(e.shape[-1:]) // 2, e.rank - 1
        per_pair = c.shape[-1] == half and half != e.shape[-1]
        if interleaved:
            pairs = e.reshape((*e.shape[:-1], half, 2))
            first, second = (pairs.section(e.rank, i, i + 1) for i in (0, 1))
            c, s = (t.reshape((*t.shape, 1)) for t in (c, s))
            turned = concatenate([first * c - second * s, second * c + first * s], e.rank)
            return turned.reshape(x.shape).cast(x.dtype).value
        first, second = (e.section(last, at, at + half) for at in (0, half))
        if per_pair:
            return concatenate([first * c - second * s, second * c + first * s], last).cast(x.dtype).value
        turned = concatenate([-second, first], last)
        return (e * c + turned * s).cast(x.dtype).value
