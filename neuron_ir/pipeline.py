"""Text to passes and back: ``module(func(cse,dce),fuse{max-ops=16})``, ``NAME{options}``, and named pipelines such as ``O2``.

An option is ``name=value`` or, for true, ``name``; options are separated by spaces, items of a list by commas, and a value with
other characters stands in double quotes. ``func(...)`` holds passes that work on one function at a time.
"""

from __future__ import annotations

import dataclasses
import pkgutil
import re
import typing
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from importlib import import_module, metadata, util
from typing import Any

from neuron_ir.diagnostics import Diagnostic, IRError, fail, nearest
from neuron_ir.locations import FileLoc
from neuron_ir.passmanager import FuncPass, Pass
from neuron_ir.quoting import quote, unquote

__all__ = ["find_pass", "named_pipelines", "parse_pipeline", "pass_names", "pass_options", "print_pass", "print_pipeline"]

ENTRY_POINTS = "neuron_ir.passes"
_FOLDER = "neuron_ir.passes"  # found by name when asked for: this module does not import it
_TOKEN = re.compile(r'\s*([(){},=]|"(?:[^"\\]|\\.)*"|[^\s(){},="]+)')


# --- finding passes ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def pass_names() -> tuple[str, ...]:
    """The names of all passes: files in ``passes/`` and entry points of other packages."""
    folder = import_module(_FOLDER)
    own = [m.name for m in pkgutil.iter_modules(folder.__path__) if not m.name.startswith("_") and _class_in(m.name) is not None]
    return tuple(sorted({*own, *(e.name for e in metadata.entry_points(group=ENTRY_POINTS))}))


def _class_in(name: str) -> type[Pass] | None:
    """The pass class that ``passes/<name>.py`` defines."""
    module = import_module(f"{_FOLDER}.{name}")
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Pass) and value.__module__ == module.__name__:
            return value
    return None


@cache
def find_pass(name: str) -> type[Pass]:
    """The class of the pass ``name``, importing only its file. Raises :class:`IRError` where there is none."""
    if name.isidentifier() and not name.startswith("_") and util.find_spec(f"{_FOLDER}.{name}") is not None:
        found = _class_in(name)
        if found is not None:
            return found
    for entry in metadata.entry_points(group=ENTRY_POINTS, name=name):
        cls = entry.load()
        if not (isinstance(cls, type) and issubclass(cls, Pass)):
            raise fail("pass", f"the entry point {entry.value} of the pass {name!r} is not a Pass")
        return cls
    raise fail("pass", f"there is no pass {name!r}{nearest(name, pass_names())}")


def named_pipelines() -> dict[str, str]:
    """The named pipelines: name to text."""
    return dict(import_module(f"{_FOLDER}.pipelines").PIPELINES)


# --- options ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class OptionInfo:
    """One option of a pass as help and errors show it."""

    field: str
    kind: Any
    default: Any
    help: str
    choices: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The name in the text: ``max-ops`` for the field ``max_ops``."""
        return self.field.replace("_", "-")


def pass_options(cls: type[Pass]) -> tuple[OptionInfo, ...]:
    """The options of a pass class, in the order of its fields."""
    kinds = typing.get_type_hints(cls)
    return tuple(
        OptionInfo(f.name, kinds[f.name], f.default, f.metadata.get("help", ""), f.metadata.get("choices", ()))
        for f in dataclasses.fields(cls)
    )


def make_pass(cls: type[Pass], given: dict[str, str | bool]) -> Pass:
    """A pass with options given as text. Raises :class:`IRError` for an unknown option or a value of the wrong kind."""
    known = {o.name: o for o in pass_options(cls)}
    fields: dict[str, Any] = {}
    for name, text in given.items():
        info = known.get(name)
        if info is None:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise fail("pass", f"pass {cls.name} has no option {name!r}{nearest(name, known) or '; ' + has}")
        fields[info.field] = _option_value(cls.name, info, text)
    return cls(**fields)


def _option_value(pass_name: str, info: OptionInfo, text: str | bool) -> Any:
    is_list = typing.get_origin(info.kind) is tuple
    kind = typing.get_args(info.kind)[0] if is_list else info.kind
    if text is True and kind is not bool:
        raise fail("pass", f"pass {pass_name}: option {info.name} needs a value: {info.name}=...")
    texts = [t for t in str(text).split(",") if t] if is_list else [text]
    values = tuple(_scalar(pass_name, info, kind, t) for t in texts)
    for value in values:
        if info.choices and value not in info.choices:
            allowed = ", ".join(map(str, info.choices))
            raise fail("pass", f"pass {pass_name}: option {info.name} is one of {allowed}, not {value!r}")
    return values if is_list else values[0]


def _scalar(pass_name: str, info: OptionInfo, kind: Any, text: str | bool) -> Any:
    try:
        if kind is bool:
            return text if isinstance(text, bool) else {"true": True, "false": False}[text]
        return kind(text)
    except (KeyError, ValueError):
        wanted = {bool: "true or false", int: "an integer", float: "a number"}.get(kind, kind.__name__)
        raise fail("pass", f"pass {pass_name}: option {info.name} must be {wanted}, not {text!r}") from None


# --- text to passes ---------------------------------------------------------------------------------------------------


def parse_pipeline(text: str) -> list[Pass]:
    """The passes that ``text`` names. Raises :class:`IRError` with a caret at the mistake."""
    return list(_Parser(text).whole())


class _Parser:
    """Recursive descent over the tokens of one pipeline."""

    def __init__(self, text: str, expanding: tuple[str, ...] = ()):
        self.text = text
        self.expanding = expanding
        self.tokens: list[tuple[str, int]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.error(at, "a quote is not closed")
            self.tokens.append((match[1], match.start(1)))
            at = match.end()
        self.next = 0

    def error(self, at: int, message: str, code: str = "pass") -> IRError:
        loc = FileLoc("<pipeline>", 1, at + 1, implicit=True)
        return IRError([Diagnostic(code, message, loc, source=self.text.replace("\n", " "))])

    @property
    def token(self) -> str:
        return self.tokens[self.next][0] if self.next < len(self.tokens) else ""

    @property
    def at(self) -> int:
        return self.tokens[self.next][1] if self.next < len(self.tokens) else len(self.text)

    def take(self, wanted: str) -> None:
        if self.token != wanted:
            found = f"not {self.token!r}" if self.token else "but the text ends"
            raise self.error(self.at, f"expected {wanted!r}, {found}")
        self.next += 1

    def whole(self) -> Iterator[Pass]:
        if not self.tokens:
            return
        yield from self.items(inside_func=False)
        if self.token:
            raise self.error(self.at, f"unexpected {self.token!r}")

    def items(self, inside_func: bool) -> Iterator[Pass]:
        if self.token == ")":
            return
        yield from self.item(inside_func)
        while self.token == ",":
            self.next += 1
            yield from self.item(inside_func)

    def item(self, inside_func: bool) -> Iterator[Pass]:
        name, at = self.token, self.at
        if not re.fullmatch(r"[\w.-]+", name):
            raise self.error(at, f"expected the name of a pass, not {name!r}" if name else "expected the name of a pass")
        self.next += 1
        if self.token == "(":
            if name not in ("module", "func") or (name == "module" and inside_func):
                raise self.error(at, f"{name!r} cannot hold passes here; use module(...) or func(...)")
            self.take("(")
            yield from self.items(inside_func or name == "func")
            self.take(")")
            return
        options = self.options() if self.token == "{" else {}
        named = named_pipelines()
        if name in named and not options and name not in self.expanding:
            yield from _Parser(named[name], (*self.expanding, name)).whole()
            return
        try:
            made = make_pass(find_pass(name), options)
        except IRError as error:
            raise self.error(at, error.diagnostics[0].message, error.code) from None
        if inside_func and not isinstance(made, FuncPass):
            raise self.error(at, f"pass {name} works on the whole module and cannot stand inside func(...)")
        yield made

    def options(self) -> dict[str, str | bool]:
        options: dict[str, str | bool] = {}
        self.take("{")
        while self.token != "}":
            name, at = self.token, self.at
            if not re.fullmatch(r"\w[\w-]*", name):
                raise self.error(at, f"expected the name of an option, not {name!r}" if name else "expected '}'")
            if name in options:
                raise self.error(at, f"the option {name!r} is given twice")
            self.next += 1
            options[name] = True
            if self.token == "=":
                self.next += 1
                options[name] = self.value()
        self.take("}")
        return options

    def value(self) -> str:
        """One value, or several with commas between."""
        parts: list[str] = []
        while True:
            if not self.token or self.token in "(){},=":
                raise self.error(self.at, f"expected a value, not {self.token!r}" if self.token else "expected a value")
            token = self.token
            parts.append(unquote(token) if token[0] == '"' else token)
            self.next += 1
            if self.token != ",":
                return ",".join(parts)
            self.next += 1


# --- passes to text ---------------------------------------------------------------------------------------------------


def print_pass(p: Pass) -> str:
    """One pass with the options that differ from their defaults, as :func:`parse_pipeline` reads it."""
    options = []
    for info in pass_options(type(p)):
        value = getattr(p, info.field)
        if value != info.default:
            items = value if isinstance(value, tuple) else (value,)
            options.append(f"{info.name}={','.join(map(_option_text, items))}")
    return f"{p.name}{{{' '.join(options)}}}" if options else p.name


def _option_text(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    plain = re.fullmatch(r'[^\s(){},="]+', text)
    return text if plain else quote(text)


def print_pipeline(passes: Iterable[Pass]) -> str:
    """The text of a pipeline."""
    return f"module({','.join(map(print_pass, passes))})"
