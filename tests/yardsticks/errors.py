"""Malformed calls of torch's own test data, ``error_inputs``, through the whole path: what torch refuses must be refused here too.

A case is ``name:dtype:index``. Where torch refuses the call while it exports, the error is torch's own (``not exportable``). Else
the path is reached: it must refuse with a diagnostic (``refused``, ``right``) that names the operation, an element type and the
user's source line; a value where torch gives none is ``wrong``, and anything else ``unclear``. Some calls lose their error when
torch exports them (the element type of ``out=``, for one): where torch's exported program itself gives values, so must this one
(``right``).
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

from tests.yardsticks import opinfo

NAME = "errors"
_OURS = ("aten.", "prims.", "neuron.")


def cases(args: Any) -> list[str]:
    """All malformed calls on the CPU, operator by operator."""
    return [f"{name}:{i}" for name, op in opinfo.operators().items() if op.error_inputs_func for i in range(len(_samples(name)))]


def prepare() -> None:
    """Load everything, so that the first case takes no longer than the others."""
    opinfo.prepare()


@lru_cache(maxsize=2)
def _samples(name: str) -> list[Any]:
    import torch

    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    op = opinfo.operators()[name]
    try:
        return list(op.error_inputs("cpu"))
    except RuntimeError as error:  # a few entries build their inputs on other devices
        if "CUDA" not in str(error) and "device" not in str(error):
            raise
        return []


def run_case(case: str) -> tuple[str, str]:
    """The outcome of one case."""
    import torch

    warnings.simplefilter("ignore")
    name, index = case.rsplit(":", 1)
    sample = _samples(name)[int(index)].sample_input
    call = opinfo.Call(opinfo.operators()[name], sample)
    try:
        call.eager(call.tensors)
    except Exception as error:
        refusal = f"{type(error).__name__}: {error}".replace("\n", " ")
    else:
        return "no sample", "torch accepts the call"
    try:
        program = torch.export.export(call.module(), tuple(call.copies()), strict=False)
    except Exception as error:
        return "not exportable", f"torch refuses the call while it exports it, with {type(error).__name__}"
    try:
        expected = torch.utils._pytree.tree_leaves(program.module()(*call.copies()))
    except Exception:  # torch refuses the call while it runs: then nothing but a refusal of ours is right
        expected = None
    outcome, detail = judge(lambda: opinfo.run_whole_path(program, call.copies()), refusal, expected)
    return outcome, detail


def judge(run: Any, refusal: str, expected: Any) -> tuple[str, str]:
    """The outcome of a program that torch refuses with ``refusal`` when it runs, unless what it exported gives values."""
    from neuron_ir.diagnostics import IRError
    from neuron_ir.locations import UNKNOWN_LOC

    try:
        result = run()
    except IRError as error:
        first = error.diagnostics[0]
        text = "\n".join([first.message, *first.notes])
        missing = [] if first.message.startswith(_OURS) else ["the operation"]
        missing += [] if "tensor<" in text or "torch." in text else ["an element type"]
        missing += [] if first.loc is not UNKNOWN_LOC else ["the source line"]
        if missing:
            return "unclear", f"does not name {', '.join(missing)}: {first.message}"
        return "refused", first.message
    if expected is not None and [(e.dtype, e.shape) for e in expected] == [(r.dtype, r.shape) for r in result]:
        return "right", f"as torch's exported program, which lost the error: {refusal}"
    return "wrong", f"gives {str(result)[:100]} where torch says: {refusal}"


if __name__ == "__main__":
    from tests.yardsticks.runner import main

    raise SystemExit(main("tests.yardsticks.errors"))
