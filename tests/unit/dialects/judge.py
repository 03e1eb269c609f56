"""Runs one op on torch tensors, whole and expanded, and holds the values against torch's."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy
import pytest
import torch

from neuron_ir.builder import Builder
from neuron_ir.core import Func, Module
from neuron_ir.diagnostics import IRError
from neuron_ir.dims import symbol
from neuron_ir.dtypes import dtype, dtype_of_numpy
from neuron_ir.meaning import Meaning, compute, expansion, run, x64
from neuron_ir.types import TensorType

EPS = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


def to_numpy(t: torch.Tensor):
    return t.detach().view(torch.int16).numpy().view(ml_dtypes.bfloat16) if t.dtype is torch.bfloat16 else t.detach().numpy()


def to_torch(a) -> torch.Tensor:
    a = numpy.array(a)
    return torch.from_numpy(a.view(numpy.int16)).view(torch.bfloat16) if a.dtype == ml_dtypes.bfloat16 else torch.from_numpy(a)


def program(name, types, **attrs):
    """A verified module that is one op; ``None`` stands for an absent operand."""
    func = Func("main", [t for t in types if t is not None])
    args = iter(func.args)
    result = Builder(func.body).make(name, *[None if t is None else next(args) for t in types], **attrs)
    results = result if isinstance(result, tuple) else (result,)
    func.set_results(results)
    return _verified(func)


def _verified(func):
    for t in [a.type for a in func.args]:
        for d in t.shape:
            for s in getattr(d, "symbols", ()):
                func.dims[s] = (0, None)
    module = Module()
    module.add(func)
    module.verify()
    return module


def expanded(module):
    """The module with its one op replaced by its body of simpler ops."""
    op = module.main.body.first
    block = expansion(op)
    func = Func("main", ())
    func.body = block
    block.parent = func
    func.arg_attrs = [{} for _ in block.args]
    values = list(block.terminator.operands)
    assert all(v.type is r.type for v, r in zip(values, op.results, strict=True)), [v.type for v in values]
    block.terminator.erase()
    func.set_results(values)
    return _verified(func)


def evaluate(arrays, *modules):
    """The results of each module on the same arrays, jitted together."""
    return [list(map(to_torch, results)) for results in _jitted(arrays, *modules)]


def _jitted(arrays, *modules):
    j = Meaning()
    with x64():
        return jax.jit(lambda *inputs: [run(m.main, inputs, j) for m in modules])(*arrays)


def compute_each(names, *arrays):
    """The value of each of these ops on the same NumPy arrays, by name, compiled together."""
    types = [TensorType(a.shape, dtype_of_numpy(a.dtype)) for a in arrays]
    results = _jitted(arrays, *[program(f"neuron.{name}", types) for name in names])
    return {name: numpy.asarray(result) for name, (result,) in zip(names, results, strict=True)}


def assert_refused(name, arrays, attrs, code, message):
    """The op ``neuron.<name>`` refuses these arrays and attributes with that code, and with that text in its message."""
    with pytest.raises(IRError) as error:
        compute(f"neuron.{name}", *arrays, **attrs)
    assert error.value.code == code
    assert message in str(error.value)


def apply(name, *operands, ulps=4.0, **attrs):
    """The value(s) of the op ``neuron.<name>``; where it has a meaning of its own, its expansion must agree within ``ulps``."""
    arrays = [to_numpy(t) for t in operands if t is not None]
    types = [None if t is None else TensorType(tuple(t.shape), dtype_of_numpy(to_numpy(t).dtype)) for t in operands]
    module = program(f"neuron.{name}", types, **attrs)
    simpler = expanded(module)
    has_meaning = module.main.body.first.spec.jax is not None
    results, *others = evaluate(arrays, module, *([simpler] if has_meaning else []))
    for parts in others:
        for whole, part in zip(results, parts, strict=True):
            close(whole, part, ulps)
    return results[0] if len(results) == 1 else results


def apply_each(name, operands, variants):
    """The values of ``neuron.<name>`` on the same operands under each dict of attributes, compiled together; a tuple each."""
    arrays = [to_numpy(t) for t in operands if t is not None]
    func = Func("main", [TensorType(a.shape, dtype_of_numpy(a.dtype)) for a in arrays])
    args = iter(func.args)
    values = [None if t is None else next(args) for t in operands]
    b, results, sizes = Builder(func.body), [], []
    for attrs in variants:
        result = b.make(f"neuron.{name}", *values, **attrs)
        group = result if isinstance(result, tuple) else (result,)
        results += group
        sizes.append(len(group))
    func.set_results(results)
    flat = iter(evaluate(arrays, _verified(func))[0])
    return [tuple(next(flat) for _ in range(n)) for n in sizes]


def close(actual, expected, ulps, per_element=False):
    """Same shape, dtype, NaNs and infinities; the rest within ``ulps`` of the expected type, measured at the largest expected
    magnitude (sums cancel), or at each element's own."""
    expected = expected.detach()
    assert actual.dtype is expected.dtype and actual.shape == expected.shape, (
        actual.dtype,
        actual.shape,
        expected.dtype,
        expected.shape,
    )
    if actual.dtype not in EPS:
        assert torch.equal(actual, expected), (actual, expected)
        return
    a, e = actual.double(), expected.double()
    odd = ~e.isfinite()
    assert torch.equal(a.isnan(), e.isnan()) and torch.equal(a[e.isinf()], e[e.isinf()]), (actual, expected)
    a, e = a[~odd], e[~odd]
    if not e.numel():
        return
    tiny = torch.finfo(actual.dtype).tiny
    scale = e.abs().clamp(min=tiny / EPS[actual.dtype] / 4) if per_element else max(e.abs().max().item(), tiny)
    error = ((a - e).abs() / scale).max().item() / EPS[actual.dtype]
    assert error <= ulps, f"{error:.2f} ulp, at most {ulps} allowed"


def symbolic(shape, element="f32"):
    """A type whose shape holds numbers, ``None`` for an unknown size, and names of symbols."""
    from neuron_ir.dims import UNKNOWN

    dims = [UNKNOWN if d is None else symbol(d) if isinstance(d, str) else d for d in shape]
    return TensorType(dims, dtype(element))
