"""Small models of every family with seeded random weights: each builder gives a module in evaluation mode and example inputs."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported, which the builders do

Built = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]

BUILDERS: dict[str, Callable[[], Built]] = {}


def model(build: Callable[[], Built]) -> Callable[[], Built]:
    """Register a builder under its function's name."""

    def seeded() -> Built:
        torch.manual_seed(0)
        module, args, kwargs = build()
        return module.eval(), args, kwargs

    BUILDERS[build.__name__] = seeded
    return seeded


def tensors(result: Any) -> list[torch.Tensor]:
    """The tensors of a model's result, in order."""
    from torch.utils._pytree import tree_leaves

    return [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """The largest difference as a part of the largest value."""
    assert got.shape == want.shape and got.dtype == want.dtype
    return float((got.double() - want.double()).abs().max() / want.double().abs().max().clamp(min=1e-30))


def _ids(vocabulary: int, shape: tuple[int, ...] = (2, 16)) -> torch.Tensor:
    return torch.randint(0, vocabulary, shape)


def _language_model(kind: str, **fields: Any) -> nn.Module:
    import transformers

    config = getattr(transformers, f"{kind}Config")(vocab_size=128, use_cache=False, **fields)
    return getattr(transformers, f"{kind}{'LMHeadModel' if kind == 'GPT2' else 'ForCausalLM'}")(config)


_DECODER = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


@model
def gpt2() -> Built:
    return _language_model("GPT2", n_positions=64, n_embd=32, n_layer=1, n_head=4), (_ids(128),), {}


@model
def llama() -> Built:
    return _language_model("Llama", **_DECODER | {"num_hidden_layers": 2}), (_ids(128),), {}


@model
def qwen2() -> Built:
    return _language_model("Qwen2", **_DECODER), (_ids(128),), {}


@model
def mixtral() -> Built:
    return _language_model("Mixtral", num_local_experts=4, num_experts_per_tok=2, **_DECODER), (_ids(128),), {}


@model
def mamba() -> Built:
    return _language_model("Mamba", hidden_size=32, state_size=8, num_hidden_layers=1), (_ids(128, (2, 8)),), {}


@model
def bert() -> Built:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=128, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, max_position_embeddings=64
    )
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[1, 9:] = 0
    return BertModel(config), (), {"input_ids": _ids(128), "attention_mask": mask}


@model
def t5() -> Built:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=128, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, use_cache=False)
    return T5ForConditionalGeneration(config), (), {"input_ids": _ids(128), "decoder_input_ids": _ids(128, (2, 8))}


@model
def vit() -> Built:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8, num_labels=10
    )
    return ViTForImageClassification(config), (torch.randn(2, 3, 32, 32),), {}


@model
def clip() -> Built:
    from transformers import CLIPConfig, CLIPModel

    text = {
        "vocab_size": 128,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "max_position_embeddings": 32,
        "eos_token_id": 127,
    }
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "image_size": 32,
        "patch_size": 8,
    }
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    return CLIPModel(config), (), {"input_ids": _ids(128, (2, 12)), "pixel_values": torch.randn(2, 3, 32, 32)}


@model
def whisper() -> Built:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=128, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=16, max_source_positions=32, max_target_positions=32, use_cache=False,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
    )  # fmt: skip
    features = torch.randn(2, 16, 64)
    return WhisperForConditionalGeneration(config), (), {"input_features": features, "decoder_input_ids": _ids(128, (2, 8))}


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride != 1 or inputs != outputs:
            self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.down is None else self.down(x)))


class ResNet18(nn.Module):
    """He et al. 2015, with ``width`` channels in the first stage (64 in the paper)."""

    def __init__(self, classes: int = 10, width: int = 64):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.stages = nn.Sequential(
            *[
                nn.Sequential(ResidualBlock(a, b, 1 if i == 0 else 2), ResidualBlock(b, b, 1))
                for i, (a, b) in enumerate(pairwise(widths))
            ]
        )
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.head = nn.Linear(8 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.pool(self.stages(self.stem(x))), 1))


@model
def resnet18() -> Built:
    module = ResNet18(width=8)
    for m in module.modules():
        if isinstance(m, nn.BatchNorm2d):  # statistics that are not the initial zeros and ones
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 1.5)
    return module, (torch.randn(2, 3, 64, 64),), {}


@model
def lstm() -> Built:
    return nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True), (torch.randn(3, 6, 8),), {}


@model
def gru() -> Built:
    return nn.GRU(8, 16, 2), (torch.randn(6, 3, 8), torch.randn(2, 3, 16)), {}
