"""``torch.compile(model, backend="neuron")``: Dynamo's graphs, forward and backward, run on the reference accelerator.

AOTAutograd makes the graphs functional; parameters and buffers are inputs of them, so no weight is ever copied, and an
optimiser that changes parameters in place is seen by the next call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from neuron_ir.diagnostics import fail, nearest
from neuron_ir.frontends.torch import _compat
from neuron_ir.frontends.torch.decompositions import KEEP, decomposition_table
from neuron_ir.frontends.torch.export import FunctionalProgram
from neuron_ir.frontends.torch.importer import import_program
from neuron_ir.frontends.torch.lowering import rules
from neuron_ir.frontends.torch.signature import INPUT, OUTPUT, ProgramInput, ProgramOutput, ProgramSignature
from neuron_ir.specialise import specialise

if TYPE_CHECKING:
    import torch

__all__ = ["neuron"]

OPTIONS = {
    "passes": "A pipeline that runs on every graph, such as ``precision{dtype=bf16}``.",
    "target": "The target to compile for (default ``reference``).",
    "seed": "Where random numbers start (default: torch's own initial seed).",
}


def neuron(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **_: Any
) -> Any:
    """The backend that ``torch.compile`` looks up by the name ``neuron``; ``options`` are those of ``OPTIONS``."""
    chosen = dict(options or {})
    for name in chosen:
        if name not in OPTIONS:
            raise fail("pass", f"the neuron backend has no option {name!r}{nearest(name, OPTIONS)}")

    import torch

    # A backward pass may be compiled and run inside a frame that Dynamo watches: it must trace neither.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def compile_graph(inner: torch.fx.GraphModule, _inputs: Sequence[Any]) -> Any:
        with _compat.get("unset_fake_temporarily")():  # tensors that the graph holds are real ones
            boxed = _compat.get("make_boxed_func")(_Runner(inner, chosen))
        run = torch.compiler.disable(boxed)
        run._boxed_call = True
        return run

    return _compat.get("aot_module_simplified")(
        graph,
        example_inputs,
        fw_compiler=compile_graph,
        bw_compiler=compile_graph,
        inference_compiler=compile_graph,
        decompositions=decomposition_table(KEEP & rules().keys()),
    )


class _Runner:
    """One functional graph in torch's calling convention: sizes among the tensors, a list of results."""

    def __init__(self, graph: torch.fx.GraphModule, options: Mapping[str, Any]):
        from neuron_ir.backends.base import compile

        program = _described(graph)
        seed = options.get("seed")
        module = import_program(program, "graph", seed=_initial_seed() if seed is None else seed, sizes=True)
        if options.get("passes"):
            from neuron_ir.passmanager import run_passes

            run_passes(module, options["passes"])
        self.compile = lambda m: compile(m, options.get("target", "reference"))
        self.module = module
        self.compiled: dict[tuple[int, ...], Any] = {}
        output = next(n for n in reversed(graph.graph.nodes) if n.op == "output")
        self.ints = [_is_size(item) for item in output.args[0]]

    def __call__(self, *inputs: Any) -> list[Any]:
        import torch

        sizes = tuple(int(inputs[position]) for position, _, _ in self.module.main.attrs.get("size_inputs", ()))
        if not self.ints:
            return []
        results = self.program(sizes)(*[x for x in inputs if isinstance(x, torch.Tensor)])
        listed = [results] if len(self.ints) == 1 else results
        return [self.given(value, is_int) for value, is_int in zip(listed, self.ints, strict=True)]

    def program(self, sizes: tuple[int, ...]) -> Any:
        """The compiled program for the sizes that torch gives beside the tensors; other symbols follow from the tensors' shapes."""
        found = self.compiled.get(sizes)
        if found is None:
            given = zip(self.module.main.attrs.get("size_inputs", ()), sizes, strict=True)
            known = {dim: size for (_, _, dim), size in given if dim in self.module.main.dims}
            found = self.compiled[sizes] = self.compile(specialise(self.module, known) if known else self.module)
        return found

    def given(self, value: Any, is_int: bool) -> Any:
        """A result as torch expects it: sizes as numbers, arrays of a program without inputs as tensors."""
        import torch

        if is_int:
            return int(value)
        return value if value is None or isinstance(value, torch.Tensor | int | float | bool) else torch.from_numpy(value)


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
            ProgramInput(INPUT, node.name, node.name, True, isinstance(value, int), value if isinstance(value, int) else None)
        )
    output = next(n for n in reversed(graph.graph.nodes) if n.op == "output")
    outputs = [
        ProgramOutput(OUTPUT, item.name) if hasattr(item, "name") else ProgramOutput(OUTPUT, "", "", True, item)
        for item in output.args[0]
    ]
    signature = ProgramSignature(tuple(inputs), tuple(outputs), {})
    return FunctionalProgram(graph.graph, graph, signature, ranges, False)


def _is_size(item: Any) -> bool:
    return type(getattr(item, "meta", {}).get("val")).__name__ == "SymInt"


def _initial_seed() -> int:
    import torch

    return torch.initial_seed() % 2**64
