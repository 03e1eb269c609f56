"""Damaged text and huge text: a diagnostic with a place, quickly, and never anything else."""

from __future__ import annotations

import random
import resource
import time
from pathlib import Path

import pytest

import neuron_ir
from neuron_ir import IRError
from neuron_ir.parser import parse_file
from tests.hygiene.tree import ROOT
from tests.unit.core.programs import EVERYTHING

GOLDENS = sorted((ROOT / "tests" / "golden").glob("*/*.nir"))
PIECES = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    '"',
    "%",
    "@",
    "#",
    ",",
    ":",
    "=",
    "-",
    "x",
    "0",
    "1e999",
    "tensor<",
    "loc(",
    "dense<",
    "\x00",
    "\n",
    "é",
    "^",
    "//",
]


def read(text: str) -> None:
    """Parse and verify; only an :class:`IRError` that names a place may come out."""
    try:
        neuron_ir.parse(text, "m.nir").verify()
    except IRError as error:
        assert error.diagnostics
        assert all(d.message for d in error.diagnostics)
        str(error)


def mutations(text: str, count: int, seed: int) -> list[str]:
    """Texts with a few places cut, doubled, swapped or overwritten."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        damaged = text
        for _ in range(rng.randint(1, 3)):
            at, length = rng.randrange(len(damaged) + 1), rng.randint(1, 12)
            kind = rng.randrange(5)
            if kind == 0:
                damaged = damaged[:at] + damaged[at + length :]
            elif kind == 1:
                damaged = damaged[:at] + rng.choice(PIECES) + damaged[at:]
            elif kind == 2:
                damaged = damaged[:at] + damaged[at : at + length] * 2 + damaged[at + length :]
            elif kind == 3:
                other = rng.randrange(len(damaged) + 1)
                damaged = damaged[:at] + damaged[other : other + length] + damaged[at + length :]
            else:
                damaged = damaged[:at] + rng.choice(PIECES) + damaged[at + 1 :]
        found.append(damaged)
    return found


def test_garbled_text_gives_diagnostics_only() -> None:
    for text in mutations(EVERYTHING, 400, seed=0):
        read(text)


@pytest.mark.parametrize(
    "path", [p for p in GOLDENS if p.parent.name in ("canonicalize", "inline", "layout", "fold_constants")], ids=lambda p: p.stem
)
def test_garbled_goldens_give_diagnostics_only(path: Path) -> None:
    for text in mutations(path.read_text(encoding="utf-8"), 12, seed=len(path.stem)):
        read(text)


def test_a_file_of_an_editor_on_windows_is_read(tmp_path: Path) -> None:
    (tmp_path / "m.nir").write_bytes(b"\xef\xbb\xbf" + EVERYTHING.replace("\n", "\r\n").encode())
    assert parse_file(tmp_path / "m.nir").text() == neuron_ir.parse(EVERYTHING).text()


def test_text_cut_anywhere_is_refused() -> None:
    whole = EVERYTHING.rstrip()
    for end in range(40, len(whole), 37):
        with pytest.raises(IRError):
            neuron_ir.parse(whole[:end], "m.nir").verify()


def test_an_attribute_of_100_megabytes_is_read_in_seconds_without_blowing_up() -> None:
    data = "3f0000c1" * (100 * 2**20 // 8)
    elements = len(data) // 8
    text = (
        f"func @main() -> tensor<{elements}xf32> {{\n"
        f'  %c = neuron.constant() {{value = dense<"{data}">}} : tensor<{elements}xf32>\n  func.return(%c)\n}}\n'
    )
    _read_large(text, elements * 4)


def test_a_list_of_100_megabytes_is_refused_in_seconds() -> None:
    text = (
        "func @main() -> tensor<10xf32> {\n  %c = neuron.constant() {value = dense<["
        + "1.5, " * (20 * 2**20)
        + "1.5]>} : tensor<10xf32>\n}"
    )
    started = time.process_time()
    with pytest.raises(IRError, match=r"m\.nir:2:.* more than 250,000 items in one piece of text"):
        neuron_ir.parse(text, "m.nir")
    assert time.process_time() - started < 20


def test_a_string_of_100_megabytes_is_read_in_seconds_without_blowing_up() -> None:
    _read_large('module @m {note = "' + "a" * (100 * 2**20) + '"} {\n}\n', 0)


def test_a_damaged_attribute_of_100_megabytes_is_refused_in_seconds() -> None:
    text = 'func @main() {\n  %c = neuron.constant() {value = dense<"' + "3f" * (100 * 2**20 // 2)
    started = time.process_time()
    with pytest.raises(IRError, match=r"m\.nir:2:"):
        neuron_ir.parse(text, "m.nir")
    assert time.process_time() - started < 20


def _read_large(text: str, size: int) -> None:
    neuron_ir.parse(EVERYTHING)  # what is loaded once
    before, started = _peak(), time.process_time()
    module = neuron_ir.parse(text, "m.nir")
    module.verify()
    assert time.process_time() - started < 20
    assert _peak() - before < 10 * len(text) + 2**26
    if size:
        (op,) = (op for op in module.walk() if op.name == "neuron.constant")
        assert op.get("value").array.nbytes == size


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
