"""Every contraction, reduction, loop, draw, exchange and call, as text and back."""

import pytest

from neuron_ir.builder import Builder
from neuron_ir.core import Func, Module
from neuron_ir.dialects.neuron import (
    batch_norm,
    collectives,
    control,
    custom,
    factorizations,
    linalg,
    reduce,
    rng,
    sorting,
)
from neuron_ir.dtypes import BOOL, F32, I64
from neuron_ir.parser import parse
from neuron_ir.registry import all_ops
from neuron_ir.types import TOKEN, tensor

M = "4x4xf32"  # a matrix; operands are written as types
STATE = tensor([2], "u64")


def t(text):
    if text == "token":
        return TOKEN
    *shape, element = text.split("x")
    return tensor([int(d) for d in shape], element)


def add(b, x, y):
    return b.add(x, y)


def ge(b, x, y):
    return b.compare(x, y, direction="GE")


def two_values(b):
    return b.const(1, F32), b.const(1, I64)


WINDOW = {
    "window_dimensions": [2, 1], "window_strides": [2, 1], "padding": [[0, -1], [1, 0]],
    "base_dilations": [1, 2], "window_dilations": [2, 1],
}  # fmt: skip
SQUARE = {"select": ge, "scatter": add}

SAMPLES = [
    ("dot_general", ["2x3xbf16", "3x4xbf16"], {"lhs_contract": [1], "rhs_contract": [0], "acc": F32, "out": t("2x4xf32")}),
    ("dot_general", ["5x2x3xi8", "5x4x3xi8"], {"lhs_batch": [0], "rhs_batch": [0], "lhs_contract": [2], "rhs_contract": [2]}),
    ("convolution", ["1x4x9xf32", "6x2x3xf32"], {"feature_group_count": 2, "padding": [1, -1], "window_strides": [2]}),
    ("convolution", ["9x1x4xf32", "3x4x6xf32"], {
        "input_dims": "0bf", "kernel_dims": "0io", "output_dims": "b0f", "lhs_dilation": [2], "rhs_dilation": [2],
        "window_reversal": [1],
    }),
    ("cholesky", [M], {"lower": False}),
    ("geqrf", ["2x5x3xf32"], {}),
    ("triangular_solve", [M, M], {"transpose_a": "ADJOINT", "left_side": False, "unit_diagonal": True}),
    ("fft", ["2x8xf32"], {"fft_type": "RFFT", "fft_length": [8]}),
    ("eigh", [M], {}), ("eig", [M], {}), ("lu", [M], {}), ("schur", [M], {}),
    ("svd", ["3x2xf32"], {"full_matrices": True}), ("qr", ["3x2xf32"], {"full_matrices": True}),
    ("householder_product", ["4x3xf32", "3xf32"], {}),
    ("reduce", ["4x4xf32", "4x4xi64", "f32", "i64"], {"dimensions": [1], "body": lambda b, x, i, y, k: (b.add(x, y), i)}),
    ("reduce_window", ["4x4xf32", "f32"], {**WINDOW, "body": add}),
    ("select_and_scatter", [M, "2x2xf32", "f32"], {"window_dimensions": [2, 2], "window_strides": [2, 2], **SQUARE}),
    ("reduce_sum", [M], {"axes": [], "keepdims": True, "acc": F32}), ("reduce_sum", [M], {"out": t("f64")}),
    ("reduce_prod", [M], {"axes": [-1]}), ("reduce_max", [M], {}), ("reduce_min", [M], {"axes": [0, 1]}),
    ("reduce_and", ["3xbool"], {}), ("reduce_or", ["3xi8"], {"axes": [0], "keepdims": True}), ("reduce_xor", ["3xu8"], {}),
    ("argmax", [M], {"axis": 1, "keepdims": True, "out": t("4x1xi32")}), ("argmin", [M], {}),
    *[(f"cum{name}", [M], {"axis": -1, "reverse": True}) for name in ("sum", "prod", "max", "min", "logsumexp")],
    ("cumargmax", [M], {"axis": 0}), ("cumargmin", [M], {"axis": -1, "out": t("4x4xi32")}),
    ("sort", ["4xf32", "4xi64"], {"dimension": 0, "is_stable": True, "comparator": lambda b, x, y, p, q: ge(b, p, q)}),
    ("sort_by_key", ["4xf32", "4xi64"], {"num_keys": 2, "descending": True}),
    ("argsort", [M], {"dimension": 0, "out": t("4x4xi32")}),
    ("top_k", [M], {"k": 2, "axis": 0, "largest": False, "sorted": False}),
    ("if", ["bool"], {"true_branch": two_values, "false_branch": two_values}),
    ("if", ["bool"], {"true_branch": lambda b: (), "false_branch": lambda b: ()}),
    ("case", ["i32"], {"branches": [lambda b: b.const(1, F32), lambda b: b.const(2, F32), lambda b: b.const(3, F32)]}),
    ("while", [M, "token"], {"cond": lambda b, x, t: b.const(True, BOOL), "body": lambda b, x, t: (b.add(x, x), t)}),
    ("for", [M], {"trip_count": 3, "body": lambda b, i, x: b.add(x, x)}),
    ("scan", ["f32", "3x2xf32"], {"num_carry": 1, "length": 3, "reverse": True, "body": lambda b, c, x: (c, x, b.add(x, x))}),
    ("optimization_barrier", [M, "token"], {}), ("optimization_barrier", [], {}),
    ("fused", [M, M], {"kind": "elementwise", "body": add}),
    ("map", [M, M], {"dimensions": [0, 1], "body": ge}),
    ("threefry2x32", ["3xu32"] * 4, {}), ("philox4x32", ["u32"] * 6, {}),
    ("rng_bit_generator", ["2xu64"], {"rng_algorithm": "THREE_FRY", "out": (STATE, t("3xu16"))}),
    ("rng", ["f32", "f32"], {"rng_distribution": "NORMAL", "out": t("3xf32")}),
    ("random_bits", ["2xu64"], {"algorithm": "THREE_FRY", "out": (STATE, t("3xi8"))}),
    ("random_uniform", ["2xu64"], {"low": -1.0, "high": 1e-30, "out": (STATE, t("3xbf16"))}),
    ("random_normal", ["2xu64"], {"mean": -0.0, "std": 0.1, "out": (STATE, t("3xf64"))}),
    ("dropout", ["3xf32", "2xu64"], {"p": 0.1, "train": False}),
    ("all_reduce", [M, M], {"replica_groups": [[0, 2], [1, 3]], "computation": add}),
    ("reduce_scatter", [M], {"scatter_dimension": 1, "replica_groups": [[0, 1]], "computation": add}),
    ("all_gather", [M], {"all_gather_dim": 0, "replica_groups": [[0, 1]]}),
    ("all_to_all", [M], {"split_dimension": 0, "concat_dimension": 1, "split_count": 2, "replica_groups": [[0, 1]]}),
    ("collective_permute", [M], {"source_target_pairs": [[0, 1], [1, 0]]}), ("collective_broadcast", [M], {}),
    ("replica_id", [], {}), ("partition_id", [], {}), ("create_token", [], {}), ("after_all", ["token", "token"], {}),
    ("send", [M, "token"], {"channel_id": 1, "channel_type": 2, "is_host_transfer": True, "out": TOKEN}),
    ("recv", ["token"], {"channel_id": 1, "source_target_pairs": [[0, 1]], "out": (t(M), TOKEN)}),
    ("infeed", ["token"], {"infeed_config": 'a "quoted" word', "layout": ["x"], "out": (t(M), TOKEN)}),
    ("outfeed", [M, "token"], {"outfeed_config": "c", "out": TOKEN}),
    ("custom_call", [M, "token"], {
        "call_target_name": "a.b", "backend_config": '{a = "b\\n"}', "has_side_effect": True, "api_version": 4,
        "output_operand_aliases": [0, 0], "out": (t(M), TOKEN),
    }),
    ("custom_call", [], {"call_target_name": "nothing", "out": ()}),
    ("batch_norm_inference", [M, *["4xf32"] * 4], {"epsilon": 1e-5, "feature_index": 1}),
    ("batch_norm_training", [M, *["4xf32"] * 2], {"epsilon": 0.0, "feature_index": 0}),
    ("batch_norm_grad", [M, *["4xf32"] * 3, M], {"epsilon": 1e-5, "feature_index": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operands", "fields"), SAMPLES, ids=[f"{i}-{s[0]}" for i, s in enumerate(SAMPLES)])
def test_text_and_back(name, operands, fields):
    func = Func("main", [t(o) for o in operands])
    results = Builder(func.body).make(f"neuron.{name}", *func.args, **fields)
    func.set_results(results if isinstance(results, tuple) else [results])
    module = Module()
    module.add(func)
    module.verify()
    text = module.text()
    again = parse(text)
    again.verify()
    assert again.text() == text
    op, copy = func.body.first, again.main.body.first
    assert (op.attrs, [r.type for r in op.results]) == (copy.attrs, [r.type for r in copy.results])


def test_every_op_of_these_files_has_a_sample():
    files = {m.__name__ for m in (linalg, reduce, sorting, control, factorizations, batch_norm, rng, collectives, custom)}
    declared = {s.name.removeprefix("neuron.") for s in all_ops() if (s.infer or s.check).__module__ in files}
    assert declared - {name for name, _, _ in SAMPLES} == {"yield"}
