"""A program whose data decide sizes, run in stages: each ends where a size must be known, and the next is built for that size.

An op belongs to the first stage in which all its operands and all the sizes in its types and attributes are known. What later
stages read of a stage are its results. Stages are compiled on first use of their sizes and kept, the last used ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from neuron_ir.backends.jax_cpu.executable import Executable, executable_for, resource_names
from neuron_ir.backends.jax_cpu.signature import Signature
from neuron_ir.builder import Builder
from neuron_ir.core import Block, Func, Module, Op, Value, bulk, clone_func, clone_op
from neuron_ir.datasizes import BIND, bindings, out_of_range, symbols_of
from neuron_ir.diagnostics import fail
from neuron_ir.dims import Dim, DimLike
from neuron_ir.dtypes import I64
from neuron_ir.meaning import x64
from neuron_ir.specialise import specialise
from neuron_ir.types import TOKEN

__all__ = ["StagedExecutable"]

KEPT_SIZES = 64  # executables kept per stage; the least recently used one goes first

_FUNCTIONS = {"floordiv": "floor_divide", "mod": "remainder_floor", "max": "maximum", "min": "minimum"}


class StagedExecutable:
    """A module whose only open sizes are those of its data, called like :class:`Executable`. State is never used up."""

    def __init__(self, module: Module, options: dict[str, Any]):
        self.module = module
        self.options = options
        self.main = module.main
        self.bound = bindings(self.main)
        _refuse_calls(module)
        with bulk():
            self.stages = _Plan(self.main, self.bound).stages(module)
        self.argument_order = _order(self.main)

    def __call__(
        self, weights: Sequence[Any], state: Sequence[Any], resources: Sequence[Any], inputs: Sequence[Any]
    ) -> Sequence[Any]:
        """The function's results, one JAX array per result. Raises :class:`IRError` where a size is out of its range."""
        values: dict[Value, Any] = dict(zip(self.argument_order, (*weights, *state, *inputs), strict=True))
        named = dict(zip(resource_names(self.module), resources, strict=True))
        sizes: dict[str, int] = {}
        for stage in self.stages:
            executable = stage.executable(sizes, self.options)
            results = executable((), (), [named[n] for n in stage.resources], [values[v] for v in stage.inputs])
            values.update(zip(stage.outputs, results, strict=True))
            for op in stage.binds:
                name = str(op.get("size"))
                sizes[name] = self.read(op, name, values[op.operands[0]])
                values[op.results[0]] = values[op.operands[0]]
        return self.results(values)

    def read(self, op: Op, name: str, value: Any) -> int:
        """The size that the data give a symbol."""
        size = int(value)
        low, high = bounds = self.main.dims.get(name, (0, None))
        if size < low or high is not None and size > high:
            raise op.error("runtime", out_of_range(name, size, bounds))
        return size

    def results(self, values: Mapping[Value, Any]) -> list[Any]:
        """The results in order, each an array of its own."""
        seen: set[Value] = set()
        given = []
        with x64():
            for v in self.main.body.terminator.operands:
                given.append(values[v].copy() if v in seen else values[v])
                seen.add(v)
        return given


def _order(main: Func) -> list[Value]:
    """The arguments as an executable takes them: weights, state, inputs."""
    signature = Signature.of(main)
    return [main.args[i] for i in (*signature.weights, *signature.state, *signature.inputs)]


def _refuse_calls(module: Module) -> None:
    for func in module.funcs.values():
        if func is not module.main:
            for op in bindings(func).values():
                message = f"{op.name} in @{func.name}: only @{module.main.name} can be run in stages; inline the call"
                raise fail("unsupported", message, op.loc)


class _Stage:
    """One part of the program as a function of its own, whose sizes are those that earlier stages have found."""

    def __init__(self, module: Module, inputs: list[Value], outputs: list[Value], binds: list[Op]):
        self.module = module
        self.inputs, self.outputs, self.binds = inputs, outputs, binds
        self.resources = list(resource_names(module))
        self.symbols = {name for op in module.main.walk() for name in symbols_of(op)}
        self.symbols |= {n for a in module.main.args for d in a.shape if isinstance(d, Dim) for n in d.symbols}
        self.made: OrderedDict[tuple[int, ...], Executable] = OrderedDict()

    def executable(self, sizes: Mapping[str, int], options: dict[str, Any]) -> Executable:
        """The executable for these sizes."""
        mine = {name: sizes[name] for name in sorted(self.symbols)}
        key = tuple(mine.values())
        found = self.made.get(key)
        if found is None:
            try:
                sized = specialise(self.module, mine) if mine else self.module
                sized.verify()  # some operations need elements, and sizes may come out that do not fit
            except ValueError as error:  # a size that came out negative
                known = ", ".join(f"{n} = {s}" for n, s in mine.items())
                raise fail("runtime", f"@{self.module.main.name}: {error}, with {known}", self.module.main.loc) from None
            found = self.made[key] = executable_for(sized, options)
        self.made.move_to_end(key)
        while len(self.made) > KEPT_SIZES:
            self.made.popitem(last=False)
        return found


class _Plan:
    """Which stage each op of a function belongs to, and what goes from one to another."""

    def __init__(self, main: Func, bound: Mapping[str, Op]):
        self.main, self.bound = main, bound
        self.level: dict[Op, int] = {}
        last_effect = 0
        for op in main.body.ops:
            if op is main.body.terminator or _is_free(op, bound):
                continue
            level = max([self.level_of(v) for v in _operands(op)], default=0)
            symbols = symbols_of(op) & bound.keys()
            level = max([level, *(self.level[bound[n]] + (op.name != "neuron.dim_size") for n in symbols)])
            if op.name not in (BIND, "neuron.check") and any(inner.spec.traits & {"effect", "collective"} for inner in op.walk()):
                level = last_effect = max(level, last_effect)
            self.level[op] = level

    def level_of(self, value: Value) -> int:
        return self.level.get(value.op, 0) if value.op is not None else 0

    def stages(self, module: Module) -> list[_Stage]:
        count = max(self.level.values(), default=0) + 1
        return [self.stage(module, k) for k in range(count)]

    def stage(self, module: Module, k: int) -> _Stage:
        """The stage ``k`` as a module: its ops in order, with the constants that they read."""
        func = Func(self.main.name, loc=self.main.loc)
        func.dims = dict(self.main.dims)
        mapping: dict[Value, Value] = {}
        inputs: list[Value] = []
        mine = [op for op in self.main.body.ops if self.level.get(op) == k]
        for op in mine:
            if op.name == BIND:
                mapping[op.results[0]] = self.value(op.operands[0], func, mapping, inputs)
                continue
            sources = [self.bound[n].results[0] for n in symbols_of(op) & self.bound.keys()] if op.name == "neuron.dim_size" else []
            for v in (*_operands(op), *sources):
                self.value(v, func, mapping, inputs)
            if sources:
                found = {str(s.op.get("size")): mapping[s] for s in sources if s.op is not None}
                mapping[op.results[0]] = _size_value(Builder(func.body, op.loc), op.get("size"), found)
            else:
                func.body.append(clone_op(op, mapping))
        outputs = self.outputs(mine, k)
        func.set_results([self.value(v, func, mapping, inputs) for v in outputs])
        part = Module(module.name)
        part.weights, part.loc = module.weights, module.loc
        part.add(func)
        if any(op.name == "func.call" for op in func.walk()):
            for other in module.funcs.values():
                if other is not self.main:
                    part.add(clone_func(other))
        return _Stage(part, inputs, outputs, [op for op in mine if op.name == BIND])

    def value(self, v: Value, func: Func, mapping: dict[Value, Value], inputs: list[Value]) -> Value:
        """What stands for ``v`` in a stage: its own op's result, a constant made anew, or an input."""
        found = mapping.get(v)
        if found is None and v.op is not None and _is_free(v.op, self.bound):
            func.body.append(clone_op(v.op, mapping))
            found = mapping[v]
        if found is None:
            if v.type is TOKEN:
                raise fail("unsupported", f"@{self.main.name}: a token goes from before a size of the data to after it", v.loc)
            found = mapping[v] = func.add_arg(v.type, v.name)
            inputs.append(v)
        return found

    def outputs(self, mine: Sequence[Op], k: int) -> list[Value]:
        """The values of this stage that are read after it. The first stage hands on what the program gives back as it got it."""
        terminator = self.main.body.terminator
        own = {r for op in mine for r in op.results}
        if k == 0:
            own |= {v for v in terminator.operands if v.op is None or _is_free(v.op, self.bound)}
        needed: dict[Value, None] = {}
        for op in mine:
            if op.name == BIND:
                needed[op.operands[0]] = None
        for later in (*(op for op, level in self.level.items() if level > k), terminator):
            for v in _operands(later):
                needed[v] = None
        reads = {n for op, level in self.level.items() if level > k and op.name == "neuron.dim_size" for n in symbols_of(op)}
        for name in reads & self.bound.keys():
            needed[self.bound[name].results[0]] = None
        return [v for v in needed if v in own or (k == 0 and v.op is not None and _is_free(v.op, self.bound) and _is_bound(v))]


def _is_bound(value: Value) -> bool:
    return any(op.name == BIND for op in value.users)


def _is_free(op: Op, bound: Mapping[str, Op]) -> bool:
    """Whether an op is a constant, which each stage that reads it makes for itself."""
    return "constant" in op.spec.traits and not op.operands and symbols_of(op).isdisjoint(bound)


def _operands(op: Op) -> list[Value]:
    """What an op and the ops inside of it read from outside."""
    if not op.regions:
        return op.operands
    inside: set[Block] = {region for inner in op.walk() for region in inner.regions}
    return [v for inner in op.walk() for v in inner.operands if _block_of(v) not in inside]


def _block_of(value: Value) -> Any:
    return value.owner.block if isinstance(value.owner, Op) else value.owner


def _size_value(b: Builder, size: DimLike, found: Mapping[str, Value]) -> Value:
    """A size as an i64 of rank 0, computed from the values of its symbols."""
    if isinstance(size, int):
        return b.const(size, I64)
    total: Value | None = None
    for monomial, coefficient in size.terms:
        product: Value | None = None if coefficient == 1 and monomial else b.const(coefficient, I64)
        for atom in monomial:
            if atom.function:
                operands = [_size_value(b, a, found) for a in atom.args]
                factor = b.make(f"neuron.{_FUNCTIONS[atom.function]}", *operands)
            else:
                factor = found[atom.text]
            product = factor if product is None else b.multiply(product, factor)
        total = product if total is None else b.add(total, product)
    assert total is not None
    return total
