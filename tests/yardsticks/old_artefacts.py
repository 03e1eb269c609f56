"""Programs that earlier JAX versions exported and froze, with their inputs and expected outputs, through the IR.

A case is a module of ``jax._src.internal_test_util.export_back_compat_test_data``. Those for the CPU and those that name no
platform's own calls have to give the recorded numbers; of the others, each is right or refused by the name of its custom call.
Factorisations are judged by what defines them where signs and phases are free, as JAX's own tests of these data do.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

NAME = "old_artefacts"


def cases(args: Any) -> list[str]:
    """The modules' names."""
    return list(_artefacts())


def place(case: str) -> tuple[str, str]:
    """The file of the data, and the platform that the module was made for."""
    return case.partition(":")[0], str(_artefacts()[case]["platform"])


def prepare() -> None:
    """Before JAX is loaded: the CPU alone."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    _artefacts()


@cache
def _artefacts() -> dict[str, dict[str, Any]]:
    package = importlib.import_module("jax._src.internal_test_util.export_back_compat_test_data")
    found: dict[str, dict[str, Any]] = {}
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if not name.startswith("_"):
                found.update(_modules(f"{info.name.removeprefix(package.__name__ + '.')}:{name}", value))
    return found


def _modules(name: str, value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The artefacts in a module's variable, which is one itself or holds them by name or number."""
    if isinstance(value, dict) and "mlir_module_serialized" in value:
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _modules(f"{name}.{key}", item)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _modules(f"{name}[{i}]", item)


def run_case(case: str) -> tuple[str, str]:
    """The outcome of one module, with the reason where it is not ``right``."""
    import numpy as np

    import neuron_ir
    from neuron_ir.frontends.jax.importer import import_module
    from neuron_ir.frontends.jax.parse import parse

    artefact = _artefacts()[case]
    calls = artefact["custom_call_targets"]
    if (artefact.get("nr_devices") or 1) > 1:
        return "no sample", f"made for {artefact['nr_devices']} devices"
    try:
        module = import_module(parse(artefact["mlir_module_serialized"] or artefact["mlir_module_text"], trusted=True))
        again = neuron_ir.parse(module.text())
        again.weights.update(module.weights)
        result = neuron_ir.compile(again)(*[np.asarray(x) for x in artefact["inputs"]])
    except neuron_ir.IRError as error:
        text = str(error)
        named = any(name in text for name in calls) or not calls
        return "refused" if named else "unclear", error.diagnostics[0].message
    got = [np.asarray(x) for x in (result if isinstance(result, tuple) else (result,))]
    reason = problem(case, [np.asarray(x) for x in artefact["inputs"]], [np.asarray(x) for x in artefact["expected_outputs"]], got)
    return "wrong" if reason else "right", reason


def problem(case: str, inputs: Sequence[Any], expected: Sequence[Any], got: Sequence[Any]) -> str:
    """What is wrong with the results; empty where nothing is."""
    from tests.yardsticks.judging import problem as compare

    reason = compare("", {}, inputs, expected, got)
    if not reason:
        return ""
    for kind, check in _DEFINED_BY.items():
        if kind in case and [x.shape for x in expected] == [x.shape for x in got]:
            return check(inputs, expected, got)
    return reason


def _near(what: str, a: Any, b: Any) -> str:
    import numpy as np

    from tests.yardsticks.judging import tolerance

    bound = 20 * tolerance(b.dtype) * max(1.0, float(np.abs(b).max(initial=0.0)))
    error = float(np.abs(a - b).max(initial=0.0))
    return "" if error <= bound else f"{what} is off by {error:.3g}"


def _dagger(x: Any) -> Any:
    import numpy as np

    return np.conj(np.swapaxes(x, -1, -2))


def _eig(inputs: Sequence[Any], expected: Sequence[Any], got: Sequence[Any]) -> str:
    """The matrix that the eigenvalues and right eigenvectors make is the recorded one's, the left ones satisfy ``u* a = w u*``."""
    import numpy as np

    (w, _, right), (w2, left2, right2) = expected, got
    matrix = right @ np.diag(w) @ np.linalg.inv(right)
    return (
        _near("eigenvalues", np.sort_complex(w2), np.sort_complex(w))
        or _near("a v - v w", matrix @ right2, right2 * w2)
        or _near("u* a - w u*", _dagger(left2) @ matrix, w2[:, None] * _dagger(left2))
    )


def _eigh(inputs: Sequence[Any], expected: Sequence[Any], got: Sequence[Any]) -> str:
    """Eigenvalues as recorded, orthonormal vectors that make the same matrix."""
    import numpy as np

    (v, w), (v2, w2) = expected, got
    return (
        _near("eigenvalues", w2, w)
        or _near("v w v*", (v2 * w2) @ _dagger(v2), (v * w) @ _dagger(v))
        or _near("v* v", _dagger(v2) @ v2, np.eye(len(w)).astype(v.dtype))
    )


def _schur(inputs: Sequence[Any], expected: Sequence[Any], got: Sequence[Any]) -> str:
    """``z t z*`` is the operand, ``z`` is unitary."""
    import numpy as np

    t, z = got
    product = z @ t @ _dagger(z)
    return _near("z t z*", product, inputs[0]) or _near("z* z", _dagger(z) @ z, np.eye(len(t)).astype(z.dtype))


def _svd(inputs: Sequence[Any], expected: Sequence[Any], got: Sequence[Any]) -> str:
    """Singular values as recorded, ``u s v`` is the operand."""
    u, s, v = got
    return _near("singular values", s, expected[1]) or _near("u s v", (u * s[..., None, :]) @ v, inputs[0])


_DEFINED_BY = {"eigh": _eigh, "eig_": _eig, "schur": _schur, "svd": _svd}


if __name__ == "__main__":
    from tests.yardsticks.runner import main

    raise SystemExit(main("tests.yardsticks.old_artefacts"))
