"""Random draws that a backward pass makes again, as checkpoints need it: the forward pass keeps the state from before the draw.

torch keeps it as the bytes of its own generator's state; ours takes the first ones of those.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from neuron_ir.core import Value
from neuron_ir.dtypes import U8, U64
from neuron_ir.frontends.torch import _compat
from neuron_ir.frontends.torch.aten.hops import higher_order
from neuron_ir.frontends.torch.aten.views import section
from neuron_ir.frontends.torch.lowering import Context, RandomState, rules
from neuron_ir.types import TensorType

_BYTES = 16


@higher_order("run_and_save_rng_state")
def run_and_save_rng_state(c: Context, op: Any, *args: Any, **options: Any) -> tuple[Value, Any]:
    import torch

    words = c.b.bitcast_convert(c.random_state(), out=TensorType((2, _BYTES // 2), U8))
    rest = c.scalar(0, U8, (torch.get_rng_state().numel() - _BYTES,))
    state = c.b.concatenate(c.reshape(words, (_BYTES,)), rest, dimension=0)
    return state, _drawn(c, op, c.node.args[1:], args, options)


@higher_order("run_with_rng_state")
def run_with_rng_state(c: Context, state: Value, op: Any, *args: Any, **options: Any) -> Any:
    words = c.reshape(section(c, state, 0, 0, _BYTES), (2, _BYTES // 2))
    present, c.random = c.random, RandomState(lambda: state)
    c.random.present = c.b.bitcast_convert(words, out=TensorType((2,), U64))
    try:
        return _drawn(c, op, c.node.args[2:], args, options)
    finally:
        c.random = present


def _drawn(c: Context, op: Any, nodes: Any, args: Any, options: Any) -> Any:
    """The results of ``op`` by its own rule, which is shown a node of that operation; torch gives the one at hand no types."""
    import torch

    rule = rules().get(str(op))
    if rule is None:
        raise c.unsupported(f"{op} has no rule")
    node = c.node
    given, named = torch.fx.node.map_arg((nodes, dict(node.kwargs)), lambda n: n.meta["val"])
    mode = next((v.fake_mode for v in _compat.get("tree_leaves")(given) if hasattr(v, "fake_mode")), None)
    with mode or _compat.get("FakeTensorMode")():
        val = op(*given, **named)
    c.node = SimpleNamespace(
        target=op, args=nodes, kwargs=node.kwargs, meta={**node.meta, "val": val}, name=node.name, users=node.users
    )
    try:
        return rule(c, *args, **options)
    finally:
        c.node = node
