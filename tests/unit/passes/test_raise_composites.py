"""Composites found in what they are made of, in JAX's and torch's decompositions, and near misses that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import neuron_ir
from neuron_ir import Builder, Func, IRError, Module, TensorType
from neuron_ir.dialects.neuron.expression import Expr
from neuron_ir.dtypes import BF16, BOOL, F32, I64
from neuron_ir.numerics import VerifyNumerics
from neuron_ir.passes.raise_composites import RaiseComposites
from neuron_ir.passmanager import PassManager, run_passes
from neuron_ir.pipeline import parse_pipeline

CLEAN = "func(canonicalize,fold_constants,canonicalize,cse,dce)"


def f32(*shape: int) -> TensorType:
    return TensorType(shape, F32)


def bf16(*shape: int) -> TensorType:
    return TensorType(shape, BF16)


def program(types: list[TensorType], body: Callable[..., Any]) -> Module:
    module = Module()
    func = module.add(Func("main", types))
    result = body(Builder(func.body), *func.args)
    func.set_results([result.value if isinstance(result, Expr) else result])
    module.verify()
    return module


def names(module: Module) -> list[str]:
    """The ops but for views and constants."""
    plain = ("view", "constant", "terminator")
    return [op.name.removeprefix("neuron.") for op in module.walk() if not any(t in op.spec.traits for t in plain)]


HEADS = [f32(2, 4, 6, 8)] * 3
WHOLE: dict[str, tuple[list[TensorType], Callable[..., Any]]] = {
    "softmax": ([f32(2, 3, 8)], lambda b, x: b.softmax(x, axis=1)),
    "softmax of bf16": ([bf16(2, 8)], lambda b, x: b.softmax(x)),
    "log_softmax": ([f32(2, 8)], lambda b, x: b.log_softmax(x)),
    "layer_norm": ([f32(2, 3, 8), f32(8), f32(8)], lambda b, *v: b.layer_norm(*v)),
    "layer_norm of two dims": ([f32(2, 3, 8), f32(3, 8)], lambda b, *v: b.layer_norm(*v, trailing_dims=2, eps=1e-6)),
    "layer_norm of bf16": ([bf16(2, 8), bf16(8), bf16(8)], lambda b, *v: b.layer_norm(*v)),
    "rms_norm": ([f32(2, 3, 8), f32(8)], lambda b, *v: b.rms_norm(*v)),
    "group_norm": ([f32(2, 4, 3, 3), f32(4), f32(4)], lambda b, *v: b.group_norm(*v, groups=2)),
    "gelu": ([f32(2, 8)], lambda b, x: b.gelu(x)),
    "gelu by tanh": ([bf16(2, 8)], lambda b, x: b.gelu(x, approximate="tanh")),
    "silu": ([f32(2, 8)], lambda b, x: b.silu(x)),
    "linear": ([f32(2, 3, 8), f32(5, 8), f32(5)], lambda b, *v: b.linear(*v)),
    "attention": (HEADS, lambda b, *v: b.attention(*v)),
    "causal attention": (HEADS, lambda b, *v: b.attention(*v, causal="top_left")),
    "attention to a cache": (
        [f32(2, 4, 3, 8), *HEADS[1:]],
        lambda b, *v: b.attention(*v, causal="bottom_right", masked_rows="nan"),
    ),
    "attention of grouped heads": ([HEADS[0], f32(2, 2, 6, 8), f32(2, 2, 6, 8)], lambda b, *v: b.attention(*v, scale=0.3)),
    "attention with a mask": ([*HEADS, f32(2, 1, 6, 6)], lambda b, *v: b.attention(*v, masked_rows="nan")),
    "attention with a bool mask": ([*HEADS, TensorType((6, 6), BOOL)], lambda b, *v: b.attention(*v)),
    "rotary_embedding": ([f32(2, 4, 6, 8), f32(6, 8), f32(6, 8)], lambda b, *v: b.rotary_embedding(*v)),
    "rotary_embedding of pairs": ([f32(2, 6, 8), f32(6, 4), f32(6, 4)], lambda b, *v: b.rotary_embedding(*v)),
    "rotary_embedding, interleaved": ([f32(2, 6, 8), f32(6, 4), f32(6, 4)], lambda b, *v: b.rotary_embedding(*v, interleaved=True)),
    "cross_entropy": ([f32(6, 8), TensorType((6,), I64)], lambda b, *v: b.cross_entropy(*v)),
    "cross_entropy, summed": ([f32(6, 8, 2), TensorType((6, 2), I64)], lambda b, *v: b.cross_entropy(*v, reduction="sum")),
}


@pytest.mark.parametrize("case", WHOLE)
def test_what_is_taken_apart_is_put_back(case: str) -> None:
    module = program(*WHOLE[case])
    (whole,) = names(module)
    run_passes(module, f"expand_composites,{CLEAN}")
    assert whole not in names(module) or whole == "silu"
    run_passes(module, "raise_composites,canonicalize,dce")
    assert names(module) == [whole]


def _softmax(x: Expr, over: int, by: int) -> Expr:
    p = (x - x.max([over])).exp()
    return p / p.sum([by])


def _norm(x: Expr, axis: int = -1, inside: bool = True, count: float = 8.0) -> Expr:
    axis %= x.rank
    d = x - x.mean([axis])
    variance = (d * d).sum([axis]) / count
    return d * (variance + 1e-5).rsqrt() if inside else d * (variance.sqrt() + 1e-5).unary("reciprocal")


def _attention(q: Expr, k: Expr, v: Expr, keys: tuple[int, ...], scale_first: bool, mask: Expr | None) -> Any:
    b = q.b
    s = q.new(b.matmul(q.value, k.transpose(keys).value))
    s = s * 0.3 + mask if mask is not None and scale_first else (s + mask) * 0.3 if mask is not None else s * 0.3
    return b.matmul(b.softmax(s.value), v.value)


SQUARE = [f32(2, 4, 4, 4)] * 3
GELU = 0.7978845608
NEAR: dict[str, tuple[str, list[TensorType], Callable[..., Any]]] = {
    "sum along another axis": ("softmax", [f32(8, 8)], lambda x: _softmax(x, 1, 0)),
    "largest along another axis": ("softmax", [f32(8, 8)], lambda x: _softmax(x, 0, 1)),
    "nothing subtracted": ("softmax", [f32(8, 8)], lambda x: (p := x.exp()) / p.sum([1])),
    "subtracted the other way": ("softmax", [f32(8, 8)], lambda x: (p := (x.max([1]) - x).exp()) / p.sum([1])),
    "logarithm of another sum": ("log_softmax", [f32(8, 8)], lambda x: (d := x - x.max([1])) - d.exp().sum([0]).log()),
    "epsilon outside of the root": ("layer_norm", [f32(4, 8)], lambda x: _norm(x, inside=False)),
    "variance by n - 1": ("layer_norm", [f32(4, 8)], lambda x: _norm(x, count=7.0)),
    "norm along the first axis": ("layer_norm", [f32(8, 8)], lambda x: _norm(x, axis=0)),
    "cube of another value": ("gelu", [f32(8)] * 2, lambda x, y: x * 0.5 * (((x + y * x * x * 0.044715) * GELU).tanh() + 1.0)),
    "another constant": ("gelu", [f32(8)], lambda x: x * 0.5 * (((x + x * x * x * 0.0447) * GELU).tanh() + 1.0)),
    "1 - erf": ("gelu", [f32(8)], lambda x: x * 0.5 * (1.0 - (x * 0.5**0.5).erf())),
    "gate of another value": ("silu", [f32(8), f32(8)], lambda x, y: x * y.unary("logistic")),
    "bias along the rows": ("linear", [f32(5, 8), f32(8, 5), f32(5)], lambda x, w, c: _product(x, w) + c.broadcast((5, 5), [0])),
    "keys not transposed": ("attention", SQUARE, lambda q, k, v: _attention(q, k, v, (0, 1, 2, 3), True, None)),
    "values transposed": (
        "attention", SQUARE, lambda q, k, v: _attention(q, k, v.transpose((0, 1, 3, 2)), (0, 1, 3, 2), True, None)
    ),
    "mask before scale": ("attention", [*SQUARE, f32(4, 4)], lambda q, k, v, m: _attention(q, k, v, (0, 1, 3, 2), False, m)),
    "second half not negated": ("rotary_embedding", [f32(2, 8)] * 3, lambda x, c, s: x * c + _turned(x, 1.0) * s),
    "halves in order": ("rotary_embedding", [f32(2, 8)] * 3, lambda x, c, s: x * c + _turned(x, -1.0, 0) * s),
}  # fmt: skip


def _product(x: Expr, w: Expr) -> Expr:
    return x.new(x.b.matmul(x.value, w.value))


def _turned(x: Expr, sign: float, first: int = 4) -> Expr:
    a, c = x.section(1, first, first + 4), x.section(1, 4 - first, 8 - first)
    return x.new(x.b.concatenate((-a if sign < 0 else a).value, c.value, dimension=1))


@pytest.mark.parametrize("case", NEAR)
def test_a_near_miss_stays(case: str) -> None:
    whole, types, body = NEAR[case]
    module = program(types, lambda b, *v: body(*[Expr(b, x) for x in v]))
    run_passes(module, f"{CLEAN},raise_composites,dce")
    assert whole not in names(module)


@pytest.mark.parametrize("order", ["shift, then scale", "scale along another axis"])
def test_parameters_in_other_places_stay_outside_of_the_norm(order: str) -> None:
    def body(b: Builder, *v: Any) -> Any:
        x, w = (Expr(b, a) for a in v)
        return (_norm(x) + w) * w if order == "shift, then scale" else _norm(x) * w.broadcast((8, 8), [0])

    module = program([f32(8, 8), f32(8)], body)
    run_passes(module, f"{CLEAN},raise_composites,dce")
    (whole,) = (op for op in module.walk() if op.name == "neuron.layer_norm")
    assert whole.operands == [module.main.args[0]]


def test_a_value_inside_that_is_used_elsewhere_keeps_its_ops() -> None:
    module = program([f32(4, 8)], lambda b, x: (p := (Expr(b, x) - Expr(b, x).max([1])).exp()) / p.sum([1]) + p)
    manager = PassManager(parse_pipeline("raise_composites"))
    record = manager.run(module).records[0]
    assert record.declines["softmax: a value inside is used elsewhere too"] == 1
    assert "softmax" not in names(module)


def test_an_unknown_composite_is_refused_with_those_known() -> None:
    with pytest.raises(IRError, match=r"there is no pattern for 'sofmax'; known: attention, cross_entropy"):
        RaiseComposites(only=("sofmax",))


def test_jax_programs_get_their_composites_with_the_same_numbers() -> None:
    import jax
    import jax.numpy as jnp
    import numpy

    def block(x: Any, q: Any, w: Any, c: Any) -> Any:
        h = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * c + c
        h = jax.nn.silu(jax.nn.gelu(h, approximate=False) @ w + c) + jax.nn.gelu(h)
        y = jax.nn.dot_product_attention(q, q[:, :, :2], q[:, :, :2], is_causal=True)
        return h, jax.nn.log_softmax(y, 1), h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-6) * c

    shapes = [(2, 3, 8), (2, 6, 4, 8), (8, 8), (8,)]
    rng = numpy.random.default_rng(0)
    module = neuron_ir.from_jax(block, *[rng.standard_normal(s, numpy.float32) for s in shapes])
    run_passes(module, f"inline,{CLEAN}")
    PassManager(parse_pipeline("raise_composites,dce"), [VerifyNumerics()]).run(module)
    found = [n for n in names(module) if n not in ("add", "reshape")]
    assert sorted(found) == sorted(["layer_norm", "gelu", "linear", "silu", "gelu", "attention", "log_softmax", "rms_norm"])


def test_torchs_own_decompositions_get_their_composites() -> None:
    import torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.nn.functional.silu(self.linear(torch.nn.functional.gelu(self.norm(x))))
            return torch.softmax(h @ h.mT * 0.3, -1) @ h

    table = torch._decomp.decomposition_table
    ops = torch.ops.aten
    wanted = [ops.native_layer_norm.default, ops.gelu.default, ops.silu.default, ops._softmax.default, ops.addmm.default]
    every = {op: table[op] for op in wanted}
    exported = torch.export.export(Block().eval(), (torch.zeros(2, 3, 8),)).run_decompositions(every)
    module = neuron_ir.from_torch(exported)
    run_passes(module, f"{CLEAN},raise_composites,canonicalize,dce")
    assert names(module) == ["layer_norm", "gelu", "linear", "silu", "attention"]
