"""A partition of a block's ops into groups that never depend on each other in a circle."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from neuron_ir.core import Block, Op
from neuron_ir.datasizes import BIND, symbols_of

__all__ = ["Groups"]

_MOST_VISITED = 400  # groups looked at to rule out a circle; with more between, the two are too far apart to fuse


class Groups:
    """Each op starts as a group of its own; :meth:`merge` unites two. ``at`` gives each op's place in the block.

    An op with the trait ``effect``, or that may hold one in a region, stays in order with the others of its kind; an op with a size
    of the data stays behind the op that binds it.
    """

    def __init__(self, block: Block):
        self.block = block
        self.ops = [op for op in block.ops if "terminator" not in op.spec.traits]
        self.at = {op: i for i, op in enumerate(self.ops)}
        self.parent = list(range(len(self.ops)))
        self.members: list[list[int]] = [[i] for i in range(len(self.ops))]
        self.low = list(range(len(self.ops)))
        self.high = list(range(len(self.ops)))
        self.users: list[set[int]] = [set() for _ in self.ops]
        ordered = None
        bound: dict[str, int] = {}
        for i, op in enumerate(self.ops):
            for result in op.results:
                self.users[i].update(self.at[top] for top in map(self.top, result.users) if top in self.at)
            if op.name == "func.call" or op.regions or "effect" in op.spec.traits or "collective" in op.spec.traits:
                if ordered is not None:
                    self.users[ordered].add(i)
                ordered = i
            for name in symbols_of(op) & bound.keys() if bound else ():
                self.users[bound[name]].add(i)
            if op.name == BIND:
                bound[str(op.get("size"))] = i

    def top(self, op: Op) -> Op:
        """The op of this block that is ``op`` or holds it in a region."""
        while op.block is not self.block and op.block is not None and isinstance(op.block.parent, Op):
            op = op.block.parent
        return op

    def find(self, i: int) -> int:
        """The number of the group of op number ``i``."""
        parent = self.parent
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    def of(self, op: Op) -> int:
        """The number of the group of ``op``."""
        return self.find(self.at[op])

    def next_groups(self, group: int) -> set[int]:
        """The groups that use a result of ``group``."""
        found = {self.find(i) for i in self.users[group]}
        found.discard(group)
        if len(found) < len(self.users[group]):
            self.users[group] = set(found)
        return found

    def reaches(self, start: int, end: int, *, directly: bool) -> bool:
        """Whether ``end`` depends on ``start``, directly or (``directly`` false) only by way of others; also where they are too
        far apart to tell."""
        work = [g for g in self.next_groups(start) if directly or g != end]
        seen = set(work)
        limit = self.high[end]
        while work:
            group = work.pop()
            if group == end:
                return True
            if len(seen) > _MOST_VISITED:
                return True
            for following in self.next_groups(group):
                if following not in seen and self.low[following] <= limit:
                    seen.add(following)
                    work.append(following)
        return False

    def may_merge(self, a: int, b: int) -> bool:
        """Whether no third group stands between the two."""
        return not self.reaches(a, b, directly=False) and not self.reaches(b, a, directly=False)

    def merge(self, a: int, b: int) -> int:
        """Unite two groups; gives the number of the united one."""
        if len(self.members[a]) < len(self.members[b]):
            a, b = b, a
        self.parent[b] = a
        self.members[a] += self.members[b]
        self.users[a] |= self.users[b]
        self.members[b], self.users[b] = [], set()
        self.low[a] = min(self.low[a], self.low[b])
        self.high[a] = max(self.high[a], self.high[b])
        return a

    def group_ops(self, group: int) -> list[Op]:
        """The ops of a group in the order of the block."""
        return [self.ops[i] for i in sorted(self.members[group])]

    def in_order(self) -> Iterable[int]:
        """All groups, each after those it depends on, otherwise by the place of its last op."""
        waiting = {i: 0 for i in range(len(self.ops)) if self.parent[i] == i}
        for group in waiting:
            for following in self.next_groups(group):
                waiting[following] += 1
        ready = [(self.high[g], g) for g, n in waiting.items() if not n]
        heapq.heapify(ready)
        while ready:
            _, group = heapq.heappop(ready)
            yield group
            for following in self.next_groups(group):
                waiting[following] -= 1
                if not waiting[following]:
                    heapq.heappush(ready, (self.high[following], following))
