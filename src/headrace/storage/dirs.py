"""One log dir: a folder of partition folders, its lock, its format, its checkpoints."""

from __future__ import annotations

import os

from headrace.storage import names
from headrace.storage.checkpoints import CheckpointFolder, CorruptCheckpoint, Offsets
from headrace.storage.files import FileSystem, Lock

FORMAT_VERSION = 1
_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'


class LogDirError(OSError):
    """A log dir that cannot be used as it is; the message says what to do."""


class LogDir:
    """A folder that this process holds; offline once its disk has failed."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs = fs
        self.path = path
        self.offline: OSError | None = None
        self.was_clean = False
        self._lock: Lock | None = None
        self._checkpoints: CheckpointFolder | None = None

    def open(self) -> None:
        """Make the folder if it is new, lock it and check its format; raises OSError."""
        fs = self.fs
        self._make()
        try:
            self._lock = fs.lock(self._file(names.LOCK))
        except BlockingIOError:
            raise LogDirError(
                f"{self.path} is in use by another broker; stop it or choose another folder"
            ) from None
        self._check_format()
        self.was_clean = fs.exists(self._file(names.CLEAN_SHUTDOWN))
        self._checkpoints = CheckpointFolder(fs, self.path)

    @property
    def checkpoints(self) -> CheckpointFolder:
        assert self._checkpoints is not None, "the log dir is not open"
        return self._checkpoints

    def read_checkpoint(self, name: str) -> tuple[Offsets, str | None]:
        """A checkpoint's offsets; empty, with the reason, when it cannot be believed."""
        try:
            return self.checkpoints.read(name), None
        except CorruptCheckpoint as error:
            return {}, str(error)

    def forget_clean_shutdown(self) -> None:
        """Make durable that the folder is in use; before the first append."""
        if self.was_clean:
            self.fs.remove(self._file(names.CLEAN_SHUTDOWN))
        self.fs.sync_dir(self.path)

    def mark_clean_shutdown(self) -> None:
        """Make durable that all logs in the folder were saved."""
        self.fs.write_atomic(self._file(names.CLEAN_SHUTDOWN), _CLEAN_SHUTDOWN_CONTENT)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _make(self) -> None:
        """Make the folder and what is missing above it, durably."""
        parent = os.path.dirname(self.path)
        parents = [parent]
        while not self.fs.exists(parent):
            parent = os.path.dirname(parent)
            parents.append(parent)
        if not self.fs.exists(self.path):
            self.fs.mkdir(self.path)
            for parent in parents:
                self.fs.sync_dir(parent)

    def _check_format(self) -> None:
        path = self._file(names.FORMAT)
        if not self.fs.exists(path):
            self.fs.write_atomic(path, b"%d\n" % FORMAT_VERSION)
            return
        content = self.fs.read(path)
        try:
            version = int(content)
        except ValueError:
            raise LogDirError(f"{path} holds no format version; restore it from a backup") from None
        if version != FORMAT_VERSION:
            raise LogDirError(
                f"{self.path} has format {version}, this version reads {FORMAT_VERSION}; "
                "use the version of headrace that wrote it"
            )

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)
