"""The PyTorch front end: exported programs become Neuron IR."""

from typing import Any

__all__ = ["from_torch"]


def __getattr__(name: str) -> Any:
    if name == "from_torch":
        from neuron_ir.frontends.torch.importer import from_torch

        return from_torch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
