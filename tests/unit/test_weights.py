"""Modules on disk: text and weights, written whole or not at all, read without copies, refused when they do not match."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy
import pytest
import safetensors.numpy
import torch

import neuron_ir
from neuron_ir.diagnostics import IRError
from neuron_ir.dtypes import all_dtypes
from neuron_ir.parser import parse
from neuron_ir.weights import load, read_weights, save, to_numpy, write_weights

TEXT = """module @m {{ir_version = 1}} {{
  func @main(%x: tensor<2xf32>, %w: {type} {{kind = "weight", weight = "layer.w"}}) -> {type} {{
    func.return(%w)
  }}
}}
"""


def module(array: object, type: str = "tensor<2x3xf32>") -> neuron_ir.Module:
    made = parse(TEXT.format(type=type))
    made.weights["layer.w"] = array
    return made


def message(action) -> str:
    with pytest.raises(IRError) as raised:
        action()
    assert raised.value.code == "weights"
    return raised.value.diagnostics[0].message


def test_save_and_load(tmp_path: Path) -> None:
    w = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    module(w).save(str(tmp_path / "m.nir"))
    assert sorted(f.name for f in tmp_path.iterdir()) == ["m.nir", "m.safetensors"]
    again = neuron_ir.load(str(tmp_path / "m.nir"))
    assert again.text() == module(w).text()
    numpy.testing.assert_array_equal(again.weights["layer.w"], w)


def test_the_file_is_what_safetensors_reads(tmp_path: Path) -> None:
    rng = numpy.random.default_rng(0)
    arrays = {
        "a": rng.standard_normal((3, 5)).astype(numpy.float32), "b": rng.integers(-9, 9, (4,)),
        "empty": numpy.zeros((0, 3), numpy.float16),
        "scalar": numpy.float64(2.5), "flag": numpy.array([True, False, True]),
    }  # fmt: skip
    write_weights(tmp_path / "w.safetensors", arrays)
    theirs = safetensors.numpy.load_file(tmp_path / "w.safetensors")
    ours = read_weights(tmp_path / "w.safetensors")
    for name, array in arrays.items():
        for read in (theirs[name], ours[name]):
            assert read.dtype == array.dtype and read.shape == array.shape
            numpy.testing.assert_array_equal(read, array)


def test_we_read_what_safetensors_writes(tmp_path: Path) -> None:
    arrays = {"x": numpy.arange(7, dtype=numpy.int16), "y": numpy.ones((2, 2), numpy.float32)}
    safetensors.numpy.save_file(arrays, tmp_path / "w.safetensors", metadata={"format": "np"})
    for name, array in read_weights(tmp_path / "w.safetensors").items():
        numpy.testing.assert_array_equal(array, arrays[name])


@pytest.mark.parametrize("element", [t for t in all_dtypes() if t.name != "tf32"], ids=str)
def test_every_element_type_keeps_its_bits(element, tmp_path: Path) -> None:
    array = numpy.arange(12).reshape(3, 4).astype(element.numpy)
    write_weights(tmp_path / "w.safetensors", {"w": array})
    read = read_weights(tmp_path / "w.safetensors")["w"]
    assert read.dtype == array.dtype and read.shape == array.shape
    assert read.tobytes() == array.tobytes()


def test_tf32_is_stored_as_f32(tmp_path: Path) -> None:
    module(numpy.ones((2, 3), numpy.float32), "tensor<2x3xtf32>").save(str(tmp_path / "m.nir"))
    assert load(tmp_path / "m.nir").weights["layer.w"].dtype == numpy.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.int64, torch.complex64], ids=str)
def test_torch_tensors(dtype, tmp_path: Path) -> None:
    tensor = torch.arange(6).reshape(2, 3).to(dtype)
    write_weights(tmp_path / "w.safetensors", {"w": tensor, "t": tensor.T})
    read = read_weights(tmp_path / "w.safetensors")
    assert read["w"].tobytes() == tensor.contiguous().view(torch.uint8).numpy().tobytes()
    assert read["t"].tobytes() == tensor.T.contiguous().view(torch.uint8).numpy().tobytes()


def test_conjugated_torch_tensors_are_resolved() -> None:
    x = torch.tensor([1 + 2j, 3 - 4j])
    numpy.testing.assert_array_equal(to_numpy(x.conj()), numpy.array([1 - 2j, 3 + 4j], numpy.complex64))
    numpy.testing.assert_array_equal(to_numpy(x.conj().imag), numpy.array([-2, 4], numpy.float32))


def test_a_contiguous_tensor_is_viewed_not_copied() -> None:
    tensor = torch.zeros(4)
    view = to_numpy(tensor)
    tensor[0] = 7
    assert view[0] == 7


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    w = torch.randn(100, 100)
    write_weights(tmp_path / "w.safetensors", {"wte": w, "lm_head": w, "view": w.view(100, 100), "turned": w.T})
    size = os.path.getsize(tmp_path / "w.safetensors")
    assert 2 * w.nbytes <= size < 2 * w.nbytes + 1000  # wte and the transposed one
    read = read_weights(tmp_path / "w.safetensors")
    assert read["lm_head"] is read["wte"] is read["view"]
    numpy.testing.assert_array_equal(read["turned"], w.T.numpy())


def test_only_the_weights_of_the_program_are_written(tmp_path: Path) -> None:
    made = module(numpy.ones((2, 3), numpy.float32))
    made.weights["unused"] = numpy.ones(1000)
    made.save(str(tmp_path / "m.nir"))
    assert set(read_weights(tmp_path / "m.safetensors")) == {"layer.w"}


def test_weights_are_views_of_the_file(tmp_path: Path) -> None:
    module(numpy.ones((2, 3), numpy.float32)).save(str(tmp_path / "m.nir"))
    read = load(tmp_path / "m.nir").weights["layer.w"]
    assert read.base is not None and not read.flags.writeable


def test_a_program_without_weights_has_no_second_file(tmp_path: Path) -> None:
    made = parse("func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  func.return(%x)\n}")
    save(made, tmp_path / "m.nir")
    assert [f.name for f in tmp_path.iterdir()] == ["m.nir"]
    assert load(tmp_path / "m.nir").weights == {}


def test_saving_over_a_loaded_model_keeps_what_was_read(tmp_path: Path) -> None:
    module(numpy.ones((2, 3), numpy.float32)).save(str(tmp_path / "m.nir"))
    first = load(tmp_path / "m.nir")
    module(numpy.zeros((2, 3), numpy.float32)).save(str(tmp_path / "m.nir"))
    assert first.weights["layer.w"].sum() == 6
    assert load(tmp_path / "m.nir").weights["layer.w"].sum() == 0


def test_an_unbound_weight_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    made = module(numpy.ones((2, 3)))
    made.weights = {"other": numpy.ones(3)}
    assert message(lambda: made.save(str(tmp_path / "m.nir"))) == "the program uses 1 weight(s) that are not bound: layer.w"
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    module(numpy.ones((2, 3), numpy.float32)).save(str(tmp_path / "m.nir"))
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir()}
    made = module(object())
    with pytest.raises((IRError, KeyError)):
        made.save(str(tmp_path / "m.nir"))
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before


def test_weights_do_not_appear_before_the_text_beside_them(tmp_path: Path) -> None:
    module(numpy.ones((2, 3), numpy.float32)).save(tmp_path / "m.nir")
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir()}
    made = module(numpy.zeros((2, 3), numpy.float32))
    made.attrs["note"] = "\ud800"
    with pytest.raises(IRError, match="is no character of UTF-8"):
        made.save(tmp_path / "m.nir")
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before
    with pytest.raises(IRError, match=r"'\.' is no name of a file"):
        module(numpy.zeros((2, 3), numpy.float32)).save(".")


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(IRError, match=r"cannot write .*No such file or directory") as raised:
        module(numpy.ones((2, 3), numpy.float32)).save(str(tmp_path / "no" / "m.nir"))
    assert raised.value.code == "file"


# --- files that do not match ------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    module(numpy.arange(6, dtype=numpy.float32).reshape(2, 3)).save(str(tmp_path / "m.nir"))
    return tmp_path / "m.nir"


def test_missing_file(saved: Path) -> None:
    saved.with_suffix(".safetensors").unlink()
    assert message(lambda: load(saved)).startswith("the program uses 1 weight(s), but there is no file ")


@pytest.mark.parametrize("keep", [0, 3, 8, 20, -1])
def test_truncated_file(saved: Path, keep: int) -> None:
    path = saved.with_suffix(".safetensors")
    path.write_bytes(path.read_bytes()[:keep])
    assert "is damaged: it ends inside" in message(lambda: load(saved))


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"not json", "its header is not the JSON of a safetensors file"),
        (b"[1, 2]  ", "its header is not the JSON of a safetensors file"),
        (b'{"layer.w": 3}', "the entry of 'layer.w' is malformed"),
        (b'{"__metadata__": {"neuron_ir.aliases": "{\\"layer.w\\": []}"}}', "'layer.w' is an alias of [], which is not there"),
        (b'{"layer.w": {"dtype": "F32", "shape": [2, 3]}}', "the entry of 'layer.w' is malformed"),
        (b'{"layer.w": {"dtype": "F32", "shape": [2, -3], "data_offsets": [0, 24]}}', "the entry of 'layer.w' is malformed"),
        (b'{"layer.w": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 24]}}', "has 24 bytes where [2, 4] x f32 takes 32"),
    ],
)  # fmt: skip
def test_garbled_header(saved: Path, header: bytes, reason: str) -> None:
    data = len(header).to_bytes(8, "little") + header + bytes(24)
    saved.with_suffix(".safetensors").write_bytes(data)
    assert reason in message(lambda: load(saved))


def test_an_unknown_element_type(saved: Path) -> None:
    header = b'{"layer.w": {"dtype": "F2", "shape": [2, 3], "data_offsets": [0, 2]}}'
    saved.with_suffix(".safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(2))
    assert "the weight 'layer.w' has the element type F2, which is not known" in message(lambda: load(saved))


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ({"other": numpy.ones((2, 3), numpy.float32)}, "has no weight 'layer.w' of type tensor<2x3xf32>"),
        ({"layer.w": numpy.ones((3, 2), numpy.float32)}, "as tensor<3x2xf32>, but the program needs tensor<2x3xf32>"),
        ({"layer.w": numpy.ones((2, 3), ml_dtypes.bfloat16)}, "as tensor<2x3xbf16>, but the program needs tensor<2x3xf32>"),
    ],
)
def test_a_file_of_another_program(saved: Path, weights: dict[str, object], reason: str) -> None:
    write_weights(saved.with_suffix(".safetensors"), weights)
    assert reason in message(lambda: load(saved))
