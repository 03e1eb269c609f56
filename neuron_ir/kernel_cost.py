"""What each kernel of a function costs on a target: flops, HBM bytes, SBUF, time of each engine, and what bounds it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from neuron_ir.core import Func, Module, Op
from neuron_ir.cost import Cost, cost_of
from neuron_ir.dtypes import F32, DType
from neuron_ir.meaning import expansion
from neuron_ir.specialise import specialise
from neuron_ir.target import Target
from neuron_ir.tiling import sbuf_peak
from neuron_ir.traffic import Sizes, body_of, kernel_traffic, kernels, lower_bound, trips
from neuron_ir.types import TensorType

__all__ = ["ENGINES", "KernelCost", "kernel_costs", "report_json", "report_table", "sized", "summary"]

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "memory")
_LEAST_CYCLES = 64  # of any instruction (S7: MIN_II)


@dataclass(frozen=True)
class KernelCost:
    """One kernel; all but ``times`` (how often it runs) for one run. ``busy`` maps each engine to seconds."""

    name: str
    kind: str
    ops: int
    times: int
    flops: int
    hbm_read: int
    hbm_written: int
    sbuf_bytes: float
    busy: dict[str, float]
    line: str

    @property
    def hbm_bytes(self) -> int:
        return self.hbm_read + self.hbm_written

    @property
    def bound(self) -> str:
        """The engine, or the memory, that is busy longest."""
        return max(ENGINES, key=lambda e: self.busy[e])

    @property
    def seconds(self) -> float:
        """The roofline: no run is shorter than the time of its busiest engine."""
        return self.busy[self.bound]

    @property
    def intensity(self) -> float:
        """Flops per byte of HBM."""
        return self.flops / max(self.hbm_bytes, 1)


def kernel_costs(func: Func, on: Target) -> list[KernelCost]:
    """Every kernel of a static function, in order."""
    sizes = Sizes(func)
    return [_kernel(op, times, on, sizes) for op, times in kernels(func.body)]


def sized(module: Module) -> Module:
    """The module with a typical size for each symbol of its entry function, for costs. Raises where a size is unknown."""
    symbols = Sizes(module.main).symbols
    static = specialise(module, symbols) if symbols else module
    for op in static.main.walk():
        for v in (*op.operands, *op.results):
            if isinstance(v.type, TensorType) and not v.type.is_static:
                raise op.error("unsupported", f"what it costs is not known, for {v.type} has no known size")
    return static


def summary(func: Func) -> dict[str, int]:
    """Totals of a function: kernels, bytes and the lower bound. Symbolic sizes count with a typical size."""
    sizes = Sizes(func)
    found = list(kernels(func.body))
    moved = sum(times * sum(kernel_traffic(op, sizes)) for op, times in found)
    return {"kernels": len(found), "hbm_bytes": moved, "lower_bound_bytes": lower_bound(func, sizes)}


def _kernel(op: Op, times: int, on: Target, sizes: Sizes) -> KernelCost:
    ops, inputs, outputs = body_of(op)
    read, written = kernel_traffic(op, sizes)
    work = Cost()
    busy = dict.fromkeys(ENGINES, 0.0)
    for inner in ops:
        work = work + cost_of(inner)
        for engine, seconds in engine_seconds(inner, on).items():
            busy[engine] += seconds
    busy["memory"] = (read + written) / (min(on.hbm_rate, on.dma_rate) * 1e9)
    peak = sbuf_peak(ops, inputs, outputs, on, sizes)
    name = next((r.name for r in op.results if r.name), op.name)
    kind = str(op.get("kind")) if op.name == "neuron.fused" else op.name.removeprefix("neuron.")
    line = "" if op.loc.implicit else op.loc.short
    return KernelCost(name, kind, len(ops), times, work.flops, read, written, peak, busy, line)


def engine_seconds(op: Op, on: Target) -> dict[str, float]:
    """Seconds that an op keeps each engine busy, by the cycles of its instructions (S7); a composite is what it is made of."""
    spec, busy = op.spec, dict.fromkeys(ENGINES, 0.0)
    if spec.expand is not None and spec.cost is None and "elementwise" not in spec.traits:
        parts: Sequence[Op] = [inner for inner in expansion(op).ops if "terminator" not in inner.spec.traits]
        times = 1
    elif "control" in spec.traits and op.regions:
        parts = [inner for inner in op.regions[-1].ops if "terminator" not in inner.spec.traits]
        times = trips(op)
    else:
        parts, times = (), 1
        work = cost_of(op)
        element = op.results[0].type.dtype if op.results and hasattr(op.results[0].type, "dtype") else F32
        busy["tensor"] = matmul_cycles(op, work.flops, on) / (on.tensor_clock * 1e9)
        busy["vector"] = _cycles(work.dve, on.vector_rate(element) / on.vector_clock / 1e9) / (on.vector_clock * 1e9)
        busy["scalar"] = _cycles(work.act, on.scalar_rate(element) / on.scalar_clock / 1e9) / (on.scalar_clock * 1e9)
        busy["gpsimd"] = _cycles(work.gpsimd, on.partitions) / (on.gpsimd_clock * 1e9)
    for part in parts:
        for engine, seconds in engine_seconds(part, on).items():
            busy[engine] += times * seconds
    return busy


def _cycles(elements: int, lanes: float) -> float:
    """Cycles of one instruction over so many elements."""
    return max(_LEAST_CYCLES, elements / lanes) if elements else 0.0


def matmul_cycles(op: Op, flops: int, on: Target) -> float:
    """Cycles of the Tensor engine: for each tile of 128 x 128 x 512 as many as the moving operand has columns, 64 at least.

    f32 takes four times as long, fp8 less (S7). Of the two operands that one moves which takes fewer cycles.
    """
    if not flops:
        return 0.0
    batch, rows, columns, inner = _product(op, flops)
    tiles = math.ceil(inner / on.partitions)
    cycles = min(_moving(rows, columns, on), _moving(columns, rows, on)) * tiles * batch
    element: DType = op.operands[0].dtype
    if element is F32:
        return cycles * on.f32_matmul_passes
    return cycles / (on.fp8_matmul_speedup if element.is_float and element.bits == 8 else 1)


def _moving(stationary: int, moving: int, on: Target) -> float:
    """Cycles for one slab of 128 contracted elements."""
    whole, rest = divmod(moving, on.moving_free)
    columns = whole * on.moving_free + (max(_LEAST_CYCLES, rest) if rest else 0)
    return math.ceil(stationary / on.stationary_free) * columns


def _product(op: Op, flops: int) -> tuple[int, int, int, int]:
    """Batch, rows, columns and contracted elements of a product of so many flops."""
    shape: Any = op.results[0].shape
    n = max(math.prod(shape), 1)
    if op.name in ("neuron.conv", "neuron.convolution"):
        spelling = op.attrs.get("output_dims", "bf")
        columns = shape[spelling.index("f")]
        batch = 1
    else:
        columns = shape[-1] if shape else 1
        batch = math.prod(shape[:-2]) if op.name != "neuron.linear" and len(shape) > 2 else 1
    return batch, max(n // max(columns * batch, 1), 1), max(columns, 1), max(flops // (2 * n), 1)


# --- printing ---------------------------------------------------------------------------------------------------------


def report_json(func: Func, on: Target) -> str:
    """One line of JSON: totals, and one record per kernel."""
    found = kernel_costs(func, on)
    regions = [
        {
            "name": k.name, "kind": k.kind, "ops": k.ops, "runs": k.times, "flops": k.flops, "hbm_bytes": k.hbm_bytes,
            "hbm_read_bytes": k.hbm_read, "hbm_written_bytes": k.hbm_written, "sbuf_bytes": round(k.sbuf_bytes),
            "microseconds": {engine: round(1e6 * s, 3) for engine, s in k.busy.items()}, "bound": k.bound,
            "flops_per_byte": round(k.intensity, 3), "line": k.line,
        }
        for k in found
    ]  # fmt: skip
    totals = summary(func) | {"flops": sum(k.times * k.flops for k in found), "target": on.name}
    return json.dumps(totals | {"regions": regions}) + "\n"


def report_table(func: Func, on: Target) -> str:
    """The same for people: a line per kernel, then the totals."""
    found, totals = kernel_costs(func, on), summary(func)
    head = ("kernel", "kind", "ops", "runs", "Mflop", "HBM KiB", "SBUF KiB", *(f"{e} us" for e in ENGINES), "bound", "from")
    rows = [head]
    for k in found:
        busy = tuple(f"{1e6 * k.busy[e]:.2f}" for e in ENGINES)
        sizes = (f"{k.flops / 1e6:.2f}", f"{k.hbm_bytes / 1024:.1f}", f"{k.sbuf_bytes / 1024:.1f}")
        rows.append((f"%{k.name}", k.kind, str(k.ops), str(k.times), *sizes, *busy, k.bound, k.line))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    text = 2  # columns of words, before the numbers
    lines = [
        "  ".join(
            c.ljust(w) if i < text or i >= len(head) - 2 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))
        )
        for r in rows
    ]
    total = sum(k.times * k.seconds for k in found) + len(found) * on.kernel_overhead * 1e-6
    ratio = totals["hbm_bytes"] / max(totals["lower_bound_bytes"], 1)
    lines += [
        "",
        f"@{func.name} on {on.name}: {totals['kernels']} kernels, {totals['hbm_bytes']:,} bytes of HBM traffic "
        f"({ratio:.2f} x the lower bound of {totals['lower_bound_bytes']:,}), {sum(k.times * k.flops for k in found):,} flops, "
        f"{1e6 * total:.1f} us with {on.kernel_overhead:g} us for each kernel's start",
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"
