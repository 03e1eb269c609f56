"""Random, well-formed modules for property tests: hypothesis draws ops, shapes, constants, regions and locations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
from hypothesis import strategies as st

from neuron_ir.attrs import Dense
from neuron_ir.builder import Builder
from neuron_ir.core import Func, Module, Value
from neuron_ir.dims import symbol
from neuron_ir.dtypes import BF16, BOOL, C64, F16, F32, F64, I32, I64, U8, DType, all_dtypes
from neuron_ir.locations import FileLoc, FusedLoc, Loc
from neuron_ir.types import Layout, TensorType

__all__ = ["constants", "modules"]

SHAPES = ((), (4,), (2, 3), (3, 2))
FLOATS, INTEGERS = (F32, F16, BF16, F64), (I32, I64, U8)

Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def locations(draw: Draw) -> Loc:
    """An implicit place, a place with scope and callers, or a fused one."""
    files = st.sampled_from(["m.py", 'a "b".py', "c\\d.py"])
    place = st.tuples(files, st.integers(0, 99), st.integers(0, 99), st.sampled_from(["", "h.0"])).map(lambda t: FileLoc(*t))
    called = st.tuples(place, place).map(lambda t: t[0]._replace(caller=t[1]))
    fused = st.tuples(place, place).map(FusedLoc)
    return draw(st.one_of(st.just(FileLoc("<none>", implicit=True)), place, called, fused))


@st.composite
def constants(
    draw: Draw, types: tuple[DType, ...] = all_dtypes(), shapes: tuple[tuple[int, ...], ...] = (*SHAPES, (0, 2), (40,))
) -> Dense:
    """A constant of any element type and any bits."""
    element, shape = draw(st.sampled_from(types)), draw(st.sampled_from(shapes))
    n = int(numpy.prod(shape)) * element.numpy.itemsize
    data = draw(st.binary(min_size=n, max_size=n))
    if element.kind == "bool":
        data = bytes(b & 1 for b in data)
    elif element.bits < 8:  # sub-byte values in their own byte: the bits that a conversion gives
        data = numpy.frombuffer(data, numpy.int8).astype(element.numpy).tobytes()
    return Dense(element, shape, data)


class _Maker:
    """Adds random ops to a block; every value made so far in it, or in one it may look into, can become an operand."""

    def __init__(self, draw: Draw, b: Builder, values: list[Value], depth: int = 0):
        self.draw, self.b, self.values, self.depth = draw, b, list(values), depth

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def value(self, accept: Callable[[Any], bool]) -> Value | None:
        fitting = [v for v in self.values if accept(v.type)]
        return self.draw(st.sampled_from(fitting)) if fitting else None

    def like(self, v: Value) -> Value:
        return self.value(lambda t: t is v.type) or v

    def add(self) -> None:
        """One random op, where the drawn kind finds operands."""
        kinds = ["unary", "binary", "view", "cast", "choice", "constant", "composite", "product"]
        kinds += ["loop", "branch", "fused", "reduce"] if self.depth < 2 else []
        with self.b.at(self.draw(locations())):
            made = getattr(self, self.pick(*kinds))()
        if made is not None:
            self.values.append(made)

    def unary(self) -> Value | None:
        v = self.value(lambda t: t.dtype in FLOATS)
        return v and self.b.make(f"neuron.{self.pick('negate', 'exponential', 'tanh', 'abs', 'relu', 'floor')}", v)

    def binary(self) -> Value | None:
        v = self.value(lambda t: t.dtype in FLOATS + INTEGERS)
        return v and self.b.make(f"neuron.{self.pick('add', 'subtract', 'multiply', 'divide', 'maximum')}", v, self.like(v))

    def constant(self) -> Value:
        dense = self.draw(constants((*FLOATS, *INTEGERS, BOOL, C64), SHAPES))
        if self.pick(True, False):  # the numbers that simplifications look for
            dense = Dense.of(numpy.full(dense.shape, self.pick(0, 1)), dense.dtype)
        return self.b.constant(value=dense, out=TensorType(dense.shape, dense.dtype))

    def view(self) -> Value | None:
        v = self.value(lambda t: t.rank == 2)
        if v is None:
            return None
        m, n = v.shape
        kind = self.pick("transpose", "reshape", "flat", "slice", "reverse", "broadcast", "same")
        if kind == "transpose":
            return self.b.transpose(v, permutation=[1, 0])
        if kind == "slice":
            return self.b.slice(v, start_indices=[0, 0], limit_indices=[m, self.pick(n, n - 1)])
        if kind == "reverse":
            return self.b.reverse(v, dimensions=self.pick([], [0], [1, 0]))
        shape = {"reshape": (n, m), "flat": (m * n,), "broadcast": (2, m, n), "same": (m, n)}[kind]
        if kind == "broadcast":
            return self.b.broadcast_in_dim(v, broadcast_dimensions=[1, 2], out=TensorType(shape, v.dtype))
        return self.b.reshape(v, out=TensorType(shape, v.dtype))

    def cast(self) -> Value | None:
        v = self.value(lambda t: t.dtype in FLOATS + INTEGERS)
        target = self.pick(*FLOATS, *INTEGERS)
        return v and self.b.cast(v, mode=self.pick("nan", "saturate", "wrap"), out=TensorType(v.shape, target))

    def choice(self) -> Value | None:
        v = self.value(lambda t: t.dtype in FLOATS)
        return v and self.b.select(self.b.compare(v, self.like(v), direction=self.pick("LT", "EQ")), v, self.like(v))

    def composite(self) -> Value | None:
        v = self.value(lambda t: t.rank >= 1 and t.dtype is F32)
        return v and self.b.make(f"neuron.{self.pick('softmax', 'gelu', 'silu')}", v)

    def product(self) -> Value | None:
        v = self.value(lambda t: t.rank == 2 and t.dtype in (F32, BF16))
        return v and self.b.linear(v, self.like(v))

    def inner(self, b: Builder, values: list[Value], result: Any, n: int = 3) -> Value:
        """The body of a region: a few ops, then a value of the type ``result``."""
        maker = _Maker(self.draw, b, values, self.depth + 1)
        for _ in range(self.draw(st.integers(0, n))):
            maker.add()
        found = maker.value(lambda t: t is result)
        assert found is not None
        return found

    def loop(self) -> Value | None:
        v = self.value(lambda t: t.dtype in FLOATS)
        trips = self.pick(0, 1, 3)
        return v and self.b.for_(v, trip_count=trips, body=lambda b, i, c: self.inner(b, [*self.values, c], v.type))

    def branch(self) -> Value | None:
        v = self.value(lambda t: t.dtype in FLOATS)
        if v is None:
            return None
        p = self.value(lambda t: t.dtype is BOOL and not t.shape) or self.b.const(self.pick(True, False), BOOL)
        body = lambda b: self.inner(b, self.values, v.type)  # noqa: E731
        return self.b.if_(p, true_branch=body, false_branch=body)

    def fused(self) -> Value | None:
        v = self.value(lambda t: t.dtype in FLOATS)
        return v and self.b.fused(v, kind="any", body=lambda b, x: self.inner(b, [x], v.type))

    def reduce(self) -> Value | None:
        v = self.value(lambda t: t.rank == 2 and t.dtype is F32)
        return v and self.b.reduce(v, self.b.const(0.0, F32), dimensions=[self.pick(0, 1)], body=lambda b, p, q: b.add(p, q))


@st.composite
def modules(draw: Draw, most_ops: int = 12, symbolic: bool = True) -> Module:
    """A verified module of one function with random arguments, ops and results. ``symbolic``: may have an argument of size S."""
    types = [TensorType(draw(st.sampled_from(SHAPES)), draw(st.sampled_from(FLOATS))) for _ in range(draw(st.integers(1, 3)))]
    func = Func("main", types)
    for i, arg in enumerate(func.args):
        arg.name = draw(st.sampled_from(["", "x", f"arg.{i}"]))
    if symbolic and draw(st.booleans()):
        func.dims["S"] = (1, draw(st.sampled_from([None, 64])))
        func.add_arg(TensorType((symbol("S"), 3), F32, draw(st.sampled_from([Layout(), Layout(partition=0)]))), "s", kind="input")
    module = Module(draw(st.sampled_from(["main", "m.1", "a b"])))
    module.add(func)
    maker = _Maker(draw, Builder(func.body), list(func.args))
    for _ in range(draw(st.integers(0, most_ops))):
        maker.add()
    results = draw(st.lists(st.sampled_from(maker.values), min_size=1, max_size=4))
    func.set_results(results, [{"name": f"y{i}"} if i else {} for i in range(len(results))])
    module.verify()
    return module
