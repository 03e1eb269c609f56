"""What the tools read and write, standard streams included, and how a run of a tool becomes an exit code."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neuron_ir.diagnostics import IRError, IRWarning, fail
from neuron_ir.files import no_text

__all__ = ["decoded", "exit_code", "read_bytes"]


def read_bytes(path: str) -> bytes:
    """What a file holds, or for ``-`` all of standard input; raises :class:`IRError` (``file``) where it cannot be read."""
    if path == "-" and sys.stdin is None:
        raise fail("file", "cannot read standard input: it is closed")
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: no file can have this name
        raise fail("file", f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def decoded(data: bytes, path: str) -> str:
    """What was read from ``path`` as text; raises :class:`IRError` (``file``) where it is not UTF-8."""
    try:
        return data.decode("utf-8-sig")  # editors on Windows begin a file with a mark
    except UnicodeDecodeError as error:
        raise no_text(path, error) from None


def exit_code(run: Callable[[], int]) -> int:
    """Run a tool; gives its exit code, or prints the diagnostics and gives 1. Text goes out as UTF-8, as files do."""
    if sys.stdout is None:  # the caller closed it
        sys.stdout = open(os.devnull, "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning  # type: ignore[assignment]  # as Python's own documentation has it
            code = run()
        sys.stdout.flush()
        return code
    except IRError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        _discard()
        return 0
    except OSError as error:  # files are read and written with diagnostics of their own, which leaves the standard streams
        print(fail("file", f"cannot write to standard output: {error.strerror or error}"), file=sys.stderr)
        _discard()
        return 1


def _show_warning(message: Warning | str, *rest: Any) -> None:
    """A warning of the project's own as a diagnostic, any other as Python shows it."""
    text = f"{message}\n" if isinstance(message, IRWarning) else warnings.formatwarning(message, *rest[:3])
    if sys.stderr is not None:
        sys.stderr.write(text)


def _discard() -> None:
    """Send what is still buffered for standard output nowhere, or the interpreter fails on it at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
