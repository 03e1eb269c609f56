"""The smallest sum of tables over variables of few values each, by eliminating one variable after another.

Exact where the graph of variables that share a table is a tree or close to one, as programs are: the cost is the number of
variables times the number of values to the power of the graph's treewidth. Where a joint table would have more than
:data:`LARGEST` entries, the variable is set to its best value on its own first, which may miss the minimum.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

import numpy
from numpy.typing import NDArray

__all__ = ["Costs"]

LARGEST = 100_000

Table = NDArray[numpy.float64]


class Costs:
    """A sum of tables. ``sizes[v]`` is the number of values of variable ``v``."""

    def __init__(self, sizes: Sequence[int]):
        self.sizes = list(sizes)
        self.tables: dict[int, tuple[tuple[int, ...], Table]] = {}
        self.of: list[set[int]] = [set() for _ in sizes]
        self._next = 0

    def add(self, scope: Sequence[int], table: Table) -> None:
        """Add a table with one axis for each variable of ``scope``, which are different ones."""
        self.tables[self._next] = tuple(scope), table
        for v in scope:
            self.of[v].add(self._next)
        self._next += 1

    def minimise(self) -> list[int]:
        """A value for each variable such that the sum is smallest; the first of equal ones. The tables are used up."""
        chosen: list[int | None] = [None if size > 1 else 0 for size in self.sizes]
        for v, size in enumerate(self.sizes):
            if size == 1:
                self._set(v, 0)
        steps: list[tuple[int, tuple[int, ...], Table]] = []
        queue = [(self._joint_size(v), v) for v in range(len(self.sizes)) if chosen[v] is None]
        heapq.heapify(queue)
        done = {v for v, value in enumerate(chosen) if value is not None}
        while queue:
            size, v = heapq.heappop(queue)
            if v in done:
                continue
            now = self._joint_size(v)
            if now > size:  # tables have grown since
                heapq.heappush(queue, (now, v))
                continue
            done.add(v)
            if now > LARGEST:
                chosen[v] = self._best_alone(v)
                self._set(v, chosen[v] or 0)
                continue
            scope, joint = self._taken_out(v)
            steps.append((v, scope, joint.argmin(axis=0)))
            if scope:
                self.add(scope, joint.min(axis=0))
            for u in scope:
                heapq.heappush(queue, (self._joint_size(u), u))
        for v, scope, best in reversed(steps):
            chosen[v] = int(best[tuple(chosen[u] for u in scope)])
        return [value or 0 for value in chosen]

    def _scope(self, v: int) -> tuple[int, ...]:
        """The other variables of the tables that ``v`` is in."""
        return tuple(sorted({u for t in self.of[v] for u in self.tables[t][0]} - {v}))

    def _joint_size(self, v: int) -> int:
        return math.prod(self.sizes[u] for u in self._scope(v)) * self.sizes[v]

    def _taken_out(self, v: int) -> tuple[tuple[int, ...], Table]:
        """The sum of the tables of ``v``, which are taken out; ``v`` is its first axis, the variables returned are the others."""
        scope = self._scope(v)
        joint = numpy.zeros([self.sizes[u] for u in (v, *scope)])
        for scope_of_one, table in self._remove(self.of[v]):
            joint = joint + _spread(table, scope_of_one, (v, *scope))
        return scope, joint

    def _best_alone(self, v: int) -> int:
        """The value of ``v`` that costs least where every other variable of a table takes its best value for it."""
        total = numpy.zeros(self.sizes[v])
        for t in self.of[v]:
            scope, table = self.tables[t]
            total = total + table.min(axis=tuple(i for i, u in enumerate(scope) if u != v))
        return int(total.argmin())

    def _set(self, v: int, value: int) -> None:
        """Keep only one value of a variable."""
        for scope, table in self._remove(self.of[v]):
            rest = tuple(u for u in scope if u != v)
            if rest:
                self.add(rest, numpy.take(table, [value], axis=scope.index(v)).squeeze(scope.index(v)))

    def _remove(self, tables: Iterable[int]) -> list[tuple[tuple[int, ...], Table]]:
        removed = []
        for t in sorted(tables):
            scope, table = self.tables.pop(t)
            for u in scope:
                self.of[u].discard(t)
            removed.append((scope, table))
        return removed


def _spread(table: Table, scope: Sequence[int], onto: Sequence[int]) -> Table:
    """``table`` with its axes in the order of ``onto``, and an axis of size 1 for each variable that it lacks."""
    order = sorted(range(len(scope)), key=lambda i: onto.index(scope[i]))
    present = set(scope)
    moved = table.transpose(order)
    sizes = iter(moved.shape)
    return moved.reshape([next(sizes) if u in present else 1 for u in onto])
