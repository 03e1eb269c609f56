"""A functional ATen graph as a module of the Neuron IR."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from neuron_ir.attrs import Symbol
from neuron_ir.builder import Builder
from neuron_ir.core import Func, Module, Value, bulk
from neuron_ir.diagnostics import Diagnostic, IRError, fail
from neuron_ir.dims import Dim
from neuron_ir.frontends.torch.export import FunctionalProgram, export, functionalize
from neuron_ir.frontends.torch.locations import node_location
from neuron_ir.frontends.torch.lowering import Context, rules
from neuron_ir.frontends.torch.signature import BUFFER, CONSTANT, INPUT, OUTPUT, PARAMETER, ProgramInput
from neuron_ir.frontends.torch.symbols import Symbols

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

__all__ = ["from_torch", "import_program"]

_KINDS = {PARAMETER: "weight", BUFFER: "buffer", CONSTANT: "weight"}

# Nodes without a value of their own: checks that torch already made while it traced.
_CHECKS = frozenset(
    """
    aten._assert_tensor_metadata.default aten._assert_async.msg aten._assert_async.default aten._assert_scalar.default
    aten.sym_constrain_range.default aten.sym_constrain_range_for_size.default aten.lift_fresh_copy.default
""".split()
) - {"aten.lift_fresh_copy.default"}


def from_torch(
    module: torch.nn.Module | Callable[..., Any] | ExportedProgram,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
) -> Module:
    """Import a PyTorch program: a module or function with example inputs, or a ``torch.export.ExportedProgram``.

    Weights are shared with the module, not copied. Composites (softmax, layer norm, attention, ...) stay whole. Raises
    :class:`IRError` listing every operation that has no meaning here, each with the user's source line.

    >>> import torch, neuron_ir
    >>> print(neuron_ir.from_torch(torch.nn.Softmax(-1), (torch.zeros(2, 3),)).main)
    func @main(%input: tensor<2x3xf32> {name = "input"}) -> tensor<2x3xf32> {
      %softmax = neuron.softmax(%input) : tensor<2x3xf32>
      func.return(%softmax)
    }
    <BLANKLINE>
    """
    program = export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)
    return import_program(functionalize(program), name=type(module).__name__ if program is not module else "main")


def import_program(program: FunctionalProgram, name: str = "main") -> Module:
    """Import a functional graph. The result verifies."""
    with bulk():
        module = _Importer(program, name).run()
    module.verify()
    return module


class _Importer:
    """Walks the graph once, node by node."""

    def __init__(self, program: FunctionalProgram, name: str):
        self.program = program
        self.module = Module(name)
        self.module.attrs["source"] = "torch"
        self.func = self.module.add(Func("main"))
        self.symbols = Symbols(program.ranges)
        self.context = Context(Builder(self.func.body), self.symbols)
        self.values: dict[Any, Any] = {}
        self.arg_index: dict[str, int] = {}  # target of a buffer or input -> argument
        self.errors: list[Diagnostic] = []

    def run(self) -> Module:
        inputs = iter(self.program.signature.inputs)
        table = rules()
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self.placeholder(node, next(inputs))
            elif node.op == "call_function":
                self.call(node, table)
            elif node.op == "get_attr":
                self.values[node] = getattr_path(self.program.owner, node.target)
            elif node.op == "output" and not self.errors:
                self.output()
        if self.errors:
            raise IRError(self.errors)
        self.func.dims = dict(sorted(self.symbols.used.items()))
        return self.module

    def placeholder(self, node: Any, entry: ProgramInput) -> None:
        fake = node.meta.get("val")
        if entry.is_fixed:
            self.fixed("fixed_inputs", sum(i.kind == INPUT for i in self.program.signature.inputs[: self.index_of(entry)]), entry)
            self.values[node] = entry.value
            return
        if not hasattr(fake, "dtype"):
            self.not_a_tensor(node, entry, fake)
            return
        kind = _KINDS.get(entry.kind, "input")
        attrs: dict[str, Any] = {"kind": kind, "name": entry.target} if kind != "input" else {"name": entry.target}
        value = self.func.add_arg(self.symbols.type_of(fake), _hint(entry.target or node.name), **attrs)
        self.arg_index[entry.target] = value.index
        if kind != "input":
            self.module.weights[entry.target] = self.program.signature.weights[entry.target].detach()
        self.values[node] = value

    def index_of(self, entry: ProgramInput) -> int:
        return next(i for i, e in enumerate(self.program.signature.inputs) if e is entry)

    def fixed(self, attr: str, position: int, entry: Any) -> None:
        """Note a user input or output that is no tensor but a value built into the program."""
        value = Symbol("none") if entry.value is None else entry.value
        if not isinstance(value, bool | int | float | str):
            raise fail("unsupported", f"{entry.name}: a {type(value).__name__} cannot be an input or output of a program")
        self.func.attrs[attr] = (*self.func.attrs.get(attr, ()), (position, value))

    def not_a_tensor(self, node: Any, entry: ProgramInput, fake: Any) -> None:
        if type(fake).__name__ == "SymInt":
            self.values[node] = self.symbols.dim(fake)
            return
        raise fail("unsupported", f"the input {entry.target or node.name} is a {type(fake).__name__}; tensors are needed")

    def call(self, node: Any, table: Mapping[str, Callable[..., Any]]) -> None:
        name = str(node.target)
        if node.target is operator.getitem:
            source = self.values[node.args[0]]
            self.values[node] = source[node.args[1]] if source is not None else None
            return
        fake = node.meta.get("val")
        if type(fake).__name__ == "SymInt":
            self.values[node] = self.symbols.dim(fake)
            return
        if name in _CHECKS or fake is None and not node.users and type(node.target).__name__ != "OpOverload":
            return
        context = self.context
        context.node, context.b.loc = node, node_location(node, self.program.origins)
        rule = table.get(name)
        try:
            if rule is None:
                raise fail("unsupported", f"{name} has no rule here", context.loc)
            self.values[node] = self.finish(node, rule(context, *self.resolve(node.args), **self.resolve(node.kwargs)))
        except IRError as error:
            self.errors.extend(error.diagnostics)
            self.values[node] = self.stand_in(node)

    def finish(self, node: Any, value: Any) -> Any:
        """Check a rule's result against the type that torch computed, and name it."""
        for given, wanted in zip(value if isinstance(value, tuple | list) else (value,), self.context.outs, strict=False):
            if isinstance(given, Value) and (given.dtype is not wanted.dtype or len(given.shape) != len(wanted.shape)):
                message = f"{node.target}: the rule gives {given.type} where torch gives {wanted}"
                raise fail("unsupported", message, self.context.loc)
        if isinstance(value, Value) and value.op is not None and not value.name:
            value.name = _hint(node.name)
        return value

    def stand_in(self, node: Any) -> Any:
        """A value of the right type for the result of a refused operation, so that the rest is still checked."""
        val = node.meta.get("val")
        values = [self.context.scalar(0, t.dtype, t.shape) for t in self.context.outs]
        return tuple(values) if isinstance(val, tuple | list) else values[0] if values else None

    def resolve(self, item: Any) -> Any:
        """A node's arguments with values for nodes and dims for symbolic sizes."""
        if isinstance(item, tuple | list):
            return [self.resolve(i) for i in item]
        if isinstance(item, dict):
            return {k: self.resolve(v) for k, v in item.items()}
        if type(item).__name__ == "Node":
            return self.values[item]
        return item

    def output(self) -> None:
        """Put the return: user outputs first come as the signature lists them, updates with the argument they write."""
        node = next(n for n in reversed(self.program.graph.nodes) if n.op == "output")
        values: list[Value] = []
        attrs: list[dict[str, Any]] = []
        position = 0
        for entry, item in zip(self.program.signature.outputs, node.args[0], strict=True):
            value = self.resolve(item)
            is_user = entry in self.program.signature.user_outputs
            if isinstance(value, Dim):
                value = self.context.size_as_value(value)
            if not isinstance(value, Value):
                if is_user:
                    self.fixed("fixed_outputs", position, entry if entry.is_fixed else _Fixed(entry.name, value))
                    position += 1
                continue
            position += is_user
            values.append(value)
            if is_user:
                attrs.append({"name": entry.name} if entry.kind == OUTPUT else {"name": entry.name, "role": entry.kind})
            else:
                attrs.append({"updates": self.arg_index[entry.target]})
        self.func.set_results(values, attrs)


class _Fixed:
    def __init__(self, name: str, value: Any):
        self.name, self.value = name, value


def _hint(name: str) -> str:
    return name.replace(".", "_") if name.isidentifier() or "." in name else ""


def getattr_path(owner: Any, path: str) -> Any:
    """``owner.a.b`` for ``"a.b"``."""
    for part in path.split("."):
        owner = getattr(owner, part)
    return owner
