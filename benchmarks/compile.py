"""``torch.compile(backend="neuron")`` against torch eager and torch.compile's default backend, on eight models.

    python benchmarks/compile.py [--models gpt2,lstm] [--modes forward,train] [--small] [--only steady,first,call]
    python benchmarks/compile.py --models "" --only call

Per model and mode: the steady time, all three in turn in one process; the first call with empty caches, ours and the peer's, each
in a process of its own; ours again with the cache that it left; the peak memory of a training step in those processes. A first
call is all that happens from ``torch.compile`` to the first result, loading of packages included. Then the time of one call of a
graph that adds 8 floats. Modes: ``forward`` (f32), ``bf16``, ``autocast``, ``train`` (f32, with AdamW, whose step is compiled too).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from compile_models import MODELS, built
from report import Row, interleaved, report

MODES = ("forward", "bf16", "autocast", "train")
BACKENDS = {"ours": "neuron", "inductor": "inductor"}
TOLERANCE = {"forward": 1e-4, "train": 1e-4, "bf16": 5e-2, "autocast": 5e-2}  # of the largest value, against eager
STEPS = ("steady", "first", "call")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--models", default=",".join(MODELS), help=f"some of {', '.join(MODELS)}")
    options.add_argument("--modes", default=",".join(MODES), help=f"some of {', '.join(MODES)}")
    options.add_argument("--only", default=",".join(STEPS), help=f"some of {', '.join(STEPS)}")
    options.add_argument("--small", action="store_true", help="a layer or two and few tokens, to see that everything runs")
    options.add_argument("--repeats", type=int, default=10, help="timed calls of each in turn (default: 10)")
    options.add_argument("--threads", type=int, default=2, help="threads of torch (default: 2)")
    options.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.measure:
        print(json.dumps(_MEASURES[chosen.measure[0]](chosen, *chosen.measure[1:])))
        return 0
    only = chosen.only.split(",")
    figures = []
    for model in filter(None, chosen.models.split(",")):
        for mode in chosen.modes.split(","):
            figures.append(_figures(chosen, model, mode, only))
            print(json.dumps(figures[-1]), file=sys.stderr, flush=True)
    rows = [row for f in figures for row in _rows(f)] + _means(figures)
    if "call" in only:
        call = _in_process(chosen, {}, "call")
        rows.append(
            Row(
                "one call, add of 8 floats", *map(_micro, (call["ours"], call["inductor"])), call["ours"] / call["inductor"], most=1
            )
        )
        rows.append(Row("  against eager", *map(_micro, (call["ours"], call["eager"])), call["ours"] / call["eager"]))
    return report(f"torch.compile, {chosen.threads} threads{', small models' if chosen.small else ''}", rows)


def _figures(chosen: argparse.Namespace, model: str, mode: str, only: list[str]) -> dict[str, Any]:
    """All figures of one model in one mode, seconds and bytes."""
    found: dict[str, Any] = {"model": model, "mode": mode}
    if "first" in only:
        with tempfile.TemporaryDirectory() as folder:
            env = {
                "NEURON_IR_CACHE": "on",
                "NEURON_IR_CACHE_DIR": f"{folder}/ours",
                "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            }
            found["cold"] = _in_process(chosen, env, "first", model, mode, "ours")
            found["warm"] = _in_process(chosen, env, "first", model, mode, "ours")
            found["inductor"] = _in_process(chosen, env, "first", model, mode, "inductor")
    if "steady" in only:
        found["steady"] = _in_process(chosen, {}, "steady", model, mode)
    return found


def _rows(f: dict[str, Any]) -> Iterator[Row]:
    name = f"{f['model']} {f['mode']}"
    if "steady" in f:
        steady = f["steady"]
        for peer in ("inductor", "eager"):
            ratio = steady[peer] / steady["ours"]
            yield Row(f"{name}: times faster than {peer}", _milli(steady["ours"]), _milli(steady[peer]), ratio)
    if "cold" in f:
        cold, peer = f["cold"], f["inductor"]
        yield Row(f"{name}: first call, cold", f"{cold['first']:.1f} s", f"{peer['first']:.1f} s", cold["first"] / peer["first"])
        warm = f["warm"]["first"]
        yield Row(f"{name}: second process, warm", f"{warm:.1f} s", f"cold: {cold['first']:.1f} s", warm / cold["first"])
        if "peak" in cold:
            yield Row(f"{name}: peak memory", _mega(cold["peak"]), _mega(peer["peak"]), cold["peak"] / peer["peak"], most=1.15)


def _means(figures: list[dict[str, Any]]) -> list[Row]:
    """Geometric means over models and modes, with the bounds."""
    rows = []
    steady = [f["steady"] for f in figures if "steady" in f]
    if steady:
        rows.append(Row("mean: times faster than inductor", "", "", _mean([s["inductor"] / s["ours"] for s in steady]), least=1.8))
        rows.append(Row("mean: times faster than eager", "", "", _mean([s["eager"] / s["ours"] for s in steady]), least=1.6))
        rows.append(Row("slowest against eager", "", "", max(s["ours"] / s["eager"] for s in steady), most=1.1))
    first = [f for f in figures if "cold" in f]
    if first:
        cold = _mean([f["cold"]["first"] / f["inductor"]["first"] for f in first])
        rows.append(Row("mean: first call, cold, against inductor", "", "", cold, most=0.5))
        warm = max(f["warm"]["first"] / f["cold"]["first"] for f in first)
        rows.append(Row("second process, warm, largest share of cold", "", "", warm, most=0.35))
    return rows


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _milli(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


def _micro(seconds: float) -> str:
    return f"{1e6 * seconds:.1f} us"


def _mega(size: float) -> str:
    return f"{size / 2**20:.0f} MiB"


# --- in processes of their own ----------------------------------------------------------------------------------------


def _in_process(chosen: argparse.Namespace, env: dict[str, str], *what: str) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__)), "--threads", str(chosen.threads), "--repeats", str(chosen.repeats)]
    command += ["--small"] * chosen.small + ["--measure", *what]
    done = subprocess.run(
        command, env={"NEURON_IR_CACHE": "off", **os.environ, **env}, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _prepared(chosen: argparse.Namespace) -> None:
    import torch

    torch.set_num_threads(chosen.threads)
    torch._dynamo.config.allow_rnn = True  # by default Dynamo leaves an LSTM to eager, in both backends


def _run_of(model: str, mode: str, small: bool, backend: str | None) -> Callable[[], Any]:
    """One step of a fresh model, equal for equal arguments: it gives the model's output, or the loss of a training step."""
    import torch

    module, loss, inputs = built(model, small)
    compile: Callable[..., Any] = (lambda f: f) if backend is None else (lambda f: torch.compile(f, backend=backend))
    if mode == "train":
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)
        forward, update = compile(loss), compile(optimizer.step)

        def step() -> Any:
            optimizer.zero_grad()
            value = forward(module.train(), *inputs)
            value.backward()
            update()
            return value.detach()

        return step
    module = module.eval().to(torch.bfloat16) if mode == "bf16" else module.eval()
    inputs = [x.to(torch.bfloat16) if mode == "bf16" and x.is_floating_point() else x for x in inputs]
    forward = compile(lambda *xs: module(*xs)[0])

    def run() -> Any:
        lower = torch.autocast("cpu", torch.bfloat16) if mode == "autocast" else contextlib.nullcontext()
        with torch.no_grad(), lower:
            return forward(*inputs)

    return run


def measure_steady(chosen: argparse.Namespace, model: str, mode: str) -> dict[str, Any]:
    """Seconds of each in turn; refuses values that are not eager's."""
    _prepared(chosen)
    runs = {"eager": _run_of(model, mode, chosen.small, None)}
    runs |= {name: _run_of(model, mode, chosen.small, backend) for name, backend in BACKENDS.items()}
    values = {name: run().float() for name, run in runs.items()}
    off = ((values["ours"] - values["eager"]).abs().max() / values["eager"].abs().max()).item()
    if not off <= TOLERANCE[mode]:
        raise SystemExit(f"{model} {mode}: off by {off:.2g} of the largest value")
    times = interleaved(runs, chosen.repeats)
    return {name: t.wall for name, t in times.items()} | {"off": off}


def measure_first(chosen: argparse.Namespace, model: str, mode: str, name: str) -> dict[str, Any]:
    """Seconds of the first call, and for training the peak memory of a later step, in bytes, where Linux tells it."""
    _prepared(chosen)
    start = time.perf_counter()
    run = _run_of(model, mode, chosen.small, BACKENDS[name])
    building = time.perf_counter() - start
    run()
    found = {"first": time.perf_counter() - start - building}
    if mode == "train" and os.path.exists("/proc/self/clear_refs"):
        run()
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        run()
        line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
        found["peak"] = int(line.split()[1]) * 1024
    return found


def measure_call(chosen: argparse.Namespace) -> dict[str, float]:
    """Seconds of one call of a graph that adds 8 floats, the least of several means."""
    import timeit

    import torch

    _prepared(chosen)
    x = torch.arange(8.0)

    def add(x: Any) -> Any:
        return x + x

    compiled = {name: torch.compile(add, backend=backend) for name, backend in BACKENDS.items()}
    runs = {"eager": add, **compiled}
    with torch.no_grad():
        for run in runs.values():
            run(x)
        rounds = [{n: timeit.timeit(lambda run=run: run(x), number=500) / 500 for n, run in runs.items()} for _ in range(9)]  # type: ignore[misc]
    return {name: min(r[name] for r in rounds) for name in runs}


_MEASURES: dict[str, Callable[..., dict[str, Any]]] = {"steady": measure_steady, "first": measure_first, "call": measure_call}


if __name__ == "__main__":
    sys.exit(main())
