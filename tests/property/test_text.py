"""For random modules, what was printed reads back as the same module and prints the same again; garbage gives a clear error."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neuron_ir.attrs import Dense
from neuron_ir.compare import first_difference
from neuron_ir.core import Module
from neuron_ir.diagnostics import IRError
from neuron_ir.parser import parse
from neuron_ir.tools.generic import to_generic
from tests.property.random_modules import constants, modules

SLOW = settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@SLOW
@given(modules())
def test_print_and_parse(module: Module) -> None:
    text = module.text(locations=True)
    again = parse(text)
    assert first_difference(module, again) == ""
    assert again.text(locations=True) == text
    again.verify()


@SLOW
@given(modules())
def test_a_clone_is_equal_and_separate(module: Module) -> None:
    text = module.text(locations=True)
    copy = module.clone()
    assert first_difference(module, copy) == ""
    for op in copy.walk():
        op.attrs = {}
    assert module.text(locations=True) == text


@SLOW
@given(modules())
def test_the_generic_form_is_the_same_module(module: Module) -> None:
    text = to_generic(module)
    assert first_difference(module, parse(text)) == ""
    assert to_generic(parse(text)) == text


@settings(deadline=None, max_examples=200)
@given(constants())
def test_constants_keep_every_bit(dense: Dense) -> None:
    shape = "".join(f"{d}x" for d in dense.shape)
    text = f"func @main() {{\n  %c = neuron.constant() {{value = {dense!r}}} : tensor<{shape}{dense.dtype}>\n  func.return()\n}}"
    (op, _) = parse(text).main.body.ops
    assert op.get("value") == dense


@SLOW
@given(modules(), st.data())
def test_garbled_text_is_refused_in_our_words_or_read(module: Module, data: st.DataObject) -> None:
    text = module.text(locations=True)
    for _ in range(data.draw(st.integers(1, 3))):
        at, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 6))
        text = text[:at] + data.draw(st.text('%(){}[]<>:=,x0"#@.-/\\\né ', max_size=3)) + text[at + length :]
    try:
        parse(text).verify()
    except IRError as error:
        assert all(d.message for d in error.diagnostics)
