"""How a program's outputs nest, in Python's own notation: ``{'logits': ..., 'states': [(..., ...), None]}``.

A tree is made of tuples, lists, dicts, named tuples and ``None``; ``...`` stands for an output, in order. It is the function's
attribute ``output_tree``, which is absent where the outputs are a single one or a plain tuple. An object of any other class stands
as a named tuple of its fields, such as ``CausalLMOutput(logits=...)``, or as a tuple where they have no names.
"""

from __future__ import annotations

import ast
from collections import namedtuple
from collections.abc import Iterator, Sequence
from functools import cache
from keyword import iskeyword
from typing import Any

from neuron_ir.core import Func

__all__ = ["fill", "flatten", "keyed", "leaf_count", "named", "output_tree", "read", "set_output_tree", "write"]

ATTRIBUTE = "output_tree"


def named(name: str, fields: Sequence[str], parts: Sequence[Any]) -> Any:
    """A named tuple; a plain one where Python allows no field of such a name."""
    proper = all(f.isidentifier() and not iskeyword(f) and not f.startswith("_") for f in fields)
    if not proper or len(set(fields)) != len(fields) or not name.isidentifier() or iskeyword(name):
        return tuple(parts)
    return _named(name, tuple(fields))(*parts)


def keyed(keys: Sequence[Any], parts: Sequence[Any]) -> Any:
    """A dict; a tuple where a key is no text, integer or boolean, which alone have a place in the notation."""
    return dict(zip(keys, parts, strict=True)) if all(type(k) in (str, int, bool) for k in keys) else tuple(parts)


@cache
def _named(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, fields)  # the fields are known at run time only


def write(tree: Any) -> str:
    """A tree as text."""
    if tree is ...:
        return "..."
    if isinstance(tree, dict):
        return f"{{{', '.join(f'{key!r}: {write(part)}' for key, part in tree.items())}}}"
    if isinstance(tree, list):
        return f"[{', '.join(map(write, tree))}]"
    if hasattr(tree, "_fields"):
        return f"{type(tree).__name__}({', '.join(f'{f}={write(part)}' for f, part in zip(tree._fields, tree, strict=True))})"
    if isinstance(tree, tuple):
        return f"({', '.join(map(write, tree))}{',' * (len(tree) == 1)})"
    return repr(tree)


def read(text: str) -> Any:
    """The tree of a text; ``ValueError`` where it is none."""
    try:
        return _read(ast.parse(text, mode="eval").body)
    except SyntaxError:
        raise ValueError(f"{text!r} is no tree of outputs") from None


def _read(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value) if value is None or value is ...:
            return value
        case ast.Tuple(elts=parts):
            return tuple(map(_read, parts))
        case ast.List(elts=parts):
            return list(map(_read, parts))
        case ast.Dict(keys=keys, values=parts) if all(isinstance(k, ast.Constant | ast.UnaryOp) for k in keys):
            return {ast.literal_eval(k): _read(part) for k, part in zip(keys, parts, strict=True) if k is not None}
        case ast.Call(func=ast.Name(id=name), args=[], keywords=fields) if all(f.arg is not None for f in fields):
            return named(name, [str(f.arg) for f in fields], [_read(f.value) for f in fields])
    raise ValueError(f"{ast.unparse(node)!r} is no tree of outputs")


def leaf_count(tree: Any) -> int:
    """How many outputs the tree has."""
    if isinstance(tree, dict):
        return sum(map(leaf_count, tree.values()))
    return sum(map(leaf_count, tree)) if isinstance(tree, tuple | list) else int(tree is ...)


def fill(tree: Any, leaves: Iterator[Any]) -> Any:
    """The tree with its outputs in place."""
    if tree is ...:
        return next(leaves)
    if isinstance(tree, dict):
        return {key: fill(part, leaves) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        parts = [fill(part, leaves) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return tree


def flatten(tree: Any, value: Any) -> list[Any]:
    """The outputs of a filled tree, in order."""
    if tree is ...:
        return [value]
    if isinstance(tree, dict):
        return [leaf for key, part in tree.items() for leaf in flatten(part, value[key])]
    if isinstance(tree, tuple | list):
        return [leaf for part, inner in zip(tree, value, strict=True) for leaf in flatten(part, inner)]
    return []


def output_tree(func: Func) -> Any:
    """How the outputs of a function nest for its caller; ``ValueError`` where the attribute is malformed or of another count."""
    count = sum("updates" not in attrs for attrs in func.result_attrs) + len(func.attrs.get("fixed_outputs", ()))
    if ATTRIBUTE not in func.attrs:
        return _plain(count)
    tree = read(str(func.attrs[ATTRIBUTE]))
    if leaf_count(tree) != count:
        raise ValueError(f"{ATTRIBUTE} has {leaf_count(tree)} output(s), but the function has {count}")
    return tree


def set_output_tree(func: Func, tree: Any) -> None:
    """Note how the outputs of a function nest."""
    if tree != _plain(leaf_count(tree)) or hasattr(tree, "_fields"):
        func.attrs[ATTRIBUTE] = write(tree)


def _plain(count: int) -> Any:
    return ... if count == 1 else (...,) * count
