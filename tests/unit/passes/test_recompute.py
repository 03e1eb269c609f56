"""Recomputation brings the memory plan within a budget, and the executor's own temporary memory with it."""

from __future__ import annotations

import numpy
import pytest

import neuron_ir
from neuron_ir import IRError
from neuron_ir.backends.jax_cpu.executable import traceable
from neuron_ir.meaning import x64
from neuron_ir.memory_plan import memory_plan
from neuron_ir.passes.recompute import Recompute

LAYERS, SIZE = 6, 64


def program() -> neuron_ir.Module:
    """Layers forward, then backward through what each of them made: everything waits for its turn."""
    type = f"tensor<{SIZE}x{SIZE}xf32>"
    lines, last = [f"func @main(%x: {type}) -> {type} {{"], "x"
    for i in range(LAYERS):
        lines += [f"%z{i} = neuron.matmul(%{last}, %x) : {type}", f"%a{i} = neuron.softmax(%z{i}) : {type}"]
        last = f"a{i}"
    for i in reversed(range(LAYERS)):
        lines += [f"%p{i} = neuron.multiply(%{last}, %a{i}) : {type}", f"%q{i} = neuron.matmul(%p{i}, %z{i}) : {type}"]
        last = f"q{i}"
    return neuron_ir.parse("\n".join([*lines, f"func.return(%{last})", "}"]))


def temporary_bytes(module: neuron_ir.Module) -> int:
    """What XLA needs beside arguments and results."""
    import jax

    traced = traceable(module, {})
    with x64():
        compiled = jax.jit(traced.function).lower(*traced.structs).compile()
    return int(compiled.memory_analysis().temp_size_in_bytes)


def test_the_plan_and_the_executor_keep_to_a_budget() -> None:
    module = program()
    plain = module.clone()
    before = memory_plan(module.main).peak_bytes
    neuron_ir.run_passes(module, f"recompute{{budget={int(0.7 * before)}}}")
    assert memory_plan(module.main).peak_bytes <= 0.7 * before
    assert temporary_bytes(module) <= 0.75 * temporary_bytes(plain)
    x = numpy.random.default_rng(0).standard_normal((SIZE, SIZE), dtype=numpy.float32)
    want = x.astype(numpy.float64)
    made = []
    for _ in range(LAYERS):
        z = (made[-1][1] if made else want) @ x.astype(numpy.float64)
        e = numpy.exp(z - z.max(-1, keepdims=True))
        made.append((z, e / e.sum(-1, keepdims=True)))
    y = made[-1][1]
    for z, a in reversed(made):
        y = (y * a) @ z
    got = neuron_ir.compile(module)(x)
    assert abs(got - y).max() <= 1e-4 * abs(y).max()  # f32, sums of 64 products through 12 layers


@pytest.mark.parametrize("options", [{"budget": -1}, {"budget": 1, "most_kernels": -1}])
def test_negative_numbers_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(IRError, match="is negative"):
        Recompute(**options)
