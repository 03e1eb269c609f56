"""``neuron-cache``: what the cache of compiled programs holds, why a program was not found in it, and how it is emptied.

    neuron-cache ls
    neuron-cache explain [KEY]
    neuron-cache clear

Exit codes: 0 fine, 1 diagnostics, 2 usage.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from neuron_ir.cache import FOLDER, Cache, Entry, differences, distance, opened
from neuron_ir.diagnostics import fail
from neuron_ir.tools.streams import exit_code

__all__ = ["main"]

_SHOWN = 100  # characters of a line that differs


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="neuron-cache",
        description="Look into the cache of compiled programs.",
        epilog="Exit codes: 0 fine, 1 diagnostics, 2 usage.",
    )
    parser.add_argument("--dir", metavar="FOLDER", help=f"the cache's folder (default: {FOLDER}, or the platform's own)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="ls|explain|clear")
    commands.add_parser("ls", help="list the programs, the last made first: key, bytes, when made and used, first line")
    told = commands.add_parser("explain", help="which parts of a program's key differ from those of the nearest other program")
    told.add_argument("key", nargs="?", default="", help="the first characters of its key (default: the program made last)")
    commands.add_parser("clear", help="remove every program")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; gives its exit code."""
    args = arguments().parse_args(argv)
    return exit_code(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    cache = Cache(Path(args.dir).absolute()) if args.dir else opened()
    if cache is None:
        raise fail("file", "the cache is switched off")
    if args.command == "clear":
        print(f"{cache.clear()} program(s) removed from {cache.folder}")
        return 0
    entries = cache.entries()
    if args.command == "ls":
        return _list(cache, entries)
    return _explain(cache, entries, args.key)


def _list(cache: Cache, entries: Sequence[Entry]) -> int:
    print(f"{cache.folder}: {len(entries)} program(s), {sum(e.size for e in entries)} of {cache.limit} bytes")
    for entry in entries:
        print(f"{entry.key[:12]}  {entry.size:>10}  made {_when(entry.made)}  used {_when(entry.used)}  {_title(entry)}")
    return 0


def _explain(cache: Cache, entries: Sequence[Entry], key: str) -> int:
    found = [e for e in entries if e.key.startswith(key)]
    if not found or (key and len(found) > 1):
        what = "several programs have" if found else "no program has"
        raise fail("file", f"{what} a key that starts with {key!r} in {cache.folder}; neuron-cache ls lists them")
    entry = found[0]
    others = [e for e in entries if e is not entry]
    print(f"{entry.key[:12]}  made {_when(entry.made)}  {_title(entry)}")
    if not others:
        print("there is no other program to compare it with")
        return 0
    nearest = min(others, key=lambda e: distance(entry.parts, e.parts))
    print(f"nearest: {nearest.key[:12]}  made {_when(nearest.made)}  {_title(nearest)}")
    for part, (ours, theirs) in differences(entry.parts, nearest.parts).items():
        print(f"{part} differs:\n  this:    {_cut(ours)}\n  nearest: {_cut(theirs)}")
    return 0


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _title(entry: Entry) -> str:
    """The first line of a program's function."""
    lines = (line.strip() for line in entry.parts.get("program", "").splitlines())
    return _cut(next((line for line in lines if line.startswith("func ")), ""))


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


if __name__ == "__main__":
    sys.exit(main())
