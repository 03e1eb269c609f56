"""Checks every rule of the IR and reports all violations at once."""

from __future__ import annotations

from collections.abc import Sequence

from neuron_ir.constraints import parse_constraint
from neuron_ir.core import Block, Func, Module, Op, Value
from neuron_ir.datasizes import BIND, bindings, own_symbols
from neuron_ir.diagnostics import Diagnostic, IRError
from neuron_ir.dims import Dim
from neuron_ir.opdef import REQUIRED, result_types
from neuron_ir.parser import MAX_NESTING, parse_dim
from neuron_ir.trees import output_tree
from neuron_ir.types import TensorType, Type, compatible

__all__ = ["verify"]

MAX_ERRORS = 100


def verify(module: Module) -> None:
    """Raise :class:`IRError` with every violation (the first 100) in the module; return quietly where there is none."""
    errors: list[Diagnostic] = []
    for func in module.funcs.values():
        _Verifier(func, errors).run()
        if len(errors) >= MAX_ERRORS:
            break
    if errors:
        raise IRError(errors[:MAX_ERRORS])


class _Verifier:
    def __init__(self, func: Func, errors: list[Diagnostic]):
        self.func = func
        self.errors = errors
        self.visible: set[Value] = set()
        self.binders = bindings(func)  # symbol -> the op that binds it
        self.unbound = set(self.binders)  # as far as the walk has come

    def run(self) -> None:
        func = self.func
        if not (len(func.arg_attrs) == len(func.args) and len(func.result_attrs) == len(func.result_types)):
            self.errors.append(
                Diagnostic("region", f"@{func.name}: one attribute dict per argument and result is needed", func.loc)
            )
        for value in func.args:
            self.symbols(value.type)
        for name in sorted(self.unbound & _argument_symbols(func)):
            self.report(self.binders[name].error("name", f"the size {name} is one of the arguments' sizes, so it cannot be bound"))
        for i, attrs in enumerate(func.result_attrs):
            self.update(i, attrs.get("updates"))
        self.constraints()
        self.outputs()
        self.block(func.body, "func.return", func.result_types, 0)

    def update(self, index: int, target: object) -> None:
        """The result ``index`` declares that it is the new value of argument ``target``."""
        func = self.func
        if target is None:
            return
        if not isinstance(target, int) or not 0 <= target < len(func.args):
            self.errors.append(
                Diagnostic("attr", f"@{func.name}: result {index} updates argument {target!r}, which does not exist", func.loc)
            )
        elif not compatible(func.args[target].type, func.result_types[index]):
            types = f"{func.args[target].type} and {func.result_types[index]}"
            self.errors.append(
                Diagnostic("type", f"@{func.name}: result {index} updates argument {target}, but they are {types}", func.loc)
            )

    def constraints(self) -> None:
        """Conditions on sizes and inputs that are sizes speak of symbols that the arguments or such inputs give."""
        func = self.func
        try:
            conditions = [parse_constraint(text) for text in func.attrs.get("where", ())]
            numbers = [parse_dim(text) for _, _, text in func.attrs.get("size_inputs", ())]
        except (ValueError, TypeError, IRError) as error:
            reason = error.diagnostics[0].message if isinstance(error, IRError) else str(error)
            self.errors.append(Diagnostic("attr", f"@{func.name}: {reason}", func.loc))
            return
        named = [(str(c), c.symbols) for c in conditions if not isinstance(c, bool)]
        named += [(f"the input of size {d}", d.symbols) for d in numbers if isinstance(d, Dim)]
        for what, names in named:
            missing = sorted(n for n in names if n not in func.dims or n in self.binders)
            if missing:
                reason = "is bound by the data" if missing[0] in self.binders else "has no range"
                self.errors.append(Diagnostic("name", f"@{func.name}: {what}: the size {missing[0]} {reason}", func.loc))
        if False in conditions:
            self.errors.append(Diagnostic("attr", f"@{func.name}: a condition on sizes never holds", func.loc))

    def outputs(self) -> None:
        """The tree of the outputs has a place for each."""
        try:
            output_tree(self.func)
        except (ValueError, TypeError) as error:
            self.errors.append(Diagnostic("attr", f"@{self.func.name}: {error}", self.func.loc))

    def symbols(self, type: Type) -> None:
        """Every symbol of a type has a range in the function's head."""
        if isinstance(type, TensorType) and not type.is_static:
            for d in type.shape:
                for name in d.symbols if isinstance(d, Dim) else ():
                    if name not in self.func.dims:
                        self.errors.append(
                            Diagnostic(
                                "name", f"@{self.func.name}: the size {name} has no range, write [{name} in 0..inf]", self.func.loc
                            )
                        )

    def block(self, block: Block, terminator: str, yields: Sequence[Type] | None, depth: int) -> None:
        if depth > MAX_NESTING:
            self.errors.append(Diagnostic("nesting", f"regions are nested deeper than {MAX_NESTING} levels", block.loc))
            return
        visible = self.visible
        defined = list(block.args)
        visible.update(block.args)
        for op in block.ops:
            for v in op.operands:
                if v not in visible:
                    self.report(op.error("dominance", f"operand {v!r} is not defined before this op"))
            if self.binders:
                self.data_sizes(op, depth)
            self.op(op, depth)
            visible.update(op.results)
            defined.extend(op.results)
            if "terminator" in op.spec.traits and op.next is not None:
                self.report(op.error("region", "a terminator must be the last op of its block"))
        self.terminator(block, terminator, yields)
        visible.difference_update(defined)

    def data_sizes(self, op: Op, depth: int) -> None:
        """A size of the data is bound once, at the function's own level, and before it is used."""
        if op.name == BIND:
            name = str(op.attrs.get("size"))
            if depth:
                self.report(
                    op.error("region", f"the size {name} is bound inside a region; only a function's own level can do that")
                )
            elif self.binders.get(name) is not op:
                self.report(op.error("name", f"the size {name} is bound twice"))
            elif name not in self.func.dims:
                self.report(op.error("name", f"the size {name} has no range, write [{name} in 0..inf] in the function's head"))
            self.unbound.discard(name)
        early = self.unbound & own_symbols(op)
        if early:
            self.report(op.error("dominance", f"the size {min(early)} is used before the op that binds it"))

    def terminator(self, block: Block, name: str, yields: Sequence[Type] | None) -> None:
        last = block.last
        if last is None or last.name != name:
            found = f"ends with {last.name}" if last is not None else "is empty"
            self.errors.append(
                Diagnostic("region", f"a block must end with {name}, but it {found}", last.loc if last else block.loc)
            )
        elif yields is not None and not _all_compatible([v.type for v in last.operands], yields):
            given, wanted = _types([v.type for v in last.operands]), _types(yields)
            self.report(last.error("type", f"gives {given} where {wanted} is declared"))

    def report(self, error: IRError) -> None:
        self.errors.extend(error.diagnostics)

    def op(self, op: Op, depth: int) -> None:
        """The op's own rules. The first violated one is reported: later ones rely on it."""
        try:
            _check_operands(op)
            _check_attrs(op)
            _check_results(op)
            _check_region_count(op)
        except IRError as error:
            self.report(error)
            return
        for i, block in enumerate(op.regions):
            declared = op.spec.regions[min(i, len(op.spec.regions) - 1)]
            args = declared.args(op) if declared.args else None
            if args is not None and not _all_compatible([a.type for a in block.args], args):
                message = f"region {declared.name} takes {_types([a.type for a in block.args])} where {_types(args)} is needed"
                self.report(op.error("region", message))
            around = self.visible
            if op.name == "neuron.fused":
                self.visible = set()
            self.block(block, "neuron.yield", declared.results(op) if declared.results else None, depth + 1)
            self.visible = around


def _argument_symbols(func: Func) -> set[str]:
    shapes = [a.type.shape for a in func.args if isinstance(a.type, TensorType)]
    return {name for shape in shapes for d in shape if isinstance(d, Dim) for name in d.symbols}


def _check_operands(op: Op) -> None:
    spec, n = op.spec, len(op.operands)
    fields = spec.operands
    if n != len(fields) or spec.variadic:
        most = None if spec.variadic else len(fields)
        if n < spec.min_operands or most is not None and n > most:
            few = (
                f"{spec.min_operands}"
                if most == spec.min_operands
                else f"at least {spec.min_operands}"
                if most is None
                else f"{spec.min_operands} to {most}"
            )
            raise op.error("operand", f"takes {few} operand(s), not {n}")
        pairs = [
            (f, v) for f, g in zip(fields, op.operand_groups, strict=True) for v in (g if f.variadic else [g]) if v is not None
        ]
        if len(pairs) != n:
            raise op.error("operand", f"has {n} operands, of which {len(pairs)} have a meaning")
    else:
        pairs = list(zip(fields, op.operands, strict=True))
    for f, v in pairs:
        if not f.accepts(v.type):
            raise op.error("operand", f"operand {f.name} cannot be of type {v.type}")


def _check_attrs(op: Op) -> None:
    declared, attrs = op.spec.attrs, op.attrs
    for name, value in attrs.items():
        field = declared.get(name)
        if field is None:
            raise op.error("attr", f"has no attribute {name}")
        problem = field.problem(value)
        if problem:
            raise op.error("attr", problem)
    if len(attrs) < len(declared):
        for name, field in declared.items():
            if field.default is REQUIRED and name not in attrs:
                raise op.error("attr", f"needs the attribute {name} ({field.kind.name})")


def _check_results(op: Op) -> None:
    spec = op.spec
    inferred = result_types(op)
    if inferred is not None:
        results = op.results
        if len(inferred) != len(results) or not all(
            r.type is t or compatible(r.type, t) for r, t in zip(results, inferred, strict=True)
        ):
            raise op.error("type", f"has the result type {_types([r.type for r in results])}, but computes {_types(inferred)}")
    if spec.check is not None:
        spec.check(op)


def _check_region_count(op: Op) -> None:
    fields, n = op.spec.regions, len(op.regions)
    if n == len(fields):
        return
    least = sum(not (f.optional or f.variadic) for f in fields)
    if n < least or n > len(fields) and not any(f.variadic for f in fields):
        raise op.error("region", f"takes {least} region(s), not {n}")


def _all_compatible(a: Sequence[Type], b: Sequence[Type]) -> bool:
    return len(a) == len(b) and all(map(compatible, a, b))


def _types(types: Sequence[Type]) -> str:
    return ", ".join(map(str, types)) if len(types) == 1 else f"({', '.join(map(str, types))})"
