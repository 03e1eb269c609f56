"""Turn in-place operations into functional ones where the graph alone shows that nobody else sees the write.

`y = relu_(x)` becomes `y = relu(x)`, and later readers of `x` read `y`, when `x` is a fresh tensor made in the
graph and no other tensor can share its memory. Every other write is left alone: the program is then
made functional by torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuron_ir.frontends.torch import _compat
from neuron_ir.frontends.torch.decompositions import FRESH_COMPOSITES

if TYPE_CHECKING:
    import torch


def rewrite_private_writes(graph: torch.fx.Graph) -> None:
    """Make each in-place operation functional whose target no other value of the graph can alias."""
    overload = _compat.get("OpOverload")
    order = {node: position for position, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        target = node.target
        if not isinstance(target, overload) or not target._schema.is_mutable:
            continue
        functional = _functional_form(target)
        written = node.args[0] if node.args else None
        if functional is None or written is None or not _is_private(written, node) or not _same_result(functional, node, written):
            continue
        node.target = functional
        written.replace_all_uses_with(node, delete_user_cb=lambda user, n=node: order[user] > order[n])


def _functional_form(op: Any) -> Any:
    """`aten.add_.Tensor` -> `aten.add.Tensor`, when both take the same arguments and only the first is written."""
    import torch

    schema = op._schema
    name = schema.name.split("::")
    writes = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    if name[0] != "aten" or not name[1].endswith("_") or len(writes) != 1 or len(schema.returns) != 1:
        return None
    packet = getattr(torch.ops.aten, name[1][:-1], None)
    form = getattr(packet, schema.overload_name or "default", None) if packet is not None else None
    if form is None or form._schema.is_mutable or schema.arguments[0].name != writes[0].name:
        return None
    return form if [a.name for a in form._schema.arguments] == [a.name for a in schema.arguments] else None


def _is_private(value: Any, write: torch.fx.Node) -> bool:
    """True for a fresh tensor made by a node of this graph whose every other reader gives a fresh result."""
    import operator

    overload = _compat.get("OpOverload")
    if getattr(value, "op", None) != "call_function":
        return False
    maker = value.args[0] if value.target is operator.getitem else value
    if not isinstance(maker.target, overload) or not _gives_fresh(maker.target):
        return False
    readers = [user for user in value.users if user is not write]
    return all(user.op == "output" or (isinstance(user.target, overload) and _gives_fresh(user.target)) for user in readers)


def _gives_fresh(op: Any) -> bool:
    """No result shares memory with an argument. The `unsafe` views share it and do not say so."""
    schema = op._schema
    if "unsafe" in schema.name or any(r.alias_info is not None for r in schema.returns):
        return False
    return not _compat.is_composite(op) or str(op) in FRESH_COMPOSITES


def _same_result(functional: Any, node: torch.fx.Node, written: torch.fx.Node) -> bool:
    """The functional form gives the dtype and shape of the tensor that the in-place form writes."""
    import torch

    value = written.meta.get("val")
    mode = getattr(value, "fake_mode", None)
    if mode is None:
        return False
    args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
    with mode, torch.no_grad():
        result = functional(*args, **kwargs)
    return bool(result.dtype == value.dtype and tuple(result.shape) == tuple(value.shape))
