"""``torch.compile(model, backend="neuron")``: Dynamo's graphs, forward and backward, run on the reference accelerator.

AOTAutograd makes the graphs functional; parameters and buffers are inputs of them, so no weight is ever copied, and an
optimiser that changes parameters in place is seen by the next call.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from neuron_ir.diagnostics import IRError
from neuron_ir.frontends.torch import _compat
from neuron_ir.frontends.torch.artifacts import take_part
from neuron_ir.frontends.torch.compile_options import CompileOptions, graph_name, is_unsupported
from neuron_ir.frontends.torch.compiled_graph import CompiledGraph, import_graph
from neuron_ir.frontends.torch.decompositions import decomposition_table
from neuron_ir.frontends.torch.lowering import kept_operations

if TYPE_CHECKING:
    import torch

__all__ = ["neuron"]

log = logging.getLogger(__name__)


def neuron(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Any:
    """The backend that ``torch.compile`` looks up by the name ``neuron``; ``options`` are the fields of :class:`CompileOptions`."""
    chosen = CompileOptions.of(options, mode)
    take_part()
    return _compat.get("aot_module_simplified")(
        graph,
        example_inputs,
        fw_compiler=partial(_compile, "forward", chosen),
        bw_compiler=partial(_compile, "backward", chosen),
        inference_compiler=partial(_compile, "inference", chosen),
        decompositions=decomposition_table(kept_operations()),
    )


def _compile(kind: str, options: CompileOptions, graph: torch.fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
    """One functional graph as a function of a list of inputs, which it empties, in torch's boxed calling convention."""
    import torch

    made = torch.compiler.disable(_compiled)(kind, options, graph)
    # A backward pass may run inside a frame that Dynamo watches, which must not trace it. The others are called from Dynamo's own
    # code, untraced; one more layer of that would cost on every call.
    run = torch.compiler.disable(made) if kind == "backward" else made

    def boxed(inputs: list[Any]) -> Any:
        given = tuple(inputs)
        inputs.clear()
        return run(*given)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def _compiled(kind: str, options: CompileOptions, graph: torch.fx.GraphModule) -> Callable[..., Any]:
    """The graph on the target; as torch itself runs it where it has an operation without a rule and the user allows that."""
    name = graph_name()
    with _compat.get("unset_fake_temporarily")():  # tensors that the graph holds are real ones
        log.info("%s (%s): %d nodes", name, kind, len(graph.graph.nodes))
        options.dump(kind, name, "graph.py", partial(graph.print_readable, print_output=False))
        try:
            module = import_graph(graph, options.seed)
        except IRError as error:
            if options.fallback != "eager" or not is_unsupported(error):
                raise
            _tell_fallback(name, kind, error)
            return graph.forward
        return CompiledGraph(graph, module, options, kind, name)


def _tell_fallback(name: str, kind: str, error: IRError) -> None:
    """Say that a graph runs with torch, and count it where torch counts such things."""
    _compat.get("counters")["neuron"]["graphs run eagerly"] += 1
    for diagnostic in error.diagnostics:
        _compat.get("counters")["neuron_unsupported"][diagnostic.message] += 1
    warnings.warn(f"{name} ({kind}) runs eagerly, not on the accelerator:\n{error}", stacklevel=2)
