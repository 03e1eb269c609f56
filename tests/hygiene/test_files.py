"""What a file of the project may hold: no machine's paths, no package registry's host, no more than 600 lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.hygiene.tree import ROOT, files

LONGEST = 600
# Spelt in two halves, so that this file passes its own test.
MACHINE_PATHS = [rf"(?<![\w.*\])}}])/{top}/" for top in ("work", "tmp", "opt", "root", "home", "Users", "mnt")]
HOSTS = [
    first + re.escape(second)
    for first, second in [
        ("pypi", ".org"),
        ("pythonhosted", ".org"),
        ("download.py", "torch.org"),
        ("npmjs", ".org"),
        ("npmjs", ".com"),
        ("deb.debian", ".org"),
        ("conda.anaconda", ".org"),
    ]
]
PLACES = re.compile("|".join(MACHINE_PATHS))
REGISTRIES = re.compile("|".join(HOSTS))


def texts() -> list[tuple[Path, str]]:
    """Every text file of the project with its text; a file that is not UTF-8 is data and is left out."""
    found = []
    for path in files():
        if (ROOT / path).is_symlink():
            continue
        try:
            found.append((path, (ROOT / path).read_bytes().decode("utf-8")))
        except UnicodeDecodeError:
            continue
    return found


@pytest.mark.parametrize("pattern", [PLACES, REGISTRIES], ids=["machine path", "registry host"])
def test_no_file_names_a_place_of_one_machine(pattern: re.Pattern[str]) -> None:
    problems = [
        f"{path}:{number}: {line.strip()}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert problems == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("open('/" + "tmp/x.nir')", True),
        ("see /" + "work/main", True),
        ("a/" + "tmp/b", False),
        ("${TMPDIR}/" + "tmp/b", False),
    ],
)
def test_what_counts_as_a_machine_path(line: str, found: bool) -> None:
    assert bool(PLACES.search(line)) is found


def test_files_are_short() -> None:
    long = {
        str(path): count
        for path, text in texts()
        if path.suffix in (".py", ".lark") and (count := len(text.splitlines())) > LONGEST
    }
    assert long == {}
