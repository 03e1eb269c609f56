"""Control flow: torch's higher-order operations, whose inner graphs become regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neuron_ir.builder import Builder
from neuron_ir.core import Value
from neuron_ir.frontends.torch.lowering import RULES, Context, rules


def higher_order(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule for a higher-order operation, which has no overloads."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        RULES[name] = rule
        return rule

    return register


def read(c: Context, graph: Any, b: Builder, args: Sequence[Any]) -> list[Any]:
    """Emit an inner graph with ``b``, its placeholders bound to ``args``; its results."""
    inner = Context(b, c.symbols)
    inner.journal = c.journal
    b.loc = c.loc
    reader = type(c.reader)(graph, inner, c.reader.origins, c.reader.literals, c.reader.retraced)
    table, given = rules(), iter(args)
    results: list[Any] = []
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            reader.values[node] = next(given)
        elif node.op == "call_function":
            reader.call(node, table)
        elif node.op == "get_attr":
            reader.attribute(node)
        elif node.op == "output":
            items = node.args[0] if isinstance(node.args[0], tuple | list) else (node.args[0],)
            results = [reader.resolve(item) for item in items]
    c.reader.errors.extend(reader.errors)
    c.reader.cause = c.reader.cause or reader.cause
    if not all(isinstance(v, Value) for v in results):
        raise c.unsupported("a result of an inner graph that is no tensor")
    return results


@higher_order("cond")
def cond(c: Context, pred: Any, true_graph: Any, false_graph: Any, operands: Sequence[Any] = ()) -> Any:
    if not isinstance(pred, Value):
        raise c.unsupported("a condition that is no tensor")
    branches = {
        name: (lambda b, graph=graph: read(c, graph, b, operands))
        for name, graph in (("true_branch", true_graph), ("false_branch", false_graph))
    }
    return results_of(c.b.if_(c.reshape(pred, ()), **branches))


@higher_order("while_loop")
def while_loop(c: Context, cond_graph: Any, body_graph: Any, carried: Sequence[Any], extra: Sequence[Any] = ()) -> Any:
    if not all(isinstance(v, Value) for v in carried):
        raise c.unsupported("a carried value that is no tensor")

    def condition(b: Builder, *values: Value) -> Value:
        (holds,) = read(c, cond_graph, b, [*values, *extra])
        return Context(b, c.symbols).reshape(holds, ())

    return results_of(c.b.while_(*carried, cond=condition, body=lambda b, *values: read(c, body_graph, b, [*values, *extra])))


@higher_order("scan")
def scan(c: Context, graph: Any, inits: Sequence[Value], stacked: Sequence[Value], extra: Sequence[Any] = ()) -> Any:
    def body(b: Builder, *values: Value) -> list[Any]:
        return read(c, graph, b, [*values, *extra])

    return results_of(c.b.scan(*inits, *stacked, num_carry=len(inits), length=_length(c, stacked), body=body))


@higher_order("map_impl")
def map_(c: Context, graph: Any, stacked: Sequence[Value], extra: Sequence[Any] = ()) -> Any:
    def body(b: Builder, *values: Value) -> list[Any]:
        return read(c, graph, b, [*values, *extra])

    return results_of(c.b.scan(*stacked, num_carry=0, length=_length(c, stacked), body=body))


def _length(c: Context, stacked: Sequence[Value]) -> int:
    length = stacked[0].shape[0] if stacked else None
    if not isinstance(length, int):
        raise c.unsupported(f"{length} steps: their number must be known")
    return length


def results_of(made: Any) -> tuple[Value, ...]:
    """An op's results as the tuple that ``getitem`` reads."""
    return made if isinstance(made, tuple) else (made,)
