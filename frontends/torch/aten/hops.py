"""Control flow: torch's higher-order operations, whose inner graphs become regions.

A region that draws random numbers takes the state of the program's random numbers as one more value that it carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from neuron_ir.builder import Builder
from neuron_ir.core import Value
from neuron_ir.diagnostics import IRError
from neuron_ir.dtypes import I64
from neuron_ir.frontends.torch import _compat
from neuron_ir.frontends.torch.lowering import RULES, Context, RandomState, rules
from neuron_ir.types import TensorType


def higher_order(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule for higher-order operations, which have no overloads."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            RULES[name] = rule
        return rule

    return register


# --- inner graphs -----------------------------------------------------------------------------------------------------


def emit(c: Context, graph: Any, b: Builder, args: Sequence[Any], random: RandomState | None) -> Any:
    """Emit an inner graph with ``b``, its placeholders bound to ``args``; its result, a nest of what its output node names."""
    inner = Context(b, c.symbols, random)
    inner.journal = c.journal
    b.loc = c.loc
    reader = type(c.reader)(graph, inner, c.reader.origins, c.reader.literals, c.reader.retraced)
    table, given = rules(), iter(args)
    result: Any = None
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            reader.values[node] = next(given)
        elif node.op == "call_function":
            reader.call(node, table)
        elif node.op == "get_attr":
            reader.attribute(node)
        elif node.op == "output" and not reader.errors:
            result = reader.resolve(node.args[0])
    c.reader.errors.extend(reader.errors)
    c.reader.cause = c.reader.cause or reader.cause
    if reader.errors:
        raise IRError([])
    return result


def inline(c: Context, graph: Any, args: Sequence[Any]) -> Any:
    """The result of an inner graph whose operations become the program's own."""
    return emit(c, graph, c.b, args, c.random)


def region(c: Context, graph: Any, b: Builder, args: Sequence[Any], state: Sequence[Value]) -> list[Value]:
    """The body of a region: its results, and the state of the random numbers where ``state`` holds the one to begin with."""
    random = None
    if state:
        random = RandomState(lambda: state[0])
        random.present = state[0]
    result = emit(c, graph, b, args, random)
    results = list(result) if isinstance(result, tuple | list) else [result]
    if not all(isinstance(v, Value) for v in results):
        raise c.unsupported("a result of an inner graph that is no tensor")
    return results if random is None else [*results, random.value()]


def draws(graph: Any) -> bool:
    """Whether an inner graph, or one inside of it, draws random numbers."""
    import torch

    return any(
        torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        for module in graph.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
    )


def random_of(c: Context, *graphs: Any) -> list[Value]:
    """The state of the random numbers as the one more value of a region with these graphs; none where they draw none."""
    return [c.random_state()] if any(draws(g) for g in graphs) else []


def settled(c: Context, made: Any, state: Sequence[Value]) -> tuple[Value, ...]:
    """An op's results as the tuple that ``getitem`` reads; its last one, the state of the random numbers, becomes the program's."""
    results = made if isinstance(made, tuple) else (made,)
    if state:
        c.advance(results[-1])
        results = results[:-1]
    return results


# --- control flow -----------------------------------------------------------------------------------------------------


@higher_order("cond")
def cond(c: Context, pred: Any, true_graph: Any, false_graph: Any, operands: Sequence[Any] = ()) -> Any:
    if isinstance(pred, bool):
        return inline(c, true_graph if pred else false_graph, operands)
    if not isinstance(pred, Value):
        raise c.unsupported("a condition that is no tensor")
    state = random_of(c, true_graph, false_graph)
    branches = {
        name: (lambda b, graph=graph: region(c, graph, b, operands, state))
        for name, graph in (("true_branch", true_graph), ("false_branch", false_graph))
    }
    return settled(c, c.b.if_(c.reshape(pred, ()), **branches), state)


@higher_order("while_loop")
def while_loop(c: Context, cond_graph: Any, body_graph: Any, carried: Sequence[Any], extra: Sequence[Any] = ()) -> Any:
    if not all(isinstance(v, Value) for v in carried):
        raise c.unsupported("a carried value that is no tensor")
    if draws(cond_graph):
        raise c.unsupported("random numbers in the condition of a loop")
    state = random_of(c, body_graph)
    count = len(carried)

    def condition(b: Builder, *values: Value) -> Value:
        (holds,) = region(c, cond_graph, b, [*values[:count], *extra], ())
        return Context(b, c.symbols).reshape(holds, ())

    def body(b: Builder, *values: Value) -> list[Value]:
        return region(c, body_graph, b, [*values[:count], *extra], values[count:])

    return settled(c, c.b.while_(*carried, *state, cond=condition, body=body), state)


_TWICE = "a loop that runs twice, to count its steps and to keep its values"


@higher_order("while_loop_stack_output")
def while_loop_stack_output(
    c: Context, cond_graph: Any, body_graph: Any, carried: Sequence[Any], extra: Sequence[Any] = ()
) -> tuple[Value, ...]:  # fmt: skip
    """The carried values after each step, one row per step; those at the start where there is none.

    The loop runs twice: first its steps are counted, which gives the size of the results, then the rows are filled.
    """
    if draws(cond_graph) or draws(body_graph):
        raise c.unsupported(f"random numbers in {_TWICE}")
    count = len(carried)

    def condition(b: Builder, *values: Value) -> Value:
        (holds,) = region(c, cond_graph, b, [*values[:count], *extra], ())
        return Context(b, c.symbols).reshape(holds, ())

    def step(b: Builder, values: Sequence[Value]) -> list[Value]:
        following = b.add(values[count], b.const(1, I64))
        return [*region(c, body_graph, b, [*values[:count], *extra], ()), following]

    zero = c.scalar(0, I64)
    steps = c.b.while_(*carried, zero, cond=condition, body=lambda b, *values: step(b, values))[-1]
    if any(op.name == "neuron.custom_call" for op in steps.owner.walk()):
        raise c.unsupported(f"an operation that torch runs on the host, in {_TWICE}")
    size = c.bind_size(c.b.maximum(steps, c.scalar(1, I64)), c.outs[0].shape[0])
    rows = [c.broadcast(v, (size, *v.shape)) for v in carried]

    def kept(b: Builder, *values: Value) -> list[Value]:
        new, at = step(b, values[: count + 1]), values[count]
        zeros = b.const(0, I64)
        filled = [
            b.dynamic_update_slice(
                held, b.reshape(v, out=TensorType((1, *v.shape), v.dtype)), at, *[zeros] * len(v.shape), policy="clamp"
            )
            for held, v in zip(values[count + 1 :], new[:count], strict=True)
        ]
        return [*new, *filled]

    def more(b: Builder, *values: Value) -> Value:
        return b.compare(values[count], steps, direction="LT")  # type: ignore[no-any-return]

    return tuple(c.b.while_(*carried, zero, *rows, cond=more, body=kept)[count + 1 :])


@higher_order("scan")
def scan(c: Context, graph: Any, inits: Sequence[Value], stacked: Sequence[Value], extra: Sequence[Any] = ()) -> Any:
    count, state = len(inits), random_of(c, graph)
    carry = count + len(state)

    def body(b: Builder, *values: Value) -> list[Value]:
        results = region(c, graph, b, [*values[:count], *values[carry:], *extra], values[count:carry])
        return [*results[:count], *results[len(results) - len(state) :], *results[count : len(results) - len(state)]]

    made = c.b.scan(*inits, *state, *stacked, num_carry=carry, length=_length(c, stacked), body=body)
    results = made if isinstance(made, tuple) else (made,)
    return settled(c, (*results[:count], *results[carry:], *results[count:carry]), state)


@higher_order("map_impl")
def map_(c: Context, graph: Any, stacked: Sequence[Value], extra: Sequence[Any] = ()) -> Any:
    return scan(c, graph, (), stacked, extra)


def _length(c: Context, stacked: Sequence[Value]) -> int:
    length = stacked[0].shape[0] if stacked else None
    if not isinstance(length, int):
        raise c.unsupported(f"{length} steps: their number must be known")
    return length


# --- regions that only mark a part of the program ---------------------------------------------------------------------


@higher_order("invoke_subgraph")
def invoke_subgraph(c: Context, graph: Any, _name: Any, *operands: Any) -> Any:
    return inline(c, graph, operands)


@higher_order(
    "tag_activation_checkpoint", "wrap_activation_checkpoint", "wrap", "local_map_hop", "invoke_quant_packed", "invoke_quant",
)  # fmt: skip
def marked(c: Context, graph: Any, *operands: Any, **_options: Any) -> Any:
    return inline(c, graph, operands)


@higher_order("strict_mode", "run_const_graph")
def marked_list(c: Context, graph: Any, operands: Sequence[Any]) -> Any:
    return inline(c, graph, operands)


@higher_order("hints_wrapper")
def hints_wrapper(c: Context, graph: Any, operands: Sequence[Any], named: Any = None, hints: Any = None) -> Any:
    if named:
        raise c.unsupported("keyword arguments of a region")
    return inline(c, graph, operands)


@higher_order("wrap_with_set_grad_enabled")
def wrap_with_set_grad_enabled(c: Context, _enabled: bool, graph: Any, *operands: Any) -> Any:
    return inline(c, graph, operands)


# --- one operation inside of another -----------------------------------------------------------------------------------


@higher_order("with_effects")
def with_effects(c: Context, token: Any, op: Any, *args: Any, **options: Any) -> tuple[Any, ...]:
    """An operation with an effect, in torch's order: a token, then its results."""
    results = applied(c, op, c.node.args[2:], args, options)
    return (token, *results) if isinstance(results, tuple | list) else (token, results)


def applied(c: Context, op: Any, nodes: Any, args: Any, options: Any) -> Any:
    """The results of ``op`` by its own rule, which is shown a node of that operation; torch gives the one at hand no types."""
    import torch

    rule = rules().get(str(op))
    if rule is None:
        raise c.unsupported(f"{op} has no rule")
    node = c.node
    given, named = torch.fx.node.map_arg((nodes, dict(node.kwargs)), lambda n: n.meta["val"])
    mode = next((v.fake_mode for v in _compat.get("tree_leaves")(given) if hasattr(v, "fake_mode")), None)
    with mode or _compat.get("FakeTensorMode")():
        val = op(*given, **named)
    with shown(c, op, args=nodes, meta={**node.meta, "val": val}):
        return rule(c, *args, **options)


@contextmanager
def shown(c: Context, op: Any, **fields: Any) -> Iterator[None]:
    """While it lasts, rules see a node of the operation ``op``: the one at hand but for ``fields``."""
    node = c.node
    own = {name: getattr(node, name) for name in ("args", "kwargs", "meta", "name", "users", "all_input_nodes")}
    c.node = SimpleNamespace(target=op, **own | fields)
    try:
        yield
    finally:
        c.node = node
