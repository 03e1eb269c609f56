"""What an op costs: arithmetic per engine. What a kernel moves and how long it takes follow in :mod:`neuron_ir.kernel_cost`.

The unit of account is the element that an engine must touch, or for the Tensor engine the floating-point operation. An op's own
``cost`` facet overrides the default of its traits; a composite without one costs what its expansion costs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from neuron_ir.core import Block, Func, Op, Value
from neuron_ir.meaning import expansion
from neuron_ir.traffic import trips
from neuron_ir.types import TensorType

__all__ = ["Cost", "cost_of", "cost_of_block", "cost_of_func"]

# Functions that the Scalar engine evaluates by piecewise polynomials; other elementwise work goes to the Vector engine.
SCALAR_ENGINE = frozenset(
    "neuron." + name
    for name in """
    exponential exponential_minus_one exp2 log log_plus_one log2 log10 tanh logistic sine cosine tan erf erfc sqrt rsqrt cbrt
    gelu silu mish softplus atan sinh cosh reciprocal
    """.split()
)


@dataclass(frozen=True)
class Cost:
    """Work of one op: ``flops`` of the Tensor engine, elements through the Vector (``dve``), Scalar (``act``), GpSimd engines."""

    flops: int = 0
    dve: int = 0
    act: int = 0
    gpsimd: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def cost_of(op: Op) -> Cost:
    """The cost of one op of static shapes, its regions included (a loop's region counts once where the trip count is unknown)."""
    spec = op.spec
    if spec.cost is not None:
        cost: Cost = spec.cost(op)
        return cost
    if op.regions:
        times, inner = trips(op), cost_of_block(op.regions[-1])
        return Cost(*(times * getattr(inner, f.name) for f in fields(inner)))
    if "elementwise" in spec.traits:
        n = _elements(op.results[0])
        return Cost(act=n) if op.name in SCALAR_ENGINE else Cost(dve=n)
    if "reduction" in spec.traits:
        return Cost(dve=sum(map(_elements, op.operands)))
    if spec.expand is not None:
        return cost_of_block(expansion(op))
    if spec.traits & {"view", "constant", "terminator"}:
        return Cost()
    return Cost(gpsimd=sum(map(_elements, op.results)))


def cost_of_block(block: Block) -> Cost:
    """The sum over a block's ops."""
    total = Cost()
    for op in block.ops:
        total = total + cost_of(op)
    return total


def cost_of_func(func: Func) -> Cost:
    """The sum over a function's ops."""
    return cost_of_block(func.body)


def _elements(value: Value) -> int:
    return value.type.size if isinstance(value.type, TensorType) else 0
