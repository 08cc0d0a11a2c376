"""The file port: everything that the log asks of a disk.

`os_files.py` has the real disk behind it. Tests put other disks behind the same port: one that
fails on demand, one that loses power.
"""

from __future__ import annotations

import errno
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

_PASSING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR}
)


class SyncFailed(OSError):
    """The disk did not accept written data, and the kernel may have dropped it for good."""


def is_passing(error: OSError) -> bool:
    """Whether an error may pass by itself (a full disk, no descriptors) and nothing is lost."""
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
        """As pread, or None if that would wait for the disk."""

    def pread_into(self, buffer: memoryview, offset: int) -> int:
        """Read what needs no wait for the disk into memory; returns how many bytes."""

    def truncate(self, size: int) -> None: ...

    def reserve(self, size: int) -> None:
        """Reserve disk space for a file of this size, if possible, without changing its size."""

    def trim(self) -> None:
        """Give back reserved space that was not used, if possible."""

    def sync(self) -> None:
        """Return once all written bytes and the size are on stable storage; raises SyncFailed."""

    def sendfile(self, socket_fd: int, offset: int, count: int) -> int:
        """Send up to count bytes to a socket without copying them; returns how many were sent."""

    def hold(self) -> None:
        """Keep the descriptor open until close, so that a rename of the path does not matter."""

    def close(self) -> None:
        """Close the file for good: another file may have the path by then."""


class Lock(Protocol):
    """An exclusive lock held by this process."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """A tree of files; directory changes are durable only after sync_dir.

    The syncs raise SyncFailed when the disk fails, and any OSError when they cannot begin.
    """

    def open(self, path: str, create: bool = False, size: int | None = None) -> File:
        """A file by path; opened on first use if its size is given, else at once."""

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
    def boot_id(self) -> str:
        """The id of the machine's present boot; empty where it is unknown.

        As long as it is the same, everything written is there, synced or not.
        """

    def lock(self, path: str) -> Lock:
        """Take the lock file; raises BlockingIOError while another process holds it."""


def pread(file: File, length: int, offset: int, wait: bool) -> bytes | bytearray:
    """Read from a file; BlockingIOError if that would wait for the disk and wait is off."""
    if wait:
        return file.pread(length, offset)
    data = file.pread_nowait(length, offset)
    if data is None:
        raise BlockingIOError(errno.EAGAIN, "not in the page cache", file.path)
    return data
