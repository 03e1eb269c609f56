"""Every pass on the programs of the other yardsticks' sample, values compared before and after: what ``--verify-numerics`` does.

A case is ``yardstick|case`` of ``sample.json``. The case is run as it is, and each module that it compiles is kept; then each pass
alone, and each of the pipelines, must give a valid module with the same values: bit for bit after an exact pass, within the stated
bound after another.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

NAME = "passes"
_OF = ("opinfo", "harnesses", "module_db", "other_dbs", "transformers_models")
_PIPELINES = ("O2", "O3", "trn2")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this yardstick."""
    parser.add_argument("--of", default=",".join(_OF), help="yardsticks, separated by commas")


def cases(args: argparse.Namespace) -> list[str]:
    """The cases of the sample that are right."""
    from tests.yardsticks.sample import listed

    found = listed()
    return [f"{name}|{case}" for name in args.of.split(",") for case, outcome in found[name].items() if outcome == "right"]


def prepare() -> None:
    """Load everything, so that the first case takes no longer than the others."""
    run_case("opinfo|add:f32:0")


def run_case(case: str) -> tuple[str, str]:
    """The outcome of one case."""
    name, _, inner = case.partition("|")
    yardstick = importlib.import_module(f"tests.yardsticks.{name}")
    with _modules_compiled() as modules:
        outcome, detail = yardstick.run_case(inner)
    if outcome != "right":
        return outcome, detail
    stopped = [reason for reason in map(_stops, modules) if reason]
    if stopped:
        return "no sample", stopped[0]
    found = [problem for module in modules for problem in problems(module)]
    return ("wrong", "; ".join(found)) if found else ("right", f"{len(modules)} modules")


@contextmanager
def _modules_compiled() -> Iterator[list[Any]]:
    """Copies of the modules that are given to ``neuron_ir.compile``."""
    import neuron_ir

    compile_module, modules = neuron_ir.compile, []

    def recorded(module: Any, *args: Any, **options: Any) -> Any:
        modules.append(module.clone())
        return compile_module(module, *args, **options)

    with mock.patch.object(neuron_ir, "compile", recorded):
        yield modules


def _stops(module: Any) -> str:
    """Why a program stops on seeded random inputs, such as an index or matrix that it refuses, before any pass; else nothing."""
    from neuron_ir.diagnostics import IRError

    try:
        _verifier().start([], module)
    except IRError as error:
        return error.diagnostics[0].message
    return ""


def problems(module: Any) -> Iterator[str]:
    """What goes wrong with each pass and each pipeline."""
    from neuron_ir.instrument import VerifyEach
    from neuron_ir.passmanager import PassManager
    from neuron_ir.pipeline import parse_pipeline, pass_names

    numerics = _verifier()
    for passes in (*pass_names(), *_PIPELINES):
        try:
            PassManager(parse_pipeline(passes), [VerifyEach(), numerics]).run(module.clone())
        except Exception as error:
            yield f"{passes}: {type(error).__name__}: {' '.join(str(error).split())}"


def _verifier() -> Any:
    """A :class:`VerifyNumerics` for many pipelines over one module: it is run once, and again where a pass changed something."""
    from neuron_ir.numerics import VerifyNumerics

    class Verifier(VerifyNumerics):
        first: dict[str, list[Any]] = {}

        def start(self, passes: Any, module: Any) -> None:
            if not self.first:
                super().start(passes, module)
                self.first = self.values
            self.values = self.first

        def after(self, index: int, p: Any, module: Any) -> None:
            weights, old = module.weights, self.copy.weights
            same = len(weights) == len(old) and all(old.get(name) is value for name, value in weights.items())
            if not same or module.text() != self.copy.text():
                super().after(index, p, module)

    return Verifier()


if __name__ == "__main__":
    from tests.yardsticks.runner import main

    raise SystemExit(main("tests.yardsticks.passes"))
