"""For random modules: exact passes keep every bit of every result, others stay within their tolerance, all give valid modules."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from neuron_ir.core import Module
from neuron_ir.instrument import VerifyEach, VerifyRoundtrip
from neuron_ir.numerics import VerifyNumerics
from neuron_ir.passmanager import PassManager
from neuron_ir.pipeline import find_pass, parse_pipeline, pass_names
from tests.property.random_modules import modules

# Not shrunk: running a candidate compiles it.
SLOW = settings(
    deadline=None,
    max_examples=6,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
EXACT = [name for name in pass_names() if find_pass(name).exact]


def run(module: Module, pipeline: str, numerics: bool = True) -> None:
    hooks = [VerifyEach(), VerifyRoundtrip(), *([VerifyNumerics()] if numerics else [])]
    PassManager(parse_pipeline(pipeline), hooks).run(module)


@pytest.mark.parametrize("name", EXACT)
@SLOW
@given(module=modules(8))
def test_an_exact_pass_keeps_every_bit(name: str, module: Module) -> None:
    run(module, name)


@SLOW
@given(modules(8))
def test_pipelines_keep_every_bit(module: Module) -> None:
    run(module, "O1,fuse")


@settings(SLOW, max_examples=20)
@given(modules())
def test_every_pass_gives_a_valid_module(module: Module) -> None:
    for name in pass_names():
        run(module.clone(), name, numerics=False)


@settings(SLOW, max_examples=20)
@given(modules())
def test_passes_are_deterministic(module: Module) -> None:
    for pipeline in ("O3", "fuse{max-ops=3}", "expand_composites"):
        copies = module.clone(), module.clone()
        for copy in copies:
            run(copy, pipeline, numerics=False)
        assert copies[0].text(locations=True) == copies[1].text(locations=True)


@settings(SLOW, max_examples=20)
@given(modules())
def test_a_second_run_finds_nothing_to_do(module: Module) -> None:
    for name in ("canonicalize", "cse", "dce", "fold_constants", "expand_composites"):
        once = module.clone()
        run(once, name, numerics=False)
        text = once.text()
        run(once, name, numerics=False)
        assert once.text() == text
