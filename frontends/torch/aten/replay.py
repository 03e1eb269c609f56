"""Random draws that a backward pass makes again, as checkpoints need it: the forward pass keeps the state from before the draw.

torch keeps it as the bytes of its own generator's state; ours takes the first ones of those.
"""

from __future__ import annotations

from typing import Any

from neuron_ir.core import Value
from neuron_ir.dtypes import U8, U64
from neuron_ir.frontends.torch.aten.hops import applied, higher_order
from neuron_ir.frontends.torch.aten.views import section
from neuron_ir.frontends.torch.lowering import Context, RandomState
from neuron_ir.types import TensorType

_BYTES = 16


@higher_order("run_and_save_rng_state")
def run_and_save_rng_state(c: Context, op: Any, *args: Any, **options: Any) -> tuple[Value, Any]:
    import torch

    words = c.b.bitcast_convert(c.random_state(), out=TensorType((2, _BYTES // 2), U8))
    rest = c.scalar(0, U8, (torch.get_rng_state().numel() - _BYTES,))
    state = c.b.concatenate(c.reshape(words, (_BYTES,)), rest, dimension=0)
    return state, applied(c, op, c.node.args[1:], args, options)


@higher_order("run_with_rng_state")
def run_with_rng_state(c: Context, state: Value, op: Any, *args: Any, **options: Any) -> Any:
    words = c.reshape(section(c, state, 0, 0, _BYTES), (2, _BYTES // 2))
    present, c.random = c.random, RandomState(lambda: state)
    c.random.present = c.b.bitcast_convert(words, out=TensorType((2,), U64))
    try:
        return applied(c, op, c.node.args[2:], args, options)
    finally:
        c.random = present
