"""Weights by name without copies, tied weights, non-persistent buffers, and the user's source lines."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn

from neuron_ir.frontends.torch import _compat
from neuron_ir.frontends.torch.export import export, functionalize
from neuron_ir.frontends.torch.locations import node_location
from neuron_ir.frontends.torch.signature import read_signature, storage_groups


class Rotary(nn.Module):
    """Token embedding tied to the head, with a non-persistent table of frequencies and a plain tensor attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(11, 4)
        self.head = nn.Linear(4, 11, bias=False)
        self.head.weight = self.wte.weight
        self.register_buffer("inv_freq", torch.arange(4.0), persistent=False)
        self.bias = torch.full((4,), 0.5)

    def forward(self, ids: torch.Tensor, *, extra: dict[str, list[torch.Tensor]]) -> torch.Tensor:
        hidden = self.wte(ids) * self.inv_freq + self.bias + extra["rows"][0]
        return self.head(hidden)


ARGS = (torch.tensor([[1, 2]]),)
KWARGS = {"extra": {"rows": [torch.ones(4)]}}


def test_weights_are_the_modules_own_tensors() -> None:
    module = Rotary()
    signature = read_signature(export(module, ARGS, KWARGS))
    by_target = {i.target: i for i in signature.bound_inputs}
    assert by_target["inv_freq"].kind == "buffer" and not by_target["inv_freq"].persistent
    assert by_target["bias"].kind == "constant"
    for name in ("wte.weight", "inv_freq", "bias"):
        owned = module.get_parameter(name) if name.endswith("weight") else getattr(module, name)
        assert signature.weights[name].data_ptr() == owned.data_ptr()
    assert [i.target for i in signature.user_inputs] == ["ids", "extra.rows.0"]


def test_tied_weights_share_one_group() -> None:
    module = Rotary()
    signature = functionalize(export(module, ARGS, KWARGS)).signature
    groups = storage_groups(dict(module.state_dict(keep_vars=True)) | dict(signature.weights))
    assert groups["head.weight"] == groups["wte.weight"]
    assert groups["inv_freq"] == "inv_freq"


def test_views_of_one_storage_are_not_tied() -> None:
    base = torch.zeros(4, 4)
    groups = storage_groups({"a": base, "t": base.t(), "row": base[1], "same": base.view(4, 4), "e": base[:0], "f": base[:0]})
    assert groups == {"a": "a", "t": "t", "row": "row", "same": "a", "e": "e", "f": "f"}


def test_locations_are_the_users_lines_and_module_paths() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([Rotary(), Rotary()])

        def forward(self, ids: torch.Tensor) -> Any:
            extra = {"rows": [torch.zeros(4)]}
            return self.blocks[1](ids, extra=extra)

    program = functionalize(export(Outer(), ARGS))
    first_line = inspect.getsourcelines(Rotary.forward)[1]
    found = {str(n.target): node_location(n, program.origins) for n in program.graph.nodes if n.op == "call_function"}
    embedding = found["aten.embedding.default"]
    assert embedding.file == __file__
    assert (embedding.line, embedding.scope) == (first_line + 1, "blocks.1.wte")
    assert (found["aten.linear.default"].line, found["aten.linear.default"].scope) == (first_line + 2, "blocks.1.head")
    assert found["aten.mul.Tensor"].scope == "blocks.1"


def test_locations_survive_a_second_trace_of_a_region() -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.inner(x)

    program = functionalize(export(Cast(), (torch.randn(2, 8),)))
    line = inspect.getsourcelines(Cast.forward)[1] + 2
    places = [node_location(n, program.origins) for n in program.graph.nodes if n.op == "call_function"]
    assert {(p.file, p.line, p.scope) for p in places} == {(__file__, line, "inner")}


def test_versions_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    _compat.check()
    monkeypatch.setitem(_compat._NAMES, "gone", ("torch._nowhere", "Thing"))
    with pytest.raises(ImportError, match=r"made for torch 2\.13 and found torch .*: missing: torch\._nowhere\.Thing"):
        _compat.check()
