"""Key and value caches of transformers: a static cache as buffers of the program, a dynamic cache as its input and output."""

from __future__ import annotations

import os
from typing import Any

import torch

import neuron_ir

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported


def _llama(layers: int = 2) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256,
        initializer_range=0.3, eos_token_id=None, bos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def _error(got: torch.Tensor, want: torch.Tensor) -> float:
    assert got.shape == want.shape and got.dtype == want.dtype
    return float((got - want).abs().max() / want.abs().max())


# seen in aws-neuron/transformers-neuronx#30 and aws-neuron/aws-neuron-samples#82: right up to 128 tokens, repeats after
def test_greedy_decoding_of_128_tokens_with_a_static_cache_gives_torchs_tokens() -> None:
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    model, bucket, new = _llama(), 16, 128
    model.generation_config.cache_implementation = "static"
    step = TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=bucket + 1 + new)
    one = torch.tensor([[5]])
    with torch.no_grad():
        program = torch.export.export(step, (), {"input_ids": one, "cache_position": torch.tensor([0])}, strict=False)
    module = neuron_ir.from_torch(program)
    read = neuron_ir.parse(module.text())
    read.weights = module.weights
    run = neuron_ir.compile(read)
    for length in (1, bucket, bucket + 1):  # the last one fills the cache to its end
        got = torch.randint(2, 128, (length,)).tolist()
        for at in range(length + new - 1):
            logits = run(input_ids=torch.tensor([[got[at]]]), cache_position=torch.tensor([at]))
            if at + 1 == len(got):
                got.append(int(logits[0, -1].argmax()))
        # without a cache: what follows each beginning of the sequence is the next token of it
        follows = model(input_ids=torch.tensor([got[:-1]]), use_cache=False).logits[0].argmax(-1).tolist()
        assert got[length:] == follows[length - 1 :] and len(set(got[length:])) > 8
    assert int(run.state["cumulative_length_1"]) == length + new - 1


def test_a_dynamic_cache_goes_in_and_out_and_grows() -> None:
    from transformers import DynamicCache
    from transformers.integrations.executorch import register_dynamic_cache_export_support

    register_dynamic_cache_export_support()
    model = _llama(1)

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: torch.Tensor, cache: Any) -> Any:
            result = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
            return result.logits, result.past_key_values

    def filled(length: int) -> Any:
        cache = DynamicCache(config=model.config)
        model(input_ids=torch.arange(2, 2 + length)[None], past_key_values=cache, use_cache=True)
        return cache

    example, sizes = filled(4), torch.export.ShapesCollection()
    for tensor in torch.utils._pytree.tree_leaves(example):
        sizes[tensor] = {2: torch.export.Dim.AUTO}
    with torch.no_grad():
        program = torch.export.export(Step(), (torch.tensor([[7]]), example), dynamic_shapes=sizes, strict=False)
    run = neuron_ir.compile(neuron_ir.from_torch(program))
    for start, tokens in ((3, (11, 12)), (9, (13,))):
        mine, theirs = filled(start), filled(start)
        for token in tokens:
            ids = torch.tensor([[token]])
            leaves, tree = torch.utils._pytree.tree_flatten(mine)
            logits, *grown = torch.utils._pytree.tree_leaves(run(ids, *leaves))
            mine = torch.utils._pytree.tree_unflatten(grown, tree)
            want = model(input_ids=ids, past_key_values=theirs, use_cache=True)
            assert _error(logits, want.logits) < 1e-5
            for layer, other in zip(mine.layers, want.past_key_values.layers, strict=True):
                assert _error(layer.keys, other.keys) < 1e-5 and _error(layer.values, other.values) < 1e-5
        assert mine.get_seq_length() == start + len(tokens)
