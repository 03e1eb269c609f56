"""From symbolic to static shapes: find the sizes that concrete inputs imply, and make the program of those sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neuron_ir.core import Func, Module, bulk, clone_func
from neuron_ir.diagnostics import fail, nearest
from neuron_ir.dims import UNKNOWN, Dim, DimLike, evaluate, symbol

__all__ = ["check_ranges", "solve_sizes", "specialise"]


def solve_sizes(func: Func, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """The value of each symbol of ``func`` when its arguments have these shapes, one shape per argument.

    Raises :class:`IRError` (code ``input``) where two places disagree, a size is out of its range, or a symbol stays open.
    """
    sizes: dict[str, int] = {}
    equations: list[tuple[str, Dim, int]] = []
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
    """Refuse a size that is out of its symbol's range, or whose symbol the function does not have."""
    for name, size in sizes.items():
        if name not in func.dims:
            raise fail("input", f"@{func.name} has no symbolic dimension {name}{nearest(name, func.dims)}", func.loc)
        low, high = func.dims[name]
        if size < low or high is not None and size > high:
            allowed = f"{low} to {high}" if high is not None else f"at least {low}"
            raise fail("input", f"@{func.name}: {name} is {size}; the program was made for {allowed}", func.loc)


def specialise(module: Module, sizes: Mapping[str, int]) -> Module:
    """A copy of the module in which every function has these sizes instead of symbols. Symbols without a size stay."""
    with bulk():
        copy = Module(module.name)
        copy.attrs, copy.weights, copy.loc = dict(module.attrs), module.weights, module.loc
        for func in module.funcs.values():
            full = {name: sizes.get(name, symbol(name)) for name in func.dims}
            copy.add(clone_func(func, full))
            copy.funcs[func.name].dims = {n: r for n, r in func.dims.items() if n not in sizes}
    return copy
