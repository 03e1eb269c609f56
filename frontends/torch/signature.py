"""A plain description of what an exported program takes, gives, and changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuron_ir.frontends.torch import _compat
from neuron_ir.trees import keyed, named

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

PARAMETER = "parameter"
BUFFER = "buffer"
CONSTANT = "constant"
INPUT = "input"
OUTPUT = "output"
MUTATED_BUFFER = "mutated_buffer"
MUTATED_INPUT = "mutated_input"
MUTATED_PARAMETER = "mutated_parameter"
GRADIENT = "gradient"
LOSS = "loss"
TOKEN = "token"
OBJECT = "object"


@dataclass(frozen=True, slots=True)
class ProgramInput:
    """One input of the graph, in order.

    `name` is the placeholder's name. `target` is the weight's name (`layers.0.weight`) for parameters,
    buffers and constants, and the dotted path in the call (`x`, `cache.keys.0`) for user inputs.
    `value` is the fixed Python value of an input that is no tensor (`is_fixed`), which the graph has built in. `source` is how
    torch writes a user input in its conditions on sizes: `L['cache']['keys'][0]`.
    """

    kind: str
    name: str
    target: str
    persistent: bool = True
    is_fixed: bool = False
    value: Any = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """One output of the graph, in order.

    `name` is the node that gives the value, empty for a Python value or None (`is_fixed`, then `value` is it).
    `target` is the buffer, parameter or user input that the value is written back to, else empty.
    """

    kind: str
    name: str
    target: str = ""
    is_fixed: bool = False
    value: Any = None


@dataclass(frozen=True, slots=True)
class ProgramSignature:
    """Inputs and outputs in graph order, the weights by name, and the tree of the user's result.

    `weights` holds the tensors themselves, never copies: two names of a tied weight give tensors on one storage
    (see `storage_groups`). `output_tree` says how the user outputs nest (:mod:`neuron_ir.trees`), None and Python numbers
    among them; it is None where the program does not say.
    """

    inputs: tuple[ProgramInput, ...]
    outputs: tuple[ProgramOutput, ...]
    weights: Mapping[str, torch.Tensor]
    output_tree: Any = None

    @property
    def user_inputs(self) -> tuple[ProgramInput, ...]:
        return tuple(i for i in self.inputs if i.kind == INPUT)

    @property
    def user_outputs(self) -> tuple[ProgramOutput, ...]:
        return tuple(o for o in self.outputs if o.kind in (OUTPUT, LOSS, GRADIENT))

    @property
    def bound_inputs(self) -> tuple[ProgramInput, ...]:
        """Parameters, buffers and constants: the inputs that `weights` binds."""
        return tuple(i for i in self.inputs if i.kind in (PARAMETER, BUFFER, CONSTANT))

    @property
    def mutations(self) -> tuple[ProgramOutput, ...]:
        return tuple(o for o in self.outputs if o.kind in (MUTATED_BUFFER, MUTATED_INPUT, MUTATED_PARAMETER))


def read_signature(program: ExportedProgram) -> ProgramSignature:
    """Describe an exported program. Raises ValueError when a weight that the graph reads has no data."""
    graph_signature = program.graph_signature
    paths = iter(_input_paths(program))
    inputs = tuple(_read_input(spec, paths) for spec in graph_signature.input_specs)
    outputs = tuple(_read_output(spec) for spec in graph_signature.output_specs)
    weights = {i.target: _find_weight(program, i) for i in inputs if i.kind in (PARAMETER, BUFFER, CONSTANT)}
    spec = program.call_spec.out_spec
    return ProgramSignature(inputs, outputs, weights, spec and _tree(spec))


def _tree(spec: Any) -> Any:
    """The tree that a torch pytree spec describes."""
    if spec.is_leaf():
        return ...
    parts = [_tree(part) for part in spec.children()]
    kind, context = spec.type, spec.context
    if isinstance(kind, type) and issubclass(kind, dict) and kind.__module__ in ("builtins", "collections"):
        return keyed(context[1] if kind is defaultdict else context, parts)
    if isinstance(kind, type) and issubclass(kind, list):
        return parts
    if kind is tuple:
        return tuple(parts)
    owner = context if isinstance(context, type) else kind  # torch notes a named tuple's class in the context
    fields = _fields(owner, context)
    return named(owner.__name__, fields, parts) if len(fields) == len(parts) else tuple(parts)


def _fields(kind: Any, context: Any) -> Sequence[str]:
    """The names of an object's parts where its class tells them: named tuples, data classes, and classes flattened like dicts."""
    own: Sequence[str] = getattr(kind, "_fields", ()) or getattr(kind, "__match_args__", ())
    names = context[0] if isinstance(context, list) and context and isinstance(context[0], list) else context
    if isinstance(names, list | tuple) and all(isinstance(n, str) for n in names):
        return names
    return own


def storage_groups(weights: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Map each weight's name to the first name with the same storage, offset, shape, strides and dtype.

    Tied weights (`lm_head.weight` and `wte.weight`) fall together; distinct views of one storage do not.
    """
    first: dict[Any, str] = {}
    groups = {}
    for name, tensor in weights.items():
        key: Any
        if tensor.numel():
            key = (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride())
            key = (*key, tensor.dtype, str(tensor.device))
        else:
            key = name
        groups[name] = first.setdefault(key, name)
    return groups


def _read_input(spec: Any, paths: Any) -> ProgramInput:
    kind = spec.kind.name
    name = spec.arg.name
    if kind == "USER_INPUT":
        path, source = next(paths, (name, f"L[{name!r}]"))
        fixed = type(spec.arg).__name__ == "ConstantArgument"
        return ProgramInput(INPUT, name, path, True, fixed, spec.arg.value if fixed else None, source)
    if kind == "PARAMETER":
        return ProgramInput(PARAMETER, name, spec.target)
    if kind == "BUFFER":
        return ProgramInput(BUFFER, name, spec.target, bool(spec.persistent))
    if kind == "CONSTANT_TENSOR":
        return ProgramInput(CONSTANT, name, spec.target, False)
    if kind == "TOKEN":
        return ProgramInput(TOKEN, name, "")
    if kind == "CUSTOM_OBJ":
        return ProgramInput(OBJECT, name, spec.target or "")
    raise ValueError(f"input {name!r} has the unknown kind {kind}")


_OUTPUT_KINDS = {
    "USER_OUTPUT": OUTPUT,
    "LOSS_OUTPUT": LOSS,
    "BUFFER_MUTATION": MUTATED_BUFFER,
    "PARAMETER_MUTATION": MUTATED_PARAMETER,
    "USER_INPUT_MUTATION": MUTATED_INPUT,
    "GRADIENT_TO_PARAMETER": GRADIENT,
    "GRADIENT_TO_USER_INPUT": GRADIENT,
    "TOKEN": TOKEN,
}


def _read_output(spec: Any) -> ProgramOutput:
    kind = _OUTPUT_KINDS.get(spec.kind.name)
    if kind is None:
        raise ValueError(f"output {spec.arg.name!r} has the unknown kind {spec.kind.name}")
    if type(spec.arg).__name__ == "ConstantArgument":
        return ProgramOutput(kind, "", spec.target or "", True, spec.arg.value)
    return ProgramOutput(kind, spec.arg.name, spec.target or "")


def _find_weight(program: ExportedProgram, entry: ProgramInput) -> torch.Tensor:
    """Persistent weights are in the state dict; constants and non-persistent buffers are in `constants`."""
    for place in (program.state_dict, program.constants):
        tensor = place.get(entry.target)
        if tensor is not None:
            return tensor
    raise ValueError(f"the exported program has no data for {entry.kind} {entry.target!r}")


def _input_paths(program: ExportedProgram) -> list[tuple[str, str]]:
    """Dotted paths of the user inputs, positional ones by the placeholder's name, keyword ones by their key, and their sources."""
    names = [s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    spec = program.call_spec.in_spec
    if spec is None or spec.num_leaves != len(names):
        return [(name, f"L[{name!r}]") for name in names]
    values = {n.name: n.meta.get("val") for n in program.graph.find_nodes(op="placeholder")}
    # fake tensors, since a class of the user's, such as a cache, may look at its parts when it is made of them
    fakes = [values.get(name) for name in names]
    leaves, _ = _compat.get("tree_flatten_with_path")(_compat.get("tree_unflatten")(fakes, spec))
    return [_named(path, name) for (path, _), name in zip(leaves, names, strict=True)]


def _named(path: Any, name: str) -> tuple[str, str]:
    """The dotted path and the source of the leaf at a pytree path."""
    dotted = _path([str(key_of(k)) for k in path], name)
    return dotted, f"L[{dotted.partition('.')[0]!r}]{''.join(map(str, path[2:]))}"


def key_of(step: Any) -> Any:
    """The index, key or field of one step of a pytree path."""
    return next((getattr(step, a) for a in ("idx", "key", "name") if hasattr(step, a)), step)


def _path(parts: list[str], name: str) -> str:
    """`parts` starts with 0 (positional) or 1 (keyword), then the argument's place or key, then the path inside it."""
    where, first, *inner = parts
    stem = first if where == "1" else _stem(name, inner)
    return ".".join([stem, *inner])


def _stem(name: str, inner: list[str]) -> str:
    """`cache_keys_0` with the inner path `keys`, `0` gives `cache`: torch joins the path of a nested placeholder with `_`."""
    ending = "".join(f"_{part}" for part in inner)
    return name.removesuffix(ending) if name.endswith(ending) else name.rsplit("_", len(inner))[0]
