"""Syncs and reservations of files, which differ between operating systems."""

from __future__ import annotations

import errno
import os
import sys

_F_FULLFSYNC = 51
_NO_FULLFSYNC = frozenset({errno.ENOTSUP, errno.EINVAL, errno.ENOTTY})
_FALLOC_KEEP_SIZE = 1


def sync(fd: int, *, is_dir: bool = False) -> None:
    """Return once the content is on stable storage, not in the drive's cache; raises OSError."""
    if sys.platform == "darwin":
        if not _sync_drive(fd):
            os.fsync(fd)
    elif is_dir:
        os.fsync(fd)
    else:
        os.fdatasync(fd)


def _sync_drive(fd: int) -> bool:
    """Flush the drive's cache too, which fsync on macOS does not; False if not supported."""
    import fcntl

    try:
        fcntl.fcntl(fd, _F_FULLFSYNC)
    except OSError as error:
        if error.errno in _NO_FULLFSYNC:
            return False
        raise
    return True


def reserve(fd: int, start: int, length: int) -> None:
    """Reserve blocks after the end of a file without changing its size; raises OSError."""
    # os.posix_fallocate changes the size, and readers would mistake the zeros for batches.
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if call is None:
        raise OSError(errno.ENOSYS, "space cannot be reserved on this system")
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if call(fd, _FALLOC_KEEP_SIZE, start, length):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
