"""Writing files so that a reader finds the old one or the new one, never a part."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from neuron_ir.diagnostics import IRError, fail

__all__ = ["encoded", "no_text", "write_text", "write_together", "write_whole", "write_with"]

_numbers = itertools.count()  # threads of a process must not share a temporary file


def write_with(path: str | Path, write: Callable[[BinaryIO], Any]) -> None:
    """Let ``write`` fill a temporary file, then move it to ``path``; raises :class:`IRError` (``file``).

    What a link points to is replaced, not the link. A device or pipe, such as ``/dev/null``, is written into: moving a file there
    would remove it.
    """
    _write([(path, write)])


def _write(files: Sequence[tuple[str | Path, Callable[[BinaryIO], Any]]]) -> None:
    """Fill every temporary file before the first is moved, so that hardly any time lies between the moves."""
    moves: list[tuple[Path, Path]] = []
    path: str | Path = ""
    try:
        for path, write in files:
            if os.path.exists(path) and not os.path.isfile(path):
                with open(path, "wb") as file:
                    write(file)
                continue
            target = Path(os.path.realpath(path))
            own = f"{os.getpid()}.{os.urandom(4).hex()}"  # processes of two containers may have one number and share a folder
            moves.append((target.with_name(f".{target.name[:200]}.{own}.{next(_numbers)}.tmp"), target))
            with open(moves[-1][0], "wb") as file:
                write(file)
        for temporary, path in moves:
            os.replace(temporary, path)
    except (OSError, ValueError) as error:  # ValueError: no file can have this name
        raise fail("file", f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None
    finally:
        for temporary, _ in moves:
            _remove(temporary)


def _remove(temporary: Path) -> None:
    """Remove a temporary file that was not moved; its name may be one that no file can have."""
    with contextlib.suppress(OSError, ValueError):
        temporary.unlink(missing_ok=True)


def write_whole(path: str | Path, chunks: Iterable[Any]) -> None:
    """Write pieces of bytes, one after the other; see :func:`write_with`."""
    write_together([(path, chunks)])


def write_together(files: Sequence[tuple[str | Path, Iterable[Any]]]) -> None:
    """Write files that belong together, each as pieces of bytes: all are complete before the first appears under its name."""
    _write([(path, partial(_write_chunks, chunks)) for path, chunks in files])


def _write_chunks(chunks: Iterable[Any], file: BinaryIO) -> None:
    for chunk in chunks:
        file.write(chunk)


def write_text(path: str | Path, text: str, make_folder: bool = False) -> None:
    """Write a text as UTF-8, in a folder that is made if need be; see :func:`write_with`."""
    if make_folder:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise fail("file", f"cannot write {path}: {error.strerror or error}") from None
    write_whole(path, [encoded(text, path)])


def no_text(path: str | Path, error: ValueError) -> IRError:
    """The error for a file that was read as text and holds none."""
    notes = ["neuron-translate reads programs of torch.export"] if str(path).endswith(".pt2") else []
    return fail("file", f"cannot read {path}: {error}", notes=notes)


def encoded(text: str, path: str | Path) -> bytes:
    """A text as UTF-8; raises :class:`IRError` (``file``) for half a character, which Python's strings can hold."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise fail("file", f"cannot write {path}: {text[error.start]!r} is no character of UTF-8") from None
