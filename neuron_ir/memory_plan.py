"""Which bytes of HBM live when, which results can take over the memory of what dies, and which arguments a caller may give away.

Kernels run in the order of the text. A value lives from the kernel that makes it to the last that reads it; arguments live from
the start (and to the end, unless given away), results to the end. Reshapes and constants take no memory of their own.
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuron_ir.core import Block, Func, Op, Value
from neuron_ir.traffic import FREE, Sizes, body_of

__all__ = ["MemoryPlan", "memory_json", "memory_plan", "memory_table", "root_of"]


_MOST_TRIED = 64  # arguments of one type that are looked at for a result


@dataclass
class Buffer:
    """Memory that one value after another uses. ``first`` and ``last`` are kernels' numbers, -1 before all of them."""

    name: str
    size: int
    first: int
    last: int
    values: list[Value] = field(default_factory=list)
    argument: int | None = None
    offset: int = 0


@dataclass
class MemoryPlan:
    """What :func:`memory_plan` finds.

    ``peak_bytes`` is what lives at once at most, when kernel number ``peak_kernel`` runs; ``plain_peak_bytes`` the same without
    reuse; ``live_bytes`` is what lives when each kernel runs, what a loop, branch or call needs inside included. ``arena_bytes`` is
    the memory for all that is neither argument nor result when each is placed in the smallest hole that holds it. ``reuses`` pairs
    the name of a value with that of the dead value whose memory it takes; ``donations`` pairs arguments, by index, with the results
    that can be written over them.
    """

    kernels: list[Op]
    buffers: list[Buffer]
    argument_bytes: int
    peak_bytes: int
    peak_kernel: int
    plain_peak_bytes: int
    live_bytes: list[int]
    arena_bytes: int
    reuses: list[tuple[str, str]]
    donations: list[tuple[int, int]]


def memory_plan(func: Func) -> MemoryPlan:
    """The plan for a function; symbolic sizes count with a typical size."""
    sizes = Sizes(func)
    kernels = [op for op in func.body.ops if op.name not in FREE and "terminator" not in op.spec.traits]
    at = {op: i for i, op in enumerate(kernels)}
    lives = _lives(func, kernels, at)
    inner = [_inner_bytes(op, sizes, (func.name,)) for op in kernels]
    plain = max(_live(_plain_buffers(func, lives, sizes), inner))
    donations = _donations(func, lives, at)
    buffers, reuses = _buffers(func, lives, at, sizes, dict(donations))
    live = _live(buffers, inner)
    peak = max(live)
    arguments = sum(b.size for b in buffers if b.argument is not None)
    arena = _place(buffers, len(kernels))
    return MemoryPlan(kernels, buffers, arguments, peak, live.index(peak) - 1, plain, live[1:-1], arena, reuses, donations)


def root_of(value: Value) -> Value:
    """The value whose bytes ``value`` is another name of."""
    while value.op is not None and value.op.name in FREE and value.op.operands:
        value = value.op.operands[value.index] if value.op.name == "neuron.optimization_barrier" else value.op.operands[0]
    return value


def _lives(func: Func, kernels: Sequence[Op], at: dict[Op, int]) -> dict[Value, tuple[int, int]]:
    """First and last kernel of every value that has memory, in the order in which they are made."""
    first: dict[Value, int] = dict.fromkeys(func.args, -1)
    last: dict[Value, int] = dict.fromkeys(func.args, -1)
    for op in kernels:
        for inner in op.walk() if "control" in op.spec.traits else (op,):
            for v in map(root_of, inner.operands):
                if v in first:
                    last[v] = at[op]
        for r in op.results:
            first[r] = last[r] = at[op]
    for v in map(root_of, func.body.terminator.operands):
        if v in first:
            last[v] = len(kernels)
    return {v: (first[v], last[v]) for v in first}


def _name(v: Value) -> str:
    return f"%{v.name}" if v.name else f"%{v.op.name.removeprefix('neuron.') if v.op else 'arg'}_{v.index}"


def _plain_buffers(func: Func, lives: dict[Value, tuple[int, int]], sizes: Sizes) -> list[Buffer]:
    """Each value in memory of its own, arguments for the whole time."""
    end = max((last for _, last in lives.values()), default=0)
    return [
        Buffer(_name(v), sizes.bytes(v.type), first, max(last, end) if v.op is None else last) for v, (first, last) in lives.items()
    ]


def _donations(func: Func, lives: dict[Value, tuple[int, int]], at: dict[Op, int]) -> list[tuple[int, int]]:
    """Arguments and the results that may be written over them: declared updates first, then equal types, each used once."""
    results = [root_of(v) for v in func.body.terminator.operands]
    pairs: list[tuple[int, int]] = []
    declared = [(int(attrs["updates"]), j) for j, attrs in enumerate(func.result_attrs) if "updates" in attrs]
    alike = [
        (i, j) for j, v in enumerate(results) for i, a in enumerate(func.args)
        if a.type is v.type and func.arg_attrs[i].get("kind", "input") != "weight"
    ]  # fmt: skip
    for i, j in (*declared, *alike):
        taken = any(i == x or j == y for x, y in pairs)
        if not taken and results[j].op in at and _may_overwrite(results[j], func.args[i], lives):
            pairs.append((i, j))
    return sorted(pairs)


def _may_overwrite(new: Value, old: Value, lives: dict[Value, tuple[int, int]]) -> bool:
    """Whether ``new`` may be written into the memory of ``old``: dead before, or read by the kernel element by element."""
    made, last = lives[new][0], lives[old][1]
    return last < made or (last == made and _in_place(new, old))


def _in_place(new: Value, old: Value) -> bool:
    """Whether the kernel that makes ``new`` reads element i of ``old`` only before it writes element i of ``new``."""
    op = new.op
    if op is None or new.type.shape != old.type.shape or new.type.dtype.bits != old.type.dtype.bits:
        return False
    ops, inputs, outputs = body_of(op)
    if op.name == "neuron.fused":
        starts = [inputs[i] for i, v in enumerate(op.operands) if root_of(v) is old]
        goal = outputs[new.index]
    else:
        starts, goal = [v for v in inputs if root_of(v) is old], new
    touched = set(starts)
    for inner in ops:
        if not any(v in touched for v in inner.operands):
            continue
        if "elementwise" not in inner.spec.traits or inner.regions:
            return False
        touched.update(inner.results)
    return goal in touched and all(o is goal or o not in touched for o in outputs)


def _buffers(
    func: Func, lives: dict[Value, tuple[int, int]], at: dict[Op, int], sizes: Sizes, donated: dict[int, int]
) -> tuple[list[Buffer], list[tuple[str, str]]]:
    """One buffer per chain of values that take over each other's memory."""
    of: dict[Value, Buffer] = {}
    buffers: list[Buffer] = []
    reuses: list[tuple[str, str]] = []
    end = len(at)
    results = [root_of(v) for v in func.body.terminator.operands]
    over = {results[j]: func.args[i] for i, j in donated.items()}
    for v, (first, last) in lives.items():
        if v.op is None:
            index = v.index
            until = lives[v][1] if index in donated else end
            of[v] = Buffer(_name(v), sizes.bytes(v.type), -1, until, [v], index)
            buffers.append(of[v])
            continue
        old = over.get(v) or next((o for o in _dying(v, lives) if of[o].values[-1] is o and _in_place(v, o)), None)
        if old is not None and of[old].size == sizes.bytes(v.type) and of[old].last <= first:
            of[v] = of[old]
            of[v].last = last
            of[v].values.append(v)
            reuses.append((_name(v), _name(old)))
        else:
            of[v] = Buffer(_name(v), sizes.bytes(v.type), first, last, [v])
            buffers.append(of[v])
    return buffers, reuses


def _dying(v: Value, lives: dict[Value, tuple[int, int]]) -> Iterator[Value]:
    """Operands of the kernel that makes ``v`` that nothing reads later; arguments are the caller's."""
    assert v.op is not None
    for operand in map(root_of, v.op.operands):
        if operand.op is not None and operand in lives and lives[operand][1] == lives[v][0]:
            yield operand


def _live(buffers: Sequence[Buffer], inner: Sequence[int]) -> list[int]:
    """Bytes that live before all kernels, when each runs, and after them; ``inner``: what each kernel needs for itself."""
    steps = [0] * (len(inner) + 3)
    for b in buffers:
        steps[b.first + 1] += b.size
        steps[b.last + 2] -= b.size
    return [live + own for live, own in zip(itertools.accumulate(steps[:-1]), [0, *inner, 0], strict=True)]


def _inner_bytes(op: Op, sizes: Sizes, calling: tuple[str, ...]) -> int:
    """The most bytes that live at once inside of a loop, branch or called function, beside what goes in; kernels need none."""
    if op.name == "func.call":
        func, name = op.block.func if op.block is not None else None, str(op.get("callee"))
        if func is None or func.module is None or name in calling:
            return 0
        return _block_bytes(func.module.funcs[name].body, sizes, (*calling, name))
    if "control" not in op.spec.traits:
        return 0
    return max((_block_bytes(region, sizes, calling) for region in op.regions), default=0)


def _block_bytes(block: Block, sizes: Sizes, calling: tuple[str, ...]) -> int:
    """The most bytes of a block's own values that live at once; what it yields lives to its end."""
    ops = list(block.ops)
    last: dict[Value, int] = {}
    for i, op in enumerate(ops):
        for inner in op.walk() if "control" in op.spec.traits else (op,):
            last.update((root_of(v), i) for v in inner.operands)
    dies: dict[int, int] = {}
    live = most = 0
    for i, op in enumerate(ops):
        if op.name not in FREE and "terminator" not in op.spec.traits:
            live += sum(sizes.bytes(r.type) for r in op.results)
            most = max(most, live + _inner_bytes(op, sizes, calling))
            for r in op.results:
                end = last.get(r, i)
                dies[end] = dies.get(end, 0) + sizes.bytes(r.type)
        live -= dies.get(i, 0)
    return most


def _place(buffers: Sequence[Buffer], kernels: int) -> int:
    """Place each buffer between kernels in the smallest hole that holds it when its life begins; gives the size of the whole."""
    born: list[list[Buffer]] = [[] for _ in range(kernels)]
    dies: list[list[Buffer]] = [[] for _ in range(kernels)]
    for b in buffers:
        if b.argument is None and b.last < kernels:
            born[b.first].append(b)
            dies[b.last].append(b)
    holes: list[tuple[int, int]] = []  # size and offset
    end = 0
    for i in range(kernels):
        for b in born[i]:
            found = bisect.bisect_left(holes, (b.size, -1))
            if found < len(holes):
                size, b.offset = holes.pop(found)
                if size > b.size:
                    bisect.insort(holes, (size - b.size, b.offset + b.size))
            else:
                b.offset, end = end, end + b.size
        for b in dies[i]:
            bisect.insort(holes, (b.size, b.offset))
    return end


# --- printing ---------------------------------------------------------------------------------------------------------


def memory_json(func: Func) -> str:
    """One line of JSON."""
    plan = memory_plan(func)
    record: dict[str, Any] = {
        "peak_bytes": plan.peak_bytes,
        "peak_at": _kernel_name(plan),
        "peak_bytes_without_reuse": plan.plain_peak_bytes,
        "argument_bytes": plan.argument_bytes,
        "arena_bytes": plan.arena_bytes,
        "in_place": [{"value": new, "over": old} for new, old in plan.reuses],
        "donations": [{"argument": i, "result": j} for i, j in plan.donations],
        "buffers": [
            {"name": b.name, "bytes": b.size, "first": b.first, "last": b.last, "values": [_name(v) for v in b.values]}
            for b in plan.buffers
        ],
    }
    return json.dumps(record) + "\n"


def memory_table(func: Func) -> str:
    """The same for people."""
    plan = memory_plan(func)
    mib = 1024 * 1024
    lines = [
        f"@{func.name}: at most {plan.peak_bytes / mib:.2f} MiB at once, at {_kernel_name(plan)} "
        f"({plan.plain_peak_bytes / mib:.2f} MiB without reuse)",
        f"arguments {plan.argument_bytes / mib:.2f} MiB, values between kernels {plan.arena_bytes / mib:.2f} MiB",
    ]
    lines += [f"in place: {new} over {old}" for new, old in plan.reuses]
    lines += [f"argument {i} ({_name(func.args[i])}) may be given away for result {j}" for i, j in plan.donations]
    largest = sorted(plan.buffers, key=lambda b: (-b.size, b.first))[:10]
    lines += ["", "      bytes  from  to  largest buffers"]
    lines += [f"{b.size:11,}  {b.first:4}  {b.last:2}  {', '.join(map(_name, b.values))}" for b in largest]
    return "\n".join(lines) + "\n"


def _kernel_name(plan: MemoryPlan) -> str:
    """The kernel of the peak, by its first result."""
    if not 0 <= plan.peak_kernel < len(plan.kernels):
        return "the start" if plan.peak_kernel < 0 else "the end"
    op = plan.kernels[plan.peak_kernel]
    return _name(op.results[0]) if op.results else op.name
