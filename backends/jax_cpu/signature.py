"""What a program takes and gives, as its caller sees it: user inputs by position and name, bound weights, state, user outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuron_ir.core import Func
from neuron_ir.diagnostics import fail, nearest
from neuron_ir.dtypes import DType
from neuron_ir.types import TensorType

__all__ = ["Signature"]


@dataclass(frozen=True)
class Signature:
    """Argument and result indices of a function by their role.

    ``inputs`` are the arguments that the caller gives; ``weights`` those bound from ``Module.weights`` and never written; ``state``
    those bound at first and then updated by the program. ``updates`` maps a result to the argument whose new value it is; ``outputs``
    are the other results.
    """

    func: Func
    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    state: tuple[int, ...]
    outputs: tuple[int, ...]
    updates: Mapping[int, int]

    @classmethod
    def of(cls, func: Func) -> Signature:
        """Read the roles from the attributes of arguments and results."""
        kinds = [a.get("kind", "input") for a in func.arg_attrs]
        updates = {i: a["updates"] for i, a in enumerate(func.result_attrs) if "updates" in a}
        written = set(updates.values())
        bound = [i for i, k in enumerate(kinds) if k != "input"]
        return cls(
            func,
            tuple(i for i, k in enumerate(kinds) if k == "input"),
            tuple(i for i in bound if i not in written),
            tuple(i for i in bound if i in written),
            tuple(i for i in range(len(func.result_types)) if i not in updates),
            updates,
        )

    def name(self, index: int) -> str:
        """An argument's name for the caller."""
        return str(self.func.arg_attrs[index].get("name") or self.func.args[index].name or f"arg{index}")

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The user inputs in order, from positional and named arguments."""
        names = [self.name(i) for i in self.inputs]
        if len(args) > len(names):
            raise fail("input", f"@{self.func.name} takes {len(names)} input(s) ({', '.join(names)}), not {len(args)}", self.func.loc)
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                raise fail("input", f"@{self.func.name} has no input {name!r}{nearest(name, names)}", self.func.loc)
            if name in given:
                raise fail("input", f"@{self.func.name}: input {name!r} is given twice", self.func.loc)
            given[name] = value
        missing = [n for n in names if n not in given]
        if missing:
            raise fail("input", f"@{self.func.name}: input(s) {', '.join(missing)} missing", self.func.loc)
        return [given[n] for n in names]

    def check(self, index: int, shape: tuple[int, ...], dtype: DType) -> None:
        """Refuse an input whose dtype, rank or fixed sizes are not those of its argument."""
        wanted: TensorType = self.func.args[index].type
        fits = len(shape) == len(wanted.shape) and all(
            not isinstance(w, int) or w == s for w, s in zip(wanted.shape, shape, strict=True)
        )
        if not fits or dtype is not wanted.dtype:
            given = f"tensor<{''.join(f'{d}x' for d in shape)}{dtype}>"
            raise fail("input", f"@{self.func.name}: input {self.name(index)!r} is {given}, but {wanted} is needed", self.func.loc)
