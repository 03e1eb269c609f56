"""`neuron-doctor`: version arithmetic, the report and the exit code."""

from __future__ import annotations

import importlib.metadata
import platform

import pytest

from neuron_ir.tools import doctor


@pytest.mark.parametrize(
    ("version", "supported", "inside"),
    [
        ("2.13.0+cpu", ">=2.13,<2.14", True),
        ("2.13", ">=2.13,<2.14", True),
        ("2.14.0", ">=2.13,<2.14", False),
        ("2.9.1", ">=2.13,<2.14", False),
        ("0.10.2", "<0.11,>=0.10", True),
        ("0.10.0", ">0.10", False),
        ("1.2", "==1.2.0", True),
        ("1.2", "!=1.2.0", False),
        ("1.3", "<=1.2", False),
        ("7", "", True),
    ],
)
def test_ranges_compare_numbers_and_not_text(version: str, supported: str, inside: bool) -> None:
    assert doctor.in_range(version, supported) is inside


@pytest.mark.parametrize("clause", ["~=1.2", ">=1.2rc1", "newest"])
def test_a_range_that_it_cannot_read_is_an_error(clause: str) -> None:
    with pytest.raises(ValueError, match="cannot read the version range"):
        doctor.in_range("1.2", clause)


def test_a_version_without_numbers_is_an_error() -> None:
    with pytest.raises(ValueError, match="'unknown' is not a version number"):
        doctor.release("unknown")


def test_requirement_lines_give_ranges_and_say_what_is_optional() -> None:
    lines = ["jax<0.11,>=0.10", "ml_dtypes>=0.5", 'torch[x] (>=2.13,<2.14) ; extra == "torch"', 'jax; extra == "test"']
    assert doctor.supported_ranges(lines) == {
        "jax": (">=0.10,<0.11", False),
        "ml-dtypes": (">=0.5", False),
        "torch": (">=2.13,<2.14", True),
    }


def test_the_tree_gives_the_same_ranges_as_the_metadata() -> None:
    python, lines = doctor.requirements()
    tree_python, tree_lines = doctor._requirements_of_tree()
    assert python == tree_python
    ranges, tree_ranges = doctor.supported_ranges(lines), doctor.supported_ranges(tree_lines)
    assert {name: ranges[name] for name in tree_ranges} == tree_ranges


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, list[str]], str]:
    """Exit code, the lines by their first word, and the verdict."""
    code = doctor.main(list(arguments))
    *lines, verdict = capsys.readouterr().out.splitlines()
    return code, {line.split()[0]: line.split()[1:] for line in lines}, verdict


def pretend(monkeypatch: pytest.MonkeyPatch, name: str, version: str | None) -> None:
    """Makes the metadata give another version for one package, or say that it is missing."""
    real = importlib.metadata.version

    def version_of(asked: str) -> str:
        if asked != name:
            return real(asked)
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", version_of)


def test_a_sound_installation_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, verdict = report(capsys)
    assert code == 0
    assert verdict == "verdict: fine"
    assert lines["python"] == [platform.python_version(), ">=3.11", "ok"]
    assert lines["jax"][1:] == [">=0.10,<0.11", "ok"]
    assert lines["torch"][1:] == [">=2.13,<2.14", "ok"]
    assert int(lines["cores"][0]) >= 1
    assert lines["memory"][1] == "GiB" and float(lines["memory"][0]) > 0


def test_torch_is_optional(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "torch", None)
    code, lines, verdict = report(capsys)
    assert (code, verdict) == (0, "verdict: fine")
    assert lines["torch"] == ["not", "installed", ">=2.13,<2.14", "optional"]


def test_a_missing_package_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "lark", None)
    code, _, verdict = report(capsys)
    assert (code, verdict) == (1, "verdict: not fine: lark is not installed")


def test_a_version_out_of_range_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "jax", "0.11.0")
    code, lines, verdict = report(capsys)
    assert (code, verdict) == (1, "verdict: not fine: jax 0.11.0 is outside the supported range >=0.10,<0.11")
    assert lines["jax"] == ["0.11.0", ">=0.10,<0.11", "not", "supported"]


def test_deep_runs_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, verdict = report(capsys, "--deep")
    assert (code, verdict) == (0, "verdict: fine")
    assert " ".join(lines["deep"]) == "parsed, compiled and ran: x + x is right"


def test_deep_names_what_broke(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise OSError("no such library")

    monkeypatch.setattr(doctor, "deep_problem", broken)
    code, _, verdict = report(capsys, "--deep")
    assert (code, verdict) == (1, "verdict: not fine: the tiny program failed: OSError: no such library")
