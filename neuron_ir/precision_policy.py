"""Which ops of a program work in which element type, and why: the policy that the pass ``precision`` follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, NamedTuple

from neuron_ir.core import Func, Module, Op, Value
from neuron_ir.diagnostics import fail, nearest, warn
from neuron_ir.dtypes import BF16, DType, dtype
from neuron_ir.locations import FusedLoc
from neuron_ir.passmanager import option, run_passes
from neuron_ir.printer import value_names
from neuron_ir.target import TARGETS, target

__all__ = ["AUTOCAST_F32", "WIDE", "Decision", "PrecisionPolicy", "gradients", "reason_kept"]

# Formats by the name that a user writes: fp8 and mxfp8 mean the target's.
FORMATS = ("bf16", "f16", "fp16", "tf32", "fp8", "f8e4m3", "f8e4m3fn", "mxfp8")
NARROW = {"bf16": BF16, "f16": dtype("f16"), "fp16": dtype("f16"), "tf32": dtype("tf32")}
GRADIENT = {"e5m2": dtype("f8e5m2"), "e4m3": None}
WIDE = ("f32", "f64")  # what is brought to a narrower type
_SCALES = ("granularity", "scaling", "history", "margin")

# Ops that run in f32 under torch's autocast for accelerators (ATen/autocast_mode.h, AT_FORALL_FP32), by our names.
AUTOCAST_F32 = frozenset(
    f"neuron.{name}"
    for name in (
        "acos asin cosh cross_entropy cumprod cumsum erf_inv exponential exponential_minus_one group_norm layer_norm log log10 "
        "log2 log_plus_one log_softmax nll_loss power reciprocal reduce_prod reduce_sum rms_norm rsqrt sinh softmax softplus tan"
    ).split()
)


class Decision(NamedTuple):
    """What becomes of one matrix product: how it is lowered, to which element type (``None``: it keeps its own), and why."""

    how: str  # "keep", "narrow" (a plain cast), "scaled" (8 bits and a scale), "blocks" (MX)
    element: DType | None
    reason: str


@dataclass(frozen=True)
class PrecisionPolicy:
    """Element types for matrix products. The fields are the options of the pass ``precision``, and mean what they say there.

    Raises :class:`IRError` (``precision``) for choices that contradict each other.
    """

    dtype: str = option("bf16", "element type of the inputs of matrix products; fp8 and mxfp8 are the target's", FORMATS)
    rules: str = option(
        "products",
        "products: their inputs alone are narrow; autocast: torch's lists, what follows a product is narrow too, but for f32 ops",
        ("products", "autocast"),
    )
    granularity: str = option(
        "channel", "fp8: one scale for each row and column of a product, or one per tensor", ("channel", "tensor")
    )
    scaling: str = option(
        "dynamic",
        "fp8: activations' scales from their values, from a calibration, or from the largest values of the runs before",
        ("dynamic", "static", "delayed"),
    )
    history: int = option(16, "delayed scaling: the largest value of so many runs counts")
    margin: int = option(0, "fp8: keep a factor of 2**margin free below the largest value")
    weights: str = option("ahead", "fp8: bound weights are stored in 8 bits, or scaled in every run", ("ahead", "dynamic"))
    gradients: str = option("e5m2", "fp8: the format of gradients", ("e5m2", "e4m3"))
    rounding: str = option("nearest", "nearest even, or stochastic with a state of its own", ("nearest", "stochastic"))
    seed: int = option(0, "where the random numbers of stochastic rounding start")
    target: str = option("", "whose fp8 is meant; default: the module's, else trn2", ("", *TARGETS))
    keep_ops: tuple[str, ...] = option((), "ops that keep their precision, such as linear or neuron.convolution")
    keep_modules: tuple[str, ...] = option((), "module paths whose ops keep their precision, such as lm_head or blocks.0.*")
    keep_names: tuple[str, ...] = option((), "names of values whose ops keep their precision, such as logits or linear_*")
    bf16_ops: tuple[str, ...] = option((), "fp8: ops that work in bf16")
    bf16_modules: tuple[str, ...] = option((), "fp8: module paths whose ops work in bf16")
    bf16_names: tuple[str, ...] = option((), "fp8: names of values whose ops work in bf16")

    def __post_init__(self) -> None:
        for problem in self._contradictions():
            raise fail("precision", problem)

    def _contradictions(self) -> Iterator[str]:
        for f in dataclasses.fields(PrecisionPolicy):
            value, choices = getattr(self, f.name), f.metadata["choices"]
            if choices and value not in choices:
                yield f"{_option(f.name)} is one of {', '.join(map(str, choices))}, not {value!r}{nearest(str(value), choices)}"
        for kind in ("ops", "modules", "names"):
            both = sorted(set(getattr(self, f"keep_{kind}")) & set(getattr(self, f"bf16_{kind}")))
            if both:
                yield f"{both[0]} is in keep-{kind} and in bf16-{kind}: it cannot have its own precision and bf16"
        if not self.is_8bit:
            for name in (*_SCALES, "weights", "gradients", "bf16_ops", "bf16_modules", "bf16_names"):
                if getattr(self, name) != _default(name):
                    yield f"{_option(name)} is for fp8, but dtype = {self.dtype}"
        if self.dtype == "mxfp8":
            for name in (*_SCALES, "rounding"):
                if getattr(self, name) != _default(name):
                    given = f"{_option(name)} = {getattr(self, name)}"
                    yield f"{given} contradicts mxfp8, whose blocks of 32 are scaled by their own values"
        if self.history != _default("history") and self.scaling != "delayed":
            yield f"history is for scaling = delayed, but scaling = {self.scaling}"
        if self.history < 1:
            yield f"history must be at least 1, not {self.history}"
        if self.rules == "autocast" and self.dtype not in ("bf16", "f16", "fp16"):
            yield f"rules = autocast is for bf16 and f16, not {self.dtype}"
        if self.rounding == "stochastic" and (self.dtype == "tf32" or self.rules == "autocast"):
            yield f"rounding = stochastic is not for {'tf32' if self.dtype == 'tf32' else 'rules = autocast'}"
        if self.target:
            yield from self._against(self.target)

    def _against(self, name: str) -> Iterator[str]:
        """What of this policy a target's Tensor engine cannot do."""
        if name != "reference" and self.dtype in ("f8e4m3fn", "mxfp8") and target(name).fp8.name != "f8e4m3fn":
            has = target(name).fp8
            yield f"dtype = {self.dtype} is not for {name}, whose fp8 is {has} (largest value {has.max:g})"

    @property
    def is_8bit(self) -> bool:
        """Whether inputs are scaled to 8 bits."""
        return self.dtype not in NARROW

    @cached_property
    def text(self) -> str:
        """The options that differ from their defaults, as the pass takes them: ``precision{text}``."""
        parts = []
        for f in dataclasses.fields(PrecisionPolicy):
            value = getattr(self, f.name)
            if value != f.default or f.name == "dtype":
                quoted = ",".join(f'"{v}"' for v in value) if isinstance(value, tuple) else value
                parts.append(f"{_option(f.name)}={quoted}")
        return " ".join(parts)

    def apply(self, module: Module) -> None:
        """Lower the products of ``module``, in place: the pass ``precision`` with these options."""
        run_passes(module, f"precision{{{self.text}}}")

    def on(self, module: Module) -> tuple[DType, DType]:
        """The element types of this policy in ``module``: of values, and of gradients."""
        name = self.target or str(module.attrs.get("target", "trn2"))
        for problem in self._against(name):
            raise fail("precision", problem)
        if not self.is_8bit:
            return NARROW[self.dtype], NARROW[self.dtype]
        element = dtype("f8e4m3fn") if self.dtype == "mxfp8" else target(name).fp8 if self.dtype == "fp8" else dtype(self.dtype)
        return element, GRADIENT[self.gradients] or element

    def decide(self, module: Module) -> dict[Op, Decision]:
        """What becomes of each matrix product of ``module``. Warns of a list's entry that matches none."""
        element, _ = self.on(module)
        lists = _Lists(self, module)
        found = {op: self._decide(op, element, lists) for op in lists.products}
        lists.warn_of_unused()
        return found

    def _decide(self, op: Op, element: DType, lists: _Lists) -> Decision:
        kept, halved = lists.matching("keep", op), lists.matching("bf16", op)
        if kept:
            return Decision("keep", None, f"kept by {kept[0]}")
        floats = [v.dtype for v in op.operands if v.dtype.is_float]
        if not floats:
            return Decision("keep", None, "integers stay exact")
        if not any(d.bits > 8 if self.is_8bit else d.name in WIDE for d in floats):
            return Decision("keep", None, "no input is wider than 8 bits" if self.is_8bit else "no input is f32 or f64")
        if not self.is_8bit:
            return Decision("narrow", element, "a product, summed in f32")
        reason = f"asked for by {halved[0]}" if halved else _why_not_8bit(op, self.dtype == "mxfp8")
        if reason:
            if all(d.name not in WIDE for d in floats):
                return Decision("keep", None, f"{reason}; no input is f32 or f64")
            return Decision("narrow", BF16, reason)
        return Decision("blocks" if self.dtype == "mxfp8" else "scaled", element, "a product, summed in f32")


def _why_not_8bit(op: Op, in_blocks: bool) -> str:
    """Why a product works in 16 bits where others work in 8, each operand scaled or ``in_blocks``; nothing where it does not."""
    if op.name == "neuron.attention":
        return "the softmax inside needs more than 8 bits"
    if op.name == "neuron.grouped_matmul":
        return "rows of several groups share no scale"
    if op.name not in ("neuron.linear", "neuron.matmul", "neuron.dot_general", "neuron.conv", "neuron.convolution"):
        return "no rule for its scales"
    if in_blocks and op.name == "neuron.dot_general" and not op.get("lhs_contract"):
        return "nothing is summed, so there is no dim for blocks to lie along"
    block = op.block
    while block is not None and isinstance(block.parent, Op):
        if block.parent.name == "neuron.vjp":
            return "neuron.vjp would round the gradients of a cast to 8 bits without a scale"
        block = block.parent.block
    return ""


def reason_kept(op: Op) -> str:
    """Why an op that is no product keeps its precision."""
    name = op.name.removeprefix("neuron.")
    if not any(getattr(v.type, "dtype", None) is not None and v.dtype.is_float for v in (*op.operands, *op.results)):
        return "integers and indices stay exact"
    if "norm" in name:
        return "a norm: sums of squares need f32"
    if "softmax" in name or name in ("exponential", "log", "cumlogsumexp"):
        return "exponentials and logarithms need f32"
    if "loss" in name or name == "cross_entropy":
        return "a loss: a sum of logarithms needs f32"
    if "reduction" in op.spec.traits:
        return "a reduction over many elements needs f32"
    if op.spec.traits & {"view", "constant"}:
        return "moves values without arithmetic"
    return "no product: nothing for the Tensor engine to gain"


def _option(field: str) -> str:
    return field.replace("_", "-")


def _default(field: str) -> Any:
    return next(f.default for f in dataclasses.fields(PrecisionPolicy) if f.name == field)


# --- lists ------------------------------------------------------------------------------------------------------------


class _Lists:
    """The lists of a policy against the products of a module; remembers which entries matched."""

    def __init__(self, policy: PrecisionPolicy, module: Module):
        self.products = [op for op in module.walk() if "matmul" in op.spec.traits]
        self.entries = [
            (what, kind, entry)
            for what in ("keep", "bf16")
            for kind in ("ops", "modules", "names")
            for entry in getattr(policy, f"{what}_{kind}")
        ]
        self.used: set[tuple[str, str, str]] = set()
        self.names: dict[Value, str] = {}
        if any(kind == "names" for _, kind, _ in self.entries):
            for func in module.funcs.values():
                self.names.update(value_names(func))

    def matching(self, what: str, op: Op) -> list[str]:
        """The entries of one list that match ``op``."""
        found = [e for e in self.entries if e[0] == what and self._matches(e[1], e[2], op)]
        self.used.update(found)
        return [entry for _, _, entry in found]

    def _matches(self, kind: str, entry: str, op: Op) -> bool:
        if kind == "ops":
            return op.name in (entry, f"neuron.{entry}")
        if kind == "modules":
            return any(in_module(scope, entry) for scope in scopes(op))
        return any(fnmatchcase(self.names.get(r, ""), entry.removeprefix("%")) for r in op.results)

    def warn_of_unused(self) -> None:
        for what, kind, entry in self.entries:
            if (what, kind, entry) in self.used:
                continue
            known = sorted(self._known(kind))
            near = nearest(entry, known)
            listed = f"; there are {', '.join(known[:6])}{', ...' if len(known) > 6 else ''}" if known and not near else ""
            warn("precision", f"{what}-{kind} = {entry} matches no matrix product{near or listed}")

    def _known(self, kind: str) -> set[str]:
        """What an entry could have named."""
        if kind == "ops":
            return {op.name.removeprefix("neuron.") for op in self.products}
        if kind == "names":
            return {self.names[r] for op in self.products for r in op.results}
        paths = [scope.split(".") for op in self.products for scope in scopes(op)]
        return {".".join(parts[:n]) for parts in paths for n in range(1, len(parts) + 1)}


def scopes(op: Op) -> list[str]:
    """The module paths that an op comes from."""
    return [p.scope for p in (op.loc.places if isinstance(op.loc, FusedLoc) else (op.loc,)) if p.scope]


def in_module(scope: str, wanted: str) -> bool:
    """Whether the module path ``scope`` is ``wanted`` (which may hold ``*``) or lies inside of it."""
    parts = scope.split(".")
    return any(fnmatchcase(".".join(parts[:n]), wanted) for n in range(1, len(parts) + 1))


# --- gradients --------------------------------------------------------------------------------------------------------


def gradients(func: Func) -> set[Value]:
    """The values of a function that are gradients.

    They follow from a tangent of torch's backward graph, or from ops that JAX made by transposition (``transpose(...)`` in their
    name stack).
    """
    found = {
        arg
        for arg, attrs in zip(func.args, func.arg_attrs, strict=True)
        if str(attrs.get("name") or arg.name).startswith("tangents")
    }
    for op in func.walk():
        if any(v in found for v in op.operands) or any("transpose(" in scope for scope in scopes(op)):
            found.update(r for r in op.results if _is_float(r))
    return found


def _is_float(value: Value) -> bool:
    element = getattr(value.type, "dtype", None)
    return element is not None and element.is_float
