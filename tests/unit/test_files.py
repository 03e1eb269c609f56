"""Files are written whole or not at all, through links, and never in the place of a device."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from neuron_ir.diagnostics import IRError
from neuron_ir.files import write_text, write_together, write_whole


def test_a_failure_keeps_the_old_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    def pieces():
        yield b"new"
        raise KeyboardInterrupt

    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, pieces())
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_of_files_that_belong_together_none_appears_before_all_are_complete(tmp_path: Path) -> None:
    seen = []

    def pieces():
        seen.append(sorted(f.name for f in tmp_path.iterdir() if f.suffix != ".tmp"))
        yield b"new"

    write_together([(tmp_path / "a", pieces()), (tmp_path / "b", pieces())])
    assert seen == [[], []] and sorted(f.name for f in tmp_path.iterdir()) == ["a", "b"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"


def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_whole(pipe, [b"one ", b"two"])
    reader.join(30)
    assert got == [b"one two"] and stat.S_ISFIFO(pipe.stat().st_mode)


def test_threads_that_write_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    texts, failures = [letter * 50_000 for letter in "abcd"], []

    def write(text: str) -> None:
        try:
            for _ in range(20):
                write_text(tmp_path / "f", text)
        except IRError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and (tmp_path / "f").read_text() in texts and os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("path", ["", ".", "/", "..", "no/such/folder/f", "a\0b", "n" * 300])
def test_a_place_that_cannot_be_written_is_named(path: str) -> None:
    with pytest.raises(IRError, match="cannot write"):
        write_text(path, "text")


def test_a_long_name_that_the_system_allows_is_written(tmp_path: Path) -> None:
    write_text(tmp_path / ("n" * 255), "text")
    assert (tmp_path / ("n" * 255)).read_text() == "text"
