"""torch's smaller databases through the whole path, against torch eager.

A case is ``database:name:index``. The databases: ``hop`` (control flow and other higher-order operations), ``optim`` (every
configuration of every optimizer: a function of parameters and gradients that makes two steps and gives the parameters and the
optimizer's state), ``custom`` (operators that users define: opaque, so that torch runs them on the host),
``autograd`` (functions with a backward of their own) and ``ref`` (Python references of operators). What torch exports in one of
its two modes, non-strict or strict, counts as exportable.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

from tests.yardsticks import opinfo, path

NAME = "other_dbs"
DATABASES = ("hop", "optim", "custom", "autograd", "ref")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this yardstick."""
    parser.add_argument("--databases", default=",".join(DATABASES), help=f"of {','.join(DATABASES)}")
    parser.add_argument(
        "--samples", type=int, default=1, help="at most this many per operator; every optimizer configuration is run"
    )


def cases(args: argparse.Namespace) -> list[str]:
    """All cases of the databases asked for."""
    listed = []
    for database in args.databases.split(","):
        if database == "optim":
            listed += [f"optim:{name}:{i}" for name, found in _optimizers().items() for i in range(len(found))]
        else:
            listed += [f"{database}:{name}:{i}" for name in _operators(database) for i in range(args.samples)]
    return listed


def place(case: str) -> tuple[str, str]:
    """The operator or optimizer as the row, its database as the column."""
    database, name, _ = case.split(":")
    return name, database


def prepare() -> None:
    """Load everything, so that the first case takes no longer than the others."""
    run_case("hop:cond/simple:0")


@cache
def _operators(database: str) -> dict[str, Any]:
    if database == "hop":
        from torch.testing._internal.hop_db import hop_db as found
    elif database == "custom":
        from torch.testing._internal.custom_op_db import custom_op_db as found
    elif database == "autograd":
        from torch.testing._internal.autograd_function_db import autograd_function_db as found
    else:
        from torch.testing._internal.common_methods_invocations import python_ref_db as found
    return {f"{op.name}/{op.variant_test_name}".removesuffix("/"): op for op in found}


@cache
def _optimizers() -> dict[str, list[tuple[Any, Any]]]:
    """Optimizer -> its configurations, as (class, options)."""
    import torch
    from torch.testing._internal.common_optimizers import optim_db

    return {
        info.optim_cls.__name__: [(info.optim_cls, given.kwargs) for given in info.optim_inputs_func(device=torch.device("cpu"))]
        for info in optim_db
    }


def run_case(case: str) -> tuple[str, str]:
    """The outcome of one case."""
    warnings.simplefilter("ignore")
    database, name, index = case.split(":")
    if database == "optim":
        return _run_optimizer(*_optimizers()[name][int(index)])
    return _run_operator(_operators(database)[name], int(index))


def _run_operator(op: Any, index: int) -> tuple[str, str]:
    import torch

    torch.manual_seed(0)
    dtype = torch.float32 if not op.dtypes or torch.float32 in op.dtypes else next(iter(op.dtypes))
    try:
        samples = list(op.sample_inputs_func(op, "cpu", dtype, False))
    except Exception as error:
        return "no sample", f"{type(error).__name__}: {error}"
    if index >= len(samples):
        return "no sample", ""
    call = opinfo.Call(op, samples[index])
    try:
        expected, again = call.eager(call.tensors), call.eager(call.tensors, seed=1)
    except Exception as error:
        return "no sample", f"torch: {type(error).__name__}: {error}"
    return _judge(call.module(), call.copies, expected, path.difference(expected, again) != "", call.exact)


def _run_optimizer(cls: Any, options: dict[str, Any]) -> tuple[str, str]:
    """Two steps of an optimizer, so that the second one reads the state that the first one left."""
    import torch

    torch.manual_seed(0)
    shapes = [(3, 4), (2, 3)]
    first = [torch.randn(shape) for _ in range(3) for shape in shapes]

    def steps(*tensors: Any) -> Any:
        params = [torch.nn.Parameter(t.clone()) for t in tensors[:2]]
        optimizer = cls(params, **options)
        for grads in (tensors[2:4], tensors[4:6]):
            for param, grad in zip(params, grads, strict=True):
                param.grad = grad.clone()
            optimizer.step()
        state = [v for p in params for v in optimizer.state[p].values() if isinstance(v, torch.Tensor)]
        return [p.detach() for p in params], state

    def copies(wide: bool = False) -> list[Any]:
        return [t.double() if wide else t.clone() for t in first]

    try:
        expected = path.leaves(steps(*copies()))
    except Exception as error:
        return "no sample", f"torch: {type(error).__name__}: {error}"
    return _judge(_module(steps), copies, expected, False, lambda: path.leaves(steps(*copies(wide=True))))


def _module(function: Callable[..., Any]) -> Any:
    import torch

    class Program(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            return function(*tensors)

    return Program()


def _judge(
    module: Any, copies: Callable[[], list[Any]], expected: list[Any], is_random: bool, exact: Callable[[], Any]
) -> tuple[str, str]:
    import torch

    from neuron_ir.diagnostics import IRError

    problems = []
    for strict in (False, True):
        torch._dynamo.reset()
        try:
            program = torch.export.export(module, tuple(copies()), strict=strict)
            break
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}".replace("\n", " ")[:250])
    else:
        return "not exportable", " / strict: ".join(problems)
    try:
        actual = path.leaves(path.compiled(program)(*copies()))
    except IRError as error:
        return "refused", path.refusal(error)
    problem = path.difference(expected, actual, by_type=is_random)
    if not problem:
        return "right", "by shape" if is_random else "strict" if problems else ""
    wide = None if path.difference(expected, actual, by_type=True) else exact()
    if wide is not None and not path.difference(wide, actual, check_dtype=False):
        return "right", "as in double precision"
    return "wrong", problem


if __name__ == "__main__":
    from tests.yardsticks.runner import main

    raise SystemExit(main("tests.yardsticks.other_dbs"))
