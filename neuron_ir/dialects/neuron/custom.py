"""Calls by name. The table of targets says what each name means; a name that is not in it is refused when the program runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from neuron_ir.diagnostics import fail, nearest
from neuron_ir.opdef import ANY_OR_TOKEN, INTS, Op, attr, op, variadic

from .manual import constrained

__all__ = ["ON_HOST", "TARGETS", "custom_target", "read_config"]

Meaning = Callable[..., Any]

TARGETS: dict[str, Meaning] = {}
ON_HOST: set[str] = set()  # targets whose meaning is to call a framework or the user's own function on the host


def custom_target(*names: str, on_host: bool = False) -> Callable[[Meaning], Meaning]:
    """Give the targets ``names`` a meaning: ``f(j, operands, config, out)`` that returns a tuple of arrays.

    ``config`` is the backend configuration as a dict, ``out`` the tuple of result types. ``on_host``: it runs beside the program.
    """

    def register(function: Meaning) -> Meaning:
        TARGETS.update(dict.fromkeys(names, function))
        (ON_HOST.update if on_host else ON_HOST.difference_update)(names)
        return function

    return register


_ENTRY = re.compile(r'\s*"?([\w.]+)"?\s*=\s*(?:"((?:[^"\\]|\\.)*)"|(true|false)|(-?\d+)(?:\s*:\s*\w+)?)\s*(?:,|$)')


def read_config(text: str) -> dict[str, Any]:
    """A backend configuration as a dict: JSON, or MLIR's ``{left = false, n = 3 : i64}``; any other text under the key ``""``."""
    try:
        value = json.loads(text) if text.strip() else {}
        return value if isinstance(value, dict) else {"": value}
    except ValueError:
        pass
    inner = text.strip()
    if not (inner.startswith("{") and inner.endswith("}")):
        return {"": text}
    entries, at, inner = {}, 0, inner[1:-1].strip()
    while at < len(inner):
        match = _ENTRY.match(inner, at)
        if match is None:
            return {"": text}
        name, string, truth, number = match.groups()
        entries[name] = string if string is not None else truth == "true" if truth else int(number)
        at = match.end()
    return entries


@op("neuron.custom_call", traits=["effect"])
class CustomCall(Op):
    """Calls ``call_target_name``; the result types are a free choice.

    ``backend_config`` is handed to the target. A target without a meaning is an error with its name and line when the program
    runs; in StableHLO text its call stays a custom call, with ``has_side_effect``, ``api_version`` and
    ``output_operand_aliases``, which lists pairs of a result's and an operand's number. The call itself stays in any case.
    """

    inputs = variadic(ANY_OR_TOKEN)
    call_target_name = attr(str)
    backend_config = attr(str, "")
    has_side_effect = attr(bool, False)
    api_version = attr(int, 1)
    output_operand_aliases = attr(INTS, ())

    def check(self):
        if not self.call_target_name:
            raise self.error("attr", "call_target_name is empty")
        pairs = self.output_operand_aliases
        if len(pairs) % 2 or any(
            not 0 <= v < n for v, n in zip(pairs, [len(self.results), len(self.operands)] * (len(pairs) // 2), strict=False)
        ):
            raise self.error("attr", f"output_operand_aliases {list(pairs)} must be pairs of a result's and an operand's number")

    def jax(j, *inputs, call_target_name, backend_config, has_side_effect, api_version, output_operand_aliases, out):
        target = TARGETS.get(call_target_name)
        if target is None:
            message = f"neuron.custom_call: the target {call_target_name!r} has no meaning here{nearest(call_target_name, TARGETS)}"
            raise fail("unsupported", message)
        return tuple(target(j, inputs, read_config(backend_config), out if isinstance(out, tuple) else (out,)))


# --- targets ----------------------------------------------------------------------------------------------------------


@custom_target("Sharding")
def _sharding(j, operands, config, out):
    """A value, divided among the devices as the configuration says; on one device, the value itself."""
    if j.devices is None:
        return _unchanged(j, operands, config, out)
    return [constrained(j, operands[0], str(config.get("", "")))]


@custom_target(
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "annotate_device_placement",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
)
def _unchanged(j, operands, config, out):
    """What says where a value lives: on one device, the value itself."""
    if [x.shape for x in operands] != [t.shape for t in out]:
        raise fail("unsupported", "neuron.custom_call: a sharding over several devices, but the reference accelerator runs one")
    return operands


@custom_target("shape_assertion")
def _shape_assertion(j, operands, config, out):
    """JAX's check of symbolic sizes: the first operand must be true; the others fill the message."""
    message = str(config.get("error_message", config.get("", "a condition on the sizes does not hold")))
    sizes = ["another number" if isinstance(x, j.jax.core.Tracer) else str(int(x)) for x in operands[1:]]
    j.require(operands[0], re.sub(r"\{(\d+)\}", lambda m: sizes[int(m[1])], message))
    return ()


@custom_target("neuron.eig")
def _eig(j, operands, config, out):
    """Eigenvalues, then left and right eigenvectors as far as asked for."""
    left, right = config.get("left", False), config.get("right", True)
    return j.lax.linalg.eig(operands[0], compute_left_eigenvectors=left, compute_right_eigenvectors=right)


@custom_target("neuron.schur")
def _schur(j, operands, config, out):
    """Schur's form, then the vectors where asked for."""
    return j.lax.linalg.schur(operands[0], compute_schur_vectors=config.get("vectors", True))[: len(out)]
