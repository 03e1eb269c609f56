"""Reductions against torch, NumPy and hand arithmetic."""

import ml_dtypes
import numpy as np
import pytest
import torch

from neuron_ir.diagnostics import IRError
from neuron_ir.dtypes import F16, F64, I32
from neuron_ir.meaning import compute
from neuron_ir.types import tensor

from .judge import program, symbolic

RNG = np.random.RandomState(0)
NAN, INF = np.nan, np.inf
BF16 = ml_dtypes.bfloat16


def f32(*values):
    return np.array(values, np.float32)


def scalar(value, dtype=np.float32):
    return np.array(value, dtype)


# --- bodies -----------------------------------------------------------------------------------------------------------

BODIES = {
    "add": (lambda b, x, y: b.add(x, y), 0, np.add),
    "multiply": (lambda b, x, y: b.multiply(x, y), 1, np.multiply),
    "maximum": (lambda b, x, y: b.maximum(x, y), -9, np.maximum),
    "minimum": (lambda b, x, y: b.minimum(x, y), 9, np.minimum),
    "and": (lambda b, x, y: b.and_(x, y), -1, np.bitwise_and),
    "or": (lambda b, x, y: b.or_(x, y), 0, np.bitwise_or),
    "xor": (lambda b, x, y: b.xor(x, y), 0, np.bitwise_xor),
    "swapped add": (lambda b, x, y: b.add(y, x), 5, np.add),
    "no common body": (lambda b, x, y: b.add(b.maximum(x, y), b.minimum(x, y)), 0, np.add),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("dims", [[0, 2], []], ids=str)
def test_reduce_with_common_and_other_bodies(name, dims):
    body, start, ufunc = BODIES[name]
    x = RNG.randint(-5, 6, (3, 4, 2)).astype(np.int32)
    got = compute("neuron.reduce", x, scalar(start, np.int32), dimensions=dims, body=body)
    want = ufunc.reduce(x, axis=tuple(dims), initial=start) if dims else ufunc(x, start).astype(np.int32)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum", "and", "or", "xor"])
def test_bodies_of_bool(name):
    """A sum of bool is or, a product and."""
    x = np.array([[True, False, True], [True, True, True], [False, False, False], [False, True, True]])
    start = name in ("multiply", "minimum", "and")
    got = compute("neuron.reduce", x, scalar(start, bool), dimensions=[1], body=BODIES[name][0])
    f = {"xor": lambda x, axis: x.sum(axis) % 2 == 1}.get(name, np.all if start else np.any)
    np.testing.assert_array_equal(got, f(x, axis=1))


@pytest.mark.parametrize("shape", [(1,), (1, 1), (2, 1, 3)])
def test_one_element_is_combined_with_the_initial_value_too(shape):
    """XLA gives the element alone, whatever the body."""
    x = RNG.randint(0, 9, shape).astype(np.float32)
    dims = [i for i, s in enumerate(shape) if s == 1]
    for body, want in ((lambda b, x, y: b.add(x, y), 5 + x), (lambda b, x, y: b.add(b.add(x, x), y), 10 + x)):
        got = compute("neuron.reduce", x, scalar(5), dimensions=dims, body=body)
        np.testing.assert_array_equal(got, want.squeeze(tuple(dims)))
        double = compute("neuron.reduce", x, x, scalar(5), scalar(5), dimensions=dims,
                         body=lambda b, x, p, y, q, body=body: (body(b, x, y), body(b, p, q)))  # fmt: skip
        np.testing.assert_array_equal(double[1], want.squeeze(tuple(dims)))
    assert compute("neuron.reduce_window", scalar(5), scalar(1), window_dimensions=[], body=lambda b, x, y: b.add(x, y)) == 6


def test_a_body_that_only_looks_like_a_sum():
    """An add of one operand to itself is no sum."""
    assert compute("neuron.reduce", f32(3), scalar(0), dimensions=[0], body=lambda b, x, y: b.add(y, y)) == 6


@pytest.mark.parametrize("dtype", [BF16, np.float16])
def test_narrow_sums_accumulate_in_f32(dtype):
    x = np.ones(3000, dtype)
    want = np.float32(3000).astype(dtype)
    assert compute("neuron.reduce", x, scalar(0, dtype), dimensions=[0], body=lambda b, x, y: b.add(x, y)) == want
    assert compute("neuron.reduce_sum", x) == want
    window = compute("neuron.reduce_window", x, scalar(0, dtype), window_dimensions=[3000], body=lambda b, x, y: b.add(x, y))
    assert window.tolist() == [want]
    assert compute("neuron.cumsum", x, axis=0)[-1] == want


def test_reduce_of_several_values_at_once():
    """Largest value and its first index."""

    def better(b, v, i, w, k):
        first = b.or_(b.compare(v, w, direction="GT"), b.and_(b.compare(v, w, direction="EQ"), b.compare(i, k, direction="LT")))
        return b.select(first, v, w), b.select(first, i, k)

    x = RNG.randint(0, 3, (4, 7)).astype(np.float32)
    at = np.broadcast_to(np.arange(7, dtype=np.int32), x.shape)
    value, index = compute("neuron.reduce", x, at, scalar(-INF), scalar(99, np.int32), dimensions=[1], body=better)
    np.testing.assert_array_equal(value, x.max(1))
    np.testing.assert_array_equal(index, x.argmax(1))
    value, index = compute("neuron.reduce_window", x, at, scalar(-INF), scalar(99, np.int32), window_dimensions=[1, 7], body=better)
    np.testing.assert_array_equal(index[:, 0], x.argmax(1))


def test_nan_wins_in_a_max_body():
    for x in (f32(1, NAN, 2), f32(NAN, 1), f32(*range(1000), NAN)):
        assert np.isnan(compute("neuron.reduce", x, scalar(-INF), dimensions=[0], body=lambda b, x, y: b.maximum(x, y)))


@pytest.mark.parametrize(
    ("operands", "fields", "message"),
    [
        ((f32(1), scalar(0, np.int32)), {}, "the initial value of tensor<1xf32> must be tensor<f32>, not tensor<i32>"),
        ((f32(1), f32(1)), {}, "must be tensor<f32>, not tensor<1xf32>"),
        ((f32(1),), {}, "takes inputs and as many initial values, not 1"),
        ((f32(1), f32(1, 2), scalar(0), scalar(0)), {}, r"must have one shape, not \[1\] and \[2\]"),
        ((f32(1), scalar(0)), {"dimensions": [1]}, "axis 1 does not exist in a tensor of rank 1"),
        ((f32(1), scalar(0)), {"dimensions": [0, 0]}, "name one axis twice"),
    ],
)
def test_invalid_reduce(operands, fields, message):
    def body(b, *values):
        return values[: len(values) // 2]

    with pytest.raises(IRError, match=message):
        compute("neuron.reduce", *operands, **{"dimensions": [0], **fields}, body=body)


# --- windows ----------------------------------------------------------------------------------------------------------

POOL = {"window_dimensions": [1, 1, 3, 2], "window_strides": [1, 1, 2, 2], "padding": [0, 0, 0, 0, 1, 1, 1, 1]}


def test_pooling_and_its_gradient_against_torch():
    """Small integers: many ties, of which torch and the op both take the first."""
    x = torch.from_numpy(RNG.randint(0, 4, (2, 3, 6, 7)).astype(np.float32)).requires_grad_()
    y = torch.nn.functional.max_pool2d(x, (3, 2), (2, 2), (1, 1))
    grad = torch.arange(1.0, y.numel() + 1).reshape(y.shape)
    y.backward(grad)
    x_, grad_ = x.detach().numpy(), grad.numpy()
    np.testing.assert_array_equal(
        compute("neuron.reduce_window", x_, scalar(-INF), **POOL, body=lambda b, x, y: b.maximum(x, y)), y.detach().numpy()
    )
    for add in (lambda b, x, y: b.add(x, y), lambda b, x, y: b.subtract(x, b.negate(y))):
        got = compute(
            "neuron.select_and_scatter", x_, grad_, scalar(0), **POOL,
            select=lambda b, x, y: b.compare(x, y, direction="GE"), scatter=add,
        )  # fmt: skip
        np.testing.assert_array_equal(got, x.grad.numpy())


def test_windows_with_holes():
    got = compute("neuron.reduce_window", f32(0, 1, 2, 3, 4), scalar(0), window_dimensions=[2], base_dilations=[2],
                  window_dilations=[3], padding=[1, 2], body=lambda b, x, y: b.add(x, y))  # fmt: skip
    # padded and dilated: 0 | 0 _ 1 _ 2 _ 3 _ 4 | 0 0, windows of elements i and i + 3
    assert got.tolist() == [1, 0, 2, 1, 3, 2, 4, 3, 0]


def test_negative_padding_cuts_off_and_windows_may_not_fit():
    add = {"body": lambda b, x, y: b.add(x, y)}
    assert compute("neuron.reduce_window", f32(1, 2, 4, 8), scalar(0), window_dimensions=[2], padding=[-1, -1], **add).tolist() == [
        6
    ]
    assert compute("neuron.reduce_window", f32(1, 2), scalar(0), window_dimensions=[3], **add).shape == (0,)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"window_dimensions": [2]}, r"window_dimensions \[2\] must have 2 values"),
        ({"window_dimensions": [0, 2]}, "must be at least 1"),
        ({"window_dimensions": [2, 2], "padding": [[1, 1]]}, "must have 2 pairs"),
        ({"window_dimensions": [2, 2], "padding": [1]}, r"padding must be a list of \[low, high\] pairs"),
        (
            {"window_dimensions": [2, 2], "out": tensor([2, 2], "f32")},
            r"result 0 is tensor<2x2xf32>, but its shape must be \[2, 3\]",
        ),
    ],
)
def test_invalid_windows(fields, message):
    with pytest.raises(IRError, match=message):
        compute("neuron.reduce_window", np.ones((3, 4), np.float32), scalar(0), body=lambda b, x, y: b.add(x, y), **fields)


def test_the_source_of_select_and_scatter_has_one_element_per_window():
    with pytest.raises(IRError, match=r"\[2\] windows fit tensor<4xf32>, but the source is tensor<3xf32>"):
        compute("neuron.select_and_scatter", f32(1, 2, 3, 4), f32(1, 2, 3), scalar(0), window_dimensions=[2], window_strides=[2],
                select=lambda b, x, y: b.compare(x, y, direction="GE"), scatter=lambda b, x, y: b.add(x, y))  # fmt: skip


# --- by name ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("axes", "keepdims"), [(None, False), ([], True), ([-1], True), ([2, 0], False)], ids=str)
def test_sums_and_extremes_against_numpy(axes, keepdims):
    x = RNG.randn(3, 4, 2)
    at = None if axes is None else tuple(axes)
    for name, f in {"reduce_sum": np.sum, "reduce_prod": np.prod, "reduce_max": np.max, "reduce_min": np.min}.items():
        got = compute(f"neuron.{name}", x, axes=axes, keepdims=keepdims)
        np.testing.assert_allclose(got, f(x, axis=at, keepdims=keepdims), rtol=1e-13)
    whole = RNG.randint(0, 256, (3, 4, 2)).astype(np.uint8)
    for name, f in {"reduce_and": np.bitwise_and, "reduce_or": np.bitwise_or, "reduce_xor": np.bitwise_xor}.items():
        got = compute(f"neuron.{name}", whole, axes=axes, keepdims=keepdims)
        np.testing.assert_array_equal(got, f.reduce(whole, axis=at, keepdims=keepdims) if at != () else whole)


def test_result_types_of_sums():
    assert compute("neuron.reduce_sum", np.array([True, True])).dtype == np.int64
    assert compute("neuron.reduce_sum", np.uint8([200, 100])) == 44
    assert compute("neuron.reduce_sum", np.uint8([200, 100]), out=tensor([], "i64")) == 300
    assert compute("neuron.reduce_sum", np.float16([60000, 60000, -60000])) == 60000  # infinite in f16
    assert compute("neuron.reduce_sum", np.float16([60000, 60000]), out=tensor([], "f32")) == 120000
    assert compute("neuron.reduce_sum", f32(1e8, 1, -1e8), acc=F64) == 1
    assert compute("neuron.reduce_prod", np.complex64([1 + 2j, 2j])) == -4 + 2j
    assert compute("neuron.reduce_sum", f32(1e8, 1, -1e8), out=tensor([], "f64")) == 1


def test_reductions_of_nothing():
    empty = np.zeros((2, 0), np.float32)
    assert compute("neuron.reduce_sum", empty, axes=[1]).tolist() == [0, 0]
    assert compute("neuron.reduce_prod", empty, axes=[1]).tolist() == [1, 1]
    assert compute("neuron.reduce_and", empty.astype(bool)) and not compute("neuron.reduce_or", empty.astype(bool))
    assert compute("neuron.reduce_and", empty.astype(np.int8), axes=[1], keepdims=True).tolist() == [[-1], [-1]]
    assert compute("neuron.reduce_max", empty, axes=[0]).shape == (0,)
    for name in ("reduce_max", "reduce_min"):
        with pytest.raises(IRError, match=r"no elements along axes \[1\] of tensor<2x0xf32>"):
            compute(f"neuron.{name}", empty, axes=[1])
    with pytest.raises(IRError, match="there is no largest one"):
        compute("neuron.argmax", empty, axis=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, BF16])
def test_nan_wins_by_name(dtype):
    x = np.array([[1, NAN, 3], [-INF, 2, INF]], dtype)
    for name, want in {"reduce_max": [NAN, INF], "reduce_min": [NAN, -INF]}.items():
        np.testing.assert_array_equal(compute(f"neuron.{name}", x, axes=[1]).astype(np.float32), np.float32(want))
    assert compute("neuron.argmax", np.array([1, NAN, 9, NAN], dtype), axis=0) == 1
    assert compute("neuron.argmin", np.array([1, NAN, -9, NAN], dtype), axis=0) == 1


def test_the_first_of_equals_is_found():
    x = np.int32([[5, 1, 5], [7, 7, -1]])
    assert compute("neuron.argmax", x, axis=1).tolist() == [0, 0]
    assert compute("neuron.argmax", x) == 3
    assert compute("neuron.argmin", np.array([True, False, False])) == 1
    kept = compute("neuron.argmin", x, axis=-1, keepdims=True, out=tensor([2, 1], "i32"))
    assert kept.tolist() == [[1], [2]] and kept.dtype == np.int32
    assert compute("neuron.argmax", f32(-0.0, 0.0)) == 0


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("reduce_sum", {"axes": [2]}, "axis 2 does not exist in a tensor of rank 2"),
        ("reduce_sum", {"axes": [0, -2]}, r"axes \[0, -2\] name one axis twice"),
        ("reduce_sum", {"out": tensor([], "i32")}, "a result i32 is of another kind than f32"),
        ("reduce_sum", {"acc": F16}, "acc = f16 is narrower than the sums need"),
        ("reduce_sum", {"acc": I32}, "acc = i32 is of another kind"),
        ("reduce_max", {"axes": [0], "out": tensor([300], "f64")}, "the result is of the operand's f32, not f64"),
        ("argmax", {"axis": 1, "out": tensor([2], "u8")}, "u8 cannot hold the indices of 300 elements"),
        ("argmax", {"axis": 1, "out": tensor([2], "f32")}, "indices are integers, not f32"),
        ("cumsum", {"axis": 2}, "axis 2 does not exist in a tensor of rank 2"),
    ],
)
def test_invalid_reductions(name, fields, message):
    with pytest.raises(IRError, match=message):
        compute(f"neuron.{name}", np.ones((2, 300), np.float32), **fields)


def test_u8_holds_255():
    assert compute("neuron.argmax", np.arange(256), out=tensor([], "u8")) == 255


def test_reductions_with_symbolic_sizes():
    module = program("neuron.reduce_sum", [symbolic(["B", "S", None])], axes=[1], keepdims=True)
    assert str(module.main.result_types[0]) == "tensor<Bx1x?xf32>"
    assert str(program("neuron.argmax", [symbolic(["B", "S"])], axis=1).main.result_types[0]) == "tensor<Bxi64>"


# --- running ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("axis", "reverse"), [(0, False), (-1, True)])
def test_running_reductions_against_torch(reverse, axis):
    x = RNG.randn(5, 6)
    at = torch.from_numpy(x.copy())
    turned = at.flip(axis) if reverse else at
    for name, f in {
        "cumsum": torch.cumsum, "cumprod": torch.cumprod, "cumlogsumexp": torch.logcumsumexp,
        "cummax": lambda t, d: torch.cummax(t, d)[0], "cummin": lambda t, d: torch.cummin(t, d)[0],
    }.items():  # fmt: skip
        want = f(turned, axis)
        got = compute(f"neuron.{name}", x, axis=axis, reverse=reverse)
        np.testing.assert_allclose(got, (want.flip(axis) if reverse else want).numpy(), rtol=1e-12)


def test_running_reductions_at_the_edges():
    x = f32(1, NAN, 9, -1)
    np.testing.assert_array_equal(compute("neuron.cummax", x, axis=0), torch.cummax(torch.from_numpy(x), 0)[0].numpy())
    np.testing.assert_array_equal(compute("neuron.cummin", x, axis=0), torch.cummin(torch.from_numpy(x), 0)[0].numpy())
    odd = f32(-INF, -INF, 1, INF, 2, NAN)
    np.testing.assert_allclose(compute("neuron.cumlogsumexp", odd, axis=0), torch.logcumsumexp(torch.from_numpy(odd), 0).numpy())
    assert compute("neuron.cumsum", np.array([True, True, False]), axis=0).tolist() == [1, 2, 2]
    assert compute("neuron.cumsum", np.int8([100, 100]), axis=0).tolist() == [100, -56]
    assert compute("neuron.cumsum", np.int8([100, 100]), axis=0, out=tensor([2], "i64")).tolist() == [100, 200]
    assert compute("neuron.cumsum", np.ones((0, 3), np.float32), axis=0).shape == (0, 3)


def test_running_indices_against_torch():
    """torch takes the last of equal elements and of NaNs."""
    x = RNG.randint(-3, 4, (4, 40)).astype(np.float32)
    x[1, [5, 20]], x[2, 0], x[3, -1] = NAN, NAN, NAN
    for axis in (0, 1):
        for name, f in {"cumargmax": torch.cummax, "cumargmin": torch.cummin}.items():
            np.testing.assert_array_equal(compute(f"neuron.{name}", x, axis=axis), f(torch.from_numpy(x), axis)[1].numpy())
    whole = RNG.randint(-3, 4, 40).astype(np.int8)
    got = compute("neuron.cumargmax", whole, axis=-1, out=tensor([40], "u8"))
    np.testing.assert_array_equal(got, torch.cummax(torch.from_numpy(whole), 0)[1].numpy())
    assert compute("neuron.cumargmin", np.zeros((0, 2)), axis=0).shape == (0, 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, BF16, ml_dtypes.float8_e5m2])
def test_one_nan_among_many_is_found(dtype):
    """XLA on CPU loses it in a plain maximum or minimum of more than some 32 floats."""
    x = RNG.randn(64, 1031).astype(dtype)
    at = RNG.randint(0, 1031, 64)
    x[np.arange(64), at] = NAN
    assert np.isnan(compute("neuron.reduce_max", x, axes=[1])).all() and np.isnan(compute("neuron.reduce_min", x, axes=[1])).all()
    np.testing.assert_array_equal(compute("neuron.argmax", x, axis=1), at)
    np.testing.assert_array_equal(compute("neuron.argmin", x, axis=1), at)
    start = scalar(0, dtype)
    for name in ("maximum", "minimum"):
        body = {"body": BODIES[name][0]}
        assert np.isnan(compute("neuron.reduce", x, start, dimensions=[1], **body)).all()
        pooled = compute("neuron.reduce_window", x, start, window_dimensions=[1, 1031], window_strides=[1, 1031], **body)
        assert np.isnan(pooled).all()


def test_long_sums_keep_their_digits():
    """2**25 ones in f32: adding one by one would stop at 2**24."""
    assert compute("neuron.reduce_sum", np.ones(2**25, np.float32)) == 2**25
    body = {"dimensions": [0], "body": lambda b, x, y: b.add(x, y)}
    assert compute("neuron.reduce", np.ones(2**25, np.float32), scalar(0), **body) == 2**25
