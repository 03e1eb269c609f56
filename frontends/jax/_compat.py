"""The one home of private JAX and jaxlib names, with the versions on which they were tried.

``check()`` imports every name and says in one sentence which one is missing, so that a wrong JAX fails at start-up and
not in the middle of an import. Names are fetched on first use: ``_compat.get("mlir.lower_fun")``.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import chlo, func, sdy, stablehlo

__all__ = [
    "PLATFORM",
    "TRIED",
    "build_options",
    "check",
    "chlo",
    "compile_settings",
    "expand_chlo",
    "func",
    "get",
    "hide_frames",
    "ir",
    "load_quant",
    "make_plugin_client",
    "on_cpu",
    "op_names",
    "register_platform",
    "sdy",
    "set_lowering",
    "stablehlo",
]

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
    "register_backend_factory": ("jax._src.xla_bridge", "register_backend_factory"),
    "make_pjrt_c_api_client": ("jax._src.xla_bridge", "make_pjrt_c_api_client"),
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


def register_platform(factory: Callable[[], Any], priority: int) -> None:
    """Make ``factory`` the way to the client of our platform.

    Where the user names this platform alone, the CPU is made available behind it: JAX itself runs callbacks there.
    """
    get("register_backend_factory")(PLATFORM, factory, priority=priority, fail_quietly=True)
    if jax.config.values["jax_platforms"] == PLATFORM:
        jax.config.update("jax_platforms", f"{PLATFORM},cpu")


def on_cpu() -> Any:
    """A context in which JAX computes on its own CPU device, whatever its default platform."""
    return jax.default_device(jax.local_devices(backend="cpu")[0])


def build_options(serialised: bytes) -> Any:
    """How JAX wants a program built: the devices, replicas and partitions of a serialised ``CompileOptionsProto``."""
    from jaxlib import xla_client

    return xla_client.CompileOptions.ParseFromString(serialised).executable_build_options


def compile_settings(serialised: bytes) -> dict[str, str]:
    """The user's ``compiler_options`` in a serialised ``CompileOptionsProto``."""
    from jaxlib import xla_client

    return {name: str(value) for name, value in xla_client.CompileOptions.ParseFromString(serialised).env_option_overrides}


def make_plugin_client(capsule: Any) -> Any:
    """A client of the plugin whose functions the capsule holds. Raises ImportError for a JAX on which it was not tried."""
    from jaxlib import xla_client

    if not jax.__version__.startswith(TRIED):
        raise ImportError(_complaint("the plugin speaks PJRT's C API as that JAX's is unknown"))
    if not xla_client.pjrt_plugin_loaded(PLATFORM):
        xla_client.load_pjrt_plugin_with_c_api(PLATFORM, capsule)
    return get("make_pjrt_c_api_client")(PLATFORM)


@cache
def hide_frames(file: str) -> None:
    """Leave the frames of ``file`` out of the source locations that JAX records."""
    get("register_exclusion")(file)


_QUANTISED = "!vhlo.tensor_v1<!vhlo.quant_v1<!vhlo.i8_v1:!vhlo.f32_v1, 1.0:0, -128:127, 1>>"
_IDENTITY = f"""
"vhlo.func_v1"() <{{arg_attrs = #vhlo.array_v1<[]>, res_attrs = #vhlo.array_v1<[]>, sym_name = #vhlo.string_v1<"main">,
  function_type = #vhlo.type_v1<!vhlo.func_v1<({_QUANTISED}) -> {_QUANTISED}>>, sym_visibility = #vhlo.string_v1<"">}}> ({{
  ^bb0(%x: {_QUANTISED}):
    "vhlo.return_v1"(%x) : ({_QUANTISED}) -> ()
}}) : () -> ()
"""


@cache
def quantised_identity() -> bytes:
    """The bytecode of a function of one quantised argument in VHLO, whose conversion loads the dialect of quantised types."""
    buffer = io.BytesIO()
    ir.Module.parse(_IDENTITY, context=get("make_ir_context")()).operation.write_bytecode(buffer)
    return buffer.getvalue()


def load_quant(context: ir.Context) -> None:
    """Make ``context`` read types such as ``!quant.uniform<i8:f32, 0.5:3>``.

    jaxlib links MLIR's ``quant`` dialect but neither registers it nor binds it to Python: only reading a portable artefact with
    such a type loads it.
    """
    stablehlo.deserialize_portable_artifact(context, quantised_identity())


@cache
def _register_passes() -> None:
    stablehlo.register_stablehlo_passes()


def expand_chlo(module: ir.Module) -> None:
    """Write every CHLO op of ``module``, in place, as the StableHLO ops that it stands for, where MLIR has them."""
    _register_passes()
    with module.context:
        manager = passmanager.PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))")
        manager.run(module.operation)


def op_names(dialect: Any) -> list[str]:
    """The names of a dialect's ops, from the classes that jaxlib generates for it."""
    generated = importlib.import_module(f"jaxlib.mlir.dialects._{dialect.__name__.rpartition('.')[2]}_ops_gen")
    return sorted({c.OPERATION_NAME for c in vars(generated).values() if isinstance(c, type) and hasattr(c, "OPERATION_NAME")})
