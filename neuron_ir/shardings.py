"""Programs over several devices: the meshes that they name and how an array is divided among the devices of one.

A module says its meshes in the attribute ``meshes``, each as ``@mesh = #sdy.mesh<["x"=2, "y"=4]>``; arguments, results and
operations say a sharding as ``#sdy.sharding<@mesh, [{"x"}, {}]>``: per dim the mesh axes that divide it, major first, with ``?``
where more may. The texts are those of the Shardy dialect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

from neuron_ir.diagnostics import fail

__all__ = ["Mesh", "Sharding", "axes_of_groups", "moves_along", "read_mesh", "read_meshes", "read_sharding"]

_MESH = re.compile(r'#sdy\.mesh<\[((?:"[^"]*"=\d+(?:, )?)*)\](?:, device_ids=\[([\d, ]*)\])?>')
_SHARDING = re.compile(r"#sdy\.sharding<@(\w+|\"[^\"]*\"), \[(.*?)\](?:, replicated=\{([^}]*)\})?>")
_DIM = re.compile(r"\{([^}]*)\}(?:p\d+)?")
_AXIS = re.compile(r'"([^"]*)"(:\(\d+\)\d+)?')


@dataclass(frozen=True)
class Mesh:
    """Devices in a grid: names and sizes of its axes, major first. Device i is number i of the program, counted row by row."""

    axes: tuple[tuple[str, int], ...]

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each axis by name, major first."""
        return dict(self.axes)


@dataclass(frozen=True)
class Sharding:
    """How one array is divided: the mesh's name, and per dim the axes that divide it; ``is_open`` where further ones may."""

    mesh: str
    dims: tuple[tuple[str, ...], ...]
    is_open: tuple[bool, ...]

    def local_shape(self, shape: Sequence[int], mesh: Mesh, axes: Iterable[str]) -> tuple[int, ...]:
        """The part of ``shape`` that one device holds where the array is divided along ``axes`` alone."""
        wanted, local = set(axes), []
        for size, names in zip(shape, self.dims, strict=True):
            for name in names:
                size = -(-size // mesh.sizes[name]) if name in wanted else size
            local.append(size)
        return tuple(local)


def read_meshes(module: Any) -> dict[str, Mesh]:
    """The meshes of a module by name."""
    pairs = (str(text).partition(" = ") for text in module.attrs.get("meshes", ()))
    return {name.removeprefix("@").strip('"'): read_mesh(text) for name, _, text in pairs}


def read_mesh(text: str) -> Mesh:
    """The mesh of a text such as ``#sdy.mesh<["x"=2, "y"=4]>``; raises :class:`IRError` for one of another order of devices."""
    found = _MESH.fullmatch(text.strip())
    if found is None:
        raise fail("attr", f"a mesh cannot be {text!r}")
    axes = tuple((name, int(size)) for name, size in re.findall(r'"([^"]*)"=(\d+)', found[1]))
    ids = [int(i) for i in found[2].split(",")] if found[2] else []
    if axes and ids and ids != list(range(len(ids))):
        raise fail("unsupported", f"a mesh whose devices are in another order than their numbers: {text}")
    return Mesh(axes)


def read_sharding(text: str) -> Sharding:
    """The sharding of a text; raises :class:`IRError` for parts of an axis, sums that are not taken yet, and other dialects."""
    found = _SHARDING.fullmatch(text.strip())
    if found is None:
        raise fail("unsupported", f"the sharding {text!r} is not supported")
    dims, is_open = [], []
    for inside in _DIM.findall(found[2]):
        axes = _AXIS.findall(inside)
        if any(part for _, part in axes):
            raise fail("unsupported", f"a sharding by a part of a mesh axis is not supported: {text}")
        dims.append(tuple(name for name, _ in axes))
        is_open.append("?" in inside)
    return Sharding(found[1].strip('"'), tuple(dims), tuple(is_open))


def axes_of_groups(groups: Sequence[Sequence[int]], mesh: Mesh) -> tuple[str, ...] | None:
    """The axes along which the devices of each group lie, major first; ``None`` where the groups are no such thing.

    No groups at all means one of all devices.
    """
    sizes = {name: size for name, size in mesh.axes if size > 1}
    wanted = {tuple(group) for group in groups}
    for count in range(len(sizes), 0, -1):
        for names in permutations(sizes, count):
            if not wanted and count == len(sizes):
                return names
            if wanted == set(_groups(names, sizes)):
                return names
    return None


def _groups(names: Sequence[str], sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The devices that differ along the axes ``names`` alone, in their order, for each place on the other axes."""
    others = [name for name in sizes if name not in names]
    return [
        tuple(_number({**rest, **dict(zip(names, at, strict=True))}, sizes) for at in product(*(range(sizes[n]) for n in names)))
        for rest in (dict(zip(others, at, strict=True)) for at in product(*(range(sizes[n]) for n in others)))
    ]


def _number(place: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    number = 0
    for name, size in sizes.items():
        number = number * size + place[name]
    return number


def moves_along(pairs: Sequence[Sequence[int]], mesh: Mesh, axes: Sequence[str]) -> list[tuple[int, int]] | None:
    """Pairs of device numbers as pairs of places along ``axes``, counted row by row; ``None`` where the others differ in theirs.

    Every place on the other axes has to make the same moves.
    """
    moves: dict[tuple[int, ...], set[tuple[int, int]]] = {}
    for source, target in pairs:
        (here, rest), (there, other) = _split(source, mesh, axes), _split(target, mesh, axes)
        if rest != other:
            return None
        moves.setdefault(rest, set()).add((here, there))
    places = 1
    for name, size in mesh.axes:
        places *= 1 if name in axes else size
    kinds = list(moves.values())
    if pairs and (len(kinds) < places or any(kind != kinds[0] for kind in kinds)):
        return None
    return sorted(kinds[0]) if kinds else []


def _split(device: int, mesh: Mesh, axes: Sequence[str]) -> tuple[int, tuple[int, ...]]:
    """A device's place along ``axes``, and its places along the other axes."""
    places: dict[str, int] = {}
    for name, size in reversed(mesh.axes):
        device, places[name] = divmod(device, size)
    along = _number(places, {name: mesh.sizes[name] for name in axes})
    return along, tuple(places[name] for name, _ in mesh.axes if name not in axes)
