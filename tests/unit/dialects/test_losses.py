"""nll_loss and cross_entropy against torch: weights, ignored targets, smoothing, probabilities."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from neuron_ir.diagnostics import IRError

from .judge import apply, apply_each, close, program, symbolic

G = torch.Generator().manual_seed(0)
LOGITS = torch.randn(6, 5, 3, generator=G)
TARGET = torch.randint(0, 5, (6, 3), generator=G)
TARGET[0, 1] = -100
WEIGHT = torch.rand(5, generator=G) + 0.1
PROBABILITIES = torch.softmax(torch.randn(6, 5, 3, generator=G), 1)
OPTIONS = [{"reduction": r, "label_smoothing": s} for r, s in itertools.product(("mean", "sum", "none"), (0.0, 0.1))]


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize("target", [TARGET, PROBABILITIES], ids=["classes", "probabilities"])
def test_cross_entropy_is_torchs(weight, target):
    for attrs, (y,) in zip(OPTIONS, apply_each("cross_entropy", [LOGITS, target, weight], OPTIONS), strict=True):
        close(y, F.cross_entropy(LOGITS, target, weight, **attrs), 8)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_another_number_to_ignore(weight):
    target = TARGET.clamp(min=0)
    variants = [{**o, "ignore_index": 2} for o in OPTIONS]
    for attrs, (y,) in zip(variants, apply_each("cross_entropy", [LOGITS, target, weight], variants), strict=True):
        close(y, F.cross_entropy(LOGITS, target, weight, **attrs), 8)


def test_all_ignored_and_none_at_all():
    ignored = torch.full((6, 3), -100)
    for attrs, (y,) in zip(OPTIONS, apply_each("cross_entropy", [LOGITS, ignored, None], OPTIONS), strict=True):
        close(y, F.cross_entropy(LOGITS, ignored, **attrs), 0)
    nothing = torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)
    assert apply("cross_entropy", *nothing, None).isnan()
    assert apply("cross_entropy", *nothing, None, reduction="sum") == 0


def test_one_example_without_a_batch():
    x, target = LOGITS[0, :, 0].clone(), torch.tensor(3)
    close(apply("cross_entropy", x, target, None), F.cross_entropy(x, target), 4)
    close(apply("cross_entropy", x, PROBABILITIES[0, :, 0].clone(), None), F.cross_entropy(x, PROBABILITIES[0, :, 0]), 4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_every_float_type_rounds_once(dtype):
    x = LOGITS.to(dtype)
    expected = F.cross_entropy(x.double(), TARGET, label_smoothing=0.1).to(dtype)
    close(apply("cross_entropy", x, TARGET, None, label_smoothing=0.1), expected, 1 if dtype is not torch.float64 else 8)


def test_an_infinite_logit_of_an_ignored_example_does_not_count():
    x = LOGITS.clone()
    x[0, :, 1] = float("nan")
    close(apply("cross_entropy", x, TARGET, None), F.cross_entropy(x, TARGET), 4)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_nll_loss_and_its_total_weight(reduction):
    logp = F.log_softmax(LOGITS, 1)
    number = {"mean": 1, "sum": 2}[reduction]
    expected = torch.ops.aten.nll_loss2d_forward(logp.unsqueeze(-1), TARGET.unsqueeze(-1), WEIGHT, number, -100)
    results = apply("nll_loss", logp, TARGET, WEIGHT, reduction=reduction, total_weight=True)
    for actual, wanted in zip(results, expected, strict=True):
        close(actual, wanted, 4)
    close(apply("nll_loss", logp, TARGET.clamp(0), None, reduction="none"), F.nll_loss(logp, TARGET.clamp(0), reduction="none"), 0)


def test_what_does_not_fit_is_refused_with_its_numbers():
    f = symbolic
    for types, attrs, message in (
        ([f((4, 5)), f((3,), "i64"), None], {}, "target must have shape [4] for x of [4, 5], not [3]"),
        ([f((4, 5)), f((4,), "i64"), f((4,))], {}, "weight must have shape [5], not [4]"),
        ([f((4, 5)), f((4, 5), "bf16"), None], {}, "target must be f32 like the first operand, not bf16"),
        ([f((4, 5)), f((4,), "bool"), None], {}, "class numbers must be i32, i64, u8, not bool"),
        ([f((4, 5)), f((4,), "i64"), None], {"label_smoothing": 1.5}, "label_smoothing = 1.5 is not in 0..1"),
        ([f((4, 5)), f((4, 5)), None], {"ignore_index": 3}, "ignore_index has no meaning for probabilities"),
    ):
        with pytest.raises(IRError) as caught:
            program("neuron.cross_entropy", types, **attrs)
        assert message in str(caught.value)


def test_shapes_may_be_symbols():
    f = symbolic
    types = [f(("B", 5, "S")), f(("B", "S"), "i64"), None]
    assert program("neuron.cross_entropy", types, reduction="none").main.result_types == [f(("B", "S"))]
    assert program("neuron.cross_entropy", types).main.result_types == [f(())]
