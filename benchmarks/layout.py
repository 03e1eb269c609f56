"""Bytes that change the order of dims, as imported and after the pass ``layout``; ResNet-18's time without and with it.

    python benchmarks/layout.py [--runs 10] [--no-time]

Bytes read and written by transposes, by relayouts, and inside of convolutions that are not given channels last. The peer is the
same program without the pass, through the same other passes. Times are taken in turn, the median counts.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from report import Row, interleaved, report

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported

SIMPLIFY = "inline,func(canonicalize,fold_constants,canonicalize,cse,dce)"
LAYOUT = f"{SIMPLIFY},func(layout{{partition=false}},cse,dce)"
MOST_BYTES = 1 / 3
LEAST_SPEED = 1.2


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=10)
    options.add_argument("--no-time", action="store_true", help="count bytes only")
    chosen = options.parse_args()
    rows = []
    for name, build in MODELS.items():
        program = exported(*build())
        before, after = (moved(lowered(program, passes)) for passes in (SIMPLIFY, LAYOUT))
        rows.append(
            Row(f"{name}, MB moved", f"{after / 1e6:.2f}", f"imported: {before / 1e6:.2f}", after / before, most=MOST_BYTES)
        )
    if not chosen.no_time:
        rows += timed(chosen.runs)
    return report("Layout: bytes that change orders, and time", rows)


def exported(model: Any, args: tuple[Any, ...]) -> Any:
    """The exported program of a model in evaluation."""
    import torch

    with torch.no_grad():
        return torch.export.export(model.eval(), args, strict=False)


def lowered(program: Any, passes: str) -> Any:
    """The program as Neuron IR after some passes."""
    import neuron_ir

    module = neuron_ir.from_torch(program)
    neuron_ir.run_passes(module, passes)
    return module


def moved(module: Any) -> int:
    """Bytes that change orders in one run."""
    from neuron_ir.traffic import Sizes, relayout_traffic

    return relayout_traffic(module.main.body, Sizes(module.main))


def timed(runs: int) -> list[Row]:
    """ResNet-18's forward pass, one image of 224 x 224, without and with the pass."""
    import torch

    import neuron_ir

    torch.manual_seed(0)
    model, args = resnet18()
    program = exported(model, args)
    without, with_ = (neuron_ir.compile(lowered(program, passes)) for passes in (SIMPLIFY, LAYOUT))
    times = interleaved({"with": lambda: with_(*args), "without": lambda: without(*args)}, runs)
    (a, b), (c, d) = ((times[k].wall, times[k].processor) for k in ("without", "with"))
    return [
        Row("ResNet-18 forward, speed", f"{c * 1e3:.1f} ms", f"without: {a * 1e3:.1f} ms", a / c, least=LEAST_SPEED),
        Row("the same, processor time", f"{d * 1e3:.1f} ms", f"without: {b * 1e3:.1f} ms", b / d),
    ]


def resnet18() -> tuple[Any, tuple[Any, ...]]:
    """ResNet-18 with a head of 1,000 classes' worth of features, one image of 224 x 224."""
    import torch
    from networks import ResNet18

    return ResNet18(), (torch.randn(1, 3, 224, 224),)


def convnext() -> tuple[Any, tuple[Any, ...]]:
    """transformers' ConvNeXt with the widths of its smallest model and two blocks per stage."""
    import torch
    from transformers import ConvNextConfig, ConvNextModel

    return ConvNextModel(ConvNextConfig(depths=[2, 2, 2, 2])), (torch.randn(1, 3, 224, 224),)


def vit() -> tuple[Any, tuple[Any, ...]]:
    """transformers' ViT-B/16, two layers."""
    import torch
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig(num_hidden_layers=2)), (torch.randn(1, 3, 224, 224),)


def llama() -> tuple[Any, tuple[Any, ...]]:
    """transformers' Llama, two layers of width 512, 1 x 128 tokens."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=512, hidden_size=512, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=4,
        use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config), (torch.randint(0, 512, (1, 128)),)


MODELS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "ResNet-18": resnet18,
    "ConvNeXt": convnext,
    "ViT, 2 layers": vit,
    "Llama, 2 layers": llama,
}

if __name__ == "__main__":
    sys.exit(main())
