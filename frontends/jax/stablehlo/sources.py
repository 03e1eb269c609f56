"""Constants, counters and random numbers: ops that make values."""

from __future__ import annotations

from typing import Any

from neuron_ir.frontends.jax._compat import stablehlo
from neuron_ir.frontends.jax.stablehlo.rule import Translator, rule


@rule("stablehlo.iota")
def _iota(c: Translator, op: Any) -> Any:
    return c.b.iota(iota_dimension=c.value(op, "iota_dimension"), out=c.out(op))


@rule("stablehlo.rng_bit_generator")
def _rng_bit_generator(c: Translator, op: Any, state: Any) -> Any:
    algorithm = c.enum(op, "rng_algorithm", stablehlo.RngAlgorithmAttr, "DEFAULT")
    return c.b.rng_bit_generator(state, rng_algorithm=algorithm, out=[c.out(op, state.shape, 0), c.out(op, None, 1)])


@rule("stablehlo.rng")
def _rng(c: Translator, op: Any, a: Any, b: Any, shape: Any) -> Any:
    distribution = c.enum(op, "rng_distribution", stablehlo.RngDistributionAttr, "UNIFORM")
    return c.b.rng(a, b, rng_distribution=distribution, out=c.out(op))


@rule("stablehlo.create_token")
def _create_token(c: Translator, op: Any) -> Any:
    return c.b.create_token()


@rule("stablehlo.after_all")
def _after_all(c: Translator, op: Any, *tokens: Any) -> Any:
    return c.b.after_all(*tokens)


@rule("stablehlo.partition_id")
def _partition_id(c: Translator, op: Any) -> Any:
    return c.b.partition_id()


@rule("stablehlo.replica_id")
def _replica_id(c: Translator, op: Any) -> Any:
    return c.b.replica_id()
