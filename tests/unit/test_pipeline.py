"""Pipelines as text: what is read, what is refused and where."""

from __future__ import annotations

import pytest

from neuron_ir.diagnostics import IRError
from neuron_ir.passes.expand_composites import ExpandComposites
from neuron_ir.passes.fuse import Fuse
from neuron_ir.pipeline import find_pass, named_pipelines, parse_pipeline, pass_names, pass_options, print_pipeline


def names(text: str) -> list[str]:
    return [p.name for p in parse_pipeline(text)]


def test_passes_options_and_groups() -> None:
    passes = parse_pipeline("module(func(cse,dce), fuse{max-ops=16})")
    assert [p.name for p in passes] == ["cse", "dce", "fuse"]
    assert passes[2] == Fuse(max_ops=16)


def test_a_single_pass_needs_no_module() -> None:
    assert names("cse") == ["cse"]
    assert names("cse,dce") == ["cse", "dce"]


def test_nothing_is_an_empty_pipeline() -> None:
    assert names("") == names("  ") == names("module()") == names("module(func())") == []


def test_named_pipelines_stand_for_their_text() -> None:
    for name, text in named_pipelines().items():
        assert names(name) == names(text)
        assert names(f"module(cse,{name})" if text else f"cse,{name}") == ["cse", *names(text)]


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("expand_composites{only=softmax,gelu one-level}", [ExpandComposites(only=("softmax", "gelu"), one_level=True)]),
        ("expand_composites{one-level=false}", [ExpandComposites()]),
        ('expand_composites{only="softmax"}', [ExpandComposites(only=("softmax",))]),
        ("fuse{max-ops=4},fuse", [Fuse(4), Fuse()]),
    ],
)
def test_options(text: str, passes: list[object]) -> None:
    assert parse_pipeline(text) == passes


@pytest.mark.parametrize("text", ["cse,dce", "fuse{max-ops=4}", "expand_composites{only=softmax,gelu one-level=true}", "O3", ""])
def test_printing_reads_back(text: str) -> None:
    passes = parse_pipeline(text)
    assert parse_pipeline(print_pipeline(passes)) == passes


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("css", 1, "there is no pass 'css'; did you mean 'cse'?"),
        ("cse,,dce", 5, "expected the name of a pass, not ','"),
        ("module(cse", 11, "expected ')', but the text ends"),
        ("cse)", 4, "unexpected ')'"),
        ("function(cse)", 1, "'function' cannot hold passes here; use module(...) or func(...)"),
        ("func(module(cse))", 6, "'module' cannot hold passes here; use module(...) or func(...)"),
        ("func(inline)", 6, "pass inline works on the whole module and cannot stand inside func(...)"),
        ("fuse{maxops=3}", 1, "pass fuse has no option 'maxops'; did you mean 'max-ops'?"),
        ("cse{x=3}", 1, "pass cse has no option 'x'; it has none"),
        ("fuse{max-ops=many}", 1, "pass fuse: option max-ops must be an integer, not 'many'"),
        ("fuse{max-ops}", 1, "pass fuse: option max-ops needs a value: max-ops=..."),
        ("fuse{max-ops=3 max-ops=4}", 16, "the option 'max-ops' is given twice"),
        ("inline{keep-functions=maybe}", 1, "pass inline: option keep-functions must be true or false, not 'maybe'"),
        ("layout{partition=2}", 1, "pass layout: option partition must be true or false, not '2'"),
        ("precision{rounding=odd}", 1, "pass precision: option rounding is one of nearest, stochastic, not 'odd'"),
        ("fuse{max-ops=}", 14, "expected a value, not '}'"),
        ("fuse{max-ops=3", 15, "expected '}'"),
        ('fuse{max-ops="3', 14, "a quote is not closed"),
        ("expand_composites{only=sofmax}", 1, "pass expand_composites: sofmax is no composite op; did you mean 'neuron.softmax'?"),
        ("_private", 1, "there is no pass '_private'"),
        ("pipelines", 1, "there is no pass 'pipelines'; did you mean 'inline'?"),
    ],
)
def test_mistakes_are_named_with_their_place(text: str, column: int, message: str) -> None:
    with pytest.raises(IRError) as raised:
        parse_pipeline(text)
    (diagnostic,) = raised.value.diagnostics
    assert (diagnostic.code, diagnostic.message) == ("pass", message)
    assert diagnostic.loc.short == f"<pipeline>:1:{column}"
    assert "\n  " + " " * (column - 1) + "^" in str(raised.value)


def test_every_pass_is_a_frozen_dataclass_with_help() -> None:
    assert set(pass_names()) >= {"canonicalize", "fold_constants", "cse", "dce", "inline", "expand_composites"}
    for name in pass_names():
        cls = find_pass(name)
        assert cls.name == name
        assert cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}("), f"{name} has no help"
        assert cls.exact == (cls.rtol == 0.0), f"{name} must say how far it may be off"
        for option in pass_options(cls):
            assert option.help, f"{name}: the option {option.name} has no help"
        assert hash(cls()) == hash(cls())
