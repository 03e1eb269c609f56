"""Writing files so that a reader finds the old one or the new one, never a part."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from neuron_ir.diagnostics import fail

__all__ = ["write_text", "write_whole", "write_with"]

_numbers = itertools.count()  # threads of a process must not share a temporary file


def write_with(path: str | Path, write: Callable[[BinaryIO], Any]) -> None:
    """Let ``write`` fill a temporary file, then move it to ``path``; raises :class:`IRError` (``file``).

    What a link points to is replaced, not the link. A device or pipe, such as ``/dev/null``, is written into: moving a file there
    would remove it.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as file:
                write(file)
            return
        target = Path(os.path.realpath(path))
        own = f"{os.getpid()}.{os.urandom(4).hex()}"  # processes of two containers may have one number and share a folder
        temporary = target.with_name(f".{target.name[:200]}.{own}.{next(_numbers)}.tmp")
        try:
            with open(temporary, "wb") as file:
                write(file)
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:  # ValueError: no file can have this name
        raise fail("file", f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None


def write_whole(path: str | Path, chunks: Iterable[Any]) -> None:
    """Write pieces of bytes, one after the other; see :func:`write_with`."""

    def write(file: BinaryIO) -> None:
        for chunk in chunks:
            file.write(chunk)

    write_with(path, write)


def write_text(path: str | Path, text: str, make_folder: bool = False) -> None:
    """Write a text as UTF-8, in a folder that is made if need be; see :func:`write_with`."""
    if make_folder:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise fail("file", f"cannot write {path}: {error.strerror or error}") from None
    write_whole(path, [text.encode()])
