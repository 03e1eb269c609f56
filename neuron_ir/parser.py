"""Neuron IR text to objects. The grammar is ``grammar.lark``; callbacks make the objects while Lark parses: no tree."""

from __future__ import annotations

import re
import struct
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args
from lark.exceptions import VisitError

from neuron_ir.attrs import Dense, Resource, Symbol, same_attr
from neuron_ir.core import IR_VERSION, Block, Func, Module, bulk
from neuron_ir.diagnostics import Diagnostic, IRError, fail, nearest
from neuron_ir.dims import UNKNOWN, DimLike, function, symbol
from neuron_ir.dtypes import DType, all_dtypes, dtype, is_dtype
from neuron_ir.files import no_text
from neuron_ir.literals import Bits, Complex, dense_from
from neuron_ir.locations import FileLoc, FusedLoc, Loc
from neuron_ir.opdef import OpSpec
from neuron_ir.quoting import unquote
from neuron_ir.registry import all_ops, load_dialects, op_spec
from neuron_ir.types import DEFAULT_LAYOUT, TOKEN, Layout, TensorType, Type

__all__ = ["MAX_NESTING", "parse", "parse_dim", "parse_file", "parse_type"]

MAX_NESTING = 256  # regions or attribute lists inside one another; keeps every recursive walk far from Python's own limit

MAX_ITEMS = 250_000  # in one attribute: reading each takes some 15 microseconds, and nobody reads such a list

_STARTS = ["module", "attr_dict", "tensor_type", "layout", "dense", "dims", "loc", "sum"]


def parse(text: str, file: str = "<text>") -> Module:
    """The module that ``text`` describes. ``file`` is the name in diagnostics. Raises :class:`IRError` on any mistake.

    The result is well formed but not verified: see :meth:`Module.verify`.
    """
    if not isinstance(text, str):
        raise fail("input", f"the text of a module is needed, not a {type(text).__name__}")
    load_dialects()
    _check_nesting(text, file)
    with bulk():
        return _start("module", text, file)  # type: ignore[no-any-return]


def parse_file(path: str | Path) -> Module:
    """The module in a ``.nir`` file, without its weights (see :func:`neuron_ir.load`)."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # editors on Windows begin a file with a mark
    except OSError as error:
        raise fail("file", f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:  # not UTF-8, or no name of a file
        raise no_text(path, error) from None
    return parse(text, str(path))


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Type:
    """The type that ``text`` describes, for example ``tensor<2xSxf32>``."""
    return TOKEN if text == "token" else _start("tensor_type", text, "<type>")


@lru_cache(maxsize=4096)
def parse_dim(text: str) -> DimLike:
    """The dimension that ``text`` describes, for example ``2*S+1``."""
    return _start("sum", text, "<dim>")  # type: ignore[no-any-return]


class _Origin:
    """Where a piece of text stands in the file, to place errors inside of tokens."""

    def __init__(self, file: str, text: str, line: int = 1, col: int = 1):
        self.file, self.text, self.line, self.col = file, text, line, col

    def loc(self, line: int, col: int) -> FileLoc:
        return FileLoc(self.file, self.line + line - 1, col if line > 1 else self.col + col - 1, implicit=True)

    def source(self, line: int) -> str | None:
        """The line of text, where this is the whole text of a module."""
        lines = self.text.split("\n", line)
        return lines[line - 1] if self.line == self.col == 1 and line <= len(lines) else None


@lru_cache(maxsize=1)
def _lark() -> tuple[Lark, _Reader]:
    reader = _Reader()
    grammar = (Path(__file__).parent / "grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", start=_STARTS, maybe_placeholders=True, transformer=reader), reader


@lru_cache(maxsize=1)
def _flat_op() -> re.Pattern[str]:
    """The parts of a FLAT_OP as groups, from the grammar's own terminals."""
    part = {t.name: t.pattern.to_regexp() for t in _lark()[0].terminals}
    optional = "".join(rf"(?:\s*({part[name]}))?" for name in ("ATTRS", "OP_TYPES", "LOC"))
    return re.compile(rf"(?:({part['RESULTS']})\s*)?({part['OP_NAME']})\s*({part['OPERANDS']}){optional}")


_LOCK = threading.RLock()  # the reader is one object with state, so one text is read at a time


def _start(rule: str, text: str, file: str) -> Any:
    """Parse a whole text from the grammar rule ``rule``."""
    with _LOCK:
        _lark()[1].begin(file, text)
        return _run(rule, text, _Origin(file, text))


def _run(rule: str, text: str, origin: _Origin) -> Any:
    try:
        return _lark()[0].parse(text, start=rule)
    except UnexpectedInput as error:
        raise _syntax_error(error, origin) from None
    except VisitError as error:
        raise error.orig_exc from None


def _syntax_error(error: UnexpectedInput, origin: _Origin) -> IRError:
    line, col = max(error.line, 1), max(error.column, 1)
    expected = sorted(
        {_TERMINALS.get(t, t.lower()) for t in getattr(error, "accepts", None) or getattr(error, "allowed", None) or ()}
    )
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        lines = origin.text.split("\n")
        line, col, what = len(lines), len(lines[-1]) + 1, "the text ends too early"
    elif isinstance(error, UnexpectedCharacters):
        what = f"unexpected {error.char!r}"
    else:
        what = f"unexpected {str(getattr(error, 'token', ''))[:40]!r}"
    wanted = f"; expected {' or '.join(expected[:6])}" if expected else ""
    return IRError([Diagnostic("syntax", what + wanted, origin.loc(line, col), source=origin.source(line))])


_TERMINALS = {  # as messages name them
    "OP_NAME": "an op", "RESULTS": "an op", "FLAT_OP": "an op", "OPERANDS": "operands such as (%a, %b)", "ATTRS": "attributes",
    "OP_TYPES": "': type'", "LOC": "loc(...)", "VALUE": "a %value", "TYPE": "a type", "SYMBOL": "an @name", "NAME": "a name",
    "INT": "an integer", "FLOAT": "a float", "STRING": "a string", "FUNCTION": "floordiv, mod, max or min", "DIMS": "[dims]",
    "RBRACE": "'}'", "LBRACE": "'{'", "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "COMMA": "','", "COLON": "':'",
    "EQUAL": "'='", "QMARK": "'?'", "MINUS": "'-'", "CIRCUMFLEX": "'^'", "MODULE": "'module'", "FUNC": "'func'",
}  # fmt: skip


def _check_nesting(text: str, file: str) -> None:
    """Refuse text whose brackets are nested deeper than the limit, before anything recursive sees it."""
    if text.count("{") + text.count("[") <= MAX_NESTING:
        return
    depth = {"{": 0, "[": 0}
    for match in _BRACKETS.finditer(text):
        token = match.group()
        if token in "{[":
            depth[token] += 1
            if depth[token] > MAX_NESTING:
                line = text.count("\n", 0, match.start()) + 1
                col = match.start() - text.rfind("\n", 0, match.start())
                raise fail("nesting", f"nested deeper than {MAX_NESTING} levels", FileLoc(file, line, col, implicit=True))
        elif token in "}]":
            depth["{" if token == "}" else "["] -= 1


_BRACKETS = re.compile(r'[{}\[\]]|"(?:[^"\\\n]++|\\.)*+"|//[^\n]*')
_NAMES = re.compile(r"%([\w.]+)")
_STRING = re.compile(r'"(?:[^"\\\n]++|\\.)*+"')


class _DenseText(str):
    """A ``dense<...>`` whose element type comes from the op's result type."""


_rule = v_args(inline=True)  # children as arguments; left out on the one hot rule, `op`


class _Reader(Transformer):  # type: ignore[type-arg]
    """The callbacks, and the state of the text being read: its scopes and memos."""

    def __init__(self) -> None:
        super().__init__()
        self.begin("<text>", "")

    def begin(self, file: str, text: str) -> None:
        """Forget the previous text."""
        self.file = file
        self.origin = _Origin(file, text)  # of the text, or of the token whose inside is being read
        self.names: dict[str, Any] = {}  # visible values by name
        self.scopes: list[tuple[Block, list[str]]] = []  # open blocks with the names each has defined
        self.aliases: dict[str, Layout] = {}
        self.memo: dict[str, dict[str, Any]] = {"attrs": {}, "types": {}, "loc": {}}
        self.result_module = Module()

    def at(self, token: Any) -> FileLoc:
        """The place of a token; of the parts of a flat op only where they are tokens."""
        line, column = getattr(token, "line", None), getattr(token, "column", None)
        return self.origin.loc(line, column) if line and column else FileLoc(self.file, implicit=True)

    def inside(self, start: str, token: str) -> Any:
        """Parse the inside of a token."""
        place, outer = self.at(token), self.origin
        if len(token) > MAX_ITEMS and _STRING.sub("", token).count(",") > MAX_ITEMS:
            raise fail(
                "attr", f'more than {MAX_ITEMS:,} items in one piece of text; a long constant is written as dense<"bytes">', place
            )
        self.origin = _Origin(self.file, str(token), place.line or 1, place.col or 1)
        try:
            return _run(start, str(token), self.origin)
        finally:
            self.origin = outer

    # --- module and functions ---

    @_rule
    def module(self, *parts: Any) -> Module:
        return self.result_module

    bare_module = module

    @_rule
    def module_head(self, name: Token, attrs: Token | None) -> None:
        self.result_module.name = _symbol_name(name)
        self.result_module.attrs = self.attrs(attrs)
        version = self.result_module.attrs.pop("ir_version", IR_VERSION)
        if not isinstance(version, int) or version > IR_VERSION:
            raise fail("version", f"the text has ir_version {version}; this reader knows up to {IR_VERSION}", self.at(name))

    @_rule
    def alias(self, name: Token, layout: Token) -> None:
        self.aliases[str(name)] = self.inside("layout", layout)

    @_rule
    def func_head(self, name: Token, dims: Token | None, params: Any, results: Any, attrs: Token | None) -> Func:
        params, results = params or (), results or ()
        func = Func(_symbol_name(name), [p[1] for p in params], [r[0] for r in results], self.at(name))
        if func.name in self.result_module.funcs:
            raise fail("name", f"the function @{func.name} is defined twice", self.at(name))
        func.arg_attrs, func.result_attrs = [p[2] for p in params], [r[1] for r in results]
        func.dims = self.inside("dims", dims) if dims is not None else {}
        func.attrs = self.attrs(attrs)
        self.names = {}
        self.scopes = [(func.body, [])]
        for (token, _, _), arg in zip(params, func.args, strict=True):
            self.define(token, arg)
        return func

    @_rule
    def func(self, head: Func, *ops: Any) -> None:
        self.scopes.pop()
        self.result_module.add(head)

    @_rule
    def params(self, *params: Any) -> Any:
        return params

    @_rule
    def param(self, name: Token, type: Token, attrs: Token | None) -> Any:
        return name, self.type(type), self.attrs(attrs)

    @_rule
    def results(self, *results: Any) -> Any:
        return [r for r in results if r is not None]

    @_rule
    def result(self, type: Token, attrs: Token | None) -> Any:
        return self.type(type), self.attrs(attrs)

    # --- ops and regions ---

    def flat_op(self, children: Any) -> None:
        (token,) = children
        match = _flat_op().fullmatch(token)
        assert match is not None
        place = FileLoc(self.file, token.line, token.column, "", None, True)
        try:
            self.make_op(place, (), *match.groups())
        except IRError:  # once more with the place of each part, for the message
            self.make_op(place, (), *(self.part(token, match, i) for i in range(1, 7)))

    def part(self, token: str, match: re.Match[str] | None, group: int) -> Token | None:
        """A group of a match in a token as a token with its place, where the token has one."""
        if match is None or match[group] is None:
            return None
        line, column = getattr(token, "line", None), getattr(token, "column", None)
        if not (line and column):
            return Token("PART", match[group])
        before = token[: match.start(group)]
        column = len(before) - before.rfind("\n") if "\n" in before else column + len(before)
        return Token("PART", match[group], line=line + before.count("\n"), column=column)

    def op(self, children: Any) -> None:
        results, name, operands, attrs, *regions, types, loc = children
        self.make_op(self.at(results or name), regions, results, name, operands, attrs, types, loc)

    def make_op(
        self, place: FileLoc, regions: Any, results: Any, name: Any, operands: Any, attrs: Any, types: Any, loc: Any
    ) -> None:
        spec = self.spec(name)
        values = []
        for operand in _NAMES.findall(operands):
            value = self.names.get(operand)
            if value is None:
                place = self.at(self.part(operands, re.search(rf"(%{re.escape(operand)})\b", operands), 1))
                raise fail("name", f"%{operand} is not defined here{nearest(operand, self.names)}", place)
            values.append(value)
        out = self.types(types) if types is not None else ()
        names = _NAMES.findall(results) if results is not None else ()
        if len(names) != len(out):
            message = f"{name} has {len(names)} result name(s) but {len(out)} result type(s)"
            raise fail("operand", message, self.at(results or name))
        given = self.op_attrs(attrs, spec, out) if attrs is not None else {}
        op = spec.cls(values, out, given, regions, self.loc_(loc) if loc is not None else place)
        for result, value in zip(names, op.results, strict=True):
            self.define(results, value, result)
        self.scopes[-1][0].append(op)

    def spec(self, name: Token) -> OpSpec:
        try:
            return op_spec(name)
        except KeyError:
            raise fail("op", f"there is no op {name}{nearest(name, [s.name for s in all_ops()])}", self.at(name)) from None

    def define(self, token: Token, value: Any, name: str = "") -> None:
        name = name or str(token)[1:]
        if name in self.names:
            raise fail("name", f"%{name} is defined twice", self.at(token))
        self.names[name] = value
        self.scopes[-1][1].append(name)
        if not name.isdigit():
            value.name = name

    @_rule
    def region_head(self, name: Token | None, args: Any) -> Block:
        block = Block([t for _, t in args or ()])
        self.scopes.append((block, []))
        for (token, _), arg in zip(args or (), block.args, strict=True):
            self.define(token, arg)
        return block

    @_rule
    def region(self, block: Block, *ops: Any) -> Block:
        for name in self.scopes.pop()[1]:
            del self.names[name]
        return block

    @_rule
    def block_args(self, *args: Any) -> Any:
        return [a for a in args if a is not None]

    @_rule
    def block_arg(self, name: Token, type: Token) -> Any:
        return name, self.type(type)

    def op_attrs(self, token: Token, spec: OpSpec, out: tuple[Type, ...]) -> dict[str, Any]:
        """An op's attributes, brought to the kinds that its class declares; defaults are dropped."""
        attrs: dict[str, Any] = {}
        for name, value in self.attrs(token).items():
            declared = spec.attrs.get(name)
            if declared is None:
                raise fail("attr", f"{spec.name} has no attribute {name}{nearest(name, spec.attrs)}", self.at(token))
            if isinstance(value, _DenseText):
                value = self.dense_value(value, out, token)
            value = declared.kind.coerce(value)
            problem = declared.problem(value)
            if problem:
                raise fail("attr", f"{spec.name}: {problem}", self.at(token))
            if not same_attr(value, declared.default):
                attrs[name] = value
        return attrs

    # --- tokens with an inside ---

    def attrs(self, token: Token | None) -> dict[str, Any]:
        if token is None:
            return {}
        known = self.memo["attrs"].get(token)
        if known is None:
            known = self.inside("attr_dict", token)
            if len(token) < 200:
                self.memo["attrs"][str(token)] = known
        return dict(known)

    def type(self, token: str) -> Any:
        known = self.memo["types"].get(token)
        if known is None:
            known = TOKEN if token == "token" else self.inside("tensor_type", token)
            self.memo["types"][str(token)] = known
        return known

    def types(self, token: Token) -> tuple[Type, ...]:
        known = self.memo["types"].get(token)
        if known is None:
            known = self.memo["types"][str(token)] = tuple(self.type(t) for t in _TYPES.findall(token))
        return known

    def loc_(self, token: Token) -> Loc:
        known = self.memo["loc"].get(token)
        if known is None:
            known = self.memo["loc"][str(token)] = self.inside("loc", token)
        return known  # type: ignore[no-any-return]

    @_rule
    def attr_dict(self, *entries: Any) -> dict[str, Any]:
        attrs = dict(entries)
        if len(attrs) != len(entries):
            raise fail(
                "attr",
                "an attribute is given twice: " + ", ".join(sorted(k for k, _ in entries)),
                self.origin.loc(1, 1),
            )
        return attrs

    @_rule
    def entry(self, name: Token, value: Any) -> Any:
        return str(name), True if value is None else value

    @_rule
    def true(self) -> bool:
        return True

    @_rule
    def false(self) -> bool:
        return False

    @_rule
    def string(self, token: Token) -> str:
        return unquote(token)

    @_rule
    def int(self, token: Token) -> Any:
        try:
            return int(token)
        except ValueError:
            raise fail("syntax", f"the integer {token[:20]}... is too long", self.at(token)) from None

    @_rule
    def float(self, token: Token) -> Any:
        if token.startswith("nan:"):
            return struct.unpack("<d", struct.pack("<Q", int(token[4:], 16)))[0]
        return float(token)

    @_rule
    def bits(self, token: Token) -> Any:
        return Bits(token[5:])

    @_rule
    def list(self, *items: Any) -> Any:
        return tuple(i for i in items if i is not None)

    @_rule
    def complex(self, real: Any, imag: Any) -> Any:
        return Complex((real, imag))

    @_rule
    def symbol(self, token: Token) -> Symbol:
        return Symbol(_symbol_name(token))

    @_rule
    def resource(self, token: Token) -> Resource:
        return Resource(unquote(token[9:-1]))

    @_rule
    def type_attr(self, token: Token) -> Any:
        return self.type(token)

    @_rule
    def layout_attr(self, token: Token) -> Layout:
        return self.inside("layout", token)  # type: ignore[no-any-return]

    @_rule
    def alias_attr(self, token: Token) -> Layout:
        return self.aliased(token)

    def aliased(self, token: Token) -> Layout:
        if token not in self.aliases:
            raise fail("name", f"{token} is not defined", self.at(token))
        return self.aliases[token]

    @_rule
    def word(self, token: Token) -> DType | DimLike:
        return _word(token)

    @_rule
    def unknown(self) -> DimLike:
        return UNKNOWN

    @_rule
    def negated(self, value: Any) -> Any:
        return self.dim(value) * -1

    @_rule
    def add(self, a: Any, b: Any) -> Any:
        return self.dim(a) + self.dim(b)

    @_rule
    def sub(self, a: Any, b: Any) -> Any:
        return self.dim(a) - self.dim(b)

    @_rule
    def mul(self, a: Any, b: Any) -> Any:
        return self.dim(a) * self.dim(b)

    @_rule
    def function(self, name: Token, a: Any, b: Any) -> Any:
        return function(str(name), self.dim(a, name), self.dim(b, name))

    def dim(self, value: Any, token: Token | None = None) -> Any:
        if isinstance(value, DType):
            raise fail("type", f"the element type {value} cannot stand in a size", self.at(token) if token is not None else None)
        return value

    @_rule
    def tensor_type(self, shape: Token | None, element: Token, layout: Token | None) -> TensorType:
        if not is_dtype(element):
            raise fail(
                "type", f"there is no element type {element}{nearest(element, [t.name for t in all_dtypes()])}", self.at(element)
            )
        dims = [self.shape_dim(shape, m) for m in _SHAPE_DIMS.finditer(shape)] if shape is not None else []
        placed = DEFAULT_LAYOUT
        if layout is not None:
            placed = self.aliased(layout) if layout.type == "ALIAS" else self.inside("layout", layout)
        try:
            return TensorType(dims, dtype(element), placed)
        except ValueError as error:
            raise fail("type", str(error), self.at(element)) from None

    def shape_dim(self, shape: Token, match: re.Match[str]) -> DimLike:
        text = match[match.lastindex or 0]
        if text.isdigit():
            return int(text)
        return UNKNOWN if text == "?" else self.inside("sum", self.part(shape, match, match.lastindex or 0) or text)

    @_rule
    def layout(self, *entries: Any) -> Layout:
        fields = dict(e for e in entries if e is not None)
        try:
            return Layout(fields.pop("order", ()), fields.pop("partition", -1), fields.pop("tile", ()), **fields)
        except (TypeError, ValueError) as error:
            raise fail("type", f"malformed layout: {error}", self.origin.loc(1, 1)) from None

    @_rule
    def dims(self, *ranges: Any) -> Any:
        return dict(ranges)

    @_rule
    def dim_range(self, name: Token, low: Token, high: Token | None = None) -> Any:
        return str(name), (int(low), int(high) if high is not None else None)

    @_rule
    def loc(self, place: FileLoc) -> Loc:
        return place

    @_rule
    def fused_loc(self, *places: FileLoc) -> Loc:
        return FusedLoc(places)

    @_rule
    def place(self, scope: Token | None, file: Token, line: Token, col: Token, caller: FileLoc | None) -> FileLoc:
        return FileLoc(unquote(file), int(line), int(col), unquote(scope) if scope is not None else "", caller)

    # --- constants ---

    @_rule
    def dense_text(self, token: Token) -> _DenseText:
        return _DenseText(token)

    def dense_value(self, text: _DenseText, out: tuple[Type, ...], token: Token) -> Dense:
        """The constant whose type is the op's result type."""
        if len(out) != 1 or not isinstance(out[0], TensorType) or not out[0].is_static:
            raise fail("attr", "a dense constant needs one result of a static tensor type", self.at(token))
        try:
            return dense_from(self.inside("dense", text), out[0])
        except IRError as error:
            raise fail(error.code, error.diagnostics[0].message, self.at(token)) from None
        except (ValueError, TypeError, OverflowError, struct.error) as error:
            raise fail("attr", f"the constant does not fit {out[0]}: {error}", self.at(token)) from None

    @_rule
    def dense(self, value: Any) -> Any:
        return bytes.fromhex(value[1:-1]) if isinstance(value, Token) else value


_TYPES = re.compile(r"tensor<(?:[^<>]|<[^<>]*>)*>|token\b")


def _word(token: Token) -> DType | DimLike:
    return dtype(token) if is_dtype(token) else symbol(str(token))


def _symbol_name(token: str) -> str:
    return token[1:].strip('"')


# The dims of ``2xSx(2*S)x``, as group 1 or, out of their parentheses, 2. Inside of a size no parenthesis stands before an x.
_SHAPE_DIMS = re.compile(r"(?:(\d+|\?|[A-Za-wyz_][A-Za-wyz_0-9]*)|\(((?:[^)<>]|\)(?!x))*+)\))x")
