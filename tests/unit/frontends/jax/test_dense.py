"""Constants of MLIR modules read back bit for bit."""

import ml_dtypes
import numpy as np
import pytest

from neuron_ir.frontends.jax import dense
from neuron_ir.frontends.jax.parse import parse

SHAPES = [(), (3,), (2, 3), (20, 20), (0, 3)]


def constant(element, shape, body):
    dims = "".join(f"{n}x" for n in shape)
    module = parse(f"func.func @f() {{\n  %c = stablehlo.constant dense<{body}> : tensor<{dims}{element}>\n  return\n}}")
    (function,) = module.body.operations
    op = next(iter(function.regions[0].blocks[0].operations)).operation
    return np.array(dense.constant_array(op))


def random_values(dtype, count):
    rng = np.random.default_rng(0)
    if dtype.kind == "c":
        return (rng.standard_normal(count) + 1j * rng.standard_normal(count)).astype(dtype)
    name = dtype.name
    if "4" in name and "e2m1" in name or name.startswith("float6"):
        return rng.standard_normal(count).astype(dtype)
    if name.startswith(("int2", "int4", "uint2", "uint4")):
        info = ml_dtypes.iinfo(dtype)
        return rng.integers(int(info.min), int(info.max) + 1, count).astype(dtype)
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype)


@pytest.mark.parametrize("splat", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("element", [e for e in dense.DTYPES if e not in ("index", "i1")])
def test_every_element_type(element, shape, splat):
    dtype, count = dense.DTYPES[element], int(np.prod(shape))
    want = random_values(dtype, max(count, 1))
    want = (np.full(shape, want[0]) if splat else want[:count].reshape(shape)).astype(dtype)
    got = constant(element, shape, f'"0x{want.tobytes().hex()}"' if count else "")
    assert (got.dtype, got.shape) == (dtype, shape)
    assert got.tobytes() == want.tobytes()


def test_booleans_and_special_values():
    assert constant("i1", (3,), "[true, false, true]").tolist() == [True, False, True]
    assert constant("i1", (300,), "true").all()
    assert constant("bf16", (3,), "[1.5, -0.0, 0x7FC1]").view(np.uint16).tolist() == [0x3FC0, 0x8000, 0x7FC1]
    assert constant("complex<f32>", (2,), "[(1.0, -2.0), (0.0, 3.5)]").tolist() == [1 - 2j, 3.5j]
