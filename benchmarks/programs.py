"""Programs of any size to measure with, and how a program reads in MLIR's generic syntax, for peers that parse that."""

from __future__ import annotations

from typing import Any

from neuron_ir import Block, Builder, Func, Module, Op, TensorType, Value
from neuron_ir.core import bulk
from neuron_ir.dtypes import BF16, F32, DType
from neuron_ir.locations import FileLoc

__all__ = ["OPS_PER_LAYER", "mlir_generic", "transformer"]

B, S, D, H = 1, 128, 768, 12
X, W, V = TensorType((B, S, D), F32), TensorType((D, D), F32), TensorType((D,), F32)
OPS_PER_LAYER = 29


def transformer(ops: int, locations: bool = False) -> Module:
    """A module of about ``ops`` operations: transformer layers of 29 ops, one of them with a region of three."""
    module = Module("transformer")
    with bulk():
        func = module.add(Func("main", [X, W, W, V], [X]))
        x, *weights = func.args
        for value, name in zip(func.args, ("x", "w_qkv", "w_mlp", "scale"), strict=True):
            value.name = name
        for layer in range(max(1, ops // OPS_PER_LAYER)):
            x = _layer(func.body, layer, x, *weights, locations)
        func.set_results([x])
    return module


def _layer(block: Block, layer: int, x: Value, w: Value, w_mlp: Value, scale: Value, locations: bool) -> Value:
    b = Builder(block)
    if locations:
        b.loc = FileLoc("model.py", 100 + layer % 50, 9, f"blocks.{layer}")
    heads = TensorType((B, S, H, D // H), F32)
    h = b.layer_norm(x, scale, scale, eps=1e-05)
    q, k, v = (b.transpose(b.reshape(b.linear(h, w, scale), out=heads), permutation=(0, 2, 1, 3)) for _ in range(3))
    scale_by = b.broadcast_in_dim(b.const(0.125, F32), out=TensorType((B, H, S, S), F32))
    scores = b.multiply(b.matmul(q, k, transpose_b=True), scale_by)
    scores.name = f"scores_{layer}"
    y = b.matmul(b.softmax(scores), v)
    y = b.reshape(b.transpose(y, permutation=(0, 2, 1, 3)), out=X)
    x = b.add(x, b.linear(y, w, scale))
    h = b.fused(x, kind="elementwise", body=lambda f, a: f.multiply(f.tanh(a), a))
    h = b.cast(b.cast(h, out=X.with_dtype(BF16)), out=X)
    return b.add(x, b.linear(b.gelu(h, approximate="tanh"), w_mlp))  # type: ignore[no-any-return]


# --- the same program in MLIR's generic syntax ------------------------------------------------------------------------


def mlir_generic(module: Module) -> str:
    """The module as MLIR's generic syntax: the same ops, operands, attributes, types and locations."""
    lines = ['"builtin.module"() ({']
    for func in module.funcs.values():
        names: dict[Value, str] = {}
        args = _block_args(func.body, names)
        inputs, outputs = _types(func.args), ", ".join(map(str, func.result_types))
        lines.append(f'"func.func"() <{{sym_name = "{func.name}", function_type = ({inputs}) -> ({outputs})}}> ({{\n^bb({args}):')
        _ops(func.body, names, lines)
        lines.append("}) : () -> ()")
    return "\n".join([*lines, "}) : () -> ()\n"])


def _block_args(block: Block, names: dict[Value, str]) -> str:
    return ", ".join(f"{_name(a, names)} : {a.type}" for a in block.args)


def _name(value: Value, names: dict[Value, str]) -> str:
    names[value] = f"%v{len(names)}"
    return names[value]


def _types(values: Any) -> str:
    return ", ".join(str(v.type) for v in values)


def _ops(block: Block, names: dict[Value, str], lines: list[str]) -> None:
    for op in block.ops:
        operands = ", ".join(names[v] for v in op.operands)
        attrs = ", ".join(f"{k} = {_attr(v, op)}" for k, v in op.attrs.items())
        results = ", ".join(_name(r, names) for r in op.results)
        text = f'"{op.name}"({operands})' + (f" <{{{attrs}}}>" if attrs else "")
        if results:
            text = f"{results} = {text}"
        for region in op.regions:
            lines.append(f"{text} ({{\n^bb({_block_args(region, names)}):")
            _ops(region, names, lines)
            text = "})"
        loc = "" if op.loc.implicit else f' loc("{op.loc.places[0].file if hasattr(op.loc, "places") else op.loc.file}":1:1)'
        lines.append(f"{text} : ({_types(op.operands)}) -> ({_types(op.results)}){loc}")


def _attr(value: Any, op: Op) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value} : i64"
    if isinstance(value, float):
        return f"{value:e} : f64"
    if isinstance(value, tuple):
        return f"array<i64: {', '.join(map(str, value))}>"
    if isinstance(value, DType):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    return f"dense<{value.item:e}> : {op.results[0].type}"
