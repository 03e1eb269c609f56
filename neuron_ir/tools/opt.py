"""``neuron-opt``: read Neuron IR, run passes over it, print it.

    neuron-opt model.nir --pass cse --pass "fuse{max-ops=16}"
    neuron-opt model.nir --pass-pipeline "module(func(cse,dce),fuse)" --verify-numerics -o out.nir

Exit codes: 0 fine, 1 diagnostics, 2 usage. Nothing heavy is imported before the arguments are read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from neuron_ir.diagnostics import IRError, fail
from neuron_ir.tools.emit import FORMS
from neuron_ir.tools.streams import decoded, exit_code, read_bytes

if TYPE_CHECKING:
    from neuron_ir.core import Module
    from neuron_ir.instrument import Instrument
    from neuron_ir.passmanager import Pass

__all__ = ["main"]

SPLIT = "// -----"


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="neuron-opt",
        description="Read Neuron IR, run passes over it, and print the result.",
        epilog="Exit codes: 0 fine, 1 diagnostics, 2 usage.",
    )
    parser.add_argument("input", nargs="?", default="-", help="the .nir file; - is standard input (default)")
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help="write here instead of to standard output")
    parser.add_argument(
        "--emit", choices=FORMS, default="nir", help="form of the output (generic: every attribute, values by number)"
    )
    parser.add_argument("--no-locations", action="store_true", help="leave out loc(...)")
    parser.add_argument("--split-input-file", action="store_true", help=f"treat the parts between lines '{SPLIT}' one by one")
    parser.add_argument("--list-passes", action="store_true", help="print every pass with its options and pipelines, and stop")
    parser.add_argument("--list-ops", action="store_true", help="print every op with a line of help, and stop")
    _pass_arguments(parser.add_argument_group("passes"))
    _check_arguments(parser.add_argument_group("checks"))
    _print_arguments(parser.add_argument_group("watching"))
    return parser


def _pass_arguments(group: argparse._ArgumentGroup) -> None:
    pipelines = {"action": "append", "dest": "pipelines", "default": []}
    group.add_argument("--pass", metavar="NAME{OPTIONS}", help="run one pass; may be given again", **pipelines)  # type: ignore[arg-type]
    group.add_argument("--pass-pipeline", metavar="TEXT", help='for example "module(func(cse,dce),fuse{max-ops=16})"', **pipelines)  # type: ignore[arg-type]
    group.add_argument("--pipeline", metavar="NAME", help="run a named pipeline, such as trn2", **pipelines)  # type: ignore[arg-type]
    for level in range(4):
        help = f"run the named pipeline O{level}"
        group.add_argument(f"-O{level}", action="append_const", const=f"O{level}", dest="pipelines", help=help)


def _check_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--verify-each", action=argparse.BooleanOptionalAction, default=True, help="verify after each pass (default: yes)"
    )
    group.add_argument("--verify-roundtrip", action="store_true", help="print and read back after each pass, and compare")
    group.add_argument(
        "--verify-diagnostics",
        action="store_true",
        help="require exactly the errors that '// expected-error {{...}}' lines announce",
    )
    group.add_argument(
        "--verify-numerics", nargs="?", type=float, const=-1.0, metavar="RTOL",
        help="run before and after each pass on seeded inputs and compare; RTOL for passes that are not exact",
    )  # fmt: skip
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of the inputs of --verify-numerics (default: 0)")
    group.add_argument("--crash-reproducer", metavar="FOLDER", help="when a pass fails, write there what is needed to replay it")
    group.add_argument("--run-reproducer", metavar="FOLDER", help="replay what --crash-reproducer wrote")


def _print_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--print-ir-before", action="append", default=[], metavar="PASS", help="print the IR before that pass")
    group.add_argument("--print-ir-after", action="append", default=[], metavar="PASS", help="print the IR after that pass")
    group.add_argument("--print-ir-before-all", action="store_true", help="print the IR before each pass")
    group.add_argument("--print-ir-after-all", action="store_true", help="print the IR after each pass")
    group.add_argument("--print-ir-after-change", action="store_true", help="print the IR after each pass that changed it")
    group.add_argument("--print-ir-after-failure", action="store_true", help="print the IR when a pass fails")
    group.add_argument("--print-ir-tree-dir", metavar="FOLDER", help="write the IR after each pass to a file of its own")
    group.add_argument(
        "--timing", nargs="?", const="text", choices=("text", "json"), help="print the time of each pass to standard error"
    )
    group.add_argument("--pass-statistics", action="store_true", help="print what each pass did and declined, with reasons")
    group.add_argument(
        "--cost-report", nargs="?", const="text", choices=("text", "json"),
        help="print what each kernel costs on the target to standard output; the IR then goes to the file of -o alone",
    )  # fmt: skip
    group.add_argument(
        "--memory-report", nargs="?", const="text", choices=("text", "json"),
        help="print what lives in HBM when, what is reused and what may be given away, in place of the IR",
    )  # fmt: skip
    group.add_argument("--roofline", metavar="FILE", help="write a picture of flops per byte and speed of each kernel, as SVG")
    group.add_argument("--target", metavar="NAME", help="trn1, trn2 or trn3: the hardware whose limits passes and reports take")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; gives the exit code."""
    try:
        options = arguments().parse_args(_attach_values(sys.argv[1:] if argv is None else argv))
    except SystemExit as stop:
        return int(stop.code or 0)
    return exit_code(lambda: _run(options))


def _attach_values(argv: Sequence[str]) -> list[str]:
    """``--verify-numerics m.nir`` must not read the file's name as its value: an option of ``_ALONE`` has one after ``=`` only."""
    return [a if a not in _ALONE else f"{a}={_ALONE[a]}" for a in argv]


_ALONE = {"--verify-numerics": "-1", "--timing": "text", "--cost-report": "text", "--memory-report": "text"}


def _run(options: argparse.Namespace) -> int:
    if options.list_ops or options.list_passes:
        from neuron_ir.tools.listing import list_ops, list_passes

        print(list_ops() if options.list_ops else list_passes(), end="")
        return 0
    if options.run_reproducer:
        _load_reproducer(options)
    if options.target:
        from neuron_ir.target import target

        target(options.target)
    passes = _passes(options.pipelines)
    if passes is None:
        return 2
    text = decoded(read_bytes(options.input), options.input)
    name = "<stdin>" if options.input == "-" else options.input
    parts = split_input(text) if options.split_input_file else [text]
    if options.verify_diagnostics:
        return _verify_diagnostics(parts, name, passes, options)
    modules: list[Module] = []
    failed = 0
    for part in parts:
        try:
            modules.append(_optimise(part, name, passes, options))
        except IRError as error:
            if not options.split_input_file:
                raise
            print(error, file=sys.stderr)
            failed = 1
    if not failed:
        _report(modules, options)
        _write(modules, options)
    return failed


def _load_reproducer(options: argparse.Namespace) -> None:
    """Take input and pipeline from a reproducer's folder."""
    import json

    folder = Path(options.run_reproducer)
    try:
        record = json.loads((folder / "reproducer.json").read_text(encoding="utf-8"))
        options.pipelines = [record["pipeline"]]
        known = {"--verify-roundtrip", "--verify-numerics"}
        for flag in record["flags"]:
            if flag.split("=")[0] not in known and flag != "--no-verify-each":
                raise ValueError(f"flag {flag}")
        replayed = arguments().parse_args(record["flags"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise fail("file", f"{folder} is not a reproducer's folder: {error}") from None
    options.input = str(folder / "input.nir")
    for name in ("verify_each", "verify_roundtrip", "verify_numerics", "seed"):
        setattr(options, name, getattr(replayed, name))


def _passes(pipelines: Sequence[str]) -> list[Pass] | None:
    """The passes of all ``--pass`` and ``--pass-pipeline``; after a message, ``None`` for a mistake in them."""
    from neuron_ir.pipeline import parse_pipeline

    try:
        return [p for text in pipelines or () for p in parse_pipeline(text)]
    except IRError as error:
        print(error, file=sys.stderr)
        return None


def split_input(text: str) -> list[str]:
    """The parts between ``// -----`` lines, each after as many empty lines as keep its line numbers those of the whole file."""
    parts: list[str] = []
    current: list[str] = []
    for number, line in enumerate(text.split("\n")):
        if line.strip() == SPLIT:
            parts.append("\n".join(current))
            current = [""] * (number + 1)
        else:
            current.append(line)
    return [*parts, "\n".join(current)]


def _optimise(text: str, name: str, passes: Sequence[Pass], options: argparse.Namespace) -> Module:
    """Parse one module and run the passes over it."""
    from neuron_ir.parser import parse
    from neuron_ir.passmanager import PassManager

    module = parse(text, name)
    module.verify()
    if options.target:
        module.attrs["target"] = options.target
    _bind(module, name)
    PassManager(passes, instruments(options)).run(module)
    return module


def _bind(module: Module, name: str) -> None:
    """Bind the weights beside the input, where there are any: passes and checks may want them, printing does not."""
    from neuron_ir.weights import bind_weights, weights_path

    path = weights_path(name)
    if name != "<stdin>" and path.exists():
        bind_weights(module, path)


def instruments(options: argparse.Namespace) -> list[Instrument]:
    """The instruments that the flags ask for."""
    from neuron_ir import instrument as i

    found: list[Instrument] = []
    locations = not options.no_locations
    before = None if options.print_ir_before_all else options.print_ir_before
    after = None if options.print_ir_after_all else options.print_ir_after
    change, failure = options.print_ir_after_change, options.print_ir_after_failure
    if before is None or after is None or before or after or change or failure:
        found.append(i.PrintIR(before, after, change_only=change, on_failure=failure, locations=locations))
    if options.print_ir_tree_dir:
        found.append(i.PrintTree(options.print_ir_tree_dir, locations))
    if options.verify_each:
        found.append(i.VerifyEach())
    if options.verify_roundtrip:
        found.append(i.VerifyRoundtrip())
    if options.verify_numerics is not None:
        from neuron_ir.numerics import VerifyNumerics

        rtol = options.verify_numerics
        found.append(VerifyNumerics(rtol if rtol >= 0 else None, options.seed))
    if options.timing:
        found.append(i.Timing(options.timing == "json"))
    if options.pass_statistics:
        found.append(i.Statistics())
    if options.crash_reproducer:
        found.append(i.CrashReproducer(options.crash_reproducer, _replay_flags(options)))
    return found


def _replay_flags(options: argparse.Namespace) -> list[str]:
    """The flags that decide whether a pipeline fails."""
    flags = [] if options.verify_each else ["--no-verify-each"]
    flags += ["--verify-roundtrip"] if options.verify_roundtrip else []
    if options.verify_numerics is not None:
        flags += [f"--verify-numerics={options.verify_numerics}", f"--seed={options.seed}"]
    return flags


def _verify_diagnostics(parts: Sequence[str], name: str, passes: Sequence[Pass], options: argparse.Namespace) -> int:
    """Run every part and hold its diagnostics against the expected ones; gives the exit code."""
    from neuron_ir.tools.expected import mismatches

    problems: list[str] = []
    for part in parts:
        error: IRError | None = None
        try:
            _optimise(part, name, passes, options)
        except IRError as raised:
            error = raised
        problems += mismatches(part, name, error.diagnostics if error else ())
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _report(modules: Sequence[Module], options: argparse.Namespace) -> None:
    """Print and draw the reports that the flags ask for, of each module's entry function."""
    if options.memory_report:
        from neuron_ir.memory_plan import memory_json, memory_table

        for module in modules:
            print(memory_json(module.main) if options.memory_report == "json" else memory_table(module.main), end="")
    if not (options.cost_report or options.roofline):
        return
    from neuron_ir.kernel_cost import kernel_costs, report_json, report_table, sized
    from neuron_ir.target import target

    for module in modules:
        name = str(module.attrs.get("target", "reference"))
        on = target("trn2" if name == "reference" else name)
        main = sized(module).main
        if options.cost_report:
            print(report_json(main, on) if options.cost_report == "json" else report_table(main, on), end="")
        if options.roofline:
            from neuron_ir.files import write_text
            from neuron_ir.roofline import roofline_svg

            write_text(options.roofline, roofline_svg(kernel_costs(main, on), on))


def _write(modules: Sequence[Module], options: argparse.Namespace) -> None:
    """Print the modules, or write them to the output file: a single one in Neuron IR with its weights beside it."""
    from neuron_ir.tools.emit import emit

    locations = not options.no_locations
    if options.output != "-" and options.emit == "nir" and len(modules) == 1 and modules[0].weights:
        from neuron_ir.weights import save

        save(modules[0], options.output, locations)
        return
    if options.output == "-" and (options.cost_report or options.memory_report):
        return
    text = f"{SPLIT}\n".join(emit(m, options.emit, locations) for m in modules)
    if options.output == "-":
        sys.stdout.write(text)
        return
    from neuron_ir.files import write_text

    write_text(options.output, text)


if __name__ == "__main__":
    sys.exit(main())
