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


def gradients_of_attention(form: str) -> Module:
    """The gradients of q, k and v of attention by hand, from those of its result, as torch and as JAX spell their products."""
    heads, tokens = 4, 1024
    t = Type((heads, tokens, WIDTH), F32)
    module = Module()
    func = module.add(Func("main", [t, t, t, t], [t, t, t]))
    b, (q, k, v, dy) = Builder(func.body), func.args

    def over_queries(x: Value, y: Value) -> Value:
        if form == "transposed":
            return b.matmul(b.transpose(x, permutation=(0, 2, 1)), y)  # type: ignore[no-any-return]
        if form == "dot_general":
            return b.dot_general(x, y, lhs_batch=(0,), rhs_batch=(0,), lhs_contract=(1,), rhs_contract=(1,))  # type: ignore[no-any-return]
        return b.matmul(x, y, transpose_a=True)  # type: ignore[no-any-return]

    p = b.softmax(b.matmul(q, k, transpose_b=True))
    dp = b.multiply(p, b.matmul(dy, v, transpose_b=True))
    total = b.broadcast_in_dim(b.reduce_sum(dp, axes=(2,), keepdims=True), broadcast_dimensions=(0, 1, 2), out=p.type)
    ds = b.subtract(dp, b.multiply(p, total))
    func.set_results([b.matmul(ds, k), over_queries(ds, q), over_queries(p, dy)])
    module.verify()
    return module


@pytest.mark.parametrize("form", ["transposed", "dot_general", "transpose_a"])
def test_gradients_of_attention_keep_their_scores_on_chip(form: str) -> None:
    module = gradients_of_attention(form)
    run_passes(module, "O2")
    moved = 7 * module.main.args[0].type.nbytes
    assert summary(module.main) == {"kernels": 1, "hbm_bytes": moved, "lower_bound_bytes": moved}
    (kernel,) = kernel_costs(module.main, target("trn2"))
    assert kernel.sbuf_bytes <= target("trn2").sbuf_total


@pytest.mark.parametrize("permutation", [(0, 2, 1), (1, 0, 2)])
def test_a_product_along_other_dims_is_no_sum_over_rows(permutation: tuple[int, ...]) -> None:
    """Each result sums what all heads' rows of scores hold, so that the scores must be there at once."""
    t = Type((128, 128, 4096), F32)
    module = Module()
    func = module.add(Func("main", [t, t]))
    b, (x, y) = Builder(func.body), func.args
    h = b.tanh(x)
    turned = b.transpose(h, permutation=permutation)
    func.set_results([b.matmul(turned, b.transpose(y, permutation=(1, 0, 2)), transpose_b=permutation == (1, 0, 2))])
    module.verify()
    run_passes(module, "fuse")
    assert summary(module.main)["kernels"] == 2
