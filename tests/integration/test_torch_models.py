"""Whole models: torch -> IR -> text -> parse -> reference accelerator, equal to torch.

Tolerances are parts of the largest value: 1e-5 in f32. In bf16 and f16 every product is rounded to 8 and 11 bits, in another order
than torch's; what is asserted is that the error against a float64 run of the same (rounded) weights is at most twice torch's own,
plus one unit in the last place.
"""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

import neuron_ir
from tests.integration.torch_models import BUILDERS, relative_error, tensors

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def imported(module, args, kwargs):
    """The program, read back from its own text; the text is a fixpoint."""
    first = neuron_ir.from_torch(module, args, kwargs)
    text = first.text()
    again = neuron_ir.parse(text)
    assert again.text() == text
    again.verify()
    again.weights = first.weights
    return again


@pytest.mark.parametrize("name", BUILDERS)
def test_model_equals_torch(name: str) -> None:
    module, args, kwargs = BUILDERS[name]()
    with torch.no_grad():
        want = tensors(module(*args, **kwargs))
    got = tensors(neuron_ir.compile(imported(module, args, kwargs))(*args, **kwargs))
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert relative_error(g, w) < TOLERANCE[w.dtype]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_other_element_types(dtype: torch.dtype) -> None:
    module, args, kwargs = BUILDERS["qwen2" if dtype is not torch.float64 else "bert"]()  # qwen2 computes its norms in f32
    module = module.to(dtype)
    with torch.no_grad():
        want = tensors(module(*args, **kwargs))[0]
        exact = tensors(module.double()(*args, **kwargs))[0]
    module = module.to(dtype)
    got = tensors(neuron_ir.compile(imported(module, args, kwargs))(*args, **kwargs))[0]
    assert got.dtype is dtype
    if dtype is torch.float64:
        assert relative_error(got, want) < 1e-12
        return
    scale = exact.abs().max()
    ours, theirs = ((t.double() - exact).abs().max() / scale for t in (got, want))
    assert ours <= 2 * theirs + torch.finfo(dtype).eps


@pytest.mark.parametrize("name", ["gpt2", "mixtral"])
def test_one_program_for_any_batch_and_length(name: str) -> None:
    module, (ids,), _ = BUILDERS[name]()
    axes = {0: Dim("batch", min=1, max=64), 1: Dim("seq", min=2, max=64)}
    ir = neuron_ir.from_torch(module, (ids,), dynamic_shapes={"input_ids": axes})
    assert ir.main.dims == {"batch": (1, 64), "seq": (2, 64)}
    program = neuron_ir.compile(ir)
    for shape in ((2, 16), (3, 5)):
        ids = torch.randint(0, 128, shape)
        with torch.no_grad():
            want = module(ids).logits
        assert relative_error(program(ids).logits, want) < 1e-5


def test_training_mode_updates_the_statistics_of_batch_norm() -> None:
    module, args, _ = BUILDERS["resnet18"]()
    module.train()
    program = neuron_ir.compile(neuron_ir.from_torch(module, args))
    for _ in range(2):
        with torch.no_grad():
            want = module(*args)
        assert relative_error(program(*args), want) < 1e-5
    for name, value in module.named_buffers():
        assert relative_error(torch.as_tensor(program.state[name]), value) < 1e-5, name


def test_weights_are_shared_and_tied_ones_exist_once() -> None:
    module, args, _ = BUILDERS["gpt2"]()
    ir = neuron_ir.from_torch(module, args)
    wte = module.transformer.wte.weight
    assert sum(w.data_ptr() == wte.data_ptr() for w in ir.weights.values()) == 1
    for name, parameter in module.state_dict(keep_vars=True).items():
        if name in ir.weights:
            assert ir.weights[name].data_ptr() == parameter.data_ptr()


def test_saved_and_loaded(tmp_path) -> None:
    module, args, kwargs = BUILDERS["bert"]()
    with torch.no_grad():
        want = tensors(module(*args, **kwargs))
    neuron_ir.from_torch(module, args, kwargs).save(str(tmp_path / "bert.nir"))
    loaded = neuron_ir.load(str(tmp_path / "bert.nir"))
    for g, w in zip(tensors(neuron_ir.compile(loaded)(**kwargs)), want, strict=True):
        assert relative_error(g, w) < 1e-5


def test_composites_stay_whole_and_know_their_line() -> None:
    module, args, kwargs = BUILDERS["bert"]()
    ops = list(neuron_ir.from_torch(module, args, kwargs).walk())
    names = [op.name for op in ops]
    assert names.count("neuron.attention") == 1 and names.count("neuron.layer_norm") == 3 and names.count("neuron.gelu") == 1
    attention = next(op for op in ops if op.name == "neuron.attention")
    assert attention.loc.file.endswith("modeling_bert.py") and attention.loc.scope == "encoder.layer.0.attention.self"
