"""Whether score matrices stay on chip: bytes of values as large as tokens x tokens that go from one kernel to another.

    python benchmarks/attention.py [--heads 4,8,16] [--tokens 128,512,2048,4096] [--passes O2 trn2]

Self-attention of width 96 per head with its projections, as torch traces it: written out (product, scale, causal mask, softmax,
product) and as `scaled_dot_product_attention`; the forward pass, and with its gradients. Gradients of what is written out read the
probabilities of the forward pass, which nothing computes twice, and so have no bound. The peer is the same program without passes.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fusion import imported
from report import Row, report

WIDTH = 96  # heads times this is none of the numbers of tokens


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--heads", default="4,8,16", help="numbers separated by commas")
    options.add_argument("--tokens", default="128,512,2048,4096", help="numbers separated by commas")
    options.add_argument("--passes", nargs="+", default=["O2", "trn2"], help="pipelines (default: O2 trn2)")
    chosen = options.parse_args()
    rows = [
        _row(form, kind, int(heads), int(tokens), passes)
        for form in ("written out", "sdpa")
        for kind in ("forward", "gradients")
        for heads in chosen.heads.split(",")
        for tokens in chosen.tokens.split(",")
        for passes in chosen.passes
    ]
    return report("MB as large as tokens x tokens between kernels", rows)


def _row(form: str, kind: str, heads: int, tokens: int, passes: str) -> Row:
    import neuron_ir

    module = imported(*traced(form, kind, heads, tokens))
    before = crossing(module, tokens)
    neuron_ir.run_passes(module, passes)
    after = crossing(module, tokens)
    what = f"{form}, {kind}, {heads} heads, {tokens} tokens, {passes}"
    most = None if (form, kind) == ("written out", "gradients") else 0.0
    return Row(what, f"{after / 1e6:.1f}", f"without passes: {before / 1e6:.1f}", after / max(before, 1), most=most)


def crossing(module: Any, tokens: int) -> int:
    """Bytes of what kernels give to others and is as large as a score matrix."""
    from neuron_ir.traffic import FREE

    values = [r for op in module.main.body.ops if op.name not in FREE for r in op.results]
    return sum(v.type.nbytes for v in values if v.type.size >= tokens * tokens and list(v.shape).count(tokens) >= 2)


def traced(form: str, kind: str, heads: int, tokens: int) -> tuple[Any, list[Any]]:
    """The ATen graph of causal self-attention or of its gradients, weights among its inputs; nothing is computed."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    size = heads * WIDTH

    def forward(x: Any, *weights: Any) -> Any:
        q, k, v = ((x @ w).view(1, tokens, heads, WIDTH).transpose(1, 2) for w in weights[:3])
        if form == "sdpa":
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
            y = torch.softmax((q @ k.transpose(-1, -2) * WIDTH**-0.5).masked_fill(later, -torch.inf), -1) @ v
        return x + y.transpose(1, 2).reshape(1, tokens, size) @ weights[3]

    def gradients(*inputs: Any) -> Any:
        leaves = [x.requires_grad_() for x in inputs]
        return torch.autograd.grad(forward(*leaves).square().sum(), leaves)

    inputs = [torch.zeros(1, tokens, size), *(torch.zeros(size, size) for _ in range(4))]
    with torch.set_grad_enabled(kind == "gradients"):
        return make_fx(gradients if kind == "gradients" else forward, tracing_mode="fake")(*inputs), inputs


if __name__ == "__main__":
    sys.exit(main())
