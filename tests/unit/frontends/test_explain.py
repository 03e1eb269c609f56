"""What ``explain`` says of torch and JAX programs: the fate, the place and the number of each operation."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy
import pytest
import torch

import neuron_ir
from neuron_ir.tools.translate import main


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        y = torch.nn.functional.hardswish(self.inner(x))
        y = torch.softmax(y, -1) + torch.softmax(x, -1)
        z = torch.ops.explained.mystery(x)
        return y, z + 1, torch.cond(x.sum() > 0, torch.sin, torch.nn.functional.hardswish, (x,))


class Counting(Model):
    def forward(self, x):
        self.count += 1
        return torch.nn.functional.hardswish(x) * self.count


torch.library.define("explained::mystery", "(Tensor x) -> Tensor")  # without an implementation, so that the host cannot run it


@torch.library.register_fake("explained::mystery")
def _(x):
    return torch.empty_like(x)


WITHOUT = "no rule for this operation, and no implementation on the CPU; neuron_ir.register_lowering gives it one"
FIRST = Model.forward.__code__.co_firstlineno  # the lines of its body follow


def by_name(explanation, operation):
    return [row for row in explanation if row.operation == operation]


def test_a_torch_program() -> None:
    explanation = neuron_ir.explain(Model(), torch.ones(2, 3))
    assert not explanation.ok and explanation.counts["refused"] == 1
    (refused,) = by_name(explanation, "explained.mystery.default")
    assert (refused.fate, refused.reason) == ("refused", WITHOUT)
    assert refused.file == __file__ and refused.line == FIRST + 3
    (linear,) = by_name(explanation, "aten.linear.default")
    assert (linear.fate, linear.into, linear.line, linear.scope) == ("direct", ("neuron.linear",), FIRST + 1, "inner")
    outer, branch = by_name(explanation, "aten.hardswish.default")
    assert outer.fate == branch.fate == "expanded" and outer.into.count("neuron.minimum") == 1
    assert (outer.line, branch.line) == (FIRST + 1, FIRST + 4)
    (softmax,) = by_name(explanation, "aten.softmax.int")
    assert (softmax.count, softmax.line) == (2, FIRST + 2)
    assert by_name(explanation, "cond")[0].into == ("neuron.if",) and by_name(explanation, "aten.sin.default")
    lines = str(explanation).splitlines()
    assert lines[1].split()[:3] == ["refused", "1", "explained.mystery.default"] and WITHOUT in lines[1]
    assert lines[-1].endswith("2 expanded, 0 host, 1 refused")
    data = explanation.to_dict()
    assert json.loads(json.dumps(data)) == data and sum(r["count"] for r in data["rows"]) == sum(data["counts"].values())


def test_operations_of_a_program_with_writes_are_the_users() -> None:
    explanation = neuron_ir.explain(Counting(), torch.ones(2, 3))
    assert {row.operation: row.fate for row in explanation} == {
        "aten.add_.Tensor": "direct",
        "aten.hardswish.default": "expanded",
        "aten.mul.Tensor": "direct",
    }


def test_what_runs_on_the_host_is_said() -> None:
    @torch.library.custom_op("explained::opaque", mutates_args=())
    def opaque(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    opaque.register_fake(torch.empty_like)
    with pytest.warns(neuron_ir.diagnostics.IRWarning, match="runs it on the host"):
        (row,) = neuron_ir.explain(lambda x: opaque(x), torch.ones(2))
    assert (row.fate, row.into) == ("host", ("neuron.custom_call",))
    x = numpy.eye(3, dtype=numpy.float32)
    assert neuron_ir.explain(jnp.linalg.eigvals, x).counts["host"] == 0  # a custom call that the program computes itself
    shape = jax.ShapeDtypeStruct((3, 3), numpy.float32)
    assert neuron_ir.explain(lambda x: jax.pure_callback(numpy.sin, shape, x), x).counts["host"] == 1


def test_what_follows_a_size_that_is_not_known_is_not_called_fine() -> None:
    def f(x):
        return torch.ops.explained.count(x) * 2

    torch.library.define("explained::count", "(Tensor x) -> Tensor")

    @torch.library.register_fake("explained::count")
    def _(x):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)

    explanation = neuron_ir.explain(f, torch.ones(2, 3))
    assert [(r.operation, r.fate) for r in explanation] == [("explained.count.default", "refused"), ("aten.mul.Tensor", "refused")]
    assert all(r.reason for r in explanation)


def test_a_jax_program_and_its_stablehlo(tmp_path: Path) -> None:
    def f(x):
        return jax.lax.fori_loop(0, 3, lambda i, c: jnp.exp(c) * 2, x) + jax.jit(jnp.tanh)(x)

    explanation = neuron_ir.explain(f, numpy.ones((2, 3), numpy.float32))
    assert explanation.ok
    (exponential,) = by_name(explanation, "stablehlo.exponential")
    assert exponential.into == ("neuron.exponential",) and exponential.file == __file__
    assert exponential.line == f.__code__.co_firstlineno + 1
    assert by_name(explanation, "stablehlo.tanh") and by_name(explanation, "stablehlo.while")
    text = jax.jit(f).lower(numpy.ones((2, 3), numpy.float32)).as_text()
    path = tmp_path / "f.mlir"
    path.write_text(text)
    assert neuron_ir.explain(path).counts["refused"] == 0 == main([str(path), "--explain", "-o", str(tmp_path / "f.json")])
    assert json.loads((tmp_path / "f.json").read_text())["counts"]["refused"] == 0


REFUSED = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @mystery(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.add %0, %x : tensor<4xf32>
  return %1 : tensor<4xf32>
}"""


def test_a_refusal_does_not_hide_what_follows() -> None:
    explanation = neuron_ir.explain(REFUSED)
    assert [(r.operation, r.fate) for r in explanation] == [("stablehlo.custom_call", "refused"), ("stablehlo.add", "direct")]
    assert "mystery" in explanation.rows[0].reason and explanation.rows[0].line == 2


def test_a_saved_program_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Model(), (torch.ones(2, 3),)), path)
    assert main([str(path), "--explain"]) == 1
    assert "explained.mystery.default" in capsys.readouterr().out
    assert main(["model.nir", "--explain"]) == 2


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(neuron_ir.IRError, match="a value of type int"):
        neuron_ir.explain(3)
    with pytest.raises(neuron_ir.IRError, match="dynamic_shapes is for torch programs"):
        neuron_ir.explain(jnp.sin, numpy.ones(2), dynamic_shapes={})
