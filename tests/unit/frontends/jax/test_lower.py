"""JAX functions to StableHLO: names, pytrees, symbols, captured arrays, locations, refusals."""

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from neuron_ir.diagnostics import IRError
from neuron_ir.frontends.jax import _compat, locations
from neuron_ir.frontends.jax.lower import Symbol, lower

WEIGHT = jnp.arange(20_000.0).reshape(100, 200)


@jax.jit
def project(x):
    return x @ WEIGHT


def walk(op):
    yield op
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from walk(inner.operation)


def ops_of(lowered):
    return list(walk(lowered.module.operation))


def test_private_names_exist():
    _compat.check()


def test_names_trees_and_captured_arrays():
    def f(p, x, *, k):
        return {"y": project(x) + p["b"], "k": k + 1}

    params = {"b": jnp.ones(200), "unused": jnp.ones(3)}
    lowered = lower(f, params, jax.ShapeDtypeStruct((4, 100), jnp.float32), k=np.int32(3))
    assert [(a.name, a.shape, a.dtype.name) for a in lowered.inputs] == [
        ("p['b']", (200,), "float32"),
        ("p['unused']", (3,), "float32"),
        ("x", (4, 100), "float32"),
        ("k", (), "int32"),
    ]
    assert [(r.name, r.shape) for r in lowered.outputs] == [("result['k']", ()), ("result['y']", (4, 200))]
    assert lowered.output_tree == {"k": ..., "y": ...}
    (constant,) = lowered.constants
    assert constant.name == "WEIGHT"
    assert np.array_equal(constant.array, np.asarray(WEIGHT))


def test_jitted_function_keeps_static_donated_and_dropped_arguments():
    jitted = jax.jit(lambda x, n, unused: x * n, static_argnums=1, donate_argnums=0)
    lowered = lower(jitted, jnp.ones(3), 2, jnp.ones(5))
    assert [(a.shape, a.used, a.donated) for a in lowered.inputs] == [((3,), True, True), ((5,), False, False)]


def test_symbolic_sizes_carry_bounds():
    b, s = jax.export.symbolic_shape("b, s", constraints=["b >= 2", "b <= 64"])
    lowered = lower(lambda x: x * 2, jax.ShapeDtypeStruct((2 * b, s), jnp.float32))
    assert lowered.inputs[0].shape == ("2*b", "s")
    assert lowered.outputs[0].shape == ("2*b", "s")
    assert lowered.symbols == (Symbol("b", 2, 64), Symbol("s", 1, None))


def test_location_is_the_users_line_with_name_stack_and_callers():
    def inner(x):
        return jnp.tanh(x)  # the line under test

    def outer(x):
        with jax.named_scope("block"):
            return inner(x)

    convert = locations.Locations()
    (tanh,) = [op for op in ops_of(lower(outer, jnp.ones(3))) if op.name == "stablehlo.tanh"]
    place = convert(tanh.location)
    line = inner.__code__.co_firstlineno + 1
    assert (place.file, place.line, place.scope) == (__file__, line, "block")
    assert place.col == len("        return ") + 1
    assert place.caller.line == outer.__code__.co_firstlineno + 2
    frames, link = [], place
    while link:
        frames.append(link.file)
        link = link.caller
    assert not any(name.endswith("frontends/jax/lower.py") for name in frames)


@pytest.mark.parametrize(
    ("name", "stack"),
    [("jit(f)/block/tanh", "block"), ("jit(f)/jit(relu)/max", "jit(relu)"), ("jit(f)", ""), ("x", ""), ("a/b/c", "a/b")],
)
def test_name_stack(name, stack):
    assert locations.name_stack(name) == stack


def test_argument_that_is_no_array_is_named():
    with pytest.raises(IRError, match=r"args\[1\]\['mode'\] is a str, not an array"):
        lower(lambda x, o: x, jnp.ones(3), {"mode": "fast"})


def test_unsupported_primitives_are_listed_with_lines():
    primitive = jax.extend.core.Primitive("no_such_thing")
    primitive.def_abstract_eval(lambda x: x)

    def f(x):
        return primitive.bind(x) + jax.jit(lambda y: primitive.bind(y))(x)

    with pytest.raises(IRError, match="'no_such_thing' has no lowering") as caught:
        lower(f, jnp.ones(3))
    line = f.__code__.co_firstlineno + 1
    assert {(d.loc.file, d.loc.line) for d in caught.value.diagnostics} == {(__file__, line)}
    assert len(caught.value.diagnostics) == 2


def test_error_of_the_users_function_passes_unchanged():
    def f(x):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        lower(f, jnp.ones(3))
