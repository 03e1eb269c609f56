"""Every operator of torch's own test data, ``op_db``, through the whole path, against torch eager.

A case is ``name:dtype:index``: one sample exported, imported, printed, parsed, verified, compiled and run. Sample 0 is the first
without an empty tensor among the first four, the others are spread over the rest. Values are judged by
``torch.testing.assert_close`` with its own tolerances, or the entry's where wider, against torch's result, or the result that torch
computes in double precision. Operators that give other values under another seed are judged by element type and shape alone.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from functools import cache, lru_cache
from typing import Any
from unittest import mock

from tests.yardsticks import path

NAME = "opinfo"
_MOST = 400  # samples looked at per operator
UNINITIALISED = ("empty", "new_empty", "empty_like", "new_empty_strided", "empty_strided", "empty_permuted")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this yardstick."""
    parser.add_argument("--dtypes", default="f32", help=f"of {','.join(path.DTYPES)}")
    parser.add_argument("--samples", type=int, default=1, help="at most this many per operator and element type")


def cases(args: argparse.Namespace) -> list[str]:
    """All cases, operator by operator, for operators that torch's CPU supports in that element type."""
    import torch

    names = [
        f"{name}:{d}"
        for name, op in operators().items()
        for d in args.dtypes.split(",")
        if getattr(torch, path.DTYPES[d]) in _supported(op)
    ]
    return [f"{name}:{i}" for name in names for i in range(args.samples)]


@cache
def operators() -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return {f"{op.name}/{op.variant_test_name}".removesuffix("/"): op for op in op_db}


def prepare() -> None:
    """Load everything, so that the first case takes no longer than the others."""
    run_case("add:f32:0")


def _supported(op: Any) -> set[Any]:
    return set(op.dtypes) if op.name.find("jiterator") < 0 else set()


@lru_cache(maxsize=2)
def samples_of(name: str, dtype: str) -> list[Any]:
    """The samples in the order in which they are tried."""
    import torch

    torch.manual_seed(0)
    op = operators()[name]
    every = list(itertools.islice(op.sample_inputs("cpu", getattr(torch, path.DTYPES[dtype]), requires_grad=False), _MOST))
    first = next((i for i, s in enumerate(every[:4]) if not _has_empty(s)), 0)
    rest = every[:first] + every[first + 1 :]
    step = next((p for p in (37, 41, 43) if len(rest) % p), 1)  # a prime step visits all and begins far apart
    return every[first : first + 1] + [rest[(i * step + 1) % len(rest)] for i in range(len(rest))]


def _has_empty(sample: Any) -> bool:
    import torch

    leaves = torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return any(isinstance(v, torch.Tensor) and v.numel() == 0 for v in leaves)


def run_case(case: str) -> tuple[str, str]:
    """The outcome of one case."""
    import torch

    warnings.simplefilter("ignore")
    name, dtype, index = case.rsplit(":", 2)
    try:
        samples = samples_of(name, dtype)
    except Exception as error:
        return "no sample", f"{type(error).__name__}: {error}"
    if int(index) >= len(samples):
        return "no sample", ""
    call = Call(operators()[name], samples[int(index)])
    try:
        expected = call.eager(call.tensors)
        expected_again = call.eager(call.tensors, seed=1)
    except Exception as error:
        return "no sample", f"torch: {type(error).__name__}: {error}"
    random = name.startswith(UNINITIALISED) or problem_of(expected, expected_again, call, {}) != ""
    try:
        program = torch.export.export(call.module(), tuple(call.copies()), strict=False)
    except Exception as error:
        return "not exportable", f"{type(error).__name__}: {error}".replace("\n", " ")
    return _judge(call, program, expected, random, dtype)


def _judge(call: Call, program: Any, expected: Any, random: bool, dtype: str) -> tuple[str, str]:
    from neuron_ir.diagnostics import IRError

    try:
        actual = run_whole_path(program, call.copies())
    except IRError as error:
        return "refused", path.refusal(error)
    problem = problem_of(expected, actual, call, {"shape_only": random})
    if problem and not random:
        exact = call.exact(expected)
        if exact is not None and not problem_of(exact, actual, call, {"check_dtype": False}) and not type_problem(expected, actual):
            return "right", "as in double precision"
    return ("wrong", problem) if problem else ("right", "by shape" if random else "")


def run_whole_path(program: Any, inputs: list[Any]) -> Any:
    """Import, print, parse, verify, compile and run an exported program; the flat list of its results."""
    return path.leaves(path.compiled(program)(*inputs))


class Call:
    """One sample of one operator, its tensors apart from what else it is given."""

    def __init__(self, op: Any, sample: Any):
        import torch

        self.op, self.sample = op, sample
        self.leaves, self.tree = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        self.places = [i for i, v in enumerate(self.leaves) if isinstance(v, torch.Tensor)]
        self.tensors = [self.leaves[i] for i in self.places]
        self.where: list[Any] = []

    def copies(self) -> list[Any]:
        """Fresh tensors of the same values, strides kept where no element is read twice."""
        return [t.detach().clone() for t in self.tensors]

    def apply(self, tensors: Any) -> Any:
        import torch

        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        value, args, kwargs = torch.utils._pytree.tree_unflatten(leaves, self.tree)
        return self.op.op(value, *args, **kwargs)

    def eager(self, tensors: Any, seed: int = 0) -> Any:
        """torch's own result under ``seed``; the test data's own seeds are kept from hiding that an operator is random."""
        import torch

        torch.manual_seed(seed)
        with torch.no_grad(), mock.patch("torch.manual_seed"):
            result = self.apply([t.detach().clone() for t in tensors])
        self.result_tree = torch.utils._pytree.tree_structure(result)
        return torch.utils._pytree.tree_leaves(result)

    def exact(self, expected: list[Any]) -> Any:
        """torch's result in double precision, rounded once to the element types of ``expected``; ``None`` where it has none."""
        import torch

        wide = {
            torch.float32: torch.float64,
            torch.bfloat16: torch.float64,
            torch.float16: torch.float64,
            torch.complex64: torch.complex128,
        }
        try:
            results = self.eager([t.to(wide.get(t.dtype, t.dtype)) for t in self.tensors])
            return [r.to(e.dtype) if isinstance(r, torch.Tensor) else r for r, e in zip(results, expected, strict=True)]
        except Exception:  # many operators do not take double precision, or not with a dtype among the arguments
            return None

    def module(self) -> Any:
        import torch

        call = self

        class Program(torch.nn.Module):
            def forward(self, *tensors: Any) -> Any:
                return call.apply(tensors)

        return Program()

    def processed(self, flat: Any) -> list[Any]:
        """What of a result is determined: factorisations are compared up to signs and phases, as the sample itself says."""
        import torch

        process = self.sample.output_process_fn_grad
        if process is None or all(not isinstance(v, torch.Tensor) for v in flat):
            return list(flat)
        try:
            return torch.utils._pytree.tree_leaves(process(torch.utils._pytree.tree_unflatten(list(flat), self.result_tree)))
        except (TypeError, ValueError):
            return list(flat)


def type_problem(expected: Any, actual: Any) -> str:
    """What differs in number, element types and shapes."""
    import torch

    actual = [a for a in actual if a is not None]
    expected = [e for e in expected if e is not None]
    if len(expected) != len(actual):
        return f"{len(actual)} results, not {len(expected)}"
    for i, (e, a) in enumerate(zip(expected, actual, strict=True)):
        if isinstance(e, torch.Tensor) != isinstance(a, torch.Tensor):
            return f"result {i} is {a!r}, not {e!r}"
        if isinstance(e, torch.Tensor) and (e.dtype != a.dtype or e.shape != a.shape):
            return f"result {i} is {a.dtype}{list(a.shape)}, not {e.dtype}{list(e.shape)}"
    return ""


def problem_of(expected: Any, actual: Any, call: Call, options: dict[str, Any]) -> str:
    """What is wrong with ``actual``, or nothing."""
    import torch

    if options.get("check_dtype", True):
        problem = type_problem(expected, actual)
        if problem or options.get("shape_only"):
            return problem
    for i, (e, a) in enumerate(zip(call.processed(expected), call.processed(actual), strict=True)):
        if not isinstance(e, torch.Tensor):
            if e != a and not (e != e and a != a):
                return f"result {i} is {a!r}, not {e!r}"
            continue
        if _is_other_choice(call, e, a):
            continue
        try:
            tolerance = _tolerance(call.op, a.dtype)
            torch.testing.assert_close(a.to(e.dtype), e, equal_nan=True, check_stride=False, **tolerance)
        except AssertionError as error:
            return f"result {i}: " + " ".join(str(error).split())
    return ""


_PLACES = ("topk", "kthvalue", "sort", "argsort", "median", "nanmedian", "mode")


def _is_other_choice(call: Call, expected: Any, actual: Any) -> bool:
    """Whether indices that torch leaves open among equal elements name other, equal, ones."""
    import torch

    x, args, kwargs = call.sample.input, call.sample.args, call.sample.kwargs
    if call.op.name not in _PLACES or expected.dtype != torch.int64 or not x.dim() or torch.equal(expected, actual):
        return False
    numbers = [a for a in args if isinstance(a, int) and not isinstance(a, bool)]
    if call.op.name in ("topk", "kthvalue"):
        numbers = numbers[1:]
    dim = kwargs.get("dim", numbers[0] if numbers else -1)
    if expected.dim() != x.dim():
        expected, actual = expected.unsqueeze(dim), actual.unsqueeze(dim)
    distinct = torch.equal(actual.sort(dim)[0], expected.sort(dim)[0]) or call.op.name not in ("sort", "argsort")
    return distinct and torch.equal(x.gather(dim, expected), x.gather(dim, actual))


def _tolerance(op: Any, dtype: Any) -> dict[str, float]:
    """assert_close's own tolerance for the element type, or the widest that the entry states for torch's own comparisons."""
    from torch.testing._comparison import default_tolerances
    from torch.testing._internal.common_device_type import toleranceOverride

    rtol, atol = default_tolerances(dtype)
    for info in op.decorators:
        for decorator in getattr(info, "decorators", ()):
            if (
                isinstance(decorator, toleranceOverride)
                and getattr(info, "device_type", None) in (None, "cpu")
                and dtype in decorator.d
            ):
                rtol, atol = max(rtol, decorator.d[dtype].rtol), max(atol, decorator.d[dtype].atol)
    return {"rtol": rtol, "atol": atol}


if __name__ == "__main__":
    from tests.yardsticks.runner import main

    raise SystemExit(main("tests.yardsticks.opinfo"))
