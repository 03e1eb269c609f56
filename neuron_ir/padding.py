"""Whether a program may run on inputs that are padded along a symbolic size, and its results be cut back.

Along a padded axis the first elements are the program's own and the rest is arbitrary. An op keeps that where each of its results'
elements depends on elements of the same place along the axis alone. What does more, or is not known here, is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from neuron_ir.core import Func, Op, Value
from neuron_ir.datasizes import bindings, symbols_of
from neuron_ir.diagnostics import Diagnostic, IRError
from neuron_ir.dims import Dim
from neuron_ir.locations import Loc
from neuron_ir.types import TensorType

__all__ = ["check_padding"]


def check_padding(func: Func, name: str) -> None:
    """Raise :class:`IRError` with every op through which padding along the size ``name`` could change a value that is kept."""
    found = [Diagnostic("unsupported", f"@{func.name}: padding along {name}: {why}", loc) for why, loc in _problems(func, name)]
    if found:
        raise IRError(found)


def _problems(func: Func, name: str) -> Iterator[tuple[str, Loc]]:
    if bindings(func):
        yield "the data decide sizes of the program", func.loc
    for value in func.args:
        if _is_derived(value.type, name):
            yield f"the input {value.name or value.index} has a size made of it, {value.type}", func.loc
    for i, attrs in enumerate(func.result_attrs):
        if "updates" in attrs and _mentions(func.result_types[i], name):
            yield f"result {i} is the new value of an input or buffer", func.loc
    for op in func.body.ops:
        why = _problem(op, name)
        if why:
            yield f"{op.name}: {why}", op.loc


def _problem(op: Op, name: str) -> str:
    """Why an op mixes places along the axis; empty where it does not."""
    if "terminator" in op.spec.traits:
        return ""
    types = [v.type for v in (*op.operands, *op.results)]
    inside = [v.type for inner in op.walk() for v in (*inner.operands, *inner.results)] if op.regions else []
    if any(_is_derived(t, name) for t in types):
        return "a size made of it"
    if not any(_mentions(t, name) for t in (*types, *inside)):
        return "its number is read" if name in symbols_of(op) else ""
    if op.regions:
        return "it has regions"
    axes = [_axes(v, name) for v in op.operands]
    rule = _RULES.get(op.name.removeprefix("neuron."))
    if rule is not None:
        return rule(op, axes)
    if "elementwise" in op.spec.traits and op.name not in _CHECKING:
        return ""
    return "whether it keeps places along the axis apart is not known"


_CHECKING = ("neuron.checked_index", "neuron.quantize", "neuron.dequantize", "neuron.map")


def _mentions(type: object, name: str) -> bool:
    return isinstance(type, TensorType) and any(isinstance(d, Dim) and name in d.symbols for d in type.shape)


def _is_derived(type: object, name: str) -> bool:
    """Whether a size is an expression of the symbol and not the symbol itself."""
    return isinstance(type, TensorType) and any(isinstance(d, Dim) and name in d.symbols and d.text != name for d in type.shape)


def _axes(value: Value, name: str) -> set[int]:
    return {i for i, d in enumerate(value.type.shape) if isinstance(d, Dim) and d.text == name}


# --- rules ------------------------------------------------------------------------------------------------------------

_Axes = Sequence[set[int]]


def _free(op: Op, axes: _Axes) -> str:
    """Nothing to look at: each element of the result has one place among the operands' or a value of its own place."""
    return ""


def _not_along(attr: str, default: int) -> Callable[[Op, _Axes], str]:
    def rule(op: Op, axes: _Axes) -> str:
        axis = op.attrs.get(attr, default) % max(op.operands[0].type.rank, 1)
        return f"it works along the axis {axis}" if axis in axes[0] else ""

    return rule


def _per_feature(op: Op, axes: _Axes) -> str:
    along = op.attrs["feature_index"] % op.operands[0].type.rank in axes[0]
    return "it works along the axis" if along or any(axes[1:]) else ""


def _trailing(op: Op, axes: _Axes) -> str:
    x, n = op.operands[0].type, op.attrs.get("trailing_dims", 1)
    return "it works along the axis" if any(a >= x.rank - n for a in axes[0]) or any(axes[1:]) else ""


def _reduction(op: Op, axes: _Axes) -> str:
    rank, given = op.operands[0].type.rank, op.attrs.get("axes", None)
    reduced = set(range(rank)) if given is None else {a % rank for a in given}
    return f"it reduces the axis {min(reduced & axes[0])}" if reduced & axes[0] else ""


def _arg_reduction(op: Op, axes: _Axes) -> str:
    axis = op.attrs.get("axis")
    return "it reduces the axis" if axis is None or axis % op.operands[0].type.rank in axes[0] else ""


def _matmul(op: Op, axes: _Axes) -> str:
    a, b = (v.type.rank for v in op.operands)
    if a < 2 or b < 2:
        return "a product with a vector"
    summed_a = a - 2 if op.attrs.get("transpose_a") else a - 1
    summed_b = b - 1 if op.attrs.get("transpose_b") else b - 2
    return "it sums over the axis" if summed_a in axes[0] or summed_b in axes[1] else ""


def _linear(op: Op, axes: _Axes) -> str:
    return "it sums over the axis" if op.operands[0].type.rank - 1 in axes[0] or any(axes[1:]) else ""


def _dot_general(op: Op, axes: _Axes) -> str:
    summed = [set(op.attrs.get(name, ())) for name in ("lhs_contract", "rhs_contract")]
    return "it sums over the axis" if summed[0] & axes[0] or summed[1] & axes[1] else ""


def _batch_only(spatial: int) -> Callable[[Op, _Axes], str]:
    """The first operand may be padded in dims before its last ``spatial``; the others not at all."""

    def rule(op: Op, axes: _Axes) -> str:
        rank = op.operands[0].type.rank
        return "it works along the axis" if any(a >= rank - spatial for a in axes[0]) or any(axes[1:]) else ""

    return rule


def _first_only(op: Op, axes: _Axes) -> str:
    """Only the first dim of the first operand, the batch, may be padded."""
    return "it works along the axis" if axes[0] - {0} or any(axes[1:]) else ""


def _pool(op: Op, axes: _Axes) -> str:
    return _batch_only(len(op.attrs["kernel"]))(op, axes)


def _attention(op: Op, axes: _Axes) -> str:
    """Batch dims only: other lengths would change the sums or the causal line, other numbers of heads who shares a kv head."""
    pairs = zip(op.operands, axes, strict=True)
    return "it works along the axis" if any(a >= v.type.rank - 3 for v, own in pairs for a in own) else ""


def _lookup(op: Op, axes: _Axes) -> str:
    table, indices = (0, 1)
    if axes[table]:
        return "it looks up elements along the axis"
    source = op.operands[indices]
    while source.op is not None and source.op.name == "neuron.cast":
        source = source.op.operands[0]
    checked = op.attrs.get("policy", "raise") == "raise" and source.op is not None
    return "computed indices are checked, those of padding too" if checked else ""


def _slice(op: Op, axes: _Axes) -> str:
    x, steps = op.operands[0].type, op.attrs.get("strides", ()) or (1,) * op.operands[0].type.rank
    starts, limits = op.attrs["start_indices"], op.attrs["limit_indices"]
    whole = all(starts[a] == 0 and limits[a] is x.shape[a] and steps[a] == 1 for a in axes[0])
    return "" if whole else "it cuts the axis"


def _concatenate(op: Op, axes: _Axes) -> str:
    at = op.attrs["dimension"] % op.operands[0].type.rank
    return "it joins along the axis" if any(at in own for own in axes) else ""


def _reshape(op: Op, axes: _Axes) -> str:
    """The padded axis stays a dim of its own with as many elements before and after it."""
    source, result = op.operands[0].type, op.results[0].type
    at = [(i, j) for i in axes[0] for j in _same_dims(result, source.shape[i])]
    if len(axes[0]) != 1 or len(at) != 1:
        return "it splits or merges the axis"
    (i, j) = at[0]
    return "" if _product(source.shape[:i]) == _product(result.shape[:j]) else "it splits or merges the axis"


def _same_dims(type: TensorType, size: object) -> list[int]:
    return [j for j, d in enumerate(type.shape) if d is size]


def _product(sizes: Sequence[object]) -> object:
    total: object = 1
    for d in sizes:
        total = total * d  # type: ignore[operator]
    return total


_RULES: dict[str, Callable[[Op, _Axes], str]] = {
    **dict.fromkeys(("constant", "iota", "broadcast_in_dim", "transpose", "scaled_cast"), _free),
    **dict.fromkeys(("softmax", "log_softmax", "cumsum", "cumprod", "quantize_mx", "dequantize_mx"), _not_along("axis", -1)),
    **dict.fromkeys(("layer_norm", "rms_norm"), _trailing),
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "amax"), _reduction),
    **dict.fromkeys(("argmax", "argmin"), _arg_reduction),
    **dict.fromkeys(("max_pool", "avg_pool"), _pool),
    **dict.fromkeys(("embedding", "take"), _lookup),
    **dict.fromkeys(("group_norm", "conv"), _first_only),
    "batch_norm_inference": _per_feature,
    "matmul": _matmul, "linear": _linear, "dot_general": _dot_general, "attention": _attention,
    "slice": _slice, "concatenate": _concatenate, "reshape": _reshape,
}  # fmt: skip
