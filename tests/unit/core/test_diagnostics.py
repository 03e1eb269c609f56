"""How errors look: place, code, message, source line, caret, notes and callers."""

from __future__ import annotations

from pathlib import Path

import pytest

import neuron_ir
from neuron_ir import IRError
from neuron_ir.diagnostics import CODES, Diagnostic, fail, nearest
from neuron_ir.locations import UNKNOWN_LOC, FileLoc, FusedLoc, fuse_locations
from neuron_ir.parser import parse_file


def error_of(text: str) -> IRError:
    with pytest.raises(IRError) as caught:
        neuron_ir.parse(text, "m.nir").verify()
    return caught.value


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        (
            "func @f(%x: tensor<2xf32>) {\n  %y = neuron.tanhh(%x) : tensor<2xf32>\n  func.return()\n}",
            "m.nir:2:8: error[op]: there is no op neuron.tanhh; did you mean 'neuron.tanh'?",
        ),
        (
            "func @f(%abc: tensor<2xf32>) {\n  %y = neuron.tanh(%abd) : tensor<2xf32>\n  func.return()\n}",
            "m.nir:2:20: error[name]: %abd is not defined here; did you mean 'abc'?",
        ),
        (
            "func @f(%x: tensor<2xf33>) {\n  func.return()\n}",
            "m.nir:1:22: error[type]: there is no element type f33; did you mean 'f32'?",
        ),
        ("func @f() {\n  func.return()", "m.nir:2:16: error[syntax]: the text ends too early"),
        ("", "m.nir:1:1: error[syntax]: the text ends too early"),
    ],
)
def test_the_first_line_has_place_code_and_message(text: str, rendered: str) -> None:
    assert str(error_of(text)).split("\n")[0].startswith(rendered)


def test_the_caret_stands_under_the_column() -> None:
    place = FileLoc("m.nir", 2, 5)
    lines = Diagnostic("shape", "sizes 2 and 3", place, ("see the op",), source="ab\tdefg").render().split("\n")
    assert lines == ["m.nir:2:5: error[shape]: sizes 2 and 3", "  ab defg", "      ^", "  note: see the op"]


def test_the_source_is_read_from_the_users_file(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("import torch\ny = x + w\n")
    text = Diagnostic("shape", "no", FileLoc(str(path), 2, 7, "blocks.0")).render()
    assert text.split("\n")[1:] == ["  y = x + w", "        ^", "  note: in module blocks.0"]


def test_callers_follow_one_by_one() -> None:
    loc = FileLoc("a.py", 1, 2, "", FileLoc("b.py", 3, 0, "", FileLoc("c.py")))
    assert Diagnostic("op", "no", loc).render().split("\n")[1:] == ["  note: called from b.py:3", "  note: called from c.py"]


def test_an_unknown_place_is_left_out() -> None:
    assert str(fail("input", "two inputs are needed")) == "error[input]: two inputs are needed"


def test_a_very_long_line_is_not_shown() -> None:
    assert Diagnostic("attr", "no", FileLoc("m.nir", 1, 5), source="x" * 401).render() == "m.nir:1:5: error[attr]: no"


def test_an_error_shows_all_its_diagnostics_and_the_first_code() -> None:
    error = IRError([Diagnostic("shape", "a"), Diagnostic("type", "b")])
    assert str(error) == "error[shape]: a\nerror[type]: b"
    assert error.code == "shape"


def test_a_code_must_be_in_the_table() -> None:
    with pytest.raises(KeyError, match="'shapes' is not in CODES"):
        fail("shapes", "no")
    assert all(meaning.endswith(".") for meaning in CODES.values())


def test_near_misses_are_suggested_and_far_ones_are_not() -> None:
    assert nearest("neuron.ad", ["neuron.add", "neuron.sub"]) == "; did you mean 'neuron.add'?"
    assert nearest("xyz", ["neuron.add"]) == ""


def test_an_error_of_an_op_ends_with_the_op() -> None:
    error = error_of("func @f(%x: tensor<2xf32>) {\n  %y = neuron.tanh(%x) : tensor<3xf32>\n  func.return()\n}")
    assert str(error).split("\n") == [
        "m.nir:2:3: error[type]: neuron.tanh: has the result type tensor<3xf32>, but computes tensor<2xf32>",
        "  note: see current operation: neuron.tanh(%x) : (tensor<2xf32>) -> tensor<3xf32>",
    ]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(IRError, match="No such file") as caught:
        parse_file(tmp_path / "none.nir")
    assert caught.value.code == "file"
    (tmp_path / "latin.nir").write_bytes(b"func @f() { \xff }")
    with pytest.raises(IRError, match=r"cannot read .*latin\.nir"):
        parse_file(tmp_path / "latin.nir")


def test_fused_places_are_each_once_and_known_ones_win() -> None:
    a, b, text = FileLoc("a.py", 1, 1), FileLoc("b.py", 2, 2), FileLoc("m.nir", 3, 3, implicit=True)
    assert fuse_locations([a, b, a]) == FusedLoc((a, b))
    assert fuse_locations([text, a, UNKNOWN_LOC]) == a
    assert fuse_locations([text]) == text
    assert fuse_locations([]) == UNKNOWN_LOC
