"""The PyTorch front end: exported programs become Neuron IR."""

from typing import Any

__all__ = ["from_torch", "register_lowering"]


def __getattr__(name: str) -> Any:
    if name == "from_torch":
        from neuron_ir.frontends.torch.importer import from_torch

        return from_torch
    if name == "register_lowering":
        from neuron_ir.frontends.torch.lowering import register_lowering

        return register_lowering
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
