"""From symbolic to static shapes: find the sizes that concrete inputs imply, and make the program of those sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neuron_ir.constraints import constraints_of, set_constraints
from neuron_ir.core import Func, Module, bulk, clone_func
from neuron_ir.diagnostics import fail, nearest
from neuron_ir.dims import UNKNOWN, Dim, DimLike, evaluate, symbol
from neuron_ir.parser import parse_dim
from neuron_ir.types import TensorType

__all__ = ["check_ranges", "size_inputs", "solve_sizes", "specialise"]


def solve_sizes(func: Func, shapes: Sequence[tuple[int, ...]], numbers: Sequence[int] = ()) -> dict[str, int]:
    """The value of each symbol of ``func`` when its arguments have these shapes, one shape per argument, and its ``size_inputs``
    are these numbers.

    Raises :class:`IRError` (code ``input``) where two places disagree, a size is out of its range, a constraint does not hold, or a
    symbol stays open.
    """
    sizes: dict[str, int] = {}
    equations: list[tuple[str, Dim, int]] = []
    for (_, name, text), number in zip(size_inputs(func), numbers, strict=False):
        size = parse_dim(text)
        if isinstance(size, Dim):
            equations.append((f"input {name}", size, number))
    for arg, shape in zip(func.args, shapes, strict=True):
        for axis, (declared, actual) in enumerate(zip(arg.type.shape, shape, strict=True)):
            if isinstance(declared, Dim) and declared is not UNKNOWN:
                equations.append((f"axis {axis} of {arg.name or arg.index}", declared, actual))
    equations.sort(key=lambda e: not e[1].is_symbol)  # plain symbols first: they settle most others
    pending = equations
    while pending:
        later = [e for e in pending if not _settle(e, sizes, func)]
        if len(later) == len(pending):
            break
        pending = later
    for place, declared, actual in equations:
        if not declared.symbols <= sizes.keys():
            raise fail("input", f"@{func.name}: {place} has size {actual}, from which {declared} cannot be solved", func.loc)
        wanted = evaluate(declared, sizes)
        if wanted != actual:
            known = ", ".join(f"{n} = {sizes[n]}" for n in sorted(declared.symbols))
            raise fail("input", f"@{func.name}: {place} is {actual}, but {declared} is {wanted} with {known}", func.loc)
    check_ranges(func, sizes)
    return sizes


def _settle(equation: tuple[str, Dim, int], sizes: dict[str, int], func: Func) -> bool:
    """Solve one equation that has one open symbol, which occurs linearly. Returns whether nothing is left to solve in it."""
    place, declared, actual = equation
    open_symbols = declared.symbols - sizes.keys()
    if not open_symbols:
        return True
    if len(open_symbols) > 1:
        return False
    (name,) = open_symbols
    at = [evaluate(declared, {**sizes, name: n}) for n in (0, 1, 2)]
    slope = _int(at[1]) - _int(at[0])
    if slope == 0 or _int(at[2]) - _int(at[1]) != slope or any(atom.function for m, _ in declared.terms for atom in m):
        return False
    value, rest = divmod(actual - _int(at[0]), slope)
    if rest:
        raise fail("input", f"@{func.name}: {place} is {actual}, which is not {declared} for any whole {name}", func.loc)
    sizes[name] = value
    return True


def _int(value: DimLike) -> int:
    assert isinstance(value, int)
    return value


def check_ranges(func: Func, sizes: Mapping[str, int]) -> None:
    """Refuse a size that is out of its symbol's range, breaks a constraint, or whose symbol the function does not have."""
    for name, size in sizes.items():
        if name not in func.dims:
            raise fail("input", f"@{func.name} has no symbolic dimension {name}{nearest(name, func.dims)}", func.loc)
        low, high = func.dims[name]
        if size < low or high is not None and size > high:
            allowed = f"{low} to {high}" if high is not None else f"at least {low}"
            raise fail(
                "input", f"@{func.name}: {name} is {size}; the program was made for {allowed}", func.loc, _places(func, [name])
            )
    for constraint in constraints_of(func):
        if constraint.at(sizes) is False:
            known = ", ".join(f"{n} is {sizes[n]}" for n in sorted(constraint.symbols))
            notes = _places(func, sorted(constraint.symbols))
            raise fail("input", f"@{func.name}: {known}; the program was made for {constraint}", func.loc, notes)


def _places(func: Func, names: Sequence[str]) -> list[str]:
    """Where each symbol stands among the inputs."""
    places: dict[str, str] = {}
    for arg in func.args:
        for axis, d in enumerate(arg.type.shape if isinstance(arg.type, TensorType) else ()):
            if isinstance(d, Dim) and d.is_symbol:
                places.setdefault(d.text, f"axis {axis} of {arg.name or arg.index}")
    places |= {text: f"the input {name}" for _, name, text in size_inputs(func)}
    return [f"{name} is {places[name]}" for name in names if name in places]


def specialise(module: Module, sizes: Mapping[str, int]) -> Module:
    """A copy of the module in which every function has these sizes instead of symbols. Symbols without a size stay."""
    with bulk():
        copy = Module(module.name)
        copy.attrs, copy.weights, copy.loc = dict(module.attrs), module.weights, module.loc
        for func in module.funcs.values():
            full = {name: sizes.get(name, symbol(name)) for name in func.dims}
            copy.add(clone_func(func, full))
            made = copy.funcs[func.name]
            made.dims = {n: r for n, r in func.dims.items() if n not in sizes}
            set_constraints(made, (c for c in (c.at(sizes) for c in constraints_of(func)) if not isinstance(c, bool)))
            _build_in(made, full)
    return copy


def size_inputs(func: Func) -> tuple[tuple[int, str, str], ...]:
    """The inputs of a function that are numbers and no tensors: place among the inputs, name, and size as text."""
    return tuple(func.attrs.get("size_inputs", ()))


def _build_in(func: Func, sizes: Mapping[str, DimLike]) -> None:
    """Turn inputs that are sizes into values built into the program where the sizes are known."""
    known = [(place, name, evaluate(parse_dim(text), sizes)) for place, name, text in size_inputs(func)]
    if not known:
        return
    fixed = tuple(item for item in known if isinstance(item[2], int))
    func.attrs["fixed_inputs"] = (*func.attrs.get("fixed_inputs", ()), *fixed)
    func.attrs["size_inputs"] = tuple((place, name, str(size)) for place, name, size in known if not isinstance(size, int))
    for attr in ("fixed_inputs", "size_inputs"):
        if not func.attrs[attr]:
            del func.attrs[attr]
