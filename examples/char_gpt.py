"""Train a character-level GPT on the text of Python's standard library, with torch eager and with torch.compile(backend="neuron").

python examples/char_gpt.py                    # 300 steps in f32; writes char_gpt.png with both loss curves
python examples/char_gpt.py --precision bf16   # the compiled one multiplies in bf16
python examples/char_gpt.py --steps 40 --layers 1

Both start from the same weights and see the same batches; nothing is downloaded. Exits with 1 where the curves part: smoothed over
20 steps, by more than 0.5 % in f32, or 2 % in bf16.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn
from torch.nn import functional

BOUNDS = {"f32": 0.005, "bf16": 0.02}  # of the loss
SMOOTHED = 20  # steps


class Block(nn.Module):
    """Attention over what came before, then two layers for each character by itself."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.gather = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.attend(self.norm1(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.gather(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.widen(self.norm2(x))))


class CharGPT(nn.Module):
    """Characters to the logits of the next one, at every place."""

    def __init__(self, vocabulary: int, context: int, width: int, layers: int):
        super().__init__()
        self.characters, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.characters(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def standard_library(most: int) -> str:
    """The first ``most`` characters of the standard library's modules, in the order of their names."""
    text, size = [], 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text.append(path.read_text(encoding="utf-8", errors="replace"))
        size += len(text[-1])
        if size >= most:
            break
    return "".join(text)[:most]


def train(model: nn.Module, data: Tensor, options: argparse.Namespace, name: str) -> list[float]:
    """The loss of each step; the batches are drawn from a generator of their own."""
    draw = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, start = [], time.perf_counter()
    for step in range(options.steps):
        places = torch.randint(len(data) - options.context - 1, (options.batch, 1), generator=draw)
        ids = data[places + torch.arange(options.context + 1)]
        loss = functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        show(name, step + 1, options.steps, losses[-1], time.perf_counter() - start)
    return losses


def show(name: str, step: int, steps: int, loss: float, seconds: float) -> None:
    """The bar of progress: redrawn in place on a terminal, otherwise told ten times."""
    filled = 30 * step // steps
    line = f"{name:>8} [{'#' * filled}{'.' * (30 - filled)}] {step}/{steps}  loss {loss:.3f}  {seconds:.0f} s"
    if sys.stdout.isatty():
        print(f"\r{line}", end="\n" if step == steps else "", flush=True)
    elif step % max(steps // 10, 1) == 0:
        print(line, flush=True)


def smoothed(losses: Sequence[float]) -> list[float]:
    """The mean of the last steps, at every step."""
    return [sum(part) / len(part) for part in (losses[max(0, i - SMOOTHED + 1) : i + 1] for i in range(len(losses)))]


def plot(curves: dict[str, Sequence[float]], path: Path) -> None:
    """Losses over steps as a picture; the later curve is drawn thinner, so that both show where they are one."""
    width, height, left, below = 900, 540, 60, 40
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    top, steps = max(map(max, curves.values())) * 1.05, max(map(len, curves.values()))

    def place(step: float, loss: float) -> tuple[float, float]:
        return left + (width - left - 20) * step / max(steps - 1, 1), height - below - (height - below - 20) * loss / top

    for i in range(6):
        (x, y), (right, _) = place(0, top * i / 5), place(steps - 1, 0)
        draw.line([(x, y), (right, y)], fill="#dddddd")
        draw.text((8, y - 6), f"{top * i / 5:.2f}", fill="black")
        draw.text((place((steps - 1) * i / 5, 0)[0] - 10, height - below + 8), f"{(steps - 1) * i / 5:.0f}", fill="black")
    for i, (name, losses) in enumerate(curves.items()):
        color = ("#1f77b4", "#d62728")[i]
        draw.line([place(step, loss) for step, loss in enumerate(losses)], fill=color, width=(5, 2)[i], joint="curve")
        draw.text((width - 200, 30 + 18 * i), f"{name}: {smoothed(losses)[-1]:.3f}", fill=color)
    image.save(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--precision", choices=tuple(BOUNDS), default="f32")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128, help="of the hidden state, a multiple of 4")
    parser.add_argument("--context", type=int, default=64, help="characters that the model sees")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--output", type=Path, default=Path("char_gpt.png"))
    options = parser.parse_args()
    text = standard_library(1_000_000)
    alphabet = sorted(set(text))
    number = {c: i for i, c in enumerate(alphabet)}
    data = torch.tensor([number[c] for c in text])
    print(f"{len(text)} characters, {len(alphabet)} different ones")
    curves = {}
    for name in ("eager", "neuron"):
        torch.manual_seed(0)
        model = CharGPT(len(alphabet), options.context, options.width, options.layers)
        lower = {"precision": "bf16"} if options.precision == "bf16" else {}
        trained = model if name == "eager" else torch.compile(model, backend="neuron", options=lower)
        curves[name] = train(trained, data, options, name)
    plot(curves, options.output)
    pairs = list(zip(*map(smoothed, curves.values()), strict=True))
    off = max(abs(ours - theirs) / theirs for theirs, ours in pairs)
    print(f"loss {pairs[0][0]:.3f} to {pairs[-1][0]:.3f} (eager), {pairs[-1][1]:.3f} (neuron, {options.precision})")
    print(f"the curves are at most {100 * off:.3f} % apart (at most {100 * BOUNDS[options.precision]:g} %); see {options.output}")
    return 0 if off <= BOUNDS[options.precision] else 1


if __name__ == "__main__":
    sys.exit(main())
