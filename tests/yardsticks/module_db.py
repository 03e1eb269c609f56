"""Every module of torch's own test data, ``module_db``, in training and evaluation, through the whole path, against torch eager.

A case is ``module:mode:dtype:index``: one input exported, imported, printed, parsed, verified, compiled and run; results and the
buffers that the call updates are compared with torch's, with the tolerances of ``torch.testing.assert_close``, or with what torch
computes in double precision. Lazy modules are given their shapes by one call before the export, as torch wants it. Modules that
give other values under another seed are judged by element type and shape in training, by values in evaluation.
"""

from __future__ import annotations

import argparse
import copy
import warnings
from functools import cache, lru_cache
from typing import Any

from tests.yardsticks import path

NAME = "module_db"
MODES = {"train": True, "eval": False}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this yardstick."""
    parser.add_argument("--dtypes", default="f32", help=f"of {','.join(path.DTYPES)}")
    parser.add_argument("--samples", type=int, default=4, help="at most this many inputs per module and mode, spread over all")


def cases(args: argparse.Namespace) -> list[str]:
    """All cases, module by module, for modules that torch's test data has in that element type or, narrow floats, in f32."""
    return [
        f"{name}:{mode}:{dtype}:{index}"
        for name in _modules()
        for mode in MODES
        for dtype in args.dtypes.split(",")
        for index in range(args.samples)
    ]


@cache
def _modules() -> dict[str, Any]:
    from torch.testing._internal.common_modules import module_db

    return {info.name.removeprefix("nn."): info for info in module_db}


def prepare() -> None:
    """Load everything, so that the first case takes no longer than the others."""
    run_case("Linear:eval:f32:0")


@lru_cache(maxsize=2)
def _inputs(name: str, mode: str, dtype: str) -> list[Any]:
    """The inputs of a module in the order in which they are tried: far apart first."""
    import torch

    torch.manual_seed(0)
    info = _modules()[name]
    every = list(info.module_inputs_func(info, "cpu", getattr(torch, path.DTYPES[dtype]), False, MODES[mode]))
    step = next(p for p in (37, 41, 43) if len(every) % p)  # a prime step visits all
    return [every[i * step % len(every)] for i in range(len(every))]


def run_case(case: str) -> tuple[str, str]:
    """The outcome of one case."""
    import torch

    warnings.simplefilter("ignore")
    name, mode, dtype, index = case.split(":")
    try:
        inputs = _inputs(name, mode, dtype)
        if int(index) >= len(inputs):
            return "no sample", ""
        call = _Call(_modules()[name].module_cls, inputs[int(index)], getattr(torch, path.DTYPES[dtype]), MODES[mode])
        expected, state = call.eager()
        again, _ = call.eager(seed=1)
    except Exception as error:
        return "no sample", f"{type(error).__name__}: {error}"
    is_random = path.difference(expected, again) != ""
    try:
        program = torch.export.export(call.program(), tuple(call.copies()), strict=False)
    except Exception as error:
        return "not exportable", f"{type(error).__name__}: {error}".replace("\n", " ")
    return _judge(call, program, expected, state, is_random)


def _judge(call: _Call, program: Any, expected: Any, state: Any, is_random: bool) -> tuple[str, str]:
    from neuron_ir.diagnostics import IRError

    try:
        runnable = path.compiled(program)
        actual = path.leaves(runnable(*call.copies()))
    except IRError as error:
        return "refused", path.refusal(error)
    problem = path.difference(expected, actual, by_type=is_random)
    if not is_random:
        problem = problem or path.state_difference(runnable.state, state)
        if problem and call.agrees_in_double(actual, runnable.state) and not path.difference(expected, actual, by_type=True):
            return "right", "as in double precision"
    return ("wrong", problem) if problem else ("right", "by shape" if is_random else "")


class _Call:
    """One module with one input, its tensors apart from what else it is given."""

    def __init__(self, cls: Any, given: Any, dtype: Any, training: bool):
        import torch

        torch.manual_seed(0)
        self.module = cls(*given.constructor_input.args, **given.constructor_input.kwargs).to(dtype).train(training)
        self.leaves, self.tree = torch.utils._pytree.tree_flatten((given.forward_input.args, given.forward_input.kwargs))
        self.places = [i for i, v in enumerate(self.leaves) if isinstance(v, torch.Tensor)]
        if issubclass(cls, torch.nn.modules.lazy.LazyModuleMixin):
            self.apply(self.module, self.copies())

    def copies(self) -> list[Any]:
        """Fresh tensors of the same values."""
        return [self.leaves[i].detach().clone() for i in self.places]

    def apply(self, module: Any, tensors: Any) -> Any:
        import torch

        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = torch.utils._pytree.tree_unflatten(leaves, self.tree)
        return module(*args, **kwargs)

    def eager(self, seed: int = 0, wide: bool = False) -> tuple[list[Any], dict[str, Any]]:
        """torch's own results, and the module's buffers after the call; ``wide``: in double precision."""
        import torch

        module, tensors = copy.deepcopy(self.module), self.copies()
        if wide:
            module, tensors = module.double(), [t.double() if t.is_floating_point() else t for t in tensors]
        torch.manual_seed(seed)
        results = [r.detach() if isinstance(r, torch.Tensor) else r for r in path.leaves(self.apply(module, tensors))]
        return results, {f"module.{name}": value for name, value in module.named_buffers()}

    def agrees_in_double(self, actual: list[Any], state: Any) -> bool:
        """Whether the results are those of double precision."""
        try:
            exact, buffers = self.eager(wide=True)
        except Exception:  # some modules do not take double precision
            return False
        narrow = {name: value.to(self.module_dtype(name, value)) for name, value in buffers.items()}
        return not (path.difference(exact, actual, check_dtype=False) or path.state_difference(state, narrow))

    def module_dtype(self, name: str, value: Any) -> Any:
        return self.module.get_buffer(name.removeprefix("module.")).dtype if value.is_floating_point() else value.dtype

    def program(self) -> Any:
        import torch

        call = self

        class Program(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.module = copy.deepcopy(call.module)
                self.train(call.module.training)

            def forward(self, *tensors: Any) -> Any:
                return call.apply(self.module, tensors)

        return Program()


if __name__ == "__main__":
    from tests.yardsticks.runner import main

    raise SystemExit(main("tests.yardsticks.module_db"))
