"""Runs a module on seeded random inputs before and after each pass, and names the pass and the first op that changed a value."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from neuron_ir.constraints import constraints_of
from neuron_ir.core import Func, Module, Op
from neuron_ir.datasizes import bindings
from neuron_ir.diagnostics import IRError, fail
from neuron_ir.instrument import Instrument
from neuron_ir.locations import UNKNOWN_LOC
from neuron_ir.passmanager import Pass
from neuron_ir.specialise import specialise
from neuron_ir.types import TOKEN, TensorType, compatible

if TYPE_CHECKING:
    import numpy

_TRIES = 100_000  # sizes tried for the constraints

__all__ = ["VerifyNumerics", "difference", "example_sizes", "random_array", "random_inputs"]


def example_sizes(func: Func) -> dict[str, int]:
    """A small size for each symbol of a function: different ones where ranges and constraints allow, so that mixed-up dims show.

    Symbols that the function binds itself have none.
    """
    sizes: dict[str, int] = {}
    bound = bindings(func)
    for i, (name, (low, high)) in enumerate(func.dims.items()):
        if name in bound:
            continue
        size = max(low, 3 + i)
        sizes[name] = size if high is None else min(size, high)
    constraints = constraints_of(func)
    if all(c.at(sizes) is True for c in constraints):
        return sizes
    ranges = [range(low, low + 16 if high is None else min(high, low + 15) + 1) for low, high in (func.dims[n] for n in sizes)]
    for values in itertools.islice(itertools.product(*ranges), _TRIES):
        tried = dict(zip(sizes, values, strict=True))
        if all(c.at(tried) is True for c in constraints):
            return tried
    listed = ", ".join(map(str, constraints))
    raise fail("input", f"@{func.name}: no small sizes were found with {listed}; give them", func.loc)


def random_array(type: TensorType, seed: int) -> numpy.ndarray[Any, Any]:
    """Random values of a static type: floats from a normal distribution, integers from 0 to 3 (small enough for any index)."""
    import numpy

    rng = numpy.random.default_rng(seed)
    shape = tuple(d for d in type.shape if isinstance(d, int))
    kind = type.dtype.kind
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(numpy.bool_)
    if kind in ("int", "uint"):
        return rng.integers(0, 2 if type.dtype.name == "i2" else 4, shape).astype(type.dtype.numpy)
    values = rng.standard_normal(shape)
    if kind == "complex":
        return (values + 1j * rng.standard_normal(shape)).astype(type.dtype.numpy)
    return (abs(values) if type.dtype.name == "f8e8m0" else values).astype(type.dtype.numpy)


def random_inputs(func: Func, weights: Mapping[str, Any], seed: int = 0) -> list[Any]:
    """One array per argument of a static function; arguments bound to one of ``weights`` get that."""
    arrays: list[Any] = []
    free = itertools.count()  # arguments that are bound come and go, the others get the same numbers
    for number, (arg, attrs) in enumerate(zip(func.args, func.arg_attrs, strict=True)):
        key = str(attrs.get("weight"))
        i = number if key in weights else next(free)
        if arg.type is TOKEN:
            arrays.append(_token())
        elif key in weights:
            from neuron_ir.weights import to_numpy

            arrays.append(to_numpy(weights[key]))
        elif not arg.type.is_static:
            raise fail("input", f"no example input can be made for %{arg.name or i} of type {arg.type}", func.loc)
        else:
            try:
                arrays.append(random_array(arg.type, zlib.crc32(f"{seed}:{i}:{arg.type.with_shape(arg.type.shape)}".encode())))
            except (MemoryError, ValueError) as error:  # ValueError: more elements than numpy counts
                raise fail("input", f"an example input of type {arg.type} is too large: {error}", func.loc) from None
    return arrays


def _token() -> Any:
    import jax

    return jax.lax.create_token()


def difference(old: Any, new: Any, rtol: float) -> str:
    """How two arrays differ, or nothing. ``rtol`` 0: bit for bit, any NaN equal to any other; else relative to the largest
    finite magnitude of ``old``, with NaN and infinity in the same places."""
    import numpy

    if old.shape != new.shape or old.dtype != new.dtype:
        return f"{new.dtype}{list(new.shape)}, was {old.dtype}{list(old.shape)}"
    if not old.size:
        return ""
    same, allowed = _same_elements(old, new, rtol)
    if same.all():
        return ""
    at = tuple(int(i) for i in numpy.argwhere(~same)[0])
    return f"element {list(at)} is {new[at]}, was {old[at]} ({int((~same).sum())} of {old.size} differ; compared {allowed})"


def _same_elements(old: Any, new: Any, rtol: float) -> tuple[Any, str]:
    """Which elements agree, and by which measure."""
    import numpy

    if old.dtype.kind in "biu" or "int" in old.dtype.name:
        return old == new, "bit for bit"
    wide = numpy.complex128 if old.dtype.kind == "c" else numpy.float64
    a, b = old.astype(wide), new.astype(wide)
    both_nan = (a != a) & (b != b)
    if rtol == 0:
        width = old.dtype.itemsize
        bits = [numpy.ascontiguousarray(x).reshape(-1).view(numpy.uint8).reshape(-1, width) for x in (old, new)]
        return (bits[0] == bits[1]).all(-1).reshape(old.shape) | both_nan, "bit for bit"
    finite = abs(a[numpy.isfinite(a)])
    scale = float(finite.max()) if finite.size else 0.0
    with numpy.errstate(invalid="ignore"):
        return (a == b) | both_nan | (abs(a - b) <= rtol * scale), f"within {rtol:g} of {scale:g}"


class VerifyNumerics(Instrument):
    """Compare the values of every function before and after each pass. An exact pass must keep every bit; for others ``rtol``
    (default: what the pass declares) bounds the error, but never below a few units in the last place of the result's type."""

    def __init__(self, rtol: float | None = None, seed: int = 0):
        self.rtol = rtol
        self.seed = seed
        self.values: dict[str, list[Any]] = {}
        self.copy = Module()
        self.ops: list[Op] = []

    def start(self, passes: Sequence[Pass], module: Module) -> None:
        self.values = {name: self.run(module, name) for name in module.funcs}

    def before(self, index: int, p: Pass, module: Module) -> None:
        self.copy = module.clone()
        self.ops = list(module.walk())

    def after(self, index: int, p: Pass, module: Module) -> None:
        values = {}
        for name, func in module.funcs.items():
            values[name] = self.run(module, name)
            if name not in self.values:
                continue
            self.check_signature(p, self.copy.funcs[name], func, module)
            for i, (old, new) in enumerate(zip(self.values[name], values[name], strict=False)):
                found = difference(old, new, self.tolerance(p, func.result_types[i]))
                if found:
                    raise self.changed(p, module, name, f"result {i} of @{name}: {found}")
        self.values = values

    def check_signature(self, p: Pass, old: Func, new: Func, module: Module) -> None:
        """The pass kept what a caller gives and gets, layouts aside; bound weights, and state updated at the end, are its own."""
        was, now = _given_types(old, self.copy), _given_types(new, module)
        extra = new.result_attrs[len(old.result_types) :]
        own = all("updates" in a and _is_bound(new.arg_attrs[a["updates"]], module) for a in extra)
        was, now = was + old.result_types, now + new.result_types[: len(old.result_types) if own else None]
        if len(was) != len(now) or not all(map(compatible, was, now)):
            raise fail("pass", f"pass {p.name} changed the signature of @{new.name} from {was} to {now}", new.loc)

    def tolerance(self, p: Pass, type: Any) -> float:
        if p.exact:
            return 0.0
        import ml_dtypes

        floats = isinstance(type, TensorType) and type.dtype.kind in ("float", "complex")
        last_place = float(ml_dtypes.finfo(type.dtype.real.numpy).eps) if floats else 0.0
        return max(self.rtol if self.rtol is not None else p.rtol, 4 * last_place)

    def run(self, module: Module, name: str, seen: dict[Op, tuple[Any, ...]] | None = None) -> list[Any]:
        """The results of one function; ``seen`` collects those of each op in its body."""
        import numpy

        from neuron_ir.meaning import Meaning, run, x64
        from neuron_ir.weights import to_numpy

        original = module.funcs[name]
        sizes = example_sizes(original)
        static = specialise(module, sizes) if sizes else module
        func = static.funcs[name]
        of = dict(zip(func.body.ops, original.body.ops, strict=True))
        inputs = random_inputs(func, module.weights, self.seed)

        def observe(op: Op, results: tuple[Any, ...]) -> None:
            if seen is not None and op in of:
                seen[of[op]] = tuple(map(numpy.asarray, results))

        with x64():
            meaning = Meaning(lambda key: to_numpy(module.weights[key]), static)
            arrays = [meaning.np.asarray(x) if isinstance(x, numpy.ndarray) else x for x in inputs]
            results = run(func, arrays, meaning, observe)
            return [numpy.asarray(r) for r, t in zip(results, func.result_types, strict=True) if t is not TOKEN]

    def changed(self, p: Pass, module: Module, name: str, what: str) -> IRError:
        """The error for a changed value, at the first op that computes something else than before."""
        op = self.first_changed(p, module, name)
        if op is None:
            return fail("pass", f"pass {p.name} changed {what}", module.funcs[name].loc)
        notes = [f"the first changed value is that of: {op!r}"]
        return fail("pass", f"pass {p.name} changed {what}", op.loc, notes)

    def first_changed(self, p: Pass, module: Module, name: str) -> Op | None:
        """The first op whose value existed before the pass (as the same object, or at the same place and type) and now differs."""
        before: dict[Op, tuple[Any, ...]] = {}
        after: dict[Op, tuple[Any, ...]] = {}
        self.run(self.copy, name, before)
        self.run(module, name, after)
        old_of = dict(zip(self.ops, self.copy.walk(), strict=True))
        old_at, new_at = _last_at_place(before), _last_at_place(after)
        for op, values in after.items():
            place = _place(op)
            old = old_of.get(op) or (old_at.get(place) if new_at.get(place) is op else None)
            if old not in before or len(before[old]) != len(values):
                continue
            pairs = zip(before[old], values, op.results, strict=True)
            if any(difference(x, y, self.tolerance(p, r.type)) for x, y, r in pairs if r.type is not TOKEN):
                return op
        return None


def _is_bound(attrs: Mapping[str, Any], module: Module) -> bool:
    """Whether an argument is a weight or buffer whose value the module holds."""
    return attrs.get("weight") in module.weights


def _given_types(func: Func, module: Module) -> list[Any]:
    """The types of the arguments that a caller gives."""
    return [arg.type for arg, attrs in zip(func.args, func.arg_attrs, strict=True) if not _is_bound(attrs, module)]


def _place(op: Op) -> tuple[Any, ...]:
    return (op.loc, *(r.type for r in op.results))


def _last_at_place(ops: Iterable[Op]) -> dict[tuple[Any, ...], Op]:
    """For each place and type, the last op there: an op that was taken apart ends with the one that gives its value."""
    return {_place(op): op for op in ops if op.loc is not UNKNOWN_LOC}
