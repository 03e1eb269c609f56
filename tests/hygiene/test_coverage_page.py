"""The pages of coverage are what the recorded results of the yardsticks give, and each result is one of a yardstick that exists."""

from __future__ import annotations

import re

import pytest

from tests.yardsticks import coverage, coverage_ops, results, sample
from tests.yardsticks.results import Outcome, Result

from .tree import ROOT

RECORDED = list(results.every())


def test_the_pages_are_what_the_results_give() -> None:
    for path, text in coverage.pages(RECORDED).items():
        assert path.read_text(encoding="utf-8") == text, "run python -m tests.yardsticks.coverage"


@pytest.mark.parametrize("result", RECORDED, ids=lambda r: r.yardstick)
def test_a_result_is_whole(result: Result) -> None:
    """Every mark that is not right has a reason, and the command names a yardstick that exists."""
    module = re.match(r"python -m tests\.yardsticks\.(\w+)", result.command)
    assert module and (ROOT / "tests" / "yardsticks" / f"{module[1]}.py").exists()
    counts = result.counts()
    assert len(result.rest) == sum(counts.values()) - counts["right"]
    assert results.read(results.FOLDER / f"{result.yardstick}.json") == result


class Yardstick:
    """Of the form a module of tests/yardsticks has.

    What follows is not part of the title.
    """

    NAME = "example"


def test_counts_and_marks() -> None:
    outcomes = [
        Outcome("add:f32:10", "wrong", "at /some" + "where/else/a.py", 1.0),
        Outcome("add:f32:9", "right", "", 1.0),
        Outcome("add:i64:0", "refused", "aten.add.Tensor: no", 1.0),
        Outcome("add:i64:1", "no sample", "", 1.0),
        Outcome("sub:f32:0", "not exportable", "torch: no", 1.0),
    ]
    result = results.collect(Yardstick, outcomes, 5, "python -m tests.yardsticks.example")
    assert result.marks == {"add": {"f32": "rw", "i64": "f"}, "sub": {"f32": "n"}}
    assert result.population == 4 and result.title == "Of the form a module of tests/yardsticks has."
    assert dict(result.counts("f32")) == {"right": 1, "wrong": 1, "not exportable": 1}
    assert [r["detail"] for r in result.rest] == ["at a.py", "aten.add.Tensor: no", "torch: no"]
    text = "\n".join(coverage.section(result))
    assert "| f32 | 1 | 1 |  |  |  |  | 1 |  | 2 | 50.0 % |" in text
    assert "| all | 1 | 1 | 1 |  |  |  | 1 |  | 3 | 33.3 % |" in text
    assert "| `add` | r w | f |" in text and "* aten.add.Tensor: no: `add:i64:0`" in text


def test_operators_by_element_type_and_way_in() -> None:
    def result(name: str, marks: dict[str, dict[str, str]]) -> Result:
        return Result(name, "", f"python -m tests.yardsticks.{name}", {}, 1, marks, [])

    text = coverage_ops.page(
        [
            result("opinfo", {"add": {"bool": "r", "f32": "rrfr"}, "sub": {"f32": "rr", "bf16": "n"}}),
            result("compiled", {"add": {"f32": "r"}, "mul": {"f32": "w"}}),
            result("harnesses", {"abs": {"bfloat16": "r", "float8_e5m2": "f", "float8_e4m3fn": "r", "uint8": "r"}}),
        ]
    )
    assert "| operator | f32 | bf16 | bool |" in text and "| primitive | bf16 | f8 | u8 |" in text
    assert "| `add` | f1/4 r |  | r . |" in text and "| `mul` | . w |  |  |" in text and "| `sub` | r . | n . |  |" in text
    assert "| torch.export | 5 of 6 | 0 of 0 | 1 of 1 |" in text and "| `abs` | r | f1/2 | r |" in text
    assert ROOT / "specs" / "coverage_ops.md" == coverage_ops.PAGE


def test_the_sample_holds_cases_of_every_yardstick() -> None:
    folder = ROOT / "tests" / "yardsticks"
    yardsticks = {p.stem for p in folder.glob("*.py") if re.search(r"(?m)^NAME = ", p.read_text(encoding="utf-8"))} - {"sample"}
    listed = sample.listed()
    assert listed.keys() == yardsticks
    assert {outcome for cases in listed.values() for outcome in cases.values()} <= {"right", "refused"}


def test_a_regression_is_told_from_progress() -> None:
    expected = {"opinfo": {"add:f32:0": "right", "mul:f32:0": "right", "geqrf:f32:0": "refused", "sub:f32:0": "refused"}}
    outcomes = [
        Outcome("opinfo|add:f32:0", "right", "", 1.0),
        Outcome("opinfo|mul:f32:0", "refused", "why", 1.0),
        Outcome("opinfo|geqrf:f32:0", "right", "", 1.0),
        Outcome("opinfo|sub:f32:0", "wrong", "1 is not 2", 1.0),
    ]
    worse, better = sample.regressions(outcomes, expected)
    assert worse == [
        "opinfo mul:f32:0: refused where right is expected: why",
        "opinfo sub:f32:0: wrong where refused is expected: 1 is not 2",
    ]
    assert better == ["opinfo geqrf:f32:0: right where refused is expected: "]
