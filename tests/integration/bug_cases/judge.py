"""Runs one small program through every way into the IR, and holds dtype, shape and values against an outside judge."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch.utils import _pytree as pytree

import neuron_ir


def as_view(t: torch.Tensor) -> torch.Tensor:
    """The tensor's values as a view with an offset, gaps and dims in reversed memory order; the gaps hold 77 (True)."""
    if not t.dim() or t.is_complex():
        return t.clone()
    base = torch.full([2 * n + 1 for n in reversed(t.shape)], 77).to(t.dtype)
    view = base[tuple(slice(1, None, 2) for _ in t.shape)].permute(*reversed(range(t.dim())))
    view.copy_(t)
    return view


def same(got: Any, want: Any) -> None:
    """Equal structure, dtype, shape and values: exactly for integers and bool, within torch's default tolerance of each float
    type (f32: 1.3e-6 relative; f16: 1e-3; bf16: 1.6e-2), NaN equal to NaN.
    """
    mine, theirs = _leaves(got), _leaves(want)
    assert len(mine) == len(theirs), (got, want)
    for g, w in zip(mine, theirs, strict=True):
        if not isinstance(w, torch.Tensor):
            assert g == w and type(g) is type(w), (g, w)
            continue
        assert isinstance(g, torch.Tensor) and g.dtype == w.dtype and g.shape == w.shape, (g, w)
        torch.testing.assert_close(_wide(g), _wide(w), equal_nan=True, **_tolerance(w.dtype))


def each(*functions: Callable[..., Any]) -> Callable[..., Any]:
    """One function that gives the results of all of them, so that they become one program."""
    return lambda *args: [function(*args) for function in functions]


def _leaves(tree: Any) -> list[Any]:
    return [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in pytree.tree_leaves(tree)]


def _wide(t: torch.Tensor) -> torch.Tensor:
    return t.float() if t.is_floating_point() and t.element_size() == 1 else t


def _tolerance(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 0.0, "atol": 0.0} if dtype.is_floating_point and dtype.itemsize == 1 else {}


def torch_programs(function: Any, *args: Any, passes: str = "O3", **options: Any) -> list[Any]:
    """The compiled programs of a module or function: as imported, and after ``passes``; both read back from the IR's own text."""
    module = neuron_ir.from_torch(function, copy.deepcopy(args), **options)
    plain, changed = (neuron_ir.parse(module.text()) for _ in range(2))
    for copied in (plain, changed):
        copied.weights.update(module.weights)
    neuron_ir.run_passes(changed, passes)
    return [neuron_ir.compile(plain), neuron_ir.compile(changed)]


def check(function: Any, *args: Any, want: Any = None, **options: Any) -> None:
    """Hold a torch function of tensors against eager torch (and ``want``, where given), updates of its inputs included.

    The program is run as imported and after passes, each with contiguous inputs and with views, each twice.
    """
    if want is not None:
        same(function(*copy.deepcopy(args)), want)
    for run in torch_programs(function, *args, **options):
        for form in (torch.clone, as_view):
            for _ in range(2):
                mine, theirs = ([form(a) if isinstance(a, torch.Tensor) else a for a in args] for _ in range(2))
                expected = function(*theirs)
                same(run(*mine), expected)
                same(mine, theirs)


def check_jax(function: Callable[..., Any], *args: Any, want: Any, passes: str = "O3") -> None:
    """Hold a JAX function of NumPy arrays against ``want``: arrays of the exact dtype; floats within 1e-6 relative.

    The program is run as imported and after ``passes``, with contiguous arrays and with views, each twice.
    """
    import jax

    with jax.enable_x64(True):
        text = neuron_ir.from_jax(function, *args).text()
    for pipeline in ("O0", passes):
        module = neuron_ir.parse(text)
        neuron_ir.run_passes(module, pipeline)
        run = neuron_ir.compile(module)
        for form in (numpy.array, _strided):
            for _ in range(2):
                same_arrays(run(*map(form, args)), want)


def same_arrays(got: Any, want: Any) -> None:
    """NumPy arrays of equal dtype, shape and values; see :func:`check_jax`."""
    mine, theirs = (t if isinstance(t, tuple | list) else (t,) for t in (got, want))
    for g, w in zip(mine, theirs, strict=True):
        g, w = numpy.asarray(g), numpy.asarray(w)
        assert g.dtype == w.dtype and g.shape == w.shape, (g, w)
        if g.dtype.kind in "biu":
            assert numpy.array_equal(g, w), (g, w)
        else:
            numpy.testing.assert_allclose(g.astype(numpy.float64), w.astype(numpy.float64), rtol=1e-6)


def _strided(a: Any) -> numpy.ndarray[Any, Any]:
    a = numpy.asarray(a)
    if not a.ndim:
        return a.copy()
    base = numpy.zeros([2 * n + 1 for n in reversed(a.shape)], a.dtype)
    view = base[tuple(slice(1, None, 2) for _ in a.shape)].transpose()
    view[...] = a
    return view
