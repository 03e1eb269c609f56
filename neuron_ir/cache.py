"""Compiled programs on disk, found by everything that decides them: a folder of files that several processes share without a lock.

An entry is one file, named by the hash of its key. A file appears under its name only when it is whole, and carries a checksum; one
that is damaged is as good as absent. What goes wrong with the folder (unwritable, full) is a warning, and the work goes on.

The folder holds code that is run: it is made readable for its owner only, and one that everybody can write to is not used.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import re
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path

from neuron_ir import _imported_at
from neuron_ir.diagnostics import IRError, fail, warn
from neuron_ir.files import write_whole

__all__ = [
    "Cache", "Entry", "FOLDER", "LIMIT", "MODE", "default_folder", "differences", "distance", "key_of", "observe", "opened",
    "processor", "source_hash",
]  # fmt: skip

FOLDER = "NEURON_IR_CACHE_DIR"
MODE = "NEURON_IR_CACHE"
LIMIT = "NEURON_IR_CACHE_SIZE"

MODES = ("on", "readonly", "off")
DEFAULT_LIMIT = 4 << 30

_MAGIC = b"neuron-ir cache 1\n"
_HASH = 32
_SUFFIX = ".program"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MAKERS = {"frontends", "passes", "tools", "__pycache__"}
_STALE = 3600.0  # seconds after which a temporary file was left behind by a process that died

log = logging.getLogger(__name__)
_warned: set[str] = set()
_observers: list[Callable[[str, bytes], None]] = []


@dataclass(frozen=True)
class Entry:
    """One compiled program on disk: its parts of the key by name, its size in bytes, and when it was made and last used."""

    path: Path
    parts: Mapping[str, str]
    size: int
    made: float
    used: float

    @property
    def key(self) -> str:
        return self.path.name.removesuffix(_SUFFIX)


def default_folder() -> Path:
    """Where programs are kept unless ``NEURON_IR_CACHE_DIR`` says otherwise: the platform's folder for caches."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "neuron-ir"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "neuron-ir" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "neuron-ir"


def opened() -> Cache | None:
    """The cache as the environment describes it; ``None`` where it is switched off. Raises :class:`IRError` (``input``)."""
    mode = os.environ.get(MODE) or "on"
    if mode not in MODES:
        raise fail("input", f"the environment variable {MODE} is one of {', '.join(MODES)}, not {mode!r}")
    if mode == "off":
        return None
    try:
        folder = Path(os.environ.get(FOLDER) or default_folder()).absolute()
    except RuntimeError as error:  # no home folder
        _warn_once(f"compiled programs are not kept: {error}; set {FOLDER}")
        return None
    return Cache(folder, _limit(os.environ.get(LIMIT, "")), mode == "on")


def _limit(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if text and match is None:
        raise fail("input", f"the environment variable {LIMIT} is a number of bytes, such as 500M or 4G, not {text!r}")
    return int(match[1]) * _UNITS[match[2].upper()] if match else DEFAULT_LIMIT


def key_of(parts: Mapping[str, str]) -> str:
    """The hash of all parts of a key, with their names and lengths."""
    digest = hashlib.sha256()
    for name, value in sorted(parts.items()):
        data = value.encode("utf-8", "surrogatepass")
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


class Cache:
    """One folder of compiled programs."""

    def __init__(self, folder: Path, limit: int = DEFAULT_LIMIT, writable: bool = True):
        self.folder, self.limit, self.writable = folder, limit, writable

    def path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def load(self, parts: Mapping[str, str]) -> bytes | None:
        """What was stored under these parts; ``None`` where there is nothing, or nothing whole."""
        path = self.path(key_of(parts))
        if not self._is_private():
            return None
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            _warn_once(f"cannot read the compiled program {path}: {error.strerror or error}")
            return None
        try:
            stored, _, payload = _unpacked(data)
        except ValueError as error:
            log.warning("%s %s; it is built anew", path, error)
            self._discard(path)
            return None
        if stored != dict(parts):
            return None
        if self.writable:
            try:
                os.utime(path)  # what is used last is evicted last
            except OSError as error:
                log.debug("cannot note the use of %s: %s", path, error)
        _tell(key_of(parts), data)
        return payload

    def store(self, parts: Mapping[str, str], payload: bytes) -> bool:
        """Keep a program; other programs may have to go. Returns whether it could be kept, and warns once where not."""
        data, key = _packed(parts, payload), key_of(parts)
        _tell(key, data)
        return self.put(key, data)

    def put(self, key: str, data: bytes) -> bool:
        """Write the bytes of a file that observers were told of, here or on another machine; like :meth:`store`."""
        if not re.fullmatch(r"[0-9a-f]{64}", key):
            raise fail("file", f"{key!r} is no key of a compiled program")
        if not self.writable:
            return False
        if len(data) > self.limit:
            log.info("a program of %d bytes is above the cache's limit of %d", len(data), self.limit)
            return False
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_private():
                return False
            write_whole(self.path(key), [data])
        except (OSError, IRError) as error:
            _warn_once(f"compiled programs cannot be kept in {self.folder}: {error}")
            return False
        self.evict()
        return True

    def discard(self, parts: Mapping[str, str]) -> None:
        """Remove a program that turned out unusable."""
        self._discard(self.path(key_of(parts)))

    def evict(self) -> int:
        """Remove the programs used longest ago until the rest is below the limit, and what dead processes left; gives how many."""
        files, now = [], time.time()
        for file in self._files():
            try:
                status = file.stat()
            except OSError:  # another process removed it meanwhile
                continue
            if file.name.endswith(".tmp"):
                if now - status.st_mtime > _STALE:
                    self._discard(Path(file.path))
            elif file.name.endswith(_SUFFIX):
                files.append((status.st_mtime, status.st_size, file.path))
        total, removed = sum(size for _, size, _ in files), 0
        for _, size, path in sorted(files):
            if total <= self.limit:
                break
            self._discard(Path(path))
            total, removed = total - size, removed + 1
        return removed

    def entries(self) -> list[Entry]:
        """All whole entries, the last made first."""
        found = []
        for file in self._files():
            if not file.name.endswith(_SUFFIX):
                continue
            try:
                data = Path(file.path).read_bytes()
                parts, made, _ = _unpacked(data)
                status = file.stat()
            except (OSError, ValueError):  # gone by now, or damaged
                continue
            found.append(Entry(Path(file.path), parts, len(data), made, status.st_mtime))
        return sorted(found, key=lambda e: -e.made)

    def clear(self) -> int:
        """Remove every program; returns how many there were."""
        count = 0
        for file in list(self._files()):
            if file.name.endswith((_SUFFIX, ".tmp")):
                self._discard(Path(file.path))
                count += file.name.endswith(_SUFFIX)
        return count

    def _files(self) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(self.folder) as files:
                yield from list(files)
        except (FileNotFoundError, NotADirectoryError):
            return

    def _discard(self, path: Path) -> None:
        if self.writable:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:  # another process reads it, where a system minds that
                log.debug("cannot remove %s: %s", path, error)

    def _is_private(self) -> bool:
        """Whether it is this user's, or the system's, and only the owner and the group can put files there; says once where not."""
        if sys.platform == "win32":
            return True
        try:
            status = self.folder.stat()
        except OSError:
            return True  # what is wrong with it shows when a file is read or written
        if status.st_mode & stat.S_IWOTH:
            problem = "anybody can write to it"
        elif status.st_uid not in (0, os.geteuid()):
            problem = f"it belongs to another user, number {status.st_uid}"
        else:
            return True
        _warn_once(f"compiled programs are neither kept in nor taken from {self.folder}: {problem}")
        return False


def observe(observer: Callable[[str, bytes], None]) -> None:
    """Tell ``observer`` of every program that this process stores or finds from now on: its key and its file's bytes."""
    if observer not in _observers:
        _observers.append(observer)


def _tell(key: str, data: bytes) -> None:
    for observer in _observers:
        observer(key, data)


def _packed(parts: Mapping[str, str], payload: bytes) -> bytes:
    head = zlib.compress(json.dumps({"made": time.time(), "parts": dict(parts)}).encode(), 1)
    body = len(head).to_bytes(8, "little") + head + payload
    return _MAGIC + hashlib.sha256(body).digest() + body


def _unpacked(data: bytes) -> tuple[dict[str, str], float, bytes]:
    """The parts of the key, the time of making and the payload; raises :class:`ValueError` where the file is not whole."""
    start = len(_MAGIC) + _HASH
    body = memoryview(data)[start:]
    if not data.startswith(_MAGIC):
        raise ValueError("is no compiled program")
    if hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        raise ValueError("is damaged: its checksum differs")
    size = int.from_bytes(body[:8], "little")
    head = json.loads(zlib.decompress(body[8 : 8 + size]))
    return head["parts"], head["made"], bytes(body[8 + size :])


def differences(parts: Mapping[str, str], others: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The parts of two keys that differ, by name, and of each the first line that does, in both."""
    found = {}
    for name in sorted(parts.keys() | others.keys()):
        ours, theirs = parts.get(name, ""), others.get(name, "")
        if ours != theirs:
            pairs = zip_longest(ours.splitlines(), theirs.splitlines(), fillvalue="")
            found[name] = next((pair for pair in pairs if pair[0] != pair[1]), (ours, theirs))
    return found


def distance(parts: Mapping[str, str], others: Mapping[str, str]) -> tuple[int, int]:
    """How far two keys are apart: the number of parts that differ, then the number of lines in them that only one has."""
    differing = [name for name in parts.keys() | others.keys() if parts.get(name) != others.get(name)]
    lines = sum(len(set(parts.get(n, "").splitlines()) ^ set(others.get(n, "").splitlines())) for n in differing)
    return len(differing), lines


@cache
def source_hash() -> str:
    """The hash of this package's files that give a program its meaning: another revision may compile it otherwise.

    What makes the program (frontends and passes) is left out: what they made is in the key as text. Empty where a file changed
    after this process imported the package: it may run the file as it was before.
    """
    digest = hashlib.sha256()
    top = Path(__file__).parent
    for folder, below, files in os.walk(top, followlinks=True):
        below[:] = sorted(set(below) - _MAKERS)
        for name in sorted(files):
            if name.endswith((".py", ".lark", ".json")):
                path = Path(folder, name)
                if path.stat().st_mtime > _imported_at:
                    log.warning("%s changed while this process ran; compiled programs are neither kept nor reused", path)
                    return ""
                data = path.read_bytes()
                digest.update(f"{path.relative_to(top).as_posix()}\0{len(data)}\0".encode())
                digest.update(data)
    return digest.hexdigest()


@cache
def processor() -> str:
    """The processor that programs are compiled for: architecture, model, features, and how many of them this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    lines = [f"{platform.system()} {platform.machine()}", platform.processor(), f"{count} of {os.cpu_count()} processors"]
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    first = text.partition("\n\n")[0]
    wanted = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU implementer", "CPU part")
    lines += [line for line in first.splitlines() if line.partition(":")[0].strip() in wanted]
    return "\n".join(lines)


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        warn("file", message)
