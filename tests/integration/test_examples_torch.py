"""The torch examples run, and say what they promise."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]


def test_gpt2_prints_its_ir_and_agrees_with_torch() -> None:
    command = [sys.executable, "examples/gpt2.py", "--layers", "1", "--tokens", "16", "--times", "1"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=280, check=True)
    assert "neuron.attention" in run.stdout and "the same at every position" in run.stdout
    error = float(re.search(r"accelerator against torch, f32\s+(\S+)", run.stdout)[1])
    assert error < 1e-5


def test_sentence_embeddings_have_torchs_cosines() -> None:
    example = runpy.run_path(str(ROOT / "examples" / "sentence_embeddings.py"))
    tokenizer, model = example["load"]()
    sentences = example["SENTENCES"]
    tokens = tokenizer(sentences, padding=True, return_tensors="pt")
    tokens = {name: tokens[name] for name in ("input_ids", "attention_mask")}
    _, program = example["compiled"](model, tokens)
    with torch.no_grad():
        want = model(**tokens)
    got = program(**tokens)
    assert (got @ got.T - want @ want.T).abs().max() < 1e-5
    assert torch.nn.functional.cosine_similarity(got, want).min() > 1 - 1e-5
