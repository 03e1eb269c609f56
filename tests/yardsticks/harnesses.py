"""JAX's own primitive harnesses through the IR: lower, import, print, parse, verify, compile, run, compare with JAX on the CPU.

A case is a harness by its full name. The judge is JAX itself with the tolerances of ``judging.py``; JAX runs with its default
settings (64-bit types off), as the harnesses are meant to.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

NAME = "harnesses"
_CLEARED_AFTER = 250  # harnesses of one worker; JAX keeps every compiled program
_served = itertools.count(1)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this yardstick."""
    parser.add_argument("--per-group", type=int, default=0, help="so many harnesses of each group, spread evenly (0: all)")


def cases(args: argparse.Namespace) -> list[str]:
    """The harnesses' names, group by group; sorted, as JAX makes some of them in the order of a set."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, harness in _harnesses().items():
        groups[harness.group_name].append(name)
    chosen = []
    for members in map(sorted, groups.values()):
        n = min(args.per_group or len(members), len(members))
        chosen += [members[k * len(members) // n] for k in range(n)]
    return chosen


def place(case: str) -> tuple[str, str]:
    """The primitive and the element type."""
    import numpy as np

    harness = _harnesses()[case]
    return harness.group_name, np.dtype(harness.dtype).name


def prepare(platforms: str = "cpu") -> None:
    """Before JAX is loaded: the CPU first, as it is to judge, and no platform but those named."""
    os.environ["JAX_PLATFORMS"] = platforms
    _harnesses()


@cache
def _harnesses() -> dict[str, Any]:
    from jax._src.internal_test_util.test_harnesses import all_harnesses

    found: dict[str, Any] = {}
    for harness in all_harnesses:
        name = harness.fullname
        while name in found:
            name += "'"
        found[name] = harness
    return found


def run_case(case: str) -> tuple[str, str]:
    """The outcome of one harness, with the reason where it is not ``right``."""
    return judged(case, through_the_ir)


def run_cases(cases: Sequence[str]) -> list[tuple[str, str]]:
    """The outcomes of several harnesses, made one program of; one by one where not all of them are right so."""
    return judged_together(cases, through_the_ir)


def judged_together(cases: Sequence[str], path: Callable[[Any, Sequence[Any]], list[Any]]) -> list[tuple[str, str]]:
    """What becomes of several harnesses by a path. Half of a harness's cost is that of a program, whatever is in it."""
    import jax
    import numpy as np

    from tests.yardsticks.judging import problem

    chosen = [_harnesses()[case] for case in cases]
    args = [jax.tree.map(_on_device, list(h.dyn_args_maker(np.random.RandomState(0)))) for h in chosen if h.filter("cpu")]

    def together(*args: Any) -> Any:
        return [h.dyn_fun(*own) for h, own in zip(chosen, args, strict=True)]

    try:
        if len(args) < len(chosen):
            raise ValueError("JAX does not run one of them")
        expected = jax.jit(together)(*args)
        got = iter(path(together, args))
        for h, own, results in zip(chosen, args, expected, strict=True):
            leaves = [np.asarray(x) for x in jax.tree.leaves(results)]
            reason = problem(h.group_name, h.params, jax.tree.leaves(own), leaves, [next(got) for _ in leaves])
            if reason:
                raise ValueError(reason)
    except Exception:  # whatever it is, the one harness that it belongs to says so by itself
        return [judged(case, path) for case in cases]
    return [("right", "")] * len(cases)


def judged(case: str, path: Callable[[Any, Sequence[Any]], list[Any]]) -> tuple[str, str]:
    """What becomes of one harness by a path that takes the function and its arguments."""
    import jax
    import numpy as np

    from neuron_ir.diagnostics import IRError

    if next(_served) % _CLEARED_AFTER == 0:
        jax.clear_caches()
    harness = _harnesses()[case]
    if not harness.filter("cpu"):
        return "no sample", "; ".join(x.description for x in harness.jax_unimplemented) or "filtered"
    args = harness.dyn_args_maker(np.random.RandomState(0))
    args = jax.tree.map(_on_device, list(args))
    try:
        expected = [np.asarray(x) for x in jax.tree.leaves(jax.jit(harness.dyn_fun)(*args))]
    except Exception as error:  # the judge itself refuses: whatever it raises is the reason
        return "no sample", _first_line(error)
    try:
        got = path(harness.dyn_fun, args)
    except IRError as error:
        return "refused", _first_line(error)
    except Exception as error:  # any other exception means that the refusal is not clear
        return "unclear", f"{type(error).__name__}: {_first_line(error)}"
    from tests.yardsticks.judging import problem

    reason = problem(harness.group_name, harness.params, jax.tree.leaves(args), expected, got)
    return "wrong" if reason else "right", reason


def _on_device(x: Any) -> Any:
    """An argument as a JAX array; NumPy's are copied without a program of their own."""
    import jax
    import numpy as np

    return jax.device_put(x) if isinstance(x, np.ndarray) else jax.numpy.asarray(x)


def through_the_ir(function: Any, args: Sequence[Any]) -> list[Any]:
    """The function's flat results by way of Neuron IR text and the reference accelerator."""
    import jax
    import numpy as np

    import neuron_ir

    module = neuron_ir.from_jax(function, *args)
    again = neuron_ir.parse(module.text())
    again.weights.update(module.weights)
    again.verify()
    if again.text() != module.text():
        raise AssertionError("the text changes when it is read and printed again")
    result = neuron_ir.compile(again)(*jax.tree.leaves(args))
    return [np.asarray(x) for x in jax.tree.leaves(result)]


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:300] or type(error).__name__


if __name__ == "__main__":
    from tests.yardsticks.runner import main

    raise SystemExit(main("tests.yardsticks.harnesses"))
