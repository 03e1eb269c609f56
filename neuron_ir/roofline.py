"""A roofline picture: each kernel's flops per byte against the speed that it can reach at most, as an SVG of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from neuron_ir.dtypes import BF16, F32
from neuron_ir.kernel_cost import KernelCost
from neuron_ir.target import Target

__all__ = ["roofline_svg"]

_WIDTH, _HEIGHT, _MARGIN = 720, 440, 60
_STYLE = (
    "text{font:12px sans-serif;fill:#222}.grid{stroke:#ddd}.roof{stroke:#b00;fill:none;stroke-width:2}"
    ".kernel{fill:#06c;fill-opacity:.6}"
)


def roofline_svg(kernels: Sequence[KernelCost], on: Target) -> str:
    """The picture: axes are logarithmic, a point is a kernel with flops, its area the bytes it moves; hovering names it."""
    points = [k for k in kernels if k.flops and k.hbm_bytes]
    memory = min(on.hbm_rate, on.dma_rate) * 1e9
    peaks = [("f32", on.matmul_flops(F32)), ("bf16", on.matmul_flops(BF16))]
    lowest = min([k.intensity for k in points], default=1.0)
    ridge = peaks[-1][1] / memory
    axis = _Axes(
        math.floor(math.log10(min(lowest, 1.0))),
        math.ceil(math.log10(max([ridge, *(k.intensity for k in points)])) + 0.3),
        peaks,
        memory,
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}">',
        f"<style>{_STYLE}</style>",
        f"<title>Roofline on {escape(on.name)}</title>",
        *axis.grid(),
        *axis.roofs(),
        *(axis.point(k, max(p.hbm_bytes for p in points)) for k in points),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Axes:
    """Maps flops per byte, and flop/s, to the picture."""

    def __init__(self, left: int, right: int, peaks: Sequence[tuple[str, float]], memory: float):
        self.left, self.right, self.peaks, self.memory = left, right, peaks, memory
        self.top = math.ceil(math.log10(peaks[-1][1]))
        self.bottom = math.floor(math.log10(memory * 10.0**left))

    def x(self, intensity: float) -> float:
        part = (math.log10(intensity) - self.left) / (self.right - self.left)
        return _MARGIN + part * (_WIDTH - 2 * _MARGIN)

    def y(self, speed: float) -> float:
        part = (math.log10(speed) - self.bottom) / (self.top - self.bottom)
        return _HEIGHT - _MARGIN - part * (_HEIGHT - 2 * _MARGIN)

    def grid(self) -> list[str]:
        lines = []
        for power in range(self.left, self.right + 1):
            x = self.x(10.0**power)
            lines.append(f'<line class="grid" x1="{x:.1f}" y1="{_MARGIN}" x2="{x:.1f}" y2="{_HEIGHT - _MARGIN}"/>')
            lines.append(f'<text x="{x:.1f}" y="{_HEIGHT - _MARGIN + 18}" text-anchor="middle">{10.0**power:g}</text>')
        for power in range(self.bottom, self.top + 1):
            y = self.y(10.0**power)
            lines.append(f'<line class="grid" x1="{_MARGIN}" y1="{y:.1f}" x2="{_WIDTH - _MARGIN}" y2="{y:.1f}"/>')
            lines.append(f'<text x="{_MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>')
        middle = _WIDTH / 2
        lines.append(f'<text x="{middle}" y="{_HEIGHT - 16}" text-anchor="middle">flops per byte of HBM</text>')
        lines.append(f'<text x="{_MARGIN}" y="{_MARGIN - 20}">flop/s at most</text>')
        return lines

    def roofs(self) -> list[str]:
        lines = []
        for name, peak in self.peaks:
            ridge = peak / self.memory
            corners = [(10.0**self.left, self.memory * 10.0**self.left), (ridge, peak), (max(10.0**self.right, ridge), peak)]
            path = " ".join(f"{self.x(i):.1f},{self.y(s):.1f}" for i, s in corners)
            lines.append(f'<polyline class="roof" points="{path}"/>')
            lines.append(
                f'<text x="{_WIDTH - _MARGIN}" y="{self.y(peak) - 6:.1f}" text-anchor="end">{name} {peak / 1e12:.1f} Tflop/s</text>'
            )
        return lines

    def point(self, k: KernelCost, largest: int) -> str:
        """A kernel at the speed that its busiest engine allows."""
        speed = k.flops / k.seconds
        radius = 3 + 9 * math.sqrt(k.hbm_bytes / largest)
        name = escape(f"%{k.name} ({k.kind}): {k.flops / 1e6:.1f} Mflop, {k.hbm_bytes / 1e6:.2f} MB, bound by {k.bound}")
        x, y = self.x(k.intensity), self.y(max(speed, 10.0**self.bottom))
        return f'<circle class="kernel" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"><title>{name}</title></circle>'
