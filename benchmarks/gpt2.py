"""The GPT-2 of the benchmarks: transformers' model with random weights, its exported program, and the same model by hand in JAX."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

__all__ = ["exported", "hand_written_jax", "model_and_ids"]

TOKENS = 128


def model_and_ids() -> tuple[Any, Any]:
    """A module from token ids to logits (12 layers, 124 million parameters, f32), and ids of batch 1 x 128."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = GPT2LMHeadModel(GPT2Config(use_cache=False))

        def forward(self, ids: Any) -> Any:
            return self.model(ids).logits

    torch.manual_seed(0)
    return Logits().eval(), torch.randint(0, 50257, (1, TOKENS))


def exported(model: Any, ids: Any) -> Any:
    """The program that ``torch.export`` makes of it."""
    import torch

    return torch.export.export(model, (ids,))


def hand_written_jax(model: Any) -> Callable[[Any], Any]:
    """The same computation as one would write it in JAX: a jitted function of the weights and the ids."""
    import jax
    import jax.numpy as jnp

    weights = {name.removeprefix("model.transformer."): p.detach().numpy() for name, p in model.named_parameters()}
    weights = {name: jnp.asarray(w) for name, w in weights.items()}
    jitted = jax.jit(_forward)
    return lambda ids: jitted(weights, ids)


def _forward(w: Any, ids: Any) -> Any:
    import jax.numpy as jnp

    x = w["wte.weight"][ids] + w["wpe.weight"][: ids.shape[1]]
    for layer in range(12):
        p = f"h.{layer}."
        x = x + _attention(_norm(x, w, p + "ln_1"), w, p + "attn.")
        h = _norm(x, w, p + "ln_2") @ w[p + "mlp.c_fc.weight"] + w[p + "mlp.c_fc.bias"]
        h = 0.5 * h * (1 + jnp.tanh(0.7978845608028654 * (h + 0.044715 * h**3)))
        x = x + h @ w[p + "mlp.c_proj.weight"] + w[p + "mlp.c_proj.bias"]
    return _norm(x, w, "ln_f") @ w["wte.weight"].T


def _norm(x: Any, w: Any, name: str) -> Any:
    import jax

    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"] + w[name + ".bias"]


def _attention(x: Any, w: Any, p: str) -> Any:
    import jax
    import jax.numpy as jnp

    batch, length, width = x.shape
    qkv = (x @ w[p + "c_attn.weight"] + w[p + "c_attn.bias"]).reshape(batch, length, 3, 12, width // 12)
    q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    scores = q @ k.transpose(0, 1, 3, 2) / 8
    causal = jnp.tril(jnp.ones((length, length), bool))
    y = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), -1) @ v
    return y.transpose(0, 2, 1, 3).reshape(batch, length, width) @ w[p + "c_proj.weight"] + w[p + "c_proj.bias"]
