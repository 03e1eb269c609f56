"""The pass manager: order, records, and what becomes of a pass that fails."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from neuron_ir.core import Func, Module
from neuron_ir.diagnostics import IRError, fail
from neuron_ir.instrument import CrashReproducer, Instrument, PrintIR, PrintTree, Statistics, Timing, VerifyEach, VerifyRoundtrip
from neuron_ir.parser import parse
from neuron_ir.passmanager import Context, FuncPass, Pass, PassManager, option, run_passes

TEXT = """func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = neuron.tanh(%x) : tensor<4xf32>
  %b = neuron.tanh(%x) : tensor<4xf32>
  func.return(%x)
}
"""


@dataclass(frozen=True)
class Rename(FuncPass):
    """Give the first argument another name."""

    to: str = option("y", "the new name")

    def run_func(self, func: Func, ctx: Context) -> None:
        func.args[0].name = self.to
        ctx.count("arguments renamed")
        ctx.decline("there is no second argument")


@dataclass(frozen=True)
class Refuse(Pass):
    """Refuse every module."""

    def run(self, module: Module, ctx: Context) -> None:
        raise fail("capacity", "the module does not fit")


@dataclass(frozen=True)
class Crash(Pass):
    """Divide by zero."""

    def run(self, module: Module, ctx: Context) -> None:
        _ = 1 // 0


@dataclass(frozen=True)
class Break(Pass):
    """Drop the return."""

    def run(self, module: Module, ctx: Context) -> None:
        module.main.body.terminator.erase()


class Log(Instrument):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def start(self, passes, module) -> None:
        self.lines.append("start")

    def before(self, index, p, module) -> None:
        self.lines.append(f"before {index} {type(p).__name__}")

    def after(self, index, p, module) -> None:
        self.lines.append(f"after {index} {type(p).__name__}")

    def failed(self, index, p, module, error) -> None:
        self.lines.append(f"failed {index} {error.code}")

    def finish(self, module, ctx) -> None:
        self.lines.append("finish")


def test_passes_run_in_order_and_report() -> None:
    module, log = parse(TEXT), Log()
    ctx = PassManager([Rename("p"), Rename("q")], [log]).run(module)
    assert module.main.args[0].name == "q"
    assert log.lines == ["start", "before 0 Rename", "after 0 Rename", "before 1 Rename", "after 1 Rename", "finish"]
    assert [dict(r.counts) for r in ctx.records] == [{"arguments renamed": 1}] * 2
    assert [dict(r.declines) for r in ctx.records] == [{"there is no second argument": 1}] * 2


def test_a_refusal_keeps_its_code_and_names_the_pass() -> None:
    log = Log()
    with pytest.raises(IRError) as raised:
        PassManager([Rename(), Refuse(), Rename()], [log]).run(parse(TEXT))
    (d,) = raised.value.diagnostics
    assert (d.code, d.message, d.notes) == ("capacity", "the module does not fit", (f"in pass {Refuse.name}",))
    assert log.lines[-1] == "failed 1 capacity"


def test_a_crash_names_the_pass_and_the_place() -> None:
    with pytest.raises(IRError) as raised:
        PassManager([Crash()]).run(parse(TEXT))
    (d,) = raised.value.diagnostics
    assert (d.code, d.message) == ("pass", f"pass {Crash.name} crashed: ZeroDivisionError: integer division or modulo by zero")
    assert __file__ in d.notes[0]
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_the_verifier_blames_the_pass_that_broke_the_module() -> None:
    with pytest.raises(IRError) as raised:
        PassManager([Rename(), Break()], [VerifyEach()]).run(parse(TEXT))
    assert raised.value.code == "region"
    assert f"in pass {Break.name}" in str(raised.value)


def test_run_passes_takes_a_pipelines_text() -> None:
    module = parse(TEXT)
    ctx = run_passes(module, "cse,dce")
    assert len(module.main.body) == 1
    assert [r.name for r in ctx.records] == ["cse", "dce"]


def test_the_roundtrip_is_checked_before_and_after() -> None:
    PassManager([Rename()], [VerifyRoundtrip()]).run(parse(TEXT))


def test_a_module_that_does_not_read_back_is_reported() -> None:
    module = parse(TEXT)
    module.attrs["note"] = 1.0
    module.main.body.first.attrs["oops"] = 1  # an attribute that the op does not have
    with pytest.raises(IRError):
        PassManager([], [VerifyRoundtrip()]).run(module)


def test_the_tree_has_one_file_per_pass(tmp_path: Path) -> None:
    run = PassManager([Rename("p"), Rename("q")], [PrintTree(tmp_path / "tree")])
    run.run(parse(TEXT))
    files = sorted((tmp_path / "tree").iterdir())
    assert [f.name for f in files] == ["00_input.nir", f"01_{Rename.name}.nir", f"02_{Rename.name}.nir"]
    assert ["%q" in f.read_text() for f in files] == [False, False, True]


def test_print_after_failure_shows_the_broken_module() -> None:
    stream = io.StringIO()
    with pytest.raises(IRError):
        PassManager([Break()], [PrintIR(on_failure=True, stream=stream), VerifyEach()]).run(parse(TEXT))
    assert f"IR after {Break.name} failed" in stream.getvalue()
    assert "func.return" not in stream.getvalue()


def test_timing_and_statistics() -> None:
    table, numbers, counts = io.StringIO(), io.StringIO(), io.StringIO()
    hooks = [Timing(stream=table), Timing(as_json=True, stream=numbers), Statistics(counts)]
    PassManager([Rename()], hooks).run(parse(TEXT))
    assert Rename.name in table.getvalue()
    record = json.loads(numbers.getvalue())
    assert [p["pass"] for p in record["passes"]] == [Rename.name]
    assert 0 <= record["passes"][0]["seconds"] <= record["total_seconds"]
    assert "1  arguments renamed" in counts.getvalue()
    assert "1  declined: there is no second argument" in counts.getvalue()


def test_a_reproducer_has_all_that_is_needed(tmp_path: Path) -> None:
    folder = tmp_path / "crash"
    with pytest.raises(IRError) as raised:
        PassManager([Rename("q"), Crash()], [CrashReproducer(folder, ["--verify-roundtrip"])]).run(parse(TEXT))
    assert f"replay with: neuron-opt --run-reproducer {folder}" in str(raised.value)
    assert {f.name for f in folder.iterdir()} == {"input.nir", "reproducer.json", "error.txt", "command.txt"}
    assert "%q" in (folder / "input.nir").read_text()
    record = json.loads((folder / "reproducer.json").read_text())
    assert record["pipeline"] == f"module({Crash.name})"
    assert record["flags"] == ["--verify-roundtrip"]
    assert set(record["versions"]) >= {"python", "jax", "numpy"}
    assert "ZeroDivisionError" in (folder / "error.txt").read_text()
