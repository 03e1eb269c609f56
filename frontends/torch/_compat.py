"""The one home of private torch names, with the versions on which they were tried.

Everything here was run on torch 2.13. `check()` imports every name and says in one sentence which
one is missing, so that a wrong torch version fails at start-up and not in the middle of an import.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import cache, partial
from typing import Any

TRIED = ("2.13",)

_NAMES: dict[str, tuple[str, str]] = {
    "CacheArtifact": ("torch.compiler._cache", "CacheArtifact"),
    "CacheArtifactFactory": ("torch.compiler._cache", "CacheArtifactFactory"),
    "CacheArtifactManager": ("torch.compiler._cache", "CacheArtifactManager"),
    "DispatchKey": ("torch._C", "DispatchKey"),
    "DispatchKeySet": ("torch._C", "DispatchKeySet"),
    "CustomDecompTable": ("torch.export.decomp_utils", "CustomDecompTable"),
    "counters": ("torch._dynamo.utils", "counters"),
    "decomposition_table": ("torch._decomp", "decomposition_table"),
    "FakeTensor": ("torch._subclasses.fake_tensor", "FakeTensor"),
    "FakeTensorMode": ("torch._subclasses.fake_tensor", "FakeTensorMode"),
    "unset_fake_temporarily": ("torch._subclasses.fake_tensor", "unset_fake_temporarily"),
    "HigherOrderOperator": ("torch._ops", "HigherOrderOperator"),
    "OpOverload": ("torch._ops", "OpOverload"),
    "OpOverloadPacket": ("torch._ops", "OpOverloadPacket"),
    "aot_export_joint_simple": ("torch._functorch.aot_autograd", "aot_export_joint_simple"),
    "aot_export_module": ("torch._functorch.aot_autograd", "aot_export_module"),
    "aot_module_simplified": ("torch._functorch.aot_autograd", "aot_module_simplified"),
    "dispatch_functionalize": ("torch._subclasses.functional_tensor", "dispatch_functionalize"),
    "flex_attention_forward": ("torch._higher_order_ops.flex_attention", "math_attention"),
    "flex_attention_backward": ("torch._higher_order_ops.flex_attention", "sdpa_dense_backward"),
    "flex_attention_joint": ("torch._higher_order_ops.flex_attention", "create_fw_bw_graph"),
    "getitem_as_index": ("torch._dynamo._trace_wrapped_higher_order_op", "TransformGetItemToIndex"),
    "generic_associative_scan": ("torch._higher_order_ops.associative_scan", "generic_associative_scan"),
    "get_kernel": ("torch.library", "get_kernel"),
    "out_dtype_fallback": ("torch._higher_order_ops.out_dtype", "out_dtype_fallback"),
    "get_debug_dir": ("torch._dynamo.utils", "get_debug_dir"),
    "has_kernel": ("torch._C", "_dispatch_has_kernel_for_dispatch_key"),
    "register_log": ("torch._logging._internal", "register_log"),
    "vmap_for_places": ("torch.nn.attention.flex_attention", "_vmap_for_bhqkv"),
    "while_loop": ("torch._higher_order_ops.while_loop", "while_loop_op"),
    "tree_flatten_with_path": ("torch.utils._pytree", "tree_flatten_with_path"),
    "tree_leaves": ("torch.utils._pytree", "tree_leaves"),
    "tree_map": ("torch.utils._pytree", "tree_map"),
    "tree_unflatten": ("torch.utils._pytree", "tree_unflatten"),
}


@cache
def get(name: str) -> Any:
    """Give the private torch object called `name`; raises ImportError with the torch versions that work."""
    module_name, attribute = _NAMES[name]
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ImportError(_complaint(f"{module_name}.{attribute} is missing")) from error


def check() -> None:
    """Import torch and every private name used; raise one ImportError that lists all that are missing."""
    missing = []
    for name, (module_name, attribute) in _NAMES.items():
        try:
            get(name)
        except ImportError:
            missing.append(f"{module_name}.{attribute}")
    if missing:
        raise ImportError(_complaint(f"missing: {', '.join(missing)}"))


def is_composite(op: Any) -> bool:
    """True for an OpOverload that torch itself writes in terms of other operations (CompositeImplicitAutograd)."""
    return bool(get("has_kernel")(op.name(), "CompositeImplicitAutograd"))


def composite_kernel(op: Any) -> Any:
    """The implementation of an OpOverload in terms of other operations, as a function; ``None`` where it has none."""
    if not any(get("has_kernel")(op.name(), key) for key in ("CompositeExplicitAutograd", "CompositeImplicitAutograd")):
        return None
    keys = get("DispatchKeySet")(get("DispatchKey").CPU)
    return partial(get("get_kernel")(op, "CPU").call_boxed, keys)


def with_graph_module(program: Any, graph_module: Any, signature: Any) -> Any:
    """A copy of an ExportedProgram with another graph, whose results may have other names, and its signature."""
    results = next(n for n in reversed(graph_module.graph.nodes) if n.op == "output").args[0]
    named = [
        replace(spec, arg=replace(spec.arg, name=result.name)) if hasattr(result, "name") and hasattr(spec.arg, "name") else spec
        for spec, result in zip(signature.output_specs, results, strict=True)
    ]
    return program._update(graph_module, replace(signature, output_specs=named))


def guards(program: Any) -> tuple[str, ...]:
    """The conditions on sizes under which an ExportedProgram was traced, as Python text about its arguments."""
    return tuple(program._guards_code)


def _complaint(what: str) -> str:
    try:
        version = importlib.import_module("torch").__version__
    except ImportError:
        return "the torch front end needs torch, which is not installed: pip install 'neuron-ir[torch]'"
    tried = ", ".join(TRIED)
    return f"the torch front end was made for torch {tried} and found torch {version}: {what}"
