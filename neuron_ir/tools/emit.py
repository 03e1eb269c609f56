"""The output forms of ``neuron-opt`` and ``neuron-translate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neuron_ir.core import Module

__all__ = ["FORMS", "emit"]

FORMS = ("nir", "generic", "stablehlo", "dot")


def emit(module: Module, form: str, locations: bool = True) -> str:
    """The module as text in one of ``FORMS``."""
    if form == "dot":
        from neuron_ir.tools.dot import to_dot

        return to_dot(module)
    if form == "stablehlo":
        from neuron_ir import to_stablehlo

        return str(to_stablehlo(module))
    if form == "generic":
        from neuron_ir.tools.generic import to_generic

        return to_generic(module, locations)
    return module.text(locations)
