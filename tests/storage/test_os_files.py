"""The real file system behind the port."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from headrace.storage import OsFileSystem, files, os_files, system_calls
from headrace.storage.files import SyncFailed, is_passing


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


def test_reserved_room_is_no_part_of_a_file_and_is_given_back(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    file = OsFileSystem().open(path, create=True)
    file.append(b"before")
    file.reserve(1 << 20)
    assert os.stat(path).st_blocks * 512 >= 1 << 20
    file.append(b" and after")
    assert (file.size, os.stat(path).st_size) == (16, 16)
    file.trim()
    assert os.stat(path).st_blocks * 512 < 1 << 20
    assert Path(path).read_bytes() == b"before and after"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EOPNOTSUPP, errno.ENOSYS])
def test_files_grow_all_the_same_where_no_room_can_be_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(fd: int, start: int, length: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(system_calls, "reserve", refuse)
    file = OsFileSystem().open(str(tmp_path / "f"), create=True)
    file.reserve(1 << 20)
    file.append(b"v")
    assert file.pread(9, 0) == b"v"


def test_read_only_files_take_no_writes(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"there")
    fs = OsFileSystem(read_only=True)
    file = fs.open(str(path))
    assert file.pread(9, 0) == b"there"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.append(b"!")
    assert path.read_bytes() == b"there"


def test_boot_id_is_the_same_as_long_as_the_machine_runs() -> None:
    assert OsFileSystem().boot_id() == OsFileSystem().boot_id()


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

    def fail(_: int, path: str) -> None:
        raise files.SyncFailed(5, "Input/output error", path)

    monkeypatch.setattr(os_files, "_sync_fd", fail)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    monkeypatch.undo()
    with pytest.raises(OSError, match="Input/output"):  # the kernel would say that all is well
        file.sync()


def test_close_during_a_sync_leaves_it_its_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsFileSystem().open(str(tmp_path / "f"), create=True)
    file.append(b"x")
    sync = os.fdatasync

    def close_first(fd: int) -> None:
        file.close()
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", close_first)
    file.sync()


def test_bytes_go_from_a_file_to_a_socket(tmp_path: Path) -> None:
    file = OsFileSystem().open(str(tmp_path / "f"), create=True)
    file.append(b"hello world")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert file.sendfile(ours.fileno(), 6, 5) == 5
        assert theirs.recv(100) == b"world"


def test_sync_that_cannot_begin_is_passing_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x")
    file = OsFileSystem().open(str(path), size=1)

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        with pytest.raises(OSError, match="Too many") as caught:
            file.sync()
    assert is_passing(caught.value)
    file.sync()


def test_trouble_passes_unless_a_sync_has_failed() -> None:
    assert is_passing(OSError(errno.ENOSPC, "full"))
    assert not is_passing(OSError(errno.EIO, "broken"))
    assert not is_passing(SyncFailed(errno.ENOSPC, "full"))


@pytest.mark.parametrize("error", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY, errno.EIO])
def test_drive_cache_is_skipped_only_where_it_cannot_be_emptied(
    error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(error, "refused")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    if error == errno.EIO:
        with pytest.raises(OSError, match="refused"):
            system_calls._sync_drive(0)
    else:
        assert not system_calls._sync_drive(0)


def test_file_that_is_read_again_and_again_stays_open(tmp_path: Path) -> None:
    fs = OsFileSystem(open_files_max=3)
    for number in range(8):
        (tmp_path / str(number)).write_bytes(b"x")
    hot = fs.open(str(tmp_path / "0"))
    (tmp_path / "0").unlink()  # reopening it would fail
    for number in range(1, 8):
        assert hot.pread(1, 0) == b"x"
        fs.open(str(tmp_path / str(number)))
    assert len(fs._open_files) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reserves space behind a file's end")
def test_a_growing_file_has_space_reserved_until_it_is_trimmed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = OsFileSystem().open(str(path), create=True)
    for _ in range(8):
        file.append(bytes(1 << 20))
    assert path.stat().st_size == file.size == 8 << 20
    reserved = path.stat().st_blocks * 512
    assert file.size < reserved <= file.size * 5 // 4 + (1 << 20)
    file.trim()
    assert path.stat().st_size == file.size
    assert path.stat().st_blocks * 512 <= file.size + 4096
    file.append(b"more")
    assert file.pread(10, (8 << 20) - 1) == b"\0more"
