"""StableHLO text, MLIR bytecode and portable artefacts (VHLO) into jaxlib's MLIR module object.

Garbled bytes can stop the whole process inside MLIR's bytecode reader. Bytes from outside are therefore read in a child
process first; the same bytes then read the same way here.
"""

from __future__ import annotations

import re
import subprocess
import sys

from neuron_ir.diagnostics import Diagnostic, IRError, fail
from neuron_ir.frontends.jax import _compat
from neuron_ir.frontends.jax._compat import ir, stablehlo
from neuron_ir.frontends.jax.locations import PARSED
from neuron_ir.locations import FileLoc

MAGIC = b"ML\xefR"
_PRODUCER = b"StableHLO_v"
_PLACE = re.compile(r'loc\("((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_QUANT = b"quant"  # the dialect's name, in bytecode that has such types
_TIMEOUT_SECONDS = 600

# The child needs nothing but jaxlib. Exit code 3 and a message on stderr mean a clean refusal.
_CHILD = """
import sys
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, mhlo, mpmd, sdy, stablehlo
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
data = sys.stdin.buffer.read()
registry = ir.DialectRegistry()
_jax_mlir_ext.register_dialects(registry)
context = ir.Context()
context.append_dialect_registry(registry)
context.load_all_available_dialects()
for register in (sdy.register_dialect, mpmd.register_dialect, mhlo.register_mhlo_dialect,
                 chlo.register_dialect, stablehlo.register_dialect):
    register(context)
try:
    if sys.argv[1] == "portable":
        module = stablehlo.deserialize_portable_artifact(context, data)
    else:
        if len(sys.argv) > 2:
            stablehlo.deserialize_portable_artifact(context, bytes.fromhex(sys.argv[2]))
        with context:
            module = ir.Module.parse(data)
        if any(o.operation.name.startswith("vhlo.") for o in module.body.operations):
            module = stablehlo.deserialize_portable_artifact(context, data)
    ok = module.operation.verify()
except Exception as error:
    sys.stderr.write(str(error))
    sys.exit(3)
sys.exit(0 if ok else 3)
"""


def parse(source: str | bytes, *, file: str = "<stablehlo>", trusted: bool = False) -> ir.Module:
    """Read a StableHLO module and verify it. ``file`` names the source in messages.

    ``trusted`` skips the check in a child process (about half a second), for bytes that this process made.
    Raises :class:`IRError` with the place in the text, or with the versions when the artefact is newer than this jaxlib.
    """
    if isinstance(source, bytes) and not source.startswith(MAGIC):
        try:
            source = source.decode()
        except UnicodeDecodeError as error:
            message = f"neither MLIR bytecode (it begins with {source[:4]!r}) nor UTF-8 text: byte {error.start} is invalid"
            raise fail("syntax", message, FileLoc(file)) from None
    if isinstance(source, str):
        return _parse_text(source, file)
    return _parse_bytes(source, file, trusted)


def producer_version(data: bytes) -> tuple[int, ...] | None:
    """The StableHLO version that a portable artefact states, or None for plain bytecode."""
    start = data.find(_PRODUCER, 0, 64)
    if start < 0:
        return None
    stated = data[start + len(_PRODUCER) :].split(b"\0", 1)[0]
    try:
        return tuple(int(part) for part in stated.decode("ascii").split("."))
    except ValueError:
        return None


def _parse_text(text: str, file: str) -> ir.Module:
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise fail("syntax", "a NUL character in the text", FileLoc(file, line))
    try:
        return ir.Module.parse(text, context=_context("!quant." in text))
    except ir.MLIRError as error:
        raise IRError(_diagnostics(error, text, file)) from None


def _parse_bytes(data: bytes, file: str, trusted: bool) -> ir.Module:
    version = producer_version(data)
    current = tuple(int(part) for part in stablehlo.get_current_version().split("."))
    if version is not None and version > current:
        raise fail(
            "version",
            f"the artefact was written by StableHLO {_dotted(version)}, this jaxlib reads up to {_dotted(current)}",
            FileLoc(file),
            notes=["serialise it for an older version, or upgrade jaxlib"],
        )
    kind = "bytecode" if version is None else "portable"
    if not trusted:
        _try_in_child(data, kind, file)
    context = _context(_QUANT in data)
    try:
        if kind == "portable":
            return stablehlo.deserialize_portable_artifact(context, data)
        module = ir.Module.parse(data, context=context)
        if any(o.operation.name.startswith("vhlo.") for o in module.body.operations):  # artefacts of 2023 do not say what they are
            return stablehlo.deserialize_portable_artifact(context, data)
        return module
    except (ir.MLIRError, ValueError) as error:
        raise _damaged(kind, str(error), file) from None


def _context(quantised: bool) -> ir.Context:
    context = _compat.get("make_ir_context")()
    if quantised:
        _compat.load_quant(context)
    return context


def _try_in_child(data: bytes, kind: str, file: str) -> None:
    command = [sys.executable, "-I", "-c", _CHILD, kind]
    if kind == "bytecode" and _QUANT in data:
        command.append(_compat.quantised_identity().hex())
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise fail("syntax", f"reading the {kind} took over {_TIMEOUT_SECONDS} s", FileLoc(file)) from None
    if done.returncode:
        raise _damaged(kind, done.stderr.decode(errors="replace"), file)


def _damaged(kind: str, details: str, file: str) -> IRError:
    what = "StableHLO portable artefact" if kind == "portable" else "MLIR bytecode"
    reasons = [line.split("error: ", 1)[1] for line in details.splitlines() if "error: " in line]
    return fail("syntax", f"damaged {what}", FileLoc(file), notes=list(dict.fromkeys(reasons))[:5])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _diagnostics(error: ir.MLIRError, text: str, file: str) -> list[Diagnostic]:
    """MLIR's diagnostics with the line of text under each."""
    lines = text.splitlines()
    found = []
    for item in error.error_diagnostics:
        place = _PLACE.match(str(item.location))  # jaxlib gives diagnostics an untyped location
        name, line, column = (place[1], int(place[2]), int(place[3])) if place else ("", 0, 0)
        source = lines[line - 1] if name == PARSED and 0 < line <= len(lines) else None
        loc = FileLoc(file if name == PARSED else name, line, column) if place else FileLoc(file)
        notes = tuple(note.message for note in item.notes)
        found.append(Diagnostic("syntax", item.message, loc, notes, source=source))
    return found or [Diagnostic("syntax", str(error), FileLoc(file))]
