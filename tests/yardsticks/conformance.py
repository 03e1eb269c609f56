"""The manners of a JAX platform: public operations of JAX on ``jax.devices("neuron")``, each judged by the same call on the CPU.

A case is ``subject/name``. Values, element types, shapes, exceptions and what is printed must be those of the CPU; arrays must lie
on the platform's device. Tolerance: 1e-5 of the value for 32-bit floats and wider, 2e-2 for narrower ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tests.yardsticks import harnesses

NAME = "conformance"


def cases(args: Any) -> list[str]:
    """All cases, subject by subject."""
    del args
    return list(_cases())


def place(case: str) -> tuple[str, str]:
    """The subject, and one column for all."""
    return case.partition("/")[0], "case"


def prepare() -> None:
    """Before JAX is loaded: the CPU to judge, and the plugin's platform behind it."""
    harnesses.prepare("cpu,neuron")


@cache
def _cases() -> dict[str, Callable[[Any], Any]]:
    from tests.yardsticks import conformance_cases

    return conformance_cases.all_cases()


def run_cases(cases: Sequence[str]) -> list[tuple[str, str]]:
    """The outcomes of several cases, one by one: they share the process."""
    return [run_case(case) for case in cases]


def run_case(case: str) -> tuple[str, str]:
    """The outcome of one case, with the reason where it is not ``right``."""
    import jax

    function = _cases()[case]
    expected, got = (_outcome(function, jax.devices(name)[0]) for name in ("cpu", "neuron"))
    if isinstance(expected, BaseException) or isinstance(got, BaseException):
        if type(expected) is type(got):
            return "right", ""
        words = f"{type(got).__name__}: {str(got).strip().splitlines()[0][:300] if str(got) else ''}"
        if not isinstance(got, BaseException):
            return "wrong", f"nothing is raised where the CPU raises {type(expected).__name__}"
        return ("refused" if "error[" in str(got) else "unclear"), words
    reason = _difference(expected, got)
    return ("wrong" if reason else "right"), reason


def _outcome(function: Callable[[Any], Any], device: Any) -> Any:
    """The leaves of a case's result on a device, as NumPy arrays or plain values; or the exception that it raised."""
    import jax
    import numpy as np

    try:
        with jax.default_device(device):
            leaves = jax.tree.leaves(function(device))
            for x in leaves:
                if isinstance(x, jax.Array) and x.devices() != {device}:
                    raise AssertionError(f"a result is on {x.devices()}")
            return [np.asarray(x) if isinstance(x, jax.Array) else x for x in leaves]
    except Exception as error:  # the exception is the outcome that both platforms must share
        return error


def _difference(expected: Sequence[Any], got: Sequence[Any]) -> str:
    import numpy as np

    if len(expected) != len(got):
        return f"{len(got)} results, not {len(expected)}"
    for i, (e, g) in enumerate(zip(expected, got, strict=True)):
        if not isinstance(e, np.ndarray):
            if e != g:
                return f"result {i} is {g!r}, not {e!r}"
            continue
        if (e.dtype, e.shape) != (g.dtype, g.shape):
            return f"result {i} is {g.dtype}{list(g.shape)}, not {e.dtype}{list(e.shape)}"
        if e.dtype.kind in "biu" or e.dtype.itemsize == 0:
            same = np.array_equal(e, g)
        else:
            wide = np.complex128 if e.dtype.kind == "c" else np.float64
            tolerance = 2e-2 if e.dtype.itemsize < 4 else 1e-5
            same = np.allclose(g.astype(wide), e.astype(wide), rtol=tolerance, atol=tolerance, equal_nan=True)
        if not same:
            return f"result {i} is {g.reshape(-1)[:4]}, not {e.reshape(-1)[:4]}"
    return ""


if __name__ == "__main__":
    from tests.yardsticks.runner import main

    raise SystemExit(main("tests.yardsticks.conformance"))
