"""The recipes of CONTRIBUTING.md, followed to the letter in a process of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# What a reader does with the recipes' files, and checks: the op is printed and parsed, the golden holds, torch agrees.
FOLLOW = """
import sys, torch
from pathlib import Path

here = Path(sys.argv[1])
exec((here / "op.py").read_text())

import neuron_ir.passes
neuron_ir.passes.__path__.append(str(here / "passes"))
from neuron_ir import parse, run_passes
module = parse((here / "golden.nir").read_text())
run_passes(module, "cancel_negations,dce")
assert "func.return(%x)" in module.text() and "negate" not in module.text(), module.text()

torch.library.define("recipe::soft_clip", "(Tensor x, float bound) -> Tensor")
torch.library.register_fake("recipe::soft_clip")(lambda x, bound: torch.empty_like(x))
torch.library.impl("recipe::soft_clip", "CPU")(lambda x, bound: bound * torch.tanh(x / bound))
exec((here / "rule.py").read_text())

import neuron_ir
x = torch.randn(5)
module = neuron_ir.from_torch(lambda x: torch.ops.recipe.soft_clip(x, 2.0), (x,))
assert "neuron.soft_clip(%x) {bound = 2.0}" in module.text(), module.text()
torch.testing.assert_close(neuron_ir.compile(parse(module.text()))(x), 2.0 * torch.tanh(x / 2.0))
try:
    neuron_ir.from_torch(lambda x: torch.ops.recipe.soft_clip(x, -1.0), (x,))
except neuron_ir.IRError as error:
    assert "bound = -1.0, which is not positive" in str(error), error
else:
    raise AssertionError("the refusal of the recipe's rule did not come")
"""


def _blocks(kind: str) -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.findall(rf"(?ms)^```{kind}\n(.*?)^```", text)
    assert found, f"CONTRIBUTING.md has no block {kind!r}"
    return "\n".join(found)


def test_the_recipes_work(tmp_path: Path) -> None:
    (tmp_path / "passes").mkdir()
    (tmp_path / "op.py").write_text(_blocks("python op"))
    (tmp_path / "passes" / "cancel_negations.py").write_text(_blocks("python pass"))
    (tmp_path / "golden.nir").write_text(_blocks("nir pass"))
    (tmp_path / "rule.py").write_text(_blocks("python torch"))
    script = tmp_path / "follow.py"
    script.write_text(FOLLOW)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
