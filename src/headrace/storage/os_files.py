"""The operating system's files behind the file port."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
from itertools import chain
from pathlib import Path

from headrace.storage import system_calls
from headrace.storage.files import Buffer, Lock, SyncFailed

OPEN_FILES_MAX = 4096
"""How many descriptors one OsFileSystem keeps open, or half of the process's limit if that is less;
other files are reopened on use."""

# Reserving blocks for a growing file makes writes a third cheaper, and syncs too. A small file is
# not worth it; a large one reserves a quarter of its size, up to this.
_RESERVE_FROM_BYTES = 4 << 20
_RESERVE_BYTES_MAX = 16 << 20

_CLOEXEC: int = getattr(os, "O_CLOEXEC", 0)
_FLAGS = os.O_RDWR | _CLOEXEC
_RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def _sync_fd(fd: int, path: str, *, is_dir: bool = False) -> None:
    try:
        system_calls.sync(fd, is_dir=is_dir)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, path) from error


class _Descriptor:
    """An open descriptor, closed when its last reference is gone.

    A thread in the middle of a read or sync holds a reference, so a close by the loop thread cannot
    give the descriptor's number to another file meanwhile.
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
        "_reserve_at",
        "_reserved_bytes",
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
        self._reserved_bytes = 0
        self._reserve_at = _RESERVE_FROM_BYTES
        self.read_lately = False
        self._synced_size = size
        self._sync_error: OSError | None = None
        self._syncing = threading.Lock()

    @property
    def evictable(self) -> bool:
        """Not with unsynced bytes: only open descriptors learn of a write-back error."""
        return not self._held and self._synced_size == self.size

    def _open(self, extra_flags: int = 0) -> _Descriptor:
        if self._closed:
            raise FileNotFoundError(errno.ENOENT, "the file is closed", self.path)
        descriptor = _Descriptor(os.open(self.path, self._fs.flags | extra_flags, 0o644))
        self._descriptor = descriptor
        self._fs._opened(self)
        return descriptor

    def append(self, data: Buffer) -> None:
        descriptor = self._descriptor or self._open()
        length = len(data)
        end = self.size + length
        if end > self._reserve_at:
            self._reserve_at = end + min(end // 4, _RESERVE_BYTES_MAX)
            self.reserve(self._reserve_at)
        try:
            written = os.pwrite(descriptor.fd, data, self.size)
            if written != len(data):
                self._append_rest(descriptor.fd, data, written)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor.fd, self.size)
            raise
        self.size = end

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
        buffer = bytearray(length)
        return buffer if self.pread_into(memoryview(buffer), offset) == length else None

    def pread_into(self, buffer: memoryview, offset: int) -> int:
        descriptor = self._descriptor or self._open()
        self.read_lately = True
        if self._fs.nowait:
            try:
                return os.preadv(descriptor.fd, (buffer,), offset, _RWF_NOWAIT)
            except OSError as error:
                if error.errno == errno.EAGAIN:
                    return 0
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise
                self._fs.nowait = False  # not supported by this file system: use pread from now on
        data = os.pread(descriptor.fd, len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def truncate(self, size: int) -> None:
        descriptor = self._descriptor or self._open()
        self._synced_size = -1
        os.ftruncate(descriptor.fd, size)
        self.size = size

    def reserve(self, size: int) -> None:
        if size > self._reserved_bytes:
            descriptor = self._descriptor or self._open()
            self._reserved_bytes = size
            try:
                system_calls.reserve(descriptor.fd, self.size, size - self.size)
            except OSError:
                self.trim()  # a part of it is useless, and may be the last free space

    def trim(self) -> None:
        if self._reserved_bytes:
            self._reserved_bytes = 0
            descriptor = self._descriptor or self._open()
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor.fd, self.size)

    def sync(self) -> None:
        # The kernel reports a failed write-back once and then considers the pages clean. A later
        # or concurrent sync must not succeed.
        with self._syncing:
            if self._closed:
                return  # its segment was removed meanwhile: nothing is left to sync
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
    """The operating system's files, with a limit on how many are open at a time.

    With read_only its files cannot be written to, so they may belong to another process or be on a
    read-only disk.
    """

    def __init__(self, open_files_max: int = OPEN_FILES_MAX, *, read_only: bool = False) -> None:
        self.flags = os.O_RDONLY | _CLOEXEC if read_only else _FLAGS
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
        """Close the oldest file that is clean and not held; one read lately comes later."""
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
        descriptor = file._open(os.O_CREAT if create else 0)
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

    def boot_id(self) -> str:
        try:
            return self.read(_BOOT_ID).decode().strip()
        except OSError:
            return ""

    def lock(self, path: str) -> Lock:
        import fcntl

        descriptor = _Descriptor(os.open(path, _FLAGS | os.O_CREAT, 0o644))
        fcntl.flock(descriptor.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _OsLock(descriptor)
