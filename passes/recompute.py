"""Recomputation: values that wait in memory for a late reader are computed again instead, until a budget holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neuron_ir.builder import create
from neuron_ir.core import Func, Op, Value, clone_op
from neuron_ir.diagnostics import fail
from neuron_ir.memory_plan import MemoryPlan, memory_plan, root_of
from neuron_ir.passmanager import Context, FuncPass, option
from neuron_ir.traffic import FREE, Sizes, body_of

__all__ = ["Recompute"]

# Work that costs more than the memory that it would free.
_DEAR = frozenset(
    f"neuron.{n}"
    for n in """
    argsort sort sort_by_key top_k cholesky eig eigh fft householder_product lu qr schur svd triangular_solve custom_call map
    """.split()
)
_NEVER = frozenset(["effect", "collective", "control", "terminator", "random", "matmul"])


@dataclass(frozen=True)
class Recompute(FuncPass):
    """Compute values a second time, right before their late readers, until the memory plan's peak is within a budget.

    The largest value that is only waiting when memory peaks goes first: its kernel, and those before it as far as their operands
    are gone by then, are repeated behind an `optimization_barrier` that waits for another operand of the late reader, so that no
    simplification joins the two. Matrix products, sorts, loops, random numbers and effects are not repeated. Run it after `fuse`:
    kernels are what memory is planned for. What cannot be brought within the budget is said by `--pass-statistics`, and seen with
    `--memory-report`.
    """

    budget: int = option(0, "bytes of HBM that may be in use at once, arguments and results included; has to be given")
    most_kernels: int = option(8, "repeat at most so many kernels for one value")

    def __post_init__(self) -> None:
        for name, value in (("budget", self.budget), ("most-kernels", self.most_kernels)):
            if value < 0:
                raise fail("pass", f"pass {self.name}: {name} = {value} is negative")

    def run_func(self, func: Func, ctx: Context) -> None:
        if not self.budget:
            ctx.decline("no budget is given")
            return
        plan = memory_plan(func)
        for _ in range(len(plan.kernels)):
            if plan.peak_bytes <= self.budget or not self.repeat_one(func, plan, ctx):
                break
            plan = memory_plan(func)
        if plan.peak_bytes > self.budget:
            ctx.decline(f"@{func.name} needs {plan.peak_bytes:,} bytes at once, the budget is {self.budget:,}")

    def repeat_one(self, func: Func, plan: MemoryPlan, ctx: Context) -> bool:
        """Free the largest value that waits while memory peaks; whether there was one."""
        at, sizes = {op: i for i, op in enumerate(plan.kernels)}, Sizes(func)
        last = {root_of(v): i for op, i in at.items() for v in op.operands}
        for value in _waiting(func, plan, last, sizes):
            late = [op for op in plan.kernels[plan.peak_kernel + 1 :] if any(root_of(v) is value for v in op.operands)]
            chain = self.chain(value, at[late[0]], last, at)
            if chain is None:
                continue
            inner = sum(sizes.bytes(r.type) for op in chain for r in op.results if r is not value)
            if plan.live_bytes[at[late[0]]] + inner > plan.peak_bytes:
                continue  # what is made on the way would be a peak of its own
            _repeat(value, chain, late)
            ctx.count("values computed again")
            ctx.count("kernels repeated", len(chain))
            return True
        return False

    def chain(self, value: Value, late: int, last: dict[Value, int], at: dict[Op, int]) -> list[Op] | None:
        """The kernels to repeat before number ``late``, in order, from what is in memory then; ``None`` where that is not allowed.

        ``last`` gives the last kernel that reads a value.
        """
        found: dict[Op, None] = {}
        work = [value]
        while work:
            op = work.pop().op
            assert op is not None
            if op in found:
                continue
            if not self.may_repeat(op) or len(found) == self.most_kernels:
                return None
            found[op] = None
            for v in map(root_of, op.operands):
                if v.op in at and last[v] < late:
                    work.append(v)
        return sorted(found, key=at.__getitem__)

    def may_repeat(self, op: Op) -> bool:
        """Whether a kernel is cheap, and gives the same bits when it runs again."""
        for inner in body_of(op)[0]:
            traits = inner.spec.traits
            if traits & _NEVER or inner.name in _DEAR or inner.name == "func.call":
                return False
        return True


def _waiting(func: Func, plan: MemoryPlan, last: dict[Value, int], sizes: Sizes) -> list[Value]:
    """Values in memory at the peak that no kernel makes or reads then, and only kernels read later; the largest first."""
    here = plan.kernels[plan.peak_kernel : plan.peak_kernel + 1] if plan.peak_kernel >= 0 else []
    before = {r for op in plan.kernels[: max(plan.peak_kernel, 0)] for r in op.results}
    nested = [inner for op in plan.kernels if "control" in op.spec.traits for inner in op.walk()]
    readers = [func.body.terminator, *here, *nested]
    busy = {root_of(v) for op in readers for v in op.operands}
    found = [v for v in before if last.get(v, -1) > plan.peak_kernel and v not in busy and not _behind_barrier(v)]
    return sorted(found, key=lambda v: (-sizes.bytes(v.type), last[v]))


def _behind_barrier(value: Value) -> bool:
    """Whether a barrier passes the value on."""
    work = [value]
    while work:
        for user in work.pop().users:
            if user.name == "neuron.optimization_barrier":
                return True
            if user.name in FREE:
                work += user.results
    return False


def _repeat(value: Value, chain: Sequence[Op], late: Sequence[Op]) -> None:
    """Put copies of ``chain`` before the first of ``late``, and let all of ``late`` read the value that they make."""
    first = late[0]
    home = first.block
    assert home is not None
    made = {r for op in chain for r in op.results}
    inputs = list(dict.fromkeys(v for op in chain for v in op.operands if root_of(v) not in made and v.dense is None))
    waits = [v for v in first.operands if root_of(v) is not value and v not in inputs and v.op is not None][:1]
    mapping: dict[Value, Value] = {}
    if inputs:
        barrier = create("neuron.optimization_barrier", [*inputs, *waits], None, {}, first.loc)
        home.insert_before(barrier, first)
        mapping.update(zip(inputs, barrier.results, strict=False))

    def again(v: Value) -> Value:
        """The repeated form of a value, with copies of the views that lead to it."""
        if v in mapping or v.op is None or root_of(v) not in made:
            return mapping.get(v, v)
        mapping.update({u: again(u) for u in v.op.operands})
        copy = clone_op(v.op, mapping)
        home.insert_before(copy, first)
        mapping.update(zip(v.op.results, copy.results, strict=True))
        return mapping[v]

    again(value)
    for op in late:
        for i, v in enumerate(list(op.operands)):
            if root_of(v) is value:
                op.set_operand(i, again(v))
                _erase_views(v)


def _erase_views(value: Value) -> None:
    """Erase the views behind ``value`` that nobody looks through any more."""
    while value.op is not None and value.op.name in FREE and not value.users:
        op = value.op
        value = op.operands[0]
        op.erase()
