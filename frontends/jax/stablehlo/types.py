"""MLIR types as types of the IR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_ir.diagnostics import fail
from neuron_ir.dims import UNKNOWN, DimLike
from neuron_ir.dtypes import DType, dtype, dtype_of_numpy
from neuron_ir.frontends.jax._compat import ir
from neuron_ir.frontends.jax.dense import DTYPES
from neuron_ir.frontends.jax.stablehlo.quantisation import Quantisation, quantisation_of
from neuron_ir.types import TOKEN, TensorType, Type

__all__ = ["Types", "is_token", "is_tuple", "members_of", "token_positions"]

_SPECIAL = {"i1": "bool", "index": "i64"}  # MLIR element type -> ours, where numpy's name does not lead there
_TOKENS = ("!stablehlo.token", "!mhlo.token")


def token_positions(source: Any) -> tuple[set[int], set[int]]:
    """Which arguments and which results of ``@main`` are tokens, by position."""
    main = next(
        view.operation for view in source.body.operations if ir.StringAttr(view.operation.attributes["sym_name"]).value == "main"
    )
    type = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    return tuple({i for i, t in enumerate(types) if is_token(t)} for types in (type.inputs, type.results))  # type: ignore[return-value]


def is_token(type: Any) -> bool:
    """Whether an MLIR type is a token."""
    return str(type) in _TOKENS


def is_tuple(type: Any) -> bool:
    """Whether an MLIR type is a tuple or a future, which dissolve into their members."""
    return isinstance(type, ir.TupleType) or str(type).startswith("!stablehlo.future<")


def members_of(type: Any) -> list[Any]:
    """The member types of a tuple; a future's cannot be read here."""
    if not isinstance(type, ir.TupleType):
        raise fail("unsupported", f"an argument of type {type}")
    return [type.get_type(i) for i in range(type.num_types)]


class Types:
    """Converts the types of one module, each distinct one once. Sizes that MLIR does not know become ``?``."""

    def __init__(self) -> None:
        self._done: dict[Any, Type] = {}
        self._elements: dict[Any, DType] = {}
        self.has_quantised = False
        self.mode = "storage"  # how quantised types are read: as their "storage" or "expressed" type, or as f64 ("wide")

    def __call__(self, type: Any) -> Any:
        """The IR's type; raises :class:`IRError` where it has none."""
        found = self._done.get(type)
        if found is None:
            found = self._convert(type)
            if self.quantisation(type) is None:
                self._done[type] = found
        return found

    def quantisation(self, type: Any) -> Quantisation | None:
        """The parameters of a quantised tensor type."""
        if not isinstance(type, ir.ShapedType):
            return None
        text = str(type.element_type)
        if not text.startswith("!quant."):
            return None
        self.has_quantised = True
        return quantisation_of(text)

    def element(self, type: Any) -> DType:
        """The element type of an MLIR tensor type or scalar type."""
        quantised = self.quantisation(type)
        if quantised is not None:
            kinds = {"storage": quantised.storage, "expressed": quantised.expressed}
            return kinds.get(self.mode, dtype("f64"))
        key = type.element_type if isinstance(type, ir.ShapedType) else type
        found = self._elements.get(key)
        if found is None:
            found = self._elements[key] = self.named(str(key))
        return found

    def named(self, text: str) -> DType:
        """The element type that MLIR spells so; raises :class:`IRError` where there is none."""
        if text in _SPECIAL:
            return dtype(_SPECIAL[text])
        try:
            return dtype_of_numpy(DTYPES[text])
        except KeyError:
            raise fail("unsupported", f"the element type {text} has no counterpart") from None

    def _convert(self, type: Any) -> Type:
        if is_token(type):
            return TOKEN
        if not isinstance(type, ir.RankedTensorType):
            raise fail("unsupported", f"the type {type} has no counterpart")
        dynamic = ir.ShapedType.get_dynamic_size()
        shape: Sequence[DimLike] = [UNKNOWN if d == dynamic else d for d in type.shape]
        return TensorType(shape, self.element(type))
