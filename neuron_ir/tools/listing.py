"""What ``neuron-opt --list-passes`` and ``--list-ops`` print."""

from __future__ import annotations

import inspect
import typing

from neuron_ir.opdef import OperandField, OpSpec, RegionField

__all__ = ["form", "kind_name", "list_ops", "list_passes", "mark"]


def list_passes() -> str:
    """Every pass with its help and options, then the named pipelines."""
    from neuron_ir.pipeline import find_pass, named_pipelines, pass_names, pass_options

    lines: list[str] = []
    for name in pass_names():
        cls = find_pass(name)
        lines.append(name)
        lines += [f"    {line}".rstrip() for line in inspect.cleandoc(cls.__doc__ or "").splitlines()]
        for o in pass_options(cls):
            default = ",".join(map(str, o.default)) if isinstance(o.default, tuple) else str(o.default)
            choices = f" ({', '.join(map(str, o.choices))})" if o.choices else ""
            lines.append(f"      {o.name}={default}  {kind_name(o.kind)}: {o.help}{choices}")
    lines.append("")
    lines += [
        f"{'-' if name.startswith('O') else '--pipeline '}{name}: {text or '(nothing)'}" for name, text in named_pipelines().items()
    ]
    return "\n".join(lines) + "\n"


def kind_name(kind: object) -> str:
    """The kind of a pass's option in words."""
    args = typing.get_args(kind)
    return f"list of {args[0].__name__}" if args else getattr(kind, "__name__", str(kind))


def list_ops() -> str:
    """Every op: its name, its fields, and the first line of its help."""
    from neuron_ir.registry import all_ops

    rows = [(form(spec), spec.doc.partition("\n")[0]) for spec in all_ops()]
    width = min(max(len(s) for s, _ in rows), 60)
    return "".join(f"{signature:<{width}}  {doc}\n" for signature, doc in rows)


def form(spec: OpSpec) -> str:
    """How an op is written: ``?`` behind what may be absent, ``...`` behind what may come many times."""
    operands = ", ".join(f"%{o.name}{mark(o)}" for o in spec.operands)
    attrs = ", ".join(a.name for a in spec.own_attrs)
    regions = "".join(f" {r.name}{mark(r)} {{ }}" for r in spec.regions)
    return f"{spec.name}({operands})" + (f" {{{attrs}}}" if attrs else "") + regions


def mark(field: OperandField | RegionField) -> str:
    """``?`` for a field that may be absent, ``...`` for one that may come many times."""
    return "..." if field.variadic else "?" if field.optional else ""
