"""Every op of StableHLO and CHLO has a rule or a stated reason; forms that JAX itself never writes."""

from __future__ import annotations

import io
from typing import Any

import jax
import numpy as np
import pytest

import neuron_ir
from neuron_ir.frontends.jax._compat import chlo, expand_chlo, op_names, stablehlo
from neuron_ir.frontends.jax.importer import RULES  # with the importer's own rule of constants
from neuron_ir.frontends.jax.parse import parse
from neuron_ir.frontends.jax.stablehlo import WITHOUT_RULE

# What ``expand_chlo`` writes as StableHLO.
EXPANDED = {name for name in op_names(chlo) if name.startswith("chlo.broadcast_")} | {"chlo.constant", "chlo.constant_like"}
EXPANDED |= {"chlo.mulhi", "chlo.ragged_dot"}


def test_every_op_of_the_dialects_has_a_rule_or_a_reason() -> None:
    names = [*op_names(stablehlo), *op_names(chlo)]
    assert len(names) > 160
    assert [n for n in names if n not in RULES and n not in WITHOUT_RULE and n not in EXPANDED and n != "stablehlo.return"] == []
    assert [n for n in (*WITHOUT_RULE, *EXPANDED) if n in RULES or n not in names] == []


@pytest.mark.parametrize("name", sorted(WITHOUT_RULE))
def test_a_reason_is_a_sentence(name: str) -> None:
    assert WITHOUT_RULE[name].startswith(": ") and len(WITHOUT_RULE[name]) > 20


def run(text: str, *args: Any) -> list[np.ndarray]:
    result = neuron_ir.compile(neuron_ir.from_stablehlo(text))(*args)
    return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]


def test_tuples_dissolve_into_their_members() -> None:
    pair = "tuple<tensor<2xf32>, tensor<3xf32>>"
    text = f"""func.func @main(%x: tuple<tensor<4xf32>, {pair}>) -> tuple<{pair}, tensor<4xf32>> {{
 %0 = stablehlo.get_tuple_element %x[0] : (tuple<tensor<4xf32>, {pair}>) -> tensor<4xf32>
 %1 = stablehlo.get_tuple_element %x[1] : (tuple<tensor<4xf32>, {pair}>) -> {pair}
 %2 = stablehlo.negate %0 : tensor<4xf32>
 %3 = stablehlo.tuple %1, %2 : tuple<{pair}, tensor<4xf32>>
 return %3 : tuple<{pair}, tensor<4xf32>> }}"""
    a, b, c = (np.arange(n, dtype=np.float32) for n in (4, 2, 3))
    first, second, third = run(text, a, b, c)
    assert first.tolist() == b.tolist() and second.tolist() == c.tolist() and third.tolist() == (-a).tolist()


def test_a_tuple_where_a_value_is_needed_is_refused() -> None:
    pair = "tuple<tensor<2xf32>, tensor<3xf32>>"
    text = f"""func.func @main(%x: {pair}) -> {pair} {{
 %0 = stablehlo.custom_call @Sharding(%x) : ({pair}) -> {pair}
 return %0 : {pair} }}"""
    with pytest.raises(neuron_ir.IRError, match="take it apart with get_tuple_element"):
        neuron_ir.from_stablehlo(text)


def test_an_asynchronous_op_is_finished_where_it_starts() -> None:
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
 %0 = "stablehlo.async_start"(%x) ({
 ^bb0(%a: tensor<4xf32>):
  %1 = "stablehlo.collective_permute"(%a) {source_target_pairs = dense<[[0, 0]]> : tensor<1x2xi64>}
    : (tensor<4xf32>) -> tensor<4xf32>
  stablehlo.return %1 : tensor<4xf32>
 }) : (tensor<4xf32>) -> !stablehlo.future<tensor<4xf32>>
 %2 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<4xf32>>) -> tensor<4xf32>
 return %2 : tensor<4xf32> }"""
    x = np.arange(4, dtype=np.float32)
    assert run(text, x)[0].tolist() == x.tolist()


CONV = """func.func @main(%x: tensor<1x2x5x6xf32>, %k: tensor<3x2x3x2xf32>, %p: tensor<2x2xi32>) -> tensor<{out}xf32> {{
 %0 = "stablehlo.dynamic_conv"(%x, %k, %p) {{window_strides = array<i64: {s}>, lhs_dilation = array<i64: {l}>,
  rhs_dilation = array<i64: {r}>, dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>,
  feature_group_count = 1 : i64, batch_group_count = 1 : i64}}
  : (tensor<1x2x5x6xf32>, tensor<3x2x3x2xf32>, tensor<2x2xi32>) -> tensor<{out}xf32>
 return %0 : tensor<{out}xf32> }}"""


@pytest.mark.parametrize(
    ("strides", "holes", "dilation", "paddings"),
    [
        ((1, 1), (1, 1), (1, 1), [((1, 1), (0, 1)), ((-1, 3), (3, -2)), ((12, -10), (0, 1)), ((-9, 11), (0, 1))]),
        ((2, 3), (1, 2), (2, 1), [((1, 2), (3, 1)), ((0, 3), (-3, 7))]),
    ],
)
def test_a_convolution_whose_padding_is_data(strides: Any, holes: Any, dilation: Any, paddings: Any) -> None:
    random = np.random.RandomState(0)
    x, k = (random.randn(*shape).astype(np.float32) for shape in ((1, 2, 5, 6), (3, 2, 3, 2)))
    expected = [np.asarray(jax.lax.conv_general_dilated(x, k, strides, p, holes, dilation)) for p in paddings]
    words = [f"{a}, {b}" for a, b in (strides, holes, dilation)]
    out = "x".join(map(str, expected[0].shape))
    program = neuron_ir.compile(neuron_ir.from_stablehlo(CONV.format(out=out, s=words[0], l=words[1], r=words[2])))
    for padding, e in zip(paddings, expected, strict=True):
        np.testing.assert_allclose(np.asarray(program(x, k, np.int32(padding))), e, atol=1e-5)


SIZE = """func.func @main(%x: tensor<4xf32>{arg}) -> tensor<?xf32, #stablehlo.bounds<4>> {{
 {n}
 %0 = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
 return %0 : tensor<?xf32, #stablehlo.bounds<4>> }}"""


def test_a_size_is_set_where_it_is_known() -> None:
    assert run(SIZE.format(arg="", n="%n = stablehlo.constant dense<2> : tensor<i32>"), np.float32([1, 2, 3, 4]))[0].tolist() == [
        1,
        2,
    ]
    with pytest.raises(neuron_ir.IRError, match="set_dimension_size: the result's sizes depend on values"):
        neuron_ir.from_stablehlo(SIZE.format(arg=", %n: tensor<i32>", n=""))


def test_chlo_ops_without_a_rule_are_expanded() -> None:
    text = """func.func @main(%x: tensor<4xi32>, %y: tensor<2x4xi32>, %f: tensor<5x3xf32>, %g: tensor<2x3x4xf32>, %n: tensor<2xi64>)
   -> (tensor<4xi32>, tensor<2x4xi32>, tensor<5x4xf32>) {
 %0 = chlo.mulhi %x, %x : tensor<4xi32>, tensor<4xi32> -> tensor<4xi32>
 %1 = chlo.broadcast_add %x, %y : (tensor<4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
 %2 = "chlo.ragged_dot"(%f, %g, %n) {ragged_dot_dimension_numbers = #chlo.ragged_dot<
   lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1],
   lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}
   : (tensor<5x3xf32>, tensor<2x3x4xf32>, tensor<2xi64>) -> tensor<5x4xf32>
 return %0, %1, %2 : tensor<4xi32>, tensor<2x4xi32>, tensor<5x4xf32> }"""
    x, y = np.int32([1 << 30, -(1 << 30), 7, 1 << 20]), np.arange(8, dtype=np.int32).reshape(2, 4)
    f, g = np.arange(15, dtype=np.float32).reshape(5, 3), np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    high, total, ragged = run(text, x, y, f, g, np.int64([2, 3]))
    assert high.tolist() == (x.astype(np.int64) ** 2 >> 32).tolist() and total.tolist() == (x + y).tolist()
    assert ragged.tolist() == np.concatenate([f[:2] @ g[0], f[2:] @ g[1]]).tolist()
    module = parse(text)
    expand_chlo(module)
    assert "chlo." not in str(module)


def test_an_op_without_a_rule_says_why() -> None:
    text = """func.func @main(%x: tensor<4x3xf32>, %i: tensor<2xi32>) -> tensor<2x3xf32> {
 %0 = "stablehlo.torch_index_select"(%x, %i) {dim = 0 : i64, batch_dims = 0 : i64}
   : (tensor<4x3xf32>, tensor<2xi32>) -> tensor<2x3xf32>
 return %0 : tensor<2x3xf32> }"""
    with pytest.raises(neuron_ir.IRError, match="never specified and is deprecated; write it as gather"):
        neuron_ir.from_stablehlo(text)


Q = "!quant.uniform<i8:f32, 0.5:3>"
W = "!quant.uniform<i8<-127:127>:f32, 0.25>"
AXIS = "!quant.uniform<i8:f32:1, {0.5:3, 0.25, 2.0:-1, 1.0}>"
QUANTISED = f"""module {{ func.func @main(%x: tensor<4xf32>, %y: tensor<2x4x{AXIS}>)
  -> (tensor<4x{Q}>, tensor<4xf32>, tensor<4x!quant.uniform<u8:f32, 0.5:128>>, tensor<!quant.uniform<i32:f32, 0.125>>,
      tensor<4x2xf32>, tensor<4x{Q}>, tensor<f32>) {{
 %q = stablehlo.uniform_quantize %x : (tensor<4xf32>) -> tensor<4x{Q}>
 %w = stablehlo.uniform_quantize %x : (tensor<4xf32>) -> tensor<4x{W}>
 %c = stablehlo.constant() <{{value = dense<[1, 2, 3, -4]> : tensor<4xi8>}}> : () -> tensor<4x{Q}>
 %0 = stablehlo.add %q, %c : tensor<4x{Q}>
 %1 = stablehlo.uniform_dequantize %q : (tensor<4x{Q}>) -> tensor<4xf32>
 %2 = stablehlo.uniform_quantize %q : (tensor<4x{Q}>) -> tensor<4x!quant.uniform<u8:f32, 0.5:128>>
 %3 = stablehlo.dot_general %q, %w, contracting_dims = [0] x [0]
   : (tensor<4x{Q}>, tensor<4x{W}>) -> tensor<!quant.uniform<i32:f32, 0.125>>
 %t = stablehlo.transpose %y, dims = [1, 0] : (tensor<2x4x{AXIS}>) -> tensor<4x2x{AXIS.replace("f32:1", "f32:0")}>
 %4 = stablehlo.uniform_dequantize %t : (tensor<4x2x{AXIS.replace("f32:1", "f32:0")}>) -> tensor<4x2xf32>
 %5 = stablehlo.reverse %c, dims = [0] : tensor<4x{Q}>
 %6 = stablehlo.dot_general %x, %w, contracting_dims = [0] x [0] : (tensor<4xf32>, tensor<4x{W}>) -> tensor<f32>
 return %0, %1, %2, %3, %4, %5, %6 : tensor<4x{Q}>, tensor<4xf32>, tensor<4x!quant.uniform<u8:f32, 0.5:128>>,
   tensor<!quant.uniform<i32:f32, 0.125>>, tensor<4x2xf32>, tensor<4x{Q}>, tensor<f32> }} }}"""


def test_quantised_types_are_their_integers() -> None:
    x, y = np.float32([1.3, -2, 100, -0.25]), np.arange(8, dtype=np.int8).reshape(2, 4)
    q = np.clip(np.round(x / 0.5 + 3), -128, 127)
    w = np.clip(np.round(x / 0.25), -127, 127)
    c = np.array([1, 2, 3, -4])
    got = run(QUANTISED, x, y)
    assert [g.dtype.name for g in got] == ["int8", "float32", "uint8", "int32", "float32", "int8", "float32"]
    assert got[0].tolist() == np.clip(q - 3 + c - 3 + 3, -128, 127).tolist()
    assert got[1].tolist() == ((q - 3) * 0.5).tolist()
    assert got[2].tolist() == np.clip(q - 3 + 128, 0, 255).tolist()
    assert got[3].tolist() == ((q - 3) * w).sum().tolist()
    assert got[4].tolist() == ((y - [3, 0, -1, 0]) * [0.5, 0.25, 2, 1]).T.tolist()
    assert got[5].tolist() == c[::-1].tolist()
    np.testing.assert_allclose(got[6], (x * (w * 0.25)).sum(), rtol=1e-6)


def test_the_body_of_a_reduction_takes_quantised_values() -> None:
    text = f"""func.func @main(%x: tensor<4x{Q}>, %i: tensor<{Q}>) -> tensor<{Q}> {{
 %0 = "stablehlo.reduce"(%x, %i) ({{ ^bb0(%a: tensor<{Q}>, %b: tensor<{Q}>):
  %1 = stablehlo.add %a, %b : tensor<{Q}>
  stablehlo.return %1 : tensor<{Q}> }}) {{dimensions = array<i64: 0>}} : (tensor<4x{Q}>, tensor<{Q}>) -> tensor<{Q}>
 return %0 : tensor<{Q}> }}"""
    x = np.int8([5, 3, -7, 20])
    assert run(text, x, np.int8(3))[0].item() == (x.astype(int) - 3).sum() + 3


def test_quantised_types_in_bytecode_and_portable_artefacts() -> None:
    expected, module, buffer = neuron_ir.from_stablehlo(QUANTISED).text(), parse(QUANTISED), io.BytesIO()
    module.operation.write_bytecode(buffer)
    assert neuron_ir.from_stablehlo(buffer.getvalue()).text() == expected
    portable = stablehlo.serialize_portable_artifact(module, "1.9.0")
    assert neuron_ir.from_stablehlo(portable).text() == expected


def test_quantised_values_where_they_have_no_meaning_are_refused() -> None:
    text = f"""func.func @main(%x: tensor<4x{Q}>) -> tensor<4xi8> {{
 %0 = stablehlo.bitcast_convert %x : (tensor<4x{Q}>) -> tensor<4xi8>
 return %0 : tensor<4xi8> }}"""
    with pytest.raises(neuron_ir.IRError, match="bitcast_convert: it has no meaning on quantised values here"):
        neuron_ir.from_stablehlo(text)
    with pytest.raises(neuron_ir.IRError, match=r"the quantised type !quant\.any"):
        neuron_ir.from_stablehlo("func.func @main(%x: tensor<4x!quant.any<i8:f32>>) {\n return }")


def test_shardings_and_their_meshes_are_kept_and_come_back() -> None:
    from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

    sharding = NamedSharding(AbstractMesh((2, 2), ("x", "y")), PartitionSpec("x", "y"))
    x = jax.ShapeDtypeStruct((4, 4), np.float32, sharding=sharding)
    module = neuron_ir.from_jax(lambda a: jax.lax.with_sharding_constraint(a @ a, sharding), x)
    again = neuron_ir.parse(module.text())
    assert again.attrs["num_partitions"] == 4 and again.attrs["meshes"] == ('@mesh = #sdy.mesh<["x"=2, "y"=2]>',)
    assert again.main.arg_attrs[0]["sharding"] == '#sdy.sharding<@mesh, [{"x"}, {"y"}]>'
    assert [op.get("backend_config") for op in again.main.body.ops if op.name == "neuron.custom_call"] == [
        '#sdy.sharding<@mesh, [{"x"}, {"y"}]>'
    ]
    back = neuron_ir.to_stablehlo(again)
    assert 'sdy.mesh @mesh = <["x"=2, "y"=2]>' in back and "mhlo.num_partitions = 4" in back
    once_more = neuron_ir.from_stablehlo(back)
    assert once_more.attrs["meshes"] == again.attrs["meshes"]
    assert once_more.main.arg_attrs[0]["sharding"] == again.main.arg_attrs[0]["sharding"]
    ones = np.ones((4, 4), np.float32)
    assert np.asarray(neuron_ir.compile(once_more)(ones)).tolist() == (ones @ ones).tolist()
