"""From a torch module to a functional ATen graph in which composites are whole.

`torch.export` gives a graph with the composites that we want but with in-place operations and hidden
regions. torch's own remedy, `run_decompositions`, traces the whole program again and takes as long as the
export. Most inference programs need none of it: here each node that must be decomposed is traced alone, and
the whole program is traced again only when it really writes to a tensor or holds a higher-order operation.
Both ways end in the same vocabulary, that of `decompositions.decomposition_table`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

from neuron_ir.diagnostics import IRError, fail
from neuron_ir.frontends.torch import _compat
from neuron_ir.frontends.torch.decompositions import KEEP, decomposition_table, retrace_table
from neuron_ir.frontends.torch.inplace import rewrite_private_writes
from neuron_ir.frontends.torch.locations import node_location
from neuron_ir.frontends.torch.shared import merge_shared_inputs
from neuron_ir.frontends.torch.signature import ProgramSignature, read_signature

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

# Regions that only switch a mode of the tracer or mark a part: inlined. The value is the position of the inner graph.
_SET_GRAD = "wrap_with_set_grad_enabled"
_AUTOCAST = "wrap_with_autocast"
_REGION_ARGUMENT = {_SET_GRAD: 1, _AUTOCAST: 4, "tag_activation_checkpoint": 0, "wrap": 0}

# What export leaves of `torch.vmap`: calls that only torch itself can carry out, by tracing the program again.
_VMAP_MODULE = "torch._functorch.predispatch"

# Weights of a tensor class of Python's are read part by part; a second trace gives the parts as weights of their own.
_SUBCLASS = "export.access_subclass_inner_tensor"

_STRICT_OUT = frozenset({"aten.complex.out", "aten.aminmax.out"})

_MADE_OF = "neuron_made_of"  # the key of a node's meta for what `operation_of` gives

_OVERLOAD = re.compile(r"\w+\.\w+\.\w+")

# In-place by name only: they change flags of the tensor object, never its values.
_HARMLESS_IN_PLACE = {"aten.detach_.default": "detach"}

# Their schema says functional, yet they write to the running statistics: name -> (first statistic, training flag).
_HIDDEN_WRITES = {
    "aten.batch_norm.default": (3, 5),
    "aten.instance_norm.default": (3, 5),
    "aten.native_batch_norm.default": (3, 5),
    "aten._batch_norm_impl_index.default": (3, 5),
    "aten.cudnn_batch_norm.default": (3, 5),
    "aten.miopen_batch_norm.default": (3, 5),
}


@dataclass(frozen=True, slots=True)
class FunctionalProgram:
    """A functional graph of ATen operations, its signature, and the ranges of its symbols.

    `graph` takes and gives what `signature` lists, in that order; `owner` holds the sub-graphs that
    `get_attr` nodes name. `origins` maps a node's name in the graph that torch exported to that node's
    meta, for nodes whose own trace was lost on the way. `guards` are the conditions on input sizes under
    which torch traced. Nothing here is shared with the user's ExportedProgram except the tensors.
    """

    graph: torch.fx.Graph
    owner: torch.nn.Module
    signature: ProgramSignature
    ranges: Mapping[Any, Any]
    retraced: bool
    origins: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    guards: tuple[str, ...] = ()


def export(
    module: torch.nn.Module | Callable[..., Any] | ExportedProgram,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
) -> ExportedProgram:
    """Run `torch.export.export` on a module or a plain function; give an ExportedProgram back unchanged.

    `args` must be a tuple of example inputs; `dynamic_shapes` is torch's own argument of that name.
    """
    import torch

    if isinstance(module, torch.export.ExportedProgram):
        if args or kwargs or dynamic_shapes is not None:
            raise TypeError("an ExportedProgram carries its own inputs and shapes: give it alone")
        return module
    if not isinstance(args, tuple):
        raise TypeError(f"example inputs must be a tuple, got {type(args).__name__}")
    if not isinstance(module, torch.nn.Module):
        module = _as_module(module)
    args, kwargs = _distinct(module, (args, dict(kwargs or {})))
    return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)


def _distinct(module: torch.nn.Module, inputs: Any) -> Any:
    """The inputs with a copy of each tensor that is there twice or is a parameter or buffer of the module.

    torch takes one tensor object for one value: what it exports with `f(x, x)` gives `f(y, y)` for `f(x, y)`.
    """
    import torch

    seen = {id(t) for tensors in (module.parameters(), module.buffers()) for t in tensors}

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) in seen:
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)
        seen.add(id(leaf))
        return leaf

    return _compat.get("tree_map")(one, inputs)


def functionalize(program: ExportedProgram, keep: frozenset[str] = KEEP) -> FunctionalProgram:
    """Make an exported program functional, with every operation in `keep` whole and the rest decomposed.

    The values are those of the exported program; each mutation of a buffer or of an input becomes an
    extra output that `signature` names. Takes time linear in the size of the graph.
    """
    import torch

    owner = torch.fx.GraphModule(program.graph_module, _copy_graph(program.graph))
    _refuse_sparse(owner.graph)
    _refuse_other_out(owner.graph)
    _inline_mode_regions(owner)
    _rename_harmless(owner.graph)
    rewrite_private_writes(owner.graph)
    origins, guards = _origins(program.graph_module), _compat.guards(program)
    if _must_retrace(owner.graph):
        merged = merge_shared_inputs(program, owner.graph)
        owner.recompile()
        program = _traced_again(_compat.with_graph_module(program, owner, merged), keep)
        owner = program.graph_module
        return FunctionalProgram(owner.graph, owner, read_signature(program), program.range_constraints, True, origins, guards)
    _decompose_nodes(owner.graph, decomposition_table(keep))
    owner.graph.eliminate_dead_code(is_impure_node=_is_kept_without_users)
    return FunctionalProgram(owner.graph, owner, read_signature(program), program.range_constraints, False, origins, guards)


def _traced_again(program: ExportedProgram, keep: frozenset[str]) -> ExportedProgram:
    """torch's functional form of a program; what torch itself cannot bring into that form is refused in its words."""
    try:
        return program.run_decompositions(retrace_table(keep))
    except IRError:  # a decomposition of ours says itself what is wrong, and where
        raise
    except Exception as error:  # torch has no common class for this
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise fail("unsupported", f"torch cannot bring the program into a functional form: {reason}") from error


def _refuse_sparse(graph: torch.fx.Graph) -> None:
    """An input that is no dense tensor has no strides, which everything after this reads."""
    import torch

    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            raise fail("unsupported", f"the input {node.name} has the layout {value.layout}; dense tensors are needed")


def _refuse_other_out(graph: torch.fx.Graph) -> None:
    """Some operations take no ``out=`` of another element type than their result's; made functional, they would cast."""
    for node in graph.nodes:
        if _name(node) not in _STRICT_OUT:
            continue
        wanted = node.args[0].meta["val"].dtype
        wanted = wanted.to_complex() if _name(node) == "aten.complex.out" else wanted
        for out in (a for a in node.kwargs.values() if hasattr(a, "meta")):
            given = out.meta["val"].dtype
            if given is not wanted:
                place = node_location(node, {})
                raise fail("unsupported", f"{node.target}: an out= of {given} for a result of {wanted}", place)


def _as_module(function: Any) -> torch.nn.Module:
    """A module whose forward is `function`, since torch.export takes modules only."""
    import torch

    if not callable(function):
        raise TypeError(f"expected a torch module, a function or an ExportedProgram, got {type(function).__name__}")

    module = torch.nn.Module()
    module.forward = _named_forward(function)  # an instance attribute, so that torch sees the function's own argument names
    return module


def _named_forward(function: Any) -> Any:
    """The function under the name ``forward``: torch keeps the source lines of frames of that name only."""
    if isinstance(function, BuiltinFunctionType):  # torch asks for a signature, which these do not have
        return lambda *args, **kwargs: function(*args, **kwargs)
    if not isinstance(function, FunctionType):
        return function
    code = function.__code__.replace(co_name="forward")
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, function.__annotations__
    return copy


def _copy_graph(graph: torch.fx.Graph) -> torch.fx.Graph:
    """A copy whose nodes have their own meta dicts, the `output` node included."""
    import torch

    copy = torch.fx.Graph()
    env: dict[Any, Any] = {}
    for node in graph.nodes:
        env[node] = copy.node_copy(node, env.__getitem__)
        env[node].name = node.name  # the signature refers to it; node_copy would rename `input` to `input_1`
    return copy


def _origins(module: torch.nn.Module) -> dict[str, Mapping[str, Any]]:
    """Node name -> meta for the nodes inside regions, whose traces torch loses when it traces again."""
    import torch

    origins: dict[str, Mapping[str, Any]] = {}
    for _, child in module.named_modules():
        if isinstance(child, torch.fx.GraphModule) and child is not module:
            for node in child.graph.nodes:
                if node.op == "call_function":
                    origins.setdefault(node.name, node.meta)
    return origins


def _name(node: torch.fx.Node) -> str:
    return str(node.target) if node.op == "call_function" else ""


def _is_kept_without_users(node: torch.fx.Node) -> bool:
    """Run-time checks have no users and must stay; a tensor's metadata is known statically."""
    if node.op in ("placeholder", "output"):
        return True
    name, target = _name(node), node.target
    if isinstance(target, _compat.get("OpOverload")) and target.namespace not in ("aten", "prims") and not target._schema.returns:
        return True  # an operation of the user's own that is called for its effect
    return name.startswith(("aten._assert_", "aten._linalg_check_")) and name != "aten._assert_tensor_metadata.default"


# -- regions -----------------------------------------------------------------


def _inline_mode_regions(owner: torch.fx.GraphModule) -> None:
    """Inline gradient-mode regions and switched-off autocast regions; one with autocast on needs a new trace."""
    graph = owner.graph
    for node in list(graph.nodes):
        position = _REGION_ARGUMENT.get(_name(node))
        if position is None or (_name(node) == _AUTOCAST and node.args[2]):
            continue
        region_node, inputs = node.args[position], node.args[position + 1 :]
        region = owner.get_submodule(region_node.target)
        _inline_mode_regions(region)
        _inline(node, region.graph, inputs)
        if not region_node.users:
            graph.erase_node(region_node)


def _inline(node: torch.fx.Node, inner: torch.fx.Graph, inputs: tuple[Any, ...], decomposed: bool = False) -> None:
    """Put a copy of `inner` before `node`, bind its placeholders to `inputs`, and give its results to node's users.

    `decomposed`: the copies remember the operation that they make up, see `operation_of`.
    """
    graph = node.graph
    env: dict[Any, Any] = dict(zip((n for n in inner.nodes if n.op == "placeholder"), inputs, strict=True))
    result: Any = None
    with graph.inserting_before(node):
        for inner_node in inner.nodes:
            if inner_node.op == "placeholder":
                continue
            if inner_node.op == "output":
                result = _map_nodes(inner_node.args[0], env)
                continue
            copy = graph.node_copy(inner_node, env.__getitem__)
            for key in ("stack_trace", "nn_module_stack", "from_node"):
                if key in node.meta and (key != "from_node" and not copy.meta.get(key)):
                    copy.meta[key] = node.meta[key]
            if decomposed:
                copy.meta[_MADE_OF] = operation_of(node)
            env[inner_node] = copy
    _replace(node, result)


def operation_of(node: torch.fx.Node, retraced: bool = False) -> tuple[str, str]:
    """Name and target of the exported operation of which a node of a functional graph is (a part of) the decomposition."""
    found: tuple[str, str] = node.meta.get(_MADE_OF) or (node.name, str(node.target))
    sources = node.meta.get("from_node") if retraced else None
    while sources:
        source = sources[-1]
        if _OVERLOAD.fullmatch(str(source.target)):  # strict export goes back further, to Python's own functions
            found = source.name, str(source.target)
        sources = source.from_node
    return found


def _replace(node: torch.fx.Node, result: Any) -> None:
    """Erase `node`; its users (getitem nodes, where the result is a tuple) read `result` instead."""
    if isinstance(result, (tuple, list)):
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise TypeError(f"{user.format_node()} uses a tuple of results as a whole")
            user.replace_all_uses_with(result[user.args[1]])
            node.graph.erase_node(user)
    else:
        node.replace_all_uses_with(result)
    node.graph.erase_node(node)


def _map_nodes(tree: Any, env: Mapping[Any, Any]) -> Any:
    import torch

    return torch.fx.node.map_arg(tree, lambda n: env[n])


# -- must the whole be traced again? -----------------------------------------


def _rename_harmless(graph: torch.fx.Graph) -> None:
    """Give operations that only pass their input on a plain name.

    Evaluation dropout gives its input itself; torch's second trace takes it for a copy, which would miss later writes.
    """
    import torch

    for node in graph.nodes:
        name = _HARMLESS_IN_PLACE.get(_name(node))
        if name is not None:
            node.target = getattr(torch.ops.aten, name).default
        if _name(node) == "aten.dropout.default" and (node.args[1] == 0 or not node.args[2]):
            node.target, node.args = torch.ops.aten.alias.default, node.args[:1]


def _must_retrace(graph: torch.fx.Graph) -> bool:
    """True when a node writes to a tensor, in the open or hidden, or is a higher-order operation."""
    overload = _compat.get("OpOverload")
    higher_order = _compat.get("HigherOrderOperator")
    for node in graph.nodes:
        if node.op == "get_attr" or isinstance(node.target, higher_order):
            return True
        if getattr(node.target, "__module__", "") == _VMAP_MODULE or _name(node).startswith(_SUBCLASS):
            return True
        if isinstance(node.target, overload) and (node.target._schema.is_mutable or _writes_hidden(node)):
            return True
    return False


def _writes_hidden(node: torch.fx.Node) -> bool:
    positions = _HIDDEN_WRITES.get(_name(node))
    if positions is None:
        return False
    statistic, training = (node.args[p] for p in positions)
    return bool(training) and statistic is not None


# -- decompose node by node --------------------------------------------------


def _decompose_nodes(graph: torch.fx.Graph, table: Mapping[Any, Callable[..., Any]]) -> None:
    """Replace each node that `table` decomposes by the trace of that node alone; equal nodes are traced once."""
    traces: dict[Any, torch.fx.Graph] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in table:
            continue
        if node.meta.get("unbacked_bindings"):
            continue  # a trace of its own would give the sizes that its data decide other symbols
        key = _trace_key(node)
        inner = traces.get(key) if key is not None else None
        if inner is None:
            inner = _trace_or_leave(node, table)
            if inner is None:
                continue
            if key is not None:
                traces[key] = inner
        _inline(node, inner, tuple(node.all_input_nodes), decomposed=True)


def _trace_or_leave(node: torch.fx.Node, table: Mapping[Any, Callable[..., Any]]) -> torch.fx.Graph | None:
    """The trace of one operation; ``None`` where torch cannot write it without looking at data, so that it is refused by name."""
    try:
        return _trace_node(node, table)
    except Exception:  # torch has no common class for this
        return None


def _trace_key(node: torch.fx.Node) -> Any:
    """Equal for two nodes whose traces are equal; None when shapes are symbolic."""
    import torch

    def describe(n: torch.fx.Node) -> Any:
        value = n.meta["val"]
        if not isinstance(value, torch.Tensor):
            raise _NoKey
        shape, strides = tuple(value.shape), tuple(value.stride())
        if not all(type(s) is int for s in shape + strides):
            raise _NoKey
        return (value.dtype, shape, strides, value.device, order[n])

    order = {n: i for i, n in enumerate(node.all_input_nodes)}
    try:
        described = torch.fx.node.map_aggregate(
            (node.args, node.kwargs), lambda a: describe(a) if isinstance(a, torch.fx.Node) else (type(a), a)
        )
        return node.target, repr(described)
    except _NoKey:
        return None


class _NoKey(Exception):
    """A symbolic size: the trace depends on the symbol, so it is not shared."""


def _trace_node(node: torch.fx.Node, table: Mapping[Any, Callable[..., Any]]) -> torch.fx.Graph:
    """The graph of one operation after decomposition; its placeholders are `node.all_input_nodes`, in order."""
    import contextlib

    inputs = node.all_input_nodes
    values = [n.meta["val"] for n in inputs]
    fake = _compat.get("FakeTensor")
    mode = next((v.fake_mode for v in values if isinstance(v, fake)), None)
    if mode is None and isinstance(node.meta.get("val"), fake):
        mode = node.meta["val"].fake_mode

    def call(*given: Any) -> Any:
        env = dict(zip(inputs, given, strict=True))
        args, kwargs = _map_nodes((node.args, dict(node.kwargs)), env)
        return node.target(*args, **kwargs)

    with mode or contextlib.nullcontext():
        return trace(call, values, table).graph


def trace(function: Callable[..., Any], values: Sequence[Any], table: Mapping[Any, Callable[..., Any]]) -> torch.fx.GraphModule:
    """The functional graph of a function of fake tensors, decomposed by `table`; its placeholders are `values`, in order."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    def traced(call: Callable[..., Any]) -> torch.fx.GraphModule:
        return make_fx(call, decomposition_table=dict(table), _allow_non_fake_inputs=True)(*values)

    with torch.no_grad():
        module = traced(function)
        # torch writes some of its composites with in-place operations on tensors of their own (quantile, for one)
        return traced(_compat.get("dispatch_functionalize")(function)) if _must_retrace(module.graph) else module
