"""The torch examples run, and say what they promise."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

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


def test_char_gpt_learns_as_eager_does_and_draws_both_curves(tmp_path: Path, monkeypatch, capsys) -> None:
    picture = tmp_path / "curves.png"
    sizes = ["--steps", "4", "--layers", "1", "--width", "16", "--context", "8", "--batch", "2"]
    monkeypatch.setattr(sys, "argv", ["char_gpt.py", *sizes, "--output", str(picture)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "examples" / "char_gpt.py"), run_name="__main__")
    assert ended.value.code == 0
    assert "4/4  loss" in capsys.readouterr().out
    with Image.open(picture) as image:
        colors = {color for _, color in image.getcolors(1 << 20)}
    assert {(31, 119, 180), (214, 39, 40)} <= colors
