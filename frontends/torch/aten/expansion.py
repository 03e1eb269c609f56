"""Operations that are written out in ATen by tracing an implementation of theirs: torch's own of some higher-order operations,
with inner graphs in place, and that of operations which a known library writes in terms of others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from neuron_ir.diagnostics import IRError
from neuron_ir.frontends.torch import _compat
from neuron_ir.frontends.torch.aten.flex import block_sparse_attention, is_block_sparse
from neuron_ir.frontends.torch.aten.hops import higher_order, inline
from neuron_ir.frontends.torch.decompositions import decomposition_table
from neuron_ir.frontends.torch.export import trace
from neuron_ir.frontends.torch.lowering import Context, kept_operations, lowers


@higher_order("flex_attention")
def flex_attention(c: Context, *_args: Any, **_options: Any) -> Any:
    """Attention with a score and a mask function; rows without a score give 0. Of several blocks those are computed that the mask
    names; a mask of one block, or of sizes that are not known, is computed as a whole, like torch's CPU does it.
    """

    def attention(*args: Any, **options: Any) -> Any:
        query, key, _, _, block_mask, _, _, *buffers = args
        if is_block_sparse(query, key, block_mask, [b for part in buffers for b in part]):
            return block_sparse_attention(*args, **options)
        return _compat.get("flex_attention_forward")(*args, **options)

    return expand(c, attention)


@higher_order("flex_attention_backward")
def flex_attention_backward(c: Context, *_args: Any, **_options: Any) -> Any:
    return expand(c, _compat.get("flex_attention_backward"))


@higher_order("associative_scan")
def associative_scan(c: Context, *_args: Any) -> Any:
    """The tree of combinations that torch makes, so that rounding is the same."""
    scan = _compat.get("generic_associative_scan")
    return expand(c, lambda combine, xs, extra=(): scan(combine, xs, additional_inputs=extra))


@higher_order("out_dtype")
def out_dtype(c: Context, *_args: Any) -> Any:
    """An operation in a wider type than its operands'."""
    return expand(c, _compat.get("out_dtype_fallback"))


def expand(c: Context, function: Callable[..., Any]) -> Any:
    """Emit what ``function`` does with the node's arguments: inner graphs as callables, tensors as torch's fake ones."""
    import torch

    node, owner = c.node, c.reader.owner
    inputs = [
        n for n in node.all_input_nodes if hasattr(n.meta.get("val"), "dtype") or type(n.meta.get("val")).__name__ == "SymInt"
    ]
    values = [n.meta["val"] for n in inputs]
    mode = next((v.fake_mode for v in values if isinstance(v, _compat.get("FakeTensor"))), None)
    held = {n: attrgetter(n.target)(owner) for n in node.all_input_nodes if n not in inputs and n.op == "get_attr"}

    def call(*given: Any) -> Any:
        env = {**held, **dict(zip(inputs, given, strict=True))}
        args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), env.__getitem__)
        return function(*args, **kwargs)

    with mode or contextlib.nullcontext():
        graph = trace(call, values, decomposition_table(kept_operations()))
    for inner in graph.graph.nodes:
        inner.meta["stack_trace"] = node.meta.get("stack_trace")  # the user's line, not that of the implementation
    return inline(c, graph, [c.reader.values[n] for n in inputs])


@lowers("quantized_decomposed.*", "torchao.*")
def library(c: Context, *_args: Any, **_options: Any) -> Any:
    """What the library's own implementation does, where that looks at no data."""
    op = c.node.target
    kernel = _compat.composite_kernel(op)
    if kernel is None:
        raise c.unsupported("the library has no implementation in terms of other operations")
    try:
        return expand(c, kernel)
    except IRError:
        raise
    except Exception as error:  # whatever the implementation raises where it is traced
        raise c.unsupported(f"its implementation cannot be traced ({type(error).__name__}: {error})") from error
