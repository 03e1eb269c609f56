"""Programs over several devices: what one device does with its part of the arrays, and notes on how arrays are divided."""

from __future__ import annotations

from typing import Any

from neuron_ir.diagnostics import fail
from neuron_ir.opdef import ANY_OR_TOKEN, STRINGS, Op, attr, op, region, variadic
from neuron_ir.shardings import Mesh, Sharding, read_meshes, read_sharding
from neuron_ir.types import TensorType, same_shape

__all__ = ["constrained", "named_sharding"]


def _per_device(self: Any) -> None:
    """The body takes and gives as many values as the op, of the same element types and ranks, of any sizes."""
    block = self.body
    given = [v.type for v in block.last.operands] if block.last is not None and block.last.name == "neuron.yield" else []
    for what, outer, inner, shardings in (
        ("operands", [v.type for v in self.operands], [v.type for v in block.args], self.in_shardings),
        ("results", [v.type for v in self.results], given, self.out_shardings),
    ):
        if not len(outer) == len(inner) == len(shardings):
            raise self.error(
                "region", f"{len(outer)} {what}, {len(inner)} values of the body and {len(shardings)} shardings differ"
            )
        for whole, part in zip(outer, inner, strict=True):
            if isinstance(whole, TensorType) != isinstance(part, TensorType):
                raise self.error("region", f"{what} of type {whole} cannot be {part} on one device")
            if isinstance(whole, TensorType) and (whole.dtype, whole.rank) != (part.dtype, part.rank):
                raise self.error("region", f"{what} of type {whole} cannot be {part} on one device")


@op("neuron.manual_computation", traits=["collective"])
class ManualComputation(Op):
    """Runs ``body`` on every device of a mesh, on its parts of the operands; the results are put together from its parts.

    Arrays are divided by ``in_shardings`` and ``out_shardings``, texts such as ``#sdy.sharding<@mesh, [{"x"}, {}]>``, along the
    mesh axes ``manual_axes``; collectives inside exchange between the devices along these. Along the other axes the program
    is that of all devices. The body sees no values of the ops around it but constants.
    """

    inputs = variadic(ANY_OR_TOKEN)
    in_shardings = attr(STRINGS, ())
    out_shardings = attr(STRINGS, ())
    manual_axes = attr(STRINGS, ())
    body = region()

    def check(self):
        _per_device(self)

    def jax(j, *inputs, in_shardings, out_shardings, manual_axes, body, out):
        parts = [read_sharding(text) for text in (*in_shardings, *out_shardings)]
        if j.devices is None:
            return _on_one_device(inputs, body)
        name, mesh = _mesh(j, parts)
        ins, outs = parts[: len(in_shardings)], parts[len(in_shardings) :]
        _check_parts(inputs, ins, mesh, manual_axes, body)
        outer = j.axis, j.mesh
        axes = tuple(n for n, _ in mesh.axes if n in manual_axes or n in (outer[0] or ()))

        def each(*xs: Any) -> tuple[Any, ...]:
            j.axis, j.mesh = axes, mesh
            try:
                return tuple(body(*xs))
            finally:
                j.axis, j.mesh = outer

        spread = j.jax.shard_map(
            j.guarded(each),
            mesh=None if outer[0] else _jax_mesh(j, mesh),
            in_specs=tuple(_spec(j, s, manual_axes) for s in ins),
            out_specs=tuple(_spec(j, s, manual_axes) for s in outs),
            axis_names=set(manual_axes),
            check_vma=False,
        )
        return tuple(spread(*inputs))


def _on_one_device(inputs: Any, body: Any) -> Any:
    """The body on whole arrays, where the mesh has one device."""
    if [x.shape for x in inputs] != [v.type.shape for v in body.block.args]:
        raise fail(
            "unsupported", "neuron.manual_computation: a program over several devices, but the reference accelerator runs one"
        )
    return tuple(body(*inputs))


def _check_parts(inputs: Any, shardings: list[Sharding], mesh: Mesh, axes: Any, body: Any) -> None:
    for x, sharding, value in zip(inputs, shardings, body.block.args, strict=True):
        local = sharding.local_shape(x.shape, mesh, axes)
        if isinstance(value.type, TensorType) and not same_shape(local, value.shape):
            raise fail("shape", f"neuron.manual_computation: a device's part of {list(x.shape)} is {list(local)}, not {value.type}")


def _mesh(j: Any, shardings: list[Sharding]) -> tuple[str, Mesh]:
    """The mesh that the shardings name; the module's first where there is none."""
    meshes = read_meshes(j.module)
    names = list(dict.fromkeys(s.mesh for s in shardings)) or list(meshes)[:1]
    if len(names) != 1 or names[0] not in meshes:
        raise fail("attr", f"shardings name the meshes {names}; the module has {list(meshes)}")
    return names[0], meshes[names[0]]


def _jax_mesh(j: Any, mesh: Mesh) -> Any:
    import numpy

    sizes = tuple(size for _, size in mesh.axes)
    count = int(numpy.prod(sizes, dtype=int))
    if count != len(j.devices):
        raise fail("unsupported", f"a mesh of {count} devices in a program for {len(j.devices)}")
    return j.jax.sharding.Mesh(numpy.array(j.devices).reshape(sizes), tuple(name for name, _ in mesh.axes))


def _spec(j: Any, sharding: Sharding, axes: Any) -> Any:
    """The sharding along ``axes`` as JAX has it."""
    return j.jax.sharding.PartitionSpec(*(tuple(n for n in names if n in axes) or None for names in sharding.dims))


def named_sharding(j: Any, text: str) -> Any:
    """The sharding of an argument or result as JAX has it; ``None`` where it is left to the compiler, at least in part."""
    sharding = read_sharding(text)
    _, mesh = _mesh(j, [sharding])
    if any(sharding.is_open) or not mesh.axes:
        return None
    return j.jax.sharding.NamedSharding(_jax_mesh(j, mesh), _spec(j, sharding, mesh.sizes))


def constrained(j: Any, x: Any, text: str) -> Any:
    """``x``, divided as the text says. It changes no value; along the axes of an enclosing body there is nothing left to divide."""
    sharding = read_sharding(text)
    _, mesh = _mesh(j, [sharding])
    free = [n for n in mesh.sizes if n not in (j.axis or ())]
    if not free or not x.ndim:
        return x
    loose = j.jax.sharding.PartitionSpec.UNCONSTRAINED
    spec = [
        loose if is_open else tuple(n for n in names if n in free) or None
        for names, is_open in zip(sharding.dims, sharding.is_open, strict=True)
    ]
    where = j.jax.sharding.get_abstract_mesh() if j.axis else _jax_mesh(j, mesh)
    return j.lax.with_sharding_constraint(x, j.jax.sharding.NamedSharding(where, j.jax.sharding.PartitionSpec(*spec)))
