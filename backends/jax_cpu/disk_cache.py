"""Executables on disk: under which key one is kept, what of it, and how it comes back in another process.

XLA's machine code is kept as JAX writes it, so that neither tracing nor compiling is left to do. A program that calls back into
Python is not kept.
"""

from __future__ import annotations

import logging
import pickle
import platform
from collections.abc import Mapping
from functools import cache
from typing import Any

from neuron_ir.backends.jax_cpu._compat import deserialize, serialize
from neuron_ir.backends.jax_cpu.checks import Checks
from neuron_ir.cache import opened, processor, source_hash
from neuron_ir.core import Module, Op
from neuron_ir.dialects.neuron.custom import TARGETS

__all__ = ["is_own", "load", "store", "versions"]

log = logging.getLogger(__name__)


@cache
def versions() -> str:
    """The versions of everything that takes part in compiling, one per line."""
    from importlib.metadata import version

    import neuron_ir

    packages = [f"{name} {version(name)}" for name in ("jax", "jaxlib", "numpy")]
    own = f"neuron-ir {neuron_ir.__version__}, files {source_hash()[:16]}"
    return "\n".join([own, *packages, f"python {platform.python_version()}"])


def load(module: Module, parts: Mapping[str, str]) -> tuple[Any, Checks] | None:
    """The compiled function and the conditions of a program that any process compiled before; ``None`` where there is none."""
    store = opened()
    if store is None or not source_hash():
        return None
    for places in (False, True):  # most programs state no condition, and do not depend on where the user's lines are
        key = _key(parts, places)
        data = store.load(key)
        if data is None:
            continue
        try:
            program, checks = pickle.loads(data)
            found = deserialize(program), checks
        except Exception as error:  # the file is whole, but this JAX cannot load it
            log.warning("%s cannot be loaded (%s: %s); it is built anew", module.name, type(error).__name__, error)
            store.discard(key)
            continue
        log.info("%s: taken from the cache", module.name)
        return found
    log.info("%s: not in the cache", module.name)
    return None


def store(module: Module, parts: Mapping[str, str], compiled: Any, checks: Checks) -> None:
    """Keep a program for other processes, where it can be."""
    target = opened()
    if target is None or checks.calls_back or not source_hash():
        return
    program = serialize(compiled)
    if program is not None:
        target.store(_key(parts, bool(checks.diagnostics)), pickle.dumps((program, checks)))


def _key(parts: Mapping[str, str], places: bool) -> dict[str, str]:
    """The parts that decide the program on disk; those of the user's lines only where its errors name them."""
    kept = {name: text for name, text in parts.items() if places or name != "places"}
    return kept | {"processor": processor()}


def is_own(module: Module) -> bool:
    """Whether this project defines what all ops and custom calls of a module mean. Of other definitions nothing tells when they
    change, so that equal text does not make equal programs.
    """
    return all(f.__module__.startswith("neuron_ir.dialects.") for op in module.walk() for f in _definitions(op))


def _definitions(op: Op) -> list[Any]:
    found = [op.spec.jax, op.spec.expand]
    if op.name == "neuron.custom_call":
        found.append(TARGETS.get(op.get("call_target_name")))
    return [f for f in found if f is not None]
