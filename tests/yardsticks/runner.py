"""Runs the cases of a yardstick in killable worker processes and counts the outcomes.

A yardstick is a module with ``NAME``, ``cases(args) -> list[str]``, ``run_case(case) -> (outcome, detail)`` and, where it needs
more options than the common ones, ``arguments(parser)``. One with ``run_cases(cases) -> list of (outcome, detail)`` may run
``--batch`` cases at once, where that is cheaper; cases of a batch that dies are run one by one. ``runner.main(module_name)``
spreads the cases over ``--jobs`` processes; a case that takes longer than ``--timeout`` seconds of processor time ends its
process; every outcome is one line of ``--log``, and a run can ``--resume``. ``--report`` writes the counts as
``results/<NAME>.json`` (see ``results.py``) and makes
``specs/coverage.md`` from it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.yardsticks import coverage
from tests.yardsticks.results import BAD, FOLDER, OUTCOMES, Outcome, ceiling, collect

_START = 300.0  # seconds for a worker to load the frameworks
_PATIENCE = 10  # a case that waits for processors may take so many times its --timeout by the clock


class _Worker:
    """One process that runs cases one after another."""

    def __init__(self, module: str):
        here, there = multiprocessing.Pipe()
        self.connection: Connection = here
        self.process = multiprocessing.get_context("spawn").Process(target=_serve, args=(module, there), daemon=True)
        self.process.start()
        there.close()
        self.batch: list[str] = []
        self.is_ready = False
        self.started, self.cpu_before = time.monotonic(), 0.0

    def give(self, batch: list[str]) -> None:
        self.batch = batch
        self.restart()
        self.connection.send(batch)

    def restart(self) -> None:
        """Count the case's time from now on."""
        self.started, self.cpu_before = time.monotonic(), self.cpu_seconds()

    def cpu_seconds(self) -> float:
        """Processor time that the process has used; 0 where the system does not tell."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_late(self, seconds: float) -> bool:
        """Whether the case took more processor time than ``seconds``, or far longer by the clock."""
        waited = time.monotonic() - self.started
        return waited > seconds and (waited > _PATIENCE * seconds or self.cpu_seconds() - self.cpu_before > seconds)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


def _serve(module_name: str, connection: Connection) -> None:
    module = importlib.import_module(module_name)
    if hasattr(module, "prepare"):
        module.prepare()
    connection.send(None)  # only from here on a case's time counts
    while True:
        try:
            batch = connection.recv()
        except EOFError:
            return
        try:
            answers = module.run_cases(batch) if len(batch) > 1 else [module.run_case(batch[0])]
        except Exception as error:  # whatever escapes a yardstick's own judgement is an unclear error of the path under test
            answers = [("unclear", f"{type(error).__name__}: {error}")] * len(batch)
        connection.send([(outcome, str(detail)[:600]) for outcome, detail in answers])


def run(
    module_name: str, cases: Sequence[str], jobs: int, timeout: float, sink: Path | None = None, batch: int = 1
) -> list[Outcome]:
    """Run the cases, so many at once, and give their outcomes in the order in which they ended."""
    todo = [list(cases[i : i + batch]) for i in range(0, len(cases), batch)][::-1]
    done: list[Outcome] = []
    workers = [_Worker(module_name) for _ in range(min(jobs, len(todo)))]
    for worker in workers:
        worker.give(todo.pop())
    while workers:
        ready = wait([w.connection for w in workers], timeout=1.0)
        for worker in list(workers):
            outcomes = _poll(worker, worker.connection in ready, timeout)
            if outcomes is None:
                continue
            alive = outcomes[0].outcome not in ("crashed", "timeout")
            if not alive and len(outcomes) > 1:
                todo += [[case] for case in reversed(worker.batch)]
                outcomes = []
            for outcome in outcomes:
                done.append(outcome)
                _record(outcome, sink)
            _progress(done, len(cases))
            if not todo or not alive:
                worker.end()
                workers.remove(worker)
            if todo and not alive:
                worker = _Worker(module_name)
                workers.append(worker)
            if todo and worker in workers:
                worker.give(todo.pop())
    print(file=sys.stderr)
    return done


def _poll(worker: _Worker, ready: bool, timeout: float) -> list[Outcome] | None:
    """The outcomes of a worker's cases, ``None`` while it runs. One that died gives the same for all."""
    seconds = time.monotonic() - worker.started
    if ready:
        try:
            answers = worker.connection.recv()
        except EOFError:
            worker.process.join()
            return [Outcome(case, "crashed", f"exit code {worker.process.exitcode}", seconds) for case in worker.batch]
        if answers is not None:
            return [Outcome(case, *answer, seconds / len(answers)) for case, answer in zip(worker.batch, answers, strict=True)]
        worker.is_ready = True
        worker.restart()
        return None
    limit = timeout * len(worker.batch) if worker.is_ready else max(timeout, _START)
    late = worker.is_late(limit)
    return [Outcome(case, "timeout", f"more than {limit:.0f} s", seconds) for case in worker.batch] if late else None


def _record(outcome: Outcome, sink: Path | None) -> None:
    if sink is not None:
        with sink.open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcome._asdict()) + "\n")


def _progress(done: Sequence[Outcome], total: int) -> None:
    if not sys.stderr.isatty() and len(done) % 50 and len(done) < total:
        return
    counts = Counter(o.outcome for o in done)
    text = ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts[name])
    print(f"\r{len(done)}/{total}: {text}".ljust(110), end="", file=sys.stderr, flush=True)


def table(title: str, outcomes: Sequence[Outcome]) -> str:
    """A Markdown table of the counts, with the share of right ones among those that the framework itself can express."""
    counts = Counter(o.outcome for o in outcomes)
    most = ceiling(counts)
    share = f"{100 * counts['right'] / most:.1f} %" if most else "-"
    head = ["", *OUTCOMES, "ceiling", "right of ceiling"]
    row = [title, *(str(counts[name]) for name in OUTCOMES), str(most), share]
    return "\n".join("| " + " | ".join(r) + " |" for r in (head, ["---"] * len(head), row))


def main(module_name: str, argv: Sequence[str] | None = None) -> int:
    """The command line of a yardstick. Exit code 1 where a case is wrong, unclear, crashed or timed out."""
    module: Any = importlib.import_module(module_name)
    parser = argparse.ArgumentParser(description=module.__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one case")
    parser.add_argument("--sample", type=int, default=0, help="run this many cases, drawn by a fixed seed; 0: all")
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--log", type=Path, help="a JSON-lines file of outcomes")
    parser.add_argument("--resume", action="store_true", help="leave out what --log already has")
    parser.add_argument("--again", default="", help="with --resume: run again those with these outcomes (comma-separated)")
    parser.add_argument("--report", type=Path, nargs="?", const=Path(), help="write the counts here (default: results/NAME.json)")
    parser.add_argument("--show", default=",".join(BAD), help="outcomes whose cases are listed")
    if hasattr(module, "run_cases"):
        parser.add_argument("--batch", type=int, default=1, help="so many cases at once")
    if hasattr(module, "arguments"):
        module.arguments(parser)
    args = parser.parse_args(argv)
    cases = [c for c in module.cases(args) if args.only in c]
    population = len(cases)
    if args.sample and args.sample < len(cases):
        cases = sorted(random.Random(0).sample(cases, args.sample))
    earlier = _read(args.log, args.again.split(",")) if args.resume and args.log and args.log.exists() else []
    known = {o.case for o in earlier}
    outcomes = earlier + run(
        module_name, [c for c in cases if c not in known], args.jobs, args.timeout, args.log, getattr(args, "batch", 1)
    )
    shown = args.show.split(",")
    for outcome in sorted(outcomes):
        if outcome.outcome in shown or "all" in shown:
            print(f"{outcome.outcome}: {outcome.case}: {outcome.detail}")
    print(table(module.NAME, outcomes))
    if args.report is not None:
        path = args.report if args.report.name else FOLDER / f"{module.NAME}.json"
        collect(module, outcomes, max(population, len(outcomes)), _command(module_name, args, parser)).write(path)
        if path.parent == FOLDER:
            coverage.write()
    return int(any(o.outcome in BAD for o in outcomes))


def _command(module_name: str, args: argparse.Namespace, parser: argparse.ArgumentParser) -> str:
    """The command that gives the same outcomes: the options that choose or bound the cases."""
    plain = ("help", "log", "resume", "again", "show", "report", "jobs")
    chosen = [a for a in parser._actions if a.dest not in plain and getattr(args, a.dest) != a.default]
    options = [f" {a.option_strings[0]}" + ("" if a.nargs == 0 else f" {getattr(args, a.dest)}") for a in chosen]
    return f"python -m {module_name}{''.join(options)} --report"


def _read(log: Path, again: Sequence[str]) -> list[Outcome]:
    """The last outcome of each case in a log, without those that are to be run again."""
    outcomes = (Outcome(**json.loads(line)) for line in log.read_text(encoding="utf-8").splitlines())
    return [o for o in {o.case: o for o in outcomes}.values() if o.outcome not in again]
