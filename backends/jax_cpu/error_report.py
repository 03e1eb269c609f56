"""What a precision policy does to each op's numbers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neuron_ir.backends.jax_cpu.bisection import float64_values, meaning_of, prepared, relative_error
from neuron_ir.core import Module, Op, Value
from neuron_ir.diagnostics import IRWarning
from neuron_ir.locations import FusedLoc, Loc
from neuron_ir.meaning import Frame, run, x64
from neuron_ir.passmanager import run_passes
from neuron_ir.pipeline import parse_pipeline
from neuron_ir.precision_policy import Decision, PrecisionPolicy, reason_kept
from neuron_ir.printer import value_names
from neuron_ir.types import TensorType
from neuron_ir.widening import widened

__all__ = ["Inputs", "PrecisionReport", "PrecisionRow", "Trial", "precision_report"]

Inputs = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class PrecisionRow:
    """One op: the element types chosen for it, why, and what they cost.

    ``error``: of this op alone, its value against the op in float64 on the very operands that it had; ``total``: its value against
    that of the whole program in float64. Both are the largest difference as a part of the largest value.
    """

    op: str
    value: str
    dtypes: str
    reason: str
    error: float
    total: float
    place: str
    lowered: bool


@dataclass(frozen=True)
class PrecisionReport:
    """The rows of all ops, the most damaging first; ``error`` is that of the program's results."""

    policy: PrecisionPolicy
    rows: tuple[PrecisionRow, ...]
    error: float

    def __str__(self) -> str:
        head = ("error", "total", "value", "op", "element types", "why", "from")
        cells = [
            (f"{r.error:.2e}", f"{r.total:.2e}", f"%{r.value}", r.op.removeprefix("neuron."), r.dtypes, r.reason, r.place)
            for r in self.rows
        ]
        widths = [max(len(row[i]) for row in (head, *cells)) for i in range(len(head))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in (head, *cells)]
        return "\n".join([*lines, f"results of precision{{{self.policy.text}}}: error {self.error:.2e}"])


def precision_report(module: Module, inputs: Inputs, policy: PrecisionPolicy | str = "dtype=bf16") -> PrecisionReport:
    """Run ``@main`` under ``policy`` (an object, or options of ``precision`` as text) and in float64; print and give what each op
    does to its numbers, the most damaging first.

    ``module`` is the program before the pass, and stays as it is. Ops inside of regions count with the op that holds them.
    Raises :class:`IRError`: ``precision`` for a policy that does not fit, ``input`` for inputs that do not.
    """
    trial = Trial(module, inputs)
    report = trial.report(policy_of(policy))
    print(report)
    return report


def policy_of(given: PrecisionPolicy | str) -> PrecisionPolicy:
    """The policy that an object or a text stands for."""
    if isinstance(given, PrecisionPolicy):
        return given
    (made,) = parse_pipeline(f"precision{{{given}}}")
    assert isinstance(made, PrecisionPolicy)
    return made


class Trial:
    """One module on one set of inputs: its values in float64, and what policies make of them."""

    def __init__(self, module: Module, inputs: Inputs):
        self.module = module
        self.sized, self.arrays = prepared(module, inputs)
        self.names = value_names(self.sized.main)
        self.wide = float64_values(self.sized.main, module, self.arrays)
        self.positions = {op: i for i, op in enumerate(self.sized.main.body.ops)}

    def lowered(self, policy: PrecisionPolicy) -> tuple[Module, list[list[Op]]]:
        """The program under a policy, and its ops by the position of the op in the original that they stand for."""
        copy = self.sized.clone()
        copy.weights = dict(self.module.weights)
        places: dict[int, int] = {}
        locs: list[Loc] = []  # kept alive, so that their identities stay distinct
        for position, op in enumerate(copy.main.body.ops):
            op.loc = FusedLoc(*op.loc) if isinstance(op.loc, FusedLoc) else op.loc._replace()
            locs.append(op.loc)
            places[id(op.loc)] = position
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IRWarning)
            run_passes(copy, f"precision{{{policy.text}}}")
        groups: list[list[Op]] = [[] for _ in locs]
        for op in copy.main.body.ops:
            place = places.get(id(op.loc))
            if place is not None:
                groups[place].append(op)
        return copy, groups

    def values(self, lowered: Module, groups: Sequence[Sequence[Op]]) -> tuple[dict[tuple[int, int], Any], list[Any]]:
        """The lowered program's values by position in the original, and its results."""
        import numpy

        func = lowered.main
        last = {group[-1]: position for position, group in enumerate(groups) if group}
        values: dict[tuple[int, int], Any] = {}

        def observe(op: Op, results: tuple[Any, ...]) -> None:
            if op in last:
                for i, result in enumerate(results):
                    values[last[op], i] = numpy.asarray(result)

        with x64():
            results = run(func, self.inputs_of(lowered), meaning_of(lowered), observe)
        return values, [numpy.asarray(r) for r in results[: len(self.sized.main.result_types)]]

    def inputs_of(self, lowered: Module) -> list[Any]:
        """The arguments of the lowered program: what the caller gave, and weights and state of its own."""
        import numpy

        from neuron_ir.weights import to_numpy

        old = self.sized.main
        given = [a for a, attrs in zip(self.arrays, old.arg_attrs, strict=True) if attrs.get("kind", "input") == "input"]
        known = {str(attrs["weight"]): a for a, attrs in zip(self.arrays, old.arg_attrs, strict=True) if "weight" in attrs}
        caller = iter(given)
        arrays = []
        for attrs in lowered.main.arg_attrs:
            key = str(attrs.get("weight"))
            if attrs.get("kind", "input") == "input":
                arrays.append(next(caller))
            else:
                arrays.append(known[key] if key in known else numpy.asarray(to_numpy(lowered.weights[key])))
        return arrays

    def error(self, policy: PrecisionPolicy) -> float:
        """The largest error of a result of the program under a policy."""
        return self.error_of(self.values(*self.lowered(policy))[1])

    def error_of(self, results: Sequence[Any]) -> float:
        """The largest error among float results."""
        terminator = self.sized.main.body.terminator
        errors = [0.0]
        for value, got in zip(terminator.operands, results, strict=True):
            if value.op is not None and isinstance(value.type, TensorType) and value.dtype.kind in ("float", "complex"):
                errors.append(relative_error(got, self.wide[self.positions[value.op], value.index]))
        return max(errors)

    def report(self, policy: PrecisionPolicy) -> PrecisionReport:
        """What the policy does, op by op."""
        decisions = policy.decide(self.sized)
        lowered, groups = self.lowered(policy)
        values, results = self.values(lowered, groups)
        alone = self.alone(values)
        rows = []
        for op, position in self.positions.items():
            if not _has_rounding(op):
                continue
            keys = [(position, i) for i, r in enumerate(op.results) if isinstance(r.type, TensorType) and (position, i) in values]
            total = max((relative_error(values[k], self.wide[k]) for k in keys if k in self.wide), default=0.0)
            rows.append(self.row(op, decisions, groups[position], alone.get(position, total), total))
        rows.sort(key=lambda r: (not r.error > 0, -r.error, -r.total))
        return PrecisionReport(policy, tuple(rows), self.error_of(results))

    def row(self, op: Op, decisions: Mapping[Op, Decision], group: Sequence[Op], error: float, total: float) -> PrecisionRow:
        found = decisions.get(op)
        product = next((o for o in group if "matmul" in o.spec.traits), group[-1] if group else op)
        sources = [v.dtype.name for v in product.operands[:2] if isinstance(v.type, TensorType)]
        if found and found.how == "blocks":
            sources = [f"mx {found.element}"] * 2
        dtypes = f"{' x '.join(sources) if found else sources[0] if sources else ''} -> {product.results[0].type.dtype}"
        reason = found.reason if found else reason_kept(op)
        held = sum("matmul" in inner.spec.traits for region in op.regions for inner in region.walk())
        if held:
            reason = f"holds {held} product{'s' if held > 1 else ''}"
        place = op.loc.places[0] if isinstance(op.loc, FusedLoc) else op.loc
        where = f"{place.short}{f' in {place.scope}' if place.scope else ''}"
        lowered = found is not None and found.how != "keep"
        return PrecisionRow(op.name, self.names[op.results[0]], dtypes, reason, error, total, where, lowered)

    def alone(self, values: Mapping[tuple[int, int], Any]) -> dict[int, float]:
        """For each position the error of that op alone: against the op in float64 on the operands that the lowered program had."""
        import numpy

        wide, positions, ops = widened(self.sized.main)
        results: list[list[tuple[int, Value]]] = [[] for _ in ops]
        for (op, index), (position, i) in positions.items():
            results[position].append((i, op.results[index]))
        errors: dict[int, float] = {}
        with x64():
            arrays = [numpy.asarray(a).astype(arg.type.dtype.numpy) for arg, a in zip(wide.args, self.arrays, strict=True)]
            frame = Frame(meaning_of(self.module), None, dict(zip(wide.args, arrays, strict=True)))
            for position, group in enumerate(ops):
                if any(op.spec.traits & {"random", "effect", "collective"} for op in group):
                    continue
                _run(frame, group)
                for i, value in results[position]:
                    got = values.get((position, i))
                    if got is not None:
                        error = relative_error(got, numpy.asarray(frame.values[value]))
                        errors[position] = max(errors.get(position, 0.0), error)
                        frame.values[value] = got.astype(value.type.dtype.numpy)
        return errors


def _run(frame: Frame, ops: Sequence[Op]) -> None:
    """Evaluate ops whose operands the frame has."""
    for op in ops:
        operands = [frame.values[v] for v in op.operands]
        frame.values.update(zip(op.results, frame.op(op, operands), strict=True))


def _has_rounding(op: Op) -> bool:
    """Whether an op computes floats, rather than moving or making them."""
    if not op.results or op.spec.traits & {"view", "constant", "terminator"}:
        return False
    return any(isinstance(r.type, TensorType) and r.dtype.kind in ("float", "complex") for r in op.results)
