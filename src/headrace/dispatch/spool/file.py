"""A spool in a file: only appended to, checked frame by frame, rewritten when most of it is over.

A frame is whole or it is nothing, so a crash at any byte loses only what nobody was told is kept.
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
from headrace.dispatch.spool.changes import Change, Entries, Put
from headrace.dispatch.spool.frames import HEADER_BYTES, MAGIC, encode, scan
from headrace.dispatch.spool.port import BEAT_SECONDS, Beat, check_policy

# A file below this is not worth rewriting.
COMPACT_BYTES_MIN = 4 * 1024 * 1024
# Bytes of a frame besides its value, about.
_FRAME_BYTES = 64
_INTERVAL_MS = int(BEAT_SECONDS * 1000)

_log = logging.getLogger("headrace.dispatch")


class FileSpool:
    """One node's spool; a second process that opens it is refused."""

    def __init__(
        self, path: Path, *, sync: str = "always", compact_bytes_min: int = COMPACT_BYTES_MIN
    ) -> None:
        self.node = ""
        self.path = path
        self.damaged_bytes = 0
        self.compactions = 0
        self._sync = check_policy(sync)
        self._compact_bytes_min = compact_bytes_min
        self._entries = Entries()
        self._file = self._lock = -1
        self._bytes = 0
        self._salt = 0
        self._is_dirty = False
        # The last write is not cut off yet, or the file's name is not durable yet.
        self._is_torn = self._is_unnamed = False
        self._synced_ms = -_INTERVAL_MS
        self._compact_at_bytes = compact_bytes_min

    def recover(self) -> Entries:
        """Open or make the file, cut a torn tail off and return what is unfinished."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            # What a crash left of a rewrite: the old file still counts.
            self._beside.unlink(missing_ok=True)
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
            _log.error("%s: %d damaged bytes were left out", self.path, found.damaged_bytes)
        self._entries = Entries()
        self._entries.apply(found.changes)
        try:
            if self._file < 0:
                self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            if len(data) > found.good_bytes:
                os.ftruncate(self._file, found.good_bytes)
                os.fsync(self._file)
        except OSError as error:
            raise self._broken(error) from None
        self._bytes = found.good_bytes
        return self._entries

    def write(self, changes: Sequence[Change]) -> None:
        """Append changes with one write, and sync if something was put."""
        data = encode(changes, self._salt)
        try:
            self._cut_off()
            written = os.write(self._file, data)
            if written < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if any(isinstance(change, Put) for change in changes):
                self._sync_now()
        except OSError as error:
            # What reached the file of a change that nobody was told of must not come back.
            self._is_torn = True
            with suppress(OSError):
                self._cut_off()
            raise self._broken(error) from None
        self._bytes += len(data)
        self._entries.apply(changes)
        if self._bytes >= self._compact_at_bytes and self._bytes > 2 * self._live_bytes():
            self._compact()

    def beat(self, now_ms: int) -> Beat:
        """Sync what the policy left for later; nobody can take over a file."""
        # A beat comes with every batch, too, and the clock may have been set back.
        if self._is_dirty and not 0 <= now_ms - self._synced_ms < _INTERVAL_MS:
            try:
                os.fdatasync(self._file)
            except OSError as error:
                raise self._broken(error) from None
            self._is_dirty, self._synced_ms = False, now_ms
        return Beat()

    def close(self) -> None:
        """Sync and let go of the file; what is unfinished waits in it for the next start."""
        if self._file >= 0:
            os.fsync(self._file)
            os.close(self._file)
        if self._lock >= 0:
            os.close(self._lock)
        self._file = self._lock = -1

    @property
    def _beside(self) -> Path:
        return self.path.with_name(f"{self.path.name}.new")

    def _take_lock(self) -> None:
        if self._lock >= 0:
            return
        # Not the file itself, which a rewrite replaces.
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
        if self._is_unnamed:
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self._is_unnamed = False

    def _live_bytes(self) -> int:
        return self._entries.value_bytes + _FRAME_BYTES * len(self._entries.items)

    def _compact(self) -> None:
        try:
            self._rewrite(self._entries.changes())
        except OSError as error:
            # Nothing is lost by it: the present file is whole, and only longer than it need be.
            _log.warning("%s", self._broken(error))
            self._compact_at_bytes = 2 * self._bytes
            return
        self._compact_at_bytes = self._compact_bytes_min
        self.compactions += 1

    def _rewrite(self, changes: Iterable[Change] = ()) -> None:
        """Put a file with just these changes in the place of the present one."""
        header = MAGIC + (bytes.fromhex(self.node) if self.node else secrets.token_bytes(8))
        data = header + encode(changes, _salt(header))
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        new = os.open(self._beside, flags, 0o600)
        try:
            if os.write(new, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(new)
            os.replace(self._beside, self.path)
        except OSError:
            os.close(new)
            raise
        # From here on it is the file, whatever else fails.
        old, self._file, self._bytes = self._file, new, len(data)
        self._is_unnamed = True
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
