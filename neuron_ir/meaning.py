"""What a program means: walks the ops and calls each one's ``jax`` facet (or evaluates its ``expand`` body).

The reference accelerator traces :func:`run` under ``jax.jit``; constant folding and tests call it on arrays. JAX is imported on
first use. Callers hold 64-bit semantics: run everything inside :func:`x64`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from neuron_ir.attrs import Dense, Resource
from neuron_ir.builder import Builder
from neuron_ir.core import Block, Func, Module, Op, Value, clone_op
from neuron_ir.datasizes import BIND, bindings, symbols_of
from neuron_ir.diagnostics import IRError, fail
from neuron_ir.dims import DimLike, symbol
from neuron_ir.locations import UNKNOWN_LOC, FileLoc
from neuron_ir.shardings import Mesh
from neuron_ir.types import TensorType

__all__ = ["Frame", "Meaning", "RegionFunction", "SizingFrame", "evaluate", "expansion", "run", "spread", "x64"]


def x64() -> Any:
    """A context in which JAX keeps 64-bit types, on this thread only; the user's global setting is untouched."""
    import jax

    return jax.enable_x64(True)


class Meaning:
    """The namespace ``j`` that facets see: ``j.np``, ``j.lax``, ``j.nn``, ``j.random``, ``j.scipy``, ``j.jax``, and helpers."""

    def __init__(self, resources: Callable[[str], Any] | None = None, module: Module | None = None):
        import jax
        import jax.numpy as np
        import jax.scipy as scipy

        self.jax, self.np, self.scipy = jax, np, scipy
        self.lax, self.nn, self.random = jax.lax, jax.nn, jax.random
        self.resources = resources
        self.module = module
        self.op: Op | None = None  # the op whose facet runs
        self.devices: Sequence[Any] | None = None  # JAX's devices of a program over several of them, in the program's order
        self.mesh: Mesh | None = None  # that of the manual computation that runs
        self.axis: Any = None  # the mapped axis, or axes of the mesh, along which collectives exchange
        self.sizes: dict[str, DimLike] = {}  # sizes of the data that are known by now
        self.calling: list[str] = []  # the functions that are being called, outermost first

    def constant(self, value: Dense | Resource, out: TensorType) -> Any:
        """The array of a constant op."""
        if isinstance(value, Dense):
            return (
                value.array
                if not value.is_splat
                else self.np.full(value.shape, value.array.flat[0] if value.array.size else 0, value.dtype.numpy)
            )
        if self.resources is None:
            raise fail("weights", f"the constant {value!r} needs the module's weights")
        return self.resources(str(value))

    def require(self, ok: Any, message: str, values: Sequence[Any] = ()) -> None:
        """Stop the program with ``message``, filled with ``values`` where there are any, unless all of ``ok`` holds. Traced, where
        nothing is known yet, this does nothing: an executor that can look at ``ok`` after the run overrides it.
        """
        if not isinstance(ok, self.jax.core.Tracer) and not ok.all():
            raise IndexError(message.format(*map(int, values)) if values else message)

    def host(self, function: Callable[..., Sequence[Any]], out: Sequence[TensorType], *operands: Any) -> Sequence[Any]:
        """What a function of numpy arrays gives, called on the host whenever the program gets there, in its order."""
        from jax.experimental import io_callback

        structs = [self.jax.ShapeDtypeStruct(t.shape, t.dtype.numpy) for t in out]
        return io_callback(function, structs, *operands, ordered=True)  # type: ignore[no-any-return]

    def guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that the program runs on each device; an executor that rewrites programs does so inside it."""
        return function

    def array(self, x: Any, type: TensorType) -> Any:
        """``x`` as an array of exactly that type, cast by JAX's rules."""
        return self.np.asarray(x, type.dtype.numpy)


def run(
    func: Func,
    inputs: Sequence[Any],
    j: Meaning,
    observe: Callable[[Op, tuple[Any, ...]], None] | None = None,
    frame: type[Frame] | None = None,
) -> tuple[Any, ...]:
    """The values of ``func`` on ``inputs`` (one JAX array per argument, of static shapes). ``observe`` sees each op's results, and
    ``frame`` is the class that evaluates them. Where the data decide sizes the inputs must be concrete: each size is read as it
    comes up.
    """
    j.sizes = {}
    return (frame or (SizingFrame if bindings(func) else Frame))(j, observe, {}).block(func.body, inputs)


class Frame:
    """Values of one function while it runs; nested regions see the values around them. A subclass may wrap :meth:`op`."""

    def __init__(self, j: Meaning, observe: Callable[[Op, tuple[Any, ...]], None] | None, values: dict[Value, Any]):
        self.j, self.observe, self.values = j, observe, values

    def block(self, block: Block, inputs: Sequence[Any]) -> tuple[Any, ...]:
        values = self.values
        values.update(zip(block.args, inputs, strict=True))
        op = block.first
        while op is not None:
            if "terminator" in op.spec.traits:
                return tuple([values[v] for v in op.operands])
            results = self.op(op, [values[v] for v in op.operands])
            for value, result in zip(op.results, results, strict=True):
                values[value] = result
            if self.observe is not None:
                self.observe(op, results)
            op = op.next
        raise AssertionError("a block without a terminator")

    def op(self, op: Op, operands: list[Any]) -> tuple[Any, ...]:
        """The results of one op."""
        if op.name == "func.call":
            return self.call(op, operands)
        self.j.op = op
        try:
            results = self.meaning(op, operands)
        except IRError as error:
            raise _placed(op, error) from None
        except Exception as error:  # whatever JAX raises for this op is reported at the user's line
            raise _op_failed(op, error) from error
        return results if isinstance(results, tuple) else tuple(results) if isinstance(results, list) else (results,)

    def call(self, op: Op, operands: list[Any]) -> tuple[Any, ...]:
        callee, calling = op.get("callee"), self.j.calling
        assert self.j.module is not None
        if callee in calling:
            raise fail("unsupported", f"@{callee} calls itself, which this target cannot run", op.loc)
        calling.append(callee)
        try:
            return type(self)(self.j, self.observe, {}).block(self.j.module.funcs[callee].body, operands)
        finally:
            calling.pop()

    def meaning(self, op: Op, operands: list[Any]) -> Any:
        """The results as the op's facet gives them, or those of its expansion."""
        if op.spec.jax is None:
            return self.block_of_expansion(op, operands)
        return op.spec.jax(self.j, *spread(op, operands), **self.fields(op))

    def fields(self, op: Op) -> dict[str, Any]:
        """What the op's facet takes by keyword: attributes, regions as functions, and ``out`` where it has one."""
        spec = op.spec
        fields = op.all_attrs
        for i, declared in enumerate(spec.regions):
            if declared.variadic:
                fields[declared.name] = [self.function(r) for r in op.regions[i:]]
            else:
                fields[declared.name] = self.function(op.regions[i]) if i < len(op.regions) else None
        if spec.jax_wants_out:
            fields["out"] = op.results[0].type if len(op.results) == 1 else tuple(r.type for r in op.results)
        return fields

    def function(self, block: Block) -> RegionFunction:
        return RegionFunction(self, block)

    def block_of_expansion(self, op: Op, operands: list[Any]) -> tuple[Any, ...]:
        return type(self)(self.j, None, {}).block(expansion(op), operands)


class SizingFrame(Frame):
    """Values of a function that binds sizes of its data: the ops after a binding are given the size that it found."""

    def op(self, op: Op, operands: list[Any]) -> tuple[Any, ...]:
        sizes = self.j.sizes
        if op.name == BIND:
            results = super().op(op, operands)
            sizes[str(op.get("size"))] = int(results[0])
            return results
        names = symbols_of(op) if sizes else set()
        if names.isdisjoint(sizes) or op.spec.jax is None:  # the ops of an expansion are given sizes one by one
            return super().op(op, operands)
        sized = clone_op(op, {}, {name: sizes.get(name, symbol(name)) for name in names})
        try:
            return super().op(sized, operands)
        finally:
            sized.erase()


class RegionFunction:
    """A region as facets get it: a function that may run several times, each time with its own values; ``block`` is the region."""

    __slots__ = ("frame", "block", "__weakref__")  # JAX keeps weak references to branches

    def __init__(self, frame: Frame, block: Block):
        self.frame, self.block = frame, block

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        frame = self.frame
        return type(frame)(frame.j, frame.observe, dict(frame.values)).block(self.block, inputs)


def spread(op: Op, operands: Sequence[Any]) -> list[Any]:
    """Operands as facets take them: ``None`` for an absent one, a variadic group spread out."""
    spec = op.spec
    if len(operands) == len(spec.operands) and not spec.variadic:
        return list(operands)
    flat: list[Any] = []
    for declared, group in zip(spec.operands, spec.split(operands, op.attrs.get("absent", ())), strict=True):
        flat.extend(group if declared.variadic else [group])
    return flat


def expansion(op: Op) -> Block:
    """The body of a composite op: a block with the op's operands as arguments that yields its results."""
    spec = op.spec
    if spec.expand is None:
        raise op.error("unsupported", "the op has neither a jax facet nor an expansion")
    block = Block([v.type for v in op.operands], [v.name for v in op.operands])
    b = Builder(block, op.loc)
    fields = op.all_attrs
    for declared, region in zip(spec.regions, op.regions, strict=False):
        fields[declared.name] = region
    if spec.expand_wants_out:
        fields["out"] = op.results[0].type if len(op.results) == 1 else tuple(r.type for r in op.results)
    values = spec.expand(b, *spread(op, block.args), **fields)
    b.make("neuron.yield", *(values if isinstance(values, tuple | list) else (values,)))
    return block


def _placed(op: Op, error: IRError) -> IRError:
    """A facet's refusal at the op's place, where it has none yet."""
    first = error.diagnostics[0]
    if len(error.diagnostics) > 1 or first.loc is not UNKNOWN_LOC or op.loc is UNKNOWN_LOC:
        return error
    return fail(first.code, first.message, op.loc, (*first.notes, f"see current operation: {op!r}"))


def _op_failed(op: Op, error: Exception) -> IRError:
    reason = str(error).split("\n\n")[0].strip() or type(error).__name__
    return fail("runtime", f"{op.name} failed in the reference accelerator: {reason}", op.loc, [f"see current operation: {op!r}"])


@lru_cache(maxsize=1)
def default_meaning() -> Meaning:
    """A namespace without weights, for folding and tests."""
    return Meaning()


def evaluate(op: Op, operands: Sequence[Any]) -> tuple[Any, ...]:
    """The results of one op on arrays, as numpy arrays, computed op by op (not jitted) with 64-bit types kept."""
    import numpy

    with x64():
        return tuple(numpy.asarray(r) for r in Frame(default_meaning(), None, {}).op(op, list(operands)))


def compute(op_name: str, *arrays: Any, out: Any = None, loc: FileLoc | None = None, **fields: Any) -> Any:
    """Build one op on numpy arrays (``None``: absent operand) and give its value(s): the shortest way to try an op.

    ``compute("neuron.add", numpy.float32([1]), numpy.float32([2]))`` is ``[3.]``.
    """
    from neuron_ir.builder import create
    from neuron_ir.dtypes import dtype_of_numpy

    args = Block([TensorType(a.shape, dtype_of_numpy(a.dtype)) for a in arrays if a is not None]).args
    values = iter(args)
    op = create(
        op_name, [next(values) if a is not None else None for a in arrays], out, fields, loc or FileLoc("<compute>", implicit=True)
    )
    Block().append(op)
    if op.spec.check is not None:
        op.spec.check(op)
    results = evaluate(op, [a for a in arrays if a is not None])
    return results[0] if len(results) == 1 else results
