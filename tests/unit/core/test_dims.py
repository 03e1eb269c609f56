"""Symbolic sizes: a normal form in which equal polynomials are one object, and arithmetic that agrees with integers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_ir.dims import UNKNOWN, evaluate, function, symbol
from neuron_ir.parser import parse_dim

A, B = symbol("A"), symbol("B")


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (A + 1, "A+1"),
        (1 + A, "A+1"),
        (A - B, "A-B"),
        (5 - A, "-A+5"),
        (A * 2 * B, "2*A*B"),
        (A * A - 3, "A*A-3"),
        (-A, "-A"),
        ((A + 1) * (A - 1), "A*A-1"),
        (A // 2, "floordiv(A,2)"),
        ((A + B) % 4, "mod(A+B,4)"),
        (7 // A, "floordiv(7,A)"),
        (function("max", A, 1), "max(1,A)"),
        (function("min", B, A), "min(A,B)"),
    ],
)
def test_the_normal_form_prints_and_reads_back(dim: Any, text: str) -> None:
    assert str(dim) == text
    assert parse_dim(text) is dim


def test_what_cancels_is_a_number() -> None:
    assert A - A == 0
    assert (A + 3) - A == 3
    assert A * 0 == 0
    assert (2 * A) // 2 is A
    assert (4 * A + 8) // 4 is A + 2
    assert (6 * A) % 3 == 0
    assert A // A == 1
    assert A % A == 0
    assert function("max", A, A) is A


def test_unknown_swallows_everything() -> None:
    for dim in (A + UNKNOWN, UNKNOWN * 2, UNKNOWN - A, function("max", UNKNOWN, 3), function("mod", A, UNKNOWN)):
        assert dim is UNKNOWN


def test_symbols_are_found_inside_functions() -> None:
    assert ((A // B) * 2 + symbol("C")).symbols == {"A", "B", "C"}
    assert A.is_symbol
    assert not (2 * A).is_symbol
    assert not (A // 2).is_symbol


def test_a_missing_symbol_is_named() -> None:
    with pytest.raises(KeyError, match="B"):
        evaluate(A + B, {"A": 1})


def expressions() -> Any:
    """Pairs of a symbolic expression and the same computation on integers."""

    def combine(children: Any) -> Any:
        operators = {
            "+": lambda x, y: x + y,
            "-": lambda x, y: x - y,
            "*": lambda x, y: x * y,
            "max": lambda x, y: max(x, y),
            "min": lambda x, y: min(x, y),
        }

        def make(name: str, left: Any, right: Any) -> Any:
            def symbolic() -> Any:
                x, y = left[0](), right[0]()
                return function(name, x, y) if name in ("max", "min") else operators[name](x, y)

            return symbolic, lambda sizes: operators[name](left[1](sizes), right[1](sizes))

        return st.builds(make, st.sampled_from(sorted(operators)), children, children)

    leaves = st.one_of(
        st.integers(-5, 5).map(lambda n: (lambda: n, lambda sizes: n)),
        st.sampled_from("AB").map(lambda name: (lambda: symbol(name), lambda sizes: sizes[name])),
    )
    return st.recursive(leaves, combine, max_leaves=8)


@given(expressions(), st.integers(0, 9), st.integers(0, 9))
def test_arithmetic_agrees_with_integers(expression: Any, a: int, b: int) -> None:
    symbolic, plain = expression
    dim = symbolic()
    assert evaluate(dim, {"A": a, "B": b}) == plain({"A": a, "B": b})
    assert parse_dim(str(dim)) == dim


@given(st.integers(-20, 20), st.integers(1, 7))
def test_division_floors_as_in_python(a: int, b: int) -> None:
    assert evaluate((A + a) // b, {"A": 3}) == (3 + a) // b
    assert evaluate((A + a) % b, {"A": 3}) == (3 + a) % b
    assert evaluate(function("floordiv", A, B), {"A": a, "B": b}) == a // b
