"""Results that are views of an input or of another result, where sizes are symbols: torch makes them itself.

Where a symbol takes part, AOTAutograd remakes a view with the size, strides and offset of the tensor that the graph gives.
A tensor of its own would have another offset than the view, and the caller would get other elements.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from neuron_ir.frontends.torch import _compat

if TYPE_CHECKING:
    import torch

__all__ = ["ViewedResults"]


class ViewedResults:
    """The results of a functional graph that are symbolic views; ``positions`` says which."""

    def __init__(self, graph: torch.fx.GraphModule):
        self.owner = graph
        self.placeholders = graph.graph.find_nodes(op="placeholder")
        self.results = next(n for n in reversed(graph.graph.nodes) if n.op == "output").args[0]
        nodes = {n for n in self.results if hasattr(n, "op")}
        self.positions = [i for i, n in enumerate(self.results) if _is_symbolic(n) and _is_viewed(n, nodes)]

    def remade(self, inputs: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """The results with the views among them made of ``inputs``, the values of all placeholders, and the other results."""
        values = dict(zip(self.placeholders, inputs, strict=True))
        for position, (node, result) in enumerate(zip(self.results, results, strict=True)):
            if position not in self.positions and hasattr(node, "op"):
                values.setdefault(node, result)
        return [self._value(self.results[i], values) if i in self.positions else r for i, r in enumerate(results)]

    def _value(self, node: torch.fx.Node, values: dict[Any, Any]) -> Any:
        import torch

        if node not in values:
            if node.op == "get_attr":
                values[node] = attrgetter(str(node.target))(self.owner)
            else:
                args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: self._value(n, values))
                values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return values[node]


def _is_symbolic(node: Any) -> bool:
    """Whether a tensor's size, strides or offset is no number."""
    value = getattr(node, "meta", {}).get("val")
    if not isinstance(value, _compat.get("FakeTensor")):
        return False
    return not all(type(n) is int for n in (*value.shape, *value.stride(), value.storage_offset()))


def _is_viewed(node: torch.fx.Node, results: set[Any]) -> bool:
    """Whether a node is a view, or a view of a view, of a placeholder or a result that is none."""
    root: Any = node
    while _is_view(root):
        root = root.args[0]
    return root is not node and (root.op == "placeholder" or root in results)


def _is_view(node: torch.fx.Node) -> bool:
    if node.target is operator.getitem:
        return _is_view(node.args[0])  # type: ignore[arg-type]
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.returns:
        return False
    alias: Any = schema.returns[0].alias_info
    return alias is not None and not alias.is_write
