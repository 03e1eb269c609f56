"""Lowering rules for the platform ``neuron``: what JAX only lowers through LAPACK or a vendor library.

Factorisations become plain StableHLO (:mod:`linalg`). The nonsymmetric eigenvalue problem and the Schur form stay whole,
as custom calls ``neuron.eig`` and ``neuron.schur``; Python callbacks become ``neuron.host_callback``. Rules of other
platforms are untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from neuron_ir.frontends.jax import _compat, callbacks, linalg
from neuron_ir.frontends.jax._compat import ir

Rule = Callable[..., Sequence[Any]]


def _plain(function: Callable[..., Any], *, multiple: bool = True) -> Rule:
    """A rule that lowers by tracing ``function``."""
    return _compat.get("lower_fun")(function, multiple_results=multiple)


def _eigh(x: jax.Array, *, lower: bool, sort_eigenvalues: bool, subset_by_index: Any, algorithm: Any) -> Any:
    del algorithm  # an implementation preference; the result is the same
    n = x.shape[-1]
    if not _compat.get("is_constant_dim")(n):
        raise NotImplementedError(f"eigh of {x.dtype}{list(x.shape)}: the matrix size must not be symbolic")
    if n <= linalg.JACOBI_LIMIT:
        return linalg.eigh(x, lower=lower, sort=sort_eigenvalues, subset=subset_by_index)
    return _compat.get("qdwh_eigh")(x, lower=lower, sort_eigenvalues=sort_eigenvalues, subset_by_index=subset_by_index)


def _svd(x: jax.Array, *, full_matrices: bool, compute_uv: bool, subset_by_index: Any, algorithm: Any = None) -> Any:
    del algorithm  # an implementation preference; the result is the same
    m, n = x.shape[-2:]
    if m == 0 or n == 0:
        return _compat.get("empty_svd")(x, full_matrices=full_matrices, compute_uv=compute_uv)
    return _compat.get("qdwh_svd")(x, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index)


def _approx_top_k(
    operand: jax.Array,
    *,
    k: int,
    reduction_dimension: int,
    is_max_k: bool,
    recall_target: float,
    reduction_input_size_override: int,
    aggregate_to_topk: bool,
) -> tuple[jax.Array, jax.Array]:
    """Exact top k: recall 1 meets every target. Without aggregation the result is as long as JAX's shape rule says."""
    axis = reduction_dimension % operand.ndim
    length = k
    if not aggregate_to_topk:
        abstract = partial(
            _compat.get("approx_top_k_p").bind,
            k=k,
            reduction_dimension=axis,
            recall_target=recall_target,
            is_max_k=is_max_k,
            reduction_input_size_override=reduction_input_size_override,
            aggregate_to_topk=False,
        )
        length = jax.eval_shape(abstract, operand)[0].shape[axis]
    if is_max_k:
        values, order = lax.top_k(operand, length, axis=axis)
        return values, order
    index = lax.broadcasted_iota(jnp.int32, operand.shape, axis)
    values, order = lax.sort((operand, index), dimension=axis, num_keys=1)
    return lax.slice_in_dim(values, 0, length, axis=axis), lax.slice_in_dim(order, 0, length, axis=axis)


def _geqp3(a: jax.Array, jpvt: jax.Array, *, use_magma: Any) -> Any:
    del use_magma
    return linalg.geqp3(a, jpvt)


def _attribute(value: Any) -> Any:
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    return ir.StringAttr.get(value)


def _call(ctx: Any, target: str, operands: Sequence[Any], config: dict[str, Any], *, tokens: int = 0, effect: bool = False) -> Any:
    """Emit ``stablehlo.custom_call @target`` whose results are the primitive's, after ``tokens`` leading tokens."""
    types = [_compat.get("aval_to_ir_type")(ctx.module_context, aval) for aval in ctx.avals_out]
    shapes = None
    if not all(_compat.get("is_constant_shape")(aval.shape) for aval in ctx.avals_out):
        shapes = [_compat.get("eval_dynamic_shape_as_tensor")(ctx, aval.shape) for aval in ctx.avals_out]
    call = _compat.get("custom_call")(
        target,
        result_types=[_compat.get("token_type")()] * tokens + types,
        operands=operands,
        backend_config={name: _attribute(value) for name, value in config.items()},
        has_side_effect=effect,
        result_shapes=shapes,
    )
    return list(call.results)


def _eig(ctx: Any, operand: Any, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool, **_preferences: Any) -> Any:
    config = {"left": compute_left_eigenvectors, "right": compute_right_eigenvectors}
    return _call(ctx, "neuron.eig", [operand], config)


def _schur(ctx: Any, operand: Any, *, compute_schur_vectors: bool, sort_eig_vals: bool, select_callable: Any) -> Any:
    if sort_eig_vals:
        raise NotImplementedError("schur with sort_eig_vals=True")
    return _call(ctx, "neuron.schur", [operand], {"vectors": compute_schur_vectors})


def _host_call(ctx: Any, args: Sequence[Any], function: Any, kind: str, effect: Any = None) -> Any:
    """Emit a callback; an ordered effect is a token that goes in and comes out."""
    number = callbacks.keep(callbacks.HostCallback(function, kind, effect is not None))
    config = {"callback": number, "kind": kind}
    if effect is None:
        return _call(ctx, callbacks.TARGET, args, config, effect=kind != "pure")
    token, *results = _call(ctx, callbacks.TARGET, [ctx.tokens_in.get(effect), *args], config, tokens=1, effect=True)
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(_compat.get("TokenSet")({effect: token})))
    return results


def _pure_callback(ctx: Any, *args: Any, callback: Any, sharding: Any, **params: Any) -> Any:
    del sharding
    function = partial(_compat.get("pure_callback_impl"), callback=callback, sharding=None, **params)
    return _host_call(ctx, args, function, "pure")


def _io_callback(ctx: Any, *args: Any, callback: Any, sharding: Any, ordered: bool, **params: Any) -> Any:
    del sharding
    function = partial(_compat.get("io_callback_impl"), callback=callback, sharding=None, ordered=ordered, **params)
    return _host_call(ctx, args, function, "io", _compat.get("ordered_io_effect") if ordered else None)


def _debug_callback(ctx: Any, *args: Any, effect: Any, partitioned: bool, callback: Any, **params: Any) -> Any:
    function = partial(_compat.get("debug_callback_p").impl, effect=effect, partitioned=partitioned, callback=callback, **params)
    ordered = _compat.get("ordered_effects").contains(effect)
    return _host_call(ctx, args, function, "debug", effect if ordered else None)


def _debug_print(
    ctx: Any,
    *args: Any,
    fmt: str,
    ordered: bool,
    partitioned: bool,
    in_tree: Any,
    static_args: Any,
    np_printoptions: Any,
    has_placeholders: bool,
    logging_record: Any,
) -> Any:
    printer = partial(_compat.get("format_print"), fmt, dict(np_printoptions), has_placeholders, logging_record)
    callback = _compat.get("flat_callback")(in_tree, printer, static_args)
    effect = _compat.get("ordered_debug_effect" if ordered else "debug_effect")
    return _debug_callback(ctx, *args, effect=effect, partitioned=partitioned, callback=callback)


@cache
def register() -> None:
    """Register all rules once. Other platforms' rules, and JAX's defaults, stay as they are."""
    traced: dict[str, Callable[..., Any]] = {
        "eigh_p": _eigh,
        "svd_p": _svd,
        "geqrf_p": linalg.geqrf,
        "geqp3_p": _geqp3,
        "hessenberg_p": linalg.hessenberg,
        "tridiagonal_p": linalg.tridiagonal,
        "approx_top_k_p": _approx_top_k,
    }
    for name, function in traced.items():
        _compat.set_lowering(_compat.get(name), _plain(function))
    product = _plain(linalg.householder_product, multiple=False)
    _compat.set_lowering(_compat.get("householder_product_p"), product)
    _compat.set_lowering(_compat.get("eig_p"), _eig)
    _compat.set_lowering(_compat.get("schur_p"), _schur)
    # Each trace has its own Python function, so a cached lowering would call another trace's.
    for name, rule in {
        "pure_callback_p": _pure_callback,
        "io_callback_p": _io_callback,
        "debug_callback_p": _debug_callback,
        "debug_print_p": _debug_print,
    }.items():
        _compat.set_lowering(_compat.get(name), rule, cacheable=False)
