"""The text: what is printed reads back as the same module, bit for bit, and prints the same again."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neuron_ir
from neuron_ir.attrs import Dense, same_attr
from neuron_ir.compare import first_difference
from neuron_ir.diagnostics import IRError
from neuron_ir.dtypes import all_dtypes
from neuron_ir.locations import FileLoc
from neuron_ir.parser import MAX_NESTING
from tests.unit.core.programs import EVERYTHING, SHAPES


def test_printing_is_a_fixpoint_and_loses_nothing() -> None:
    module = neuron_ir.parse(EVERYTHING)
    module.verify()
    text = module.text(locations=True)
    again = neuron_ir.parse(text)
    assert first_difference(module, again) == ""
    assert again.text(locations=True) == text


def test_everything_written_is_kept() -> None:
    module = neuron_ir.parse(EVERYTHING)
    main = module.main
    assert module.name == "a name with spaces"
    assert module.attrs == {"target": "trn2", "sizes": (1, 2)}
    assert main.dims == {"B": (1, 8), "S": (0, None)}
    assert main.attrs == {"note": 'quote " backslash \\ newline \n'}
    assert main.arg_attrs[1] == {"kind": "weight", "weight": "blocks.0.w"}
    assert main.result_attrs == [{"name": "out"}, {"updates": 2}]
    ops = {op.results[0].name: op for op in main.body.ops if op.results}
    assert ops["i"].loc == FileLoc("m.py", 3, 7, "blocks.0", FileLoc("main.py", 1, 1))
    assert [p.short for p in ops["low"].loc.places] == ["a.py:1:2", "b.py:3:4"]
    constants = [op.get("value") for op in main.body.ops if op.name == "neuron.constant"]
    assert constants[0].data == struct.pack("<3f", -0.0, float("inf"), float("nan")) + struct.pack("<I", 0x00800000)
    assert constants[1].data == bytes.fromhex("0100c0ff")
    assert constants[2].array.tolist() == [1.5 - 0j, 1.5 - 0j]
    assert constants[4].array.tolist() == [[1, -128], [127, 0]]
    assert float(constants[5].array) == 448.0


def test_a_printed_op_leaves_out_defaults() -> None:
    module = neuron_ir.parse(
        "func @f(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
        "%y = neuron.softmax(%x) {axis = -1} : tensor<2x3xf32>\n"
        '%z = neuron.gelu(%y) {approximate = "none"} : tensor<2x3xf32>\nfunc.return(%z) }'
    )
    assert "{axis" not in module.text()
    assert "approximate" not in module.text()


def test_comments_and_spacing_do_not_matter() -> None:
    spaced = SHAPES.replace("\n", "\n\n// a comment, { not read\n").replace(" = ", "   =\t").replace("(%x)", "(\n %x )")
    assert neuron_ir.parse(spaced).text() == neuron_ir.parse(SHAPES).text()


def test_names_are_kept_and_made_unique() -> None:
    module = neuron_ir.parse(SHAPES)
    for op in module.main.body.ops:
        for result in op.results:
            result.name = "x"
    assert "%x_1 = neuron.tanh(%x)" in module.text()
    assert neuron_ir.parse(module.text()).text() == module.text()


@pytest.mark.parametrize("element", [t for t in all_dtypes() if t.kind == "float"], ids=str)
def test_floats_of_every_type_keep_their_bits(element: Any) -> None:
    width = element.numpy.itemsize
    rng = np.random.default_rng(0)
    if element.bits <= 8:
        patterns = np.arange(2**element.bits, dtype=np.uint8).tobytes()
    else:
        patterns = rng.integers(0, 256, 200 * width, dtype=np.uint8).tobytes()
    _check_constants(element, [patterns[i : i + 5 * width] for i in range(0, len(patterns) - 5 * width, 5 * width)])


@pytest.mark.parametrize("element", [t for t in all_dtypes() if t.kind in ("int", "uint")], ids=str)
def test_integers_of_every_type_keep_their_bits(element: Any) -> None:
    low = -(2 ** (element.bits - 1)) if element.kind == "int" else 0
    ends = np.array([low, low + 1, 0, 1, low + 2**element.bits - 1], object).astype(element.numpy)
    _check_constants(element, [ends.tobytes()])


def test_complex_numbers_keep_their_bits() -> None:
    values = np.array([complex(-0.0, np.nan), complex(np.inf, -0.0), 1e-45 + 1j, 0, 3], np.complex64)
    _check_constants(neuron_ir.dtype("c64"), [values.tobytes()])


def _check_constants(element: Any, chunks: list[bytes]) -> None:
    """Constants of five elements with these bytes, printed as numbers, read back as the same bytes."""
    module = neuron_ir.Module()
    func = module.add(neuron_ir.Func("main"))
    b = neuron_ir.Builder(func.body)
    made = [Dense(element, (5,), data) for data in chunks]
    func.set_results([b.constant(value=d, out=neuron_ir.tensor([5], element)) for d in made])
    again = neuron_ir.parse(module.text())
    read = [op.get("value") for op in again.main.body.ops if op.name == "neuron.constant"]
    assert read == made


@given(st.floats(width=64))
def test_float_attributes_keep_their_bits(x: float) -> None:
    module = neuron_ir.parse(SHAPES)
    module.attrs["x"] = x
    assert same_attr(neuron_ir.parse(module.text()).attrs["x"], x)


@given(
    st.recursive(
        st.one_of(st.booleans(), st.integers(-(2**63), 2**63), st.floats(), st.text(st.characters(codec="utf-8"))),
        lambda inner: st.lists(inner, max_size=4).map(tuple),
        max_leaves=10,
    )
)
def test_attributes_read_back(value: Any) -> None:
    module = neuron_ir.parse(SHAPES)
    module.main.attrs["value"] = value
    assert same_attr(neuron_ir.parse(module.text()).main.attrs["value"], value)


def test_long_constants_print_as_bytes_and_splats_as_one_number() -> None:
    module = neuron_ir.Module()
    func = module.add(neuron_ir.Func("main"))
    b = neuron_ir.Builder(func.body)
    long = b.const(np.arange(40, dtype=np.int16), neuron_ir.dtype("i16"))
    splat = b.const(0.5, neuron_ir.dtype("bf16"), (1000, 1000))
    func.set_results([long, splat])
    text = module.text()
    assert 'dense<"00000100' in text
    assert "dense<0.5>" in text
    again = neuron_ir.parse(text)
    assert [v.op.get("value") for v in again.main.body.terminator.operands] == [v.op.get("value") for v in (long, splat)]


def test_attributes_of_a_function_and_of_its_only_result_are_told_apart() -> None:
    for of_function, of_result in (({"a": 1}, {}), ({}, {"b": 2}), ({"a": 1}, {"b": 2})):
        module = neuron_ir.parse(SHAPES)
        module.main.attrs, module.main.result_attrs = dict(of_function), [dict(of_result)]
        again = neuron_ir.parse(module.text()).main
        assert (again.attrs, again.result_attrs) == (of_function, [of_result])


def test_a_newer_text_is_refused() -> None:
    with pytest.raises(IRError, match=r"ir_version 2; this reader knows up to 1") as caught:
        neuron_ir.parse("module @m {ir_version = 2} {\n}")
    assert caught.value.code == "version"


@pytest.mark.parametrize("depth", [MAX_NESTING + 1, 5000])
def test_regions_nested_too_deep_are_refused_at_once(depth: int) -> None:
    head = "func @main(%x: tensor<f32>) -> tensor<f32> {\n"
    text = head + "%y = neuron.fused(%x) {\n" * depth + "}\n" * depth + "func.return(%y)\n}\n"
    with pytest.raises(IRError, match=f"nested deeper than {MAX_NESTING} levels") as caught:
        neuron_ir.parse(text)
    assert caught.value.code == "nesting"


def test_lists_nested_too_deep_are_refused_at_once() -> None:
    with pytest.raises(IRError, match="nested deeper than"):
        neuron_ir.parse("module @m {x = " + "[" * 5000 + "]" * 5000 + "} {\n}")


def test_deep_but_allowed_regions_read_verify_print_and_clone() -> None:
    depth = 100
    head = "func @main(%x: tensor<f32>) -> tensor<f32> {\n"
    opens = "".join(f"%y{i} = neuron.fused(%{f'a{i - 1}' if i else 'x'}) {{\n^(%a{i}: tensor<f32>):\n" for i in range(depth))
    closes = "".join(
        f"neuron.yield(%{f'y{i + 1}' if i < depth - 1 else f'a{i}'})\n}} : tensor<f32>\n" for i in reversed(range(depth))
    )
    module = neuron_ir.parse(head + opens + closes + "func.return(%y0)\n}\n")
    module.verify()
    assert neuron_ir.parse(module.clone().text()).text() == module.text()
