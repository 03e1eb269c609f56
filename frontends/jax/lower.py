"""A JAX function into StableHLO for the platform ``neuron``, with its names, pytrees, symbols and captured constants."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from neuron_ir.diagnostics import Diagnostic, IRError, fail
from neuron_ir.frontends.jax import _compat, rules
from neuron_ir.frontends.jax._compat import PLATFORM, ir
from neuron_ir.locations import UNKNOWN_LOC, FileLoc
from neuron_ir.trees import keyed, named

#: Captured arrays smaller than this stay constants of the text.
WEIGHT_BYTES = 4096
_CAPTURE_FUNCTIONS = 200  # functions looked through for the names of captured arrays


@dataclass(frozen=True)
class Argument:
    """One flat input: ``shape`` holds numbers and, for symbolic sizes, expressions such as ``"b"`` or ``"2*b"``.

    ``used`` is false for an input that JAX dropped from the module. ``donated`` inputs may be overwritten.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: np.dtype
    used: bool = True
    donated: bool = False


@dataclass(frozen=True)
class Result:
    """One flat output."""

    name: str
    shape: tuple[int | str, ...]
    dtype: np.dtype


@dataclass(frozen=True)
class Constant:
    """An array that the function captured, without a copy. ``name`` is the variable's where it could be found, else empty."""

    name: str
    array: np.ndarray


@dataclass(frozen=True)
class Symbol:
    """A symbolic size with its known bounds; ``high`` is None when unbounded."""

    name: str
    low: int
    high: int | None


@dataclass(frozen=True)
class Lowered:
    """A StableHLO module as jaxlib's own MLIR object, with what the module itself does not say.

    ``output_tree`` says how the outputs nest (:mod:`neuron_ir.trees`).
    """

    module: ir.Module
    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Result, ...]
    output_tree: Any
    constants: tuple[Constant, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    owner: Any = field(default=None, repr=False, compare=False)  # keeps alive what the MLIR module points into


def lower(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Lowered:
    """Trace ``function`` and lower it to StableHLO for the platform ``neuron``.

    Arguments are arrays, Python numbers, ``jax.ShapeDtypeStruct`` or pytrees of them. Symbolic sizes come from
    ``jax.export.symbolic_shape``. A function that is already jitted keeps its static and donated arguments.
    Raises :class:`IRError` naming every primitive without a lowering and its source line; errors that the function itself
    raises while it is traced pass unchanged.
    """
    _compat.check()
    _compat.hide_frames(__file__)
    rules.register()
    jitted: Any = function
    if not hasattr(function, "trace"):
        _check_arguments(args, kwargs)
        jitted = jax.jit(function, keep_unused=True)
    traced = jitted.trace(*args, **kwargs)
    symbolic = any(isinstance(dim, str) for aval in traced.jaxpr.in_avals for dim in _shape(aval))
    try:
        lowered = _export(function, jitted, traced, args, kwargs) if symbolic else _lower(function, traced)
    except NotImplementedError as error:
        raise _unsupported(traced.jaxpr.jaxpr, error) from error
    return lowered


def _lower(function: Any, traced: Any) -> Lowered:
    staged = traced.lower(lowering_platforms=(PLATFORM,))
    infos = jax.tree.leaves(staged.args_info)
    kept = staged._lowering.compile_args["kept_var_idx"]
    names, results = _names(traced, len(infos))
    inputs = tuple(
        Argument(name, *_type(info), i in kept, info.donated) for i, (name, info) in enumerate(zip(names, infos, strict=True))
    )
    return Lowered(
        module=staged.compiler_ir("stablehlo"),
        name=traced.fun_name,
        inputs=inputs,
        outputs=_results(results, traced.jaxpr.out_avals),
        output_tree=_tree(staged.out_tree),
        constants=_captured(traced, function),
        owner=staged,
    )


def _export(function: Any, jitted: Any, traced: Any, args: Any, kwargs: Any) -> Lowered:
    """Lower with symbolic sizes. JAX's exporter adds the checks on the sizes that the constraints demand."""
    allowed = [jax.export.DisabledSafetyCheck.custom_call(name) for name in ("neuron.eig", "neuron.schur")]
    exported = jax.export.export(jitted, platforms=(PLATFORM,), disabled_checks=allowed)(*args, **kwargs)
    context = _compat.get("make_ir_context")()
    with context:
        module = _compat.stablehlo.deserialize_portable_artifact(context, exported.mlir_module_serialized)
    names, results = _names(traced, len(exported.in_avals))
    infos = jax.tree.leaves(traced.args_info)
    kept = set(exported.module_kept_var_idx)
    inputs = tuple(
        Argument(name, *_type(aval), i in kept, info.donated)
        for i, (name, aval, info) in enumerate(zip(names, exported.in_avals, infos, strict=True))
    )
    return Lowered(
        module=module,
        name=exported.fun_name,
        inputs=inputs,
        outputs=_results(results, exported.out_avals),
        output_tree=_tree(exported.out_tree),
        constants=_captured(traced, function),
        symbols=_symbols(exported.in_avals),
        owner=exported,
    )


def _shape(aval: Any) -> tuple[int | str, ...]:
    return tuple(dim if isinstance(dim, int) else str(dim) for dim in aval.shape)


def _type(aval: Any) -> tuple[tuple[int | str, ...], np.dtype[Any]]:
    """Sizes and element type; of a typed random key those of its data, which is what the lowered program takes and gives."""
    if jax.numpy.issubdtype(aval.dtype, jax.dtypes.prng_key):
        aval = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(aval.shape, aval.dtype))
    return _shape(aval), np.dtype(aval.dtype)


def _names(traced: Any, count: int) -> tuple[list[str], list[str]]:
    info = traced.jaxpr.jaxpr.debug_info
    names = list(info.arg_names or ())
    if len(names) != count:
        names = [f"arg{i}" for i in range(count)]
    return [n or f"arg{i}" for i, n in enumerate(names)], list(info.result_paths or ())


def _results(names: list[str], avals: Iterable[Any]) -> tuple[Result, ...]:
    avals = list(avals)
    if len(names) != len(avals):
        names = [f"result{i}" for i in range(len(avals))]
    return tuple(Result(n, *_type(a)) for n, a in zip(names, avals, strict=True))


def _tree(definition: Any) -> Any:
    """The tree that a JAX tree definition describes."""
    data = definition.node_data()
    if data is None:
        return ...
    kind, keys = data
    parts = [_tree(part) for part in definition.children()]
    if kind is type(None):
        return None
    if issubclass(kind, dict):
        return keyed(keys[1] if kind is defaultdict else keys, parts)
    if kind in (list, tuple):
        return kind(parts)
    fields = _fields(definition, len(parts))
    return named(kind.__name__, fields, parts) if len(fields) == len(parts) else tuple(parts)


def _fields(definition: Any, count: int) -> list[str]:
    """The names of the parts of an object, where its class tells them to JAX."""
    try:
        whole = jax.tree.unflatten(definition, range(definition.num_leaves))
        steps = [path for path, _ in jax.tree_util.tree_leaves_with_path(whole, is_leaf=lambda part: part is not whole)]
    except Exception:  # a class of the user's that cannot hold numbers in the place of arrays
        return []
    return [str(step.name) for path in steps for step in path[:1] if hasattr(step, "name")]


def _symbols(avals: Iterable[Any]) -> tuple[Symbol, ...]:
    """The size variables of the inputs with the bounds that JAX can prove from the scope's constraints."""
    found: dict[str, Symbol] = {}
    best = _compat.get("BoundsPrecision").BEST
    for dim in (dim for aval in avals for dim in aval.shape if not isinstance(dim, int)):
        for name in sorted(dim._get_vars()):
            if name in found:
                continue
            (variable,) = jax.export.symbolic_shape(name, scope=dim.scope)
            low, high = _compat.get("shape_bounds")(variable, best)
            found[name] = Symbol(name, int(low), None if high == np.inf else int(high))
    return tuple(found.values())


def _check_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise an :class:`IRError` that names the leaves which are no arrays."""
    wrong = []
    for path, leaf in jax.tree_util.tree_leaves_with_path((args, dict(kwargs))):
        if isinstance(leaf, (bool, int, float, complex, np.ndarray, np.generic, jax.Array)):
            continue
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            where = "args" if path[0].idx == 0 else "kwargs"
            wrong.append(f"{where}{jax.tree_util.keystr(path[1:])} is a {type(leaf).__name__}, not an array")
    if wrong:
        note = "bind values that are not arrays with functools.partial, or mark them with jax.jit(..., static_argnames=...)"
        raise IRError([Diagnostic("input", message, notes=(note,)) for message in wrong])


def _captured(traced: Any, function: Any) -> tuple[Constant, ...]:
    """Arrays of at least ``WEIGHT_BYTES`` that the traced function captured, nested jits included."""
    arrays: dict[int, np.ndarray] = {}
    for closed in _closed_jaxprs(traced.jaxpr):
        for value in closed.consts:
            if isinstance(value, (np.ndarray, jax.Array)) and not jax.numpy.issubdtype(value.dtype, jax.dtypes.extended):
                if value.nbytes >= WEIGHT_BYTES:
                    arrays[id(value)] = np.asarray(value)
    if not arrays:
        return ()
    names = _variable_names(function, {key: _address(array) for key, array in arrays.items()})
    return tuple(Constant(names.get(key, ""), array) for key, array in arrays.items())


def _closed_jaxprs(closed: Any) -> Iterator[Any]:
    """``closed`` and every closed jaxpr inside its equations, each once."""
    seen: set[Any] = set()
    stack = [closed]
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if hasattr(item, "consts"):
            yield item
        body = getattr(item, "jaxpr", item)
        for equation in body.eqns:
            for value in equation.params.values():
                stack.extend(v for v in (value if isinstance(value, (tuple, list)) else (value,)) if _is_jaxpr(v))


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns")


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _variable_names(function: Any, wanted: Mapping[int, int]) -> dict[int, str]:
    """Names of captured arrays, from the variables that the code of the function, and of those it refers to, mentions.

    ``wanted`` maps an array's identity to its address: JAX may have wrapped the variable's array in one of its own.
    """
    names: dict[int, str] = {}
    places = {address: key for key, address in wanted.items()}
    queue: list[Any] = [function]
    seen: set[Any] = set()
    while queue and len(seen) < _CAPTURE_FUNCTIONS and len(names) < len(wanted):
        current = inspect.unwrap(queue.pop(0))
        current = getattr(current, "__func__", current)
        if not inspect.isfunction(current) or current in seen or current.__module__.split(".")[0] in ("jax", "numpy"):
            continue
        seen.add(current)
        scope = inspect.getclosurevars(current)
        for variable, value in {**scope.globals, **scope.nonlocals}.items():
            if callable(value) and not isinstance(value, type):
                queue.append(value)
            for path, leaf in jax.tree_util.tree_leaves_with_path(value):
                key = places.get(_address(leaf), 0) if isinstance(leaf, np.ndarray) else id(leaf)
                if key in wanted:
                    names.setdefault(key, variable + jax.tree_util.keystr(path))
    return names


def _unsupported(jaxpr: Any, error: NotImplementedError) -> IRError:
    """All primitives of the program that have no lowering, each with the user's line; else JAX's own words."""
    diagnostics: dict[tuple[str, Any], Diagnostic] = {}
    ours, common = _compat.get("platform_lowerings")[PLATFORM], _compat.get("lowerings")
    stack, seen = [jaxpr], set()
    while stack:
        body = stack.pop()
        body = getattr(body, "jaxpr", body)
        if id(body) in seen:
            continue
        seen.add(id(body))
        for equation in body.eqns:
            stack.extend(_compat.get("jaxprs_in_params")(equation.params))
            if equation.primitive in ours or equation.primitive in common:
                continue
            place = _place(equation)
            message = f"JAX primitive {equation.primitive.name!r} has no lowering for the platform {PLATFORM}"
            diagnostics[equation.primitive.name, place] = Diagnostic("unsupported", message, place)
    if not diagnostics:
        return fail("unsupported", str(error))
    return IRError(list(diagnostics.values()))


def _place(equation: Any) -> FileLoc:
    frame = _compat.get("user_frame")(equation.source_info.traceback)
    return FileLoc(frame.file_name, frame.start_line, frame.start_column + 1) if frame else UNKNOWN_LOC
