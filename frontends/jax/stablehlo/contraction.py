"""Matrix products, convolutions, and what belongs to linear algebra."""

from __future__ import annotations

from typing import Any

from neuron_ir.frontends.jax._compat import stablehlo
from neuron_ir.frontends.jax.stablehlo.rule import Translator, rule, unsupported


@rule("stablehlo.dot_general")
def _dot_general(c: Translator, op: Any, lhs: Any, rhs: Any) -> Any:
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    dims = {
        "lhs_batch": tuple(numbers.lhs_batching_dimensions),
        "rhs_batch": tuple(numbers.rhs_batching_dimensions),
        "lhs_contract": tuple(numbers.lhs_contracting_dimensions),
        "rhs_contract": tuple(numbers.rhs_contracting_dimensions),
    }
    acc = None
    if "algorithm" in op.attributes:
        lhs, rhs, acc = _by_algorithm(c, op, lhs, rhs)
    return c.b.dot_general(lhs, rhs, **dims, acc=acc, out=c.out(op, _dot_shape(lhs, rhs, **dims)))


def _dot_shape(lhs: Any, rhs: Any, lhs_batch: Any, rhs_batch: Any, lhs_contract: Any, rhs_contract: Any) -> tuple[Any, ...]:
    return (
        *(lhs.shape[d] for d in lhs_batch),
        *(d for i, d in enumerate(lhs.shape) if i not in lhs_batch and i not in lhs_contract),
        *(d for i, d in enumerate(rhs.shape) if i not in rhs_batch and i not in rhs_contract),
    )


def _by_algorithm(c: Translator, op: Any, lhs: Any, rhs: Any) -> tuple[Any, Any, Any]:
    """Operands rounded to the precision that the algorithm names, and its accumulation type.

    An algorithm that splits each operand into several narrow parts approximates the product of the whole operands: they stay whole.
    """
    algorithm = stablehlo.DotAlgorithm(op.attributes["algorithm"])
    acc = c.element(algorithm.accumulation_type)
    if algorithm.num_primitive_operations > 1:
        return lhs, rhs, None
    lhs = _rounded(c, lhs, str(algorithm.lhs_precision_type))
    rhs = _rounded(c, rhs, str(algorithm.rhs_precision_type))
    return lhs, rhs, acc if acc.bits >= max(32, lhs.dtype.bits, rhs.dtype.bits) else None


def _rounded(c: Translator, x: Any, precision: str) -> Any:
    """``x`` with no more bits than the algorithm reads."""
    if precision == "tf32":
        return c.b.reduce_precision(x, exponent_bits=8, mantissa_bits=10) if x.dtype.bits > 19 else x
    narrow = c.element_named(precision)
    return c.b.cast(x, out=x.type.with_dtype(narrow)) if narrow.bits < x.dtype.bits else x


@rule("stablehlo.dot")
def _dot(c: Translator, op: Any, lhs: Any, rhs: Any) -> Any:
    dims = {"lhs_contract": (lhs.type.rank - 1,), "rhs_contract": (0,)}
    shape = (*lhs.shape[:-1], *rhs.shape[1:])
    return c.b.dot_general(lhs, rhs, **dims, out=c.out(op, shape))


@rule("stablehlo.convolution")
def _convolution(c: Translator, op: Any, lhs: Any, rhs: Any) -> Any:
    return convolution(c, op, lhs, rhs, c.pairs(op, "padding"))


def convolution(c: Translator, op: Any, lhs: Any, rhs: Any, padding: Any, *, dilated: bool = False) -> Any:
    """A convolution with the op's attributes and the given padding; attributes that change nothing are left out.

    ``dilated``: ``lhs`` has its holes already.
    """
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    n = lhs.type.rank - 2
    spellings = {
        "input_dims": _spelling(
            n, "bf", numbers.input_batch_dimension, numbers.input_feature_dimension, numbers.input_spatial_dimensions
        ),
        "kernel_dims": _spelling(
            n,
            "oi",
            numbers.kernel_output_feature_dimension,
            numbers.kernel_input_feature_dimension,
            numbers.kernel_spatial_dimensions,
        ),
        "output_dims": _spelling(
            n, "bf", numbers.output_batch_dimension, numbers.output_feature_dimension, numbers.output_spatial_dimensions
        ),
    }
    reversal = tuple(int(x) for x in c.ints(op, "window_reversal"))
    out = c.out(op) if c.is_static(op) else None
    return c.b.convolution(
        lhs,
        rhs,
        window_strides=_unless_all(c.ints(op, "window_strides"), 1),
        padding=() if all(p == (0, 0) for p in padding) else padding,
        lhs_dilation=() if dilated else _unless_all(c.ints(op, "lhs_dilation"), 1),
        rhs_dilation=_unless_all(c.ints(op, "rhs_dilation"), 1),
        window_reversal=_unless_all(reversal, 0),
        feature_group_count=c.value(op, "feature_group_count", 1),
        batch_group_count=c.value(op, "batch_group_count", 1),
        out=out,
        **spellings,
    )


def _unless_all(values: tuple[int, ...], plain: int) -> tuple[int, ...]:
    return () if all(v == plain for v in values) else values


def _spelling(n: int, letters: str, first: int, second: int, spatial: Any) -> str:
    """The order of dims as ``bf01``; empty where it is the usual one."""
    text = [""] * (n + 2)
    text[first], text[second] = letters[0], letters[1]
    for i, d in enumerate(spatial):
        text[d] = str(i)
    spelled = "".join(text)
    return "" if spelled == letters + "0123456789"[:n] else spelled


@rule("stablehlo.fft")
def _fft(c: Translator, op: Any, x: Any) -> Any:
    kind = stablehlo.FftTypeAttr(op.attributes["fft_type"]).value
    return c.b.fft(x, fft_type=kind, fft_length=c.ints(op, "fft_length"))


@rule("stablehlo.cholesky")
def _cholesky(c: Translator, op: Any, x: Any) -> Any:
    return c.b.cholesky(x, lower=c.value(op, "lower", False))


@rule("stablehlo.triangular_solve")
def _triangular_solve(c: Translator, op: Any, a: Any, b: Any) -> Any:
    transpose = c.enum(op, "transpose_a", stablehlo.TransposeAttr, "NO_TRANSPOSE")
    if transpose == "TRANSPOSE_INVALID":
        raise unsupported(op, "transpose_a is TRANSPOSE_INVALID")
    return c.b.triangular_solve(
        a,
        b,
        left_side=c.value(op, "left_side", True),
        lower=c.value(op, "lower", True),
        unit_diagonal=c.value(op, "unit_diagonal", False),
        transpose_a=transpose,
    )


def _batch_norm(name: str) -> None:
    def translate(c: Translator, op: Any, *operands: Any) -> Any:
        fields = {"epsilon": c.value(op, "epsilon"), "feature_index": c.value(op, "feature_index")}
        return c.b.make(f"neuron.{name}", *operands, **fields)

    rule(f"stablehlo.{name}")(translate)


for _name in ("batch_norm_inference", "batch_norm_training", "batch_norm_grad"):
    _batch_norm(_name)
