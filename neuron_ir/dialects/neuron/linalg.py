"""Contractions and convolutions: the work of the Tensor engine."""

from __future__ import annotations

import math
from collections.abc import Sequence

from neuron_ir.cost import Cost
from neuron_ir.dims import DimLike
from neuron_ir.dtypes import BOOL, DType
from neuron_ir.opdef import ANY, INTS, Op, attr, op, operand
from neuron_ir.types import same_shape

from .windows import PADDING, choose, fill, fill_pads, window_count


def check_acc(self: Op, result: DType) -> None:
    """The accumulation type is at least as exact as f32 and as the operands, and of the result's kind.

    Integers may have a result of floats; they are converted to the accumulation type first.
    """
    acc = self.attrs.get("acc")
    kinds = {v.dtype.kind.replace("uint", "int") for v in self.operands}
    if len(kinds) > 1:
        raise self.error("operand", f"operands of one kind are needed, not {' and '.join(str(v.dtype) for v in self.operands)}")
    if result.kind.replace("uint", "int") not in kinds and not (result.is_float and kinds == {"int"}):
        raise self.error("type", f"a result of {result} cannot hold products of {self.operands[0].dtype}")
    if acc is None:
        return
    if acc.kind.replace("uint", "int") not in kinds:
        raise self.error("attr", f"acc = {acc} cannot hold products of {self.operands[0].dtype}")
    widest = max(v.dtype.accumulator.bits for v in self.operands)
    if acc.is_float and acc.bits < widest:
        raise self.error("attr", f"acc = {acc} is narrower than the {widest} bits that products of these operands need")


def in_accumulator(j, lhs, rhs, acc, out):
    """Both operands in the type in which products are summed (bool: i32, where a sum counts)."""
    if out.dtype is BOOL:
        return lhs.astype(j.np.int32), rhs.astype(j.np.int32)
    wide = (acc or out.dtype.accumulator).numpy
    if acc is None and not out.dtype.is_integer:
        wide = max(wide, lhs.dtype, rhs.dtype, key=lambda t: t.itemsize)
    return lhs.astype(wide), rhs.astype(wide)


@op("neuron.dot_general", traits=["matmul"])
class DotGeneral(Op):
    """Contracts pairs of dims and batches over others: ``out[batch, lhs free, rhs free] = sum over contracted lhs * rhs``.

    Products are summed in ``acc`` (default: f32 where operands and result are narrower, else the wider of operands and result) and
    rounded once to the result's element type, which is the one asked for (default: the left operand's). Integers wrap in the
    result's type; bool: or of ands.
    """

    lhs = operand(ANY)
    rhs = operand(ANY)
    lhs_batch = attr(INTS, ())
    rhs_batch = attr(INTS, ())
    lhs_contract = attr(INTS, ())
    rhs_contract = attr(INTS, ())
    acc = attr(DType, None)

    def infer(self):
        sides = (("lhs", self.lhs, self.lhs_batch, self.lhs_contract), ("rhs", self.rhs, self.rhs_batch, self.rhs_contract))
        for side, value, batch, contract in sides:
            dims = [*batch, *contract]
            if len(set(dims)) != len(dims) or not all(0 <= d < value.type.rank for d in dims):
                raise self.error(
                    "shape",
                    f"{side}_batch {list(batch)} and {side}_contract {list(contract)} must name dims of {value.type} once each",
                )
        for what, left, right in (("batch", self.lhs_batch, self.rhs_batch), ("contract", self.lhs_contract, self.rhs_contract)):
            a, b = [self.lhs.shape[d] for d in left], [self.rhs.shape[d] for d in right]
            if not same_shape(a, b):
                raise self.error(
                    "shape",
                    f"{what} dims {list(left)} of {self.lhs.type} are {a}, but {list(right)} of {self.rhs.type} are {b}",
                )
        shape = [self.lhs.shape[d] for d in self.lhs_batch]
        for _, value, batch, contract in sides:
            shape += [d for i, d in enumerate(value.shape) if i not in batch and i not in contract]
        type = choose(self, shape, self.lhs.dtype)
        check_acc(self, type.dtype)
        return type

    def jax(j, lhs, rhs, *, lhs_batch, rhs_batch, lhs_contract, rhs_contract, acc, out):
        a, b = in_accumulator(j, lhs, rhs, acc, out)
        y = j.lax.dot_general(a, b, ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch)))
        return y.astype(out.dtype.numpy)

    def cost(self):
        return Cost(flops=2 * self.results[0].type.size * math.prod(self.lhs.shape[d] for d in self.lhs_contract))


def _places(self: Op, name: str, letters: str, rank: int) -> tuple[int, ...]:
    """Where the two lettered dims and then the spatial dims stand, from a spelling such as ``bf01`` (empty: in that order)."""
    text = getattr(self, name)
    return places(text, letters, rank, lambda m: self.error("shape", f"{name} = {text!r} {m}"))


def places(text: str, letters: str, rank: int, error) -> tuple[int, ...]:
    """The positions of ``letters[0]``, ``letters[1]``, ``0``, ``1``, ... in ``text``."""
    wanted = letters + "0123456789"[: rank - 2]
    if not text:
        return tuple(range(rank))
    if len(text) != rank or sorted(text) != sorted(wanted):
        raise error(f"must spell the {rank} dimensions {' '.join(wanted)} once each")
    return tuple(text.index(c) for c in wanted)


@op("neuron.convolution", traits=["matmul"])
class Convolution(Op):
    """Convolution (cross-correlation, as everywhere in learning) of a batch of images with a kernel, in any number of spatial dims.

    ``input_dims``, ``kernel_dims`` and ``output_dims`` spell the order of dims with ``b`` batch, ``f`` feature, ``i`` input
    feature, ``o`` output feature and the digits of the spatial dims; empty: ``bf01...``, ``oi01...``, ``bf01...``.
    ``window_strides``, ``padding`` (pairs; negative ones cut off), ``lhs_dilation`` (holes between input elements) and
    ``rhs_dilation`` (between kernel elements) have one entry per spatial dim; empty: 1 or 0. ``window_reversal`` has 1 for each
    spatial dim in which the kernel is flipped. ``acc`` and the result's element type as in dot_general.
    """

    lhs = operand(ANY)
    rhs = operand(ANY)
    window_strides = attr(INTS, ())
    padding = attr(PADDING, ())
    lhs_dilation = attr(INTS, ())
    rhs_dilation = attr(INTS, ())
    window_reversal = attr(INTS, ())
    input_dims = attr(str, "")
    kernel_dims = attr(str, "")
    output_dims = attr(str, "")
    feature_group_count = attr(int, 1)
    batch_group_count = attr(int, 1)
    acc = attr(DType, None)

    def infer(self):
        rank = self.lhs.type.rank
        if rank < 2 or rank != self.rhs.type.rank:
            raise self.error("shape", f"needs operands of one rank of at least 2, not {self.lhs.type} and {self.rhs.type}")
        b, f, *spatial = _places(self, "input_dims", "bf", rank)
        o, i, *window = _places(self, "kernel_dims", "oi", rank)
        batch, features = self.lhs.shape[b], self.lhs.shape[f]
        _check_groups(self, batch, features, self.rhs.shape[i], self.rhs.shape[o])
        sizes = _spatial(self, [self.lhs.shape[d] for d in spatial], [self.rhs.shape[d] for d in window])
        shape: list[DimLike] = [0] * rank
        for place, size in zip(
            _places(self, "output_dims", "bf", rank), [batch // self.batch_group_count, self.rhs.shape[o], *sizes], strict=True
        ):
            shape[place] = size
        type = choose(self, shape, self.lhs.dtype)
        check_acc(self, type.dtype)
        return type

    def jax(
        j, lhs, rhs, *, window_strides, padding, lhs_dilation, rhs_dilation, window_reversal,
        input_dims, kernel_dims, output_dims, feature_group_count, batch_group_count, acc, out,
    ):  # fmt: skip
        n = lhs.ndim - 2
        a, b = in_accumulator(j, lhs, rhs, acc, out)
        kernel = places(kernel_dims, "oi", n + 2, ValueError)
        b = j.lax.rev(b, [kernel[2 + d] for d in range(n) if window_reversal and window_reversal[d]])
        y = j.lax.conv_general_dilated(
            a,
            b,
            window_strides or (1,) * n,
            padding or ((0, 0),) * n,
            lhs_dilation or (1,) * n,
            rhs_dilation or (1,) * n,
            j.lax.ConvDimensionNumbers(
                places(input_dims, "bf", n + 2, ValueError), kernel, places(output_dims, "bf", n + 2, ValueError)
            ),
            feature_group_count,
            batch_group_count,
        )
        return y.astype(out.dtype.numpy)

    def cost(self):
        kernel = math.prod(self.rhs.shape) // self.rhs.shape[_places(self, "kernel_dims", "oi", self.rhs.type.rank)[0]]
        return Cost(flops=2 * self.results[0].type.size * kernel)


def _check_groups(self: Convolution, batch: DimLike, features: DimLike, inputs: DimLike, outputs: DimLike) -> None:
    groups, batch_groups = self.feature_group_count, self.batch_group_count
    if groups < 1 or batch_groups < 1 or (groups > 1 and batch_groups > 1):
        raise self.error(
            "attr", f"feature_group_count = {groups} and batch_group_count = {batch_groups}: one may exceed 1, none fall below"
        )
    for count, size, what in (
        (groups, features, "input features"),
        (groups, outputs, "output features"),
        (batch_groups, batch, "images"),
        (batch_groups, outputs, "output features"),
    ):
        if isinstance(size, int) and size % count:
            raise self.error("shape", f"{size} {what} cannot be split into {count} groups")
    if not same_shape([features // groups], [inputs]):
        raise self.error("shape", f"the kernel takes {inputs} input features, but {features} in {groups} group(s) are given")


def _spatial(self: Convolution, sizes: Sequence[DimLike], windows: Sequence[DimLike]) -> list[DimLike]:
    n = len(sizes)
    fill(self, "window_reversal", self.window_reversal, n, 0, 0)
    per_dim = zip(
        sizes,
        windows,
        fill(self, "window_strides", self.window_strides, n),
        fill_pads(self, self.padding, n),
        fill(self, "lhs_dilation", self.lhs_dilation, n),
        fill(self, "rhs_dilation", self.rhs_dilation, n),
        strict=True,
    )
    return [window_count(*d) for d in per_dim]
