"""Lower precision for matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from neuron_ir.builder import Builder, create
from neuron_ir.core import Block, Module, Op, Value
from neuron_ir.diagnostics import fail
from neuron_ir.dtypes import DType, dtype
from neuron_ir.locations import FusedLoc
from neuron_ir.passmanager import Context, Pass, option

__all__ = ["Precision"]

_WIDE = ("f32", "f64")


@dataclass(frozen=True)
class Precision(Pass):
    """Multiply matrices and convolve in a narrower float, accumulating in f32, with results back in their own type.

    Inputs of ops with the trait ``matmul`` whose elements are f32 or f64 are cast to ``dtype``; masks, biases (but that of
    ``neuron.conv``, which takes one type only), and every other op keep their precision. Where the op can give its accumulator's
    precision the result is not rounded to ``dtype`` at all. Values beyond the narrow type's range become infinite (f16: 65504).
    Tolerance: 2e-2 of the largest value, for sums of products that each have two factors rounded to 8 bits.
    """

    exact: ClassVar[bool] = False
    rtol: ClassVar[float] = 2e-2

    dtype: str = option("bf16", "element type of the inputs of matrix products", ("bf16", "f16", "tf32"))
    keep_ops: tuple[str, ...] = option((), "ops that keep their precision, such as linear or neuron.convolution")
    keep_modules: tuple[str, ...] = option((), "module paths whose ops keep their precision, such as lm_head or blocks.0.*")

    def run(self, module: Module, ctx: Context) -> None:
        unused = {*self.keep_ops, *self.keep_modules}
        for op in [op for op in module.walk() if "matmul" in op.spec.traits]:
            kept = [k for k in self.keep_ops if op.name in (k, f"neuron.{k}")]
            kept += [k for k in self.keep_modules if any(in_module(scope, k) for scope in scopes(op))]
            unused.difference_update(kept)
            if kept:
                ctx.decline(f"kept by {kept[0]}")
            elif not any(v.dtype.name in _WIDE for v in op.operands):
                ctx.decline("no input is f32 or f64")
            else:
                _lower(op, dtype(self.dtype))
                ctx.count(f"{op.name} lowered to {self.dtype}")
        if unused:
            raise fail("precision", f"nothing to keep matches {', '.join(sorted(unused))}; the program has no such matrix product")


def scopes(op: Op) -> list[str]:
    """The module paths that an op comes from."""
    return [p.scope for p in (op.loc.places if isinstance(op.loc, FusedLoc) else (op.loc,)) if p.scope]


def in_module(scope: str, wanted: str) -> bool:
    """Whether the module path ``scope`` is ``wanted`` (which may hold ``*``) or lies inside of it."""
    parts = scope.split(".")
    return any(fnmatchcase(".".join(parts[:n]), wanted) for n in range(1, len(parts) + 1))


def _lower(op: Op, narrow: DType) -> None:
    """Replace ``op`` by casts, the op on narrow inputs, and a cast back where it cannot give the wide result itself."""
    block = op.block
    assert isinstance(block, Block)
    b = Builder(block, op.loc, op)
    spec, wide = op.spec, op.results[0].type
    operands: list[Value | None] = []
    for declared, value in zip(spec.operands, spec.split(op.operands, op.attrs.get("absent", ())), strict=True):
        # A mask or bias is summed, not multiplied, and keeps its precision where the op takes it beside narrow inputs.
        added = declared.name == "mask" or (declared.name == "bias" and "dtype" in spec.attrs)
        lowered = value is not None and value.dtype.name in _WIDE and not added
        operands.append(b.cast(value, out=value.type.with_dtype(narrow)) if lowered else value)
    fields: dict[str, Any] = {k: v for k, v in op.attrs.items() if k != "absent"}
    if "dtype" in spec.attrs:
        fields["dtype"] = wide.dtype
    new = b.insert(create(op.name, operands, [r.type for r in op.results], fields, op.loc))
    op.replace_with([n if n.type is r.type else b.cast(n, out=r.type) for n, r in zip(new.results, op.results, strict=True)])
