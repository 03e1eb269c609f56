"""Memory layout: the order of dims in which each value is held, and the axis that lies on the partitions."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy

from neuron_ir.builder import create
from neuron_ir.core import Block, Func, Op, Value
from neuron_ir.elimination import Costs
from neuron_ir.orders import Link, Order, agree, default_order, follow, handed_on, inner_relayout, is_renaming, links, same
from neuron_ir.passmanager import Context, FuncPass, option
from neuron_ir.traffic import Sizes, trips
from neuron_ir.types import Layout, TensorType

__all__ = ["LayOut"]

_CONVOLUTIONS = ("neuron.conv", "neuron.convolution")
_MOST_ORDERS = 6  # candidates per value
_MOST_TOGETHER = 4  # users of one value whose needs are counted together; more are counted one by one


@dataclass(frozen=True)
class LayOut(FuncPass):
    """Choose for each value the order of its dims in memory, and the axis that lies on the 128 partitions.

    The orders cost least in bytes moved: where an op needs another order than its operand has, a ``neuron.relayout`` is put, one
    for all users. Convolutions want channels last and a kernel of window x inputs x outputs, matrix products a summed or free dim
    that is fastest; elementwise ops, reductions, reshapes and transposes follow their operands, so that a transpose often becomes
    another name for what lies there. Loops carry values in the order that is cheapest over all trips. Arguments and results of
    the function keep their types, but for weights, which are stored once in the order that their users want; a program then has
    its own copy of them. A convolution may sum in another order, hence a tolerance of 1e-5 of the largest value (f32).

    The partition axis of a convolution's result is its channels, that of any other value its last axis but one; elementwise ops
    and transposes follow their operand.
    """

    exact: ClassVar[bool] = False
    rtol: ClassVar[float] = 1e-5

    order: bool = option(True, "choose the order of dims in memory")
    channels_last: bool = option(True, "run convolutions with channels last")
    weights: bool = option(True, "store weights in the order that their users want")
    partition: bool = option(True, "choose partition axes")

    def run_func(self, func: Func, ctx: Context) -> None:
        if self.order:
            plan = _Plan(func, self)
            plan.choose()
            plan.apply(ctx)
        if self.partition:
            _choose_partitions(func.body, ctx)


@dataclass
class _Variable:
    """An order to choose: that of one value, or of all values that a loop carries from trip to trip."""

    type: TensorType
    free: bool  # or the default order alone
    values: list[Value]
    orders: list[Order]
    chosen: Order = ()


@dataclass
class _Use:
    """One operand of one op: what it wants depends on the order of another variable, or is the default."""

    op: Op
    index: int
    variable: int
    link: Link | None
    result: int | None


class _Plan:
    """The orders of a function's values: variables, what ops want of them, and what a difference costs."""

    def __init__(self, func: Func, options: LayOut):
        self.func, self.options = func, options
        self.sizes = Sizes(func)
        self.variables: list[_Variable] = []
        self.of: dict[Value, int] = {}
        self.uses: list[_Use] = []
        self.times: dict[Value, int] = {}  # how often a relayout of it would run
        self.extra: list[tuple[int, Order, float]] = []  # what a variable costs in one order by itself
        updated = {attrs.get("updates") for attrs in func.result_attrs}
        for i, (arg, attrs) in enumerate(zip(func.args, func.arg_attrs, strict=True)):
            self._value(arg, options.weights and attrs.get("kind") == "weight" and i not in updated, 1)
        self._block(func.body, 1)

    # --- what there is -----------------------------------------------------------------------------------------------

    def _value(self, value: Value, free: bool, times: int) -> None:
        """A variable for a value of two dims or more; only a free one may take another order than the default."""
        if isinstance(value.type, TensorType) and value.type.rank > 1 and value not in self.of:
            self.of[value] = len(self.variables)
            self.times[value] = times
            self.variables.append(_Variable(value.type, free, [value], [default_order(value.type)]))

    def _block(self, block: Block, times: int) -> None:
        for op in block.ops:
            rule, handed = self._links(op), handed_on(op)
            given = {target for _, _, target in handed.uses}
            for i, result in enumerate(op.results):
                follows = i == 0 and any(link is not None for link in rule)
                self._value(result, follows or result in given or (result.dense is not None and result.dense.is_splat), times)
            for first, *others in handed.slots:
                for v in others if first in self.of else ():
                    self.of[v], self.times[v] = self.of[first], times * trips(op)
                    self.variables[self.of[first]].values.append(v)
            for region in op.regions:
                for arg in region.args:
                    self._value(arg, arg in given, times * trips(op))
                self._block(region, times * trips(op))
            for user, i, target in handed.uses:
                self._use(user, i, same(user.operands[i].type.rank) if target in self.of else None, self.of.get(target))
            self._uses_by_rule(op, rule, {(user, i) for user, i, _ in handed.uses})
            inside = sum(self.sizes.bytes(v.type) for v in inner_relayout(op)) if any(rule) else 0
            if inside:
                self.extra.append((self.of[op.results[0]], default_order(op.results[0].type), 2.0 * inside * times))

    def _uses_by_rule(self, op: Op, rule: Sequence[Link | None], handed: set[tuple[Op, int]]) -> None:
        """What an op wants of the operands that it does not hand on, and of what its regions yield."""
        for i in range(len(op.operands)) if op.name != "neuron.yield" else ():
            if (op, i) not in handed:
                self._use(op, i, rule[i], self.of.get(op.results[0]) if op.results else None)
        for last in (region.terminator for region in op.regions):
            for i in range(len(last.operands)):
                if (last, i) not in handed:
                    self._use(last, i, None, None)

    def _links(self, op: Op) -> list[Link | None]:
        if op.name in _CONVOLUTIONS and not self.options.channels_last:
            return [None] * len(op.operands)
        return links(op)

    def _use(self, op: Op, index: int, link: Link | None, result: int | None) -> None:
        variable = self.of.get(op.operands[index])
        if variable is not None:
            self.uses.append(_Use(op, index, variable, link if result is not None else None, result if link is not None else None))

    # --- which orders come into question -----------------------------------------------------------------------------

    def _propose(self) -> bool:
        """Spread the orders that some op wants or makes for free along what follows it; whether there are any but the default."""
        by_variable: list[list[_Use]] = [[] for _ in self.variables]
        waiting: list[tuple[int, Order]] = []
        for use in self.uses:
            if use.link is None or use.result is None:
                continue
            by_variable[use.variable].append(use)
            by_variable[use.result].append(use)
            if use.link.exact is not None or use.op.name in ("neuron.transpose", "neuron.broadcast_in_dim"):
                waiting.append((use.result, follow(use.link, self.variables[use.variable].orders[0], True, self._type(use.result))))
                waiting.append(
                    (use.variable, follow(use.link, self.variables[use.result].orders[0], False, self._type(use.variable)))
                )
        for at in itertools.count():
            if at == len(waiting):
                break
            v, order = waiting[at]
            variable = self.variables[v]
            if order in variable.orders or not variable.free or len(variable.orders) == _MOST_ORDERS:
                continue
            variable.orders.append(order)
            for use in by_variable[v]:
                assert use.link is not None and use.result is not None
                if v == use.variable and (use.link.groups or use.link.exact):
                    waiting.append((use.result, follow(use.link, order, True, self._type(use.result))))
                if v == use.result and (use.link.groups or use.link.exact):
                    waiting.append((use.variable, follow(use.link, order, False, self._type(use.variable))))
        return any(len(v.orders) > 1 for v in self.variables)

    def _type(self, variable: int) -> TensorType:
        return self.variables[variable].type

    # --- the cheapest -----------------------------------------------------------------------------------------------

    def choose(self) -> None:
        """Set ``chosen`` of each variable."""
        if self._propose():
            costs = Costs([len(v.orders) for v in self.variables])
            by_variable: list[list[_Use]] = [[] for _ in self.variables]
            for use in self.uses:
                by_variable[use.variable].append(use)
            for v, uses in enumerate(by_variable):
                for together in _split(uses):
                    self._add(costs, v, together)
            for v, order, cost in self.extra:
                costs.add([v], numpy.array([cost if o == order else 0.0 for o in self.variables[v].orders]))
            for variable, i in zip(self.variables, costs.minimise(), strict=True):
                variable.chosen = variable.orders[i]
        else:
            for variable in self.variables:
                variable.chosen = variable.orders[0]

    def _add(self, costs: Costs, v: int, uses: Sequence[_Use]) -> None:
        """What it costs to hold ``v`` in each of its orders, for each order that its users may have."""
        scope = list(dict.fromkeys([v, *(u.result for u in uses if u.result is not None)]))
        if all(len(self.variables[s].orders) == 1 for s in scope):
            return
        table = numpy.zeros([len(self.variables[s].orders) for s in scope])
        for at in itertools.product(*(range(n) for n in table.shape)):
            table[at] = self.moved(v, uses, {s: self.variables[s].orders[i] for s, i in zip(scope, at, strict=True)})
        costs.add(scope, table)

    def moved(self, v: int, uses: Sequence[_Use], orders: dict[int, Order]) -> float:
        """Bytes read and written to bring ``v`` into the orders that its users want; infinite where one cannot give its result in
        the order that it has.
        """
        wanted = {(use.op.operands[use.index], self.wants(use, orders)) for use in uses}
        if any(order is None for _, order in wanted):
            return math.inf
        return sum(2.0 * self.sizes.bytes(value.type) * self.times[value] for value, order in wanted if order != orders[v])

    def wants(self, use: _Use, orders: dict[int, Order]) -> Order | None:
        """The order in which an op takes its operand, as it is where it can; ``None`` where no order gives the op's result."""
        held, type = orders[use.variable], self.variables[use.variable].type
        if use.link is None or use.result is None:
            return default_order(type)
        result, to = orders[use.result], self.variables[use.result].type
        candidates = (held, follow(use.link, result, False, type), default_order(type))
        return next((order for order in candidates if agree(use.link, order, type, result, to)), None)

    # --- the program in these orders ---------------------------------------------------------------------------------

    def apply(self, ctx: Context) -> None:
        """Give values their layouts and put a relayout wherever an op wants another order than the value has."""
        orders = {v: variable.chosen for v, variable in enumerate(self.variables)}
        made: dict[tuple[Value, Order], Value] = {}
        moves = [(use, self.wants(use, orders) or orders[use.variable]) for use in self.uses]
        for variable in self.variables:
            for value in variable.values:
                value.type = _held(value.type, variable.chosen)
        shared = Counter((use.op.operands[use.index], order) for use, order in moves if order != orders[use.variable])
        for use, order in moves:
            value = use.op.operands[use.index]
            if order == orders[use.variable] or use.op.name == "neuron.transpose" and shared[value, order] == 1:
                continue  # a transpose that only one needs moves the bytes itself
            if (value, order) not in made:
                made[value, order] = _relayout(value, order)
                ctx.count("relayouts put")
            use.op.set_operand(use.index, made[value, order])
        ctx.count("values held in another order", sum(len(v.values) for v in self.variables if v.chosen != default_order(v.type)))
        ctx.count("transposes that move nothing", sum(op.name == "neuron.transpose" and is_renaming(op) for op in self.func.walk()))


def _held(type: Any, order: Order) -> TensorType:
    layout = type.layout
    return type.with_layout(Layout(order, layout.partition, layout.tile))  # type: ignore[no-any-return]


def _relayout(value: Value, order: Order) -> Value:
    """A relayout right behind the value."""
    home = value.owner if isinstance(value.owner, Block) else value.owner.block
    assert home is not None
    after = home.first if isinstance(value.owner, Block) else value.owner.next
    op = create("neuron.relayout", [value], _held(value.type, order), {}, value.loc)
    home.insert_before(op, after)
    return op.result


def _split(uses: list[_Use]) -> Iterator[list[_Use]]:
    """Uses whose needs are counted together."""
    if len({u.result for u in uses}) <= _MOST_TOGETHER:
        yield uses
        return
    for use in uses:
        yield [use]


# --- partition axis ---------------------------------------------------------------------------------------------------


def _choose_partitions(block: Block, ctx: Context) -> None:
    """Give each value of a block its partition axis; arguments of regions take over what goes into them."""
    for op in block.ops:
        for declared, region in zip(op.spec.regions, op.regions, strict=False):
            for arg, type in zip(region.args, declared.args(op) if declared.args else (), strict=False):
                arg.type = type
            _choose_partitions(region, ctx)
        for i, result in enumerate(op.results):
            type = result.type
            if not isinstance(type, TensorType) or not type.rank or type.layout.partition >= 0:
                continue
            inside = op.regions[0].terminator.operands[i].type if op.name == "neuron.fused" else None
            axis = _partition(op, type) if inside is None else inside.layout.partition
            result.type = type.with_layout(Layout(type.layout.order, axis, type.layout.tile))
            ctx.count("partition axes chosen")


def _partition(op: Op, type: TensorType) -> int:
    if op.name in _CONVOLUTIONS:
        return str(op.get("output_dims")).index("f") if op.name == "neuron.convolution" and op.get("output_dims") else 1
    if op.name == "neuron.transpose" and op.operands[0].type.layout.partition >= 0:
        return int(op.get("permutation").index(op.operands[0].type.layout.partition))
    if "elementwise" in op.spec.traits:
        for v in op.operands:
            if v.type.shape == type.shape and v.type.layout.partition >= 0:
                axis: int = v.type.layout.partition
                return axis
    return max(type.rank - 2, 0)
