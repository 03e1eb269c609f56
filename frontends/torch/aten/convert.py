"""Conversions between element types, and operations that give their operand as it is."""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
from neuron_ir.frontends.torch.lowering import Context, lowers
from neuron_ir.types import TensorType


@lowers(
    "to.dtype", "to.device", "to.other", "to.dtype_layout", "_to_copy.default", "type_as.default",
    "to.prim_Device", "to.prim_dtype", "prims.convert_element_type.default",
)  # fmt: skip
def to(c: Context, x: Any, *_args: Any, **options: Any) -> Value:
    """``x`` in another element type; `torch.vmap` leaves conversions of Python numbers too."""
    check_layout(c, options.get("layout"))
    return c.cast(x, c.out.dtype) if isinstance(x, Value) else c.scalar(x, c.out.dtype, c.out.shape)


def check_layout(c: Context, layout: Any) -> None:
    """Refuse what is not a dense tensor."""
    if layout is not None and str(layout) != "torch.strided":
        raise c.unsupported(f"layout {layout}")


@lowers(
    "alias.default", "detach.default", "clone.default", "contiguous.default", "lift.default", "lift_fresh.default",
    "lift_fresh_copy.default", "alias_copy.default", "detach_copy.default", "resolve_conj.default", "resolve_neg.default",
)  # fmt: skip
def same(c: Context, x: Value, *_args: Any, **_options: Any) -> Value:
    return x


@lowers("view.dtype")
def view_dtype(c: Context, x: Value, _dtype: Any) -> Value:
    """The same bytes as elements of another width: our op adds or takes the last dim, torch keeps the rank."""
    old, new = x.dtype.nbytes, c.out.dtype.nbytes
    if x.dtype.is_complex or c.out.dtype.is_complex:
        raise c.unsupported("the bits of complex numbers")
    if new > old:
        ratio = new // old
        x = c.reshape(x, (*x.shape[:-1], x.shape[-1] // ratio, ratio))
    shape = x.shape if new == old else x.shape[:-1] if new > old else (*x.shape, old // new)
    return c.reshape(c.b.bitcast_convert(x, out=TensorType(shape, c.out.dtype)), c.out.shape)
