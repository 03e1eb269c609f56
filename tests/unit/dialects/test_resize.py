"""interpolate against torch in every mode."""

import pytest
import torch
import torch.nn.functional as F

from neuron_ir.diagnostics import IRError

from .judge import apply, apply_each, close, program, symbolic

IMAGE = torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(0))
MODES = {"nearest": "nearest", "nearest_exact": "nearest-exact", "linear": "bilinear", "cubic": "bicubic"}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_and_size_is_torchs(mode):
    sizes = [(9, 3), (5, 14), (1, 1), (13, 11), (5, 7)]
    corners = [False] if mode.startswith("nearest") else [False, True]
    variants = [{"size": s, "mode": mode, "align_corners": c} for s in sizes for c in corners]
    for attrs, (y,) in zip(variants, apply_each("interpolate", [IMAGE], variants), strict=True):
        align = {} if mode.startswith("nearest") else {"align_corners": attrs["align_corners"]}
        close(y, F.interpolate(IMAGE, attrs["size"], mode=MODES[mode], **align), 0 if not align else 8)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scale", [1.7, 0.6, 2.0])
def test_a_users_scale_counts_and_not_the_ratio_of_sizes(mode, scale):
    expected = F.interpolate(IMAGE, scale_factor=scale, mode=MODES[mode])
    y = apply("interpolate", IMAGE, size=expected.shape[2:], mode=mode, scales=[scale, scale])
    close(y, expected, 0 if mode.startswith("nearest") else 8)


def test_one_and_three_dims_and_other_types():
    x = IMAGE.reshape(1, 2, 3, 5, 7)
    close(
        apply("interpolate", x.double(), size=[6, 2, 9], mode="linear"), F.interpolate(x.double(), (6, 2, 9), mode="trilinear"), 8
    )
    close(apply("interpolate", IMAGE[0], size=[11], mode="linear"), F.interpolate(IMAGE[0], 11, mode="linear"), 8)
    exact = F.interpolate(IMAGE.bfloat16().float(), (9, 9), mode="bilinear").bfloat16()
    close(apply("interpolate", IMAGE.bfloat16(), size=[9, 9], mode="linear"), exact, 1)
    pixels = torch.arange(12, dtype=torch.uint8).reshape(1, 1, 3, 4)
    assert torch.equal(apply("interpolate", pixels, size=[7, 7]), F.interpolate(pixels, (7, 7)))


def test_what_does_not_fit_is_refused_with_its_numbers():
    f = symbolic
    for x, attrs, message in (
        (f((1, 1, 4)), {"size": [0]}, "sizes must be at least 1: from [4] to [0]"),
        (f((1, 1, 4), "u8"), {"size": [2], "mode": "linear"}, "mode linear cannot interpolate u8"),
        (f((1, 1, 4)), {"size": [2], "align_corners": True}, "align_corners has no meaning for mode nearest"),
        (f((1, 1, 4)), {"size": [2], "scales": [1.0, 2.0]}, "scales = [1.0, 2.0] must have 1 entries"),
    ):
        with pytest.raises(IRError) as caught:
            program("neuron.interpolate", [x], **attrs)
        assert message in str(caught.value)


def test_leading_sizes_may_be_symbols():
    (y,) = program("neuron.interpolate", [symbolic(("B", None, 4))], size=[8]).main.result_types
    assert y is symbolic(("B", None, 8))
