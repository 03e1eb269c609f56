"""Tuples and asynchronous starts, both of which dissolve: the IR has the members, and every op is finished where it stands."""

from __future__ import annotations

from typing import Any

from neuron_ir.frontends.jax.stablehlo.rule import Members, Translator, rule, unsupported


@rule("stablehlo.tuple", sized=True)
def _tuple(c: Translator, op: Any, *members: Any) -> Any:
    return [Members(members)]


@rule("stablehlo.get_tuple_element", sized=True)
def _get_tuple_element(c: Translator, op: Any, members: Members) -> Any:
    return [members[c.value(op, "index")]]


@rule("stablehlo.async_start", sized=True)
def _async_start(c: Translator, op: Any, *operands: Any) -> Any:
    """The results of the body, computed here: a future is what it will hold."""
    if len(op.regions) != 1 or not list(op.regions[0].blocks):
        raise unsupported(op, "it has no body")
    return [Members(c.inline(op.regions[0].blocks[0], operands))]


@rule("stablehlo.async_done", sized=True)
def _async_done(c: Translator, op: Any, future: Members) -> Any:
    return list(future)
