"""The text of a program: every bit of a number comes back, and deep nesting is refused or read, never a stack overflow."""

from __future__ import annotations

import numpy
import pytest

import neuron_ir
from neuron_ir.diagnostics import IRError


def _program(values: numpy.ndarray, element: str) -> str:
    module = neuron_ir.Module()
    func = module.add(neuron_ir.core.Func("main"))
    b = neuron_ir.Builder(func.body)
    func.set_results([b.const(values, neuron_ir.dtype(element))])
    module.verify()
    return module.text()


# seen in xdslproject/xdsl#2875: seven digits are not enough
@pytest.mark.parametrize("element", ["f32", "f64", "f16", "bf16"])
def test_constants_come_back_bit_for_bit(element: str) -> None:
    import ml_dtypes

    numpy_type = ml_dtypes.bfloat16 if element == "bf16" else numpy.dtype(element.replace("f", "float"))
    bits = f"uint{numpy.dtype(numpy_type).itemsize * 8}"
    rng = numpy.random.default_rng(0)
    random = rng.integers(0, numpy.iinfo(bits).max, 300, dtype=bits, endpoint=True).view(numpy_type)
    known = numpy.array([1e-45, 3.4028235e38, -0.0, numpy.inf, -numpy.inf, numpy.nan, 0.1, 1 / 3, 16777217], numpy.float64)
    with numpy.errstate(over="ignore"):
        values = numpy.concatenate([random, known.astype(numpy_type)])
    again = neuron_ir.parse(_program(values, element))
    assert again.text() == _program(values, element)
    assert (again.main.body.first.value.array.view(bits) == values.view(bits)).all()


def test_a_signalling_pattern_of_nan_keeps_its_bits() -> None:
    values = numpy.uint32([0x7FC00001, 0xFFC00000, 0x7F800001]).view(numpy.float32)
    read = neuron_ir.parse(_program(values, "f32")).main.body.first.value.array
    assert read.view(numpy.uint32).tolist() == values.view(numpy.uint32).tolist()


def _nested(depth: int) -> str:
    inner = "%r = neuron.add(%x, %x) : tensor<f32>\n"
    head = "".join(f"%r{i} = neuron.if(%c) true_branch {{\n" for i in range(depth))
    tail = "".join(
        f"neuron.yield({'%r' if i == depth - 1 else f'%r{i + 1}'})\n}} false_branch {{\nneuron.yield(%x)\n}} : tensor<f32>\n"
        for i in reversed(range(depth))
    )
    return f"func @main(%c: tensor<bool>, %x: tensor<f32>) -> tensor<f32> {{\n{head}{inner}{tail}func.return(%r0)\n}}"


# seen in lark-parser/lark#38: a recursion error
@pytest.mark.parametrize("depth", [100, 300, 1000, 5000])
def test_deep_regions_are_read_or_refused(depth: int) -> None:
    try:
        module = neuron_ir.parse(_nested(depth))
    except IRError as error:
        assert error.code == "nesting"
        assert depth > 100
        return
    module.verify()
    assert neuron_ir.parse(module.text()).text() == module.text()
    neuron_ir.run_passes(module, "O1")


@pytest.mark.parametrize("depth", [100, 1000, 20_000])
def test_deep_attributes_are_read_or_refused(depth: int) -> None:
    note = "[" * depth + "]" * depth
    text = f"func @main(%x: tensor<f32>) -> tensor<f32> {{ %y = neuron.abs(%x) {{note = {note}}} : tensor<f32> func.return(%y) }}"
    with pytest.raises(IRError) as caught:
        neuron_ir.parse(text)
    assert caught.value.code in ("nesting", "attr")
