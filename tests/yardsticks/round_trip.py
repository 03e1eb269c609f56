"""JAX's primitive harnesses to Neuron IR and back: the StableHLO that the IR is exported to gives on JAX what the harness gives.

A case is a harness as in ``harnesses.py``, with the same judge. XLA's own CPU client compiles the exported text, with none of
this project's executor; text that calls what only this project knows (``neuron.eig``, ``neuron.schur``) is imported again instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.yardsticks import harnesses
from tests.yardsticks.harnesses import arguments, cases, place, prepare

__all__ = ["NAME", "arguments", "cases", "place", "prepare", "run_case", "run_cases"]

NAME = "round_trip"


def run_case(case: str) -> tuple[str, str]:
    """The outcome of one harness, with the reason where it is not ``right``."""
    return harnesses.judged(case, there_and_back)


def run_cases(cases: Sequence[str]) -> list[tuple[str, str]]:
    """The outcomes of several harnesses, made one program of; one by one where not all of them are right so."""
    return harnesses.judged_together(cases, there_and_back)


def there_and_back(function: Any, args: Sequence[Any]) -> list[Any]:
    """The function's flat results by way of the IR and back."""
    import jax
    import numpy as np

    import neuron_ir

    text = neuron_ir.to_stablehlo(neuron_ir.from_jax(function, *args))
    leaves = jax.tree.leaves(args)
    if "@neuron." in text:
        result = neuron_ir.compile(neuron_ir.from_stablehlo(text))(*leaves)
        return [np.asarray(x) for x in (result if isinstance(result, tuple) else (result,))]
    return on_xla(text, leaves)


def on_xla(text: str, args: Sequence[Any]) -> list[Any]:
    """The results of a StableHLO text from XLA's CPU client."""
    import jax
    import numpy as np
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib import xla_client
    from jaxlib.mlir import ir

    device = jax.devices("cpu")[0]
    module = ir.Module.parse(text, context=make_ir_context())
    options = xla_client.CompileOptions()
    program = device.client.compile_and_load(module, xla_client.DeviceList((device,)), options)
    results = program.execute_sharded([jax.device_put(x, device) for x in args])
    return [np.asarray(x[0]) for x in results.disassemble_into_single_device_arrays()]


if __name__ == "__main__":
    from tests.yardsticks.runner import main

    raise SystemExit(main("tests.yardsticks.round_trip"))
