"""Import of Llama-shaped programs of many nodes: 32 layers as exported and as torch decomposes them, and about 10,000 nodes.

    python benchmarks/import_llama.py [--layers N]

Hidden size 64, so that the time is that of the nodes and not of the weights. What torch itself takes to export and to decompose is
reported apart; processor time, since both sides run on one thread. ``--layers`` measures one program of that many layers alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from report import Row, report

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported

BOUND = 5.0  # seconds
LAYERS, MANY_LAYERS = 32, 124  # the second makes about 10,000 nodes


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--layers", type=int, metavar="N")
    chosen = options.parse_args()
    rows = []
    for layers in [chosen.layers] if chosen.layers else [LAYERS, MANY_LAYERS]:
        program, exporting = timed(lambda n=layers: exported(n))
        rows.append(_row(f"{layers} layers as exported, {_nodes(program)} nodes", program, f"torch's export {exporting:.1f} s"))
        if layers <= LAYERS:
            core, decomposing = timed(program.run_decompositions)
            rows.append(_row(f"decomposed by torch, {_nodes(core)} nodes", core, f"torch's decompositions {decomposing:.1f} s"))
    return report("Llama of hidden size 64 from torch.export, processor time of the import against its bound", rows)


def exported(layers: int) -> Any:
    """The exported program of transformers' Llama, 1 x 16 tokens."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    class Logits(torch.nn.Module):
        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.model(ids).logits

    config = LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, use_cache=False, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    model = Logits(LlamaForCausalLM(config)).eval()
    return torch.export.export(model, (torch.randint(0, 128, (1, 16)),), strict=False)


def timed(work: Any) -> tuple[Any, float]:
    """The result and the processor time in seconds."""
    start = time.process_time()
    return work(), time.process_time() - start


def _row(what: str, program: Any, peer: str) -> Row:
    import neuron_ir

    neuron_ir.from_torch(_small())  # loads what every import needs
    module, taken = timed(lambda: neuron_ir.from_torch(program))
    operations = sum(1 for _ in module.main.walk())
    return Row(f"{what} -> {operations} operations", f"{taken:.2f} s", peer, taken / BOUND, most=1.0)


def _small() -> Any:
    import torch

    return torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),), strict=False)


def _nodes(program: Any) -> int:
    return len(program.graph.nodes)


if __name__ == "__main__":
    sys.exit(main())
