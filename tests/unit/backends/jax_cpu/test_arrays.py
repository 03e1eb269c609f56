"""Arrays in and out of the reference accelerator: values, element types and shared memory."""

from __future__ import annotations

import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
import torch

from neuron_ir.backends.jax_cpu.arrays import (
    aligned_empty,
    as_numpy,
    as_torch,
    host_view,
    kind_of,
    resident,
    settle,
    user_array,
    writable,
    write_back,
)
from neuron_ir.diagnostics import IRError

TORCH_TYPES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.bool: "bool", torch.int8: "i8",
    torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.uint16: "u16", torch.uint32: "u32",
    torch.uint64: "u64", torch.complex64: "c64", torch.complex128: "c128", torch.float8_e4m3fn: "f8e4m3fn",
    torch.float8_e5m2: "f8e5m2", torch.float8_e4m3fnuz: "f8e4m3fnuz", torch.float8_e5m2fnuz: "f8e5m2fnuz",
    torch.float8_e8m0fnu: "f8e8m0",
}  # fmt: skip
SHARED = np.zeros(4, np.float32)


def through(view):
    """A jitted copy of a host view, in 64-bit semantics."""
    with jax.enable_x64(True):
        return jax.jit(lambda x: x.reshape(x.shape))(view)


def raw(tensor: torch.Tensor) -> bytes:
    flat = tensor.contiguous().reshape(-1)
    return (flat if flat.dtype is torch.bool else flat.view(torch.uint8)).numpy().tobytes()


@pytest.mark.parametrize("dtype", TORCH_TYPES, ids=str)
def test_torch_goes_in_and_out_bit_for_bit_without_a_copy(dtype) -> None:
    given = torch.tensor([0.5, 1, 2, 4]).to(dtype)
    view, element = host_view(given)
    assert element.name == TORCH_TYPES[dtype] and view.dtype == element.numpy
    assert view.ctypes.data == given.data_ptr()
    result = through(view)
    back = as_torch(result)
    assert back.dtype is dtype and raw(back) == raw(given)
    assert back.data_ptr() == result.unsafe_buffer_pointer()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.t(),
        lambda t: t[:, ::2],
        lambda t: t[1:, 1:3],
        lambda t: t[0].expand(5, 4),
        lambda t: t[:0],
        lambda t: t[1, 1],
        lambda t: t.reshape(1, 3, 1, 4).permute(3, 0, 2, 1),
    ],
    ids=["transposed", "strided", "offset", "expanded", "empty", "scalar", "permuted"],
)
def test_torch_views_go_in_as_they_are(dtype, make) -> None:
    view = make(torch.arange(12, dtype=torch.float32).reshape(3, 4).to(dtype))
    host, _ = host_view(view)
    assert host.shape == tuple(view.shape)
    back = as_torch(through(host))
    assert back.shape == view.shape and raw(back) == raw(view)


def test_lazy_torch_bits_and_gradients_are_resolved() -> None:
    c = torch.tensor([1 + 2j, 3 - 4j])
    assert host_view(c.conj())[0].tolist() == [1 - 2j, 3 + 4j]
    assert host_view(c.conj().imag)[0].tolist() == [-2, 4]
    assert host_view(torch.ones(2, requires_grad=True))[0].tolist() == [1, 1]
    assert host_view(torch.nn.Parameter(torch.ones(2)))[0].tolist() == [1, 1]


@pytest.mark.parametrize(
    "value, message",
    [
        (torch.ones(2, device="meta"), "a torch tensor on meta; move it to the CPU first"),
        (torch.eye(2).to_sparse(), "a torch tensor of layout torch.sparse_coo; a dense one is needed"),
        (np.array(["a"]), "an array of <U1, an element type that the IR does not have"),
        (np.array([None]), "an array of object, an element type that the IR does not have"),
        ([1.0], "a builtins.list; NumPy, torch or JAX arrays are needed"),
        (None, "a builtins.NoneType; NumPy, torch or JAX arrays are needed"),
        (2**70, f"the integer {2**70}, which does not fit 64 bits"),
    ],
    ids=["device", "sparse", "text", "object", "list", "none", "big"],
)
def test_what_cannot_be_viewed_is_named(value, message) -> None:
    with pytest.raises(TypeError) as error:
        host_view(value)
    assert str(error.value) == message


def test_a_random_key_stands_for_its_data_and_a_deleted_array_is_named() -> None:
    data, element = host_view(jax.random.key(7))
    assert element.name == "u32" and data.tolist() == jax.random.key_data(jax.random.key(7)).tolist()
    gone = jax.numpy.ones(2)
    gone.delete()
    with pytest.raises(TypeError, match="donated or deleted"):
        host_view(gone)


def test_scalars_have_the_types_that_programs_expect() -> None:
    named = [(1.5, "f32"), (3, "i64"), (True, "bool"), (1j, "c64"), (np.float64(1), "f64"), (ml_dtypes.bfloat16(1), "bf16")]
    for value, name in named:
        array, element = host_view(value)
        assert element.name == name and array.shape == () and array == value


def test_numpy_views_share_memory_and_foreign_byte_order_is_turned() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert np.shares_memory(host_view(x[:, ::2])[0], x)
    turned, element = host_view(np.array([1, 2], ">i4"))
    assert element.name == "i32" and turned.dtype.isnative and turned.tolist() == [1, 2]


def test_jax_arrays_stay_what_they_are() -> None:
    x = jax.numpy.ones(3)
    assert host_view(x)[0] is x and user_array(x, "jax") is x


def test_the_kind_of_the_outputs_follows_the_inputs() -> None:
    n, t, j = np.ones(1), torch.ones(1), jax.numpy.ones(1)
    assert [kind_of(v) for v in ([], [n], [n, j], [j, t], [1.0])] == ["numpy", "numpy", "jax", "torch", "numpy"]


NUMPY_NAMES = ["float32", "int64", "bool", "complex64", "float16", "bfloat16", "float8_e4m3fn", "int4"]


@pytest.mark.parametrize("dtype", NUMPY_NAMES)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)], ids=str)
def test_results_are_writable_numpy_arrays(dtype, shape) -> None:
    dtype = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    want = np.arange(6).reshape(2, 3)[: shape[0] if shape else 2].astype(dtype) if shape else np.array(3).astype(dtype)
    got = as_numpy(through(want))
    assert got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()
    got[...] = 0


def test_a_result_outlives_its_jax_array_without_a_copy() -> None:
    result = through(np.full(100_000, 3.0, np.float32))
    address = result.unsafe_buffer_pointer()
    host, tensor = as_numpy(result), as_torch(result)
    del result
    assert host.ctypes.data == address == tensor.data_ptr()
    for _ in range(3):
        through(np.zeros(100_000, np.float32))
    assert (host == 3).all() and (tensor == 3).all()


def test_a_type_that_torch_lacks_is_named() -> None:
    with pytest.raises(IRError, match="torch has no element type for an output of i4"):
        as_torch(through(np.ones(2, ml_dtypes.int4)))


def test_weights_exist_once() -> None:
    with jax.enable_x64(True):
        for weight in (torch.ones(1000, dtype=torch.bfloat16), torch.arange(1000)):
            bound = resident(host_view(weight)[0])
            assert bound.unsafe_buffer_pointer() == weight.data_ptr()
        room = aligned_empty((10, 7), ml_dtypes.bfloat16)
        assert room.shape == (10, 7) and resident(room).unsafe_buffer_pointer() == room.ctypes.data
        assert resident(bound) is bound
        assert resident(aligned_empty((0, 3), np.int64)).shape == (0, 3)


def test_inputs_may_change_once_results_are_settled() -> None:
    function = jax.jit(lambda x: x + 1)
    for _ in range(10):
        given = aligned_empty((3_000_000,), np.float32)
        given[:] = 1
        result = function(given)
        settle([result], [given])
        given[:] = 7
        assert (np.asarray(result) == 2).all()


def test_a_narrowed_weight_is_refused() -> None:
    with jax.enable_x64(False), pytest.raises(IRError, match="a weight of int64 became int32"):
        resident(np.arange(3))


def test_updates_are_written_into_the_callers_array() -> None:
    n, t = np.zeros((3, 4), np.float32), torch.zeros(3, 4, dtype=torch.bfloat16)
    write_back(n[:, ::2], through(np.ones((3, 2), np.float32)))
    assert n.sum() == 6 and (n[:, ::2] == 1).all()
    write_back(t.t()[1:], through(np.ones((3, 3), ml_dtypes.bfloat16)))
    assert t.sum() == 9 and (t[:, 0] == 0).all()


@pytest.mark.parametrize(
    "target, message",
    [
        (jax.numpy.ones(2), "input 'kv' is updated by the program, but it is a JAX array, which cannot change"),
        (1.0, "input 'kv' is updated by the program, but it is a float, which cannot change"),
        (torch.ones(1).expand(2), "its elements share memory"),
        (np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (2,), (0,)), "its elements share memory"),
        (np.frombuffer(bytes(8), np.float32), "the array is read-only"),
        (np.lib.stride_tricks.as_strided(np.ones(2, np.float32), (3,), (2,)), "its elements share memory"),
        (SHARED[:2], "it shares memory with input 'x'; give a copy of one"),
        (torch.from_numpy(SHARED)[2:], "it shares memory with input 'x'; give a copy of one"),
    ],
    ids=["jax", "number", "expanded", "stride 0", "read-only", "overlapping", "two inputs", "two kinds"],
)
def test_an_update_that_cannot_be_written_is_named(target, message) -> None:
    with pytest.raises(IRError) as error:
        writable(target, "kv", {"n": 1.0, "x": SHARED[1:3]})
    assert message in str(error.value)


def test_an_update_beside_other_inputs_is_fine() -> None:
    whole = np.zeros((4, 6), np.float32)
    for target in (whole[:, ::2], whole.T[::2], whole[::-1, ::2], torch.from_numpy(whole)[:, ::2], np.zeros((0, 3), np.float32)):
        writable(target, "kv", {"x": whole[:, 1::2], "y": jax.numpy.zeros(3)})


def test_torch_is_not_imported_for_numpy_callers() -> None:
    code = (
        "import sys, numpy, jax; from neuron_ir.backends.jax_cpu import arrays as a; v, _ = a.host_view(numpy.ones(2)); "
        "a.as_numpy(jax.jit(lambda x: x + 1)(v)); a.kind_of([v]); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
