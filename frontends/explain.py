"""What will happen to each operation of a program, said before anything is compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neuron_ir.diagnostics import IRError, fail
from neuron_ir.explanation import Explanation, Journal

__all__ = ["explain"]


def explain(program: Any, /, *args: Any, dynamic_shapes: Any = None, **kwargs: Any) -> Explanation:
    """Say what becomes of each operation of a torch or JAX program: direct, expanded or refused, with place and reason.

    ``program`` is a torch module, a ``torch.export.ExportedProgram`` (alone), a function of torch tensors or of JAX or NumPy
    arrays, or StableHLO as ``from_stablehlo`` takes it; ``args`` and ``kwargs`` are example inputs, ``dynamic_shapes`` is for torch
    what it is in ``from_torch``. Operations of a torch program are those of the exported graph, those of a JAX program StableHLO's.
    Nothing is compiled. Refusals are rows of the answer, not errors; an error that the framework itself raises while it traces the
    program passes unchanged.
    """
    is_stablehlo = isinstance(program, str | bytes | Path)
    if not callable(program) and not is_stablehlo and type(program).__name__ != "ExportedProgram":
        kind = type(program).__name__
        raise fail("input", f"a value of type {kind} is no program: a torch module, an exported program or a function is needed")
    is_torch = not is_stablehlo and _is_torch(program, (args, kwargs))
    if dynamic_shapes is not None and not is_torch:
        raise fail("input", "dynamic_shapes is for torch programs; JAX has symbolic sizes in jax.ShapeDtypeStruct")
    journal = Journal()
    try:
        if is_stablehlo:
            from neuron_ir.frontends.jax import read_stablehlo

            read_stablehlo(program, journal=journal)
        elif is_torch:
            _read_torch(program, args, kwargs, dynamic_shapes, journal)
        else:
            _read_jax(program, args, kwargs, journal)
    except IRError as error:
        journal.failed(error.diagnostics)
    return journal.explanation()


def _is_torch(program: Any, inputs: Any) -> bool:
    """Whether it is a program of torch; nobody can have made one without importing torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(program, torch.nn.Module | torch.export.ExportedProgram):
        return True
    from neuron_ir.frontends.torch import _compat

    return any(isinstance(leaf, torch.Tensor) for leaf in _compat.get("tree_leaves")(inputs))


def _read_torch(program: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any, journal: Journal) -> None:
    from neuron_ir.frontends.torch.export import export, functionalize
    from neuron_ir.frontends.torch.importer import import_program
    from neuron_ir.frontends.torch.lowering import kept_operations

    exported = export(program, args, kwargs, dynamic_shapes=dynamic_shapes)
    import_program(functionalize(exported, kept_operations()), journal=journal)


def _read_jax(program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], journal: Journal) -> None:
    from neuron_ir.frontends.jax._compat import hide_frames
    from neuron_ir.frontends.jax.importer import import_lowered
    from neuron_ir.frontends.jax.lower import lower

    hide_frames(__file__)
    import_lowered(lower(program, *args, **kwargs), journal)
