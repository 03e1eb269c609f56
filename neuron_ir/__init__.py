"""Neuron IR: a readable intermediate representation for PyTorch and JAX programs on AWS Trainium.

    import neuron_ir
    module = neuron_ir.from_torch(model, (x,))         # or from_jax(f, x), from_stablehlo(text), load("model.nir")
    program = neuron_ir.compile(module)                # the reference accelerator
    y = program(x)

Everything listed in ``__all__`` is public; each name is loaded on first use, so that importing the package is instant.
"""

import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_imported_at = time.time()  # files of the package that change later may be loaded as they were before, see cache.py

_HOMES = {
    "neuron_ir.core": ("Block", "Func", "Module", "Op", "Value"),
    "neuron_ir.types": ("Layout", "TensorType", "tensor"),
    "neuron_ir.dims": ("Dim", "symbol"),
    "neuron_ir.dtypes": ("DType", "dtype"),
    "neuron_ir.diagnostics": ("Diagnostic", "IRError"),
    "neuron_ir.builder": ("Builder",),
    "neuron_ir.parser": ("parse",),
    "neuron_ir.weights": ("load",),
    "neuron_ir.passmanager": ("Pass", "run_passes"),
    "neuron_ir.frontends.torch": ("from_torch", "register_lowering"),
    "neuron_ir.frontends.jax": ("from_jax", "from_stablehlo", "to_stablehlo"),
    "neuron_ir.frontends.explain": ("explain",),
    "neuron_ir.backends.base": ("compile",),
    "neuron_ir.backends.jax_cpu": ("bisect", "calibrate", "precision_report", "tune_precision"),
    "neuron_ir.precision_policy": ("PrecisionPolicy",),
    "neuron_ir.loss_scaling": ("LossScaler",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF]

if TYPE_CHECKING:
    from neuron_ir.backends.base import compile as compile
    from neuron_ir.backends.jax_cpu import bisect as bisect
    from neuron_ir.backends.jax_cpu import calibrate as calibrate
    from neuron_ir.backends.jax_cpu import precision_report as precision_report
    from neuron_ir.backends.jax_cpu import tune_precision as tune_precision
    from neuron_ir.builder import Builder as Builder
    from neuron_ir.core import Block as Block
    from neuron_ir.core import Func as Func
    from neuron_ir.core import Module as Module
    from neuron_ir.core import Op as Op
    from neuron_ir.core import Value as Value
    from neuron_ir.diagnostics import Diagnostic as Diagnostic
    from neuron_ir.diagnostics import IRError as IRError
    from neuron_ir.dims import Dim as Dim
    from neuron_ir.dims import symbol as symbol
    from neuron_ir.dtypes import DType as DType
    from neuron_ir.dtypes import dtype as dtype
    from neuron_ir.frontends.explain import explain as explain
    from neuron_ir.frontends.jax import from_jax as from_jax
    from neuron_ir.frontends.jax import from_stablehlo as from_stablehlo
    from neuron_ir.frontends.jax import to_stablehlo as to_stablehlo
    from neuron_ir.frontends.torch import from_torch as from_torch
    from neuron_ir.frontends.torch import register_lowering as register_lowering
    from neuron_ir.loss_scaling import LossScaler as LossScaler
    from neuron_ir.parser import parse as parse
    from neuron_ir.passmanager import Pass as Pass
    from neuron_ir.passmanager import run_passes as run_passes
    from neuron_ir.precision_policy import PrecisionPolicy as PrecisionPolicy
    from neuron_ir.types import Layout as Layout
    from neuron_ir.types import TensorType as TensorType
    from neuron_ir.types import tensor as tensor
    from neuron_ir.weights import load as load


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'neuron_ir' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
