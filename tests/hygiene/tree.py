"""The project's files as the hygiene tests see them: what git tracks or would track."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINKS = ("passes", "frontends", "backends")


@cache
def files() -> tuple[Path, ...]:
    """Every file of the project, relative to its root, sorted; links count as files and are not entered."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    names = {Path(name) for name in listing.split("\0") if name}
    # A file deleted but not yet committed is still listed.
    return tuple(sorted(name for name in names if os.path.lexists(ROOT / name)))


def sources(*tops: str) -> tuple[Path, ...]:
    """The Python files below the given folders at the top."""
    return tuple(name for name in files() if name.parts[0] in tops and name.suffix == ".py")
