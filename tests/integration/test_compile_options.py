"""The options of ``torch.compile(backend="neuron")``: refused by name, and what each one does."""

from __future__ import annotations

import logging
import re

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

import neuron_ir
from neuron_ir.frontends.torch._compat import get


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(module, **options):
    return torch.compile(module, backend="neuron", options=options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"options": {"pipelin": ""}}, "no option 'pipelin'; did you mean 'pipeline'?"),
        ({"options": {"fallback": "cpu"}}, "fallback is one of error, eager, not 'cpu'"),
        ({"options": {"verify": "yes"}}, "verify is true, false or a relative tolerance, not 'yes'"),
        ({"mode": "max-autotun"}, "no mode 'max-autotun'; did you mean 'max-autotune'?"),
        ({"options": {"target": "trn9"}}, "there is no target 'trn9'"),
        ({"options": {"precision": "f31"}}, "option dtype is one of"),
    ],
)
def test_a_wrong_option_is_refused_by_name(given, message) -> None:
    with pytest.raises(BackendCompilerFailed, match=re.escape(message)):
        torch.compile(nn.Linear(2, 2), backend="neuron", **given)(torch.zeros(1, 2))


def test_a_folder_holds_the_graph_and_its_ir_before_and_after_the_passes(tmp_path) -> None:
    layer, x = nn.Linear(3, 2), torch.randn(1, 3)
    got = compiled(layer, dump_dir=str(tmp_path), precision="bf16", pipeline="cse,dce")(x)
    torch.testing.assert_close(
        got, nn.functional.linear(x.bfloat16(), layer.weight.bfloat16()).float() + layer.bias, atol=2e-2, rtol=0
    )
    (folder,) = tmp_path.iterdir()
    assert folder.name.endswith("_forward")
    assert sorted(p.name for p in folder.iterdir()) == ["graph.py", "imported.nir", "optimised.nir"]
    before, after = (neuron_ir.parse((folder / f"{name}.nir").read_text()) for name in ("imported", "optimised"))
    assert "bf16" not in before.text()
    assert "bf16" in after.text()


def test_verify_names_the_first_operation_that_differs_from_eager() -> None:
    layer, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), torch.randn(4, 8)
    compiled(layer, verify=True)(x)
    torch._dynamo.reset()
    with pytest.raises(neuron_ir.IRError, match=r"differs from eager: .*neuron\.\w+ gives %addmm .*past rtol = 1e-06"):
        compiled(layer, verify=1e-6, precision="bf16")(x)


def test_verify_passes_over_what_follows_from_a_random_draw() -> None:
    y = compiled(nn.Dropout(0.5).train(), verify=True)(torch.ones(64))
    assert set(y.unique().tolist()) == {0.0, 2.0}


def test_an_unsupported_operation_is_an_error_or_runs_eagerly_and_is_counted() -> None:
    def f(x):
        return torch.complex(x.to(torch.float16), x.to(torch.float16)).abs() + 1

    x = torch.randn(3)
    with pytest.raises(BackendCompilerFailed, match=r"test_compile_options.py:\d+.*complex.default: .*torch.complex32"):
        compiled(f)(x)
    torch._dynamo.reset()
    with pytest.warns(UserWarning, match=r"runs eagerly, not on the accelerator:\n.*complex.default") as told:
        fast = compiled(f, fallback="eager")
        torch.testing.assert_close(fast(x), f(x))
        torch.testing.assert_close(fast(x + 1), f(x + 1))
    assert len(told) == 1
    assert get("counters")["neuron"]["graphs run eagerly"] == 1


def test_the_log_shows_the_ir_before_and_after_the_passes(caplog) -> None:
    with caplog.at_level(logging.DEBUG, "neuron_ir"):
        compiled(torch.sin)(torch.ones(2))
    told = [r.getMessage() for r in caplog.records if "neuron.sine" in r.getMessage()]
    assert [("imported" in t, "after O1" in t) for t in told] == [(True, False), (False, True)]


def test_torch_knows_the_name_of_the_log() -> None:
    from torch._logging._internal import log_registry

    assert log_registry.log_alias_to_log_qnames["neuron"] == ["neuron_ir"]
