"""The value of every operation of a torch program, as torch computes it: what a bisection compares with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from neuron_ir.frontends.torch import _compat
from neuron_ir.frontends.torch.export import export, functionalize
from neuron_ir.frontends.torch.lowering import kept_operations
from neuron_ir.frontends.torch.signature import INPUT, TOKEN, ProgramInput, key_of

if TYPE_CHECKING:
    import torch

__all__ = ["graph_values", "is_torch_program", "node_values"]


def is_torch_program(program: Any) -> bool:
    """Whether ``program`` is a torch module or an exported program."""
    import torch

    return isinstance(program, torch.nn.Module | torch.export.ExportedProgram)


def node_values(program: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Run the functional graph that the importer reads; its tensors by node name, which is the value's name in the IR."""
    import torch

    given = export(program, tuple(args), kwargs) if isinstance(program, torch.nn.Module) else program
    functional = functionalize(given, kept_operations())
    signature = functional.signature
    paths, _ = _compat.get("tree_flatten_with_path")(dict(kwargs))
    by_name = {".".join(str(key_of(step)) for step in path): leaf for path, leaf in paths}
    by_place = iter(_compat.get("tree_leaves")(tuple(args)))

    def given_for(entry: ProgramInput) -> Any:
        if entry.kind == TOKEN:
            return torch.zeros(0)
        if entry.kind != INPUT:
            return signature.weights[entry.target]
        return by_name[entry.target] if entry.target in by_name else next(by_place)

    inputs = [given_for(entry) for entry in signature.inputs]
    return graph_values(torch.fx.GraphModule(functional.owner, functional.graph), inputs)


def graph_values(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> dict[str, Any]:
    """Run a functional graph with torch; its tensors by node name, without those that follow from a random draw."""
    import torch

    values: dict[str, Any] = {}
    drawn: set[torch.fx.Node] = set()

    class Recorder(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            result = super().run_node(n)
            if _is_random(n) or any(source in drawn for source in n.all_input_nodes):
                drawn.add(n)
            elif isinstance(result, torch.Tensor) and n.op == "call_function":
                values[n.name] = result.detach()
            return result

    with torch.no_grad():
        Recorder(graph).run(*inputs)
    return values


def _is_random(node: torch.fx.Node) -> bool:
    import torch

    return isinstance(node.target, _compat.get("OpOverload")) and torch.Tag.nondeterministic_seeded in node.target.tags
