"""``python -m tests.yardsticks.sample`` runs a few cases of every yardstick and fails where one is no longer what it was.

``sample.json`` lists the cases by yardstick (a module of this folder) with the outcome expected: ``right``, or ``refused`` for what
has no meaning here. A case refused before and right now is reported and is no failure. ``--record`` writes the outcomes of this run
into the list, for cases added by hand or improved; a case that is neither right nor refused is left out of it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.yardsticks import runner
from tests.yardsticks.results import Outcome

NAME = "sample"
LIST = Path(__file__).with_name("sample.json")
_EXPECTED = ("right", "refused")
_PLATFORMS = dict.fromkeys(("plugin", "conformance"), "cpu,neuron")  # yardsticks for which JAX has more platforms than the CPU


def listed() -> dict[str, dict[str, str]]:
    """Yardstick -> case -> expected outcome."""
    return dict(json.loads(LIST.read_text(encoding="utf-8")))


def prepare() -> None:
    """Load the frameworks once for all yardsticks, JAX for the platforms that were chosen before this process began."""
    for name in ("torch", "jax", "neuron_ir"):
        importlib.import_module(name)


def run_case(case: str) -> tuple[str, str]:
    """The outcome of ``yardstick|case``."""
    module, _, name = case.partition("|")
    outcome: tuple[str, str] = importlib.import_module(f"tests.yardsticks.{module}").run_case(name)
    return outcome


def regressions(outcomes: Sequence[Outcome], expected: dict[str, dict[str, str]]) -> tuple[list[str], list[str]]:
    """What is worse than expected, and what is better, in words."""
    worse, better = [], []
    for outcome in sorted(outcomes):
        module, _, name = outcome.case.partition("|")
        wanted = expected[module].get(name)
        if outcome.outcome == wanted:
            continue
        words = f"{module} {name}: {outcome.outcome} where {wanted} is expected: {outcome.detail}"
        (better if outcome.outcome == "right" else worse).append(words)
    return worse, better


def record(outcomes: Sequence[Outcome]) -> None:
    """Write the list anew."""
    found: dict[str, dict[str, str]] = {}
    for outcome in sorted(outcomes):
        module, _, name = outcome.case.partition("|")
        if outcome.outcome in _EXPECTED:
            found.setdefault(module, {})[name] = outcome.outcome
    LIST.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sample. Exit code 1 on a regression."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds of processor time for one case")
    parser.add_argument("--record", action="store_true", help="write the outcomes into the list")
    options = parser.parse_args(argv)
    started, expected = time.monotonic(), listed()
    outcomes: list[Outcome] = []
    for platforms in ("cpu", *sorted(set(_PLATFORMS.values()))):
        os.environ["JAX_PLATFORMS"] = platforms
        modules = [m for m in expected if _PLATFORMS.get(m, "cpu") == platforms]
        cases = [f"{module}|{name}" for module in modules for name in expected[module]]
        outcomes += runner.run("tests.yardsticks.sample", cases, options.jobs, options.timeout)
    worse, better = regressions(outcomes, expected)
    for line in (*worse, *better):
        print(line)
    if options.record:
        record(outcomes)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = f"{time.monotonic() - started:.0f} s, {spent.ru_utime + spent.ru_stime:.0f} s of processor time"
    counts = ", ".join(f"{n} {name}" for name, n in Counter(o.outcome for o in outcomes).items())
    print(f"sample of {len(expected)} yardsticks: {counts}; {len(worse)} worse than expected; {cost}")
    return int(bool(worse))


if __name__ == "__main__":
    raise SystemExit(main())
