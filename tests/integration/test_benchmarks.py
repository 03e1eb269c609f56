"""The benchmark scripts run, measure the program that they say they do, and their bound on parsing holds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import neuron_ir
from tests.hygiene.tree import ROOT

FOLDER = ROOT / "benchmarks"
SCRIPTS = sorted(p.name for p in FOLDER.glob("*.py") if 'if __name__ == "__main__"' in p.read_text(encoding="utf-8"))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(FOLDER)])}
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, cwd=FOLDER)


@pytest.mark.speed
def test_parsing_keeps_its_distance_to_xdsl() -> None:
    done = run("parse.py", "--ops", "1500")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("pass") == 2


def test_the_peer_parses_the_same_program() -> None:
    program = """
from programs import mlir_generic, transformer
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.dialects.func import Func
from xdsl.parser import Parser
context = Context(allow_unregistered=True)
context.load_dialect(Builtin)
context.load_dialect(Func)
module = transformer(60, locations=True)
theirs = Parser(context, mlir_generic(module)).parse_module()
def name(op):
    return op.op_name.data if op.name == "builtin.unregistered" else op.name
print([name(op) for op in theirs.walk()][2:] == [op.name for op in module.walk()])
"""
    done = run("-c", program)
    assert done.stdout.strip() == "True", done.stderr


def test_scaling_prints_a_row_per_step() -> None:
    done = run("scaling.py", "--largest", "3000", "--only", "print,dce")
    assert done.returncode in (0, 1)
    assert [line.split()[0].strip(",") for line in done.stdout.splitlines()[2:]] == ["print", "dce"], done.stderr
    assert "under 0.05 s: no bound" in done.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_explains_itself(script: str) -> None:
    done = run(script, "--help") if script != "memory.py" else run("-c", "import memory; print('usage:', memory.__doc__)")
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_is_in_the_table(script: str) -> None:
    assert f"`{script}`" in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_the_program_is_sound_and_of_the_size_asked_for() -> None:
    done = run("-c", "from programs import transformer; m = transformer(1000, True); m.verify(); print(m.text(True))")
    assert done.returncode == 0, done.stderr
    module = neuron_ir.parse(done.stdout)
    module.verify()
    assert abs(sum(1 for _ in module.walk()) - 1000) <= 30
