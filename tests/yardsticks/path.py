"""The whole path of an exported torch program, and how its results are compared with torch's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

DTYPES = {
    "f32": "float32", "f64": "float64", "bf16": "bfloat16", "f16": "float16", "i64": "int64", "i32": "int32", "u8": "uint8",
    "bool": "bool", "c64": "complex64",
}  # fmt: skip


def compiled(program: Any) -> Any:
    """Import, print, parse, verify and compile an exported program."""
    import neuron_ir
    from neuron_ir.frontends.torch.export import functionalize
    from neuron_ir.frontends.torch.importer import import_program
    from neuron_ir.verify import verify

    module = import_program(functionalize(program))
    text = module.text()
    parsed = neuron_ir.parse(text)
    if parsed.text() != text:
        raise AssertionError("the text reads back as another program")
    parsed.weights = module.weights
    verify(parsed)
    return neuron_ir.compile(parsed)


def leaves(tree: Any) -> list[Any]:
    """The leaves of a nest of lists, tuples and dicts."""
    import torch

    return list(torch.utils._pytree.tree_leaves(tree))


def tensors(tree: Any) -> list[Any]:
    """The leaves that are tensors."""
    import torch

    return [leaf for leaf in leaves(tree) if isinstance(leaf, torch.Tensor)]


def refusal(error: Any) -> str:
    """One line that says what was refused."""
    first = error.diagnostics[0]
    return f"{first.message}" if first.message.startswith(("aten.", "prims.", "neuron.")) else f"{first.code}: {first.message}"


def difference(expected: Sequence[Any], actual: Sequence[Any], *, by_type: bool = False, check_dtype: bool = True) -> str:
    """What differs between two flat lists of results, by ``torch.testing.assert_close``'s own tolerances; empty where nothing."""
    import torch

    expected, actual = ([v for v in values if v is not None] for values in (expected, actual))
    if len(expected) != len(actual):
        return f"{len(actual)} results, not {len(expected)}"
    for i, (e, a) in enumerate(zip(expected, actual, strict=True)):
        if isinstance(e, torch.Tensor) != isinstance(a, torch.Tensor):
            return f"result {i} is {a!r}, not {e!r}"
        if not isinstance(e, torch.Tensor):
            if e != a and not (e != e and a != a):
                return f"result {i} is {a!r}, not {e!r}"
            continue
        if e.shape != a.shape or (check_dtype and e.dtype != a.dtype):
            return f"result {i} is {a.dtype}{list(a.shape)}, not {e.dtype}{list(e.shape)}"
        if by_type:
            continue
        try:
            rtol, atol = torch.testing._comparison.default_tolerances(a.dtype)
            torch.testing.assert_close(a.to(e.dtype), e, equal_nan=True, check_stride=False, rtol=rtol, atol=atol)
        except AssertionError as error:
            return f"result {i}: " + " ".join(str(error).split())
    return ""


def state_difference(state: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """What differs between a program's updated buffers and the module's own after the call."""
    import torch

    for name, value in state.items():
        if name not in expected:
            continue
        problem = difference([expected[name]], [torch.as_tensor(value)])
        if problem:
            return f"buffer {name}: {problem}"
    return ""
