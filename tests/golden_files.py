"""Golden `.nir` files as tests: each `// RUN:` line is run in this process, and each that runs passes is also executed.

    // RUN: neuron-opt %s --pass cse | filecheck %s

Commands are neuron-opt, neuron-translate, neuron-run and filecheck, joined by `|`; `not` before a command demands a failure, `2>&1`
joins standard error to the output, `%s` is the file and `%t` a temporary path of this test. A RUN line whose last command is not
filecheck and whose file has a line `// OUTPUT:` must print exactly the comment lines after it; `pytest --update-golden` rewrites
them.

A RUN line with passes gives a second test that runs it with `--verify-numerics`, unless the file says
`// NUMERICS: off, because ...`.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

TOOLS = {f"neuron-{name}": f"neuron_ir.tools.{name}" for name in ("opt", "translate", "run")}
PASS_FLAG = re.compile(r"^(--pass|--pass-pipeline|-O[0-3])\b")
OUTPUT = "// OUTPUT:"
NUMERICS_OFF = re.compile(r"^// NUMERICS: off, because \S", re.M)


class GoldenFailure(Exception):
    """A golden file whose run did not do what the file says."""


class GoldenFile(pytest.File):
    """One file: one test per RUN line, one more per RUN line with passes."""

    def collect(self) -> Iterator[pytest.Item]:
        text = self.path.read_text(encoding="utf-8")
        runs = re.findall(r"^// RUN:\s*(.*)$", text, re.M)
        if not runs:
            yield GoldenRun.from_parent(self, name="no-run-line", command="", numerics=False)
        for i, command in enumerate(runs):
            yield GoldenRun.from_parent(self, name=f"run{i}", command=command, numerics=False)
            first = shlex.split(command.split("|")[0])
            if first[0] == "neuron-opt" and any(map(PASS_FLAG.match, first)) and not NUMERICS_OFF.search(text):
                yield GoldenRun.from_parent(self, name=f"run{i}-executed", command=command, numerics=True)


class GoldenRun(pytest.Item):
    """One RUN line, as written or executed with `--verify-numerics`."""

    def __init__(self, *, command: str, numerics: bool, **kwargs: Any):
        super().__init__(**kwargs)
        self.command = command
        self.numerics = numerics

    def runtest(self) -> None:
        if not self.command:
            raise GoldenFailure("the file has no // RUN: line")
        stages = self.command.split(" | ")
        if self.numerics:
            argv = [*(w for w in self.words(stages[0])[1:] if w != "2>&1"), "--verify-numerics"]
            code, _, err = run_tool("neuron-opt", argv, "")
            if code:
                raise GoldenFailure(f"executed before and after: neuron-opt {shlex.join(argv)}\n{err}")
            return
        text = ""
        for stage in stages:
            text = self.stage(stage, text)
        if not self.words(stages[-1])[0].startswith("filecheck"):
            self.compare(text)

    def words(self, stage: str) -> list[str]:
        temporary = str(self.config._tmp_path_factory.getbasetemp() / f"golden-{self.path.stem}-{self.name}")
        os.makedirs(os.path.dirname(temporary), exist_ok=True)
        return [w.replace("%s", str(self.path)).replace("%t", temporary) for w in shlex.split(stage)]

    def stage(self, stage: str, stdin: str) -> str:
        """Run one command of a RUN line on the output of the one before; gives its output."""
        words = self.words(stage)
        fails = words[0] == "not"
        joined = "2>&1" in words
        words = [w for w in words[fails:] if w != "2>&1"]
        code, out, err = run_filecheck(words[1:], stdin) if words[0] == "filecheck" else run_tool(words[0], words[1:], stdin)
        if bool(code) != fails:
            raise GoldenFailure(f"{shlex.join(words)}\nexit code {code}\n{err or out}\n--- its input ---\n{stdin[:4000]}")
        return (err + out if joined else out).replace(str(self.path), self.path.name)

    def compare(self, text: str) -> None:
        """Hold the output against the comment lines after `// OUTPUT:`."""
        source = self.path.read_text(encoding="utf-8")
        head, marker, kept = source.partition(OUTPUT + "\n")
        if not marker:
            return
        wanted = "".join(f"// {line}".rstrip() + "\n" for line in text.splitlines())
        if kept == wanted:
            return
        if self.config.getoption("--update-golden") and os.environ.get("CI") != "true":
            self.path.write_text(head + marker + wanted, encoding="utf-8")
            return
        lines = difflib.unified_diff(kept.splitlines(), wanted.splitlines(), "kept", "printed", lineterm="")
        raise GoldenFailure("\n".join(["the output differs from the file's (pytest --update-golden rewrites it)", *lines]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, GoldenFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name}: {self.command}"


def run_tool(name: str, argv: list[str], stdin: str) -> tuple[int, str, str]:
    """Run one of the project's tools in this process; gives exit code, standard output and standard error."""
    if name not in TOOLS:
        raise GoldenFailure(f"{name} is not one of {', '.join(TOOLS)}, filecheck")
    tool = import_module(TOOLS[name])
    out, err = io.StringIO(), io.StringIO()
    saved = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = tool.main(argv)
    finally:
        sys.stdin = saved
    return code, out.getvalue(), err.getvalue()


def run_filecheck(argv: list[str], stdin: str) -> tuple[int, str, str]:
    """Match `stdin` against the CHECK lines of a file."""
    from filecheck.finput import FInput
    from filecheck.matcher import Matcher
    from filecheck.options import parse_argv_options
    from filecheck.parser import Parser

    options = parse_argv_options(["filecheck", *(part for a in argv for part in a.split("=", 1))])
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(err):
        code = Matcher(options, FInput("<output>", stdin), Parser.from_opts(options)).run()
    return code, "", re.sub(r"\x1b\[[0-9;]*m", "", err.getvalue())
