"""Every operator of torch's own test data, ``op_db``, through ``torch.compile(backend="neuron")``, forward and backward.

A case is ``name:dtype:index``, a sample as in :mod:`tests.yardsticks.opinfo`: the operator is compiled with ``fullgraph=True``; its
results are compared with torch eager's, then the gradients of its differentiable results, under one seeded cotangent each, with
respect to all its floating tensors. Operators that give other values under another seed are judged by element type and shape.
Where results differ from torch's, those of double precision decide: ours are right within the tolerance of them, or, where torch's
own are not, within twice torch's distance.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any
from unittest import mock

from tests.yardsticks import opinfo, path

NAME = "compiled"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this yardstick."""
    opinfo.arguments(parser)


def cases(args: argparse.Namespace) -> list[str]:
    """All cases, operator by operator, for operators that torch's CPU supports in that element type."""
    return opinfo.cases(args)


def prepare() -> None:
    """Load everything, so that the first case takes no longer than the others."""
    run_case("add:f32:0")


def run_case(case: str) -> tuple[str, str]:
    """The outcome of one case."""
    warnings.simplefilter("ignore")
    with mock.patch("torch.testing._internal.common_methods_invocations.wrapper_set_seed", _unseeded):
        return _outcome(case)


def _unseeded(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The operator as it is: Dynamo does not trace the setting of a generator's state, with which the test data hide randomness."""
    return op(*args, **kwargs)


def _outcome(case: str) -> tuple[str, str]:
    import torch

    name, dtype, index = case.rsplit(":", 2)
    try:
        samples = opinfo.samples_of(name, dtype)
        if int(index) >= len(samples):
            return "no sample", ""
        op = opinfo.operators()[name]
        call = opinfo.Call(op, samples[int(index)])
        expected, again = call.eager(call.tensors), call.eager(call.tensors, seed=1)
    except Exception as error:
        return "no sample", f"torch: {type(error).__name__}: {error}"
    random = name.startswith(opinfo.UNINITIALISED) or opinfo.problem_of(expected, again, call, {}) != ""
    differentiable = op.supports_autograd and getattr(torch, path.DTYPES[dtype]) in op.supported_backward_dtypes("cpu")
    try:
        want = _values(call, call.apply, differentiable)
    except Exception as error:
        return "no sample", f"torch: {type(error).__name__}: {error}"
    try:
        torch._dynamo.reset()
        got = _values(call, torch.compile(call.apply, backend="neuron", fullgraph=True), differentiable)
    except Exception as error:
        return _refused(error)
    return _judge(call, want, got, random)


def _values(call: Any, function: Any, differentiable: bool) -> tuple[list[Any], list[Any]]:
    """The results of a function of a sample's tensors, and their gradients."""
    import torch

    torch.manual_seed(0)
    tensors = call.copies()
    if differentiable:
        for tensor in tensors:
            tensor.requires_grad_(tensor.is_floating_point() or tensor.is_complex())
    with torch.set_grad_enabled(differentiable):
        results = path.leaves(function([t.clone() if t.requires_grad else t for t in tensors]))
    outputs = [r for r in call.processed(results) if isinstance(r, torch.Tensor) and r.requires_grad]
    inputs = [t for t in tensors if t.requires_grad]
    if not (outputs and inputs):
        return results, []
    generator = torch.Generator().manual_seed(0)
    seeds = [torch.randn(o.shape, generator=generator, dtype=torch.float64).to(o.dtype) for o in outputs]
    return results, list(torch.autograd.grad(outputs, inputs, seeds, allow_unused=True))


def _judge(call: Any, want: tuple[list[Any], list[Any]], got: tuple[list[Any], list[Any]], random: bool) -> tuple[str, str]:
    """Whether results and gradients are torch's, or those of double precision."""
    problem = opinfo.problem_of(want[0], got[0], call, {"shape_only": random})
    if not problem:
        gradient = path.difference(want[1], got[1], by_type=random)
        problem = gradient and f"gradient: {gradient}"
    if not problem:
        return "right", "by shape" if random else ""
    exact = _exact(call, bool(want[1])) if not random and not opinfo.type_problem(want[0], got[0]) else None
    if exact is not None and not opinfo.problem_of(exact[0], got[0], call, {"check_dtype": False}):
        if not path.difference(exact[1], got[1], check_dtype=False):
            return "right", "as in double precision"
    if exact is not None and _is_as_exact([*want[0], *want[1]], [*got[0], *got[1]], [*exact[0], *exact[1]]):
        return "right", "as far from double precision as torch"
    return "wrong", problem


def _is_as_exact(want: list[Any], got: list[Any], exact: list[Any]) -> bool:
    """Whether torch's own values miss those of double precision, and ours by no more than twice as much."""
    if path.difference(want, got, by_type=True) or not path.difference(exact, want, check_dtype=False):
        return False
    for w, g, e in zip(want, got, exact, strict=True):
        if not hasattr(e, "dtype") or not e.dtype.is_floating_point or not e.numel():
            if path.difference([w], [g]):
                return False
        elif not (g - e).abs().max() <= 2 * (w - e).abs().max():
            return False
    return True


def _exact(call: Any, differentiable: bool) -> Any:
    """What torch gives in double precision; ``None`` where it gives nothing."""
    import torch

    wide = {torch.complex64: torch.complex128} | dict.fromkeys((torch.float32, torch.bfloat16, torch.float16), torch.float64)
    tensors = call.tensors
    try:
        call.tensors = [t.to(wide.get(t.dtype, t.dtype)) for t in tensors]
        return _values(call, call.apply, differentiable)
    except Exception:  # many operators do not take double precision
        return None
    finally:
        call.tensors = tensors


def _refused(error: Exception) -> tuple[str, str]:
    """What a failed compile or run counts as: refused by name, beyond Dynamo, or an error that says nothing to the user."""
    import torch

    from neuron_ir.diagnostics import IRError

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, IRError):
        cause = getattr(cause, "inner_exception", None) or cause.__cause__
    if isinstance(cause, IRError):
        return "refused", path.refusal(cause)
    what = f"{type(error).__name__}: {error}".replace("\n", " ")
    return ("not exportable" if isinstance(error, torch._dynamo.exc.Unsupported) else "unclear"), what


if __name__ == "__main__":
    from tests.yardsticks.runner import main

    raise SystemExit(main("tests.yardsticks.compiled"))
