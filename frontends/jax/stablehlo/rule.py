"""How a rule for a StableHLO op is written, and the table of them all.

    @rule("stablehlo.transpose")
    def transpose(c, op, x):
        return c.b.transpose(x, permutation=c.ints(op, "permutation"))

A rule gets the translator ``c`` (builder ``c.b``, attribute readers, ``c.out`` for the result type, ``c.region`` for regions), the
MLIR operation and its operands as values of the IR; it gives one value, or a sequence with one per result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from neuron_ir.core import Block, Value
from neuron_ir.diagnostics import IRError, fail
from neuron_ir.dims import DimLike
from neuron_ir.dtypes import DType
from neuron_ir.frontends.jax._compat import ir
from neuron_ir.frontends.jax.stablehlo.quantisation import Quantisation
from neuron_ir.types import TensorType, Type

__all__ = ["RULES", "SIZED", "WITHOUT_RULE", "Attributes", "Members", "Translator", "rule", "unsupported"]

Rule = Callable[..., Any]

RULES: dict[str, Rule] = {}
#: Ops of the dialects that have no rule, each with the reason as its refusal says it. CHLO's others are expanded by MLIR first.
WITHOUT_RULE: dict[str, str] = {
    "stablehlo.einsum": ": it was never specified and is deprecated; write it as dot_general",
    "stablehlo.unary_einsum": ": it was never specified and is deprecated; write it as reduce and transpose",
    "stablehlo.torch_index_select": ": it was never specified and is deprecated; write it as gather",
    "chlo.scan": ": StableHLO has no ops that it stands for; write it as a while loop",
    "chlo._asin_acos_kernel": ": an inner part of MLIR's own expansions",
}
#: Rules that take operands as the importer keeps them, which may be sizes (:class:`sizes.Sizes`) and not values.
SIZED: set[str] = set()


class Members(tuple[Any, ...]):
    """What an MLIR tuple or future holds: values, sizes, and tuples again."""

    def flat(self) -> list[Any]:
        """The members, those of inner tuples in their place."""
        return [leaf for m in self for leaf in (m.flat() if isinstance(m, Members) else [m])]


def rule(*names: str, sized: bool = False) -> Callable[[Rule], Rule]:
    """Register the decorated function for the ops ``names``. ``sized``: operands may come as sizes."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        if sized:
            SIZED.update(names)
        return function

    return register


def unsupported(op: Any, what: str) -> IRError:
    """A refusal of ``op``, to be raised; the importer puts its place in."""
    return fail("unsupported", f"{op.name}: {what}")


class Attributes:
    """Readers of an operation's attributes, each with the default that counts where text leaves the attribute out."""

    def ints(self, op: Any, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """An array of integers, whichever of MLIR's two forms it has."""
        if name not in op.attributes:
            return default
        attribute = op.attributes[name]
        if isinstance(attribute, ir.DenseIntElementsAttr):
            return tuple(np.asarray(attribute).reshape(-1).tolist())
        return tuple(int(x) for x in attribute)

    def pairs(self, op: Any, name: str) -> tuple[tuple[int, int], ...]:
        """A matrix of n pairs; empty where absent."""
        if name not in op.attributes:
            return ()
        return tuple((int(a), int(b)) for a, b in np.asarray(op.attributes[name]).reshape(-1, 2).tolist())

    def rows(self, op: Any, name: str) -> tuple[tuple[int, ...], ...]:
        """A matrix by rows, without the -1 that fill short ones."""
        if name not in op.attributes:
            return ()
        return tuple(tuple(x for x in row if x >= 0) for row in np.asarray(op.attributes[name]).tolist())

    def value(self, op: Any, name: str, default: Any = None) -> Any:
        """An integer, boolean, float or string."""
        return op.attributes[name].value if name in op.attributes else default

    def enum(self, op: Any, name: str, kind: Any, default: str) -> str:
        """The word of an attribute that is one of StableHLO's own enumerations."""
        return str(kind(op.attributes[name]).value) if name in op.attributes else default


class Translator(Attributes):
    """What rules see of the importer.

    :class:`neuron_ir.frontends.jax.importer.Importer` implements it; it stands here because that module imports all the rules.
    """

    b: Any
    num_partitions: int  # among which the program says that it is divided

    def out(self, op: Any, shape: tuple[DimLike, ...] | None = None, index: int = 0) -> TensorType:
        """The type of result ``index``; ``shape`` counts where MLIR does not know the sizes."""
        raise NotImplementedError

    def type_of(self, type: Any) -> Type:
        """The type of the IR for an MLIR type."""
        raise NotImplementedError

    def is_static(self, op: Any, index: int = 0) -> bool:
        """Whether MLIR knows all sizes of a result."""
        raise NotImplementedError

    def region(self, op: Any, index: int, args: list[Any]) -> Block:
        """Region ``index`` as a block whose arguments have the types ``args``."""
        raise NotImplementedError

    def function_region(self, name: str, args: list[Any]) -> Block:
        """A function of the module as a block whose arguments have the types ``args``."""
        raise NotImplementedError

    def inline(self, block: Any, operands: Sequence[Any]) -> list[Any]:
        """The values that an MLIR block returns for these arguments; its ops go where the builder stands."""
        raise NotImplementedError

    def call(self, op: Any, name: str, operands: list[Any]) -> list[Any]:
        """The results of a function of the module, its ops put where the builder stands."""
        raise NotImplementedError

    def element(self, type: Any) -> DType:
        """An MLIR element type as ours."""
        raise NotImplementedError

    def element_named(self, text: str) -> DType:
        """The element type that MLIR spells so."""
        raise NotImplementedError

    def quantisation(self, type: Any) -> Quantisation | None:
        """The parameters of a quantised MLIR tensor type; nothing for any other type."""
        raise NotImplementedError

    def reading(self, mode: str) -> AbstractContextManager[None]:
        """While it lasts, quantised types are read as their ``storage`` or ``expressed`` type, or as f64 (``wide``)."""
        raise NotImplementedError

    def sizes_behind(self, value: Value) -> tuple[DimLike, ...] | None:
        """The sizes that a value was written out from, or the numbers of a constant."""
        raise NotImplementedError

    def learn(self, direction: str, a: DimLike, b: DimLike) -> bool:
        """Take a checked comparison of sizes for granted; false where it settles no symbol."""
        raise NotImplementedError

    def least(self, d: DimLike) -> float:
        """The smallest value that a size can have."""
        raise NotImplementedError

    def value_of(self, item: Any) -> Value:
        """An operand as a value; sizes are written out."""
        raise NotImplementedError
