"""The cache of compiled programs on disk: what it finds, what it refuses, what it removes, and the tool that looks into it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from neuron_ir import cache as caches
from neuron_ir.cache import Cache, differences, key_of, opened
from neuron_ir.diagnostics import IRError, IRWarning
from neuron_ir.tools import cache as tool

PARTS = {"program": "func @main()\nline two\n", "options": "[]", "versions": "jax 1"}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setattr(caches, "_warned", set())
    return Cache(tmp_path / "programs")


def test_what_was_stored_is_found_by_the_same_key_only(store: Cache) -> None:
    assert store.load(PARTS) is None
    assert store.store(PARTS, b"code")
    assert store.load(dict(reversed(PARTS.items()))) == b"code"
    for name in PARTS:
        assert store.load(PARTS | {name: "other"}) is None
    assert store.load(PARTS | {"more": ""}) is None
    assert key_of({"a": "b", "c": ""}) != key_of({"a": "", "bc": ""}) != key_of({"a": "bc"})
    assert store.folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("spoil", [lambda d: d[:-1], lambda d: d[:-1] + b"?", lambda d: b"", lambda d: b"x" + d, lambda d: d[:40]])
def test_a_damaged_file_is_as_good_as_absent_and_removed(store: Cache, spoil) -> None:
    store.store(PARTS, b"code")
    path = store.path(key_of(PARTS))
    path.write_bytes(spoil(path.read_bytes()))
    assert store.entries() == []
    assert store.load(PARTS) is None and not path.exists()
    assert store.store(PARTS, b"code") and store.load(PARTS) == b"code"


def test_reading_alone_changes_nothing(store: Cache) -> None:
    store.store(PARTS, b"code")
    path = store.path(key_of(PARTS))
    os.utime(path, (1, 1))
    reader = Cache(store.folder, writable=False)
    assert reader.load(PARTS) == b"code" and path.stat().st_mtime == 1
    assert not reader.store(PARTS | {"options": "x"}, b"code")
    path.write_bytes(b"damaged")
    assert reader.load(PARTS) is None and path.exists()


def test_the_programs_used_longest_ago_go_first(store: Cache) -> None:
    keys = [PARTS | {"options": str(i)} for i in range(4)]
    for age, key in enumerate(keys):
        store.store(key, os.urandom(1000))
        os.utime(store.path(key_of(key)), (100 + age, 100 + age))
    left = store.folder / ".x.1.tmp"
    left.write_bytes(b"")
    os.utime(left, (1, 1))
    assert store.load(keys[0]) is not None
    size = store.entries()[0].size
    small = Cache(store.folder, limit=2 * size + 100)
    assert small.evict() == 2 and not left.exists()
    assert [store.load(k) is not None for k in keys] == [True, False, False, True]
    assert not Cache(store.folder, limit=100).store(PARTS, b"code")


def test_a_folder_that_cannot_be_written_is_a_warning_once(tmp_path: Path, store: Cache) -> None:
    (tmp_path / "file").write_text("")
    blocked = Cache(tmp_path / "file" / "programs")
    with pytest.warns(IRWarning, match="cannot be kept in") as warned:
        assert not blocked.store(PARTS, b"code") and not blocked.store(PARTS, b"code")
        assert blocked.load(PARTS) is None
    assert len(warned) == 1


def test_a_full_disk_is_a_warning_and_leaves_no_part(store: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(IRWarning, match="No space left on device"):
        assert not store.store(PARTS, b"code")
    assert list(store.folder.iterdir()) == []


def test_a_folder_open_to_everybody_is_not_used(store: Cache) -> None:
    store.store(PARTS, b"code")
    store.folder.chmod(0o777)
    with pytest.warns(IRWarning, match="anybody can write to it"):
        assert store.load(PARTS) is None
    assert not store.store(PARTS, b"code")


def test_a_folder_of_another_user_is_not_used(store: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    store.store(PARTS, b"code")
    os.chown(store.folder, 12345, -1) if os.geteuid() == 0 else monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.warns(IRWarning, match="it belongs to another user, number"):
        assert store.load(PARTS) is None
    assert not store.store(PARTS, b"code")


def test_a_program_that_another_process_removes_meanwhile_is_passed_over(store: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        store.store(PARTS | {"name": name}, b"code")
    (store.folder / ".left.tmp").write_bytes(b"")
    seen = list(store._files())
    for file in seen[1:]:
        os.unlink(file.path)
    monkeypatch.setattr(store, "_files", lambda: iter(seen))
    store.limit = 0
    assert store.evict() == 1 - seen[0].name.endswith(".tmp")
    assert store.entries() == []


def test_the_environment_chooses_folder_mode_and_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened() is None  # the test run's own setting
    monkeypatch.setenv("NEURON_IR_CACHE", "readonly")
    monkeypatch.setenv("NEURON_IR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NEURON_IR_CACHE_SIZE", "2M")
    found = opened()
    assert found is not None and (found.folder, found.limit, found.writable) == (tmp_path, 2 << 20, False)
    for name, value in (("NEURON_IR_CACHE_SIZE", "much"), ("NEURON_IR_CACHE", "of")):
        with monkeypatch.context() as m, pytest.raises(IRError, match=f"{name} is .*{value}"):
            m.setenv(name, value)
            opened()
    for name in ("NEURON_IR_CACHE", "NEURON_IR_CACHE_DIR", "NEURON_IR_CACHE_SIZE"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(caches.sys, "platform", "linux")
    found = opened()
    assert found is not None and (found.folder, found.limit, found.writable) == (tmp_path / "neuron-ir", 4 << 30, True)


def test_a_file_of_the_package_that_changed_meanwhile_makes_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert caches.source_hash.__wrapped__() == caches.source_hash.__wrapped__() != ""
    monkeypatch.setattr(caches, "_imported_at", Path(caches.__file__).stat().st_mtime - 1)
    assert caches.source_hash.__wrapped__() == ""


def test_the_processor_is_told_with_its_features() -> None:
    told = caches.processor()
    assert "processors" in told
    if os.path.exists("/proc/cpuinfo"):
        assert "flags" in told or "Features" in told


def test_the_tool_lists_explains_and_clears(store: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["--dir", str(store.folder)]
    assert tool.main([*run, "ls"]) == 0 and "0 program(s)" in capsys.readouterr().out
    assert tool.main([*run, "explain"]) == 1
    store.store(PARTS, b"code")
    assert tool.main([*run, "explain"]) == 0 and "no other program" in capsys.readouterr().out
    far = {"program": "func @other()\n", "options": "[1]", "versions": "jax 1"}
    near = PARTS | {"program": "func @main()\nline 2\n", "versions": "jax 2"}
    for parts in (far, near):
        time.sleep(0.01)
        store.store(parts, b"code")
    assert tool.main([*run, "ls"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed[1:]] == [key_of(p)[:12] for p in (near, far, PARTS)]
    assert "func @main()" in listed[1]
    assert tool.main([*run, "explain"]) == 0
    told = capsys.readouterr().out
    assert f"nearest: {key_of(PARTS)[:12]}" in told and "options" not in told
    assert "program differs:\n  this:    line 2\n  nearest: line two" in told
    assert "versions differs:\n  this:    jax 2\n  nearest: jax 1" in told
    assert tool.main([*run, "explain", key_of(far)[:8]]) == 0 and "func @other()" in capsys.readouterr().out
    assert tool.main([*run, "explain", "zz"]) == 1 and "no program has a key" in capsys.readouterr().err
    assert tool.main([*run, "clear"]) == 0 and "3 program(s) removed" in capsys.readouterr().out
    assert store.entries() == []


def test_differences_name_the_first_line_that_differs() -> None:
    assert differences({"a": "1\n2", "b": "x"}, {"a": "1\n3\n4", "c": ""}) == {"a": ("2", "3"), "b": ("x", "")}
