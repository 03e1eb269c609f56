"""The reference accelerator: a program becomes one jitted JAX function on the CPU."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from neuron_ir.core import Module
from neuron_ir.diagnostics import fail, nearest

if TYPE_CHECKING:
    from neuron_ir.backends.jax_cpu.bisection import bisect as bisect
    from neuron_ir.backends.jax_cpu.calibration import calibrate as calibrate
    from neuron_ir.backends.jax_cpu.error_report import precision_report as precision_report
    from neuron_ir.backends.jax_cpu.host import Host
    from neuron_ir.backends.jax_cpu.program import CompiledProgram
    from neuron_ir.backends.jax_cpu.tuning import tune_precision as tune_precision

__all__ = ["bisect", "calibrate", "compile_module", "open_host", "precision_report", "tune_precision"]

OPTIONS = {
    "buckets": (
        'Sizes to which a symbolic size is padded, {"B": (8, 32)}, so that few programs serve many sizes; refused where padding '
        "could change a value. A size beyond the largest bucket is compiled for itself."
    ),
    "guards": "Keep XLA from changing numbers (default True); see specs/numerics.md.",
    "subnormals": 'Floats below the smallest normal number count as 0 ("flush", the default) or as themselves ("exact", slower).',
    "verify": "Verify the module before it is compiled (default True).",
}


def compile_module(module: Module, **options: Any) -> CompiledProgram:
    """Compile a module for the reference accelerator, with options of ``OPTIONS``. The module must not change afterwards."""
    from neuron_ir.backends.jax_cpu.program import CompiledProgram

    for name in options:
        if name not in OPTIONS:
            raise fail("pass", f"the reference target has no option {name!r}{nearest(name, OPTIONS)}")
    if options.get("subnormals", "flush") not in ("flush", "exact"):
        raise fail("pass", f'the option subnormals is "flush" or "exact", not {options["subnormals"]!r}')
    if options.get("subnormals") == "exact" and not options.get("guards", True):
        raise fail("pass", 'subnormals = "exact" needs the guards; leave guards = True')
    if options.get("verify", True):
        module.verify()
    return CompiledProgram(module, options)


def open_host(num_devices: int) -> Host:
    """Devices of the reference accelerator for a runtime that hands over buffers itself."""
    from neuron_ir.backends.jax_cpu.host import Host

    return Host(num_devices)


_HOMES = {"bisect": "bisection", "calibrate": "calibration", "precision_report": "error_report", "tune_precision": "tuning"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
