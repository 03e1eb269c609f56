"""One artefact, many shapes: imported once, run over random sizes in range against torch or JAX, refused for sizes out of range."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from torch.export import Dim

import neuron_ir
from neuron_ir.constraints import constraints_of, set_constraints
from neuron_ir.dims import evaluate
from neuron_ir.numerics import example_sizes, random_inputs
from neuron_ir.parser import parse_dim
from neuron_ir.specialise import size_inputs, specialise

SPREAD = 7  # sizes drawn reach so far beyond the least one
# Not shrunk: running a candidate compiles it.
SLOW = settings(
    deadline=None,
    max_examples=2,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
AUTO, HALF, LENGTH = Dim.AUTO, Dim("half", min=2, max=20), Dim("length", min=2, max=40)


class Artefact(NamedTuple):
    """A function with example inputs, and which of their sizes are free."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    free: Any


def f32(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def pairs(x, y):
    return x.reshape(-1, 2).sum(1), x[::2] + y, torch.cat([x, y])


def attention(x):
    causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
    y = F.scaled_dot_product_attention(heads, heads, heads, attn_mask=causal)
    y = F.layer_norm(y.transpose(1, 2).flatten(2), (8,))
    return y + torch.arange(x.shape[1]).unsqueeze(-1) / x.shape[1]


def shifted(x, y):
    return x[1:] * y, x[:-1].cumsum(0), F.pad(y, (0, 1)) - x


def prefix(x, n):
    return x[:n] * n, x.shape[0] - n, torch.arange(n).sum()


def branches(x, y):
    return (x[: y.shape[0]] - y).sum(0) if x.shape[0] > y.shape[0] else x.prod(0)


def order(x):
    return x.sort(0)[0], x.topk(2, 0)[0], x.var(1), x.argmax(0), x.std(), x.flip(1).roll(1, 0)


def image(x):
    y = F.avg_pool2d(F.relu(x), 2, stride=1, padding=1)
    return y.mean((-2, -1)), F.pad(x, (1, 2, 0, 1), mode="constant", value=2.0), F.interpolate(x, scale_factor=2, mode="nearest")


def products(x, y):
    return jax.numpy.tril(x @ y) + x.shape[0], jax.numpy.concatenate([x, y.T], 0).reshape(-1)


A, B = jax.export.symbolic_shape("a, b", constraints=["a <= b", "mod(b, 2) == 0"])
ARTEFACTS = {
    "derived": Artefact(pairs, (f32(8), f32(4)), ({0: 2 * HALF}, {0: HALF})),
    "attention": Artefact(attention, (f32(2, 3, 8),), ({0: AUTO, 1: LENGTH},)),
    "off by one": Artefact(shifted, (f32(6), f32(5)), ({0: LENGTH + 1}, {0: LENGTH})),
    "integer input": Artefact(prefix, (f32(9), 3), ({0: AUTO}, Dim.DYNAMIC)),
    "branch on sizes": Artefact(branches, (f32(6, 3), f32(4, 3)), ({0: AUTO, 1: AUTO}, {0: AUTO, 1: AUTO})),
    "order": Artefact(order, (f32(5, 4),), ({0: AUTO, 1: AUTO},)),
    "image": Artefact(image, (f32(2, 3, 8, 10),), ({0: AUTO, 2: AUTO, 3: AUTO},)),
    "jax": Artefact(products, tuple(jax.ShapeDtypeStruct(s, np.float32) for s in ((A, B), (B, A))), None),
}


@cache
def program(name: str) -> Any:
    """The artefact, imported once and read back from its text."""
    function, args, free = ARTEFACTS[name]
    module = neuron_ir.from_jax(function, *args) if free is None else neuron_ir.from_torch(function, args, dynamic_shapes=free)
    again = neuron_ir.parse(module.text())
    assert again.text() == module.text()
    return neuron_ir.compile(again)


def inputs_of(module: neuron_ir.Module, sizes: dict[str, int], framework: str) -> list[Any]:
    """Random inputs of these sizes, the integers among them at their places."""
    inputs = random_inputs(specialise(module, sizes).main, {}, seed=sum(sizes.values()))
    given = [torch.from_numpy(x) if framework == "torch" else x for x in inputs]
    for place, _, text in size_inputs(module.main):
        given.insert(place, evaluate(parse_dim(text), sizes))
    return given


@pytest.mark.parametrize("name", ARTEFACTS)
@SLOW
@given(data=st.data())
def test_every_size_in_range(name: str, data: st.DataObject) -> None:
    compiled = program(name)
    main = compiled.module.main
    sizes = {
        symbol: data.draw(st.integers(low, low + SPREAD if high is None else min(high, low + SPREAD)), symbol)
        for symbol, (low, high) in main.dims.items()
    }
    assume(all(c.at(sizes) is True for c in constraints_of(main)))
    inputs = inputs_of(compiled.module, sizes, compiled.module.attrs["source"])
    got, expected = compiled(*inputs), ARTEFACTS[name].function(*inputs)
    if compiled.module.attrs["source"] == "torch":
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    else:
        for g, e in zip(got, expected, strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ARTEFACTS)
def test_sizes_out_of_range_and_against_the_constraints_are_refused(name: str) -> None:
    compiled = program(name)
    main = compiled.module.main
    fine = example_sizes(main)
    wrong = [
        (fine | {symbol: size}, f"{symbol} is {size}")
        for symbol, (low, high) in main.dims.items()
        for size in (low - 1, None if high is None else high + 1)
        if size is not None and size >= 0
    ]
    for constraint in constraints_of(main):
        for symbol in sorted(constraint.symbols):
            tried = (fine | {symbol: main.dims[symbol][0] + more} for more in range(SPREAD))
            wrong += [(sizes, f"{symbol} is {sizes[symbol]}") for sizes in tried if constraint.at(sizes) is False][:1]
    assert wrong
    for sizes, message in wrong:
        with pytest.raises(neuron_ir.IRError, match=f"{message}[,;].*the program was made for") as caught:
            compiled(*inputs_of(unconstrained(compiled.module), sizes, "numpy"))
        assert caught.value.code == "input"


def unconstrained(module: neuron_ir.Module) -> neuron_ir.Module:
    """The module without ranges and conditions, to make inputs that it refuses."""
    copy = module.clone()
    set_constraints(copy.main, ())
    copy.main.dims = dict.fromkeys(copy.main.dims, (0, None))
    return copy
