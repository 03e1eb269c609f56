"""Collects `tests/golden/**/*.nir`; see `tests/golden_files.py`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import quick_compile
from tests.golden_files import GoldenFile

# The first example of a test may load half the package; a check of a change does not depend on luck, while runs by hand explore.
hypothesis.settings.register_profile("steady", deadline=None, derandomize=os.environ.get("CI") == "true")
hypothesis.settings.load_profile("steady")

os.environ["NEURON_IR_CACHE"] = "off"  # a test compiles what it tests, and leaves the user's cache alone

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the exact output kept in golden files (with CI=true: fail where it changed)",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Neighbouring tests run in one worker: they share compiled operations and fixtures, which the default would make in each."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".nir" and GOLDEN in file_path.parents:
        return GoldenFile.from_parent(parent, path=file_path)
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    quick_compile.switch(quick_compile.wanted_for(item))
