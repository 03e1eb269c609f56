"""One input for one tensor: what torch exports twice, as a buffer and as a constant, is one state.

A cache object that keeps the tensors which its module also has as buffers is exported that way (transformers' static cache is):
the program then writes to the constant and reads the buffer. torch itself refuses to make such a program functional.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuron_ir.frontends.torch.signature import BUFFER, read_signature, storage_groups

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def merge_shared_inputs(program: ExportedProgram, graph: torch.fx.Graph) -> Any:
    """Let every reader of a weight that is the same tensor as another read the buffer among them, or the first.

    Erases the placeholders that this leaves over; gives the signature without them.
    """
    signature = read_signature(program)
    groups = storage_groups(signature.weights)
    kinds = {e.target: e.kind for e in signature.bound_inputs}
    chosen: dict[str, str] = {}
    for name, group in groups.items():
        if group not in chosen or (kinds[name] == BUFFER and kinds[chosen[group]] != BUFFER):
            chosen[group] = name
    nodes = {node.name: node for node in graph.find_nodes(op="placeholder")}
    places = {e.target: nodes[e.name] for e in signature.bound_inputs}
    doubles = [name for name, group in groups.items() if chosen[group] != name]
    for name in doubles:
        places[name].replace_all_uses_with(places[chosen[groups[name]]])
        graph.erase_node(places[name])
    gone = {places[name].name for name in doubles}
    old = program.graph_signature
    specs = [spec for spec in old.input_specs if getattr(spec.arg, "name", None) not in gone]
    return type(old)(specs, old.output_specs)
