"""Gather and scatter. StableHLO moves a gathered window inside the operand and leaves out a scattered one that reaches outside."""

from __future__ import annotations

from typing import Any

from neuron_ir.frontends.jax._compat import stablehlo
from neuron_ir.frontends.jax.stablehlo.rule import Translator, rule
from neuron_ir.types import TensorType


def gather_dims(op: Any) -> dict[str, Any]:
    """The dimension numbers of a gather, named as the Neuron op has them."""
    numbers = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    return {
        "offset_dims": tuple(numbers.offset_dims),
        "collapsed_slice_dims": tuple(numbers.collapsed_slice_dims),
        "operand_batching_dims": tuple(numbers.operand_batching_dims),
        "start_indices_batching_dims": tuple(numbers.start_indices_batching_dims),
        "start_index_map": tuple(numbers.start_index_map),
        "index_vector_dim": numbers.index_vector_dim,
    }


@rule("stablehlo.gather")
def _gather(c: Translator, op: Any, x: Any, indices: Any) -> Any:
    return c.b.gather(
        x,
        indices,
        **gather_dims(op),
        slice_sizes=c.ints(op, "slice_sizes"),
        indices_are_sorted=c.value(op, "indices_are_sorted", False),
        policy="clamp",
    )


@rule("stablehlo.scatter")
def _scatter(c: Translator, op: Any, *values: Any) -> Any:
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    scalars = [TensorType((), v.dtype) for v in values[: len(values) // 2]]
    return c.b.scatter(
        *values,
        update_window_dims=tuple(numbers.update_window_dims),
        inserted_window_dims=tuple(numbers.inserted_window_dims),
        input_batching_dims=tuple(numbers.input_batching_dims),
        scatter_indices_batching_dims=tuple(numbers.scatter_indices_batching_dims),
        scatter_dims_to_operand_dims=tuple(numbers.scattered_dims_to_operand_dims),
        index_vector_dim=numbers.index_vector_dim,
        indices_are_sorted=c.value(op, "indices_are_sorted", False),
        unique_indices=c.value(op, "unique_indices", False),
        policy="drop",
        update_computation=c.region(op, 0, scalars * 2),
    )
