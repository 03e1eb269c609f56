"""Neuron IR into StableHLO: the program is traced by its meaning and lowered by JAX for the platform ``neuron``.

Every op of the IR is covered this way, composites included, and what comes out is what JAX itself writes for the same arithmetic.
Each op is evaluated inside Python frames that carry its place, so that the user's files and lines stand in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

import jax
import numpy as np

import neuron_ir
from neuron_ir.core import Func, Module, Op
from neuron_ir.datasizes import bindings
from neuron_ir.diagnostics import fail
from neuron_ir.dialects.neuron.custom import TARGETS, read_config
from neuron_ir.frontends.jax import _compat, rules
from neuron_ir.frontends.jax._compat import PLATFORM, ir
from neuron_ir.locations import FileLoc, FusedLoc, Loc
from neuron_ir.meaning import Frame, Meaning, x64
from neuron_ir.specialise import check_ranges, specialise
from neuron_ir.types import TOKEN, TensorType

__all__ = ["export"]


def export(module: Module, sizes: Mapping[str, int] | None = None, *, locations: bool = False) -> str:
    """The text of ``@main`` as StableHLO. Arguments keep their order, weights among them; constants stand in the text.

    ``sizes`` gives each symbolic size a number. ``locations`` adds the user's files and lines. Raises :class:`IRError` for a size
    without a number and for ops without a meaning on one device.
    """
    _compat.check()
    rules.register()
    _hide_own_frames()
    for size, op in bindings(module.main).items():
        raise fail("unsupported", f"{op.name}: the size {size} depends on the data, which StableHLO text cannot hold", op.loc)
    open_sizes = [name for name in module.main.dims if name not in (sizes or {})]
    if open_sizes:
        raise fail("input", f"StableHLO text needs a number for the size(s) {', '.join(open_sizes)}", module.main.loc)
    if module.main.dims:
        check_ranges(module.main, sizes or {})
        module = specialise(module, sizes or {})
    func = module.main
    j = Meaning(lambda name: _weight(module, name), module)

    def program(*args: Any) -> tuple[Any, ...]:
        return _Located(j, None, {}).block(func.body, args)

    program.__name__ = module.name
    with x64():
        types = [jax.ShapeDtypeStruct(_static(func, a.type).shape, a.type.dtype.numpy) for a in func.args]
        lowered = jax.jit(program, keep_unused=True).trace(*types).lower(lowering_platforms=(PLATFORM,))
    made = lowered.compiler_ir("stablehlo")
    _put_names(made, func)
    _put_shardings(made, module)
    return str(made.operation.get_asm(enable_debug_info=locations))


def _static(func: Func, type: Any) -> TensorType:
    if not isinstance(type, TensorType) or not type.is_static:
        raise fail("unsupported", f"@{func.name}: an argument of type {type} cannot be exported", func.loc)
    return type


def _weight(module: Module, name: str) -> Any:
    if name not in module.weights:
        raise fail("weights", f"a constant refers to {name!r}, which the module's weights do not have", module.loc)
    array = module.weights[name]
    return array.detach().numpy() if hasattr(array, "detach") else array


def _put_names(made: Any, func: Func) -> None:
    """The user's names of arguments and results, where JAX's own programs have them."""
    main = _main(made)
    names = [str(a.get("name") or v.name or f"arg{i}") for i, (a, v) in enumerate(zip(func.arg_attrs, func.args, strict=True))]
    results = [str(a.get("name") or f"result[{i}]") for i, a in enumerate(func.result_attrs)]
    with made.context:
        for kind, key, given in (("arg_attrs", "jax.arg_info", names), ("res_attrs", "jax.result_info", results)):
            if not given:
                continue
            old = list(main.attributes[kind]) if kind in main.attributes else [ir.DictAttr.get({}) for _ in given]
            merged = [
                ir.DictAttr.get({**{e.name: e.attr for e in ir.DictAttr(d)}, key: ir.StringAttr.get(name)})
                for d, name in zip(old, given, strict=True)
            ]
            main.attributes[kind] = ir.ArrayAttr.get(merged)


def _put_shardings(made: Any, module: Module) -> None:
    """The shardings of arguments and results, with the meshes that they name. They change no value; inner ones are left out."""
    func, main = module.main, _main(made)
    with made.context, ir.Location.unknown():
        if "num_partitions" in module.attrs:
            parts = ir.IntegerType.get_signless(32)
            made.operation.attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(parts, module.attrs["num_partitions"])
        for text in module.attrs.get("meshes", ()):
            name, _, mesh = str(text).partition(" = ")
            ir.InsertionPoint.at_block_begin(made.body).insert(ir.Operation.parse(f"sdy.mesh {name} = {_inside_of(mesh)}"))
        for kind, given in (("arg_attrs", func.arg_attrs), ("res_attrs", func.result_attrs)):
            texts = [str(a.get("sharding") or "") for a in given]
            if any(texts):
                main.attributes[kind] = ir.ArrayAttr.get(
                    [
                        ir.DictAttr.get({**{e.name: e.attr for e in ir.DictAttr(d)}, **_sharding(text)})
                        for d, text in zip(main.attributes[kind], texts, strict=True)
                    ]
                )


def _custom_call(op: Op, operands: list[Any]) -> Any:
    """A ``stablehlo.custom_call`` with all that the op says; from version 4 on JAX writes the configuration as a dictionary."""
    if any(v.type is TOKEN for v in (*op.operands, *op.results)):
        raise op.error("unsupported", f"the target {op.get('call_target_name')!r} takes a token, which StableHLO text cannot hold")
    pairs, text, version = op.get("output_operand_aliases"), op.get("backend_config"), op.get("api_version")
    config = {name: np.int64(v) if type(v) is int else v for name, v in read_config(text).items()} if version >= 4 else {}
    call = jax.ffi.ffi_call(
        op.get("call_target_name"),
        [jax.ShapeDtypeStruct(r.type.shape, r.type.dtype.numpy) for r in op.results],
        has_side_effect=op.get("has_side_effect"),
        input_output_aliases=dict(zip(pairs[1::2], pairs[::2], strict=True)) or None,
        custom_call_api_version=version,
        legacy_backend_config=text if version < 4 else None,
    )
    return call(*operands, **config)


def _inside_of(mesh: str) -> str:
    """``#sdy.mesh<["x"=2]>`` as the op spells it: ``<["x"=2]>``."""
    return mesh.removeprefix("#sdy.mesh")


def _sharding(text: str) -> dict[str, Any]:
    """The attribute of a sharding in either of the two spellings."""
    if not text:
        return {}
    return {"sdy.sharding": ir.Attribute.parse(text)} if text.startswith("#sdy.") else {"mhlo.sharding": ir.StringAttr.get(text)}


def _main(made: Any) -> Any:
    """The operation ``@main`` of a module."""
    (main,) = (o.operation for o in made.body.operations if ir.StringAttr(o.operation.attributes["sym_name"]).value == "main")
    return main


# --- places -----------------------------------------------------------------------------------------------------------


class _Located(Frame):
    """Evaluates each op at its own place; a call of a target without a meaning stays a call."""

    def meaning(self, op: Op, operands: list[Any]) -> Any:
        if op.name != "neuron.custom_call" or op.get("call_target_name") in TARGETS:
            return super().meaning(op, operands)
        return _custom_call(op, operands)

    def op(self, op: Op, operands: list[Any]) -> tuple[Any, ...]:
        result: list[tuple[Any, ...]] = []

        def run() -> None:
            result.append(Frame.op(self, op, operands))

        at(op.loc, run)
        return result[0]


def at(loc: Loc, function: Callable[[], None]) -> None:
    """Call ``function`` from frames that look like the places of ``loc``, its callers outermost."""
    place: FileLoc | None = loc.places[0] if isinstance(loc, FusedLoc) else loc
    assert place is not None
    if place.implicit:
        return function()
    scope = place.scope
    while place is not None:
        function = _inside(_frame(place.file, place.line, place.col), function)
        place = place.caller
    if not scope:
        return function()
    with jax.named_scope(scope):
        return function()


def _inside(code: CodeType, function: Callable[[], None]) -> Callable[[], None]:
    return lambda: eval(code, {"call": function})


@lru_cache(maxsize=10000)
def _frame(file: str, line: int, col: int) -> CodeType:
    """Code that calls ``call`` and whose frame says that file, line and column."""
    lines, columns = max(line - 1, 0), max(col - 1, 0)
    text = f"({chr(10) * lines}{' ' * (columns if lines else max(columns - 1, 0))}call())"
    return compile(text, file, "eval")


@lru_cache(maxsize=1)
def _hide_own_frames() -> None:
    """Leave our own code out of JAX's locations."""
    package = Path(neuron_ir.__file__).parent
    for folder in (package, *(package / name for name in ("passes", "frontends", "backends"))):
        _compat.hide_frames(str(folder))
        _compat.hide_frames(str(folder.resolve()))
