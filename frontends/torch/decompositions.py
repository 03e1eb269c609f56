"""Which ATen operations are kept whole and which are decomposed before import.

One table decides: torch's default decompositions, minus the operations in `KEEP` (the importer has a
word for them), plus a few of torch's own decompositions that its default table leaves out (`EXTRA`).
An operation in neither place reaches the importer as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from neuron_ir.frontends.torch import _compat

# Composites with an op of their own in the IR. torch's decomposition of the CPU's attention gives the weights where the operation
# gives the logarithm of their sum, which the gradient then takes for it: it must never be used. Batch norm is not here:
# `aten.batch_norm` writes its running statistics behind a schema that says it does not, so it must become the functional form.
COMPOSITES = frozenset(
    """
    aten.softmax.int aten.log_softmax.int aten._safe_softmax.default aten.logsumexp.default
    aten.layer_norm.default aten.rms_norm.default aten.group_norm.default
    aten.gelu.default aten.silu.default aten.softplus.default aten.mish.default aten.glu.default
    aten.scaled_dot_product_attention.default aten._scaled_dot_product_flash_attention_for_cpu.default
    aten.linear.default aten.matmul.default aten.baddbmm.default
    aten.max_pool1d.default aten.max_pool2d.default aten.max_pool3d.default
    aten.avg_pool1d.default aten.adaptive_avg_pool1d.default aten.adaptive_avg_pool2d.default
    aten.adaptive_avg_pool3d.default
    aten.dropout.default aten.one_hot.default aten.cross_entropy_loss.default
    aten.multi_margin_loss.default aten.multilabel_margin_loss_forward.default
    aten.lstm.input aten.gru.input aten.rnn_tanh.input aten.rnn_relu.input
    aten.upsample_nearest1d.vec aten.upsample_nearest2d.vec aten.upsample_nearest3d.vec
    aten._upsample_nearest_exact1d.vec aten._upsample_nearest_exact2d.vec aten._upsample_nearest_exact3d.vec
    aten.upsample_linear1d.vec aten.upsample_bilinear2d.vec aten.upsample_trilinear3d.vec
    aten.upsample_bicubic2d.vec
    aten.repeat_interleave.self_int aten.argsort.default aten.argsort.stable
    aten.pixel_shuffle.default aten.pixel_unshuffle.default aten.pad.default
    aten.index_add.default aten.index_copy.default aten.take_along_dim.default aten.take.default
    aten.isin.Tensor_Tensor aten.isin.Tensor_Scalar aten.istft.default
""".split()
)

# Plain shape and creation words: decomposing them only makes the program longer and the import slower.
STRUCTURAL = frozenset(
    """
    aten.reshape.default aten.flatten.using_ints aten.unflatten.int aten.transpose.int aten.t.default
    aten.movedim.intlist aten.movedim.int aten.swapaxes.default aten.split.Tensor aten.split.sizes
    aten.chunk.default aten.unbind.int aten.stack.default aten.tile.default aten.roll.default
    aten.squeeze.default aten.squeeze.dim aten.expand_as.default aten.view_as.default aten.narrow.default
    aten.contiguous.default aten.type_as.default aten.detach.default aten.mT.default aten.numpy_T.default
    aten.to.dtype aten.to.device aten.to.other aten.to.dtype_layout
    aten.zeros.default aten.ones.default aten.zeros_like.default aten.ones_like.default
    aten.new_zeros.default aten.new_ones.default aten.new_full.default aten.new_empty.default
    aten.empty_like.default aten.arange.default aten.arange.start aten.eye.default aten.eye.m
    aten.tril.default aten.triu.default aten.masked_fill.Scalar aten.masked_fill.Tensor
    aten.where.ScalarSelf aten.where.ScalarOther aten.where.Scalar aten.lerp.Scalar aten.lerp.Tensor
    aten.square.default aten.rsub.Scalar aten.rsub.Tensor aten.floor_divide.default aten.floor_divide.Scalar
    aten.addcmul.default aten.addcdiv.default aten.isfinite.default aten.sum.default
    aten.__and__.Tensor aten.__or__.Tensor aten.__xor__.Tensor aten.__and__.Scalar aten.__or__.Scalar
    aten.std.correction aten.var.dim aten.std.dim aten.all.default aten.all.dim aten.all.dims
    aten.max.other aten.min.other aten.dot.default aten.mv.default aten.outer.default
    aten.clamp_min.default aten.clamp_max.default aten.clamp_min.Tensor aten.clamp_max.Tensor
    aten.diff.default aten.sym_size.int aten.index_fill.int_Scalar aten.select_scatter.default
""".split()
)

KEEP = COMPOSITES | STRUCTURAL

# Composites without alias marks in their schema that really never give an input back. The others (einsum of a
# permutation, dropout in evaluation, type_as of the same type, ...) may, which only matters next to a write.
FRESH_COMPOSITES = frozenset(
    """
    aten.softmax.int aten.log_softmax.int aten.layer_norm.default aten.rms_norm.default aten.group_norm.default
    aten.batch_norm.default aten.scaled_dot_product_attention.default aten.linear.default aten.matmul.default
    aten.conv1d.default aten.conv2d.default aten.conv3d.default
    aten.max_pool1d.default aten.max_pool2d.default aten.max_pool3d.default aten.avg_pool1d.default
    aten.adaptive_avg_pool1d.default aten.adaptive_avg_pool2d.default aten.adaptive_avg_pool3d.default
    aten.one_hot.default aten.cross_entropy_loss.default
    aten.lstm.input aten.gru.input aten.rnn_tanh.input aten.rnn_relu.input
    aten.upsample_nearest1d.vec aten.upsample_nearest2d.vec aten.upsample_nearest3d.vec
    aten.upsample_linear1d.vec aten.upsample_bilinear2d.vec aten.upsample_trilinear3d.vec aten.upsample_bicubic2d.vec
    aten.argsort.default aten.argsort.stable aten.take_along_dim.default aten.square.default
    aten.where.ScalarSelf aten.where.ScalarOther aten.where.Scalar aten.isfinite.default
    aten.__and__.Tensor aten.__or__.Tensor aten.__xor__.Tensor aten.__and__.Scalar aten.__or__.Scalar
    aten.std.dim aten.var.dim aten.max.other aten.min.other aten.outer.default aten.istft.default
""".split()
)

# torch's own decompositions that its default export table leaves out.
EXTRA = frozenset(
    """
    aten._addmm_activation.default aten.addmv.default aten.dist.default aten.alpha_dropout.default
    aten.ldexp.Tensor aten.narrow_copy.default aten.permute_copy.default
    aten.view_copy.default aten.unbind_copy.int aten.as_strided_copy.default
    aten.bitwise_and.Scalar_Tensor aten.bitwise_or.Scalar_Tensor aten.bitwise_xor.Scalar_Tensor
    aten.bitwise_left_shift.Scalar_Tensor aten.bitwise_right_shift.Scalar_Tensor
    aten.remainder.Scalar_Tensor aten.rrelu_with_noise_backward.default
    aten.batch_norm_backward.default aten.tril_indices.default aten.triu_indices.default
    aten.special_erfcx.default aten.log_normal.default aten.cauchy.default
""".split()
)


def decomposition_table(keep: Iterable[str] = KEEP) -> dict[Any, Callable[..., Any]]:
    """Give a fresh table OpOverload -> decomposition, without the operations named in `keep`.

    Names are `aten.softmax.int`, as `str(overload)` prints them.
    """
    kept = keep if isinstance(keep, (set, frozenset)) else frozenset(keep)
    return {op: rule for op, rule in _full_table().items() if str(op) not in kept}


def retrace_table(keep: Iterable[str] = KEEP) -> dict[Any, Callable[..., Any]]:
    """The table for a program with writes: composites that may give an input back are decomposed as well.

    torch believes that a composite which it keeps never aliases; kept next to a write, such a one gives wrong values.
    """
    kept = frozenset(keep)
    return {
        op: rule
        for op, rule in _full_table().items()
        if str(op) not in kept or (_compat.is_composite(op) and str(op) not in FRESH_COMPOSITES)
    }


@cache
def _full_table() -> dict[Any, Callable[..., Any]]:
    import torch

    table = dict(torch.export.default_decompositions().items())
    for op, rule in _compat.get("decomposition_table").items():
        if str(op) in EXTRA:
            table.setdefault(op, rule)
    return table
