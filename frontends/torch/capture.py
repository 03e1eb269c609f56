"""The value of every operation of a torch program, as torch computes it: what a bisection compares with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neuron_ir.frontends.torch import _compat
from neuron_ir.frontends.torch.decompositions import KEEP
from neuron_ir.frontends.torch.export import export, functionalize
from neuron_ir.frontends.torch.lowering import rules

__all__ = ["is_torch_program", "node_values"]


def is_torch_program(program: Any) -> bool:
    """Whether ``program`` is a torch module or an exported program."""
    import torch

    return isinstance(program, torch.nn.Module | torch.export.ExportedProgram)


def node_values(program: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Run the functional graph that the importer reads; its tensors by node name, which is the value's name in the IR."""
    import torch

    given = export(program, tuple(args), kwargs) if isinstance(program, torch.nn.Module) else program
    functional = functionalize(given, KEEP & rules().keys())
    signature = functional.signature
    leaves = iter(_compat.get("tree_leaves")((tuple(args), dict(kwargs))))
    inputs = [signature.weights[e.target] if e.target in signature.weights else next(leaves) for e in signature.inputs]
    module = torch.fx.GraphModule(functional.owner, functional.graph)
    values: dict[str, Any] = {}

    class Recorder(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            result = super().run_node(n)
            if isinstance(result, torch.Tensor):
                values[n.name] = result.detach()
            return result

    with torch.no_grad():
        Recorder(module).run(*inputs)
    return values
