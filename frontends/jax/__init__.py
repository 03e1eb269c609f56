"""JAX front end: JAX functions and StableHLO modules into Neuron IR, and back to StableHLO.

Everything is loaded on first use, so that importing this package loads neither jax nor numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from neuron_ir.core import Module
from neuron_ir.explanation import Journal

__all__ = ["from_jax", "from_stablehlo", "read_stablehlo", "to_stablehlo"]


def from_jax(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Module:
    """The Neuron IR of a JAX function for arguments of these shapes and types.

    Arguments are arrays, numbers, ``jax.ShapeDtypeStruct`` (with symbolic sizes of ``jax.export.symbolic_shape`` too) or pytrees of
    them. The module's inputs are the flat leaves in the order of ``jax.tree.leaves``, each named by its path, such as
    ``params['w']``; its outputs are the leaves of the result, and ``output_tree`` says how they nest. Arrays that the function
    captures become weights where they have at least 4 KiB. A typed random key is the uint32 array of ``jax.random.key_data``.

    Raises :class:`IRError` that lists every operation without a counterpart, each with its source line.
    """
    from neuron_ir.frontends.jax._compat import hide_frames
    from neuron_ir.frontends.jax.importer import import_lowered
    from neuron_ir.frontends.jax.lower import lower

    hide_frames(__file__)
    return import_lowered(lower(function, *args, **kwargs))


def from_stablehlo(source: str | bytes | Path, *, file: str = "") -> Module:
    """The Neuron IR of a StableHLO module: MLIR text, bytecode, a portable artefact, or a file (a :class:`pathlib.Path`) with one.

    ``file`` names the source in messages. Raises :class:`IRError` with the place of what is malformed or unsupported.
    """
    return read_stablehlo(source, file)


def read_stablehlo(source: Any, file: str = "", journal: Journal | None = None) -> Module:
    """See :func:`from_stablehlo`; ``journal`` notes what each operation becomes."""
    from neuron_ir.diagnostics import fail
    from neuron_ir.frontends.jax.importer import import_module
    from neuron_ir.frontends.jax.parse import parse

    if isinstance(source, Path):
        file = file or str(source)
        try:
            source = source.read_bytes()
        except OSError as error:
            raise fail("file", f"{file}: {error.strerror or error}") from None
    if not isinstance(source, str | bytes):
        raise fail("input", f"StableHLO comes as text, bytes or a path, not as a {type(source).__name__}")
    file = file or "<stablehlo>"
    return import_module(parse(source, file=file), file, journal)


def to_stablehlo(module: Module, sizes: Mapping[str, int] | None = None, *, locations: bool = False) -> str:
    """The module's ``@main`` as StableHLO text that jaxlib parses, composites as their bodies.

    ``sizes`` gives each symbolic size a number; ``locations`` adds the user's files and lines. See
    :func:`neuron_ir.frontends.jax.exporter.export`.
    """
    from neuron_ir.frontends.jax.exporter import export

    return export(module, sizes, locations=locations)
