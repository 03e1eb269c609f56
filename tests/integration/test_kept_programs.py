"""Compiled programs that other processes find: the same values, the same refusals, and nothing found that should not be."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import torch

import neuron_ir
from neuron_ir.backends.jax_cpu import executable
from neuron_ir.cache import Cache, opened
from neuron_ir.core import Module
from neuron_ir.dialects.neuron.custom import TARGETS, custom_target

TEXT = """
module @conditions {
  func @main(%x: tensor<4x4xf32>, %i: tensor<1x1xi64>) -> (tensor<4x4xf32>, tensor<1x4xf32>) {
    %l = neuron.cholesky(%x) : tensor<4x4xf32>
    %g = neuron.gather(%l, %i) {offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1,
      slice_sizes = [1, 4], policy = "raise"} : tensor<1x4xf32>
    func.return(%l, %g)
  }
}
"""
PLAIN = "func @main(%x: tensor<3xf32>) -> tensor<3xf32> { %y = neuron.add(%x, %x) : tensor<3xf32> func.return(%y) }"
STATE = """
func @main(%c: tensor<1024xf32> {kind = "buffer", weight = "c"}, %x: tensor<1024xf32>)
    -> (tensor<1024xf32> {updates = 0}, tensor<1024xf32>) {
  %n = neuron.add(%c, %x) : tensor<1024xf32>
  %y = neuron.add(%n, %n) : tensor<1024xf32>
  func.return(%n, %y)
}
"""
MATRIX = np.diag(np.float32([1, 4, 9, 16]))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEURON_IR_CACHE", "on")
    monkeypatch.setenv("NEURON_IR_CACHE_DIR", str(tmp_path))
    return tmp_path


def found(module: Module, *args, **options) -> bool:
    """Whether a program that is new to this process comes from disk; runs it on ``args``."""
    executable._cache.clear()
    before = executable._build
    built = []

    def counted(*given):
        built.append(True)
        return before(*given)

    executable._build = counted
    try:
        neuron_ir.compile(module, **options)(*args)
    finally:
        executable._build = before
    return not built


def test_another_process_finds_a_program_with_its_conditions(folder: Path) -> None:
    module = neuron_ir.parse(TEXT)
    root, _ = neuron_ir.compile(module)(MATRIX, np.int64([[2]]))
    np.testing.assert_array_equal(root, np.diag([1, 2, 3, 4]))
    script = f"""
import numpy, neuron_ir
from neuron_ir.backends.jax_cpu import executable
executable._build = None
program = neuron_ir.compile(neuron_ir.parse({TEXT!r}))
root, row = program(numpy.diag(numpy.float32([1, 4, 9, 16])), numpy.int64([[2]]))
print(root.diagonal().tolist(), row.tolist())
try:
    program(root, numpy.int64([[4]]))
except neuron_ir.IRError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("[1.0, 2.0, 3.0, 4.0] [[0.0, 0.0, 3.0, 0.0]]\n")
    assert "neuron.gather: an index lies outside 0..3" in run.stdout


def test_what_must_miss(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = neuron_ir.parse(PLAIN), np.float32([1, 2, 3])
    assert not found(module, x)
    assert found(module, x)
    assert found(neuron_ir.parse("\n\n" + PLAIN), x)  # the user's lines are no part of a program without conditions
    assert not found(neuron_ir.parse(PLAIN.replace("3xf32", "3xf64")), x.astype(np.float64))
    assert not found(neuron_ir.parse(PLAIN.replace("neuron.add", "neuron.multiply")), x)
    assert not found(module, x, guards=False)
    with jax.default_matmul_precision("bfloat16"):
        assert not found(module, x)
    from neuron_ir.backends.jax_cpu import disk_cache

    for name, other in (("processor", "another processor"), ("versions", "jax 0")):
        with monkeypatch.context() as m:
            m.setattr(executable if name == "versions" else disk_cache, name, lambda other=other: other)
            assert not found(module, x)
    with monkeypatch.context() as m:
        m.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
        assert not found(module, x)
    assert found(module, x)
    with monkeypatch.context() as m:  # an op from elsewhere may mean something else tomorrow
        m.setattr(next(iter(module.main.body.ops)).spec.jax, "__module__", "elsewhere")
        assert not found(module, x)


def test_a_target_that_gets_another_meaning_is_not_found_under_the_old_one(folder: Path) -> None:
    call = 'neuron.custom_call(%x) {call_target_name = "kept.scale"}'
    module, x = neuron_ir.parse(PLAIN.replace("neuron.add(%x, %x)", call)), np.float32([1, 2, 3])
    try:
        for factor in (2, 3):
            custom_target("kept.scale")(lambda j, operands, config, out, factor=factor: [operands[0] * factor])
            np.testing.assert_array_equal(neuron_ir.compile(module)(x), factor * x)
    finally:
        del TARGETS["kept.scale"]
    assert list(folder.iterdir()) == []


def test_state_is_used_up_and_kept_as_in_a_program_that_was_built(folder: Path) -> None:
    module = neuron_ir.parse(STATE)
    module.weights["c"] = np.zeros(1024, np.float32)
    ones = np.ones(1024, np.float32)
    assert not found(module, ones) and found(module, ones)
    program = neuron_ir.compile(module)
    assert [float(program(ones)[0]) for _ in range(3)] == [2, 4, 6]
    assert program.state["c"][0] == 3 and module.weights["c"][0] == 0


def test_a_program_that_cannot_be_loaded_is_built(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    module, x = neuron_ir.parse(PLAIN), np.float32([1, 2, 3])
    assert not found(module, x)
    store = opened()
    assert store is not None
    (entry,) = store.entries()
    Cache(folder).store(entry.parts, b"no program")
    with caplog.at_level(logging.WARNING, "neuron_ir"):
        assert not found(module, x)
    assert "cannot be loaded" in caplog.text
    assert found(module, x)


def test_artifacts_of_torch_carry_programs_to_another_cache(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x):
        return x * 3

    from torch.compiler._cache import CacheArtifactManager

    x = torch.arange(3.0)
    with CacheArtifactManager.with_fresh_cache():
        torch.compile(f, backend="neuron")(x)
        saved = torch.compiler.save_cache_artifacts()
    assert saved is not None and len(saved[1].neuron_artifacts) == 1
    monkeypatch.setenv("NEURON_IR_CACHE_DIR", str(tmp_path / "other"))
    info = torch.compiler.load_cache_artifacts(saved[0])
    assert info.neuron_artifacts == saved[1].neuron_artifacts
    torch._dynamo.reset()
    executable._cache.clear()
    monkeypatch.setattr(executable, "_build", None)
    assert torch.equal(torch.compile(f, backend="neuron")(x), x * 3)
