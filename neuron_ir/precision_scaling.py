"""Matrix products on 8-bit floats: which scales can be taken out of a product, and the ops that make, store and apply them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from neuron_ir.builder import Builder, create
from neuron_ir.core import Block, Func, Module, Op, Value, clone_op
from neuron_ir.diagnostics import fail, nearest
from neuron_ir.dtypes import BF16, F32, F64, U64, DType
from neuron_ir.passmanager import Context
from neuron_ir.precision_policy import Decision, PrecisionPolicy, gradients
from neuron_ir.printer import value_names
from neuron_ir.types import TensorType

__all__ = ["AMAX", "Scaling", "Side", "sides"]

AMAX = "amax"  # the function attribute that a calibration leaves: [[name of a value, its largest finite magnitude], ...]
_MOVES = ("neuron.transpose", "neuron.reshape", "neuron.cast", "neuron.reverse")


class Side(NamedTuple):
    """One operand of a product: the dims that are summed over, and the result's dim for each of the others, in order.

    One scale for each index of the others can be taken out of the sum.
    """

    value: Value
    summed: tuple[int, ...]
    results: tuple[int, ...]


def sides(op: Any) -> tuple[Side, Side]:
    """Both operands of a ``linear``, ``matmul``, ``dot_general``, ``conv`` or ``convolution``."""
    left, right = op.operands[:2]
    rank = op.results[0].type.rank
    if op.name == "neuron.linear":
        return _side(left, [left.type.rank - 1], range(rank - 1)), _side(right, [1], [rank - 1])
    if op.name == "neuron.matmul":
        return _sides_of_matmul(op, left, right, rank)
    if op.name == "neuron.dot_general":
        return _sides_of_dot(op, left, right)
    if op.name == "neuron.conv":
        channel = 1 if op.transposed else 0  # of a transposed convolution in groups, one channel stands for several
        whole = op.transposed and op.groups != 1
        return _all_but(left, 0, 0), _all_but(right, None if whole else channel, 1)
    from neuron_ir.dialects.neuron.linalg import places

    spelt = {n: places(op.get(n), "oi" if n == "kernel_dims" else "bf", rank, ValueError) for n in _SPELLINGS}
    batch = spelt["input_dims"][0] if op.batch_group_count == 1 else None
    return (
        _all_but(left, batch, spelt["output_dims"][0]),
        _all_but(right, spelt["kernel_dims"][0], spelt["output_dims"][1]),
    )


_SPELLINGS = ("input_dims", "kernel_dims", "output_dims")


def _side(value: Value, summed: Sequence[int], results: Sequence[int]) -> Side:
    return Side(value, tuple(summed), tuple(results))


def _all_but(value: Value, kept: int | None, result: int) -> Side:
    return _side(value, [i for i in range(value.type.rank) if i != kept], [] if kept is None else [result])


def _sides_of_matmul(op: Any, a: Value, b: Value, rank: int) -> tuple[Side, Side]:
    ra, rb = a.type.rank, b.type.rank
    batch = rank - (ra > 1) - (rb > 1)
    of_a = [*range(batch - (ra - 2), batch), batch] if ra > 1 else []
    of_b = [*range(batch - (rb - 2), batch), rank - 1] if rb > 1 else []
    inner_a = ra - 2 if op.transpose_a else ra - 1
    inner_b = max(rb - 2, 0) if not op.transpose_b else rb - 1
    return _side(a, [inner_a], of_a), _side(b, [inner_b], of_b)


def _sides_of_dot(op: Any, lhs: Value, rhs: Value) -> tuple[Side, Side]:
    made = []
    at = len(op.lhs_batch)
    for value, batch, summed in ((lhs, op.lhs_batch, op.lhs_contract), (rhs, op.rhs_batch, op.rhs_contract)):
        results = []
        for i in range(value.type.rank):
            if i in batch:
                results.append(batch.index(i))
            elif i not in summed:
                results.append(at)
                at += 1
        made.append(_side(value, summed, results))
    return made[0], made[1]


class Scaled(NamedTuple):
    """An operand in 8 bits: its elements, and the scale with the result's dims that it runs over (``None``: it has none)."""

    elements: Value
    scale: Value | None
    results: tuple[int, ...]


class Scaling:
    """Rewrites the products of one function onto 8-bit floats by a policy."""

    def __init__(self, policy: PrecisionPolicy, module: Module, func: Func, ctx: Context):
        self.policy, self.module, self.func, self.ctx = policy, module, func, ctx
        self.element, self.gradient_element = policy.on(module)
        self.gradients = gradients(func) if policy.is_8bit else set()
        self.updated = {a["updates"] for a in func.result_attrs if "updates" in a}
        self.made: dict[Any, Scaled] = {}
        self.replaced: set[Value] = set()
        self.state: Value | None = None
        self.states: list[tuple[int, Value]] = []  # arguments with the values that they have after the run
        self.names = value_names(func) if policy.scaling == "static" else {}
        self.amax = dict(func.attrs.get(AMAX, ()))

    # --- products ---

    def lower(self, op: Op, decision: Decision) -> None:
        """Replace a product by one of 8-bit operands whose sums, in f32, are multiplied by the scales."""
        block = op.block
        assert isinstance(block, Block)
        b = Builder(block, op.loc, op)
        spec, out = op.spec, op.results[0].type
        wide = out.dtype if out.dtype is F64 else F32
        both = sides(op)
        if decision.how == "blocks":
            operands: list[Value | None] = [self.blocks(b, side) for side in both]
            scaled = []
        else:
            scaled = [self.scaled(b, side) for side in both]
            operands = [s.elements for s in scaled]
        fields: dict[str, Any] = op.own_attrs
        if "dtype" in spec.attrs:
            fields["dtype"] = wide
        new = b.insert(create(op.name, operands, [out.with_dtype(wide)], fields, op.loc))
        y = new.result
        for s in scaled:
            if s.scale is not None:
                y = b.multiply(y, _spread(b, _cast(b, s.scale, wide), s.results, y.type))
        bias = op.operand_groups[2] if len(spec.operands) > 2 else None
        if bias is not None:
            y = b.add(y, _spread(b, _cast(b, bias, wide), (1 if op.name == "neuron.conv" else out.rank - 1,), y.type))
        self.replace(op, [_cast(b, y, out.dtype)])

    def replace(self, op: Op, values: Sequence[Value]) -> None:
        """Put ``values`` in the place of an op's results: they have the same names, and are gradients where those were."""
        for old, new in zip(op.results, values, strict=True):
            if old in self.gradients:
                self.gradients.add(new)
            if old in self.names:
                self.names[new] = self.names[old]
        op.replace_with(values)

    # --- operands ---

    def scaled(self, b: Builder, side: Side) -> Scaled:
        """An operand in 8 bits with its scale; made once for each block that uses it."""
        if side.value.dtype.bits <= 8:
            return Scaled(side.value, None, ())
        weight = self.weight_below(side.value)
        whole = self.policy.granularity == "tensor" or (self.policy.scaling != "dynamic" and weight is None)
        summed = tuple(range(side.value.type.rank)) if whole else side.summed
        key = (side.value, summed, b.block, weight is None)
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = self.scaled_new(b, side.value, summed, weight)
        return found._replace(results=() if whole else side.results)

    def scaled_new(self, b: Builder, x: Value, summed: tuple[int, ...], weight: Value | None) -> Scaled:
        element = self.gradient_element if x in self.gradients else self.element

        def from_values(b: Builder, x: Value) -> tuple[Value, Value]:
            scale = self.scale(b, b.amax(x, axes=summed), element)
            return b.scaled_cast(x, scale, element=element, axes=summed), scale

        if weight is not None:
            if self.policy.weights == "ahead":
                elements, scale = self.stored(x, weight, from_values, (f"{element}", f"{element}.scale"))
                return Scaled(elements, scale, ())
            return Scaled(*from_values(b, x), ())
        scale = self.scale(b, self.largest(b, x, summed), element)
        if self.rounds_at_random(b, x):
            quotient = b.divide(_cast(b, x, scale.dtype), _spread(b, scale, _others(x, summed), x.type.with_dtype(scale.dtype)))
            return Scaled(self.rounded(b, quotient, element), scale, ())
        return Scaled(b.scaled_cast(x, scale, element=element, axes=summed), scale, ())

    def scale(self, b: Builder, amax: Value, element: DType) -> Value:
        scale: Value = b.scale_for(amax, element=element, margin=self.policy.margin)
        return scale

    def largest(self, b: Builder, x: Value, summed: tuple[int, ...]) -> Value:
        """The largest magnitude that counts for the scale of ``x``."""
        if self.policy.scaling == "static":
            name = self.names.get(x, "")
            if name not in self.amax:
                hint = nearest(name, self.amax) if self.amax else "; run neuron_ir.calibrate on the module first"
                raise fail("precision", f"scaling = static, but no largest value of %{name} is known{hint}", x.loc)
            return b.const(self.amax[name], F64 if x.dtype is F64 else F32)
        amax: Value = b.amax(x, axes=summed)
        if self.policy.scaling == "delayed" and self.is_outermost(b, "delayed scaling"):
            return self.delayed(b, amax)
        return amax

    def is_outermost(self, b: Builder, what: str) -> bool:
        """Whether ops at the builder's place run once per run of the program, so that they can update its state."""
        if b.block is self.module.main.body:
            return True
        self.ctx.decline(f"{what} inside of a region or function, which has no state of its own")
        return False

    def rounds_at_random(self, b: Builder, x: Value) -> bool:
        """Whether ``x`` is to be rounded at random, and can be."""
        if self.policy.rounding != "stochastic":
            return False
        if not x.type.is_static:
            self.ctx.decline("stochastic rounding of a symbolic shape")
            return False
        return self.is_outermost(b, "stochastic rounding")

    def blocks(self, b: Builder, side: Side) -> Value:
        """An operand as 8-bit blocks of 32 along the last dim that is summed over, and what they mean in bf16, exactly."""
        x, axis = side.value, side.summed[-1]
        key = (x, axis, b.block)
        found = self.made.get(key)
        if found is None:
            element = self.gradient_element if x in self.gradients else self.element

            def from_values(b: Builder, x: Value) -> tuple[Value, Value]:
                made: tuple[Value, Value] = b.quantize_mx(x, element=element, axis=axis)
                return made

            weight = self.weight_below(x) if self.policy.weights == "ahead" else None
            elements, scales = (
                from_values(b, x)
                if weight is None
                else self.stored(x, weight, from_values, (f"mx.{element}", f"mx.{element}.scales"))
            )
            found = self.made[key] = Scaled(b.dequantize_mx(elements, scales, element=BF16, axis=axis), None, ())
        return found.elements

    # --- weights, made ahead ---

    def weight_below(self, value: Value) -> Value | None:
        """The bound argument that ``value`` is, or merely moves."""
        while value.op is not None and value.op.name in _MOVES:
            value = value.op.operands[0]
        if value.owner is not self.func.body:
            return None
        attrs = self.func.arg_attrs[value.index]
        fixed = attrs.get("kind") == "weight" and value.index not in self.updated
        return value if fixed and attrs.get("weight") in self.module.weights else None

    def stored(
        self, value: Value, weight: Value, make: Callable[[Builder, Value], tuple[Value, Value]], suffixes: Sequence[str]
    ) -> tuple[Value, Value]:
        """What ``make`` computes of ``value`` as new bound arguments, computed now as the program would."""
        arrays, types = _computed(self.module, self.func, value, weight, make)
        base = str(self.func.arg_attrs[weight.index]["weight"])
        values = []
        for array, type, suffix in zip(arrays, types, suffixes, strict=True):
            key, n = f"{base}.{suffix}", 0
            while key in self.module.weights:
                n += 1
                key = f"{base}.{suffix}.{n}"
            self.module.weights[key] = array
            values.append(self.func.add_arg(type, key.replace(".", "_"), kind="weight", weight=key))
        self.replaced.add(value)
        return values[0], values[1]

    # --- state ---

    def delayed(self, b: Builder, amax: Value) -> Value:
        """The largest value of the runs before; in the first run the present one. ``amax`` is put at the front of the history."""
        import numpy

        n, element = self.policy.history, amax.dtype
        history = self.add_state("history", numpy.zeros(n, element.numpy), TensorType((n,), element))
        first = b.reshape(amax, out=TensorType((1,), element))
        kept = b.slice(history, start_indices=(0,), limit_indices=(n - 1,), strides=(1,))
        self.states.append((history.index, b.concatenate(first, kept, dimension=0)))
        before = b.reduce_max(history, axes=(0,))
        return b.select(b.compare(before, b.const(0.0, element), direction="EQ"), amax, before)  # type: ignore[no-any-return]

    def rounded(self, b: Builder, x: Value, element: DType) -> Value:
        """``x`` rounded at random; the state is the program's own and goes on from op to op and run to run."""
        import numpy

        if self.state is None:
            self.state = self.add_state("rng", numpy.array([self.policy.seed % 2**64, 0], numpy.uint64), TensorType((2,), U64))
            self.states.append((self.state.index, self.state))
            self.rng_place = len(self.states) - 1
        y, self.state = b.round_stochastic(x, self.state, element=element)
        self.states[self.rng_place] = (self.states[self.rng_place][0], self.state)
        return y  # type: ignore[no-any-return]

    def add_state(self, name: str, initial: Any, type: TensorType) -> Value:
        """A new buffer of the program."""
        n = len(self.states)
        key = f"precision.{name}" if name == "rng" else f"precision.{name}.{n}"
        while key in self.module.weights:
            key += "_"
        self.module.weights[key] = initial
        return self.func.add_arg(type, key.replace(".", "_"), kind="buffer", weight=key, name=key)

    # --- the end ---

    def finish(self) -> None:
        """Give new states back, and drop weights that only their 8-bit forms replaced."""
        func = self.func
        if self.states:
            terminator = func.body.terminator
            terminator.set_operands([*terminator.operands, *(v for _, v in self.states)])
            for index, value in self.states:
                func.result_types.append(value.type)
                func.result_attrs.append({"updates": index})
        unused: list[int] = []
        for value in self.replaced:
            while not value.users and value.op is not None:
                op = value.op
                value = op.operands[0]
                op.erase()
            if not value.users and value.owner is func.body:
                unused.append(value.index)
        _drop_args(func, set(unused))


def _drop_args(func: Func, unused: set[int]) -> None:
    """Remove arguments without users; the attributes that count arguments follow."""
    if not unused:
        return
    kept = [i for i in range(len(func.args)) if i not in unused]
    place = {old: new for new, old in enumerate(kept)}
    func.arg_attrs = [func.arg_attrs[i] for i in kept]
    func.body.remove_args(unused)
    for attrs in func.result_attrs:
        if "updates" in attrs:
            attrs["updates"] = place[attrs["updates"]]


def _computed(
    module: Module, func: Func, value: Value, weight: Value, make: Callable[[Builder, Value], tuple[Value, Value]]
) -> tuple[list[Any], list[TensorType]]:
    """The values of ``make(value)``, where ``value`` follows from the bound argument ``weight`` alone."""
    import numpy

    from neuron_ir.meaning import Meaning, run, x64
    from neuron_ir.weights import to_numpy

    chain = []
    at = value
    while at is not weight:
        assert at.op is not None
        chain.append(at.op)
        at = at.op.operands[0]
    small = Func("weight", [weight.type])
    mapping = {weight: small.args[0]}
    for op in reversed(chain):
        small.body.append(clone_op(op, mapping))
    results = make(Builder(small.body, value.loc), mapping[value])
    small.set_results(results)
    with x64():
        array = to_numpy(module.weights[str(func.arg_attrs[weight.index]["weight"])])
        return [numpy.asarray(r) for r in run(small, [array], Meaning())], [r.type for r in results]


def _others(x: Value, summed: Sequence[int]) -> tuple[int, ...]:
    return tuple(i for i in range(x.type.rank) if i not in summed)


def _spread(b: Builder, scale: Value, dims: Sequence[int], out: TensorType) -> Value:
    """A scale over the dims ``dims`` of ``out``, in any order."""
    order = sorted(range(len(dims)), key=lambda i: dims[i])
    if order != list(range(len(dims))):
        scale = b.transpose(scale, permutation=order)
    return b.broadcast_in_dim(scale, broadcast_dimensions=[dims[i] for i in order], out=out)  # type: ignore[no-any-return]


def _cast(b: Builder, x: Value, element: DType) -> Value:
    return x if x.dtype is element else b.cast(x, out=x.type.with_dtype(element))
