"""The file port: all that the log asks of a disk, and the real disk behind it.

Tests put other disks behind the same port: one that fails on demand, one that loses power.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sys
import threading
from itertools import chain
from pathlib import Path
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

OPEN_FILES_MAX = 4096
"""Descriptors that one OsFileSystem keeps open, or half of what the process may have if that is
less; other files are reopened on use."""

_PASSING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR}
)
_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
_RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
_F_FULLFSYNC = 51
_NO_FULLFSYNC = frozenset({errno.ENOTSUP, errno.EINVAL, errno.ENOTTY})


class SyncFailed(OSError):
    """The disk did not take what was written, and the kernel may have dropped it: for good."""


def is_passing(error: OSError) -> bool:
    """Whether trouble may pass by itself (a full disk, no descriptors) and nothing is lost."""
    return error.errno in _PASSING and not isinstance(error, SyncFailed)


class File(Protocol):
    """One file that grows at its end."""

    path: str
    size: int

    def append(self, data: Buffer) -> None:
        """Write all of data at the end; on failure cut back to the old size and raise OSError."""

    def pread(self, length: int, offset: int) -> bytes | bytearray:
        """Read up to length bytes; fewer only at the end of the file."""

    def pread_nowait(self, length: int, offset: int) -> bytes | bytearray | None:
        """As pread, or None when the disk would have to be waited for."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return once all written bytes and the size are on stable storage; raises SyncFailed."""

    def sendfile(self, socket_fd: int, offset: int, count: int) -> int:
        """Send up to count bytes to a socket without copying them; how many it took."""

    def hold(self) -> None:
        """Keep the descriptor open until close, so that renaming the path cannot matter."""

    def close(self) -> None:
        """Give the descriptor back for good: by then another file may have the path."""


class Lock(Protocol):
    """An exclusive lock held by this process."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """A tree of files; directory changes are durable only after sync_dir.

    The syncs raise SyncFailed when the disk fails, and any OSError when they cannot begin.
    """

    def open(self, path: str, create: bool = False, size: int | None = None) -> File:
        """A file by path; opened on first use when its size is given, else at once."""

    def read(self, path: str) -> bytes: ...
    def write(self, path: str, data: Buffer) -> None:
        """Replace a file's content in place, durable only after sync_path."""

    def write_atomic(self, path: str, data: Buffer) -> None:
        """Replace a file so that a crash leaves the old or the new content; durable on return."""

    def sync_path(self, path: str) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def rmtree(self, path: str) -> None: ...
    def list(self, path: str) -> list[str]: ...
    def mkdir(self, path: str) -> None: ...
    def sync_dir(self, path: str) -> None: ...
    def exists(self, path: str) -> bool: ...
    def is_dir(self, path: str) -> bool: ...
    def size(self, path: str) -> int: ...
    def modified_ms(self, path: str) -> int: ...
    def free_bytes(self, path: str) -> int: ...
    def total_bytes(self, path: str) -> int: ...
    def lock(self, path: str) -> Lock:
        """Take the lock file; raises BlockingIOError while another process holds it."""


def pread(file: File, length: int, offset: int, wait: bool) -> bytes | bytearray:
    """Read from a file, or raise BlockingIOError when that would wait and waiting is not meant."""
    if wait:
        return file.pread(length, offset)
    data = file.pread_nowait(length, offset)
    if data is None:
        raise BlockingIOError(errno.EAGAIN, "not in the page cache", file.path)
    return data


def _sync_fd(fd: int, path: str, *, is_dir: bool = False) -> None:
    try:
        if sys.platform == "darwin":
            if not _sync_drive(fd):
                os.fsync(fd)
        elif is_dir:
            os.fsync(fd)
        else:
            os.fdatasync(fd)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, path) from error


def _sync_drive(fd: int) -> bool:
    """Empty the drive's volatile cache too, where macOS's fsync stops; False if it cannot be."""
    import fcntl

    try:
        fcntl.fcntl(fd, _F_FULLFSYNC)
    except OSError as error:
        if error.errno in _NO_FULLFSYNC:
            return False
        raise
    return True


class _Descriptor:
    """An open descriptor, closed when its last user lets go.

    A thread in the middle of a read or sync holds a reference, so a close by the loop thread can
    never hand the number to another file under its feet.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class OsFile:
    """A file of the operating system, opened when first used."""

    __slots__ = (
        "_closed",
        "_descriptor",
        "_fs",
        "_held",
        "_sync_error",
        "_synced_size",
        "_syncing",
        "path",
        "read_lately",
        "size",
    )

    def __init__(self, fs: OsFileSystem, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self._fs = fs
        self._descriptor: _Descriptor | None = None
        self._closed = False
        self._held = False
        self.read_lately = False
        self._synced_size = size
        self._sync_error: OSError | None = None
        self._syncing = threading.Lock()

    @property
    def evictable(self) -> bool:
        """Not with unsynced bytes: a write-back error is told only to descriptors open by then."""
        return not self._held and self._synced_size == self.size

    def _open(self, flags: int = _FLAGS) -> _Descriptor:
        if self._closed:
            raise FileNotFoundError(errno.ENOENT, "the file is closed", self.path)
        descriptor = _Descriptor(os.open(self.path, flags, 0o644))
        self._descriptor = descriptor
        self._fs._opened(self)
        return descriptor

    def append(self, data: Buffer) -> None:
        descriptor = self._descriptor or self._open()
        length = len(data)
        try:
            written = os.pwrite(descriptor.fd, data, self.size)
            if written != length:
                self._append_rest(descriptor.fd, data, written)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor.fd, self.size)
            raise
        self.size += length

    def _append_rest(self, fd: int, data: Buffer, written: int) -> None:
        view = memoryview(data)
        while written < len(view):
            count = os.pwrite(fd, view[written:], self.size + written)
            if count == 0:
                raise OSError(errno.ENOSPC, "short write", self.path)
            written += count

    def pread(self, length: int, offset: int) -> bytes | bytearray:
        descriptor = self._descriptor or self._open()
        self.read_lately = True
        data = os.pread(descriptor.fd, length, offset)
        while len(data) < length:
            more = os.pread(descriptor.fd, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def pread_nowait(self, length: int, offset: int) -> bytes | bytearray | None:
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        if not self._fs.nowait:
            return self.pread(length, offset)
        descriptor = self._descriptor or self._open()
        self.read_lately = True
        buffer = bytearray(length)
        try:
            count = os.preadv(descriptor.fd, [buffer], offset, _RWF_NOWAIT)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                self._fs.nowait = False  # this file system cannot tell: read plainly from now on
                return self.pread(length, offset)
            if error.errno == errno.EAGAIN:
                return None
            raise
        return buffer if count == length else None

    def truncate(self, size: int) -> None:
        descriptor = self._descriptor or self._open()
        self._synced_size = -1
        os.ftruncate(descriptor.fd, size)
        self.size = size

    def sync(self) -> None:
        # The kernel tells of a failed write-back once and then holds the pages for clean. Who
        # asks next, or at the same time, must not be told that all is well.
        with self._syncing:
            if self._closed:
                return  # its segment was removed meanwhile: nothing is left to be made durable
            if self._sync_error is not None:
                raise self._sync_error
            descriptor = self._descriptor or self._open()
            size = self.size
            try:
                _sync_fd(descriptor.fd, self.path)
            except SyncFailed as error:
                self._sync_error = error
                raise
            self._synced_size = size

    def sendfile(self, socket_fd: int, offset: int, count: int) -> int:
        descriptor = self._descriptor or self._open()
        return os.sendfile(socket_fd, descriptor.fd, offset, count)

    def hold(self) -> None:
        if self._descriptor is None:
            self._open()
        self._held = True

    def close(self) -> None:
        self._held = False
        self._closed = True
        self._fs._closed(self)
        self._descriptor = None


class _OsLock:
    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: _Descriptor) -> None:
        self._descriptor: _Descriptor | None = descriptor

    def release(self) -> None:
        self._descriptor = None


class OsFileSystem:
    """The operating system's files, with a bound on how many are open at a time."""

    def __init__(self, open_files_max: int = OPEN_FILES_MAX) -> None:
        self.nowait = bool(_RWF_NOWAIT) and hasattr(os, "preadv")
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        unlimited = allowed == resource.RLIM_INFINITY
        self.open_files_max = open_files_max if unlimited else min(open_files_max, allowed // 2)
        self._open_files: dict[OsFile, None] = {}
        self._mutex = threading.Lock()

    def _opened(self, file: OsFile) -> None:
        with self._mutex:
            self._open_files[file] = None
            if len(self._open_files) > self.open_files_max:
                self._evict(file)

    def _closed(self, file: OsFile) -> None:
        with self._mutex:
            self._open_files.pop(file, None)

    def _evict(self, newest: OsFile) -> None:
        """Close a file that is clean and not held: the oldest, but later if it was just read."""
        files = list(self._open_files)
        for file in chain(files, files):
            if file is newest or not file.evictable:
                continue
            del self._open_files[file]
            if not file.read_lately:
                file._descriptor = None
                return
            file.read_lately = False
            self._open_files[file] = None

    def open(self, path: str, create: bool = False, size: int | None = None) -> OsFile:
        if size is not None:
            return OsFile(self, path, size)
        file = OsFile(self, path, 0)
        descriptor = file._open(_FLAGS | os.O_CREAT if create else _FLAGS)
        file.size = file._synced_size = os.fstat(descriptor.fd).st_size
        return file

    def read(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY)
        try:
            parts = []
            while part := os.read(fd, 1 << 20):
                parts.append(part)
            return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            os.close(fd)

    def write(self, path: str, data: Buffer) -> None:
        fd = os.open(path, _FLAGS | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            view = memoryview(data)
            while len(view):
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)

    def write_atomic(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        self.write(temporary, data)
        self.sync_path(temporary)
        os.replace(temporary, path)
        self.sync_dir(os.path.dirname(path))

    def sync_path(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR)
        try:
            _sync_fd(fd, path)
        finally:
            os.close(fd)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def rmtree(self, path: str) -> None:
        for name in self.list(path):
            child = os.path.join(path, name)
            if os.path.isdir(child) and not os.path.islink(child):
                self.rmtree(child)
            else:
                os.unlink(child)
        os.rmdir(path)

    def list(self, path: str) -> list[str]:
        return os.listdir(path)

    def mkdir(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            _sync_fd(fd, path, is_dir=True)
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def free_bytes(self, path: str) -> int:
        usage = os.statvfs(path)
        return usage.f_bavail * usage.f_frsize

    def total_bytes(self, path: str) -> int:
        usage = os.statvfs(path)
        return usage.f_blocks * usage.f_frsize

    def lock(self, path: str) -> Lock:
        import fcntl

        descriptor = _Descriptor(os.open(path, _FLAGS | os.O_CREAT, 0o644))
        fcntl.flock(descriptor.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _OsLock(descriptor)
