"""Every pass, the parser, the verifier and the printer do work in proportion to the program."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from neuron_ir.core import Module
from neuron_ir.parser import parse
from neuron_ir.passmanager import PassManager
from neuron_ir.pipeline import parse_pipeline, pass_names

SMALL, LARGE = 400, 4_000
ALLOWED = 10.5
SORTS = {"fuse": 12}  # it keeps its edges in order of gain, so a logarithm comes to its work


def program(n: int) -> str:
    """About ``n`` ops in one long chain, with something to do for every pass: views of views, splats, equal and dead ops."""
    lines = [
        "func @main(%x: tensor<4x4xf32>, %w: tensor<4x4xf32>) -> tensor<4x4xf32> {",
        "  %one = neuron.constant() {value = dense<1.0>} : tensor<f32>",
        "  %v0 = neuron.tanh(%x) : tensor<4x4xf32>",
    ]
    for i in range(1, n // 8 + 1):
        lines += [
            f"  %a{i} = neuron.linear(%v{i - 1}, %w) : tensor<4x4xf32>",
            f"  %b{i} = neuron.reshape(%a{i}) : tensor<16xf32>",
            f"  %c{i} = neuron.reshape(%b{i}) : tensor<4x4xf32>",
            f"  %d{i} = neuron.broadcast_in_dim(%one) : tensor<4x4xf32>",
            f"  %e{i} = neuron.multiply(%c{i}, %d{i}) : tensor<4x4xf32>",
            f"  %f{i} = neuron.softmax(%w) : tensor<4x4xf32>",
            f"  %g{i} = neuron.transpose(%x) {{permutation = [1, 0]}} : tensor<4x4xf32>",
            f"  %v{i} = neuron.add(%e{i}, %f{i}) : tensor<4x4xf32>",
        ]
    return "\n".join([*lines, f"  func.return(%v{n // 8})", "}"])


@pytest.fixture(scope="module")
def modules() -> dict[int, Module]:
    return {n: parse(program(n)) for n in (SMALL, LARGE)}


def calls(work: Callable[[], object]) -> int:
    """How many functions are called: a measure of work that a busy machine does not change."""
    count = 0

    def tick(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tick)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def ratio(work: Callable[[int], Callable[[], object]]) -> float:
    """The work for the large program over that for the small one."""
    work(SMALL)()  # imports and compiles what is needed once
    return calls(work(LARGE)) / calls(work(SMALL))


@pytest.mark.parametrize("name", pass_names())
def test_passes(name: str, modules: dict[int, Module]) -> None:
    def work(n: int) -> Callable[[], object]:
        module, passes = modules[n].clone(), PassManager(parse_pipeline(name))
        return lambda: passes.run(module)

    assert ratio(work) < SORTS.get(name, ALLOWED)


def test_text(modules: dict[int, Module]) -> None:
    texts = {n: program(n) for n in modules}
    assert ratio(lambda n: lambda: parse(texts[n])) < ALLOWED
    assert ratio(lambda n: modules[n].text) < ALLOWED


def test_verifier(modules: dict[int, Module]) -> None:
    assert ratio(lambda n: modules[n].verify) < ALLOWED
