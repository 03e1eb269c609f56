"""--verify-numerics: what counts as equal, and which pass and op a changed value is blamed on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy
import pytest

from neuron_ir.builder import Builder
from neuron_ir.core import Module
from neuron_ir.diagnostics import IRError
from neuron_ir.dtypes import all_dtypes
from neuron_ir.numerics import VerifyNumerics, difference, example_sizes, random_array, random_inputs
from neuron_ir.parser import parse
from neuron_ir.passmanager import Context, Pass, PassManager
from neuron_ir.types import TensorType

NAN, INF = float("nan"), float("inf")


def f32(*values: float) -> numpy.ndarray:
    return numpy.array(values, numpy.float32)


@pytest.mark.parametrize(
    ("old", "new", "rtol", "equal"),
    [
        (f32(1, 2), f32(1, 2), 0.0, True),
        (f32(1, 2), f32(1, numpy.nextafter(numpy.float32(2), numpy.float32(3))), 0.0, False),
        (f32(0), f32(-0.0), 0.0, False),
        (f32(0), f32(-0.0), 1e-6, True),
        (f32(NAN), f32(NAN), 0.0, True),
        (f32(NAN), f32(1), 1.0, False),
        (f32(INF, 1), f32(INF, 1), 1e-6, True),
        (f32(INF, 1), f32(-INF, 1), 1.0, False),
        (f32(INF, 1), f32(3e38, 1), 1.0, False),
        (f32(1, 1000), f32(1.5, 1000), 1e-3, True),  # 0.5 is within a thousandth of the largest
        (f32(1, 1000), f32(2.5, 1000), 1e-3, False),
        (numpy.array([1, 2]), numpy.array([1, 3]), 1.0, False),  # integers have no tolerance
        (numpy.array([True]), numpy.array([False]), 1.0, False),
        (numpy.array([1 + 2j], numpy.complex64), numpy.array([1 - 2j], numpy.complex64), 1e-3, False),
        (f32(1), numpy.float64([1]), 1.0, False),
        (f32(1), f32(1, 1), 1.0, False),
        (f32(), f32(), 0.0, True),
        (f32(1).astype(ml_dtypes.bfloat16), f32(1).astype(ml_dtypes.bfloat16), 0.0, True),
        (f32(448).astype(ml_dtypes.float8_e4m3fn), f32(416).astype(ml_dtypes.float8_e4m3fn), 0.0, False),
        (numpy.array([1, 2]).astype(ml_dtypes.int4), numpy.array([1, 3]).astype(ml_dtypes.int4), 1.0, False),
    ],
)
def test_difference(old, new, rtol: float, equal: bool) -> None:
    assert (difference(old, new, rtol) == "") is equal


def test_a_difference_is_described() -> None:
    assert difference(f32(1, 2, 3), f32(1, 5, 4), 0.0) == "element [1] is 5.0, was 2.0 (2 of 3 differ; compared bit for bit)"


@pytest.mark.parametrize("element", all_dtypes(), ids=str)
def test_random_values_exist_for_every_type_and_repeat(element) -> None:
    type = TensorType((8, 8), element)
    a, b, c = random_array(type, 1), random_array(type, 1), random_array(type, 2)
    assert a.shape == (8, 8) and a.dtype == element.numpy
    assert a.tobytes() == b.tobytes() != c.tobytes()


def test_sizes_are_small_different_and_in_range() -> None:
    func = parse("func @main[A in 1..inf, B in 16..32, C in 1..2](%x: tensor<AxBxCxf32>) {\n  func.return()\n}").main
    assert example_sizes(func) == {"A": 3, "B": 16, "C": 2}


def test_bound_weights_are_used() -> None:
    func = parse('func @main(%x: tensor<2xf32>, %w: tensor<2xf32> {weight = "w"}) {\n  func.return()\n}').main
    weight = f32(5, 6)
    x, w = random_inputs(func, {"w": weight})
    assert w is weight and x.shape == (2,)
    assert not numpy.array_equal(random_inputs(func, {})[1], weight)


def test_an_unknown_size_is_refused() -> None:
    module = parse("func @main(%x: tensor<?xf32>) -> tensor<?xf32> {\n  func.return(%x)\n}")
    with pytest.raises(IRError, match="no example input can be made for %x of type tensor<\\?xf32>"):
        PassManager([], [VerifyNumerics()]).run(module)


TEXT = """func @main[S in 1..inf](%x: tensor<Sx4xf32>) -> tensor<Sx4xf32> {
  %a = neuron.tanh(%x) : tensor<Sx4xf32> loc("m.py":1:1)
  %b = neuron.exponential(%a) : tensor<Sx4xf32> loc("m.py":2:1)
  %c = neuron.negate(%b) : tensor<Sx4xf32> loc("m.py":3:1)
  func.return(%c)
}"""


@dataclass(frozen=True)
class Swap(Pass):
    """Replace each ``old`` by ``new``."""

    old: str = ""
    new: str = ""

    def run(self, module: Module, ctx: Context) -> None:
        for op in module.walk():
            if op.name == self.old:
                op.replace_with([Builder(op.block, op.loc, op).make(self.new, *op.operands)])


@dataclass(frozen=True)
class SwapRoughly(Swap):
    """The same, and says that it is not exact."""

    exact: ClassVar[bool] = False
    rtol: ClassVar[float] = 10.0


def run(*passes: Pass, rtol: float | None = None) -> None:
    PassManager(passes, [VerifyNumerics(rtol)]).run(parse(TEXT))


def test_a_pass_that_changes_nothing_goes_through() -> None:
    run(Swap(), Swap("neuron.tanh", "neuron.tanh"))


def test_the_pass_and_the_first_changed_op_are_named() -> None:
    with pytest.raises(IRError) as raised:
        run(Swap(), Swap("neuron.exponential", "neuron.exp2"))
    (d,) = raised.value.diagnostics
    assert d.message.startswith(f"pass {Swap.name} changed result 0 of @main: element [0, 0] is ")
    assert d.loc.short == "m.py:2:1"
    assert d.notes[0].startswith("the first changed value is that of: neuron.exp2(")


def test_a_declared_tolerance_counts_for_that_pass_alone() -> None:
    run(SwapRoughly("neuron.exponential", "neuron.exp2"))
    with pytest.raises(IRError, match=r"compared within 0\.001 of"):
        run(SwapRoughly("neuron.exponential", "neuron.exp2"), rtol=1e-3)
    with pytest.raises(IRError, match="compared bit for bit"):
        run(SwapRoughly("neuron.exponential", "neuron.exp2"), Swap("neuron.negate", "neuron.abs"))


@dataclass(frozen=True)
class DropArgument(Pass):
    """Change the signature."""

    def run(self, module: Module, ctx: Context) -> None:
        module.main.add_arg(TensorType((), module.main.args[0].dtype))


def test_a_changed_signature_is_refused() -> None:
    with pytest.raises(IRError, match="changed the signature of @main"):
        run(DropArgument())
