"""8-bit floats: every code, every midpoint between neighbours and what lies beside it, against torch and ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy
import pytest
import torch

import neuron_ir
from neuron_ir.meaning import compute

pytestmark = pytest.mark.accuracy  # how a cast rounds is XLA's own

FORMATS = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]


def inputs(values):
    """The finite values, the midpoints between neighbours, the f32 numbers beside both, and what lies outside the range."""
    finite = numpy.unique(values[numpy.isfinite(values)].astype(numpy.float64))
    most = finite[-1]
    step = finite[-1] - finite[-2]
    points = numpy.concatenate([finite, (finite[1:] + finite[:-1]) / 2, [most + step / 2, most + step, most * 4, finite[0] / 2]])
    points = numpy.concatenate([points, -points]).astype(numpy.float32)
    beside = [numpy.nextafter(points, numpy.float32(side)) for side in (-numpy.inf, numpy.inf)]
    special = numpy.float32([numpy.nan, numpy.inf, -numpy.inf, 0.0, -0.0, 1e-30, -1e-30, 3e38, -3e38])
    return numpy.concatenate([points, *beside, special])


def bits(x):
    return x.view(torch.uint8)


def same(got, want):
    """Equal codes, where all codes of NaN are one."""
    nan = want.float().isnan()
    assert torch.equal(got.float().isnan(), nan)
    wrong = (bits(got) != bits(want)) & ~nan
    assert not wrong.any(), (
        f"{int(wrong.sum())} codes differ: {bits(got)[wrong][:8].tolist()}, not {bits(want)[wrong][:8].tolist()}"
    )


@pytest.mark.parametrize("name", FORMATS)
def test_casts_are_torchs(name) -> None:
    dtype = getattr(torch, name)
    codes = torch.arange(256, dtype=torch.uint8).view(dtype)
    values = torch.from_numpy(inputs(codes.float().numpy()))
    half, brain = (values.to(t) for t in (torch.float16, torch.bfloat16))

    def f(codes, *values):
        return codes.to(torch.float32), codes.to(torch.bfloat16), *(v.to(dtype) for v in values)

    wide, brain_codes, *narrow = neuron_ir.compile(neuron_ir.from_torch(f, (codes, values, half, brain)))(
        codes, values, half, brain
    )
    torch.testing.assert_close(wide, codes.float(), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(brain_codes, codes.to(torch.bfloat16), rtol=0, atol=0, equal_nan=True)
    for got, given in zip(narrow, (values, half, brain), strict=True):
        same(got, given.to(dtype))


@pytest.mark.parametrize("mode", ["nan", "saturate"])
def test_the_variant_whose_largest_value_is_240(mode) -> None:
    """f8e4m3 as IEEE has it: rounding as in ml_dtypes; ``saturate`` gives the largest value where that gives infinity."""
    codes = numpy.arange(256, dtype=numpy.uint8).view(ml_dtypes.float8_e4m3)
    assert numpy.nanmax(codes.astype(numpy.float32)[numpy.isfinite(codes.astype(numpy.float32))]) == 240
    values = inputs(codes.astype(numpy.float32))
    want = values.astype(ml_dtypes.float8_e4m3)
    if mode == "saturate":
        infinite = numpy.isinf(want.astype(numpy.float32))
        want = numpy.where(infinite, numpy.copysign(numpy.float32(240), values), want.astype(numpy.float32)).astype(
            ml_dtypes.float8_e4m3
        )
    got = numpy.asarray(compute("neuron.cast", values, mode=mode, out=neuron_ir.tensor(values.shape, "f8e4m3")))
    nan = numpy.isnan(want.astype(numpy.float32))
    assert (numpy.isnan(got.astype(numpy.float32)) == nan).all()
    assert (got.view(numpy.uint8)[~nan] == want.view(numpy.uint8)[~nan]).all()
    back = numpy.asarray(compute("neuron.cast", codes, out=neuron_ir.tensor((256,), "f32")))
    numpy.testing.assert_array_equal(back, codes.astype(numpy.float32))
