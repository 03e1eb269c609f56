"""Things of the wrong kind at the public entries: a diagnostic that says what is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import neuron_ir


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: neuron_ir.parse(None), "the text of a module is needed, not a NoneType"),  # type: ignore[arg-type]
        (lambda: neuron_ir.from_stablehlo(5), "not as a int"),  # type: ignore[arg-type]
        (lambda: neuron_ir.compile(lambda x: x), "a function is no module of the Neuron IR; import it first"),  # type: ignore[arg-type]
        (lambda: neuron_ir.run_passes(neuron_ir.Module(), "fuse{max-ops=-1}"), "max-ops = -1, but a group has at least 1 op"),
    ],
)
def test_the_message_says_what_is_needed(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(neuron_ir.IRError, match=message):
        call()
