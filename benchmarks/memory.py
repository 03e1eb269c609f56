"""Peak resident memory of importing and running GPT-2, against the size of its weights: they must exist once.

python benchmarks/memory.py
"""

from __future__ import annotations

import resource
import sys
from typing import Any

from gpt2 import exported, model_and_ids
from report import Row, report

import neuron_ir

GIB = 2**30


def main() -> int:
    model, ids = model_and_ids()
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    program = exported(model, ids)
    before = _peak()
    neuron_ir.compile(neuron_ir.from_torch(program))(ids)
    after = _peak()
    allowed = 2.5 * weights + GIB
    rows = [
        Row("peak of the whole process", _gib(after), f"2.5 x weights + 1 GiB = {_gib(allowed)}", after / allowed, most=1.0),
        Row("  of it, importing and running", _gib(after - before), f"weights {_gib(weights)}", (after - before) / weights),
    ]
    return report("GPT-2 import and run, f32, resident memory", rows)


def _peak() -> int:
    """The most bytes that this process has had in memory so far (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _gib(size: Any) -> str:
    return f"{size / GIB:.2f} GiB"


if __name__ == "__main__":
    sys.exit(main())
