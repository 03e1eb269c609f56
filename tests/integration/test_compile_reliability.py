"""What a long life with ``torch.compile(backend="neuron")`` meets: crashes, interrupts, threads, many calls, many sizes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

from neuron_ir.backends.jax_cpu import executable
from neuron_ir.frontends.torch import compiled_graph
from neuron_ir.passes.cse import Cse


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def test_a_crash_in_a_pass_leaves_what_replays_it_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_args: object) -> None:
        raise ZeroDivisionError("by design")

    monkeypatch.setattr(Cse, "run_func", crash)
    with pytest.raises(BackendCompilerFailed, match=r"pass cse crashed: ZeroDivisionError: by design[\s\S]*--run-reproducer"):
        torch.compile(torch.sin, backend="neuron", options={"dump_dir": str(tmp_path)})(torch.ones(2))
    (folder,) = tmp_path.glob("*/reproducer")
    assert "neuron.sine" in (folder / "input.nir").read_text()
    assert {"command.txt", "error.txt", "reproducer.json"} <= {p.name for p in folder.iterdir()}
    monkeypatch.undo()
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(torch.sin, backend="neuron")(torch.ones(2)), torch.ones(2).sin())


def test_what_a_pass_refuses_is_no_crash_and_leaves_nothing(tmp_path: Path) -> None:
    options = {"dump_dir": str(tmp_path), "pipeline": "fuse{capacity=-1}"}
    with pytest.raises(BackendCompilerFailed, match=r"capacity = -1 is negative") as caught:
        torch.compile(torch.sin, backend="neuron", options=options)(torch.ones(2))
    assert "replay" not in str(caught.value)
    assert not list(tmp_path.glob("*/reproducer"))


def test_an_interrupt_in_the_middle_of_a_compile_leaves_nothing_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    fast, x = torch.compile(lambda x: x.cos() + 1, backend="neuron"), torch.ones(3)
    for home, name in ((compiled_graph, "import_program"), (compiled_graph, "compile"), (executable, "_build")):
        with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
            m.setattr(home, name, interrupt)
            fast(x)
    torch.testing.assert_close(fast(x), x.cos() + 1)


def test_threads_call_one_compiled_function_from_its_first_call_on() -> None:
    layer = nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval()
    fast, wrong = torch.compile(layer, backend="neuron"), []
    start = threading.Barrier(4)

    def work(seed: int) -> None:
        x = torch.randn(5, 8, generator=torch.Generator().manual_seed(seed))
        start.wait()
        with torch.no_grad():
            for _ in range(50):
                if not torch.allclose(fast(x), layer(x), atol=1e-6):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


MANY_CALLS = """
import gc, resource, torch

def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(gc.get_objects())

fast, x = torch.compile(lambda x: x * 2 + 1, backend="neuron"), torch.ones(10_000)
with torch.no_grad():
    for _ in range(2000):
        fast(x)
    size, objects = memory()
    for _ in range(10_000):
        fast(x)
    size_after, objects_after = memory()
print(size_after - size, objects_after - objects)
"""


def test_ten_thousand_calls_take_no_memory() -> None:
    done = subprocess.run([sys.executable, "-c", MANY_CALLS], capture_output=True, text=True, check=True)
    size, objects = map(int, done.stdout.split())
    size *= 1 if sys.platform == "darwin" else 1024
    assert size < 40e6, f"{size} bytes"  # one result kept per call would be 400 MB
    assert objects < 100


def test_fifty_lengths_need_at_most_three_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    before = compiled_graph.CompiledGraph.__init__

    def counted(self, graph, module, options, kind, name):
        compiled.append(kind)
        before(self, graph, module, options, kind, name)

    monkeypatch.setattr(compiled_graph.CompiledGraph, "__init__", counted)
    w = torch.randn(4, 4)
    fast = torch.compile(lambda x: (x @ w).relu().sum(1) + x.shape[1], backend="neuron")
    for n in range(2, 52):
        x = torch.randn(1, n, 4)
        torch.testing.assert_close(fast(x), (x @ w).relu().sum(1) + n)
    assert len(compiled) <= 3, compiled


def test_two_processes_compile_one_model_at_once(tmp_path: Path) -> None:
    script = """
import numpy, neuron_ir
text = "func @main(%x: tensor<3xf32>) -> tensor<3xf32> { %y = neuron.add(%x, %x) : tensor<3xf32> func.return(%y) }"
print(neuron_ir.compile(neuron_ir.parse(text))(numpy.float32([1, 2, 3])).tolist())
"""
    env = {"NEURON_IR_CACHE": "on", "NEURON_IR_CACHE_DIR": str(tmp_path / "programs")}
    runs = [subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)]  # fmt: skip
    for run in runs:
        out, err = run.communicate(timeout=300)
        assert (out, run.returncode) == ("[2.0, 4.0, 6.0]\n", 0), err
    assert len(list((tmp_path / "programs").iterdir())) == 1
