"""Syncs of a log: begun on the loop thread, run on any other, completed on the loop thread."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from headrace.storage import names, snapshots
from headrace.storage.checkpoints import format_epochs
from headrace.storage.files import File

if TYPE_CHECKING:
    from headrace.storage.log import Log
    from headrace.storage.segment import Segment


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

    __slots__ = ("_bases", "_contents", "_saving")

    def __init__(
        self, log: Log, files: list[File], folders: list[str], contents: dict[str, bytes]
    ) -> None:
        super().__init__(log, files, folders)
        self._bases = {segment.base_offset for segment in log.segments}
        self._contents = contents
        self._saving = threading.Lock()

    def run(self) -> None:
        """Save, sync, and drop the snapshots that this one replaces; as in a flush on failure."""
        super().run()
        if self.error is None:
            with self._saving:
                if self._contents:
                    self._remove_older_snapshots()

    def cancel(self, end_offset: int) -> None:
        """Save nothing from now on, and speak only of what is below end_offset.

        Waits for a save under way: what it wrote is there when this returns, to be removed.
        """
        with self._saving:
            self._contents = {}
        self.end_offset = min(self.end_offset, end_offset)

    def _save(self) -> None:
        fs = self.log.fs
        with self._saving:
            for path, data in self._contents.items():
                temporary = path + names.TEMPORARY
                fs.write(temporary, data)
                fs.sync_path(temporary)
                fs.rename(temporary, path)

    def _remove_older_snapshots(self) -> None:
        """Keep the snapshots that begin a segment, and those that are newer than this one."""
        try:
            present = self.log.fs.list(self.log.dir)
        except FileNotFoundError:
            return  # the log was deleted meanwhile
        old = {o for o in snapshots.offsets(present) if o < self.end_offset} - self._bases
        snapshots.remove(self.log.fs, self.log.dir, present, old)


class Unsynced:
    """What of a log is written but not durable, and the syncs of it that are under way."""

    __slots__ = ("_checkpoint", "_files", "_flush", "_folders", "_sealed", "_taken")

    def __init__(self) -> None:
        self._files: list[File] = []  # beside the active segment's
        self._folders: list[str] = []
        # What a checkpoint under way syncs; a flush must not rely on that before it is done.
        self._taken: tuple[list[File], list[str]] = ([], [])
        self._sealed: list[Segment] = []  # with indexes that no checkpoint has saved
        self._flush: Flush | None = None
        self._checkpoint: Checkpoint | None = None

    def add(self, file: File | None, *folders: str) -> None:
        """Something beside the active segment is new: synced before batches are acknowledged."""
        if file is not None:
            self._files.append(file)
        self._folders += [folder for folder in folders if folder not in self._folders]

    def add_sealed(self, segment: Segment) -> None:
        """A segment was sealed, and a new one has begun in its folder."""
        self._sealed.append(segment)
        self.add(segment.file, segment.folder)

    def begin_flush(self, log: Log) -> Flush | None:
        if self._flush is not None or (
            log.synced_offset >= log.end_offset and not self._folders and not self._files
        ):
            return None
        files, folders = self._taken
        self._flush = Flush(
            log, [*files, *self._files, log.active.file], [*folders, *self._folders]
        )
        self._files = []
        self._folders = []
        return self._flush

    def complete_flush(self, log: Log, flush: Flush) -> None:
        if flush is self._flush:
            self._flush = None
        if flush.error is not None:
            log.offline = log.offline or flush.error
        elif flush.end_offset > log.synced_offset:
            log.synced_offset = flush.end_offset

    def begin_checkpoint(self, log: Log) -> Checkpoint | None:
        if self._checkpoint is not None or not (
            log.recovery_point < log.end_offset
            or log.epochs.changed
            or self._sealed
            or self._files
            or self._folders
        ):
            return None
        log.active.seal()
        contents = snapshots.contents(log.dir, log.end_offset, log.producers)
        if log.epochs.changed:
            log.epochs.changed = False
            contents[os.path.join(log.dir, names.EPOCHS)] = format_epochs(log.epochs.rows())
        # A flush under way took its files with it; until it has succeeded they count as unsynced.
        files = [*self._files, *(self._flush.files if self._flush else ()), log.active.file]
        folders = [*self._folders, *(self._flush.folders if self._flush else ()), log.dir]
        self._taken = (self._files, self._folders)
        self._files = []
        self._folders = []
        for segment in (*self._sealed, log.active):
            files += segment.unsynced_index_files()
        self._sealed = []
        self._checkpoint = Checkpoint(log, files, folders, contents)
        return self._checkpoint

    def complete_checkpoint(self, log: Log, checkpoint: Checkpoint) -> None:
        self._checkpoint = None
        self._taken = ([], [])
        self.complete_flush(log, checkpoint)
        if checkpoint.error is None:
            log.recovery_point = max(log.recovery_point, checkpoint.end_offset)

    def cap(self, end_offset: int) -> None:
        """A truncation comes: a sync under way speaks only of what it leaves alone."""
        if self._flush is not None:
            self._flush.end_offset = min(self._flush.end_offset, end_offset)
        if self._checkpoint is not None:
            self._checkpoint.cancel(end_offset)
