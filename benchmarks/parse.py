"""Parse, verify and print a program of 20,000 ops, against xDSL's parse alone of the same program in the same run.

python benchmarks/parse.py [--ops 20000]
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from programs import mlir_generic, transformer
from report import Row, report, seconds

import neuron_ir


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ops", type=int, default=20_000)
    wanted = options.parse_args().ops
    rows = []
    for locations in (False, True):
        module = transformer(wanted, locations)
        ops = sum(1 for _ in module.walk())
        text, generic = module.text(locations), mlir_generic(module)
        ours, theirs = seconds(partial(_ours, text, locations)), seconds(partial(_xdsl, generic), 1)
        what = f"{ops:,} ops, " + ("with" if locations else "without") + " locations"
        rows.append(Row(what, f"{ops / ours:,.0f} ops/s", f"xDSL {ops / theirs:,.0f} ops/s", theirs / ours, least=5.0))
    return report("parse + verify + print; peer: xDSL's parse, the same program in MLIR's generic syntax", rows)


def _ours(text: str, locations: bool) -> None:
    module = neuron_ir.parse(text)
    module.verify()
    assert module.text(locations) == text


def _xdsl(text: str) -> None:
    from xdsl.context import Context
    from xdsl.dialects.builtin import Builtin
    from xdsl.dialects.func import Func
    from xdsl.parser import Parser

    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    Parser(context, text).parse_module()


if __name__ == "__main__":
    sys.exit(main())
