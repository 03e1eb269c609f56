"""The one home of private JAX and jaxlib names, with the versions on which they were tried.

``check()`` imports every name and says in one sentence which one is missing, so that a wrong JAX fails at start-up and
not in the middle of an import. Names are fetched on first use: ``_compat.get("mlir.lower_fun")``.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import jax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, func, sdy, stablehlo

__all__ = ["PLATFORM", "TRIED", "check", "chlo", "func", "get", "hide_frames", "ir", "sdy", "set_lowering", "stablehlo"]

#: The platform name under which JAX programs are lowered.
PLATFORM = "neuron"
TRIED = ("0.10",)

_MLIR = "jax._src.interpreters.mlir"
_LINALG = "jax._src.lax.linalg"
_CALLBACK = "jax._src.callback"
_DEBUGGING = "jax._src.debugging"

_NAMES: dict[str, tuple[str, str]] = {
    "make_ir_context": (_MLIR, "make_ir_context"),
    "lower_fun": (_MLIR, "lower_fun"),
    "custom_call": (_MLIR, "custom_call"),
    "aval_to_ir_type": (_MLIR, "aval_to_ir_type"),
    "eval_dynamic_shape_as_tensor": (_MLIR, "eval_dynamic_shape_as_tensor"),
    "token_type": (_MLIR, "token_type"),
    "TokenSet": (_MLIR, "TokenSet"),
    "LoweringRuleEntry": (_MLIR, "LoweringRuleEntry"),
    "platform_lowerings": (_MLIR, "_platform_specific_lowerings"),
    "lowerings": (_MLIR, "_lowerings"),
    "uncacheable_primitives": (_MLIR, "_uncacheable_primitives"),
    "is_constant_shape": ("jax._src.core", "is_constant_shape"),
    "is_constant_dim": ("jax._src.core", "is_constant_dim"),
    "jaxprs_in_params": ("jax._src.core", "jaxprs_in_params"),
    "shape_bounds": ("jax._src.export.shape_poly", "_bounds_decision"),
    "BoundsPrecision": ("jax._src.export.shape_poly", "BoundsPrecision"),
    "user_frame": ("jax._src.source_info_util", "user_frame"),
    "register_exclusion": ("jax._src.source_info_util", "register_exclusion"),
    "ordered_effects": ("jax._src.effects", "ordered_effects"),
    "eigh_p": (_LINALG, "eigh_p"),
    "eig_p": (_LINALG, "eig_p"),
    "svd_p": (_LINALG, "svd_p"),
    "schur_p": (_LINALG, "schur_p"),
    "geqrf_p": (_LINALG, "geqrf_p"),
    "geqp3_p": (_LINALG, "geqp3_p"),
    "householder_product_p": (_LINALG, "householder_product_p"),
    "hessenberg_p": (_LINALG, "hessenberg_p"),
    "tridiagonal_p": (_LINALG, "tridiagonal_p"),
    "empty_svd": (_LINALG, "_empty_svd"),
    "qdwh_eigh": ("jax._src.tpu.linalg.eigh", "_eigh_qdwh_impl"),
    "qdwh_svd": ("jax._src.tpu.linalg.svd", "_svd_tpu"),
    "approx_top_k_p": ("jax._src.lax.ann", "approx_top_k_p"),
    "pure_callback_p": (_CALLBACK, "pure_callback_p"),
    "pure_callback_impl": (_CALLBACK, "pure_callback_impl"),
    "io_callback_p": (_CALLBACK, "io_callback_p"),
    "io_callback_impl": (_CALLBACK, "io_callback_impl"),
    "ordered_io_effect": (_CALLBACK, "_OrderedIOEffect"),
    "debug_callback_p": (_DEBUGGING, "debug_callback_p"),
    "debug_print_p": (_DEBUGGING, "debug_print_p"),
    "ordered_debug_effect": (_DEBUGGING, "ordered_debug_effect"),
    "debug_effect": (_DEBUGGING, "debug_effect"),
    "format_print": (_DEBUGGING, "_format_print_callback"),
    "flat_callback": (_DEBUGGING, "_make_flat_callback"),
}


@cache
def get(name: str) -> Any:
    """Give the private JAX object called ``name``; raises ImportError with the JAX versions that work."""
    module_name, attribute = _NAMES[name]
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ImportError(_complaint(f"{module_name}.{attribute} is missing")) from error


def _complaint(what: str) -> str:
    return f"{what} in jax {jax.__version__}; this front end was tried on jax {', '.join(f'{v}.x' for v in TRIED)}"


@cache
def check() -> None:
    """Import every private name once; raises ImportError naming the first that is missing and the versions that work."""
    for name in _NAMES:
        get(name)


def set_lowering(primitive: Any, rule: Any, *, cacheable: bool = True) -> None:
    """Make ``rule`` the lowering of ``primitive`` for our platform alone.

    JAX's ``register_lowering`` refuses platforms without a plugin; the table behind it is keyed by platform name.
    """
    if not cacheable:
        get("uncacheable_primitives").add(primitive)
    get("platform_lowerings")[PLATFORM][primitive] = get("LoweringRuleEntry")(rule, True)


@cache
def hide_frames(file: str) -> None:
    """Leave the frames of ``file`` out of the source locations that JAX records."""
    get("register_exclusion")(file)
