"""What the groups of fusion hold: no score matrix leaves the chip, working sets fit, groups are the same every time."""

from __future__ import annotations

import pytest

from neuron_ir import Builder, Func, IRError, Module, TensorType, Value
from neuron_ir.dtypes import BF16, F32, DType
from neuron_ir.kernel_cost import kernel_costs, summary
from neuron_ir.passes.fuse import Fuse
from neuron_ir.passmanager import run_passes
from neuron_ir.target import target
from neuron_ir.types import TensorType as Type

WIDTH = 64


def scores_by_hand(b: Builder, q: Value, k: Value, v: Value) -> Value:
    s = b.matmul(q, k, transpose_b=True)
    scaled = b.multiply(s, b.broadcast_in_dim(b.const(0.125, q.dtype), out=s.type))
    return b.matmul(b.softmax(scaled), v)  # type: ignore[no-any-return]


def layer(heads: int, tokens: int, element: DType, form: str) -> Module:
    """Self-attention with its four projections around, and the residual sum."""
    x, w = Type((1, tokens, heads * WIDTH), element), Type((heads * WIDTH, heads * WIDTH), element)
    split = Type((1, tokens, heads, WIDTH), element)
    module = Module()
    func = module.add(Func("main", [x, w, w, w, w], [x]))
    b = Builder(func.body)
    h, *weights = func.args
    q, k, v = (b.transpose(b.reshape(b.linear(h, w), out=split), permutation=(0, 2, 1, 3)) for w in weights[:3])
    y = scores_by_hand(b, q, k, v) if form == "by hand" else b.attention(q, k, v, causal="top_left" if form == "causal" else "none")
    y = b.reshape(b.transpose(y, permutation=(0, 2, 1, 3)), out=x)
    func.set_results([b.add(b.linear(y, weights[3]), h)])
    module.verify()
    if form == "causal":
        run_passes(module, "expand_composites{only=attention}")
    return module


def core(heads: int, kv_heads: int, tokens: int, causal: str) -> Module:
    """Attention alone, taken apart."""
    q, kv = Type((1, heads, tokens, WIDTH), F32), Type((1, kv_heads, tokens, WIDTH), F32)
    module = Module()
    func = module.add(Func("main", [q, kv, kv], [q]))
    func.set_results([Builder(func.body).attention(*func.args, causal=causal)])
    run_passes(module, "expand_composites")
    return module


def crossing(module: Module, tokens: int) -> list[Type]:
    """What is as large as a score matrix and goes from one kernel to another."""
    values = (r for op in module.main.body.ops for r in op.results)
    return [v.type for v in values if list(v.shape[-2:]) == [tokens, tokens]]


@pytest.mark.parametrize("form", ["whole", "by hand", "causal"])
@pytest.mark.parametrize(("heads", "tokens"), [(4, 128), (16, 2048), (4, 4096), (16, 4096)])
def test_no_score_matrix_crosses_a_border(heads: int, tokens: int, form: str) -> None:
    module = layer(heads, tokens, BF16 if tokens == 2048 and form == "whole" else F32, form)
    run_passes(module, "O2")
    assert crossing(module, tokens) == []
    assert max(k.sbuf_bytes for k in kernel_costs(module.main, target("trn2"))) <= target("trn2").sbuf_total


@pytest.mark.parametrize(("heads", "kv_heads", "tokens", "causal"), [(16, 4, 4096, "none"), (8, 2, 2048, "bottom_right")])
def test_grouped_heads_stream_their_keys(heads: int, kv_heads: int, tokens: int, causal: str) -> None:
    module = core(heads, kv_heads, tokens, causal)
    run_passes(module, "O2")
    bytes_of = [sum(v.type.nbytes for v in module.main.args), module.main.args[0].type.nbytes]
    assert summary(module.main) == {"kernels": 1, "hbm_bytes": sum(bytes_of), "lower_bound_bytes": sum(bytes_of)}


def test_the_same_module_gives_the_same_groups() -> None:
    texts = set()
    for _ in range(3):
        module = layer(4, 4096, F32, "by hand")
        run_passes(module, "O2")
        texts.add(module.text())
    assert len(texts) == 1


def test_a_smaller_core_makes_more_kernels() -> None:
    def kernels(name: str) -> int:
        module = layer(16, 1024, F32, "by hand")
        run_passes(module, f"fuse{{target={name}}}")
        return summary(module.main)["kernels"]

    assert kernels("reference") <= kernels("trn3") <= kernels("trn2") <= kernels("trn1")
    assert kernels("reference") == 1


def test_one_step_of_many_parameters_is_one_kernel() -> None:
    module = Module()
    types = [TensorType((n, 8), F32) for n in range(1, 21)]
    func = module.add(Func("main", [t for t in types for _ in (0, 1)]))
    b = Builder(func.body)
    pairs = zip(func.args[::2], func.args[1::2], strict=True)
    func.set_results([b.subtract(w, b.multiply(g, b.const(0.1, F32, w.shape))) for w, g in pairs])  # type: ignore[arg-type]
    run_passes(module, "O2")
    assert summary(module.main)["kernels"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": ("softmax",)}, "there is no kind 'softmax'; known: elementwise, reduction, matmul"),
        ({"max_ops": 0}, "max-ops = 0, but a group has at least 1 op"),
        ({"max_products": 0}, "max-products = 0, but a group has at least 1 op"),
        ({"capacity": -1}, "capacity = -1 is negative"),
        ({"target": "trn9"}, "there is no target 'trn9'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(IRError, match=message):
        Fuse(**options)  # type: ignore[arg-type]
