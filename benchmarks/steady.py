"""Steady time on the reference accelerator after passes, against the same program without passes.

    python benchmarks/steady.py [--only gpt2,resnet18] [--graphs forward,training] [--passes O2] [--rounds 11]

The models are those of `fusion.py`: the forward pass, exported with its weights bound, and a whole training step, whose weights and
moments come in and go out. Both programs are compiled before the clock starts and run in turn on the same inputs, in host memory;
the median of their ratio counts. None may be slower than without passes by more than 3 %, and the geometric mean must be at least
1.05 times as fast.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from fusion import MODELS, imported, traced
from report import Row, paired, report

LEAST_EACH, LEAST_MEAN = 0.97, 1.05


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default=",".join(MODELS), help="models, separated by commas")
    options.add_argument("--graphs", default="forward,training", help="forward, training or both")
    options.add_argument("--passes", nargs="+", default=["O2"], help="pipelines (default: O2)")
    options.add_argument("--rounds", type=int, default=11)
    chosen = options.parse_args()
    rows: dict[str, list[Row]] = {passes: [] for passes in chosen.passes}
    for name in chosen.only.split(","):
        for kind in chosen.graphs.split(","):
            for passes, row in _rows(name, kind, chosen.passes, chosen.rounds).items():
                rows[passes].append(row)
                print(row.what, row.ours, row.peer, f"{row.ratio:.3f}", flush=True)
    table = []
    for passes, found in rows.items():
        mean = math.exp(sum(math.log(r.ratio) for r in found) / len(found))
        table += [*found, Row(f"geometric mean, {passes}", "", "", mean, least=LEAST_MEAN)]
    return report("steady time on the executor: speed against no passes", table)


def _rows(name: str, kind: str, pipelines: list[str], rounds: int) -> dict[str, Row]:
    import neuron_ir

    module, arrays = _program(name, kind)
    plain = _compiled(module)
    rows = {}
    for passes in pipelines:
        copy = module.clone()
        neuron_ir.run_passes(copy, passes)
        program = _compiled(copy)
        ours, peer, ratio = paired(lambda p=program: p(*arrays), lambda: plain(*arrays), rounds)  # type: ignore[misc]
        what = f"{name}, {kind}, {passes}"
        rows[passes] = Row(what, f"{ours * 1e3:.2f} ms", f"no passes: {peer * 1e3:.2f} ms", ratio, least=LEAST_EACH)
    return rows


def _program(name: str, kind: str) -> tuple[Any, list[Any]]:
    """The imported program without passes, and its inputs."""
    import torch

    import neuron_ir

    if kind == "training":
        graph, inputs = traced(name, kind)
        return imported(graph, inputs), [x.detach().numpy() for x in inputs]
    torch.manual_seed(0)
    model, args = MODELS[name]()
    with torch.no_grad():
        program = torch.export.export(model.eval(), args, strict=False)
    return neuron_ir.from_torch(program), [x.numpy() for x in args]


def _compiled(module: Any) -> Any:
    import neuron_ir

    return neuron_ir.compile(module)


if __name__ == "__main__":
    sys.exit(main())
