"""``neuron-translate``: from one form of a program to another.

    neuron-translate model.pt2 -o model.nir            the weights go to model.safetensors
    neuron-translate model.mlir -o model.nir           StableHLO, text or bytecode
    neuron-translate model.nir --to stablehlo
    neuron-translate model.nir --to dot | dot -Tsvg
    neuron-translate model.pt2 --explain               what becomes of each operation; with -o file.json as data

Forms are told by the files' endings, or by ``--from`` and ``--to``. Exit codes: 0 fine, 1 diagnostics, 2 usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuron_ir.diagnostics import fail
from neuron_ir.tools.emit import FORMS, emit
from neuron_ir.tools.run import symbol_size
from neuron_ir.tools.streams import decoded, exit_code, read_bytes

if TYPE_CHECKING:
    from neuron_ir.core import Module

__all__ = ["main"]

SOURCES = {".nir": "nir", ".pt2": "pt2", ".mlir": "stablehlo", ".mlirbc": "stablehlo", ".stablehlo": "stablehlo"}
TARGETS = {".nir": "nir", ".mlir": "stablehlo", ".stablehlo": "stablehlo", ".dot": "dot", ".gv": "dot"}


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="neuron-translate",
        description="Translate an exported torch program or StableHLO to Neuron IR, and Neuron IR to StableHLO or a graph.",
        epilog="Exit codes: 0 fine, 1 diagnostics, 2 usage.",
    )
    parser.add_argument("input", nargs="?", default="-", help="the program; - is standard input (default)")
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help="write here instead of to standard output")
    parser.add_argument("--from", dest="source", choices=("nir", "pt2", "stablehlo"), help="form of the input")
    parser.add_argument("--to", dest="target", choices=FORMS, help="form of the output (default: by its ending, else nir)")
    parser.add_argument(
        "--dim", action="append", type=symbol_size, default=[], metavar="S=16", help="replace a symbolic dimension by its size"
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="write what becomes of each operation instead, as JSON to a FILE that ends so; exit code 1 where one is refused",
    )
    parser.add_argument("--no-locations", action="store_true", help="leave out loc(...)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; gives the exit code."""
    parser = arguments()
    try:
        options = parser.parse_args(argv)
        options.source = options.source or SOURCES.get(Path(options.input).suffix)
        if options.explain and options.source == "nir":
            parser.error("--explain is for programs of torch and StableHLO; Neuron IR is what they become")
        options.target = (
            "nir"
            if options.explain
            else options.target or TARGETS.get(Path(options.output).suffix) or ("nir" if options.output == "-" else None)
        )
        if options.source is None:
            parser.error(f"cannot tell the form of {options.input}; give --from (endings: {', '.join(SOURCES)})")
        if options.target is None:
            parser.error(f"cannot tell the form of {options.output}; give --to (endings: {', '.join(TARGETS)})")
    except SystemExit as stop:
        return int(stop.code or 0)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    if options.explain:
        return _explain(options)
    module = _read(options)
    if options.dim:
        from neuron_ir.specialise import check_ranges, specialise

        check_ranges(module.main, dict(options.dim))
        module = specialise(module, dict(options.dim))
    _write(module, options)
    return 0


def _explain(options: argparse.Namespace) -> int:
    """Write what becomes of each operation; 1 where one is refused."""
    import json

    from neuron_ir import explain

    data = read_bytes(options.input)
    explanation = explain(_exported(data, options.input) if options.source == "pt2" else _stablehlo(data, options.input))
    as_json = options.output.endswith(".json")
    _put((json.dumps(explanation.to_dict(), indent=1) if as_json else str(explanation)) + "\n", options.output)
    return 0 if explanation.ok else 1


def _read(options: argparse.Namespace) -> Module:
    """The program as a verified module."""
    if options.source == "nir" and options.input != "-":
        return _read_nir(options.input, options.target)
    data = read_bytes(options.input)
    if options.source == "nir":
        from neuron_ir.parser import parse

        module = parse(decoded(data, options.input), "<stdin>")
    elif options.source == "pt2":
        from neuron_ir import from_torch

        module = from_torch(_exported(data, options.input))
    else:
        from neuron_ir import from_stablehlo

        module = from_stablehlo(_stablehlo(data, options.input), file=options.input)
    module.verify()
    return module


def _read_nir(path: str, target: str) -> Module:
    """A module from its file; with its weights where the output can hold them."""
    from neuron_ir.weights import bind_weights, load, weights_path

    module = load(path) if target == "stablehlo" else _parsed(path)
    if target == "nir" and weights_path(path).exists():
        bind_weights(module, weights_path(path))
    return module


def _parsed(path: str) -> Module:
    from neuron_ir.parser import parse_file

    module = parse_file(path)
    module.verify()
    return module


def _stablehlo(data: bytes, path: str) -> str | bytes:
    return data if _is_bytecode(data) else decoded(data, path)


def _is_bytecode(data: bytes) -> bool:
    """MLIR bytecode, portable artefacts included, begins with these four bytes."""
    return data[:4] == b"ML\xefR"


def _exported(data: bytes, path: str) -> Any:
    """The program that ``torch.export.save`` wrote."""
    import io
    import logging

    try:
        import torch
    except ImportError:
        raise fail("file", f"reading {path} needs torch, which is not installed") from None

    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.ERROR)  # torch logs the traceback of each way of reading that it tries
    try:
        return torch.export.load(io.BytesIO(data))
    except Exception as error:  # torch raises whatever its zip, JSON and schema readers raise
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise fail("file", f"{path} is not a program saved by torch.export.save: {reason}") from None
    finally:
        logger.setLevel(level)


def _write(module: Module, options: argparse.Namespace) -> None:
    if options.target == "nir" and options.output != "-":
        from neuron_ir.weights import save

        save(module, options.output, locations=not options.no_locations)
        return
    _put(emit(module, options.target, locations=not options.no_locations), options.output)


def _put(text: str, path: str) -> None:
    if path == "-":
        sys.stdout.write(text)
        return
    from neuron_ir.files import write_text

    write_text(path, text)


if __name__ == "__main__":
    sys.exit(main())
