"""A functional ATen graph as a module of the Neuron IR."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from neuron_ir.attrs import Resource, Symbol
from neuron_ir.builder import Builder
from neuron_ir.constraints import set_constraints
from neuron_ir.core import Func, Module, Value, bulk
from neuron_ir.diagnostics import Diagnostic, IRError, fail
from neuron_ir.dims import Dim
from neuron_ir.dtypes import BOOL, F64, U64
from neuron_ir.explanation import Journal, ops_after
from neuron_ir.frontends.torch.aten.host import is_opaque, opaque
from neuron_ir.frontends.torch.export import FunctionalProgram, export, functionalize, operation_of
from neuron_ir.frontends.torch.guards import read_guards
from neuron_ir.frontends.torch.locations import node_location
from neuron_ir.frontends.torch.lowering import Context, RandomState, kept_operations, rules
from neuron_ir.frontends.torch.signature import (
    BUFFER,
    CONSTANT,
    INPUT,
    OBJECT,
    OUTPUT,
    PARAMETER,
    TOKEN,
    ProgramInput,
    ProgramOutput,
    storage_groups,
)
from neuron_ir.frontends.torch.symbols import Symbols, dim_names
from neuron_ir.locations import UNKNOWN_LOC
from neuron_ir.trees import leaf_count, set_output_tree
from neuron_ir.types import TensorType

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

__all__ = ["from_torch", "import_program"]

_KINDS = {PARAMETER: "weight", BUFFER: "buffer", CONSTANT: "weight"}
_LITERAL_ELEMENTS = 1024  # larger tensors in the graph become weights

_NUMBERS = frozenset({"SymInt", "SymFloat", "SymBool"})
_ITEMS = frozenset({"aten.item.default", "aten._local_scalar_dense.default"})  # numbers that come from tensors have a rule

# Nodes without a value of their own: checks, most of which torch already made while it traced.
_CHECKS = frozenset(
    """
    aten._assert_tensor_metadata.default aten._assert_async.msg aten._assert_async.default aten._assert_scalar.default
    aten.sym_constrain_range.default aten.sym_constrain_range_for_size.default
""".split()
)

# Python's and torch's functions of sizes whose results are floats.
_ARITHMETIC = {
    "truediv": "divide", "mul": "multiply", "add": "add", "sub": "subtract", "sym_float": "same", "pow": "power", "neg": "negate",
    "_sym_sqrt": "sqrt", "sym_sqrt": "sqrt",
}  # fmt: skip


def from_torch(
    module: torch.nn.Module | Callable[..., Any] | ExportedProgram,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    seed: int = 0,
) -> Module:
    """Import a PyTorch program: a module or function with example inputs, or a ``torch.export.ExportedProgram``.

    Weights are shared with the module, not copied. Composites (softmax, layer norm, attention, ...) stay whole. A program that
    draws random numbers gets a buffer ``rng_state`` that starts at ``seed`` and that each call moves on. Raises :class:`IRError`
    listing every operation that has no meaning here, each with the user's source line.

    >>> import torch, neuron_ir
    >>> print(neuron_ir.from_torch(torch.nn.Softmax(-1), (torch.zeros(2, 3),)).main)
    func @main(%input: tensor<2x3xf32> {name = "input"}) -> tensor<2x3xf32> {name = "softmax"} {
      %softmax = neuron.softmax(%input) : tensor<2x3xf32>
      func.return(%softmax)
    }
    <BLANKLINE>
    """
    program = export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)
    name = type(module).__name__ if program is not module and hasattr(module, "state_dict") else "main"
    return import_program(functionalize(program, kept_operations()), name=name, seed=seed)


def import_program(program: FunctionalProgram, name: str = "main", *, seed: int = 0, journal: Journal | None = None) -> Module:
    """Import a functional graph. The result verifies. Inputs that are symbolic numbers stand in the function's attribute
    ``size_inputs`` as (position, name, size). ``journal`` notes what each operation becomes.
    """
    with bulk():
        importer = _Importer(program, name, seed)
        importer.context.journal = journal
        module = importer.run()
    module.verify()
    return module


# Errors of an op that is built: a rule asked for a form that the IR does not have.
_OF_AN_OP = frozenset({"attr", "operand", "type", "region", "shape"})

_UNKNOWN = object()  # stands for a refused operation's value whose type the IR cannot write


class GraphReader:
    """Walks one FX graph node by node and emits its operations with a :class:`Context`; refusals are collected."""

    def __init__(self, owner: Any, context: Context, origins: Any, literals: Callable[[str, Any], Value], retraced: bool = False):
        self.owner = owner
        self.context = context
        self.origins = origins
        self.literals = literals
        self.values: dict[Any, Any] = {}
        self.errors: list[Diagnostic] = []
        self.cause: BaseException | None = None
        self.retraced = retraced
        context.reader = self

    def call(self, node: Any, table: Mapping[str, Callable[..., Any]]) -> None:
        """Emit one ``call_function`` node; one that reads a refused value of unknown size is passed over."""
        journal, block = self.context.journal, self.context.b.block
        if journal is None:
            self._call(node, table)
            return
        last, n_errors = block.last, len(self.errors)
        self._call(node, table)
        errors, made = self.errors[n_errors:], ops_after(block, last)
        if not errors and not made and (node.target is operator.getitem or not _gives_tensors(node)):
            return  # arithmetic on sizes, and what torch has checked already
        name, operation = operation_of(node, self.retraced)
        if self.values.get(node) is _UNKNOWN and not errors:
            message = "not looked at: it reads the result, of unknown size, of a refused operation"
            errors = [Diagnostic("unsupported", message)]
        journal.note((id(self.owner), name), operation, node_location(node, self.origins), made, errors)

    def _call(self, node: Any, table: Mapping[str, Callable[..., Any]]) -> None:
        if any(self.values.get(n) is _UNKNOWN for n in node.all_input_nodes):
            self.values[node] = _UNKNOWN
            return
        if node.target is operator.getitem:
            source, index = self.resolve(node.args[0]), node.args[1]
            self.values[node] = source[index] if source is not None and index < len(source) else None
            if self.values[node] is None and node.users and not self.errors:
                raise fail(
                    "unsupported",
                    f"result {index} of {getattr(node.args[0], 'target', 'a list')} has no rule",
                    node_location(node, self.origins),
                )
            return
        fake = node.meta.get("val")
        name = str(node.target)
        context = self.context
        context.node = node
        try:
            if type(fake).__name__ in _NUMBERS and name not in _ITEMS:
                self.values[node] = self.number(node, type(fake).__name__)
                return
            context.b.loc = node_location(node, self.origins)
            library = name.partition(".")[0]
            rule = table.get(name) or table.get(f"{library}.*")
            on_host = rule is None and is_opaque(node.target)
            if name in _CHECKS or rule is None and not on_host and not node.users and fake is None:
                self.check(node, name)
                return
            args, options = self.resolve(node.args), self.resolve(node.kwargs)
            if rule is None and not on_host:
                hint = "" if library in ("aten", "prims", name) else "; neuron_ir.register_lowering gives it one"
                raise context.unsupported(_without_rule(fake) + hint)
            value = opaque(context, node.target, args, options) if rule is None else rule(context, *args, **options)
            self.values[node] = self.finish(node, value)
        except IRError as error:
            self.refuse(node, error)
        except Exception as error:  # a form of the operation that its rule did not foresee is reported at the user's line
            self.cause = self.cause or error
            self.refuse(node, context.unsupported(f"this form has no rule ({type(error).__name__}: {error})"))

    def check(self, node: Any, name: str) -> None:
        """A condition that torch leaves to the run: one on the data, or on sizes that the data decide."""
        if name.startswith("aten._assert_async"):
            self.context.b.check(self.context.cast(self.resolve(node.args[0]), BOOL), message=_message(node, "an assertion"))
        elif name == "aten._assert_scalar.default":
            condition = self.resolve(node.args[0])
            if isinstance(condition, Value):
                self.context.b.check(condition, message=_message(node, "an assertion"))
            elif type(condition).__name__ == "SymBool":
                self.assertion(node, condition.node.expr)

    def assertion(self, node: Any, expr: Any) -> None:
        """A condition on sizes, checked by the program where the data decide one of them and its range does not say so already."""
        context, symbols = self.context, self.context.symbols
        names = {n for s in expr.free_symbols for n in _names_in(symbols.expression(s))}
        if names.isdisjoint(symbols.data.values()) or symbols.implies(expr):
            return
        if names & symbols.open:
            raise context.unsupported(f"the condition {expr} on a size that nothing gives")
        context.b.check(context.condition(expr), message=_message(node, str(expr)))

    def number(self, node: Any, kind: str) -> Any:
        """A number computed from sizes: a size, an f64 of rank 0, or a condition as torch's own object."""
        if kind == "SymBool":
            return node.meta["val"]
        if kind == "SymInt":
            source = self.resolve(node.args[0]) if str(node.target) == "aten.sym_size.int" else None
            return source.shape[node.args[1]] if isinstance(source, Value) else self.context.symbols.dim(node.meta["val"])
        op_name = _ARITHMETIC.get(getattr(node.target, "__name__", ""))
        if op_name is None:
            raise self.context.unsupported("a float computed from sizes by this function")
        operands = [self.context.scalar(v, F64) for v in self.resolve(node.args)]
        return operands[0] if op_name == "same" else self.context.b.make(f"neuron.{op_name}", *operands)

    def refuse(self, node: Any, error: IRError) -> None:
        """Note an error, and go on with a value of the right type, so that the rest is still checked."""
        place = node_location(node, self.origins)
        for d in error.diagnostics:
            if d.code in _OF_AN_OP:
                d = replace(d, code="unsupported", message=f"{node.target}: {d.message}", loc=place)
            elif d.loc is UNKNOWN_LOC:
                notes = (*d.notes, *self.context.operand_types())
                d = replace(d, message=f"{node.target}: {d.message}", loc=place, notes=notes)
            self.errors.append(d)
        val = node.meta.get("val")
        try:
            values = [self.context.scalar(0, t.dtype, t.shape) for t in self.context.outs]
        except IRError:
            self.values[node] = _UNKNOWN
            return
        self.values[node] = tuple(values) if isinstance(val, tuple | list) else values[0] if values else None

    def finish(self, node: Any, value: Any) -> Any:
        """Check a rule's results against the types that torch computed, and name them."""
        val = node.meta.get("val")
        fakes = val if isinstance(val, tuple | list) else (val,)
        for one, fake in zip(value if isinstance(value, tuple | list) else (value,), fakes, strict=False):
            if not isinstance(one, Value) or not hasattr(fake, "dtype"):
                continue
            wanted = self.context.symbols.type_of(fake)
            if not _agrees(one.type, wanted):
                raise self.context.unsupported(f"the rule gives {one.type} where torch gives {wanted}")
            if self.context.symbols.open and self.context.symbols.open & {n for d in one.shape for n in _names_in(d)}:
                raise self.context.unsupported(f"the result {one.type} has a size that depends on the data and that nothing gives")
        if isinstance(value, Value) and value.op is not None and not value.name:
            value.name = _hint(node.name)
        return value

    def resolve(self, item: Any) -> Any:
        """A node's arguments with values for nodes and dims for symbolic sizes."""
        kind = type(item).__name__
        if kind == "Node":
            return self.values[item]
        if isinstance(item, tuple | list):
            return [self.resolve(i) for i in item]
        if isinstance(item, dict):
            return {k: self.resolve(v) for k, v in item.items()}
        if kind == "SymInt":
            return self.context.symbols.dim(item)
        return item

    def attribute(self, node: Any) -> None:
        """A ``get_attr`` node: a graph for control flow, or a tensor that the program holds."""
        found = operator.attrgetter(node.target)(self.owner)
        if hasattr(found, "dtype") and hasattr(found, "detach"):
            self.context.node = node
            found = self.literals(node.target, found.detach())
        self.values[node] = found


def _without_rule(fake: Any) -> str:
    """Why an operation has no rule."""
    for value in fake if isinstance(fake, tuple | list) else (fake,):
        layout = str(getattr(value, "layout", "torch.strided"))
        if layout != "torch.strided":
            return f"the result has the layout {layout}; only dense tensors have a counterpart in the IR"
    return "no rule for this operation"


def _names_in(size: Any) -> set[str]:
    return size.symbols if isinstance(size, Dim) else set()


def _message(node: Any, default: str) -> str:
    """What the user's assertion says."""
    text = node.args[1] if len(node.args) > 1 else node.kwargs.get("assert_msg")
    return str(text) if text else f"{default} does not hold"


def _gives_tensors(node: Any) -> bool:
    val = node.meta.get("val")
    return any(hasattr(v, "dtype") for v in (val if isinstance(val, tuple | list) else (val,)))


def _agrees(given: Any, wanted: TensorType) -> bool:
    """Whether a result may stand for what torch computed: one element type, one rank, and no number against another number."""
    if not isinstance(given, TensorType) or given.dtype is not wanted.dtype or len(given.shape) != len(wanted.shape):
        return False
    return given is wanted or not any(
        isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(given.shape, wanted.shape, strict=True)
    )


class _Importer:
    """A whole program: arguments, weights, state, and results around its graph."""

    def __init__(self, program: FunctionalProgram, name: str, seed: int):
        self.program = program
        self.seed = seed
        self.module = Module(name)
        self.module.attrs["source"] = "torch"
        self.func = self.module.add(Func("main"))
        self.symbols = Symbols(program.ranges, dim_names(program.graph))
        self.random = RandomState(self.random_state)
        self.context = Context(Builder(self.func.body), self.symbols, self.random)
        self.reader = GraphReader(program.owner, self.context, program.origins, self.literal, program.retraced)
        self.fakes: dict[str, Any] = {}  # how torch writes a user input in its guards -> what it is
        self.arg_index: dict[str, int] = {}  # name and target of an input -> argument
        self.shared = storage_groups(program.signature.weights)
        self.positions = {id(e): i for i, e in enumerate(program.signature.user_inputs)}

    def run(self) -> Module:
        inputs = iter(self.program.signature.inputs)
        table = rules()
        reader = self.reader
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self.placeholder(node, next(inputs))
            elif node.op == "call_function":
                reader.call(node, table)
            elif node.op == "get_attr":
                reader.attribute(node)
            elif node.op == "output" and not reader.errors:
                self.output(node)
        if reader.errors:
            raise IRError(reader.errors) from reader.cause
        set_constraints(self.func, read_guards(self.program.guards, self.fakes, self.symbols))
        self.func.dims = self.symbols.given()
        return self.module

    # --- inputs ---

    def placeholder(self, node: Any, entry: ProgramInput) -> None:
        fake = node.meta.get("val")
        self.fakes[entry.source] = fake
        if entry.is_fixed:
            value = _built_in(entry.value, entry.target or entry.name)
            self.note("fixed_inputs", (self.positions[id(entry)], entry.target or entry.name, value))
            self.reader.values[node] = entry.value
            return
        if entry.kind in (TOKEN, OBJECT) or not hasattr(fake, "dtype"):
            self.not_a_tensor(node, entry, fake)
            return
        kind = _KINDS.get(entry.kind, "input")
        attrs: dict[str, Any] = {"name": entry.target}
        if kind != "input":
            key = self.shared[entry.target]
            attrs = {"kind": kind, "weight": key}
            self.module.weights[key] = self.program.signature.weights[key].detach()
        try:
            type = self.symbols.type_of(fake)
        except IRError as error:
            raise fail("unsupported", f"the input {entry.target or node.name}: {error.diagnostics[0].message}") from None
        value = self.func.add_arg(type, _hint(entry.target or node.name), **attrs)
        self.arg_index[entry.target] = value.index
        self.arg_index.setdefault(entry.name, value.index)
        self.reader.values[node] = value

    def not_a_tensor(self, node: Any, entry: ProgramInput, fake: Any) -> None:
        if entry.kind == TOKEN:  # orders effects for torch, which the order of the ops does here
            self.reader.values[node] = Symbol("token")
            return
        if type(fake).__name__ == "SymInt" and entry.kind == INPUT:
            size = self.reader.values[node] = self.symbols.dim(fake)
            if isinstance(size, Dim) and size.is_symbol and fake.node.expr.is_Symbol:
                self.symbols.sign(str(size), fake.node.expr)
            self.note("size_inputs", (self.positions[id(entry)], entry.target or entry.name, str(self.reader.values[node])))
            return
        raise fail("unsupported", f"the input {entry.target or node.name} is a {type(fake).__name__}; tensors are needed")

    def note(self, attr: str, item: tuple[Any, ...]) -> None:
        """Add an item to a list among the function's attributes."""
        self.func.attrs[attr] = (*self.func.attrs.get(attr, ()), item)

    def random_state(self) -> Value:
        """A new argument for the state of the random numbers, which starts at the seed."""
        import numpy

        self.module.weights["rng_state"] = numpy.array([self.seed, 0], numpy.uint64)
        return self.func.add_arg(TensorType((2,), U64), "rng_state", kind="buffer", weight="rng_state")

    def literal(self, name: str, tensor: Any) -> Value:
        """A tensor that the graph itself holds, as a constant."""
        from neuron_ir.weights import element_type, to_numpy

        dtype = element_type(tensor)
        if tensor.numel() <= _LITERAL_ELEMENTS:
            return self.context.b.const(to_numpy(tensor), dtype)
        stem, n = name, 1
        while self.module.weights.get(name, tensor) is not tensor:  # inner graphs name their tensors alike
            name, n = f"{stem}_{n}", n + 1
        self.module.weights[name] = tensor
        return self.context.b.constant(value=Resource(name), out=TensorType(tuple(tensor.shape), dtype))

    # --- results ---

    def output(self, node: Any) -> None:
        """Put the return: user outputs in the signature's order, updates with the argument that they write."""
        values: list[Value] = []
        attrs: list[dict[str, Any]] = []
        position = 0
        users = {id(e) for e in self.program.signature.user_outputs}
        for entry, item in zip(self.program.signature.outputs, _flat(node.args[0]), strict=True):
            value = self.reader.resolve(item)
            kind = type(getattr(item, "meta", {}).get("val")).__name__
            if isinstance(value, Dim):
                value = self.context.size_as_value(value)
            elif type(value).__name__ == "SymBool":
                value = self.context.condition(value.node.expr)
            if isinstance(value, Value):
                values.append(value)
                attrs.append(self.result_attrs(entry, id(entry) in users) | ({"number": True} if kind in _NUMBERS else {}))
            elif id(entry) in users:
                self.note("fixed_outputs", (position, _built_in(entry.value if entry.is_fixed else value, entry.name)))
            position += id(entry) in users
        if self.random.present is not None:
            values.append(self.random.present)
            attrs.append({"updates": next(i for i, a in enumerate(self.func.arg_attrs) if a.get("weight") == "rng_state")})
        self.func.set_results(values, attrs)
        tree = self.program.signature.output_tree
        if tree is not None and leaf_count(tree) == position:
            set_output_tree(self.func, tree)

    def result_attrs(self, entry: ProgramOutput, is_user: bool) -> dict[str, Any]:
        if not is_user:
            return {"updates": self.arg_index[entry.target]}
        if entry.kind == OUTPUT:
            return {"name": entry.name}
        return {"name": entry.target or entry.name, "role": entry.kind}


def _built_in(value: Any, name: str) -> Any:
    """A user input or output that is no tensor but a value built into the program, as an attribute."""
    if value is None:
        return Symbol("none")
    if not isinstance(value, bool | int | float | str):
        raise fail("unsupported", f"{name}: a {type(value).__name__} cannot be an input or output of a program")
    return value


def _flat(items: Any) -> Sequence[Any]:
    return items if isinstance(items, tuple | list) else (items,)


def _hint(name: str) -> str:
    return name.replace(".", "_") if name.isidentifier() or "." in name else ""
