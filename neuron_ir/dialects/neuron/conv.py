"""Convolution in torch's form."""

from __future__ import annotations

from neuron_ir.dtypes import DType
from neuron_ir.opdef import INTS, NUMERIC, Op, attr, op, operand, optional
from neuron_ir.types import TensorType

from .broadcasting import agree, need_shape
from .expression import Expr
from .matmul import need_bias_dtype, result_dtype, sum_type
from .pool_windows import filled, per_dim
from .windows import window_count


def pads(padding, n):
    """``[(low, high), ...]``: n entries pad both sides alike, 2n entries are low and high of each dim."""
    values = padding if len(padding) == 2 * n and n else None
    if values is None:
        return tuple((p, p) for p in filled(padding, n, 0))
    return tuple(zip(values[::2], values[1::2], strict=True))


@op("neuron.conv", aten=["convolution.default", "conv1d.default", "conv2d.default", "conv3d.default"], traits=["matmul"])
class Conv(Op):
    """Convolution with bias in torch's form: x ``[N, C, ...]``, weight ``[out, C / groups, ...]``, bias ``[out]``, any number
    of dims.

    ``stride``, ``padding``, ``dilation`` and ``output_padding`` have one entry per spatial dim (one entry counts for all,
    empty: 1 or 0); ``padding`` may also have two per dim, low and high. ``transposed``: the gradient of a convolution as a
    layer, weight ``[C, out / groups, ...]``, whose result has ``(size - 1) * stride - low - high + dilation * (kernel - 1) +
    output_padding + 1`` elements per dim. Products and the bias are summed in ``acc`` (default f32 for narrower floats) and
    rounded once to ``dtype`` (default: the operands').
    """

    x = operand(NUMERIC)
    weight = operand(NUMERIC)
    bias = optional(NUMERIC)
    stride = attr(INTS, ())
    padding = attr(INTS, ())
    dilation = attr(INTS, ())
    transposed = attr(bool, False)
    output_padding = attr(INTS, ())
    groups = attr(int, 1)
    acc = attr(DType, None)
    dtype = attr(DType, None)

    def infer(self):
        x, weight = self.x, self.weight
        n = x.type.rank - 2
        if n < 1 or weight.type.rank != x.type.rank:
            raise self.error("shape", f"x must be [N, C, ...] and weight of the same rank, not {x.type} and {weight.type}")
        dtype = result_dtype(self, x, weight)
        outputs = _channels(self)
        need_shape(self, "bias", self.bias, (outputs,))
        need_bias_dtype(self, self.bias, x, weight, dtype)
        return TensorType((x.shape[0], outputs, *_sizes(self, n)), dtype)

    def expand(b, x, weight, bias, *, stride, padding, dilation, transposed, output_padding, groups, acc, dtype, out):
        n = len(x.shape) - 2
        wide = sum_type(acc, x.dtype, weight.dtype, out.dtype)
        strides, holes = filled(stride, n, 1), filled(dilation, n, 1)
        low_high = pads(padding, n)
        fields = {"rhs_dilation": holes, "feature_group_count": groups, "acc": acc, "out": TensorType(out.shape, wide)}
        if transposed:
            reach = [d * (k - 1) for d, k in zip(holes, weight.shape[2:], strict=True)]
            extra = filled(output_padding, n, 0)
            low_high = tuple((r - lo, r - hi + e) for r, (lo, hi), e in zip(reach, low_high, extra, strict=True))
            kernel = _swapped(Expr(b, weight), groups).value
            y = b.convolution(Expr(b, x).value, kernel, lhs_dilation=strides, padding=low_high, window_reversal=(1,) * n, **fields)
        else:
            y = b.convolution(x, weight, window_strides=strides, padding=low_high, **fields)
        e = Expr(b, y)
        if bias is not None:
            e = e + Expr(b, bias).cast(wide).broadcast(e.shape, [1])
        return e.cast(out.dtype).value


def _swapped(kernel, groups):
    """``[C, out / groups, ...]`` as ``[out, C / groups, ...]``."""
    inputs, outputs, *window = kernel.shape
    split = kernel.reshape((groups, inputs // groups, outputs, *window))
    return split.transpose((0, 2, 1, *range(3, split.rank))).reshape((groups * outputs, inputs // groups, *window))


def _channels(self):
    """The number of output channels; an error where groups and channels do not fit."""
    groups, inputs = self.groups, self.x.shape[1]
    first, second = self.weight.shape[:2]
    if groups < 1:
        raise self.error("attr", f"groups = {groups} must be at least 1")
    for what, size in (("input channels", inputs), ("channels of the weight", first)):
        if isinstance(size, int) and size % groups:
            raise self.error("shape", f"{size} {what} cannot be split into {groups} groups")
    takes = first if self.transposed else second * groups
    if not agree(inputs, takes):
        raise self.error("shape", f"x has {inputs} channels, but the weight {self.weight.type} takes {takes} in {groups} group(s)")
    return second * groups if self.transposed else first


def _sizes(self, n):
    """The spatial sizes of the result."""
    strides = per_dim(self, "stride", self.stride, n, 1, 1)
    holes = per_dim(self, "dilation", self.dilation, n, 1, 1)
    extra = per_dim(self, "output_padding", self.output_padding, n, 0, 0)
    if len(self.padding) != 2 * n:
        per_dim(self, "padding", self.padding, n, 0, 0)
    elif min(self.padding) < 0:
        raise self.error("attr", f"padding = {list(self.padding)} must be at least 0 everywhere")
    low_high = pads(self.padding, n)
    if any(extra) and not self.transposed:
        raise self.error("attr", "output_padding belongs to transposed convolutions")
    sizes = []
    for i, (d, k) in enumerate(zip(self.x.shape[2:], self.weight.shape[2:], strict=True)):
        (low, high), s, h = low_high[i], strides[i], holes[i]
        if self.transposed:
            if extra[i] >= max(s, h):
                raise self.error("attr", f"output_padding {extra[i]} of dim {i} must be below its stride {s} or dilation {h}")
            size = (d - 1) * s - low - high + (k - 1) * h + extra[i] + 1
        else:
            size = window_count(d, k, s, (low, high), dilation=h)
        if isinstance(size, int) and size < 1:
            raise self.error("shape", f"a kernel of {k} (dilation {h}) does not fit dim {i} of {d} with padding {low} and {high}")
        sizes.append(size)
    return sizes
