"""What each target's NeuronCore has: memories, engines, element types. The one home of every hardware number.

Each number carries the tag of its source. S1-S3: the vendor's architecture guides (v2 = trn1, v3 = trn2, v4 = trn3); S4: its
hardware pages; S5, S6: its DMA and performance guides; S7: its instruction reference of SDK 2.26; S8: its release notes; S9, S10:
its open kernel library and tools; T1-T6: public measurements on real chips. ``reference`` is the JAX executor: no limits, and
trn2's speeds for estimates.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from neuron_ir.diagnostics import fail, nearest
from neuron_ir.dtypes import BF16, F16, F32, DType, dtype

__all__ = ["TARGETS", "Target", "target"]

TARGETS = ("reference", "trn1", "trn2", "trn3")


def fact(unit: str, source: str, trn1: Any, trn2: Any, trn3: Any, reference: Any = None, doc: str = "") -> Any:
    """A field of :class:`Target`: its value on each target (``reference`` as trn2 where not given), unit, source and meaning."""
    values = {"trn1": trn1, "trn2": trn2, "trn3": trn3, "reference": trn2 if reference is None else reference}
    return dataclasses.field(metadata={"unit": unit, "source": source, "values": values, "doc": doc})


@dataclass(frozen=True)
class Target:
    """One NeuronCore."""

    name: str
    # --- memories ---
    partitions: int = fact("", "S1", 128, 128, 128, doc="rows of SBUF and PSUM; the partition axis of a tile has at most so many")
    sbuf_bytes: float = fact("B/partition", "S10", 180224, 212984, 245752, math.inf, "on-chip memory that a kernel may use")
    psum_banks: int = fact("", "S1", 8, 8, 8, doc="banks of the accumulation memory, per partition")
    psum_bank_bytes: float = fact("B/partition", "S1", 2048, 2048, 2048, math.inf, "one accumulation group stays inside a bank")
    hbm_rate: float = fact("GB/s", "T1 T3 S4", 410.0, 716.0, 1225.0, doc="HBM bandwidth of one core; trn3: 4.9 TB/s over 4 stacks")
    dma_rate: float = fact("GB/s", "T4 T2 S5", 273.0, 399.0, 528.0, doc="what one core streams between HBM and SBUF")
    # --- engines ---
    tensor_clock: float = fact("GHz", "S1-S3", 2.8, 2.4, 2.4, doc="Tensor engine: a 128 x 128 systolic array")
    vector_clock: float = fact("GHz", "S1-S3", 1.12, 0.96, 1.2)
    scalar_clock: float = fact("GHz", "S1-S3", 1.4, 1.2, 1.2)
    gpsimd_clock: float = fact("GHz", "S1-S3", 1.4, 1.2, 1.2)
    vector_lanes_16: int = fact("elements/cycle", "S1-S3", 128, 512, 512, doc="Vector engine on bf16 and f16")
    vector_lanes: int = fact("elements/cycle", "S1-S3", 128, 256, 256, doc="Vector engine on other types")
    scalar_lanes_16: int = fact("elements/cycle", "S1-S3", 128, 128, 256, doc="Scalar engine on bf16 and f16")
    scalar_lanes: int = fact("elements/cycle", "S1-S3", 128, 128, 128, doc="Scalar engine on other types")
    f32_matmul_passes: int = fact("", "S7", 4, 4, 4, doc="f32 products take so many times the cycles of bf16 ones")
    fp8_matmul_speedup: int = fact("", "S2-S4", 1, 2, 4, doc="fp8 (trn3: MX) products against bf16 ones")
    stationary_free: int = fact("", "S1", 128, 128, 128, doc="columns of the stationary operand of one matmul instruction")
    moving_free: int = fact("", "S1", 512, 512, 512, doc="columns of the moving operand of one matmul instruction")
    kernel_overhead: float = fact("us", "T5", 19.0, 15.0, 15.0, doc="the smallest whole kernel; trn3 not measured, taken from trn2")
    # --- element types ---
    fp8: DType = fact(
        "", "S8 S9", dtype("f8e4m3"), dtype("f8e4m3"), dtype("f8e4m3fn"), doc="the forward fp8 type of the Tensor engine"
    )

    @property
    def sbuf_total(self) -> float:
        """On-chip memory of the core, in bytes."""
        return self.partitions * self.sbuf_bytes

    def matmul_flops(self, element: DType) -> float:
        """Peak of the Tensor engine in flop/s for operands of ``element``: 128 x 128 x 2 x clock for bf16, f16 and tf32."""
        peak = self.partitions * self.stationary_free * 2 * self.tensor_clock * 1e9
        if element.bits == 8 and element.is_float:
            return peak * self.fp8_matmul_speedup
        return peak / self.f32_matmul_passes if element is F32 else peak

    def vector_rate(self, element: DType) -> float:
        """Elements per second of the Vector engine."""
        return (self.vector_lanes_16 if element in (BF16, F16) else self.vector_lanes) * self.vector_clock * 1e9

    def scalar_rate(self, element: DType) -> float:
        """Elements per second of the Scalar engine."""
        return (self.scalar_lanes_16 if element in (BF16, F16) else self.scalar_lanes) * self.scalar_clock * 1e9


@cache
def target(name: str) -> Target:
    """The target of that name: ``reference``, ``trn1``, ``trn2`` or ``trn3``. Raises :class:`IRError` for any other.

    >>> target("trn2").psum_banks
    8
    """
    if name not in TARGETS:
        raise fail("pass", f"there is no target {name!r}{nearest(name, TARGETS)}; known: {', '.join(TARGETS)}")
    fields = (f for f in dataclasses.fields(Target) if f.name != "name")
    return Target(name, **{f.name: f.metadata["values"][name] for f in fields})
