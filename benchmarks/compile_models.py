"""The models of ``compile.py``: each with its loss and its inputs, as used, or small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["MODELS", "built"]

Built = tuple[Any, Callable[..., Any], list[Any]]


def built(name: str, small: bool) -> Built:
    """A fresh model, always with the same weights, whose output is ``module(*inputs)[0]``; its loss; its inputs."""
    import torch

    torch.manual_seed(0)
    return MODELS[name](small)


def _ids(vocabulary: int, tokens: int) -> Any:
    import torch

    return torch.randint(0, vocabulary, (1, tokens))


def _next_token(module: Any, ids: Any) -> Any:
    from torch.nn import functional

    logits = module(ids)[0]
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def _square(module: Any, *inputs: Any) -> Any:
    return module(*inputs)[0].square().mean()


def gpt2(small: bool) -> Built:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 1, "n_embd": 64, "n_head": 4, "vocab_size": 512} if small else {}
    drop = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    config = GPT2Config(**sizes, **drop, use_cache=False)
    return GPT2LMHeadModel(config), _next_token, [_ids(config.vocab_size, 16 if small else 128)]


def bert(small: bool) -> Built:
    from transformers import BertConfig, BertModel

    sizes = {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128} if small else {}
    config = BertConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return BertModel(config, add_pooling_layer=False), _square, [_ids(config.vocab_size, 16 if small else 128)]


def llama(small: bool) -> Built:
    from transformers import LlamaConfig, LlamaForCausalLM

    width, layers, vocabulary = (64, 1, 512) if small else (768, 12, 32000)
    config = LlamaConfig(
        hidden_size=width, num_hidden_layers=layers, vocab_size=vocabulary, num_attention_heads=width // 16 if small else 12,
        num_key_value_heads=2 if small else 4, intermediate_size=8 * width // 3, use_cache=False, tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config), _next_token, [_ids(vocabulary, 16 if small else 128)]


def vit(small: bool) -> Built:
    import torch
    from transformers import ViTConfig, ViTModel

    sizes = {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128} if small else {}
    side = 64 if small else 224
    config = ViTConfig(**sizes, image_size=side)
    return ViTModel(config, add_pooling_layer=False), _square, [torch.randn(1, 3, side, side)]


class _Single:
    """Gives networks with one output the form of the others."""

    def __new__(cls, module: Any) -> Any:
        from torch import nn

        class Single(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = module

            def forward(self, x: Any) -> Any:
                return (self.inner(x),)

        return Single()


def resnet18(small: bool) -> Built:
    import torch
    from networks import ResNet18

    return _Single(ResNet18(8 if small else 64)), _square, [torch.randn(2, 3, *(2 * [64 if small else 224]))]


def mamba(small: bool) -> Built:
    import torch
    from networks import MambaBlock
    from torch import nn

    width, blocks, tokens = (32, 1, 8) if small else (512, 4, 32)
    return _Single(nn.Sequential(*(MambaBlock(width) for _ in range(blocks)))), _square, [torch.randn(1, tokens, width)]


def lstm(small: bool) -> Built:
    import torch
    from torch import nn

    width, tokens = (32, 8) if small else (512, 64)
    return nn.LSTM(width, width, 2, batch_first=True), _square, [torch.randn(4, tokens, width)]


def moe(small: bool) -> Built:
    import torch
    from networks import MoeBlock

    width, tokens = (32, 16) if small else (512, 128)
    return _Single(MoeBlock(width, 2 * width, 8, 2)), _square, [torch.randn(1, tokens, width)]


MODELS: dict[str, Callable[[bool], Built]] = {f.__name__: f for f in (gpt2, bert, llama, vit, resnet18, mamba, lstm, moe)}
