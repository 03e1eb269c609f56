"""Every model type of transformers' auto mappings, shrunk to a few thousand weights, through the whole path, against torch eager.

A case is ``family:type``: the configuration clipped by :mod:`tests.yardsticks.shrink`, seeded random weights in which nothing is
constant, exported with ``torch.export`` (where that fails, under the patches of transformers' own exporter or in strict mode),
imported, printed, parsed, verified, compiled and run. Every floating-point result agrees within ``TOLERANCE`` of its largest value
with torch in f32, or with torch in f64.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported

NAME = "transformers"
TOLERANCE = 1e-4
MOST_WEIGHTS = 30_000_000

FAMILIES = {
    "causal": "CAUSAL_LM",
    "masked": "MASKED_LM",
    "seq2seq": "SEQ_TO_SEQ_CAUSAL_LM",
    "image": "IMAGE_CLASSIFICATION",
    "image-text": "IMAGE_TEXT_TO_TEXT",
    "speech": "SPEECH_SEQ_2_SEQ",
    "ctc": "CTC",
    "audio": "AUDIO_CLASSIFICATION",
}


def cases(_args: Any) -> list[str]:
    """All cases, families in turn, so that a run that is cut short has seen all of them."""
    listed = [[f"{family}:{kind}" for kind in _mapping(family)] for family in FAMILIES]
    spread = [(i / len(names), name) for names in listed for i, name in enumerate(names)]
    return [name for _, name in sorted(spread, key=lambda pair: pair[0])]


def _mapping(family: str) -> dict[str, Any]:
    from transformers.models.auto import modeling_auto

    return dict(getattr(modeling_auto, f"MODEL_FOR_{FAMILIES[family]}_MAPPING_NAMES"))


def prepare() -> None:
    """Load everything, so that the first case takes no longer than the others."""
    import logging

    logging.disable(logging.ERROR)
    run_case("causal:gpt2")


def run_case(case: str) -> tuple[str, str]:
    """The outcome of one case."""
    from neuron_ir.diagnostics import IRError
    from tests.yardsticks.opinfo import run_whole_path
    from tests.yardsticks.path import refusal

    warnings.simplefilter("ignore")
    try:
        model, inputs = build(case)
        program_of = Program(model, inputs)
        expected = program_of.eager()
    except Exception as error:
        return "no sample", _said(error)
    problem = degenerate(expected)
    if problem:
        return "no sample", problem
    try:
        program, how = program_of.exported()
    except Exception as error:
        return "not exportable", _said(error)
    try:
        actual = run_whole_path(program, [t.clone() for t in program_of.tensors])
    except IRError as error:
        return "refused", refusal(error)
    error = difference(expected, actual)
    if isinstance(error, str):
        return "wrong", error
    if error <= TOLERANCE:
        return "right", f"{error:.1e} {how}".strip()
    exact = program_of.in_double_precision()
    second = difference(exact, actual, types=False) if exact is not None else "no f64"
    if not isinstance(second, str) and second <= TOLERANCE:
        return "right", f"{second:.1e} of double precision {how}".strip()
    there = difference(expected, program_of.run(program))
    if not isinstance(there, float) or there > TOLERANCE:
        return "not exportable", f"torch's own run of the exported program is off by {there}"
    return "wrong", f"{error:.1e} of the largest value; of double precision {second}"


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:400]


def build(case: str) -> tuple[Any, dict[str, Any]]:
    """The model in evaluation mode and its inputs by name: the first of several shrinks that runs in torch."""
    import torch

    from tests.yardsticks.model_inputs import inputs_for
    from tests.yardsticks.shrink import attempts

    family, kind = case.split(":")
    failure: Exception | None = None
    refusal: Exception | None = None
    for config in attempts(kind):
        try:
            cls = _class(family, kind)
            own = _of_class(config, cls.config_class)
            if family == "causal" and hasattr(own, "is_decoder"):
                own.is_decoder = True
            model = _random_model(cls, own)
        except Exception as error:
            failure = failure or error
            continue
        for inputs in inputs_for(family, model):
            try:
                with torch.no_grad():
                    model(**inputs)
                return model, inputs
            except Exception as error:
                refusal = refusal or error  # the inputs that are tried first are those that fit best
    raise refusal or failure or ValueError("no configuration")


def _class(family: str, kind: str) -> Any:
    import transformers

    names = _mapping(family)[kind]
    return getattr(transformers, names if isinstance(names, str) else names[0])


def _of_class(config: Any, cls: Any) -> Any:
    """The configuration, or the one inside of it, that a model class wants."""
    from transformers import PretrainedConfig

    if isinstance(config, cls) or cls is None:
        return config
    inner = [v for v in vars(config).values() if isinstance(v, PretrainedConfig)]
    return next((c for c in inner if isinstance(c, cls)), config)


def _random_model(cls: Any, config: Any) -> Any:
    import torch

    with torch.device("meta"):
        size = sum(p.numel() for p in cls._from_config(config).parameters())
    if size > MOST_WEIGHTS:
        raise ValueError(f"the shrunken model has {size} weights")
    torch.manual_seed(0)
    model = cls._from_config(config).eval()
    with torch.no_grad():
        for p in model.parameters():  # gates and norms start constant, which would hide what they do
            if p.is_floating_point() and p.numel() > 1 and bool((p == p.flatten()[0]).all()):
                p.add_(0.1 * torch.randn_like(p))
        for module in model.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 1.5)
    return model


class Program:
    """A model's forward as a function of its tensors alone; what else it is given is frozen in."""

    def __init__(self, model: Any, inputs: dict[str, Any]):
        import torch

        from tests.yardsticks.model_inputs import GEOMETRY

        self.model = model
        self.names = [k for k, v in inputs.items() if isinstance(v, torch.Tensor) and k not in GEOMETRY]
        self.tensors = [inputs[k] for k in self.names]
        self.frozen = {k: v for k, v in inputs.items() if k not in self.names}

    def call(self, *tensors: Any) -> Any:
        """The logits, or where there are none all tensors of the result."""
        import torch

        result = self.model(**dict(zip(self.names, tensors, strict=True)), **self.frozen)
        logits = getattr(result, "logits", None)
        if isinstance(logits, torch.Tensor):
            return logits
        return [t for t in torch.utils._pytree.tree_leaves(tuple(result.values())) if isinstance(t, torch.Tensor)]

    def eager(self) -> list[Any]:
        """torch's own result, the random numbers seeded."""
        import torch

        torch.manual_seed(0)
        with torch.no_grad():
            return list(torch.utils._pytree.tree_leaves(self.call(*[t.clone() for t in self.tensors])))

    def in_double_precision(self) -> list[Any] | None:
        """The result with weights and inputs in f64, ``None`` where the model cannot."""
        kept = self.tensors
        try:
            self.model.double()
            self.tensors = [t.double() if t.is_floating_point() else t for t in kept]
            return self.eager()
        except Exception:  # models that name f32 in their code cannot run in f64
            return None
        finally:
            self.model.float()
            self.tensors = kept

    def exported(self) -> tuple[Any, str]:
        """The exported program, and how it was had: with transformers' patches or by Dynamo where plain tracing cannot."""
        failure: Exception | None = None
        for strict, patched, how in (
            (False, False, ""),
            (False, True, "(exported under transformers' patches)"),
            (True, False, "(exported by Dynamo)"),
            (True, True, "(exported by Dynamo under transformers' patches)"),
        ):
            try:
                with self.patched() if patched else contextlib.nullcontext():
                    return self.export(strict), how
            except Exception as error:
                failure = failure or error
        raise failure or AssertionError

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        """The replacements that transformers' exporter makes in modelling code, and what it computes before it traces."""
        from transformers.exporters import exporter_dynamo as exporter

        exporter.register_cache_pytrees_for_model(self.model)
        with self.geometry_known(), exporter.apply_patches("dynamo"), exporter.reset_model_state(self.model):
            yield

    @contextlib.contextmanager
    def geometry_known(self) -> Iterator[None]:
        """What follows from the sizes of images and sounds alone (the ends of their rows, windows) is a constant, and the places of
        the tokens among them are an input.
        """
        modules = {sys.modules[type(m).__module__] for m in self.model.modules()}
        helpers = [(m, n) for m in modules for n in vars(m) if re.match(r"get_(vision|audio)_[a-z_]+$", n)]
        placing = [(m, "get_rope_index") for m in self.model.modules() if hasattr(m, "get_rope_index")]
        seen: dict[Any, list[Any]] = {place: [] for place in helpers + placing}
        with contextlib.ExitStack() as recording:
            for owner, name in helpers + placing:
                recording.enter_context(mock.patch.object(owner, name, _recorded(getattr(owner, name), seen[owner, name])))
            self.eager()
        places = [found[0][0] for (_, name), found in seen.items() if name == "get_rope_index" and found]
        if places and "position_ids" not in self.names:
            self.names.append("position_ids")
            self.tensors.append(places[0])
        with contextlib.ExitStack() as known:
            for owner, name in helpers:
                known.enter_context(mock.patch.object(owner, name, mock.Mock(side_effect=seen[owner, name])))
            yield

    def run(self, program: Any) -> list[Any]:
        """The tensors that torch computes with an exported program."""
        import torch

        with torch.no_grad():
            result = program.module()(*[t.clone() for t in self.tensors])
        return [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]

    def export(self, strict: bool) -> Any:
        import torch

        program = self

        class Wrapper(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = program.model

            def forward(self, *tensors: Any) -> Any:
                return program.call(*tensors)

        with torch.no_grad():
            return torch.export.export(Wrapper().eval(), tuple(t.clone() for t in self.tensors), strict=strict)


def _recorded(function: Any, results: list[Any]) -> Any:
    """The function, which adds its results to a list."""

    def call(*args: Any, **kwargs: Any) -> Any:
        results.append(function(*args, **kwargs))
        return results[-1]

    return call


def degenerate(values: list[Any]) -> str:
    """Why results would prove nothing; empty where they are finite and not all alike."""
    floats = [v for v in values if v.is_floating_point() and v.numel()]
    if not floats:
        return "the model gives no floating-point values"
    if not all(bool(v.isfinite().all()) for v in floats[:1]):
        return "the values are not finite"
    return "" if float(floats[0].double().std()) > 1e-6 else "the values are all alike"


def difference(expected: list[Any], actual: list[Any], types: bool = True) -> float | str:
    """The largest difference as a part of the largest value of its tensor, or what else is not the same."""
    if len(expected) != len(actual):
        return f"{len(actual)} results, not {len(expected)}"
    worst = 0.0
    for i, (e, a) in enumerate(zip(expected, actual, strict=True)):
        if e.shape != a.shape or types and e.dtype != a.dtype:
            return f"result {i} is {a.dtype}{list(a.shape)}, not {e.dtype}{list(e.shape)}"
        if not e.numel():
            continue
        e, a = e.double(), a.double()
        finite = e.isfinite()
        if not bool((finite == a.isfinite()).all()) or not bool((e[~finite] == a[~finite]).all() | e[~finite].isnan().all()):
            return f"result {i} differs in what is not finite"
        scale = max(float(e[finite].abs().max()), 1e-30) if bool(finite.any()) else 1.0
        worst = max(worst, float((e - a)[finite].abs().max()) / scale if bool(finite.any()) else 0.0)
    return worst


if __name__ == "__main__":
    from tests.yardsticks.runner import main

    raise SystemExit(main("tests.yardsticks.transformers_models"))
