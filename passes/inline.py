"""Inlining of calls."""

from __future__ import annotations

from dataclasses import dataclass

from neuron_ir.core import Func, Module, Op, Value, clone_op
from neuron_ir.locations import FileLoc, Loc
from neuron_ir.passmanager import Context, Pass, option

__all__ = ["Inline"]


@dataclass(frozen=True)
class Inline(Pass):
    """Replace each ``func.call`` by the body of the function, then drop functions that were called and no longer are.

    Locations of the inlined ops gain the call as their caller. Recursive calls stay.
    """

    keep_functions: bool = option(False, "keep functions whose every call was inlined")

    def run(self, module: Module, ctx: Context) -> None:
        called = {str(op.get("callee")) for op in module.walk() if op.name == "func.call"}
        done: set[str] = set()
        for name in list(module.funcs):
            _inline_into(module, name, done, (), ctx)
        if self.keep_functions:
            return
        left = {str(op.get("callee")) for op in module.walk() if op.name == "func.call"}
        for name in sorted(called - left):
            if name in module.funcs and module.funcs[name] is not module.main:
                del module.funcs[name]
                ctx.count("functions dropped")


def _inline_into(module: Module, name: str, done: set[str], active: tuple[str, ...], ctx: Context) -> None:
    """Inline the calls of one function, those of its callees first, so that each body is copied in its final form."""
    if name in done:
        return
    done.add(name)
    caller = module.funcs[name]
    active = (*active, name)
    for op in caller.walk():
        if op.name != "func.call":
            continue
        callee = str(op.get("callee"))
        if callee in active:
            ctx.decline("the call is recursive")
            continue
        _inline_into(module, callee, done, active, ctx)
        reason = _replace(op, caller, module.funcs[callee], module)
        if reason:
            ctx.decline(reason)
        else:
            ctx.count("calls inlined")


def _replace(call: Op, caller: Func, callee: Func, module: Module) -> str:
    """Put the callee's body in place of the call; gives the reason where it cannot be."""
    if any(inner.name == "func.call" and inner.get("callee") == callee.name for inner in callee.walk()):
        return "the call is recursive"
    types = [v.type for v in (*call.operands, *call.results)]
    if types != [a.type for a in callee.args] + callee.result_types:
        return "the types of call and function differ"
    if any(caller.dims.get(name) != bounds for name, bounds in callee.dims.items()):
        return "call and function have different symbolic dims"
    block = call.block
    assert block is not None
    mapping: dict[Value, Value] = dict(zip(callee.args, call.operands, strict=True))
    for op in callee.body.ops:
        if op.name == "func.return":
            call.replace_with([mapping[v] for v in op.operands])
            break
        copy = clone_op(op, mapping)
        for inner in copy.walk():
            inner.loc = _called_from(inner.loc, call.loc)
        block.insert_before(copy, call)
    return ""


def _called_from(loc: Loc, call: Loc) -> Loc:
    """``loc`` with the call at the end of its chain of callers."""
    if not (isinstance(loc, FileLoc) and isinstance(call, FileLoc)) or loc.implicit or call.implicit:
        return loc
    return loc._replace(caller=_called_from(loc.caller, call) if loc.caller else call)  # type: ignore[arg-type]
