"""Syncs of a log: begun on the loop thread, run on any other, completed on the loop thread."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.storage import names
from headrace.storage.checkpoints import format_epochs
from headrace.storage.files import File

if TYPE_CHECKING:
    from headrace.storage.log import Log


class Flush:
    """The files to sync so that everything below `end_offset` is durable.

    Holds all files that were written since the last flush (rolls leave several) and, when one of
    them is new, the folder. A truncation meanwhile lowers `end_offset`: what is appended at those
    offsets afterwards is another thing than what was synced.
    """

    __slots__ = ("end_offset", "error", "files", "folders", "log")

    def __init__(self, log: Log, files: list[File], folders: list[str]) -> None:
        self.log = log
        self.files = files
        self.folders = folders
        self.end_offset = log.end_offset
        self.error: OSError | None = None

    def run(self) -> None:
        """Sync; a failure is kept in `error`, unless the log was deleted meanwhile."""
        try:
            self._save()
            for file in self.files:
                file.sync()
            for folder in self.folders:
                self.log.fs.sync_dir(folder)
        except OSError as error:
            if not self.log.deleted:
                self.error = error

    def _save(self) -> None:
        """What is written before the syncs; nothing in a plain flush."""


class Checkpoint(Flush):
    """A flush that also saves what recovery would otherwise have to rebuild up to `end_offset`.

    Indexes, epochs and a producer snapshot are durable when it has run; only then may the recovery
    point move to `end_offset`.
    """

    __slots__ = ("_contents",)

    def __init__(
        self, log: Log, files: list[File], folders: list[str], contents: dict[str, bytes]
    ) -> None:
        super().__init__(log, files, folders)
        self._contents = contents

    def _save(self) -> None:
        fs = self.log.fs
        for path, data in self._contents.items():
            temporary = path + names.TEMPORARY
            fs.write(temporary, data)
            fs.sync_path(temporary)
            fs.rename(temporary, path)


def epoch_content(log: Log) -> dict[str, bytes]:
    """Path and content of the epoch cache if it has changed; asked once per change."""
    if not log.epochs.changed:
        return {}
    log.epochs.changed = False
    return {os.path.join(log.dir, names.EPOCHS): format_epochs(log.epochs.rows())}
