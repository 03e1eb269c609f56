"""Padding to buckets: few executables, the values of the program as it is, and refusals by name where padding could change one."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import neuron_ir
from neuron_ir.backends.jax_cpu import executable
from neuron_ir.builder import Builder
from neuron_ir.dims import symbol

BATCH = Dim("batch", min=1, max=32)


class Block(nn.Module):
    """What a transformer does to a batch: lookup, norm, attention, products, and a reduction per row."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(11, 8), nn.LayerNorm(8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 5)

    def forward(self, ids: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.norm(self.words(ids)) * scale.unsqueeze(-1).unsqueeze(-1)
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.qkv(x).split(8, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        logits = self.out(F.gelu(y) + x)
        return logits.softmax(-1), logits.argmax(-1), logits.sum((1, 2))


def test_one_executable_serves_all_sizes_of_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = Block().eval()
    example = (torch.zeros(4, 6, dtype=torch.int64), torch.ones(4))
    module = neuron_ir.from_torch(model, example, dynamic_shapes=({0: BATCH}, {0: BATCH}))
    made = []
    original = executable._build
    monkeypatch.setattr(executable, "_build", lambda m, o: made.append(str(m.main.args[0].type)) or original(m, o))
    program = neuron_ir.compile(module, buckets={"batch": [4, 2]})
    for n in (3, 4, 5):
        ids, scale = torch.randint(0, 11, (n, 6)), torch.rand(n)
        torch.testing.assert_close(program(ids, scale), model(ids, scale), rtol=1e-5, atol=1e-5)
    assert len(made) == 2  # 4, and 5 for itself
    with pytest.raises(neuron_ir.IRError, match="batch is 33; the program was made for 1 to 32"):
        program(torch.zeros(33, 6, dtype=torch.int64), torch.ones(33))


def built(body, *more: neuron_ir.TensorType) -> neuron_ir.Module:
    """``@main`` of a tensor of S rows of 6, and more, with what ``body`` makes of them."""
    module = neuron_ir.Module("built")
    func = module.add(neuron_ir.Func("main", [neuron_ir.tensor([S, 6], "f32"), *more]))
    func.dims["S"] = (2, 32)
    result = body(Builder(func.body), *func.args)
    func.set_results(list(result) if isinstance(result, tuple) else [result])
    module.verify()
    return module


S = symbol("S")
DOUBLE = neuron_ir.tensor([2 * S, 6], "f32")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda b, x: b.reduce_sum(x, axes=[0]), "neuron.reduce_sum: it reduces the axis 0"),
        (lambda b, x: b.reduce_max(x), "neuron.reduce_max: it reduces the axis 0"),
        (lambda b, x: b.softmax(x, axis=0), "neuron.softmax: it works along the axis 0"),
        (lambda b, x: b.cumsum(x, axis=0), "neuron.cumsum: it works along the axis 0"),
        (lambda b, x: b.argmax(x), "neuron.argmax: it reduces the axis"),
        (lambda b, x: b.matmul(b.transpose(x, permutation=[1, 0]), x), "neuron.matmul: it sums over the axis"),
        (lambda b, x: b.reverse(x, dimensions=[0]), "neuron.reverse: whether it keeps places along the axis apart is not known"),
        (lambda b, x: b.reshape(x, out=neuron_ir.tensor([6 * S], "f32")), "neuron.reshape: a size made of it"),
        (lambda b, x: b.reshape(x, out=neuron_ir.tensor([6, S], "f32")), "neuron.reshape: it splits or merges the axis"),
        (lambda b, x: b.concatenate(x, x, dimension=0), "neuron.concatenate: a size made of it"),
        (lambda b, x: (x, b.dim_size(size=S + 1)), "neuron.dim_size: its number is read"),
        (lambda b, x: b.layer_norm(b.transpose(x, permutation=[1, 0])), "neuron.layer_norm: it works along the axis"),
        (lambda b, x: b.attention(x, x, x), "neuron.attention: it works along the axis"),
        (lambda b, x: b.take(x, b.const(1, neuron_ir.dtype("i64"), (2,))), "neuron.take: it looks up elements along the axis"),
    ],
)
def test_what_padding_could_change_is_refused_by_name(body, reason: str) -> None:
    with pytest.raises(neuron_ir.IRError, match=re.escape(f"padding along S: {reason}")) as caught:
        neuron_ir.compile(built(body), buckets={"S": (8,)})
    assert caught.value.code == "unsupported"


def test_inputs_of_derived_sizes_are_refused() -> None:
    with pytest.raises(neuron_ir.IRError, match="the input 1 has a size made of it"):
        neuron_ir.compile(built(lambda b, x, y: x, DOUBLE), buckets={"S": (8,)})


def test_what_keeps_places_apart_gives_the_same() -> None:
    def body(b, x):
        turned = b.softmax(b.transpose(x, permutation=[1, 0]), axis=0)
        parts = b.reshape(x, out=neuron_ir.tensor([S, 2, 3], "f32"))
        joined = b.concatenate(x, b.tanh(x), dimension=1)
        cut = b.slice(joined, start_indices=[0, 3], limit_indices=[S, 12])
        product = b.matmul(x, turned)
        return turned, b.reduce_max(parts, axes=[1]), b.cumsum(cut, axis=1), product

    x = torch.randn(5, 6)
    turned = x.T.softmax(0)
    expected = (turned, x.reshape(5, 2, 3).amax(1), torch.cat([x, x.tanh()], 1)[:, 3:].cumsum(1), x @ turned)
    torch.testing.assert_close(neuron_ir.compile(built(body), buckets={"S": (8,)})(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        ({"Size": (8,)}, "has no symbolic dimension Size"),
        ({"S": (8, 64)}, "a bucket of 64 for S, but the program was made for 2 to 32"),
        ({"S": 8}, "the buckets of S are a list of sizes, not 8"),
        ((8,), "buckets are given by size"),
    ],
)
def test_buckets_of_the_wrong_kind_are_refused(buckets, message: str) -> None:
    with pytest.raises(neuron_ir.IRError, match=re.escape(message)):
        neuron_ir.compile(built(lambda b, x: x), buckets=buckets)


def test_a_bucket_that_breaks_a_condition_is_not_taken() -> None:
    text = """func @main[S in 1..64](%x: tensor<Sxf32>) -> (tensor<Sxf32>) {where = ["mod(S,3) == 0"]} {
      %y = neuron.add(%x, %x) : tensor<Sxf32>
      func.return(%y)
    }"""
    program = neuron_ir.compile(neuron_ir.parse(text), buckets={"S": (8, 12)})
    assert program(torch.ones(6)).tolist() == [2.0] * 6 and program(torch.ones(9)).tolist() == [2.0] * 9
