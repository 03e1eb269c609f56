"""StableHLO text, bytecode and portable artefacts; bad input never stops the process."""

import io

import jax
import jax.numpy as jnp
import pytest

from neuron_ir.diagnostics import IRError
from neuron_ir.frontends.jax._compat import stablehlo
from neuron_ir.frontends.jax.lower import lower
from neuron_ir.frontends.jax.parse import parse, producer_version


@pytest.fixture(scope="module")
def module():
    return lower(lambda x: jax.lax.scan(lambda c, y: (c + y, jnp.sin(y)), x[0], x), jnp.ones((4, 8))).module


def portable(module, version):
    """jaxlib's serialiser turns the module that it is given into VHLO in place."""
    return stablehlo.serialize_portable_artifact(parse(str(module)), version)


@pytest.fixture(scope="module")
def bytecode(module):
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def test_text_and_bytes_of_text(module):
    assert str(parse(str(module))) == str(module)
    assert str(parse(str(module).encode())) == str(module)


def test_bytecode(module, bytecode):
    assert str(parse(bytecode)) == str(module)


@pytest.mark.parametrize("version", ["1.0.0", "1.9.0"])
def test_portable_artefact_of_an_older_version(module, version):
    data = portable(module, version)
    assert producer_version(data) == tuple(map(int, version.split(".")))
    assert str(parse(data)) == str(module)


def test_newer_artefact_names_both_versions(module):
    data = portable(module, "1.9.0").replace(b"_v1.9.0", b"_v9.9.0")
    with pytest.raises(IRError, match=r"written by StableHLO 9\.9\.0, this jaxlib reads up to 1\."):
        parse(data, file="new.mlirbc")


def test_syntax_error_has_line_column_and_caret():
    text = """func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.tanhh %a : tensor<2xf32>
  return %0 : tensor<2xf32>
}"""
    with pytest.raises(IRError) as caught:
        parse(text, file="bad.mlir")
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.loc.file, diagnostic.loc.line, diagnostic.loc.col) == ("bad.mlir", 2, 8)
    assert "stablehlo.tanhh" in diagnostic.message
    assert "%0 = stablehlo.tanhh %a" in str(caught.value)


def test_verifier_error_is_a_diagnostic():
    text = "func.func @main(%a: tensor<2xf32>) -> tensor<3xf32> {\n  return %a : tensor<2xf32>\n}"
    with pytest.raises(IRError, match="function result type") as caught:
        parse(text, file="bad.mlir")
    assert caught.value.diagnostics[0].loc.line == 2


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe\x00", b"ML\xefR", b"ML\xefRgarbage", b"ML\xefR\rStableHLO_v1.0.0\0\xff\xff", "a\0b"]
)
def test_garbage_is_refused(data):
    if data == b"":
        assert str(parse(data)).split() == ["module", "{", "}"]
        return
    with pytest.raises(IRError):
        parse(data)


@pytest.mark.parametrize("kind", ["bytecode", "portable"])
@pytest.mark.parametrize("cut", [0.1, 0.6, 0.97])
def test_truncated_and_flipped_bytes_are_refused_or_read(module, bytecode, kind, cut):
    data = bytecode if kind == "bytecode" else portable(module, "1.9.0")
    at = int(len(data) * cut)
    with pytest.raises(IRError, match="damaged"):
        parse(data[:at])
    flipped = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
    try:
        parse(flipped)
    except IRError as error:
        assert error.code in ("syntax", "version")
