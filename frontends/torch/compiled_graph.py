"""One functional graph of ``torch.compile``, imported, optimised and run on a target."""

from __future__ import annotations

import logging
import operator
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuron_ir.backends.base import compile
from neuron_ir.core import Module
from neuron_ir.diagnostics import IRError, fail
from neuron_ir.frontends.torch.aliases import ViewedResults
from neuron_ir.frontends.torch.capture import graph_values
from neuron_ir.frontends.torch.compile_options import CompileOptions
from neuron_ir.frontends.torch.export import FunctionalProgram
from neuron_ir.frontends.torch.importer import import_program
from neuron_ir.frontends.torch.signature import INPUT, OUTPUT, TOKEN, ProgramInput, ProgramOutput, ProgramSignature
from neuron_ir.instrument import CrashReproducer, VerifyEach
from neuron_ir.passmanager import PassManager
from neuron_ir.pipeline import parse_pipeline
from neuron_ir.specialise import size_inputs, specialise

if TYPE_CHECKING:
    import torch

__all__ = ["CompiledGraph", "import_graph"]

log = logging.getLogger(__name__)

# Codes under which a pass says that an option or a program is not for it. Any other code is of a pass that failed.
_REFUSALS = ("capacity", "pass", "precision", "unsupported")


def import_graph(graph: torch.fx.GraphModule, seed: int | None) -> Module:
    """A functional graph as a module; all its placeholders are inputs."""
    import torch

    start = torch.initial_seed() % 2**64 if seed is None else seed
    return import_program(_described(graph), "graph", seed=start)


class CompiledGraph:
    """One graph in torch's calling convention: sizes among the tensors, a list of results."""

    def __init__(self, graph: torch.fx.GraphModule, module: Module, options: CompileOptions, kind: str, name: str):
        self.graph, self.module, self.options = graph, module, options
        self.name = f"{name} ({kind})"
        options.dump(kind, name, "imported.nir", partial(module.text, locations=True))
        log.debug("%s, imported:\n%s", self.name, module)
        _optimise(graph, module, options, options.folder(kind, name))
        options.dump(kind, name, "optimised.nir", partial(module.text, locations=True))
        log.debug("%s, after %s:\n%s", self.name, options.passes or "no pass", module)
        self.programs: dict[tuple[int, ...], Any] = {}
        self.size_inputs = size_inputs(module.main)
        output = next(n for n in reversed(graph.graph.nodes) if n.op == "output")
        # torch's tokens come first in a forward graph, last in a backward one
        self.tokens = [i for i, node in enumerate(graph.graph.find_nodes(op="placeholder")) if _is_token(node)]
        self.tokens_given = [i for i, item in enumerate(output.args[0]) if _gives_token(item)]
        self.is_size = [_is_size(item) for item in output.args[0] if not _gives_token(item)]
        self.views = ViewedResults(graph)

    def __call__(self, *given: Any) -> list[Any]:
        results = self.results([x for i, x in enumerate(given) if i not in self.tokens] if self.tokens else given)
        for i in self.tokens_given:
            results.insert(i, None)
        return self.views.remade(given, results) if self.views.positions else results

    def results(self, inputs: Sequence[Any]) -> list[Any]:
        """What the graph gives, without torch's tokens."""
        import torch

        if not self.is_size:
            return []
        sizes = tuple([int(inputs[position]) for position, _, _ in self.size_inputs])
        # isinstance of a tensor runs Python code of torch's: the exact type is asked for first, here and below
        tensors = [x for x in inputs if type(x) is torch.Tensor or isinstance(x, torch.Tensor)]
        listed = self.program(sizes).positional(tensors)
        given = [
            value if type(value) is torch.Tensor and not is_size else self.given(value, is_size)
            for value, is_size in zip(listed, self.is_size, strict=True)
        ]
        if self.options.verify is not False:
            self.verify(inputs, tensors, sizes)
        return given

    def program(self, sizes: tuple[int, ...]) -> Any:
        """The compiled program for the sizes that torch gives beside the tensors; other symbols follow from the tensors' shapes."""
        found = self.programs.get(sizes)
        if found is None:
            found = self.programs[sizes] = compile(self.sized(sizes), self.options.target)
        return found

    def sized(self, sizes: tuple[int, ...]) -> Module:
        """The module for the sizes that torch gives beside the tensors."""
        known = {dim: size for (_, _, dim), size in zip(self.size_inputs, sizes, strict=True) if dim in self.module.main.dims}
        return specialise(self.module, known) if known else self.module

    def given(self, value: Any, is_size: bool) -> Any:
        """A result as torch expects it: sizes as numbers, arrays of a program without inputs as tensors."""
        import torch

        if is_size:
            return int(value)
        return value if value is None or isinstance(value, torch.Tensor | int | float | bool) else torch.from_numpy(value)

    def verify(self, inputs: Sequence[Any], tensors: Sequence[torch.Tensor], sizes: tuple[int, ...]) -> None:
        """Run the graph with torch as well and compare each value that both have.

        What follows from a random draw is passed over: torch's generator gives other numbers. Raises :class:`IRError`
        (``runtime``) at the first operation that is off by more than the option's tolerance.
        """
        import neuron_ir

        given = list(inputs)
        for i in self.tokens:
            given.insert(i, None)
        wanted = graph_values(self.graph, given)
        if not wanted:
            log.info("%s: every value follows from a random draw; nothing to compare", self.name)
            return
        finding = neuron_ir.bisect(self.sized(sizes), lambda *_: wanted, tensors, rtol=self.options.rtol)
        if finding is not None:
            raise fail("runtime", f"{self.name} differs from eager: {finding}", finding.op.loc)


def _optimise(graph: torch.fx.GraphModule, module: Module, options: CompileOptions, folder: Path | None) -> None:
    """Run the pipeline on the module of a graph, in place. What a pass refuses comes out as it is.

    Where a pass fails, it fails again on a fresh module, and what replays it is left in a folder that the error names: below that
    of the graph, or a new one in the system's folder for temporary files.
    """
    passes = parse_pipeline(options.passes)
    try:
        PassManager(passes, [VerifyEach()]).run(module)
    except IRError as error:
        if isinstance(error.__cause__, IRError) and error.code in _REFUSALS:
            raise
        parent = folder or Path(tempfile.mkdtemp(prefix="neuron_ir_"))
        again = PassManager(passes, [VerifyEach(), CrashReproducer(parent / "reproducer")])
        again.run(import_graph(graph, options.seed))
        raise


def _described(graph: torch.fx.GraphModule) -> FunctionalProgram:
    """A functional graph with all its placeholders as inputs."""
    inputs: list[ProgramInput] = []
    ranges: dict[Any, Any] = {}
    for node in (n for n in graph.graph.nodes if n.op == "placeholder"):
        value = node.meta.get("val")
        env = getattr(getattr(value, "fake_mode", None), "shape_env", None) or getattr(
            getattr(value, "node", None), "shape_env", None
        )
        ranges.update(getattr(env, "var_to_range", {}))
        inputs.append(
            ProgramInput(TOKEN, node.name, "")
            if _is_token(node)
            else ProgramInput(INPUT, node.name, node.name, True, isinstance(value, int), value if isinstance(value, int) else None)
        )
    output = next(n for n in reversed(graph.graph.nodes) if n.op == "output")
    outputs = [
        ProgramOutput(TOKEN if _gives_token(item) else OUTPUT, item.name)
        if hasattr(item, "name")
        else ProgramOutput(OUTPUT, "", "", True, item)
        for item in output.args[0]
    ]
    signature = ProgramSignature(tuple(inputs), tuple(outputs), {})
    return FunctionalProgram(graph.graph, graph, signature, ranges, False)


def _is_token(node: torch.fx.Node) -> bool:
    """Whether a placeholder is one of torch's tokens, which order operations with an effect; the call gives ``None`` for it."""
    return any(str(user.target) == "with_effects" and user.args[0] is node for user in node.users)


def _gives_token(item: Any) -> bool:
    """Whether an output is such a token: one that came in, or the first result of what was ordered."""
    if getattr(item, "op", "") == "placeholder":
        return _is_token(item)
    return getattr(item, "target", None) is operator.getitem and item.args[1] == 0 and str(item.args[0].target) == "with_effects"


def _is_size(item: Any) -> bool:
    return type(getattr(item, "meta", {}).get("val")).__name__ == "SymInt"
