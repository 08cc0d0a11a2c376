"""The real file system behind the port."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from headrace.storage import OsFileSystem


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_files_grow_and_are_read_anywhere(tmp_path: Path) -> None:
    fs = OsFileSystem()
    file = fs.open(str(tmp_path / "f"), create=True)
    file.append(b"hello ")
    file.append(memoryview(b"world"))
    assert file.size == 11
    assert file.pread(5, 6) == b"world"
    assert file.pread(50, 6) == b"world"
    assert file.pread_nowait(5, 6) == b"world"
    assert file.pread_nowait(50, 20) == b""
    file.truncate(5)
    file.append(b"!")
    assert fs.read(str(tmp_path / "f")) == b"hello!"


def test_missing_files_are_not_made_unless_asked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OsFileSystem().open(str(tmp_path / "f"))


def test_plain_reads_are_used_where_the_system_cannot_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = OsFileSystem()
    file = fs.open(str(tmp_path / "f"), create=True)
    file.append(b"hello")

    def refuse(*_: object) -> int:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "preadv", refuse)
    assert file.pread_nowait(5, 0) == b"hello"
    assert not fs.nowait


def test_data_that_is_not_cached_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = OsFileSystem()
    fs.nowait = True
    file = fs.open(str(tmp_path / "f"), create=True)
    file.append(b"hello")

    def would_block(*_: object) -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "preadv", would_block, raising=False)
    assert file.pread_nowait(5, 0) is None
    monkeypatch.setattr(os, "preadv", lambda *_: 3, raising=False)  # only a part is cached
    assert file.pread_nowait(5, 0) is None


def test_open_descriptors_are_bounded(tmp_path: Path) -> None:
    fs = OsFileSystem(open_files_max=8)
    before = open_descriptors()
    files = [fs.open(str(tmp_path / str(number)), create=True) for number in range(50)]
    for number, file in enumerate(files):
        file.append(b"%d" % number)
        file.sync()
    assert open_descriptors() - before <= 9
    for number, file in enumerate(files):
        assert file.pread(9, 0) == b"%d" % number


def test_files_with_unsynced_bytes_stay_open(tmp_path: Path) -> None:
    fs = OsFileSystem(open_files_max=2)
    before = open_descriptors()
    files = [fs.open(str(tmp_path / str(number)), create=True) for number in range(6)]
    for file in files:
        file.append(b"x")
    assert open_descriptors() - before >= 5


def test_eviction_does_not_pull_the_descriptor_from_under_a_read(tmp_path: Path) -> None:
    fs = OsFileSystem(open_files_max=1)
    (tmp_path / "f").write_bytes(b"x" * 10_000)
    file = fs.open(str(tmp_path / "f"))
    wrong: list[object] = []

    def read() -> None:
        found = [file.pread(10, 0) for _ in range(2000)]
        wrong.extend(data for data in found if data != b"x" * 10)

    reader = threading.Thread(target=read)
    reader.start()
    (tmp_path / "other").write_bytes(b"y" * 100)
    while reader.is_alive():
        # Takes the only place, and would get the number of a descriptor closed too early.
        fs.open(str(tmp_path / "other"))
    reader.join()
    assert wrong == []


def test_closed_file_is_not_opened_again(tmp_path: Path) -> None:
    fs = OsFileSystem()
    file = fs.open(str(tmp_path / "f"), create=True)
    file.append(b"old")
    file.close()
    file.sync()
    (tmp_path / "f").write_bytes(b"new")  # of another log with the same name
    with pytest.raises(FileNotFoundError):
        file.pread(3, 0)


def test_held_files_are_read_after_their_name_is_gone(tmp_path: Path) -> None:
    fs = OsFileSystem(open_files_max=1)
    (tmp_path / "f").write_bytes(b"hello")
    file = fs.open(str(tmp_path / "f"), size=5)
    file.hold()
    fs.remove(str(tmp_path / "f"))
    for number in range(3):
        fs.open(str(tmp_path / str(number)), create=True)
    assert file.pread(5, 0) == b"hello"


def test_atomic_writes_replace_the_whole_file(tmp_path: Path) -> None:
    fs = OsFileSystem()
    path = str(tmp_path / "f")
    fs.write_atomic(path, b"old and long")
    fs.write_atomic(path, b"new")
    assert fs.read(path) == b"new"
    assert fs.list(str(tmp_path)) == ["f"]


def test_lock_is_exclusive_until_released(tmp_path: Path) -> None:
    fs = OsFileSystem()
    path = str(tmp_path / ".lock")
    lock = fs.lock(path)
    with pytest.raises(BlockingIOError):
        fs.lock(path)
    lock.release()
    fs.lock(path).release()


def test_failed_sync_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = OsFileSystem()
    file = fs.open(str(tmp_path / "f"), create=True)
    file.append(b"x")

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    monkeypatch.undo()
    with pytest.raises(OSError, match="Input/output"):  # the kernel would say that all is well
        file.sync()
