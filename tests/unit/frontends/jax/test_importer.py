"""StableHLO text into Neuron IR, op by op: what JAX's own programs seldom or never contain, and how common forms are recognised."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest

import neuron_ir


def imported(body: str, args: str, results: str, more: str = "") -> Any:
    """The module of one function with this body; ``more`` stands beside it."""
    return neuron_ir.from_stablehlo(f"module {{\n func.func public @main({args}) -> ({results}) {{\n{body}\n }}\n{more}\n}}")


def names(module: Any) -> list[str]:
    """The ops of ``@main``, without constants and the return."""
    return [op.name.removeprefix("neuron.") for op in module.main.body.ops if op.name not in ("neuron.constant", "func.return")]


def run(module: Any, *args: Any) -> Any:
    again = neuron_ir.parse(module.text())
    again.weights.update(module.weights)
    result = neuron_ir.compile(again)(*args)
    leaves = [np.asarray(r).tolist() for r in jax.tree.leaves(result)]
    return leaves[0] if len(leaves) == 1 else leaves


REDUCE = """
 %c = stablehlo.constant dense<{init}> : tensor<{t}>
 %r = stablehlo.reduce(%x init: %c) applies stablehlo.{op} across dimensions = [1] : (tensor<2x3x{t}>, tensor<{t}>) -> tensor<2x{t}>
 return %r : tensor<2x{t}>"""


@pytest.mark.parametrize(
    ("op", "t", "init", "name"),
    [
        ("add", "f32", "0.0", "reduce_sum"),
        ("add", "f32", "-0.0", "reduce"),
        ("add", "f32", "1.0", "reduce"),
        ("multiply", "i32", "1", "reduce_prod"),
        ("maximum", "f32", "0xFF800000", "reduce_max"),
        ("maximum", "f32", "0.0", "reduce"),
        ("minimum", "ui8", "255", "reduce_min"),
        ("and", "i1", "true", "reduce_and"),
        ("or", "i32", "0", "reduce_or"),
        ("add", "i1", "false", "reduce_or"),
        ("xor", "i1", "false", "reduce"),
    ],
)
def test_reductions_are_named_only_where_their_start_changes_nothing(op: str, t: str, init: str, name: str) -> None:
    module = imported(REDUCE.format(op=op, t=t, init=init), f"%x: tensor<2x3x{t}>", f"tensor<2x{t}>")
    assert names(module) == [name]


def test_a_maximum_of_no_elements_keeps_its_start() -> None:
    body = """
 %c = stablehlo.constant dense<0xFF800000> : tensor<f32>
 %r = stablehlo.reduce(%x init: %c) applies stablehlo.maximum across dimensions = [1]
   : (tensor<2x0xf32>, tensor<f32>) -> tensor<2xf32>
 return %r : tensor<2xf32>"""
    module = imported(body, "%x: tensor<2x0xf32>", "tensor<2xf32>")
    assert run(module, np.zeros((2, 0), np.float32)) == [-np.inf, -np.inf]


WINDOW = """
 %c = stablehlo.constant dense<0.0> : tensor<f32>
 %r = "stablehlo.reduce_window"(%x, %c) <{{padding = dense<{padding}> : tensor<2x2xi64>,
   window_dimensions = array<i64: {window}>}}> ({{
 ^bb0(%a: tensor<f32>, %b: tensor<f32>):
   %s = stablehlo.add %a, %b : tensor<f32>
   stablehlo.return %s : tensor<f32>
 }}) : (tensor<2x3xf32>, tensor<f32>) -> tensor<{out}xf32>
 return %r : tensor<{out}xf32>"""


@pytest.mark.parametrize(
    ("padding", "window", "out", "name", "expected"),
    [
        ("[[0, 0], [2, 0]]", "1, 3", "2x3", "cumsum", [[1, 3, 6], [4, 9, 15]]),
        ("[[0, 0], [0, 2]]", "1, 3", "2x3", "cumsum", [[6, 5, 3], [15, 11, 6]]),
        ("[[1, 0], [0, 0]]", "2, 1", "2x3", "cumsum", [[1, 2, 3], [5, 7, 9]]),
        ("[[0, 0], [1, 1]]", "1, 3", "2x3", "reduce_window", [[3, 6, 5], [9, 15, 11]]),
        ("[[0, 0], [0, 0]]", "1, 2", "2x2", "reduce_window", [[3, 5], [9, 11]]),
    ],
)
def test_running_sums_are_known_by_their_windows(padding: str, window: str, out: str, name: str, expected: Any) -> None:
    module = imported(WINDOW.format(padding=padding, window=window, out=out), "%x: tensor<2x3xf32>", f"tensor<{out}xf32>")
    assert names(module) == [name]
    assert run(module, np.float32([[1, 2, 3], [4, 5, 6]])) == expected


def test_calls_and_composites_are_put_in_place() -> None:
    body = """
 %0 = func.call @twice(%x) : (tensor<2xf32>) -> tensor<2xf32>
 %1 = stablehlo.composite "my.twice" %0 {decomposition = @twice, composite_attributes = {k = 1 : i32}}
   : (tensor<2xf32>) -> tensor<2xf32>
 return %1 : tensor<2xf32>"""
    twice = """func.func private @twice(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %a, %a : tensor<2xf32>
  return %0 : tensor<2xf32>
 }"""
    module = imported(body, "%x: tensor<2xf32>", "tensor<2xf32>", twice)
    assert names(module) == ["add", "add"] and list(module.funcs) == ["main"]
    assert run(module, np.float32([1, 2])) == [4, 8]


def test_a_function_that_calls_itself_is_refused() -> None:
    call = " %0 = func.call @f(%x) : (tensor<f32>) -> tensor<f32>\n return %0 : tensor<f32>"
    again = f"func.func private @f(%x: tensor<f32>) -> tensor<f32> {{ {call} }}"
    with pytest.raises(neuron_ir.IRError, match="@f calls itself"):
        imported(call, "%x: tensor<f32>", "tensor<f32>", again)


def test_branches_capture_values_and_case_takes_the_last_branch_beyond_its_range() -> None:
    body = """
 %0 = "stablehlo.case"(%i) ({
   stablehlo.return %x : tensor<2xf32>
 }, {
   %1 = stablehlo.negate %x : tensor<2xf32>
   stablehlo.return %1 : tensor<2xf32>
 }) : (tensor<i32>) -> tensor<2xf32>
 %p = stablehlo.compare LT, %i, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
 %2 = "stablehlo.if"(%p) ({ stablehlo.return %x : tensor<2xf32> }, { stablehlo.return %0 : tensor<2xf32> })
   : (tensor<i1>) -> tensor<2xf32>
 return %2 : tensor<2xf32>"""
    module = imported(body, "%i: tensor<i32>, %x: tensor<2xf32>", "tensor<2xf32>")
    x = np.float32([1, -2])
    assert run(module, np.int32(0), x) == [1, -2]
    assert run(module, np.int32(5), x) == run(module, np.int32(-1), x) == [-1, 2]


def test_map_sort_and_batch_norm() -> None:
    body = """
 %m = "stablehlo.map"(%x, %x) <{dimensions = array<i64: 0>}> ({
 ^bb0(%a: tensor<f32>, %b: tensor<f32>):
   %0 = stablehlo.multiply %a, %b : tensor<f32>
   stablehlo.return %0 : tensor<f32>
 }) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
 %s = "stablehlo.sort"(%m) <{dimension = 0 : i64, is_stable = true}> ({
 ^bb0(%a: tensor<f32>, %b: tensor<f32>):
   %1 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
   stablehlo.return %1 : tensor<i1>
 }) : (tensor<3xf32>) -> tensor<3xf32>
 %r = stablehlo.reshape %s : (tensor<3xf32>) -> tensor<1x3xf32>
 %n = "stablehlo.batch_norm_inference"(%r, %x, %x, %x, %x) <{epsilon = 0.0 : f32, feature_index = 1 : i64}>
   : (tensor<1x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<1x3xf32>
 return %s, %n : tensor<3xf32>, tensor<1x3xf32>"""
    module = imported(body, "%x: tensor<3xf32>", "tensor<3xf32>, tensor<1x3xf32>")
    x = np.float32([1, 4, 9])
    got = run(module, x)
    assert got[0] == [81, 16, 1]
    expected = (np.float64([81, 16, 1]) - x) / np.sqrt(x.astype(np.float64)) * x + x
    np.testing.assert_allclose(got[1], expected[None], rtol=1e-6)


def test_old_spellings_of_products_and_broadcasts() -> None:
    body = """
 %0 = "stablehlo.dot"(%x, %x) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
 %1 = "stablehlo.broadcast"(%0) <{broadcast_sizes = array<i64: 1>}> : (tensor<2x2xf32>) -> tensor<1x2x2xf32>
 return %1 : tensor<1x2x2xf32>"""
    module = imported(body, "%x: tensor<2x2xf32>", "tensor<1x2x2xf32>")
    assert run(module, np.float32([[1, 2], [3, 4]])) == [[[7, 10], [15, 22]]]


def test_collectives_keep_groups_and_bodies() -> None:
    body = """
 %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1], [2, -1]]> : tensor<2x2xi64>}> ({
 ^bb0(%a: tensor<f32>, %b: tensor<f32>):
   %1 = stablehlo.add %a, %b : tensor<f32>
   stablehlo.return %1 : tensor<f32>
 }) : (tensor<2xf32>) -> tensor<2xf32>
 %2 = "stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}>
   : (tensor<2xf32>) -> tensor<2xf32>
 return %0, %2 : tensor<2xf32>, tensor<2xf32>"""
    with pytest.raises(neuron_ir.IRError, match="must be of one size"):
        imported(body, "%x: tensor<2xf32>", "tensor<2xf32>, tensor<2xf32>")
    module = imported(body.replace("[2, -1]", "[2, 3]"), "%x: tensor<2xf32>", "tensor<2xf32>, tensor<2xf32>")
    reduce, permute = (op for op in module.main.body.ops if op.name != "func.return")
    assert reduce.get("replica_groups") == ((0, 1), (2, 3)) and reduce.regions[0].first.name == "neuron.add"
    assert permute.get("source_target_pairs") == ((0, 1),)


def test_shardings_and_donation_are_kept() -> None:
    text = """module {
 sdy.mesh @mesh = <["x"=2]>
 func.func public @main(%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>, tf.aliasing_output = 0 : i32})
   -> tensor<4xf32> {
  %0 = sdy.sharding_constraint %a <@mesh, [{}]> : tensor<4xf32>
  return %0 : tensor<4xf32>
 }
}"""
    module = neuron_ir.from_stablehlo(text)
    (attrs,) = module.main.arg_attrs
    assert attrs["donated"] is True and attrs["sharding"] == '#sdy.sharding<@mesh, [{"x"}]>'
    (call,) = [op for op in module.walk() if op.name == "neuron.custom_call"]
    assert call.get("call_target_name") == "Sharding" and "@mesh" in call.get("backend_config")
    assert run(module, np.float32([1, 2, 3, 4])) == [1, 2, 3, 4]


def test_constants_of_every_kind_keep_their_bits() -> None:
    body = """
 %0 = stablehlo.constant dense<[1.0e-45, 0x7FC00001]> : tensor<2xf32>
 %1 = stablehlo.constant dense<[-8, 7]> : tensor<2xi4>
 %2 = stablehlo.constant dense<(1.0, -0.0)> : tensor<2xcomplex<f32>>
 %3 = stablehlo.constant dense<[448.0, -0.0]> : tensor<2xf8E4M3FN>
 return %0, %1, %2, %3 : tensor<2xf32>, tensor<2xi4>, tensor<2xcomplex<f32>>, tensor<2xf8E4M3FN>"""
    module = imported(body, "", "tensor<2xf32>, tensor<2xi4>, tensor<2xcomplex<f32>>, tensor<2xf8E4M3FN>")
    values = [op.get("value") for op in module.walk() if op.name == "neuron.constant"]
    assert [str(v.dtype) for v in values] == ["f32", "i4", "c64", "f8e4m3fn"]
    assert values[0].array.view(np.uint32).tolist() == [1, 0x7FC00001]
    assert values[1].array.astype(int).tolist() == [-8, 7]
    assert values[2].is_splat and np.signbit(values[2].array[0].imag)
    assert values[3].array.astype(float).tolist() == [448.0, -0.0]


def test_unknown_sizes_become_symbols_and_shapes_dims() -> None:
    body = """
 %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
 %three = stablehlo.constant dense<3> : tensor<i32>
 %size = stablehlo.multiply %n, %three : tensor<i32>
 %s = stablehlo.reshape %size : (tensor<i32>) -> tensor<1xi32>
 %y = stablehlo.dynamic_reshape %x, %s : (tensor<?x3xf32>, tensor<1xi32>) -> tensor<?xf32>
 %c = stablehlo.convert %n : (tensor<i32>) -> tensor<f32>
 return %y, %c : tensor<?xf32>, tensor<f32>"""
    module = imported(body, "%x: tensor<?x3xf32>", "tensor<?xf32>, tensor<f32>")
    assert str(module.main.result_types[0]) == "tensor<(3*d0)xf32>"
    assert names(module) == ["reshape", "dim_size", "cast", "cast"]
    assert run(module, np.ones((2, 3), np.float32)) == [[1] * 6, 2]


CHECKED = """
 %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
 %four = stablehlo.constant dense<4> : tensor<i32>
 %checked = stablehlo.multiply %n, {factor} : tensor<i32>
 %ok = stablehlo.compare GE, %checked, %four : (tensor<i32>, tensor<i32>) -> tensor<i1>
 stablehlo.custom_call @shape_assertion(%ok, %checked) {{
   api_version = 2 : i32, error_message = "at least 4, not {{0}}", has_side_effect = true}} : (tensor<i1>, tensor<i32>) -> ()
 return %x : tensor<?xf32>"""


def test_a_check_of_a_plain_size_becomes_its_range() -> None:
    one = "\n %one = stablehlo.constant dense<1> : tensor<i32>"
    module = imported(one + CHECKED.format(factor="%one"), "%x: tensor<?xf32>", "tensor<?xf32>")
    assert module.main.dims == {"d0": (4, None)} and names(module) == []
    with pytest.raises(neuron_ir.IRError, match="d0 is 3; the program was made for at least 4"):
        run(module, np.ones(3, np.float32))


def test_other_checks_of_sizes_become_constraints() -> None:
    module = imported(CHECKED.format(factor="%n"), "%x: tensor<?xf32>", "tensor<?xf32>")
    assert names(module) == [] and module.main.attrs["where"] == ("d0*d0 >= 4",)
    assert run(module, np.ones(2, np.float32)) == [1, 1]
    with pytest.raises(neuron_ir.IRError, match=re.escape("d0 is 1; the program was made for d0*d0 >= 4")):
        run(module, np.ones(1, np.float32))


def test_a_check_that_never_holds_stays_for_the_run() -> None:
    checked = CHECKED.replace("%checked = stablehlo.multiply %n, {factor}", "%checked = stablehlo.subtract %n, %n")
    module = imported(checked.format(), "%x: tensor<?xf32>", "tensor<?xf32>")
    with pytest.raises(neuron_ir.IRError, match="at least 4"):
        run(module, np.ones(2, np.float32))


def test_constraints_of_symbolic_shapes_are_kept() -> None:
    a, b = jax.export.symbolic_shape("a, b", constraints=["a >= b", "mod(a, 2) == 1"])
    shapes = [jax.ShapeDtypeStruct((size,), np.float32) for size in (a, b)]
    module = neuron_ir.from_jax(lambda x, y: x[: y.shape[0]] + y, *shapes)
    assert module.main.attrs["where"] == ("a >= b", "mod(a,2) == 1") and "custom_call" not in names(module)
    assert run(module, np.float32([1, 2, 3]), np.float32([10, 20])) == [11, 22]
    for size, message in (
        (1, "a is 1, b is 2; the program was made for a >= b"),
        (4, "a is 4; the program was made for mod(a,2) == 1"),
    ):
        with pytest.raises(neuron_ir.IRError, match=re.escape(message)):
            run(module, np.ones(size, np.float32), np.ones(2, np.float32))


def test_an_exported_artefact_has_the_sizes_that_its_checks_imply() -> None:
    b, s = jax.export.symbolic_shape("b, s")
    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((b, s), (b, s), (s, 2 * b))]
    exported = jax.export.export(jax.jit(lambda x, y, z: (x + y) @ z))(*shapes)
    module = neuron_ir.from_stablehlo(exported.mlir_module_serialized)
    assert [str(a.type) for a in module.main.args] == ["tensor<d0xd1xf32>", "tensor<d0xd1xf32>", "tensor<d1x(2*d0)xf32>"]
    assert names(module) == ["add", "dot_general"]
    x, y, z = (np.arange(n, dtype=np.float32).reshape(shape) for n, shape in ((6, (2, 3)), (6, (2, 3)), (12, (3, 4))))
    assert run(module, x, y, z) == ((x + y) @ z).tolist()


def test_errors_of_a_rule_carry_the_place_in_the_text() -> None:
    text = """module {
 func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.custom_call @lapack_spotrf(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
 }
}"""
    with pytest.raises(neuron_ir.IRError, match=r"a\.mlir:3:8: error\[unsupported\]: .*'lapack_spotrf' has no meaning"):
        neuron_ir.from_stablehlo(text, file="a.mlir")


def test_a_file_that_is_not_there_is_an_error_of_the_file(tmp_path: Any) -> None:
    with pytest.raises(neuron_ir.IRError, match=r"none\.mlir: No such file"):
        neuron_ir.from_stablehlo(tmp_path / "none.mlir")


def test_channels_are_kept() -> None:
    handle = "channel_handle = #stablehlo.channel_handle<handle = {}, type = {}>, is_host_transfer = true"
    text = f"""func.func @main(%x: tensor<2xf32>, %t: !stablehlo.token) -> (tensor<2xf32>, !stablehlo.token) {{
 %0 = "stablehlo.send"(%x, %t) {{{handle.format(5, 2)}}} : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token
 %1:2 = "stablehlo.recv"(%0) {{{handle.format(7, 3)}}} : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
 %2:2 = "stablehlo.infeed"(%1#1) {{layout = [[0]]}} : (!stablehlo.token) -> (tensor<2xf32>, !stablehlo.token)
 return %2#0, %2#1 : tensor<2xf32>, !stablehlo.token }}"""
    send, recv, infeed = list(neuron_ir.from_stablehlo(text).main.body.ops)[1:4]
    assert send.attrs == {"channel_id": 5, "channel_type": 2, "is_host_transfer": True}
    assert recv.attrs == {"channel_id": 7, "channel_type": 3, "is_host_transfer": True}
    assert infeed.attrs == {"layout": ("[0]",)}


def test_groups_of_replicas_with_all_their_partitions_are_refused() -> None:
    text = """module attributes {{mhlo.num_partitions = {} : i32}} {{ func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{
 %0 = "stablehlo.all_reduce"(%x) ({{ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
   %s = stablehlo.add %a, %b : tensor<f32>
   stablehlo.return %s : tensor<f32> }})
  {{replica_groups = dense<[[0]]> : tensor<1x1xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>{}}}
  : (tensor<2xf32>) -> tensor<2xf32>
 return %0 : tensor<2xf32> }} }}"""
    for partitions, ids in ((1, ""), (2, ", use_global_device_ids")):
        assert names(neuron_ir.from_stablehlo(text.format(partitions, ids))) == ["all_reduce"]
    with pytest.raises(neuron_ir.IRError, match="all_reduce: groups of replicas with all of their 2 partitions"):
        neuron_ir.from_stablehlo(text.format(2, ""))


def test_a_call_without_a_meaning_stays_a_call_in_stablehlo() -> None:
    nir = """func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %y = neuron.custom_call(%x) {{call_target_name = "kernel", backend_config = "{}", has_side_effect, api_version = {},
    output_operand_aliases = [0, 0]}} : tensor<4xf32>
  func.return(%y)
}}"""
    text = neuron_ir.to_stablehlo(neuron_ir.parse(nir.format("plain words", 2)))
    alias = "output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>"
    for part in ("@kernel(%arg0)", "has_side_effect = true", "api_version = 2", 'backend_config = "plain words"', alias):
        assert part in text
    assert "backend_config = {n = 3 : i64}" in neuron_ir.to_stablehlo(neuron_ir.parse(nir.format("{n = 3 : i64}", 4)))
