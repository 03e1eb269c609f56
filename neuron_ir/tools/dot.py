"""A module as a Graphviz graph: one node per op, one cluster per function and region, types on the edges."""

from __future__ import annotations

from collections.abc import Iterator

from neuron_ir.attrs import Dense, print_attr
from neuron_ir.core import Block, Module, Op, Value
from neuron_ir.quoting import quote

__all__ = ["to_dot"]

_COLOURS = {"matmul": "#cfe3ff", "elementwise": "#e3f6d5", "reduction": "#ffe9c7", "view": "#eeeeee", "control": "#f6d5ee"}
_LONGEST_ATTR = 40


def to_dot(module: Module) -> str:
    """The text of the graph, ready for ``dot -Tsvg``."""
    graph = _Graph()
    lines = [f"digraph {quote(module.name)} {{", '  node [shape=box, style=filled, fillcolor=white, fontname="monospace"];']
    for name, func in module.funcs.items():
        lines += graph.cluster(func.body, f"@{name}", "  ")
    return "\n".join([*lines, *graph.edges, "}\n"])


class _Graph:
    def __init__(self) -> None:
        self.names: dict[Value, str] = {}
        self.edges: list[str] = []
        self.numbers: Iterator[int] = iter(range(1 << 62))

    def cluster(self, block: Block, label: str, indent: str) -> list[str]:
        inner = indent + "  "
        lines = [f"{indent}subgraph cluster_{next(self.numbers)} {{", f"{inner}label={quote(label)};"]
        for arg in block.args:
            node = self.names[arg] = f"n{next(self.numbers)}"
            lines.append(f"{inner}{node} [shape=ellipse, label={quote('%' + (arg.name or str(arg.index)))}];")
        for op in block.ops:
            lines += self.op(op, inner)
        return [*lines, f"{indent}}}"]

    def op(self, op: Op, indent: str) -> list[str]:
        node = f"n{next(self.numbers)}"
        colour = next((c for t, c in _COLOURS.items() if t in op.spec.traits), "white")
        attrs = [f"{k} = {_short(v)}" for k, v in op.attrs.items()]
        lines = [f"{indent}{node} [fillcolor={quote(colour)}, label={quote(chr(10).join([op.name, *attrs]))}];"]
        for i, region in enumerate(op.regions):
            fields = op.spec.regions
            lines += self.cluster(region, f"{op.name} {fields[min(i, len(fields) - 1)].name}", indent)
        for v in op.operands:
            self.edges.append(f"  {self.names[v]} -> {node} [label={quote(str(v.type))}, fontsize=9];")
        for result in op.results:
            self.names[result] = node
        return lines


def _short(value: object) -> str:
    text = f"dense {value.dtype} {list(value.shape)}" if isinstance(value, Dense) else print_attr(value)
    return text if len(text) <= _LONGEST_ATTR else text[: _LONGEST_ATTR - 3] + "..."
