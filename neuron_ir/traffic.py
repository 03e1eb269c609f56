"""Bytes between HBM and the chip: what a kernel reads of each input, and what it writes.

A kernel is one op outside of regions, or one ``neuron.fused``. It reads each input and writes each output once; values inside
stay on chip. Ops that only look at a few rows of an input (a gather, a slice) read those rows alone. Sizes that are symbolic
count as :data:`TYPICAL_SIZE` within their range: estimates compare kernels, they never change a value.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from neuron_ir.core import Block, Func, Op, Value
from neuron_ir.dims import UNKNOWN, Dim, evaluate
from neuron_ir.orders import inner_relayout, is_renaming
from neuron_ir.types import TensorType

__all__ = [
    "FREE",
    "ROWS_OF_FIRST",
    "Sizes",
    "body_of",
    "input_reads",
    "kernel_traffic",
    "kernels",
    "lower_bound",
    "relayout_traffic",
    "trips",
]

TYPICAL_SIZE = 128

# Ops that move nothing: constants, sizes, and other names for the same bytes.
FREE = frozenset(
    """
    neuron.constant neuron.dim_size neuron.get_dimension_size neuron.reshape neuron.dynamic_reshape neuron.create_token
    neuron.after_all neuron.optimization_barrier neuron.yield func.return
    """.split()
)

# Ops that read no more of their first operand than they give.
ROWS_OF_FIRST = frozenset(
    """
    neuron.embedding neuron.take neuron.take_along_axis neuron.index neuron.gather neuron.dynamic_gather neuron.slice
    neuron.dynamic_slice neuron.real_dynamic_slice
    """.split()
)

# Ops that pass on what they are asked for: a reader of half the result reads half of the operand.
_PASSING = frozenset(["neuron.reshape", "neuron.transpose", "neuron.reverse"])


class Sizes:
    """Elements and bytes of types, symbolic ones with a typical size for each symbol."""

    def __init__(self, func: Func | None):
        self.symbols: dict[str, int] = {}
        for name, (low, high) in (func.dims if func is not None else {}).items():
            self.symbols[name] = max(low, TYPICAL_SIZE if high is None else min(high, TYPICAL_SIZE))
        self.known: dict[TensorType, int] = {}

    def dim(self, d: Any) -> int:
        """One dim as a number."""
        if isinstance(d, int):
            return d
        try:
            size = TYPICAL_SIZE if d is UNKNOWN or not isinstance(d, Dim) else evaluate(d, self.symbols)
        except KeyError:
            return TYPICAL_SIZE
        return max(int(size), 0) if isinstance(size, int) else TYPICAL_SIZE

    def shape(self, type: TensorType) -> tuple[int, ...]:
        """The shape in numbers."""
        return type.shape if type.is_static else tuple(map(self.dim, type.shape))  # type: ignore[return-value]

    def bytes(self, type: Any) -> int:
        """Bytes of all elements; 0 for a token."""
        found = self.known.get(type)
        if found is None:
            found = 0
            if isinstance(type, TensorType):
                n = math.prod(self.shape(type))
                found = n if type.dtype.kind == "bool" else (n * type.dtype.bits + 7) // 8
            self.known[type] = found
        return found


def input_reads(ops: Sequence[Op], inputs: Iterable[Value], outputs: Collection[Value], sizes: Sizes) -> dict[Value, int]:
    """Bytes read of each input by a kernel made of ``ops``, which are in order; an input that is also an output is read whole."""
    wanted: dict[Value, int] = {v: sizes.bytes(v.type) for v in outputs}
    for op in reversed(ops):
        given = max((wanted.get(r, 0) for r in op.results), default=0)
        for i, v in enumerate(op.operands):
            whole = sizes.bytes(v.type)
            if op.name in _PASSING:
                read = given
            elif i == 0 and op.name in ROWS_OF_FIRST:
                read = min(given, sizes.bytes(op.results[0].type))
            else:
                read = whole
            wanted[v] = min(whole, wanted.get(v, 0) + read)
    return {v: wanted.get(v, 0) for v in inputs}


def kernels(block: Block, times: int = 1, calling: tuple[str, ...] = ()) -> Iterable[tuple[Op, int]]:
    """Each kernel of a block and how often it runs, loops and calls followed; both branches of a choice count."""
    for op in block.ops:
        if op.name in FREE or op.name == "neuron.transpose" and is_renaming(op):
            continue
        if op.name == "func.call":
            yield from _called(op, times, calling)
            continue
        if "control" in op.spec.traits and op.regions:
            for region in op.regions:
                yield from kernels(region, times * trips(op), calling)
        elif "terminator" not in op.spec.traits:
            yield op, times


def _called(op: Op, times: int, calling: tuple[str, ...]) -> Iterable[tuple[Op, int]]:
    """The kernels of a function that is called; nothing for one that calls itself."""
    caller, name = op.block.func if op.block is not None else None, str(op.get("callee"))
    if caller is not None and caller.module is not None and name not in calling:
        yield from kernels(caller.module.funcs[name].body, times, (*calling, name))


def trips(op: Op) -> int:
    """How often the body of a loop runs; 1 where it is not known."""
    for name in ("trip_count", "length"):
        if name in op.spec.attrs:
            return int(op.get(name))
    return 1


def body_of(op: Op) -> tuple[list[Op], Sequence[Value], Sequence[Value]]:
    """The ops, inputs and outputs of a kernel, as the inside sees them."""
    if op.name == "neuron.fused":
        block = op.regions[0]
        ops = [inner for inner in block.ops if "terminator" not in inner.spec.traits and inner.name != "neuron.constant"]
        return ops, block.args, block.terminator.operands
    return [op], list(dict.fromkeys(op.operands)), op.results


def kernel_traffic(op: Op, sizes: Sizes) -> tuple[int, int]:
    """Bytes that a kernel reads and writes in HBM: each distinct input and output once."""
    ops, inputs, outputs = body_of(op)
    reads = input_reads(ops, inputs, outputs, sizes)
    sources = list(op.operands) if op.name == "neuron.fused" else list(inputs)
    read: dict[Value, int] = {}
    for source, inner in zip(sources, inputs, strict=True):
        if not _is_splat(source):
            root = _root(source)
            read[root] = max(read.get(root, 0), reads[inner])
    return sum(read.values()), sum(sizes.bytes(r.type) for r in op.results if r.users)


def _is_splat(value: Value) -> bool:
    """Whether the value is one repeated number, which is part of the instructions."""
    return value.dense is not None and value.dense.is_splat


def _root(value: Value) -> Value:
    """The value that a reshape is another name of."""
    while value.op is not None and value.op.name in ("neuron.reshape", "neuron.dynamic_reshape"):
        value = value.op.operands[0]
    return value


def lower_bound(func: Func, sizes: Sizes) -> int:
    """Bytes that no grouping of these kernels avoids: inputs read once, outputs written once, matmul operands streamed once each.

    An operand counts once for each kernel whose matrix products read it from HBM; what stays inside of a kernel does not count.
    An input of which only rows are gathered counts those rows.
    """
    inputs: dict[Value, int] = {}
    multiplied: set[Value] = set()
    total = 0
    for op, times in kernels(func.body):
        ops, args, outputs = body_of(op)
        sources: Mapping[Value, Value] = dict(zip(args, op.operands, strict=True)) if op.name == "neuron.fused" else {}
        reads = input_reads(ops, args, outputs, sizes)
        products = [v for inner in ops if "matmul" in inner.spec.traits for v in inner.operands]
        streamed = {root: reads[root] for v in products for root in _before_views(v) if root in reads}
        total += times * sum(streamed.values())
        for v in args:
            source = _root(sources.get(v, v))
            if v in streamed:
                multiplied.add(source)
            elif source.owner is func.body:
                inputs[source] = max(inputs.get(source, 0), reads[v])
    results = dict.fromkeys(v for v in func.body.terminator.operands if v.op is not None)
    return total + sum(n for v, n in inputs.items() if v not in multiplied) + sum(sizes.bytes(v.type) for v in results)


def relayout_traffic(block: Block, sizes: Sizes, times: int = 1) -> int:
    """Bytes read and written to change orders in memory: by relayouts, by transposes that do more than rename dims, and inside of
    convolutions that are not given their operands in the order that they want.
    """
    total = 0
    for op in block.ops:
        if op.name == "neuron.relayout" or op.name == "neuron.transpose" and not is_renaming(op):
            total += 2 * times * sizes.bytes(op.results[0].type)
        total += 2 * times * sum(sizes.bytes(v.type) for v in inner_relayout(op))
        total += sum(relayout_traffic(region, sizes, times * trips(op)) for region in op.regions)
    return total


def _before_views(value: Value) -> Iterator[Value]:
    """The values of which ``value`` is a view: before transposes, relayouts, reshapes, slices, broadcasts and concatenations."""
    op = value.op
    if op is not None and op.name == "neuron.concatenate":
        for v in op.operands:
            yield from _before_views(v)
    elif op is not None and ("view" in op.spec.traits or op.name == "neuron.relayout") and len(op.operands) == 1:
        yield from _before_views(op.operands[0])
    else:
        yield value
