"""Programs whose data decide sizes: one artefact over data of several sizes, against torch; conditions of torch hold here too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import neuron_ir
from neuron_ir import IRError
from neuron_ir.instrument import VerifyEach
from neuron_ir.numerics import VerifyNumerics
from neuron_ir.passmanager import PassManager
from neuron_ir.pipeline import parse_pipeline

X = torch.tensor([[1.0, -2.0, 0.0], [0.5, 3.0, -1.0]])
Y = torch.tensor([[-1.0, 2.0, 4.0], [0.5, 3.0, 1.0]])
ZERO = torch.zeros(2, 3)
NAN = float("nan")
ROWS = torch.tensor([[1.0, 2, 2, 3], [3, 3, 1, NAN], [0, 0, 1, NAN], [3, 3, 1, 4], [3, 3, 1, 4]])


def program(function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """The compiled program, from its text read back."""

    def forward(*given: Any) -> Any:
        return function(*given)

    module = neuron_ir.from_torch(forward, inputs, **options)
    parsed = neuron_ir.parse(module.text())
    assert parsed.text() == module.text()
    parsed.weights = module.weights
    return neuron_ir.compile(parsed)


def known_count(x: torch.Tensor) -> torch.Tensor:
    places = x.nonzero()
    torch._check(places.shape[0] == x.shape[0])
    return places.reshape(2, 2) + x[:, :2].int()


def checked_length(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    length = n.item()
    torch._check(length >= 0)
    torch._check(length <= x.shape[0])
    return torch.arange(length) + x[:length].sum(1)


def masked_put(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[x[:, 0] > 0.7, at] = 7.0
    return x


def updated(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x[x > 0]


I = torch.tensor  # noqa: E741
FINITE = ROWS.nan_to_num()
PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "nonzero": (torch.nonzero, [(X,), (ZERO,)]),
    "nonzero of a scalar": (torch.nonzero, [(I(2.0),), (I(0.0),)]),
    "masked_select broadcasts": (lambda x, m: torch.masked_select(x, m), [(X, I([True, False, True])), (X, I([False] * 3))]),
    "a mask's elements and their number": (lambda x: (x[x > 0] * 2, x[x > 0].shape[0]), [(X,), (ZERO,)]),
    "rows and columns under masks": (lambda x: (x[x[:, 0] > 0.7], x[:, x[0] > 0] @ x.T[x[0] > 0]), [(X,), (ZERO,)]),
    "two sizes added": (lambda x: torch.cat([x[x > 0], x[x <= 0]]), [(X,), (ZERO,)]),
    "unique": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), [(ROWS,), (ROWS[:, :3].repeat(1, 2)[:, :4],)]),
    "unique rows": (lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True), [(FINITE,), (FINITE * 0,)]),
    "unique columns": (lambda x: torch.unique(x, dim=1, return_inverse=True), [(ROWS[:, :3],), (ROWS[:, :3] * 0,)]),
    "unique_consecutive": (lambda x: torch.unique_consecutive(x, True, True), [(ROWS,), (ROWS.flip(0),)]),
    "bincount": (lambda x, w: (torch.bincount(x), torch.bincount(x, w, 5)), [(I([1, 3, 1]), X[0]), (I([0, 7, 0]), X[0])]),
    "repeat_interleave": (lambda x, n: x.repeat_interleave(n, 0), [(X, I([2, 1])), (X, I([0, 0]))]),
    "tensor_split": (lambda x, at: x.tensor_split(at, 0), [(ROWS, I([1, 3])), (ROWS, I([-1, 1]))]),
    "a float item": (lambda x: x * x[0, 0].item(), [(X,), (Y,)]),
    "an integer item": (lambda x: x * x.sum().int().item() + 1, [(X,), (-Y,)]),
    "items as results": (lambda x: (x[0, 0].item(), (x > 0).any().item(), x.sum().long().item()), [(X,), (ZERO,)]),
    "a length that is read": (checked_length, [(X, I(1)), (X, I(0))]),
    "a bound that is read": (lambda x, n: x[: n.item()], [(X, I(1)), (X, I(7)), (X, I(-1))]),
    "an index that is read": (lambda x, n: x[n.item()], [(X, I(1)), (X, I(-1))]),
    "a size and a mask in one": (masked_put, [(X, I([0]))]),
    "a size that torch was told": (known_count, [(torch.eye(2, 3),)]),
    "nothing under the mask": (lambda x: (x[x > 0].mean(), x[x > 0].sum()), [(X,), (ZERO,)]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    function, calls = PROGRAMS[name]
    compiled = program(function, *calls[0])
    for inputs in calls:
        expected, actual = function(*inputs), compiled(*inputs)
        torch.testing.assert_close(actual, expected, equal_nan=True)


REFUSED_AT_RUN_TIME: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...], str]] = {
    "a size out of torch's range": (checked_length, (X, I(1)), (X, I(3)), "the data give another size than n0"),
    "a negative size": (lambda n: torch.zeros(n.item()), (I(2),), (I(-1),), "n0 is -1; the program was made for at least 0"),
    "a size that torch was told": (known_count, (torch.eye(2, 3),), (X,), "the data give another size than 2"),
    "negative repeats": (lambda x, n: x.repeat_interleave(n, 0), (X, I([2, 1])), (X, I([2, -1])), "a number in"),
    "negative bins": (torch.bincount, (I([1]),), (I([-1]),), "aten.bincount.default: a number in"),
    "the largest of nothing": (lambda x: x[x > 0].max(), (X,), (ZERO,), "no elements along axes"),
    "an assertion on the data": (lambda x: (torch._assert_async(x.any(), "some"), x)[1], (X,), (ZERO,), "neuron.check: some"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_AT_RUN_TIME)
def test_what_torch_refuses_at_run_time(name: str) -> None:
    function, example, inputs, message = REFUSED_AT_RUN_TIME[name]
    compiled = program(function, *example)
    with pytest.raises((RuntimeError, IndexError)):
        function(*inputs)
    with pytest.raises(IRError, match=message):
        compiled(*inputs)


def test_sizes_of_inputs_and_of_data_in_one_program() -> None:
    batch = torch.export.Dim("B", max=10)
    compiled = program(lambda x: x[x > 0] * x.shape[0], X, dynamic_shapes=(({0: batch},),))
    assert list(compiled.module.main.dims) == ["B", "n0"]
    for x in (X, ZERO, torch.cat([X, Y, X])):
        assert torch.equal(compiled(x), x[x > 0] * x.shape[0])


def test_an_updated_input_and_one_result_twice() -> None:
    compiled = program(updated, X.clone())
    mine, theirs = X.clone(), X.clone()
    assert torch.equal(compiled(mine), updated(theirs)) and torch.equal(mine, theirs)
    first, second, same = program(lambda x: (x[x > 0], x[x > 0].clone(), x), X)(X)
    first.zero_(), same.zero_()
    assert torch.equal(second, X[X > 0]) and X.any()


def test_passes_keep_the_values() -> None:
    module = neuron_ir.from_torch(lambda x: torch.softmax(x[x > 0], 0) * x[x > 0].shape[0], (X,))
    reference = neuron_ir.compile(module)(X)
    PassManager(parse_pipeline("canonicalize,cse,fold_constants,fuse,dce"), [VerifyEach(), VerifyNumerics()]).run(module)
    module.verify()
    for x in (X, Y, ZERO):
        torch.testing.assert_close(neuron_ir.compile(module)(x), torch.softmax(x[x > 0], 0) * (x > 0).sum())
    torch.testing.assert_close(reference, torch.softmax(X[X > 0], 0) * 3)


TEXT = """
func @main[n in 0..4, m in 0..inf](%x: tensor<4xf32>, %k: tensor<i64>) -> (tensor<nx1xi64>, tensor<(n+m)xf32>, tensor<i64>) {
  %zero = neuron.constant() {value = dense<0.0>} : tensor<4xf32>
  %mask = neuron.compare(%x, %zero) {direction = "NE"} : tensor<4xbool>
  %ones = neuron.cast(%mask) : tensor<4xi64>
  %count = neuron.reduce_sum(%ones) {axes = [0]} : tensor<i64>
  %n = neuron.bind_size(%count) {size = n} : tensor<i64>
  %places = neuron.nonzero(%x) {size = n} : tensor<nx1xi64>
  %m = neuron.bind_size(%k) {size = m} : tensor<i64>
  %s = neuron.dim_size() {size = 2*n+m*m+floordiv(n,2)+max(n,m)} : tensor<i64>
  %i = neuron.iota() {iota_dimension = 0} : tensor<(n+m)xf32>
  func.return(%places, %i, %s)
}
"""


def test_text() -> None:
    module = neuron_ir.parse(TEXT)
    module.verify()
    compiled = neuron_ir.compile(module)
    for x, m in (([1, 0, 2, 0], 3), ([0, 0, 0, 0], 0), ([1, 2, 3, 4], 1)):
        places, i, s = compiled(numpy.float32(x), numpy.int64(m))
        n = numpy.count_nonzero(x)
        assert places.tolist() == numpy.argwhere(x).tolist() and i.tolist() == list(range(n + m))
        assert s == 2 * n + m * m + n // 2 + max(n, m)


MISTAKES = {
    "no range": ("n in 0..4, ", "", "the size n has no range"),
    "bound twice": ("size = m}", "size = n}", "the size n is bound twice"),
    "an argument's size": ("%k: tensor<i64>)", "%k: tensor<i64>, %z: tensor<mxf32>)", "one of the arguments' sizes"),
    "no symbol": ("size = m}", "size = m+1}", "size must be one symbol, not m\\+1"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_in_text(name: str) -> None:
    old, new, message = MISTAKES[name]
    with pytest.raises(IRError, match=message):
        neuron_ir.parse(TEXT.replace(old, new)).verify()


def test_use_before_the_binding_and_inside_a_region() -> None:
    lines = TEXT.splitlines()
    at = next(i for i, line in enumerate(lines) if "bind_size(%count)" in line)
    early = "\n".join([*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]])
    with pytest.raises(IRError, match="the size n is used before the op that binds it"):
        neuron_ir.parse(early).verify()
    nested = lines[at].replace("%n =", "%n = neuron.if(%p) true_branch {\n%q =") + "\nneuron.yield(%q)\n} false_branch {\n"
    nested += "neuron.yield(%count)\n} : tensor<i64>"
    text = "\n".join([*lines[:at], "%p = neuron.constant() {value = dense<true>} : tensor<bool>", nested, *lines[at + 1 :]])
    with pytest.raises(IRError, match="the size n is bound inside a region"):
        neuron_ir.parse(text).verify()
