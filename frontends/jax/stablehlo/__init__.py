"""StableHLO and CHLO ops into Neuron IR: one file per family, one function per op, all found in :data:`rule.RULES`."""

from neuron_ir.frontends.jax.stablehlo import (
    calls,
    collectives,
    contraction,
    control,
    dynamic,
    elementwise,
    indexing,
    movement,
    quantised,
    reduction,
    sources,
    tuples,
)
from neuron_ir.frontends.jax.stablehlo.rule import RULES, WITHOUT_RULE

__all__ = [
    "RULES",
    "WITHOUT_RULE",
    "calls",
    "collectives",
    "contraction",
    "control",
    "dynamic",
    "elementwise",
    "indexing",
    "movement",
    "quantised",
    "reduction",
    "sources",
    "tuples",
]
