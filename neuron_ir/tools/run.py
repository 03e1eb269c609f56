"""``neuron-run``: run a ``.nir`` program with the weights beside it, on given or seeded random inputs.

    neuron-run model.nir --inputs x.npz --output y.npz
    neuron-run model.nir --random 0 --dim S=16 --time 20

Prints one line per output: name, type, least, greatest and mean value, number of NaNs. Exit codes: 0 fine, 1 diagnostics, 2 usage.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from neuron_ir.diagnostics import fail
from neuron_ir.files import write_with
from neuron_ir.tools.streams import decoded, exit_code, read_bytes

if TYPE_CHECKING:
    from neuron_ir.backends.jax_cpu.signature import Signature
    from neuron_ir.core import Func, Module
    from neuron_ir.types import TensorType

__all__ = ["main", "symbol_size"]


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="neuron-run",
        description="Run a .nir program, with the weights in the .safetensors file beside it, and print what comes out.",
        epilog="Exit codes: 0 fine, 1 diagnostics, 2 usage.",
    )
    parser.add_argument("model", help="the .nir file; - is standard input, for a program without weights")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--inputs", metavar="X.npz", help="the inputs by name, or in order as arr_0, arr_1, ... (numpy.savez)")
    source.add_argument("--random", type=int, metavar="SEED", help="make up inputs: normal floats, integers from 0 to 3")
    parser.add_argument(
        "--dim",
        action="append",
        type=symbol_size,
        default=[],
        metavar="S=16",
        help="with --random: the size of a symbolic dimension",
    )
    parser.add_argument("--output", metavar="Y.npz", help="write the outputs here, by name; bf16 and the like as raw bytes")
    parser.add_argument(
        "--time", type=_count, metavar="N", help="after a first call, time N more and print least, median, greatest"
    )
    parser.add_argument("--target", default="reference", help="what to run on (default: reference)")
    parser.add_argument(
        "--subnormals",
        choices=("flush", "exact"),
        default="flush",
        help="floats below the smallest normal number count as 0 (flush, the default), or as themselves, more slowly (exact)",
    )
    return parser


def symbol_size(text: str) -> tuple[str, int]:
    """The argument ``S=16`` as name and size."""
    name, _, size = text.partition("=")
    if not name.isidentifier() or not size.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form S=16")
    return name, int(size)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of runs")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; gives the exit code."""
    parser = arguments()
    try:
        options = parser.parse_args(argv)
        if options.dim and options.random is None:
            parser.error("--dim needs --random; the sizes of given inputs are their own")
    except SystemExit as stop:
        return int(stop.code or 0)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    from neuron_ir.backends.base import compile
    from neuron_ir.backends.jax_cpu.signature import Signature

    module = _load(options.model)
    signature = Signature.of(module.main)
    inputs = _inputs(module, signature, options)
    program = compile(module, options.target, subnormals=options.subnormals)
    start = time.perf_counter()
    outputs = program(**inputs)
    first_call = time.perf_counter() - start
    named = _by_name(module.main, signature, outputs)
    print(_table([(name, *_summary(array)) for name, array in named.items()]), end="")
    if options.time:
        print(_timing(lambda: program(**inputs), options.time, first_call))
    if options.output is not None:
        write_with(options.output, lambda file: _write_npz(file, named))
    return 0


def _load(path: str) -> Module:
    if path != "-":
        from neuron_ir.weights import load

        return load(path)
    from neuron_ir.parser import parse

    module = parse(decoded(read_bytes("-"), "<stdin>"), "<stdin>")
    module.verify()
    return module


# --- inputs -----------------------------------------------------------------------------------------------------------


def _inputs(module: Module, signature: Signature, options: argparse.Namespace) -> dict[str, Any]:
    """The program's user inputs by name."""
    if options.inputs:
        return _given(signature, options.inputs)
    if options.random is not None:
        return _random(module, signature, dict(options.dim), options.random)
    if signature.inputs:
        names = ", ".join(f"{signature.name(i)}: {module.main.args[i].type}" for i in signature.inputs)
        raise fail("input", f"@{module.main.name} takes {names}; give --inputs or --random", module.main.loc)
    return {}


def _random(module: Module, signature: Signature, dims: dict[str, int], seed: int) -> dict[str, Any]:
    from neuron_ir.core import Func
    from neuron_ir.dims import evaluate
    from neuron_ir.numerics import example_sizes, random_inputs
    from neuron_ir.parser import parse_dim
    from neuron_ir.specialise import check_ranges, size_inputs

    func = module.main
    sizes = example_sizes(func) | dims
    check_ranges(func, sizes)
    user = Func(func.name, [func.args[i].type.specialise(sizes) for i in signature.inputs], (), func.loc)
    names = [signature.name(i) for i in signature.inputs]
    for arg, name in zip(user.args, names, strict=True):
        arg.name = name
    numbers = {name: evaluate(parse_dim(text), sizes) for _, name, text in size_inputs(func)}
    return dict(zip(names, random_inputs(user, {}, seed), strict=True)) | numbers


def _given(signature: Signature, path: str) -> dict[str, Any]:
    """The arrays of an ``.npz`` file by input name."""
    arrays = _read(path)
    names = [signature.name(i) for i in signature.inputs]
    if not any(name in names for name in arrays) and set(arrays) == {f"arr_{n}" for n in range(len(arrays))}:
        if len(arrays) > len(names):
            raise fail("input", f"{path} holds {len(arrays)} arrays, but the program takes {len(names)}: {', '.join(names)}")
        arrays = {name: arrays[f"arr_{n}"] for n, name in enumerate(names[: len(arrays)])}
    for index, name in zip(signature.inputs, names, strict=True):
        if name in arrays:
            arrays[name] = _typed(arrays[name], signature.func.args[index].type)
    return arrays


def _read(path: str) -> dict[str, Any]:
    import zipfile

    import numpy

    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("it is not an archive as numpy.savez writes it")
            file.seek(0)
            with numpy.load(file, allow_pickle=False) as archive:
                return dict(archive)
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise fail("file", f"cannot read {path} as .npz: {getattr(error, 'strerror', None) or error}") from None


def _typed(array: Any, wanted: TensorType) -> Any:
    """Raw bytes, as numpy stores the types that it does not know, get the type that the program declares."""
    raw = array.dtype.kind == "V" and array.dtype.names is None and array.itemsize == wanted.dtype.nbytes
    return array.view(wanted.dtype.numpy) if raw else array


# --- outputs ----------------------------------------------------------------------------------------------------------


def _by_name(func: Func, signature: Signature, outputs: Any) -> dict[str, Any]:
    """The user outputs as numpy arrays by name; ``out0``, ``out1``, ... where the program names none."""
    import numpy

    values = signature.flat(outputs)
    names = [str(func.result_attrs[i].get("name") or f"out{n}") for n, i in enumerate(signature.outputs)]
    if len(set(names)) != len(names):
        names = [f"{name}_{n}" for n, name in enumerate(names)]
    return {name: numpy.asarray(value) for name, value in zip(names, values, strict=True)}


def _summary(array: Any) -> tuple[str, ...]:
    """Type, least, greatest, mean and number of NaNs of an array; NaNs do not count in the first three."""
    import numpy

    from neuron_ir.dtypes import dtype_of_numpy
    from neuron_ir.types import TensorType

    element = dtype_of_numpy(array.dtype)
    text = str(TensorType(array.shape, element))
    if element.kind in ("bool", "int", "uint"):
        if not array.size:
            return text, "-", "-", "-", "0"
        wide = array.astype(numpy.uint64 if element.kind == "uint" else numpy.int64)
        return text, str(int(wide.min())), str(int(wide.max())), f"{wide.mean(dtype=numpy.float64):.6g}", "0"
    values = numpy.abs(array.astype(numpy.complex128)) if element.is_complex else array.astype(numpy.float64)
    nans = numpy.isnan(values)
    known = values[~nans]
    if not known.size:
        return text, "-", "-", "-", str(int(nans.sum()))
    with numpy.errstate(invalid="ignore", over="ignore"):  # the mean of inf and -inf is NaN, and shown as such
        numbers = [f"{float(x):.6g}" for x in (known.min(), known.max(), known.mean())]
    magnitude = [f"|{n}|" for n in numbers] if element.is_complex else numbers
    return text, *magnitude, str(int(nans.sum()))


def _write_npz(file: BinaryIO, arrays: dict[str, Any]) -> None:
    """Write what ``numpy.savez`` writes; that function cannot name an array ``file`` or ``allow_pickle``."""
    import zipfile

    import numpy

    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                numpy.lib.format.write_array(member, array, allow_pickle=False)


def _table(rows: Sequence[Sequence[str]]) -> str:
    cells = [("output", "type", "min", "max", "mean", "nan"), *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(6)]
    return "".join("  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip() + "\n" for row in cells)


def _timing(run: Callable[[], Any], repeats: int, first_call: float) -> str:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    figures = f"min {min(times):.3f} ms, median {statistics.median(times):.3f} ms, max {max(times):.3f} ms"
    return f"{repeats} runs: {figures}; first call {first_call * 1e3:.0f} ms"


if __name__ == "__main__":
    sys.exit(main())
