"""Sizes of torch programs that are not fixed: names, conditions under which torch traced, and integers as inputs and outputs."""

from __future__ import annotations

import re

import numpy
import pytest
import torch
from torch.export import Dim

import neuron_ir
from neuron_ir.constraints import constraint, parse_constraint
from neuron_ir.dims import symbol
from neuron_ir.frontends.torch.guards import read_guards
from neuron_ir.frontends.torch.symbols import Symbols

AXIS = {0: Dim.AUTO}


def refused(program, *args, message: str, **kwargs) -> None:
    with pytest.raises(neuron_ir.IRError, match=re.escape(message)) as caught:
        program(*args, **kwargs)
    assert caught.value.code == "input"


def test_a_branch_on_sizes_holds_for_the_sizes_that_take_it() -> None:
    def f(x, *rest, kw):
        return x + rest[0][: x.shape[0]] * (1 if rest[1]["a"].shape[0] > kw.shape[0] else 2)

    args = (torch.ones(3), torch.arange(5.0), {"a": torch.ones(7)})
    ir = neuron_ir.from_torch(f, args, {"kw": torch.ones(4)}, dynamic_shapes={"x": AXIS, "rest": (AXIS, {"a": AXIS}), "kw": AXIS})
    where = ir.main.attrs["where"]
    assert len(where) == 2 and neuron_ir.parse(ir.text()).main.attrs["where"] == where
    program = neuron_ir.compile(ir)
    small = (torch.ones(2), torch.arange(4.0), {"a": torch.ones(6)})
    torch.testing.assert_close(program(*small, kw=torch.ones(5)), f(*small, kw=torch.ones(5)))
    with pytest.raises(neuron_ir.IRError, match=r"is 6, .* is 6; the program was made for") as caught:
        program(*small, kw=torch.ones(6))
    assert sorted(n.partition(" is ")[2] for n in caught.value.diagnostics[0].notes) == ["axis 0 of kw", "axis 0 of rest_1_a"]
    with pytest.raises(neuron_ir.IRError, match="the program was made for"):
        program(torch.ones(5), *small[1:], kw=torch.ones(5))


def test_derived_sizes_have_the_users_names() -> None:
    ir = neuron_ir.from_torch(lambda x: x.reshape(-1, 2).sum(1), (torch.ones(8),), dynamic_shapes=({0: 2 * Dim("half", max=9)},))
    assert [str(a.type) for a in ir.main.args] == ["tensor<(2*half)xf32>"] and ir.main.dims["half"][1] == 9
    refused(neuron_ir.compile(ir), torch.ones(5), message="axis 0 of x is 5, which is not 2*half for any whole half")
    refused(neuron_ir.compile(ir), torch.ones(20), message="half is 10; the program was made for")


def test_integers_are_inputs_and_outputs() -> None:
    class Model(torch.nn.Module):
        def forward(self, x, n):
            return x[:n] + n, n + 1, {"size": x.shape[0]}

    example = (torch.arange(9.0), 3)
    program = neuron_ir.compile(neuron_ir.from_torch(Model(), example, dynamic_shapes=(AXIS, Dim.DYNAMIC)))
    y, after, named = program(torch.arange(5.0), 4)
    torch.testing.assert_close(y, torch.arange(4.0) + 4)
    assert (after, named, type(after), type(named["size"])) == (5, {"size": 5}, int, int)
    y, after, _ = program(torch.arange(9.0), n=numpy.int64(2))
    assert y.tolist() == [2, 3] and after == 3
    refused(program, torch.arange(5.0), 7, message="the program was made for")
    refused(program, torch.arange(5.0), 2.5, message="input 'n' is a float, but an integer is needed")
    refused(program, torch.arange(5.0), True, message="input 'n' is a bool, but an integer is needed")
    refused(program, torch.arange(5.0), message="input(s) n missing")
    refused(program, torch.arange(5.0), 2**64, message="which does not fit 64 bits")
    assert neuron_ir.bisect(program.module, None, (torch.arange(5.0), 4)) is None


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("L['x'].size()[0] > L['x'].size()[1]", ["s > t"]),
        ("3 <= L['x'].size()[0] and L['x'].size()[0] <= L['n']", ["s <= n"]),
        ("not (L['x'].size()[0] % 3 == 1)", ["mod(s,3) != 1"]),
        ("Eq(Mod(L['x'].size()[0], 4), 0)", ["mod(s,4) == 0"]),
        ("-L['n'] + 2 * L['x'].size()[0] ** 2 // 3 >= Max(1, L['n'])", ["floordiv(2*s*s,3) >= max(1,n)+n"]),
        ("L['x'].size()[0] != 1", []),
        ("L['x'].size()[1] == L['n'] or L['n'] == 1 or L['x'].size()[0] < 3", ["t == n or n == 1"]),
        ("L['x'].size()[1] == L['n'] or L['x'].size()[0] == 1", ["t == n"]),
        ("L['x'].size()[0] > 2 or L['n'] == 1", []),
        ("L['x'].stride()[0] == 7", []),
        ("True", []),
    ],
)
def test_guards_as_constraints(code: str, expected: list[str]) -> None:
    assert [str(c) for c in read_guards([code], *_example())] == expected


@pytest.mark.parametrize("code", ["L['n'] > 1 or (L['n'] > 2 and L['n'] < 9)", "L['y'].size()[0] > 3", "math.sqrt(L['n']) > 2"])
def test_a_guard_that_cannot_be_written_is_refused(code: str) -> None:
    with pytest.raises(neuron_ir.IRError, match=re.escape(f"the condition {code} on the inputs' sizes")):
        read_guards([code], *_example())


def _example():
    """The inputs ``x`` of shape [s, t] and ``n``, with s from 3 to 9."""

    class Sizes(Symbols):
        def dim(self, size):
            return symbol(size) if isinstance(size, str) else size.name

    class SymInt:
        name = symbol("n")

    symbols = Sizes({})
    symbols.used = {"s": (3, 9), "t": (0, None), "n": (0, None)}
    fake = type("Fake", (), {"shape": ("s", "t")})()
    return {"L['x']": fake, "L['n']": SymInt()}, symbols


def test_constraints_have_one_form() -> None:
    a, b = symbol("a"), symbol("b")
    assert [str(constraint(*c)) for c in ((a - b, ">=", 0), (3, "<", a), (2 * a - b, "!=", b + 1))] == [
        "a >= b",
        "3 < a",
        "2*a != 2*b+1",
    ]
    either = parse_constraint("a == b or b == 1")
    assert str(either) == "a == b or b == 1" and str(either.at({"a": 3})) == "3 == b or b == 1"
    assert [either.at({"a": a, "b": b}) for a, b in ((3, 3), (3, 1), (3, 2))] == [True, True, False]
    assert constraint(a, "<", a) is False and constraint(a + 1, ">", a) is True


def test_as_many_of_the_largest_as_a_size_says() -> None:
    def f(x):
        return x.topk(x.shape[0] - 1, 0), x.topk(x.shape[0], 0, largest=False)[0]

    program = neuron_ir.compile(neuron_ir.from_torch(f, (torch.ones(5, 2),), dynamic_shapes=({0: Dim("n", min=3, max=9)},)))
    x = torch.tensor([[3.0, -0.5], [float("nan"), 2.0], [1.0, 7.0], [-4.0, 0.0]])
    torch.testing.assert_close(program(x), f(x), equal_nan=True)
