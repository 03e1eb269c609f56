"""Import of GPT-2's exported program, weights included, against torch-mlir's import of the same to StableHLO.

    python benchmarks/import_gpt2.py [--torch-mlir FOLDER]

Each in a process of its own that has exported the program before the clock starts; the first import counts, and what it loads.
The folder is where `pip install --no-deps --target FOLDER torch-mlir` has put it, if not beside us.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from report import Row, report


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--torch-mlir", metavar="FOLDER")
    options.add_argument("--measure", choices=("ours", "peer"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.measure:
        print(_ours() if chosen.measure == "ours" else _peer())
        return 0
    ours, peer = _in_process("ours", chosen.torch_mlir), _in_process("peer", chosen.torch_mlir)
    row = Row("import with weights", f"{ours:.2f} s", f"torch-mlir {peer:.2f} s", peer / ours, least=5.0)
    return report("GPT-2 (124 million parameters, f32) from torch.export", [row])


def _in_process(which: str, folder: str | None) -> float:
    """The seconds that a new process measures."""
    paths = [p for p in (os.environ.get("PYTHONPATH"), folder) if p]
    command = [sys.executable, str(Path(__file__)), "--measure", which]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(
            f"{which} failed; torch-mlir is installed with: pip install --no-deps torch-mlir" if which == "peer" else which
        )
    return float(done.stdout.split()[-1])


def _ours() -> float:
    from gpt2 import exported, model_and_ids

    program = exported(*model_and_ids())
    start = time.perf_counter()
    import neuron_ir

    module = neuron_ir.from_torch(program)
    taken = time.perf_counter() - start
    assert sum(w.numel() for w in module.weights.values()) > 124_000_000
    return taken


def _peer() -> float:
    from gpt2 import exported, model_and_ids

    program = exported(*model_and_ids())
    start = time.perf_counter()
    from torch_mlir import fx

    fx.export_and_import(program, output_type="stablehlo")
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
