"""Operations that are written out in ATen by tracing an implementation of theirs: torch's own of some higher-order operations,
with inner graphs in place, and that of operations which a known library writes in terms of others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from neuron_ir.core import Value
from neuron_ir.diagnostics import IRError
from neuron_ir.frontends.torch import _compat
from neuron_ir.frontends.torch.aten.flex import block_sparse_attention, block_sparse_gradients, is_block_sparse
from neuron_ir.frontends.torch.aten.hops import higher_order, inline
from neuron_ir.frontends.torch.decompositions import decomposition_table
from neuron_ir.frontends.torch.export import trace
from neuron_ir.frontends.torch.lowering import Context, kept_operations, lowers

if TYPE_CHECKING:
    import torch


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
    """By blocks where the forward pass is, and what its functions capture has no gradient; as a whole elsewhere."""
    given = c.node.meta.get("val")
    of_captured = given[3] if isinstance(given, tuple | list) else ()

    def gradients(*args: Any, **options: Any) -> Any:
        query, key, block_mask, buffers = args[0], args[1], args[9], [b for part in args[12:] for b in part]
        if is_block_sparse(query, key, block_mask, buffers) and all(x is None for x in of_captured):
            return block_sparse_gradients(*args, **options)
        return _compat.get("flex_attention_backward")(*args, **options)

    return expand(c, gradients)


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


_LEAST_OVERLAP = 1e-11  # torch refuses windows whose squares add up to less anywhere


@lowers("istft.default")
def istft(c: Context, *_args: Any, **_options: Any) -> Value:
    """The signal of a spectrogram: frames times the window, added where they overlap, divided by the window's squares so added.

    torch's own decomposition cannot be traced.
    """
    signal, least = expand(c, _inverse_of_frames)
    enough = c.b.compare(least, c.scalar(_LEAST_OVERLAP, least.dtype), direction="GE")
    c.require(enough, f"the squares of the overlapping windows add up to less than {_LEAST_OVERLAP} somewhere")
    return signal  # type: ignore[no-any-return]


def _inverse_of_frames(
    x: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The signal, and the least sum of the window's squares in it."""
    import torch

    hop, width = hop_length or n_fft // 4, win_length or n_fft
    window = torch.ones(width, dtype=x.real.dtype) if window is None else window
    left = (n_fft - width) // 2
    window = torch.nn.functional.pad(window, (left, n_fft - width - left))
    frames = (x if x.dim() == 3 else x[None]).transpose(1, 2)
    norm = "ortho" if normalized else None
    if return_complex:
        frames = torch.fft.ifft(frames, dim=-1, norm=norm)
    else:
        frames = torch.fft.irfft(frames[..., : n_fft // 2 + 1], n_fft, dim=-1, norm=norm)
    count = frames.shape[1]
    whole = n_fft + hop * (count - 1)
    places = (torch.arange(count)[:, None] * hop + torch.arange(n_fft)).reshape(-1)

    def overlapped(rows: torch.Tensor) -> torch.Tensor:
        flat = rows.reshape(rows.shape[0], -1)
        return flat.new_zeros(rows.shape[0], whole).index_add(1, places, flat)

    start = n_fft // 2 if center else 0
    end = start + length if length is not None else whole - start
    squares = overlapped(window.square().expand(1, count, n_fft))[:, start:end]
    signal = overlapped(frames * window)[:, start:end] / squares
    signal = signal if x.dim() == 3 else signal[0]
    return torch.nn.functional.pad(signal, (0, max(end - whole, 0))), squares.abs().min()


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
