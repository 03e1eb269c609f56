"""The tables of specs/numerics.md hold: each is read from the page and computed."""

from __future__ import annotations

import re

import numpy as np
import pytest

import neuron_ir
from neuron_ir.dtypes import dtype
from neuron_ir.meaning import compute
from tests.hygiene.tree import ROOT

PAGE = (ROOT / "specs" / "numerics.md").read_text(encoding="utf-8")
CASTS = re.findall(r"^\| (\S+?)(?: \((\w+)\))? to (\w+?)(?:,[^|]*)? \| (\S+) \| (\S+) \| (\S+) \|$", PAGE, re.M)


def test_the_page_has_its_table() -> None:
    assert len(CASTS) == 5


@pytest.mark.parametrize(("given", "source", "target", "nan", "wrap", "saturate"), CASTS)
def test_casts_are_as_the_page_says(given: str, source: str, target: str, nan: str, wrap: str, saturate: str) -> None:
    x = np.array(float(given), dtype(source or "f32").numpy)
    for mode, wanted in (("nan", nan), ("wrap", wrap), ("saturate", saturate)):
        got = compute("neuron.cast", x, out=neuron_ir.tensor([], target), mode=mode)
        np.testing.assert_equal(float(got), float(wanted), err_msg=f"{given} to {target}, {mode}")


@pytest.mark.parametrize(
    ("body", "x", "wanted"),
    [
        ("%a = neuron.exponential(%x) : T\n%y = neuron.log(%a) : T", 89.0, np.inf),
        ("%a = neuron.multiply(%x, %x) : T\n%b = neuron.abs(%a) : T\n%y = neuron.sqrt(%b) : T", 3e38, np.inf),
        ("C(c, 1e30)\nC(d, 1e-30)\n%a = neuron.multiply(%x, %c) : T\n%y = neuron.multiply(%a, %d) : T", 1e10, np.inf),
        ("C(c, 1e10)\n%a = neuron.add(%x, %c) : T\n%y = neuron.subtract(%a, %c) : T", 1.0, 0.0),
        ("C(c, 3.0)\n%y = neuron.divide(%x, %c) : T", 5.0, float(np.float32(5) / np.float32(3))),
        ("C(c, 0.0)\n%y = neuron.atan2(%c, %c) : T", 1.0, 0.0),
        (
            "%a = neuron.cast(%x) : tensor<4xbf16>\n%y = neuron.cast(%a) : T",
            1.00390625,
            1.0,  # half way between 1 and the next bf16, to even
        ),
    ],
)
def test_the_guards_hold_what_the_page_promises(body: str, x: float, wanted: float) -> None:
    body = re.sub(r"C\((\w), (\S+)\)", r"%\1 = neuron.constant() {value = dense<\2>} : T", body).replace("T", "tensor<4xf32>")
    module = neuron_ir.parse(f"func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{\n{body}\nfunc.return(%y)\n}}")
    result = neuron_ir.compile(module)(np.full(4, x, np.float32))
    np.testing.assert_array_equal(result, np.full(4, wanted, np.float32))
