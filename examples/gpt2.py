"""The main job: export a GPT-2, read its IR, optimise it, run it on the reference accelerator, and compare with torch.

python examples/gpt2.py            # 12 layers, 124 million parameters, random weights; nothing is downloaded
python examples/gpt2.py --layers 2 # smaller and faster
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import neuron_ir


def timed(what: Callable[[], Any]) -> tuple[Any, float]:
    """A function's result and the seconds that it took."""
    start = time.perf_counter()
    return what(), time.perf_counter() - start


def steady(run: Callable[[], Any], times: int) -> float:
    """The median time of a call in seconds, after two calls that do not count."""
    for _ in range(2):
        run()
    return statistics.median(timed(run)[1] for _ in range(times))


def gpt2(layers: int) -> torch.nn.Module:
    """A GPT-2 with seeded random weights."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore", category=FutureWarning)
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_layer=layers, use_cache=False)).eval()


def first_attention(module: neuron_ir.Module) -> str:
    """The lines of the text around the first attention."""
    lines = module.text().splitlines()
    at = next(i for i, line in enumerate(lines) if "neuron.attention(" in line)
    return "\n".join(lines[max(at - 13, 0) : at + 5])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12, help="number of layers (default 12)")
    parser.add_argument("--tokens", type=int, default=128, help="length of the input (default 128)")
    parser.add_argument("--times", type=int, default=10, help="timed calls (default 10)")
    parser.add_argument("--passes", default="O1", help="pipeline of passes (default O1)")
    options = parser.parse_args()

    model = gpt2(options.layers)
    ids = torch.randint(0, model.config.vocab_size, (1, options.tokens))
    parameters = sum(p.numel() for p in model.parameters())
    print(f"GPT-2: {options.layers} layers, {parameters / 1e6:.0f} million parameters, {options.tokens} tokens, f32")

    exported, export_time = timed(lambda: torch.export.export(model, (ids,)))
    module, import_time = timed(lambda: neuron_ir.from_torch(exported))
    before = sum(1 for _ in module.walk())
    _, pass_time = timed(lambda: neuron_ir.run_passes(module, options.passes))
    after = sum(1 for _ in module.walk())
    print(f"\nThe first attention, a piece of {after} operations ({before} before the passes {options.passes}):\n")
    print(first_attention(module))

    program, compile_time = timed(lambda: neuron_ir.compile(module))
    result, first_time = timed(lambda: program(ids))
    logits = result.logits
    with torch.no_grad():
        want = model(ids).logits
        exact = model.double()(ids).logits
        model.float()
        torch_time = steady(lambda: model(ids), options.times)
    neuron_time = steady(lambda: program(ids), options.times)

    def error(values: torch.Tensor) -> float:
        return float((values.double() - exact).abs().max() / exact.abs().max())

    print("\nstep                               seconds")
    for name, seconds in (
        ("torch.export", export_time),
        ("import, weights included", import_time),
        (f"passes {options.passes}", pass_time),
        ("compile and first call", compile_time + first_time),
        ("forward, torch eager", torch_time),
        ("forward, reference accelerator", neuron_time),
    ):
        print(f"{name:33}{seconds:9.3f}")
    print("\nlargest error, as a part of the largest logit")
    print(f"{'torch f32 against f64':33}{error(want):9.1e}")
    print(f"{'accelerator f32 against f64':33}{error(logits):9.1e}")
    print(f"{'accelerator against torch, f32':33}{float((logits - want).abs().max() / want.abs().max()):9.1e}")
    same = bool((logits.argmax(-1) == want.argmax(-1)).all())
    print(f"\nThe most likely next token is {'the same at every position' if same else 'not the same everywhere'}.")


if __name__ == "__main__":
    main()
