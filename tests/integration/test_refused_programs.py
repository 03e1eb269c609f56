"""Programs that must be refused: each with the exact message, and the user's line where the program has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.export import Dim
from torch.nn import functional as F

import neuron_ir
from neuron_ir import IRError

X = torch.arange(12.0).reshape(3, 4)
I = torch.tensor  # noqa: E741
PAIR = I([0, 2])
N = Dim("n", min=2, max=9)
ONES = np.ones(3, np.float32)


def imported(function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    """A torch function of one or two tensors as a module."""
    if len(inputs) == 1:
        return neuron_ir.from_torch(lambda x: function(x), inputs, **options)
    return neuron_ir.from_torch(lambda x, y: function(x, y), inputs, **options)


def called(function: Callable[..., Any], inputs: tuple[Any, ...], *given: Any, **options: Any) -> Any:
    """The program made for ``inputs``, run on what is given."""
    return neuron_ir.compile(imported(function, *inputs, **options))(*given)


def jax_called(function: Callable[..., Any], example: Any, *given: Any) -> Any:
    return neuron_ir.compile(neuron_ir.from_jax(function, example))(*given)


def stablehlo(text: str, *given: Any) -> Any:
    return neuron_ir.compile(neuron_ir.from_stablehlo(text))(*given)


def in_branch(then: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: torch.cond(x.sum() > 0, then, lambda x: x.sin(), (x,))


# --- what has no meaning here -----------------------------------------------------------------------------------------

OUTSIDE = "an index lies outside 0.."
UNSUPPORTED: dict[str, tuple[Callable[[], Any], str]] = {
    "one place written twice": (
        lambda: imported(lambda x, v: torch.as_strided_scatter(x, v, (3, 2), (1, 1)), torch.zeros(4), torch.ones(3, 2)),
        "aten.as_strided_scatter.default: strides by which several elements share one place: the order of the writes is undefined",
    ),
    "a sparse result": (
        lambda: imported(lambda x: x.to_sparse(), X),
        "aten._to_sparse.default: the result has the layout torch.sparse_coo; only dense tensors have a counterpart in the IR",
    ),
    "a quantised result": (
        lambda: imported(lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), X),
        "aten.quantize_per_tensor.default: no rule for this operation",
    ),
    "half a complex number": (
        lambda: imported(lambda x: x.chalf(), X),
        "aten._to_copy.default: the element type torch.complex32 has no counterpart in the IR",
    ),
    "elements under a mask, in a branch": (
        lambda: imported(in_branch(lambda x: x[x > 0].sum() + x), X),
        "aten.index.Tensor: a size that depends on the data, inside a region of control flow",
    ),
    "places, in a loop": (
        lambda: imported(lambda x: torch.while_loop(lambda x: x.sum() < 9, lambda x: (x + x.nonzero().sum(),), (x,)), X),
        "aten.nonzero.default: a size that depends on the data, inside a region of control flow",
    ),
}  # fmt: skip

# --- what the data rule out -------------------------------------------------------------------------------------------

AT_RUN_TIME: dict[str, tuple[Callable[[], Any], str]] = {
    "index": (lambda: called(lambda x, i: x[i], (X, PAIR), X, I([0, 3])), f"neuron.gather: {OUTSIDE}2"),
    "gather": (lambda: called(lambda x, i: x.gather(1, i), (X, PAIR[None]), X, I([[0, -1]])), f"neuron.gather: {OUTSIDE}3"),
    "scatter": (lambda: called(lambda x, i: x.scatter(1, i, 1.0), (X, PAIR[None]), X, I([[0, 4]])), f"neuron.scatter: {OUTSIDE}3"),
    "index_put": (
        lambda: called(lambda x, i: torch.index_put(x, (i,), I(1.0)), (X, PAIR), X, I([3, 0])), f"neuron.scatter: {OUTSIDE}2",
    ),
    "embedding": (lambda: called(lambda x, i: F.embedding(i, x), (X, PAIR), X, I([0, -1])), f"neuron.gather: {OUTSIDE}2"),
    "one_hot": (lambda: called(lambda i: F.one_hot(i, 3), (PAIR,), I([0, 3])), f"neuron.checked_index: {OUTSIDE}2"),
    "cross_entropy": (lambda: called(F.cross_entropy, (X, I([0, 1, 2])), X, I([0, -1, 2])), f"neuron.gather: {OUTSIDE}3"),
    "floor division": (
        lambda: called(lambda a, b: a // b, (PAIR, PAIR + 1), PAIR, PAIR),
        "neuron.check: aten.floor_divide.default: an integer is divided by 0 in tensor<2xi64>",
    ),
    "remainder": (
        lambda: called(lambda a, b: a % b, (PAIR, PAIR + 1), PAIR, PAIR),
        "neuron.check: aten.remainder.Tensor: an integer is divided by 0 in tensor<2xi64>",
    ),
    "a number torch checks": (
        lambda: called(lambda n: (torch._check(n.item() >= 2), torch.zeros(n.item()))[1], (I(3),), I(1)),
        "neuron.bind_size: the size n0 is 1; the program was made for at least 2",
    ),
}  # fmt: skip

# --- calls that do not fit the program --------------------------------------------------------------------------------

CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "shape": (lambda: called(torch.sin, (X,), X[:2]), "@main: input 'x' is tensor<2x4xf32>, but tensor<3x4xf32> is needed"),
    "rank": (lambda: called(torch.sin, (X,), X[0]), "@main: input 'x' is tensor<4xf32>, but tensor<3x4xf32> is needed"),
    "element type": (
        lambda: called(torch.sin, (X,), X.double()), "@main: input 'x' is tensor<3x4xf64>, but tensor<3x4xf32> is needed",
    ),
    "too many": (lambda: called(torch.sin, (X,), X, X), "@main takes 1 input(s) (x), not 2"),
    "too few": (lambda: called(torch.add, (X, X), X), "@main: input(s) y missing"),
    "an unknown name": (lambda: neuron_ir.compile(imported(torch.sin, X))(z=X), "@main has no input 'z'; its inputs: x"),
    "another device": (
        lambda: called(torch.sin, (X,), X.to("meta")), "input 'x': a torch tensor on meta; move it to the CPU first",
    ),
    "no array": (
        lambda: called(torch.sin, (X,), "abc"), "input 'x': a builtins.str; NumPy, torch or JAX arrays are needed",
    ),
    "a sparse input": (
        lambda: imported(torch.sin, X.to_sparse()), "the input x has the layout torch.sparse_coo; dense tensors are needed",
    ),
    "an element type that is not here": (
        lambda: imported(torch.clone, X.to(torch.complex32)),
        "the input x: the element type torch.complex32 has no counterpart in the IR",
    ),
    "another number than was built in": (
        lambda: neuron_ir.compile(neuron_ir.from_torch(lambda x, n: x * n, (X, 3)))(X, 4),
        "@main: input 'n' is 4, but the program was made for 3",
    ),
    "a number of another type than was built in": (
        lambda: neuron_ir.compile(neuron_ir.from_torch(lambda x, n: x * n, (X, 3)))(X, 3.0),
        "@main: input 'n' is 3.0, but the program was made for 3",
    ),
    "another sign of zero than was built in": (
        lambda: neuron_ir.compile(neuron_ir.from_torch(lambda x, n: x * n, (X, 0.0)))(X, -0.0),
        "@main: input 'n' is -0.0, but the program was made for 0.0",
    ),
    "one tensor as two inputs, of which one is updated": (
        lambda: called(lambda x, y: x.add_(1).sum() + y, (X.clone(), X.clone()), X, X),
        "input 'x' is updated by the program, but it shares memory with input 'y'; give a copy of one",
    ),
    "a size out of range": (
        lambda: called(torch.sin, (X,), torch.zeros(10, 4), dynamic_shapes={"x": {0: N}}),
        "@main: n is 10; the program was made for 2 to 9",
    ),
    "two sizes that differ": (
        lambda: called(torch.add, (X, X), X, X[:2], dynamic_shapes={"x": {0: N}, "y": {0: N}}),
        "@main: axis 0 of y is 2, but n is 3 with n = 3",
    ),
    "a read-only array to update": (
        lambda: called(lambda x: x.add_(1), (X.clone(),), np.broadcast_to(np.float32(1), (3, 4))),
        "input 'x' is updated by the program, but the array is read-only",
    ),
    "an expanded tensor to update": (
        lambda: called(lambda x: x.add_(1), (X.clone(),), torch.zeros(1, 4).expand(3, 4)),
        "input 'x' is updated by the program, but its elements share memory (an expanded tensor)",
    ),
    "a JAX array to update": (
        lambda: called(lambda x: x.add_(1), (X.clone(),), jnp.zeros((3, 4))),
        "input 'x' is updated by the program, but it is a JAX array, which cannot change; give a NumPy or torch array",
    ),
}  # fmt: skip

# --- JAX and StableHLO ------------------------------------------------------------------------------------------------

_F = "tensor<3xf32>"
JAX: dict[str, tuple[Callable[[], Any], str]] = {
    "shape": (lambda: jax_called(jnp.sin, ONES, ONES[:2]), f"@main: input 'x' is tensor<2xf32>, but {_F} is needed"),
    "element type": (
        lambda: jax_called(jnp.sin, ONES, ONES.astype(np.int32)), f"@main: input 'x' is tensor<3xi32>, but {_F} is needed",
    ),
    "no array": (lambda: neuron_ir.from_jax(lambda x: x, "abc"), "args[0] is a str, not an array"),
    "a callback of another shape": (
        lambda: jax_called(lambda x: jax.pure_callback(lambda v: v[:2], jax.ShapeDtypeStruct((3,), np.float32), x), ONES, ONES),
        "a function that the program calls failed: RuntimeError: Incorrect output shape for return value #0: "
        "Expected: (3,), Actual: (2,)",
    ),
    "a callback that raises": (
        lambda: jax_called(lambda x: jax.pure_callback(lambda v: 1 // 0, jax.ShapeDtypeStruct((3,), np.float32), x), ONES, ONES),
        "a function that the program calls failed: ZeroDivisionError: integer division or modulo by zero",
    ),
    "a size of the data as StableHLO": (
        lambda: neuron_ir.to_stablehlo(imported(torch.nonzero, X)),
        "neuron.bind_size: the size n0 depends on the data, which StableHLO text cannot hold",
    ),
    "an open size as StableHLO": (
        lambda: neuron_ir.to_stablehlo(imported(torch.sin, X, dynamic_shapes={"x": {0: N}})),
        "StableHLO text needs a number for the size(s) n",
    ),
    "an unknown custom call": (
        lambda: stablehlo(
            f"func.func @main(%x: {_F}) -> {_F} {{ %0 = stablehlo.custom_call @kernel(%x) : ({_F}) -> {_F} return %0 : {_F} }}",
            ONES,
        ),
        "stablehlo.custom_call: the target 'kernel' has no meaning here",
    ),
    "an undefined value": (
        lambda: stablehlo(f"func.func @main(%x: {_F}) -> {_F} {{ return %y : {_F} }}", ONES), "use of undeclared SSA value name",
    ),
    "a result of another type": (
        lambda: stablehlo(f"func.func @main(%x: {_F}) -> tensor<4xf32> {{ return %x : {_F} }}", ONES),
        "type of return operand 0 ('tensor<3xf32>') doesn't match function result type ('tensor<4xf32>') in function @main",
    ),
    "a scalar outside a tensor": (
        lambda: stablehlo("func.func @main(%x: f32) -> f32 { return %x : f32 }", ONES), "the type f32 has no counterpart",
    ),
    "a program that calls itself": (
        lambda: neuron_ir.compile(
            neuron_ir.parse(f"func @main(%x: {_F}) -> {_F} {{ %y = func.call(%x) {{callee = @main}} : {_F} func.return(%y) }}")
        )(ONES),
        "@main calls itself, which this target cannot run",
    ),
}  # fmt: skip


def refused(make: Callable[[], Any], code: str, message: str) -> IRError:
    """The error of ``make``, whose first message is exactly that."""
    with pytest.raises(IRError) as caught:
        make()
    assert (caught.value.diagnostics[0].message, caught.value.code in code) == (message, True)
    return caught.value


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_without_a_meaning(name: str) -> None:
    error = refused(*(UNSUPPORTED[name][0], "unsupported", UNSUPPORTED[name][1]))
    assert "test_refused_programs.py" in str(error.diagnostics[0].loc) and "called with tensor<" in str(error.diagnostics)


@pytest.mark.parametrize("name", AT_RUN_TIME)
def test_ruled_out_by_the_data(name: str) -> None:
    error = refused(AT_RUN_TIME[name][0], "runtime shape", AT_RUN_TIME[name][1])
    assert "test_refused_programs.py" in str(error.diagnostics[0].loc)


@pytest.mark.parametrize("name", CALLS)
def test_call(name: str) -> None:
    refused(CALLS[name][0], "input unsupported", CALLS[name][1])


@pytest.mark.parametrize("name", JAX)
def test_jax(name: str) -> None:
    refused(JAX[name][0], "input unsupported syntax runtime", JAX[name][1])


def test_the_corpus_has_forty_programs() -> None:
    assert sum(map(len, (UNSUPPORTED, AT_RUN_TIME, CALLS, JAX))) >= 40
