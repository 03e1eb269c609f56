"""Kernels and HBM bytes of a graph after fusion, against what torch.compile's default backend makes of the same graph.

    python benchmarks/fusion.py [--only gpt2,resnet18] [--passes O2 trn2]

Both get one ATen graph, traced once: the forward pass, or a whole training step (loss, gradients, AdamW). Inductor's figures are
its own, those of `torch._inductor.metrics.num_bytes_accessed`: bytes that its scheduled nodes read and write, and the number of
those nodes. Its C++ is generated but not compiled. The lower bound is each input read once, each output written once, and
operands of products streamed once per kernel.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from report import Row, report

__all__ = ["MODELS", "imported", "traced"]

os.environ.setdefault("HF_HUB_OFFLINE", "1")

MODELS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {}


def model(build: Callable[[], tuple[Any, tuple[Any, ...]]]) -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    """Register a builder of a module and its inputs under the function's name."""
    MODELS[build.__name__] = build
    return build


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default="", help="models, separated by commas")
    options.add_argument("--graphs", default="forward,training", help="forward, training or both")
    options.add_argument("--passes", nargs="+", default=["O2", "trn2"], help="pipelines (default: O2 trn2)")
    options.add_argument("--save", metavar="FOLDER", help="write each graph, before and after, as text")
    chosen = options.parse_args()
    rows = [
        row
        for name in (chosen.only.split(",") if chosen.only else MODELS)
        for kind in chosen.graphs.split(",")
        for row in _rows(name, kind, chosen)
    ]
    return report("kernels and bytes after fusion", rows)


def _rows(name: str, kind: str, chosen: argparse.Namespace) -> Iterator[Row]:
    graph, inputs = traced(name, kind)
    peer_kernels, peer_moved = inductor(graph, inputs)
    for passes in chosen.passes:
        kernels, moved, bound = ours(graph, inputs, passes, chosen.save and os.path.join(chosen.save, f"{name}_{kind}_{passes}"))
        what = f"{name}, {kind}, {passes}"
        yield Row(f"{what}: bytes", f"{moved:,}", f"{peer_moved:,}", moved / peer_moved, most=0.9)
        yield Row(f"{what}: bytes against the lower bound", f"{moved:,}", f"{bound:,}", moved / bound, most=1.25)
        yield Row(f"{what}: kernels", str(kernels), str(peer_kernels), kernels / peer_kernels, most=1.0)


def traced(name: str, kind: str) -> tuple[Any, list[Any]]:
    """The ATen graph of one forward pass or training step, all parameters and optimiser state among its inputs."""
    import torch
    from torch.func import functional_call
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._pytree import tree_flatten, tree_unflatten

    torch.manual_seed(0)
    module, args = MODELS[name]()
    module.train(kind == "training")
    names = [n for n, _ in module.named_parameters()]
    weights = [p.detach().clone() for _, p in module.named_parameters()]
    buffers = dict(module.named_buffers())

    def forward(*flat: Any) -> Any:
        values, constants, given = tree_unflatten(list(flat), spec)
        return functional_call(module, dict(zip(names, values, strict=True)) | constants, given)

    def training(*flat: Any) -> Any:
        values, first, second, constants, given = tree_unflatten(list(flat), spec)
        leaves = [v.requires_grad_() for v in values]
        loss = functional_call(module, dict(zip(names, leaves, strict=True)) | constants, given)
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        with torch.no_grad():
            return [loss.detach(), *_adamw(values, gradients, first, second)]

    state = [torch.zeros_like(w) for w in weights]
    optimiser = () if kind == "forward" else (state, [s + 1e-3 for s in state])
    flat, spec = tree_flatten((weights, *optimiser, buffers, args))
    with torch.no_grad() if kind == "forward" else torch.enable_grad():
        graph = make_fx(forward if kind == "forward" else training, tracing_mode="fake")(*flat)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph, flat


def _adamw(weights: Any, gradients: Any, first: Any, second: Any) -> Iterator[Any]:
    """One AdamW step at step 1000 with the usual constants: new weights and moments."""
    for w, g, m, v in zip(weights, gradients, first, second, strict=True):
        if g is None:
            continue
        m = m * 0.9 + g * 0.1
        v = v * 0.999 + g * g * 0.001
        yield w * (1 - 1e-5) - 1e-3 * m / ((v * 1.582).sqrt() + 1e-8)
        yield m
        yield v


def ours(graph: Any, inputs: list[Any], passes: str, folder: str | None) -> tuple[int, int, int]:
    """Kernels, bytes and the lower bound of our graph after ``passes``."""
    from neuron_ir.kernel_cost import summary
    from neuron_ir.passmanager import run_passes

    module = imported(graph, inputs)
    if folder:
        os.makedirs(folder, exist_ok=True)
        _write(os.path.join(folder, "before.nir"), module.text())
    run_passes(module, passes)
    if folder:
        _write(os.path.join(folder, "after.nir"), module.text())
    found = summary(module.main)
    return found["kernels"], found["hbm_bytes"], found["lower_bound_bytes"]


def imported(graph: Any, inputs: list[Any]) -> Any:
    """A traced graph as Neuron IR, all its inputs given by the caller."""
    import torch

    import neuron_ir

    class Program(torch.nn.Module):
        def forward(self, *flat: Any) -> Any:
            return graph(*flat)

    return neuron_ir.from_torch(Program(), tuple(inputs))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class _Counted(Exception):
    """Ends inductor's compilation when all that is wanted is known."""


def inductor(graph: Any, inputs: list[Any]) -> tuple[int, int]:
    """Kernels and bytes of the same graph in torch.compile's default backend."""
    import torch
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.graph import GraphLowering

    counted: list[tuple[int, int]] = []

    def count(self: Any) -> Any:
        self.codegen()
        moved, nodes, _ = self.count_bytes()
        counted.append((sum(n > 0 for _, n in nodes), int(moved)))
        raise _Counted

    logging.getLogger("torch._inductor").setLevel(logging.CRITICAL)
    torch._dynamo.reset()
    with mock.patch.object(GraphLowering, "compile_to_module", count), torch.no_grad():
        try:
            compile_fx(graph, inputs)(*inputs)
        except Exception as error:
            if not counted:
                raise error
    return counted[0]


# --- the models -------------------------------------------------------------------------------------------------------


def _logits_or_loss(build: Callable[[], Any], tokens: Any) -> tuple[Any, tuple[Any, ...]]:
    """A language model that gives logits, or in training the loss of the next token."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = build()

        def forward(self, ids: Any) -> Any:
            logits = self.model(ids).logits
            if not self.training:
                return logits
            return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    return Model(), (tokens,)


def _tokens(vocabulary: int, *shape: int) -> Any:
    import torch

    return torch.randint(0, vocabulary, shape)


@model
def gpt2() -> tuple[Any, tuple[Any, ...]]:
    """Two layers of GPT-2's own width, 128 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=2, vocab_size=512, use_cache=False, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
    return _logits_or_loss(lambda: GPT2LMHeadModel(config), _tokens(512, 1, 128))


@model
def llama() -> tuple[Any, tuple[Any, ...]]:
    """Two layers of width 768 with grouped heads, 128 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=768, intermediate_size=2048, num_hidden_layers=2, num_attention_heads=12, num_key_value_heads=4,
        vocab_size=512, use_cache=False,
    )  # fmt: skip
    return _logits_or_loss(lambda: LlamaForCausalLM(config), _tokens(512, 1, 128))


class _Classifier:
    """A module with a head of 10 classes; in training it gives the loss."""

    def __new__(cls, body: Any, width: int, pick: Callable[[Any], Any]) -> Any:
        import torch

        class Classifier(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body, self.head = body, torch.nn.Linear(width, 10)

            def forward(self, x: Any, labels: Any) -> Any:
                logits = self.head(pick(self.body(x)))
                return torch.nn.functional.cross_entropy(logits, labels) if self.training else logits

        return Classifier()


@model
def bert() -> tuple[Any, tuple[Any, ...]]:
    """Two layers of BERT's own width, 128 tokens."""
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=2, vocab_size=512, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    body = BertModel(config, add_pooling_layer=False)
    return _Classifier(body, 768, lambda y: y.last_hidden_state[:, 0]), (_tokens(512, 1, 128), _tokens(10, 1))


@model
def vit() -> tuple[Any, tuple[Any, ...]]:
    """Two layers of ViT-Base's own width, one image of 224 x 224."""
    import torch
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(num_hidden_layers=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    body = ViTModel(config, add_pooling_layer=False)
    return _Classifier(body, 768, lambda y: y.last_hidden_state[:, 0]), (torch.randn(1, 3, 224, 224), _tokens(10, 1))


@model
def resnet18() -> tuple[Any, tuple[Any, ...]]:
    """ResNet-18 of its own width, two images of 128 x 128."""
    import torch
    from networks import ResNet18

    return _Classifier(ResNet18(), 512, lambda y: y), (torch.randn(2, 3, 128, 128), _tokens(10, 2))


@model
def mamba() -> tuple[Any, tuple[Any, ...]]:
    """One Mamba block of width 256, 16 tokens, its recurrence step by step."""
    import torch
    from networks import MambaBlock

    return _Classifier(MambaBlock(256), 256, lambda y: y[:, -1]), (torch.randn(2, 16, 256), _tokens(10, 2))


@model
def moe() -> tuple[Any, tuple[Any, ...]]:
    """One mixture-of-experts block: 4 experts of width 256 to 1024, top 2, 128 tokens."""
    import torch
    from networks import MoeBlock

    return _Classifier(MoeBlock(256, 1024, 4, 2), 256, lambda y: y[:, -1]), (torch.randn(1, 128, 256), _tokens(10, 1))


if __name__ == "__main__":
    sys.exit(main())
