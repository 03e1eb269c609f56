"""Objects to Neuron IR text. The text is canonical: parsing it and printing again gives the same text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from neuron_ir.attrs import print_attr

if TYPE_CHECKING:
    from neuron_ir.core import Block, Func, Module, Op, Value

__all__ = ["print_func", "print_module", "print_op", "value_names"]

_NAME = re.compile(r"[A-Za-z_][\w.]*")
_SYMBOL = re.compile(r"[\w.$-]+")


def print_module(module: Module, locations: bool = False) -> str:
    """The module's text. ``locations``: with each op's ``loc(...)`` where it is known."""
    from neuron_ir.core import IR_VERSION

    lines: list[str] = [f"module {_symbol(module.name)} {_attrs({'ir_version': IR_VERSION, **module.attrs})} {{"]
    for func in module.funcs.values():
        _Printer(lines, locations).func(func, "  ")
    lines.append("}\n")
    return "\n".join(lines)


def print_func(func: Func, locations: bool = False) -> str:
    """One function's text."""
    lines: list[str] = []
    _Printer(lines, locations).func(func, "")
    return "\n".join(lines) + "\n"


def value_names(func: Func) -> dict[Value, str]:
    """The name that each value of a function has in its text, without ``%``."""
    printer = _Printer([], False)
    printer.func(func, "")
    return {value: name[1:] for value, name in printer.names.items()}


def print_op(op: Op) -> str:
    """One op's text, regions shortened to ``{...}``, for diagnostics."""
    printer = _Printer([], False)
    operands = ", ".join(printer.names.get(v) or printer.fresh(v) for v in op.operands)
    text = f"{op.name}({operands}){_spaced(printer.op_attrs(op))}" + " {...}" * len(op.regions)
    if not op.results:
        return text
    types = ", ".join(map(str, (r.type for r in op.results)))
    inputs = ", ".join(str(v.type) for v in op.operands)
    return f"{text} : ({inputs}) -> {types}"


def _symbol(name: str) -> str:
    return f"@{name}" if _SYMBOL.fullmatch(name) else f'@"{name}"'


def _attrs(attrs: dict[str, Any]) -> str:
    """``{a = 1, flag}``, or nothing."""
    if not attrs:
        return ""
    return "{" + ", ".join(k if v is True else f"{k} = {print_attr(v)}" for k, v in attrs.items()) + "}"


def _spaced(text: str) -> str:
    return f" {text}" if text else ""


class _Printer:
    """Prints one function: keeps the names given to its values."""

    def __init__(self, lines: list[str], locations: bool):
        self.lines = lines
        self.locations = locations
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.next_number = 0

    def fresh(self, value: Value) -> str:
        """A name for ``value``: its hint, made unique, else the next number."""
        hint = value.name
        if hint and _NAME.fullmatch(hint):
            name, n = hint, 0
            while name in self.taken:
                n += 1
                name = f"{hint}_{n}"
            self.taken.add(name)
        else:
            name = str(self.next_number)
            self.next_number += 1
        text = self.names[value] = "%" + name
        return text

    def func(self, func: Func, indent: str) -> None:
        dims = ", ".join(f"{n} in {lo}..{'inf' if hi is None else hi}" for n, (lo, hi) in func.dims.items())
        params = [f"{self.fresh(a)}: {a.type}{_spaced(_attrs(d))}" for a, d in zip(func.args, func.arg_attrs, strict=True)]
        results = [f"{t}{_spaced(_attrs(d))}" for t, d in zip(func.result_types, func.result_attrs, strict=True)]
        bare = len(results) == 1 and not (func.attrs and not func.result_attrs[0])  # else the function's would read as the result's
        arrow = "" if not results else f" -> {results[0]}" if bare else f" -> ({', '.join(results)})"
        head = f"{indent}func {_symbol(func.name)}{f'[{dims}]' if dims else ''}("
        tail = f"){arrow}{_spaced(_attrs(func.attrs))} {{"
        if len(head) + sum(map(len, params)) > 110:
            joint = f",\n{indent}    "
            self.lines.append(f"{head}\n{indent}    {joint.join(params)}\n{indent}{tail}")
        else:
            self.lines.append(head + ", ".join(params) + tail)
        self.ops(func.body, indent + "  ")
        self.lines.append(indent + "}")

    def ops(self, block: Block, indent: str) -> None:
        names, lines, locations = self.names, self.lines, self.locations
        op = block.first
        while op is not None:
            text = f"{op.name}({', '.join([names.get(v) or self.fresh(v) for v in op.operands])})"
            if op.attrs:
                text = f"{text} {self.op_attrs(op)}"
            results = op.results
            if results:
                text = f"{', '.join([self.fresh(r) for r in results])} = {text}"
            if op.regions:
                text = self.regions(op, indent, text)
            if results:
                text = f"{text} : {results[0].type.text if len(results) == 1 else ', '.join([r.type.text for r in results])}"
            if locations and not op.loc.implicit:
                text = f"{text} loc({op.loc})"
            lines.append(indent + text)
            op = op.next

    def op_attrs(self, op: Op) -> str:
        """The op's attributes, in the order of their declaration."""
        attrs = op.attrs
        return _attrs({name: attrs[name] for name in op.spec.attrs if name in attrs} if len(attrs) > 1 else attrs)

    def regions(self, op: Op, indent: str, text: str) -> str:
        """Print all but the last line of an op with regions; gives that last line without indent."""
        named = len(op.spec.regions) > 1
        for i, block in enumerate(op.regions):
            label = f"{op.spec.regions[i].name} " if named and i < len(op.spec.regions) else ""
            self.lines.append(f"{indent}{text} {label}{{" if i == 0 else f"{indent}}} {label}{{")
            if block.args:
                args = ", ".join(f"{self.fresh(a)}: {a.type}" for a in block.args)
                self.lines.append(f"{indent}^({args}):")
            self.ops(block, indent + "  ")
        return "}"
