"""Strings in the text of programs, pipelines and graphs: in double quotes, with a backslash before what would end or break them."""

from __future__ import annotations

import re

__all__ = ["quote", "unquote"]

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_PLAIN = {escaped[1]: plain for plain, escaped in _ESCAPES.items()}
_TABLE = str.maketrans(_ESCAPES)


def quote(text: str) -> str:
    """A string as the text holds it."""
    return f'"{text.translate(_TABLE)}"'


def unquote(token: str) -> str:
    """The string that stands in quotes."""
    text = token[1:-1]
    return re.sub(r"\\(.)", lambda m: _PLAIN.get(m[1], m[1]), text) if "\\" in text else text
