"""Every form of the elementwise, conversion, shape and indexing ops comes back from its text unchanged."""

from __future__ import annotations

import pytest

from neuron_ir.builder import Builder
from neuron_ir.core import Func, Module
from neuron_ir.parser import parse
from neuron_ir.registry import all_ops
from neuron_ir.types import tensor

F, N, B, C = (tensor([3, 4], t) for t in ("f32", "i32", "bool", "c64"))
F0, I0, I1 = tensor([], "f32"), tensor([], "i32"), tensor([2], "i64")
ROWS = {"offset_dims": [1], "collapsed_slice_dims": [0], "start_index_map": [0], "index_vector_dim": 1}
FORMS = [
    ("compare", [F, F], None, {"direction": "LT", "compare_type": "TOTALORDER"}),
    ("select", [B, F, F], None, {}),
    ("clamp", [F0, F, F0], None, {}),
    ("sign", [F], None, {"nan": "zero"}),
    ("complex", [F, F], None, {}),
    ("digamma", [F], None, {"zero": "inf"}),
    ("cast", [F], tensor([3, 4], "f8e4m3fn"), {"mode": "saturate"}),
    ("bitcast_convert", [F], tensor([3, 4, 4], "u8"), {}),
    ("reduce_precision", [F], None, {"exponent_bits": 5, "mantissa_bits": 10}),
    ("quantize", [F], tensor([3, 4], "i8"), {"scales": [0.1, 1e-30, 3.0], "zero_points": [0, 1, -128], "axis": 0}),
    ("dequantize", [N], F, {"scales": [0.1]}),
    ("reshape", [F], tensor([12], "f32"), {}),
    ("dynamic_reshape", [F, I1], tensor([4, 3], "f32"), {}),
    ("transpose", [F], None, {"permutation": [1, 0]}),
    ("broadcast_in_dim", [F], tensor([3, 2, 4], "f32"), {"broadcast_dimensions": [0, 2]}),
    ("dynamic_broadcast_in_dim", [F0, I1], F, {"known_expanding_dimensions": []}),
    ("concatenate", [F, F, F], None, {"dimension": 1}),
    ("slice", [F], None, {"start_indices": [1, 0], "limit_indices": [3, 4], "strides": [1, 3]}),
    ("real_dynamic_slice", [F, I1, I1, I1], F, {}),
    ("dynamic_slice", [F, I0, I0], None, {"slice_sizes": [1, 2], "policy": "wrap_raise"}),
    ("dynamic_update_slice", [F, tensor([1, 1], "f32"), I0, I0], None, {"policy": "raise"}),
    ("pad", [F, F0], None, {"edge_padding_low": [-1, 2], "edge_padding_high": [0, 0], "interior_padding": [1, 0]}),
    ("dynamic_pad", [F, F0, I1, I1, I1], F, {}),
    ("reverse", [F], None, {"dimensions": [1]}),
    ("iota", [], F, {"iota_dimension": 1}),
    ("dynamic_iota", [I1], F, {"iota_dimension": 1}),
    ("get_dimension_size", [F], None, {"dimension": 1}),
    ("dim_size", [], None, {"size": 7}),
    ("gather", [F, I1], None, {**ROWS, "slice_sizes": [1, 2], "indices_are_sorted": True, "policy": "drop"}),
    ("dynamic_gather", [F, I1, I1], tensor([2, 4], "f32"), ROWS),
    ("take", [F, N], None, {"axis": -1, "policy": "clamp"}),
    ("take_along_axis", [F, N], None, {"axis": 1}),
    ("scatter_elements", [F, N, F], None, {"axis": 0, "mode": "mean", "include_self": False}),
    ("index", [F, I1, I1], None, {"dims": [0, 1]}),
    ("index_put", [F, F0, I1], None, {"dims": [1], "accumulate": True}),
    ("checked_index", [N], None, {"size": 9}),
    ("one_hot", [N], None, {"size": 5, "axis": 0, "dtype": F.dtype}),
    ("embedding", [F, I1], None, {"padding_idx": 0}),
    ("nonzero", [F], None, {"size": 5, "fill_value": 0}),
    ("check", [B], None, {"message": "no"}),
    (
        "scatter", [F, I1, tensor([2, 4], "f32")], None,
        {"update_window_dims": [1], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0], "index_vector_dim": 1,
         "unique_indices": True, "update_computation": lambda b, old, new: b.maximum(old, new)},
    ),
]  # fmt: skip
FAMILIES = [
    s.name.removeprefix("neuron.") for s in all_ops()
    if s.jax and s.jax.__module__ in ("neuron_ir.dialects.neuron.elementwise", "neuron_ir.dialects.neuron.special")
    and not s.attrs and all(o.constraint for o in s.operands) and s.name not in ("neuron.select", "neuron.clamp", "neuron.complex")
]  # fmt: skip


def family_types(name):
    spec = next(s for s in all_ops() if s.name == f"neuron.{name}")
    return [next(t for t in (F, N, B, C) if o.accepts(t)) for o in spec.operands]


def round_trip(name, types, out, attrs):
    func = Func("main", types)
    results = Builder(func.body).make(f"neuron.{name}", *func.args, out=out, **attrs)
    func.set_results([results] if not isinstance(results, tuple) else results)
    module = Module()
    module.add(func)
    module.verify()
    text = module.text()
    again = parse(text)
    again.verify()
    assert again.text() == text
    assert [r.type for r in again.main.body.first.results] == [r.type for r in func.body.first.results]
    assert again.main.body.first.attrs == func.body.first.attrs


@pytest.mark.parametrize(("name", "types", "out", "attrs"), FORMS, ids=[f[0] for f in FORMS])
def test_form(name, types, out, attrs):
    round_trip(name, types, out, attrs)


@pytest.mark.parametrize("name", FAMILIES)
def test_family(name):
    round_trip(name, family_types(name), None, {})
