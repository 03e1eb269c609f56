"""The README's two commands are the ones that run: the second is what `.ci/run` runs, word for word."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import neuron_ir
from tests.hygiene.tree import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?ms)^```(?:bash|sh|shell|console)?\s*\n(.*?)^```", README)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("specs/**/*.md"))]


def test_the_checks_run_the_second_block() -> None:
    shown = subprocess.run(["bash", ".ci/run", "--show"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown.strip() == BLOCKS[1].strip()


def test_the_checks_hold_no_copy_of_the_command() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for line in BLOCKS[1].splitlines():
        for command in filter(None, map(str.strip, line.split("&&"))):
            assert command not in script


def test_the_main_job_comes_first_and_exists() -> None:
    (example,) = re.findall(r"python (examples/\w+\.py)", BLOCKS[0])
    assert (ROOT / example).is_file()


def test_the_blocks_install_extras_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for block in BLOCKS[:2]:
        (extras,) = re.findall(r"pip install -e '\.\[([\w,]+)\]'", block)
        assert set(extras.split(",")) <= set(project["optional-dependencies"])


def test_links_lead_to_files() -> None:
    broken = [
        f"{path.name}: {target}"
        for path in PAGES
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert broken == []


def test_the_index_of_specs_lists_every_page() -> None:
    for folder in (ROOT / "specs", ROOT / "specs" / "decisions"):
        index = (folder / "README.md").read_text(encoding="utf-8")
        pages = {path.name for path in folder.glob("*.md")} - {"README.md"}
        assert {page for page in pages if f"]({page})" not in index} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_ir_sample_is_valid(page: Path) -> None:
    for sample in re.findall(r"(?ms)^```nir\n(.*?)^```", page.read_text(encoding="utf-8")):
        neuron_ir.parse(sample).verify()


def test_the_table_of_files_lists_every_file_once() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("| subject | files |")[2].partition("\n\n")[0]
    listed = re.findall(r"`([\w.]+)`", table)
    files = {p.stem if p.suffix == ".py" else p.name for p in (ROOT / "neuron_ir").glob("[a-z]*.*") if p.suffix in (".py", ".lark")}
    assert sorted(listed) == sorted(files)
