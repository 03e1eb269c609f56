"""What a program takes and gives, as its caller sees it: user inputs by position and name, bound weights, state, user outputs."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from neuron_ir.attrs import Symbol
from neuron_ir.core import Func
from neuron_ir.diagnostics import IRError, fail, nearest
from neuron_ir.dtypes import DType
from neuron_ir.specialise import size_inputs
from neuron_ir.trees import fill, flatten, output_tree
from neuron_ir.types import TensorType

__all__ = ["Signature"]


class Slot(NamedTuple):
    """One thing that the caller gives: an argument of the program by index, or (``argument`` is ``None``) a value built into it, or
    an integer that is a size (``is_size``).
    """

    name: str
    argument: int | None
    value: Any
    is_size: bool = False

    @property
    def is_built_in(self) -> bool:
        """Whether the caller may leave it out."""
        return self.argument is None and not self.is_size


def python_value(attr: Any) -> Any:
    """The Python value that an attribute stands for; ``@none`` is ``None``."""
    return None if isinstance(attr, Symbol) else attr


def _same(given: Any, built_in: Any) -> bool:
    """Whether a value is the one that was built in, its type included: ``2`` and ``2.0`` give results of other types."""
    if not isinstance(built_in, int | float) or isinstance(built_in, bool):
        return given is built_in or type(given) is type(built_in) and bool(given == built_in)
    if hasattr(given, "item") and tuple(getattr(given, "shape", ())) == ():
        given = given.item()
    return type(given) is type(built_in) and repr(given) == repr(built_in)  # tells -0.0 from 0.0, and knows NaN


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of nested tuples, lists and dicts, each with its dotted path; fields of named tuples go by their names."""
    parts: Iterable[tuple[Any, Any]]
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, tuple | list):
        parts = zip(getattr(value, "_fields", range(len(value))), value, strict=True)
    else:
        yield path, value
        return
    for key, part in parts:
        yield from _leaves(f"{path}.{key}", part)


def _has_dict(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, tuple | list) and any(map(_has_dict, value)))


def _dotted(name: str) -> str:
    """A name such as JAX's ``p['w'][0]`` as a path, ``p.w.0``."""
    return re.sub(r"\[(?:'([^']*)'|([^\]]*))\]", lambda m: f".{m[1] if m[1] is not None else m[2]}", name)


@dataclass(frozen=True)
class Signature:
    """Argument and result indices of a function by their role.

    ``inputs`` are the arguments that the caller gives; ``weights`` those bound from ``Module.weights`` and never written; ``state``
    those bound at first and then updated by the program. ``updates`` maps a result to the argument whose new value it is;
    ``outputs`` are the other results.
    """

    func: Func
    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    state: tuple[int, ...]
    outputs: tuple[int, ...]
    updates: Mapping[int, int]

    @classmethod
    def of(cls, func: Func) -> Signature:
        """Read the roles from the attributes of arguments and results."""
        kinds = [a.get("kind", "input") for a in func.arg_attrs]
        updates = {i: a["updates"] for i, a in enumerate(func.result_attrs) if "updates" in a}
        written = set(updates.values())
        bound = [i for i, k in enumerate(kinds) if k != "input"]
        return cls(
            func,
            tuple(i for i, k in enumerate(kinds) if k == "input"),
            tuple(i for i in bound if i not in written),
            tuple(i for i in bound if i in written),
            tuple(i for i in range(len(func.result_types)) if i not in updates),
            updates,
        )

    def name(self, index: int) -> str:
        """An argument's name for the caller; no two arguments have the same."""
        return self._names[index]

    @cached_property
    def _names(self) -> dict[int, str]:
        names: dict[str, int] = {}
        for index in (*self.inputs, *self.state, *self.weights):  # inputs first: theirs are the names that a caller writes
            attrs = self.func.arg_attrs[index]
            name = str(attrs.get("name") or attrs.get("weight") or self.func.args[index].name or f"arg{index}")
            while name in names:
                name += f"_{index}"
            names[name] = index
        return {index: name for name, index in names.items()}

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """What the caller may give, in order: the inputs, and between them the values that are built into the program."""
        others = {place: Slot(name, None, python_value(value)) for place, name, value in self.func.attrs.get("fixed_inputs", ())}
        others |= {place: Slot(name, None, None, True) for place, name, _ in size_inputs(self.func)}
        tensors = iter(self.inputs)
        slots = []
        for position in range(len(self.inputs) + len(others)):
            if position in others:
                slots.append(others[position])
            else:
                index = next(tensors)
                slots.append(Slot(self.name(index), index, None))
        return tuple(slots)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], tuple[int, ...]]:
        """The user inputs in order, from positional and named arguments: the arrays, and the integers that are sizes.

        Tuples and lists stand for their leaves in order, dicts for those of their keys, in whatever order; by name a leaf is
        ``cache.keys.0``. Values built into the program may be left out; where they are given they must be the same.
        """
        slots = self.slots
        groups = [list(_leaves("", arg)) for arg in args]
        leaves = [leaf for group in groups for _, leaf in group]
        needed = [s for s in slots if not s.is_built_in]
        whole = len(leaves) > len(needed) or any(v is None or isinstance(v, str) for v in leaves)
        taken = slots if whole else needed
        if len(leaves) > len(taken):
            listed = ", ".join(s.name for s in needed)
            raise self._refused(f"takes {len(needed)} input(s) ({listed}), not {len(leaves)}")
        given: dict[str, Any] = {}
        for arg, group in zip(args, groups, strict=True):
            own = taken[len(given) : len(given) + len(group)]
            values = self._by_key(own, group) if _has_dict(arg) else [leaf for _, leaf in group]
            given.update(zip((slot.name for slot in own), values, strict=True))
        for path, value in [leaf for name, arg in kwargs.items() for leaf in _leaves(name, arg)]:
            name = self._paths.get(path, path)
            if path not in self._paths:
                names = [s.name for s in slots]
                told = nearest(path, names) or f"; its inputs: {', '.join(names) or 'none'}"
                raise self._refused(f"has no input {path!r}{told}")
            if name in given:
                raise self._refused(f"input {path!r} is given twice", ":")
            given[name] = value
        missing = [s.name for s in needed if s.name not in given]
        if missing:
            raise self._refused(f"input(s) {', '.join(missing)} missing", ":")
        for slot in slots:
            if slot.is_built_in and slot.name in given and not _same(given[slot.name], slot.value):
                told = f"input {slot.name!r} is {given[slot.name]!r}, but the program was made for {slot.value!r}"
                raise self._refused(told, ":")
        numbers = tuple(self._integer(s.name, given[s.name]) for s in needed if s.is_size)
        return [given[s.name] for s in needed if not s.is_size], numbers

    @cached_property
    def _paths(self) -> dict[str, str]:
        """The name of each slot by what a caller may write for it: the name, and its dotted path."""
        return {_dotted(s.name): s.name for s in self.slots} | {s.name: s.name for s in self.slots}

    def _by_key(self, slots: Sequence[Slot], leaves: Sequence[tuple[str, Any]]) -> list[Any]:
        """The leaves of one argument that holds a dict, in the order of its slots, whose names end in the leaves' paths."""
        paths, by_path = [f".{_dotted(s.name)}" for s in slots], dict(leaves)
        stems = [paths[0].removesuffix(path) for path in by_path if paths[0].endswith(path)] if paths else []
        for stem in stems:
            if {f"{stem}{path}" for path in by_path} == set(paths):
                return [by_path[path.removeprefix(stem)] for path in paths]
        if not slots:
            return []
        keys, names = (", ".join(path[1:] for path in group) for group in (by_path, paths))
        raise self._refused(f"a dict is given with {keys}, but the inputs at its place are {names}; give them by name", ":")

    def _integer(self, name: str, value: Any) -> int:
        """A size that the caller gives."""
        if isinstance(value, bool) or not hasattr(value, "__index__") or tuple(getattr(value, "shape", ())):
            raise self._refused(f"input {name!r} is a {type(value).__name__}, but an integer is needed", ":")
        number = operator.index(value)
        if not -(2**63) <= number < 2**63:
            raise self._refused(f"input {name!r} is {number}, which does not fit 64 bits", ":")
        return number

    def _refused(self, message: str, mark: str = "") -> IRError:
        return fail("input", f"@{self.func.name}{mark} {message}", self.func.loc)

    def arrange(self, outputs: list[Any]) -> Any:
        """The user outputs as the source program nests them, values built into the program included."""
        return fill(self._tree, iter(self.complete(outputs)))

    def complete(self, outputs: list[Any]) -> list[Any]:
        """The user outputs and, in their places, the values built into the program."""
        fixed = self._fixed_outputs
        if not fixed:
            return outputs
        given = iter(outputs)
        return [fixed[i] if i in fixed else next(given) for i in range(len(outputs) + len(fixed))]

    def flat(self, given: Any) -> list[Any]:
        """What :meth:`arrange` was given."""
        return [leaf for i, leaf in enumerate(flatten(self._tree, given)) if i not in self._fixed_outputs]

    @cached_property
    def _tree(self) -> Any:
        return output_tree(self.func)

    @cached_property
    def _fixed_outputs(self) -> dict[int, Any]:
        return {place: python_value(value) for place, value in self.func.attrs.get("fixed_outputs", ())}

    def check(self, index: int, shape: tuple[int, ...], dtype: DType) -> None:
        """Refuse an input whose dtype, rank or fixed sizes are not those of its argument."""
        wanted: TensorType = self.func.args[index].type
        fits = len(shape) == len(wanted.shape) and all(
            not isinstance(w, int) or w == s for w, s in zip(wanted.shape, shape, strict=True)
        )
        if not fits or dtype is not wanted.dtype:
            given = f"tensor<{''.join(f'{d}x' for d in shape)}{dtype}>"
            raise fail("input", f"@{self.func.name}: input {self.name(index)!r} is {given}, but {wanted} is needed", self.func.loc)
