"""Private names of torch and jax stay in one `_compat.py` per front end or back end, where a version change is met."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hygiene.imports import imports
from tests.hygiene.tree import LINKS, ROOT, sources

WATCHED = ("torch", "jax", "jaxlib", "numpy", "np", "lark", "safetensors", "ml_dtypes")


def is_private(name: str) -> bool:
    """Whether a dotted name of a watched package is none of its public interface; jaxlib as a whole is not."""
    first, *rest = name.split(".")
    if first not in WATCHED:
        return False
    if first == "jaxlib":
        return True
    # torch.ops.aten._softmax names an operator; the operator registry is public.
    if first == "torch" and rest[:1] == ["ops"]:
        return False
    return any(part.startswith("_") and not part.startswith("__") for part in rest)


def chains(path: Path) -> Iterator[tuple[str, int]]:
    """Every `a.b.c` in a file as (text, line)."""
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        parts: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if parts and isinstance(inner, ast.Name):
            yield ".".join([inner.id, *reversed(parts)]), inner.lineno


def test_private_names_are_in_compat_only() -> None:
    problems = []
    for path in sources("neuron_ir", *LINKS):
        if path.name == "_compat.py":
            continue
        named = {(item.name, item.line) for item in imports(path)} | set(chains(path))
        problems += sorted(f"{path}:{line}: {name}" for name, line in named if is_private(name))
    assert problems == []


def test_compat_files_belong_to_one_front_or_back_end() -> None:
    for path in sources("neuron_ir", *LINKS):
        if path.name == "_compat.py":
            assert path.parts[0] in ("frontends", "backends") and len(path.parts) == 3, path


@pytest.mark.parametrize(
    ("name", "private"),
    [
        ("torch._C", True),
        ("torch._dynamo.backends.common.aot_autograd", True),
        ("torch.utils._pytree.tree_flatten", True),
        ("jax._src.core", True),
        ("jaxlib.mlir.ir", True),
        ("jaxlib.version.__version__", True),
        ("torch.ops.aten._softmax.default", False),
        ("torch.export.export", False),
        ("jax.extend.core", False),
        ("jax.__version__", False),
        ("neuron_ir.frontends.torch._compat", False),
    ],
)
def test_what_counts_as_private(name: str, private: bool) -> None:
    assert is_private(name) is private
