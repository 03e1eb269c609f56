"""JAX's own primitive harnesses through the IR: lower, import, print, parse, verify, compile, run, compare with JAX on the CPU.

    python -m tests.yardsticks.harnesses --sample 4 --jobs 2 --output harnesses.json --report specs/coverage/harnesses.md

Every harness runs in a worker process that is killed when it takes too long. ``--resume`` keeps what the output file already has.
Workers run with JAX's default settings (64-bit types off), as the harnesses are meant to.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
OUTCOMES = ("right", "wrong", "refused clearly", "refused unclearly", "crashed", "timed out", "not run by JAX")


# --- worker -----------------------------------------------------------------------------------------------------------


def harness_list() -> list[Any]:
    """All harnesses, in JAX's order."""
    from jax._src.internal_test_util.test_harnesses import all_harnesses

    return all_harnesses  # type: ignore[no-any-return]


def run_one(harness: Any) -> dict[str, Any]:
    """The outcome of one harness, with the reason where it is not ``right``."""
    import jax
    import numpy as np

    from neuron_ir.diagnostics import IRError

    if not harness.filter("cpu"):
        return {"outcome": "not run by JAX", "reason": "; ".join(limit.description for limit in harness.jax_unimplemented)}
    args = harness.dyn_args_maker(np.random.RandomState(0))
    args = jax.tree.map(jax.numpy.asarray, list(args))
    try:
        expected = [np.asarray(x) for x in jax.tree.leaves(jax.jit(harness.dyn_fun)(*args))]
    except Exception as error:  # the judge itself refuses: whatever it raises is the reason
        return {"outcome": "not run by JAX", "reason": _first_line(error)}
    try:
        got = through_the_ir(harness.dyn_fun, args)
    except IRError as error:
        return {"outcome": "refused clearly", "reason": _first_line(error)}
    except Exception as error:  # any other exception means that the refusal is not clear
        return {"outcome": "refused unclearly", "reason": f"{type(error).__name__}: {_first_line(error)}"}
    from tests.yardsticks.judging import problem

    reason = problem(harness.group_name, harness.params, jax.tree.leaves(args), expected, got)
    return {"outcome": "wrong" if reason else "right", "reason": reason}


def through_the_ir(function: Any, args: Sequence[Any]) -> list[Any]:
    """The function's flat results by way of Neuron IR text and the reference accelerator."""
    import jax
    import numpy as np

    import neuron_ir

    module = neuron_ir.from_jax(function, *args)
    again = neuron_ir.parse(module.text())
    again.weights.update(module.weights)
    again.verify()
    if again.text() != module.text():
        raise AssertionError("the text changes when it is read and printed again")
    result = neuron_ir.compile(again)(*jax.tree.leaves(args))
    return [np.asarray(x) for x in (result if isinstance(result, tuple) else (result,))]


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:300]


def worker() -> None:
    """Serve harness numbers from stdin, one JSON line of outcome each."""
    harnesses = harness_list()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a harness prints must not disturb the answers
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        started = time.time()
        outcome = run_one(harnesses[int(line)])
        answers.write(json.dumps({**outcome, "seconds": round(time.time() - started, 2)}) + "\n")
        answers.flush()


# --- the pool ---------------------------------------------------------------------------------------------------------


class Worker:
    """One worker process and the harness it is busy with."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.yardsticks.harnesses", "--worker"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        self.busy: int | None = None
        self.since, self.cpu_before = time.time(), 0.0
        self.ready = False

    def give(self, index: int) -> None:
        """Start on a harness."""
        assert self.process.stdin is not None
        self.busy, self.since, self.cpu_before = index, time.time(), self.cpu_seconds()
        self.process.stdin.write(f"{index}\n")
        self.process.stdin.flush()

    def cpu_seconds(self) -> float:
        """Processor time that the process has used."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def late(self, seconds: float) -> bool:
        """Whether the harness took more processor time than ``seconds``, or ten times as long by the clock."""
        return self.cpu_seconds() - self.cpu_before > seconds or time.time() - self.since > 10 * seconds

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def run_all(todo: Sequence[int], jobs: int, timeout: float) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each harness number with its outcome, as they finish."""
    queue, workers = list(reversed(todo)), [Worker() for _ in range(min(jobs, len(todo)))]
    selector = selectors.DefaultSelector()
    for w in workers:
        selector.register(w.process.stdout, selectors.EVENT_READ, w)
    left = len(todo)
    while left:
        for key, _ in selector.select(timeout=1):
            w = key.data
            line = w.process.stdout.readline()
            if line == "ready\n":
                w.ready = True
            elif line:
                left -= 1
                yield w.busy, json.loads(line)
                w.busy = None
            else:
                selector.unregister(w.process.stdout)
                workers[workers.index(w)] = fresh = Worker()
                selector.register(fresh.process.stdout, selectors.EVENT_READ, fresh)
                if w.busy is not None:
                    left -= 1
                    yield w.busy, {"outcome": "crashed", "reason": f"exit code {w.process.wait()}"}
        for i, w in enumerate(workers):
            if w.busy is not None and w.late(timeout):
                selector.unregister(w.process.stdout)
                w.stop()
                workers[i] = fresh = Worker()
                selector.register(fresh.process.stdout, selectors.EVENT_READ, fresh)
                left -= 1
                yield w.busy, {"outcome": "timed out", "reason": f"over {timeout} s"}
            elif w.ready and w.busy is None and queue:
                w.give(queue.pop())
    for w in workers:
        w.stop()


# --- choice and report ------------------------------------------------------------------------------------------------


def choose(harnesses: Sequence[Any], per_group: int, only: str) -> list[int]:
    """Numbers of the harnesses to run: of each group ``per_group`` (0: all), spread evenly over it."""
    groups: dict[str, list[int]] = defaultdict(list)
    for i, h in enumerate(harnesses):
        if not only or only in h.fullname:
            groups[h.group_name].append(i)
    chosen = []
    for members in groups.values():
        n = min(per_group or len(members), len(members))
        chosen += [members[k * len(members) // n] for k in range(n)]
    return sorted(chosen)


def report(results: dict[str, dict[str, Any]], total: int) -> str:
    """The table by group, in Markdown."""
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for item in results.values():
        groups[item["group"]][item["outcome"]] += 1
    counts = Counter(item["outcome"] for item in results.values())
    lines = [
        "# JAX primitive harnesses",
        "",
        "Made by `python -m tests.yardsticks.harnesses`; the judge is JAX on the CPU, with the tolerances of",
        "`tests/yardsticks/judging.py`.",
        "",
        f"{len(results)} of {total} harnesses were run, from {len(groups)} groups.",
        "",
        "| outcome | harnesses |",
        "| --- | --- |",
        *[f"| {name} | {counts[name]} |" for name in OUTCOMES],
        "",
        "| group | " + " | ".join(OUTCOMES) + " |",
        "| --- |" + " --- |" * len(OUTCOMES),
        *[f"| {g} | " + " | ".join(str(c[o] or "") for o in OUTCOMES) + " |" for g, c in sorted(groups.items())],
    ]
    bad = sorted((k, v) for k, v in results.items() if v["outcome"] not in ("right", "not run by JAX"))
    if bad:
        lines += ["", "## Not right", ""]
        lines += [f"* `{name}`: {item['outcome']}: {item['reason']}" for name, item in bad]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run a sample and write the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--sample", type=int, default=2, help="harnesses per group (0: all)")
    parser.add_argument("--only", default="", help="only harnesses whose name contains this")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=60, help="seconds of processor time per harness")
    parser.add_argument("--output", type=Path, default=Path("harnesses.json"))
    parser.add_argument("--resume", action="store_true", help="keep the outcomes that the output file has")
    parser.add_argument("--again", default="", help="with --resume: run again those with these outcomes (comma-separated)")
    parser.add_argument("--report", type=Path, help="write the table here, in Markdown")
    options = parser.parse_args()
    if options.worker:
        return worker()
    harnesses = harness_list()
    results: dict[str, dict[str, Any]] = (
        json.loads(options.output.read_text()) if options.resume and options.output.exists() else {}
    )
    again = options.again.split(",") if options.again else []
    todo = [
        i
        for i in choose(harnesses, options.sample, options.only)
        if harnesses[i].fullname not in results or results[harnesses[i].fullname]["outcome"] in again
    ]
    started = time.time()
    for done, (index, outcome) in enumerate(run_all(todo, options.jobs, options.timeout), 1):
        harness = harnesses[index]
        results[harness.fullname] = {"group": harness.group_name, **outcome}
        if outcome["outcome"] not in ("right", "not run by JAX"):
            print(f"{harness.fullname}: {outcome['outcome']}: {outcome['reason']}", flush=True)
        if done % 50 == 0 or done == len(todo):
            options.output.write_text(json.dumps(results, indent=1))
            print(f"{done}/{len(todo)} in {time.time() - started:.0f} s", flush=True)
    print(dict(Counter(item["outcome"] for item in results.values())))
    if options.report:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(report(results, len(harnesses)))


if __name__ == "__main__":
    main()
