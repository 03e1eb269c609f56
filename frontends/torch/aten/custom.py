"""Operations of the user's own that write to their arguments: torch hands them over as functional ones."""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
from neuron_ir.diagnostics import fail
from neuron_ir.frontends.torch.aten.hops import higher_order
from neuron_ir.frontends.torch.aten.host import host_call
from neuron_ir.frontends.torch.aten.views import section
from neuron_ir.frontends.torch.lowering import Context, rules


@higher_order("auto_functionalized")
def auto_functionalized(c: Context, op: Any, **arguments: Any) -> Any:
    """The operation's results, then the new values of the arguments that it writes."""
    returned, new = _called(c, op, arguments)
    return (*returned, *new)


@higher_order("auto_functionalized_v2")
def auto_functionalized_v2(c: Context, op: Any, **arguments: Any) -> Any:
    """As above, with written arguments given as views of whole tensors, whose new values are the results."""
    bases = list(arguments.pop("_all_bases", ()))
    views: list[tuple[int, tuple[int, Any, Any] | None]] = []
    for name in _written(op):
        value, view = _view(c, bases, name, arguments)
        arguments[name] = value
        if view is not None:
            views.append(view)
    if len({index for index, _ in views}) != len(views):
        raise c.unsupported(f"{op} writes to two views of one tensor")
    returned, new = _called(c, op, arguments)
    for (index, place), value in zip(views, new, strict=True):
        bases[index] = value if place is None else _put(c, bases[index], value, *place)
    return (*returned, *bases)


def _written(op: Any) -> list[str]:
    return [a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def _called(c: Context, op: Any, arguments: dict[str, Any]) -> tuple[list[Any], list[Value]]:
    """The results of an operation (one ``None`` where it has none) and the new values of what it writes."""
    rule, count = rules().get(str(op)), len(op._schema.returns)
    if rule is None:
        made = host_call(c, op, (), arguments, [name for name in _written(op) if arguments[name] is not None])
        return list(made[:count]) or [None], made[count:]
    given = rule(c, **arguments)
    values = list(given) if isinstance(given, tuple | list) else [given]
    wanted = count + sum(arguments[name] is not None for name in _written(op))
    if len(values) != wanted:
        raise fail("unsupported", f"{op}: its lowering gives {len(values)} values where {wanted} are needed", c.loc)
    return values[:count] or [None], values[count:]


def _view(c: Context, bases: list[Value], name: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
    """A written argument's present value, and (the index of its tensor, the slice of it or ``None`` for the whole)."""

    def take(key: str) -> Any:
        return arguments.pop(f"_{name}_{key}", None)

    if f"_{name}_base_index" not in arguments:
        raise c.unsupported(f"a list of tensors that is written, {name}")
    index, _alias = take("base_index"), take("alias")
    offset, _size, _stride = take("storage_offset"), take("size"), take("stride")
    dim, start, end = take("slice_dim"), take("slice_start"), take("slice_end")
    if offset is not None:
        raise c.unsupported(f"{name} is written through a view that is no slice")
    if index is None:
        return None, None
    if dim is None:
        return bases[index], (index, None)
    return section(c, bases[index], dim, start, end), (index, (dim, start, end))


def _put(c: Context, base: Value, value: Value, dim: int, start: Any, end: Any) -> Value:
    """``base`` with ``value`` from ``start`` to ``end`` of a dim."""
    size = base.shape[dim]
    pieces = [section(c, base, dim, 0, start)] if start != 0 else []
    pieces.append(value)
    pieces += [section(c, base, dim, end, size)] if end != size else []
    return pieces[0] if len(pieces) == 1 else c.b.concatenate(*pieces, dimension=dim)
