"""A spool in a file: append-only, with a checksum per frame, rewritten when most of it is obsolete.

A partly written frame counts as not written, so a crash at any byte loses only changes that were
not acknowledged.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from headrace.dispatch.errors import SpoolBroken
from headrace.dispatch.spool.frames import HEADER_BYTES, MAGIC, encode, scan
from headrace.dispatch.spool.port import (
    BEAT_SECONDS,
    Beat,
    JobPut,
    SpoolChange,
    SpoolContents,
    check_sync,
)

# A smaller file is not worth rewriting.
COMPACT_BYTES_MIN = 4 * 1024 * 1024
# About how many bytes a frame has besides its value.
_FRAME_BYTES = 64
_INTERVAL_MS = int(BEAT_SECONDS * 1000)

_log = logging.getLogger("headrace.dispatch")


class FileSpool:
    """One node's spool file; a second process that opens it is refused."""

    def __init__(
        self, path: Path, *, sync: str = "always", compact_bytes_min: int = COMPACT_BYTES_MIN
    ) -> None:
        self.node = ""
        self.path = path
        self.damaged_bytes = 0
        self.compactions = 0
        self._sync = check_sync(sync)
        self._compact_bytes_min = compact_bytes_min
        self._contents = SpoolContents()
        self._file = self._lock = -1
        self._bytes = 0
        self._salt = 0
        self._is_dirty = False
        # A failed write is still at the end of the file; the file's name is not durable yet.
        self._is_torn = self._is_name_unsynced = False
        self._synced_ms = -_INTERVAL_MS
        self._compact_at_bytes = compact_bytes_min

    def recover(self) -> SpoolContents:
        """Open or create the file, cut off a torn tail and return what is unfinished."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            # A crash interrupted a rewrite: the old file is still valid.
            self._new_path.unlink(missing_ok=True)
            if not self.path.exists() or not self.path.stat().st_size:
                self._rewrite()
            data = self.path.read_bytes()
        except OSError as error:
            raise self._broken(error) from None
        if data[: len(MAGIC)] != MAGIC:
            raise SpoolBroken(f"{self.path} is not a spool", "give spool= a file of its own")
        self._salt = _salt(data)
        self.node = data[len(MAGIC) : HEADER_BYTES].hex()
        found = scan(data, self._salt, HEADER_BYTES)
        self.damaged_bytes = found.damaged_bytes
        if found.damaged_bytes:
            _log.error("%s: %d damaged bytes were skipped", self.path, found.damaged_bytes)
        self._contents = SpoolContents()
        self._contents.apply(found.changes)
        try:
            if self._file < 0:
                self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            if len(data) > found.good_bytes:
                os.ftruncate(self._file, found.good_bytes)
                os.fsync(self._file)
        except OSError as error:
            raise self._broken(error) from None
        self._bytes = found.good_bytes
        return self._contents

    def write(self, changes: Sequence[SpoolChange]) -> None:
        """Append changes with one write, and sync if a job was put."""
        data = encode(changes, self._salt)
        try:
            self._cut_off()
            written = os.write(self._file, data)
            if written < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if any(isinstance(change, JobPut) for change in changes):
                self._sync_now()
        except OSError as error:
            # A change that was not acknowledged must not come back.
            self._is_torn = True
            with suppress(OSError):
                self._cut_off()
            raise self._broken(error) from None
        self._bytes += len(data)
        self._contents.apply(changes)
        if self._bytes >= self._compact_at_bytes and self._bytes > 2 * self._live_bytes():
            self._compact()

    def beat(self, now_ms: int) -> Beat:
        """Sync what the policy left for later; other nodes cannot take over a file."""
        # Every batch causes a beat, too, and the clock may have been set back.
        if self._is_dirty and not 0 <= now_ms - self._synced_ms < _INTERVAL_MS:
            try:
                os.fdatasync(self._file)
            except OSError as error:
                raise self._broken(error) from None
            self._is_dirty, self._synced_ms = False, now_ms
        return Beat()

    def close(self) -> None:
        """Sync and close the file; unfinished jobs wait in it for the next start."""
        if self._file >= 0:
            os.fsync(self._file)
            os.close(self._file)
        if self._lock >= 0:
            os.close(self._lock)
        self._file = self._lock = -1

    @property
    def _new_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.new")

    def _take_lock(self) -> None:
        if self._lock >= 0:
            return
        # A file beside it, since a rewrite replaces the spool file.
        name = self.path.with_name(f"{self.path.name}.lock")
        lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise SpoolBroken(
                f"{self.path} is in use by another process", "give every node a spool of its own"
            ) from None
        self._lock = lock

    def _cut_off(self) -> None:
        if self._is_torn:
            os.ftruncate(self._file, self._bytes)
            self._is_torn = False

    def _sync_now(self) -> None:
        if self._sync == "always":
            os.fdatasync(self._file)
            self._sync_name()
        self._is_dirty = self._sync == "interval"

    def _sync_name(self) -> None:
        if self._is_name_unsynced:
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self._is_name_unsynced = False

    def _live_bytes(self) -> int:
        return self._contents.value_bytes + _FRAME_BYTES * len(self._contents.jobs)

    def _compact(self) -> None:
        try:
            self._rewrite(self._contents.changes())
        except OSError as error:
            # Nothing is lost: the present file is complete, and only longer than necessary.
            _log.warning("%s", self._broken(error))
            self._compact_at_bytes = 2 * self._bytes
            return
        self._compact_at_bytes = self._compact_bytes_min
        self.compactions += 1

    def _rewrite(self, changes: Iterable[SpoolChange] = ()) -> None:
        """Replace the file with one that has just these changes."""
        header = MAGIC + (bytes.fromhex(self.node) if self.node else secrets.token_bytes(8))
        data = header + encode(changes, _salt(header))
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        new = os.open(self._new_path, flags, 0o600)
        try:
            if os.write(new, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(new)
            os.replace(self._new_path, self.path)
        except OSError:
            os.close(new)
            raise
        # From here on this is the file, whatever else fails.
        old, self._file, self._bytes = self._file, new, len(data)
        self._is_name_unsynced = True
        if old >= 0:
            os.close(old)
        self._sync_name()

    def _broken(self, error: OSError) -> SpoolBroken:
        return SpoolBroken(
            f"the spool {self.path} cannot be used: {error.strerror}",
            "free some space, or give this user write access to the folder",
        )


def _salt(data: bytes) -> int:
    return int.from_bytes(data[len(MAGIC) : HEADER_BYTES][:4], "big")
