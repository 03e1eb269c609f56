"""Calls with torch tensors in a fixed order, as torch.compile makes them: what is the same for every call is looked up once.

A general call costs some hundred microseconds of looking at names, types and layouts; here a tensor of the expected type becomes a
NumPy view, and a result a tensor on its own memory, in a few microseconds each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neuron_ir.backends.jax_cpu.arrays import TORCH_BITS, HostMemory, as_torch, is_plain

if TYPE_CHECKING:
    import torch

__all__ = ["DirectCall"]


class DirectCall:
    """An executable for tensors of the types that it was made with. A call with others gives ``None`` and runs nothing."""

    def __init__(self, executable: Any, resources: Sequence[Any], tensors: Sequence[torch.Tensor]):
        """``tensors`` are those of a call that went the general way."""
        import torch

        self.executable, self.resources = executable, resources
        self.types = (torch.Tensor, torch.nn.Parameter)
        self.inputs = [(t.dtype, tuple(t.shape), *_bits(t)) for t in tensors]
        self.makers: list[Callable[[Any], torch.Tensor]] = []  # made from the first results, which tell their layouts
        self.strided, self.cpu = torch.strided, torch.device("cpu")

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        arrays: list[Any] = []
        for tensor, (dtype, shape, bits, element) in zip(tensors, self.inputs, strict=True):
            if tensor.dtype is not dtype or tensor.shape != shape or type(tensor) not in self.types:
                return None
            if tensor.device != self.cpu or tensor.layout is not self.strided or tensor.is_neg() or tensor.is_conj():
                return None
            plain = tensor.detach() if tensor.requires_grad else tensor
            arrays.append(plain.numpy() if bits is None else plain.view(bits).numpy().view(element))
        results = self.executable((), (), self.resources, arrays)
        if not self.makers:
            self.makers = [_maker(r) for r in results]
        return [make(result) for make, result in zip(self.makers, results, strict=True)]


def _bits(tensor: torch.Tensor) -> tuple[Any, Any]:
    """The torch type through which a tensor's bits go to NumPy, and what NumPy takes them for; ``None`` where none is needed."""
    import torch

    from neuron_ir.dtypes import dtype

    found = TORCH_BITS.get(str(tensor.dtype).removeprefix("torch."))
    return (None, None) if found is None else (getattr(torch, found[1]), dtype(found[0]).numpy)


def _maker(result: Any) -> Callable[[Any], torch.Tensor]:
    """How a result of this one's type and layout becomes a tensor on its memory; waits for it."""
    import torch

    if not is_plain(result):
        return as_torch
    name, shape = result.dtype.name, result.shape
    bits, torch_type = next(((b, t) for t, (ours, b) in TORCH_BITS.items() if ours == _ours(result.dtype)), (None, name))
    typestr = np.dtype(bits or result.dtype).str
    from_numpy = torch.from_numpy
    if bits is None:
        return lambda array: from_numpy(np.asarray(HostMemory(array, typestr, shape)))
    target = getattr(torch, torch_type)
    return lambda array: from_numpy(np.asarray(HostMemory(array, typestr, shape))).view(target)


def _ours(np_dtype: Any) -> str:
    from neuron_ir.dtypes import dtype_of_numpy

    return dtype_of_numpy(np_dtype).name
