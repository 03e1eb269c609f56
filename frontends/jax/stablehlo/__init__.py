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
    reduction,
    sources,
)
from neuron_ir.frontends.jax.stablehlo.rule import RULES

__all__ = [
    "RULES",
    "calls",
    "collectives",
    "contraction",
    "control",
    "dynamic",
    "elementwise",
    "indexing",
    "movement",
    "reduction",
    "sources",
]
