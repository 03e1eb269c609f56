"""Steady time on the reference accelerator after passes, against the same program without passes.

    python benchmarks/steady.py [--only gpt2,resnet18] [--graphs forward,training] [--passes O2] [--runs 15]

The graphs are those of `fusion.py`: the forward pass, and a whole training step. Both programs are compiled before the clock starts
and run in turn on the same inputs, in host memory; the median counts. None may be slower than without passes by more than 3 %, and
the geometric mean must be at least 1.05 times as fast.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from fusion import MODELS, imported, traced
from report import Row, interleaved, report

LEAST_EACH, LEAST_MEAN = 1 / 1.03, 1.05


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default=",".join(MODELS), help="models, separated by commas")
    options.add_argument("--graphs", default="forward,training", help="forward, training or both")
    options.add_argument("--passes", nargs="+", default=["O2"], help="pipelines (default: O2)")
    options.add_argument("--runs", type=int, default=15)
    chosen = options.parse_args()
    rows: dict[str, list[Row]] = {passes: [] for passes in chosen.passes}
    for name in chosen.only.split(","):
        for kind in chosen.graphs.split(","):
            for passes, row in _rows(name, kind, chosen.passes, chosen.runs).items():
                rows[passes].append(row)
                print(row.what, row.ours, row.peer, f"{row.ratio:.3f}", flush=True)
    table = []
    for passes, found in rows.items():
        mean = math.exp(sum(math.log(r.ratio) for r in found) / len(found))
        table += [*found, Row(f"geometric mean, {passes}", "", "", mean, least=LEAST_MEAN)]
    return report("steady time on the executor: speed against no passes", table)


def _rows(name: str, kind: str, pipelines: list[str], runs: int) -> dict[str, Row]:
    import neuron_ir

    graph, inputs = traced(name, kind)
    module = imported(graph, inputs)
    arrays = [x.detach().numpy() for x in inputs]
    programs = {"": _compiled(module)}
    for passes in pipelines:
        copy = module.clone()
        neuron_ir.run_passes(copy, passes)
        programs[passes] = _compiled(copy)
    times = interleaved({k: (lambda p=p: p(*arrays)) for k, p in programs.items()}, runs)
    plain = times[""].wall
    return {
        passes: Row(
            f"{name}, {kind}, {passes}", f"{times[passes].wall * 1e3:.2f} ms", f"no passes: {plain * 1e3:.2f} ms",
            plain / times[passes].wall, least=LEAST_EACH,
        )
        for passes in pipelines
    }  # fmt: skip


def _compiled(module: Any) -> Any:
    import neuron_ir

    return neuron_ir.compile(module)


if __name__ == "__main__":
    sys.exit(main())
