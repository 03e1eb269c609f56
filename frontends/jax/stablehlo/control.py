"""Control flow, barriers, and calls of functions in the same module."""

from __future__ import annotations

from typing import Any

from neuron_ir.frontends.jax.stablehlo.rule import Translator, rule


@rule("stablehlo.while")
def _while(c: Translator, op: Any, *inits: Any) -> Any:
    types = [v.type for v in inits]
    return c.b.while_(*inits, cond=c.region(op, 0, types), body=c.region(op, 1, types))


@rule("stablehlo.if")
def _if(c: Translator, op: Any, pred: Any) -> Any:
    return c.b.if_(pred, true_branch=c.region(op, 0, []), false_branch=c.region(op, 1, []))


@rule("stablehlo.case")
def _case(c: Translator, op: Any, index: Any) -> Any:
    return c.b.case(index, branches=[c.region(op, i, []) for i in range(len(op.regions))])


@rule("stablehlo.optimization_barrier")
def _optimization_barrier(c: Translator, op: Any, *values: Any) -> Any:
    return c.b.optimization_barrier(*values)


@rule("func.call", sized=True)
def _call(c: Translator, op: Any, *operands: Any) -> Any:
    return c.call(op, op.attributes["callee"].value, list(operands))


@rule("stablehlo.composite", sized=True)
def _composite(c: Translator, op: Any, *operands: Any) -> Any:
    return c.call(op, op.attributes["decomposition"].value, list(operands))
