"""StableHLO as jaxlib's MLIR module into Neuron IR.

One walk in program order. Functions that ``@main`` calls are put in its body where they are called. Constants of at least 4 KiB
become weights. Every op without a rule is reported, all in one error, each with the user's line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from neuron_ir.attrs import Dense, Resource
from neuron_ir.builder import Builder
from neuron_ir.constraints import Constraint, constraint, set_constraints
from neuron_ir.core import Block, Func, Module, Value, bulk
from neuron_ir.diagnostics import Diagnostic, IRError, fail
from neuron_ir.dims import UNKNOWN, Dim, DimLike, Range, symbol
from neuron_ir.dims import evaluate as evaluate_size
from neuron_ir.dtypes import DType, dtype_of_numpy
from neuron_ir.explanation import Journal, ops_after
from neuron_ir.frontends.jax._compat import expand_chlo, ir, stablehlo
from neuron_ir.frontends.jax.dense import constant_array
from neuron_ir.frontends.jax.locations import Locations
from neuron_ir.frontends.jax.lower import WEIGHT_BYTES, Lowered
from neuron_ir.frontends.jax.stablehlo import RULES, WITHOUT_RULE
from neuron_ir.frontends.jax.stablehlo.calls import known_target
from neuron_ir.frontends.jax.stablehlo.quantisation import Quantisation
from neuron_ir.frontends.jax.stablehlo.quantised import translate as translate_quantised
from neuron_ir.frontends.jax.stablehlo.rule import SIZED, Members, Translator
from neuron_ir.frontends.jax.stablehlo.sizes import Bounds, Sizes, evaluate, known, write_out
from neuron_ir.frontends.jax.stablehlo.types import Types, is_token, is_tuple, members_of
from neuron_ir.locations import UNKNOWN_LOC
from neuron_ir.parser import parse_dim
from neuron_ir.trees import set_output_tree
from neuron_ir.types import TOKEN, TensorType, Type

__all__ = ["import_lowered", "import_module"]

_NO_OPERATION = ("stablehlo.constant", "func.call", "call", "stablehlo.composite")  # what stands for them is noted itself
_RELATIONS = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}
_ENDS = ("func.return", "stablehlo.return", "sdy.return")
_POISON = object()  # stands for the results of an op that was refused
_MAX_REFUSALS = 1000


def import_lowered(lowered: Lowered, journal: Journal | None = None) -> Module:
    """The Neuron IR of a lowered JAX function. Arguments and results have the user's names, captured arrays become weights.
    ``journal`` notes what each operation becomes.
    """
    with bulk():
        importer = Importer(lowered.module, "<stablehlo>", lowered)
        importer.journal = journal
        module = importer.run()
    module.attrs["source"] = "jax"
    return module


def import_module(source: Any, file: str = "<stablehlo>", journal: Journal | None = None) -> Module:
    """The Neuron IR of a StableHLO module; ``file`` names the text in locations, ``journal`` notes what each operation becomes."""
    with bulk():
        importer = Importer(source, file)
        importer.journal = journal
        return importer.run()


class Importer(Translator):
    """Translates one module; the builder ``b`` stands where the next op goes."""

    def __init__(self, source: Any, file: str, lowered: Lowered | None = None):
        self.source, self.lowered = source, lowered
        self.locations = Locations(file)
        self.types = Types()
        self.functions: dict[str, Any] = {}
        for view in source.body.operations:
            op = view.operation
            if op.name == "func.func":
                self.functions[ir.StringAttr(op.attributes["sym_name"]).value] = op
        self.module = Module(lowered.name if lowered and lowered.name.isidentifier() else "main")
        self.module.attrs.update(_partitioning(source))
        self.num_partitions = self.module.attrs.get("num_partitions", 1)
        self.env: dict[Any, Any] = {}
        self.refusals: dict[Diagnostic, None] = {}
        self.calls: list[str] = []
        self.bounds = Bounds({})
        self.symbolic = False
        self.digests: dict[tuple[Any, ...], str] = {}
        self.written: dict[Value, Sizes] = {}
        self.settled: dict[str, DimLike] = {}  # symbols that are another size
        self.ranges: dict[str, Range] = {}
        self.learned = False
        self.has_chlo, self.is_expanded = False, False  # a CHLO op without a rule; whether the module is rid of such
        self.body: Block | None = None
        self.demands: list[Constraint] = []
        self.journal: Journal | None = None
        self.b: Any = None

    # --- functions ----------------------------------------------------------------------------------------------------

    def run(self) -> Module:
        """Translate ``@main``; every public function where there is none of that name."""
        names = [n for n, op in self.functions.items() if _is_public(op)] or list(self.functions)[:1]
        if not names:
            raise fail("unsupported", "the module has no function")
        for name in ["main"] if "main" in self.functions else names:
            func = self.entry(name, self.functions[name])
            while self.learned:  # what the program checks of its sizes is known from the start the next time
                self.learned = False
                self.refusals.clear()
                if self.journal is not None:
                    self.journal.clear()
                func = self.entry(name, self.functions[name])
            self.module.add(func)
            self.settled, self.ranges = {}, {}
        if self.has_chlo and not self.is_expanded:
            expand_chlo(self.source)
            again = Importer(self.source, self.locations.file, self.lowered)
            again.is_expanded, again.journal = True, self.journal
            if self.journal is not None:
                self.journal.clear()
            return again.run()
        if self.refusals:
            raise IRError(list(self.refusals)[:_MAX_REFUSALS])
        return self.module

    def entry(self, name: str, op: Any) -> Func:
        """A function of the module, with its own copy of what it calls."""
        func = Func(name, loc=self.locations(op.location))
        self.body, self.demands = func.body, []
        self.b = Builder(func.body)
        block = op.regions[0].blocks[0]
        lowered = self.lowered if name == "main" else None
        arguments = list(block.arguments)
        tokens = [a for a in arguments if is_token(a.type)]
        for token in tokens:
            self.env[token] = self.b.create_token()
        rest = [a for a in arguments if a not in tokens]
        kept = _dicts(op, "arg_attrs", len(arguments))[len(tokens) :]
        if lowered is not None:
            self.named_arguments(func, rest, kept, lowered)
        else:
            self.plain_arguments(func, rest, kept)
        self.bounds = Bounds(func.dims)
        self.symbolic = bool(func.dims)
        values = self.inline(block, [])
        self.finish(func, values, _dicts(op, "res_attrs", len(values)), lowered)
        return func

    def named_arguments(self, func: Func, arguments: Sequence[Any], attrs: Sequence[Any], lowered: Lowered) -> None:
        """Arguments as the user's function has them, those included that JAX dropped."""
        func.dims = {s.name: (s.low, s.high) for s in lowered.symbols}
        pairs = iter(zip(arguments, attrs, strict=True))
        for item in lowered.inputs:
            shape = [d if isinstance(d, int) else size_of(d) for d in item.shape]
            type = TensorType(shape, dtype_of_numpy(item.dtype))
            fields: dict[str, Any] = {"name": item.name, **({"donated": True} if item.donated else {})}
            mlir, extra = next(pairs) if item.used else (None, {})
            value = func.add_arg(type, hint(item.name), **fields, **_sharding(extra))
            if mlir is not None:
                self.env[mlir] = value

    def plain_arguments(self, func: Func, arguments: Sequence[Any], attrs: Sequence[Any]) -> None:
        """Arguments by number, tuples by member; each unknown size becomes a symbol of its own, unless the program says what it
        equals.
        """
        count = 0

        def add(mlir_type: Any, extra: Mapping[str, Any]) -> Any:
            nonlocal count
            if is_tuple(mlir_type):
                return Members(add(t, {}) for t in members_of(mlir_type))
            type = self.types(mlir_type)
            if type is TOKEN:
                return self.b.create_token()
            shape = list(type.shape)
            for axis, d in enumerate(shape):
                if d is UNKNOWN:
                    shape[axis] = self.unknown_size(func, f"d{count}", _bound(mlir_type, axis))
                    count += 1
            name = _text(extra, "jax.arg_info")
            fields: dict[str, Any] = {"name": name} if name else {}
            if "tf.aliasing_output" in extra or "jax.buffer_donor" in extra:
                fields["donated"] = True
            return func.add_arg(type.with_shape(shape), hint(name) or f"arg{len(func.args)}", **fields, **_sharding(extra))

        for mlir, extra in zip(arguments, attrs, strict=True):
            self.env[mlir] = add(mlir.type, extra)

    def unknown_size(self, func: Func, name: str, most: int | None) -> DimLike:
        """The size of a dim that MLIR does not know."""
        if name in self.settled:
            return self.settled[name]
        low, high = self.ranges.get(name, (0, None))
        func.dims[name] = (low, high if most is None else most if high is None else min(high, most))
        return symbol(name)

    def learn(self, direction: str, a: DimLike, b: DimLike) -> bool:
        if self.b.block is not self.body or a is UNKNOWN or b is UNKNOWN:
            return False
        if self.lowered is not None:
            return self.demand(direction, a, b)
        a, b = (self.settle(d) for d in (a, b))
        if direction == "EQ":
            for one, other in ((a, b), (b, a)):
                if isinstance(one, Dim) and one.is_symbol and (isinstance(other, int) or not one.symbols & other.symbols):
                    self.settled = {n: _replaced(d, {one.text: other}) for n, d in self.settled.items()}
                    self.settled[one.text] = other
                    self.learned = True
                    return True
        if not (isinstance(a, Dim) and a.is_symbol and isinstance(b, int) and direction in ("GE", "LE")):
            return self.demand(direction, a, b)
        low, high = self.ranges.get(a.text, (0, None))
        self.ranges[a.text] = (max(low, b), high) if direction == "GE" else (low, b if high is None else min(high, b))
        self.learned = True
        return True

    def demand(self, direction: str, a: DimLike, b: DimLike) -> bool:
        """Make a comparison a constraint of the function; false where it never holds, which its own check then tells."""
        made = constraint(a, _RELATIONS[direction], b)
        if isinstance(made, Constraint):
            self.demands.append(made)
        return made is not False

    def settle(self, d: DimLike) -> DimLike:
        """A size in terms of the symbols that are left."""
        return _replaced(d, self.settled)

    def finish(self, func: Func, values: Sequence[Any], attrs: Sequence[Any], lowered: Lowered | None) -> None:
        """Put the return, tokens left out and tuples by member, with the names of the results."""
        if any(isinstance(v, Members) for v in values):
            leaves = [(v.flat() if isinstance(v, Members) else [v], a) for v, a in zip(values, attrs, strict=True)]
            values, attrs = ([x for xs, _ in leaves for x in xs], [a if len(xs) == 1 else {} for xs, a in leaves for _ in xs])
        pairs = [(v, a) for v, a in zip(values, attrs, strict=True) if v is _POISON or isinstance(v, Sizes) or v.type is not TOKEN]
        if any(v is _POISON for v, _ in pairs):
            return
        names = [r.name for r in lowered.outputs] if lowered else [_text(a, "jax.result_info") for _, a in pairs]
        fields = [{**({"name": name} if name else {}), **_sharding(extra)} for name, (_, extra) in zip(names, pairs, strict=True)]
        self.b.loc = UNKNOWN_LOC
        func.set_results([self.value_of(v) for v, _ in pairs], fields)
        if lowered is not None:
            set_output_tree(func, lowered.output_tree)
        set_constraints(func, self.demands)
        if self.symbolic:
            _sweep(func.body)

    # --- ops ----------------------------------------------------------------------------------------------------------

    def inline(self, block: Any, operands: Sequence[Any]) -> list[Any]:
        if operands:
            self.env.update(zip(block.arguments, operands, strict=True))
        env = self.env
        for view in block.operations:
            op = view.operation
            if op.name in _ENDS:
                return [env[v] for v in op.operands]
            if self.journal is None:
                self.operation(op)
            else:
                self.noted_operation(op, self.journal)
        raise fail("unsupported", "a block without a return")

    def operation(self, op: Any) -> None:
        """Translate one op; a refusal is noted and its results are marked."""
        env = self.env
        name = op.name
        self.b.loc = loc = self.locations(op.location)
        function = RULES.get(name)
        operands = [env[v] for v in op.operands]
        results = op.results
        try:
            if function is None:
                self.has_chlo |= name.startswith("chlo.")
                raise fail("unsupported", f"{name} is not supported{WITHOUT_RULE.get(name, '')}")
            if any(o is _POISON for o in operands):
                if name == "stablehlo.custom_call":
                    known_target(op)
                self.look_inside(op)
                values: Any = [_POISON] * len(results)
            else:
                values = self.translate(op, name, function, operands)
        except IRError as error:
            self.refuse(op, error, loc)
            values = [_POISON] * len(results)
        if isinstance(values, Value | Sizes):
            env[results[0]] = values
        else:
            env.update(zip(results, values, strict=True))

    def noted_operation(self, op: Any, journal: Journal) -> None:
        """Translate one op and note what it has become; a refused one gives zeros of its types, so that its users are looked at."""
        block, known = self.b.block, len(self.refusals)
        last = block.last
        self.operation(op)
        errors = list(self.refusals)[known:]
        if op.name not in _NO_OPERATION or errors:
            journal.note(op, op.name, self.locations(op.location), ops_after(block, last), errors)
        if errors and all(self.is_static(op, i) for i in range(len(op.results))):
            types = [self.out(op, index=i) for i in range(len(op.results))]
            zeros = [self.b.create_token() if t is TOKEN else self.b.const(0, t.dtype, t.shape) for t in types]
            self.env.update(zip(op.results, zeros, strict=True))

    def translate(self, op: Any, name: str, function: Any, operands: list[Any]) -> Any:
        """One value, or a sequence with one per result."""
        if name not in SIZED and any(isinstance(o, Members) for o in operands):
            raise fail("unsupported", f"{name} takes a tuple; take it apart with get_tuple_element")
        if name == "stablehlo.uniform_quantize" or (self.types.has_quantised and self.is_quantised(op)):
            return translate_quantised(self, op, function, operands)
        if self.symbolic and operands:
            if len(op.results) == 1 and not is_tuple(op.results[0].type):
                sizes = evaluate(self.bounds, op, operands, self.types(op.results[0].type))
                if sizes is not None:
                    return sizes
            if name not in SIZED:
                operands = [self.value_of(o) for o in operands]
        return function(self, op, *operands)

    def is_quantised(self, op: Any) -> bool:
        """Whether an operand or a result has a quantised type."""
        return any(self.quantisation(v.type) for vs in (op.operands, op.results) for v in vs)

    def refuse(self, op: Any, error: IRError, loc: Any) -> None:
        for d in error.diagnostics:
            note = f"see StableHLO op: {op.get_asm(use_local_scope=True, enable_debug_info=False)[:300]}"
            place = d.loc if d.loc is not UNKNOWN_LOC else loc
            self.refusals[Diagnostic(d.code, d.message, place, d.notes or (note,))] = None

    def look_inside(self, op: Any) -> None:
        """Note every op without a rule inside the regions of an op that cannot be translated itself."""
        for region in op.regions:
            for block in region.blocks:
                for view in block.operations:
                    inner = view.operation
                    if inner.name not in RULES and inner.name not in _ENDS:
                        self.refuse(inner, fail("unsupported", f"{inner.name} is not supported"), self.locations(inner.location))
                    self.look_inside(inner)

    # --- what rules use; :class:`Translator` says what each gives --------------------------------------------------------

    def out(self, op: Any, shape: Sequence[DimLike] | None = None, index: int = 0) -> Any:
        mlir = op.results[index].type
        type = self.types(mlir)
        if type is TOKEN or type.is_static:
            return type
        if shape is None:
            raise fail("unsupported", f"{op.name}: the sizes of its result {mlir} are not known")
        return type.with_shape(shape)

    def type_of(self, type: Any) -> Type:
        return self.types(type)

    def is_static(self, op: Any, index: int = 0) -> bool:
        type = self.types(op.results[index].type)
        return type is TOKEN or type.is_static

    def element(self, type: Any) -> DType:
        return self.types.element(type)

    def element_named(self, text: str) -> DType:
        return self.types.named(text)

    def quantisation(self, type: Any) -> Quantisation | None:
        return self.types.quantisation(type)

    @contextmanager
    def reading(self, mode: str) -> Iterator[None]:
        before, self.types.mode = self.types.mode, mode
        try:
            yield
        finally:
            self.types.mode = before

    def least(self, d: DimLike) -> float:
        return self.bounds(d)[0]

    def value_of(self, item: Any) -> Value:
        if isinstance(item, Members):
            raise fail("unsupported", "a tuple where a value is needed; take it apart with get_tuple_element")
        if not isinstance(item, Sizes):
            return item
        value = write_out(self.b, item)
        self.written[value] = item
        return value

    def sizes_behind(self, value: Value) -> tuple[DimLike, ...] | None:
        found = self.written.get(value) or known(value)
        return tuple(int(v) if isinstance(v, bool) else v for v in found.values) if found else None

    def region(self, op: Any, index: int, args: Sequence[Any]) -> Block:
        return self.block_of(op.regions[index].blocks[0], args)

    def function_region(self, name: str, args: Sequence[Any]) -> Block:
        return self.block_of(self.functions[name].regions[0].blocks[0], args)

    def block_of(self, source: Any, args: Sequence[Any]) -> Block:
        """An MLIR block as a block of the IR."""
        block = Block(args)
        outer, self.b = self.b, Builder(block, self.b.loc)
        try:
            values = self.inline(source, block.args)
            if any(v is _POISON for v in values):
                raise IRError(())
            self.b.make("neuron.yield", *[self.value_of(v) for v in values])
        finally:
            self.b = outer
        return block

    def call(self, op: Any, name: str, operands: Sequence[Any]) -> list[Any]:
        if name in self.calls:
            raise fail("unsupported", f"{op.name}: @{name} calls itself")
        if name not in self.functions:
            raise fail("name", f"{op.name}: there is no function @{name}")
        self.calls.append(name)
        try:
            return self.inline(self.functions[name].regions[0].blocks[0], operands)
        finally:
            self.calls.pop()

    def constant(self, op: Any) -> Value:
        """A constant of the text, or a weight where it is long."""
        array = constant_array(op)
        type = self.types(op.results[0].type)
        if array.ndim and array.size and not any(array.strides):
            dense = Dense(type.dtype, array.shape, array[(0,) * array.ndim].tobytes())
        elif array.nbytes < WEIGHT_BYTES:
            dense = Dense(type.dtype, array.shape, array.tobytes())
        else:
            return self.b.constant(value=Resource(self.weight(array)), out=type)
        return self.b.constant(value=dense, out=type)

    def weight(self, array: Any) -> str:
        """The key under which ``array`` lies in the module's weights; equal arrays share one."""
        data = array.tobytes()
        digest = (array.dtype, array.shape, hash(data))
        present = self.digests.get(digest)
        if present is not None and self.module.weights[present].tobytes() == data:
            return present
        name, kept = "", None
        for constant in self.lowered.constants if self.lowered else ():
            same = constant.array.dtype == array.dtype and constant.array.shape == array.shape
            if same and constant.array.tobytes() == data:
                name, kept = constant.name, constant.array
                break
        taken = self.module.weights
        name = name or "constant"
        key = (
            name
            if name not in taken and name != "constant"
            else next(k for i in range(len(taken) + 1) if (k := f"{name}_{i}") not in taken)
        )
        taken[key] = kept if kept is not None else array.copy()
        self.digests[digest] = key
        return key


RULES["stablehlo.constant"] = Importer.constant


# --- small readers ----------------------------------------------------------------------------------------------------


def _is_public(op: Any) -> bool:
    return "sym_visibility" not in op.attributes or ir.StringAttr(op.attributes["sym_visibility"]).value == "public"


def _dicts(op: Any, name: str, n: int) -> list[Mapping[str, Any]]:
    """One dict of attributes per argument or result."""
    if name not in op.attributes:
        return [{} for _ in range(n)]
    return [{entry.name: entry.attr for entry in ir.DictAttr(d)} for d in op.attributes[name]]


def _partitioning(source: Any) -> dict[str, Any]:
    """What a module says of the devices that it is for: the meshes that shardings name, and how many parts there are."""
    found: dict[str, Any] = {}
    meshes = [o.operation.attributes for o in source.body.operations if o.operation.name == "sdy.mesh"]
    if meshes:
        found["meshes"] = tuple(f"@{ir.StringAttr(a['sym_name']).value} = {a['mesh']}" for a in meshes)
    attributes = source.operation.attributes
    if "mhlo.num_partitions" in attributes and (parts := ir.IntegerAttr(attributes["mhlo.num_partitions"]).value) > 1:
        found["num_partitions"] = parts
    return found


def _sharding(attrs: Mapping[str, Any]) -> dict[str, str]:
    for name in ("sdy.sharding", "mhlo.sharding"):
        if name in attrs:
            return {"sharding": str(attrs[name]).strip('"')}
    return {}


def _text(attrs: Mapping[str, Any], name: str) -> str:
    return ir.StringAttr(attrs[name]).value if name in attrs else ""


def _bound(type: Any, axis: int) -> int | None:
    """The largest size of an unknown dim, where the type says one."""
    if type.encoding is None:
        return None
    try:
        bound = stablehlo.TypeExtensions(type.encoding).bounds[axis]
    except ValueError:
        return None
    return None if bound == ir.ShapedType.get_dynamic_size() else int(bound)


def hint(name: str) -> str:
    """A user's name such as ``params['w']`` as a name of the text: ``params_w``."""
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return plain if plain and not plain[0].isdigit() else f"arg_{plain}" if plain else ""


def size_of(text: str) -> DimLike:
    """A size as JAX prints it (``2*b - 1``, ``b^2``)."""
    powers = re.sub(r"(\w+|\w+\([^()]*\))\^(\d+)", lambda m: "*".join([m[1]] * int(m[2])), text)
    return parse_dim(powers.replace(" ", ""))


def _replaced(d: DimLike, by: Mapping[str, DimLike]) -> DimLike:
    """``d`` with some symbols replaced."""
    return evaluate_size(d, {**{n: symbol(n) for n in d.symbols}, **by}) if isinstance(d, Dim) else d


def _sweep(block: Block) -> None:
    """Erase ops without users or effects, last first: the arithmetic on sizes that nobody reads."""
    op = block.last
    while op is not None:
        previous = op.prev
        for region in op.regions:
            _sweep(region)
        if not op.spec.traits & {"effect", "terminator", "collective", "control"} and not any(r.users for r in op.results):
            op.erase()
        op = previous
