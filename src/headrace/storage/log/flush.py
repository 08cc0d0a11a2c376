"""Flushes and checkpoints of a log: begun on the loop thread, run on another, completed there."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Protocol

from headrace.storage import names
from headrace.storage.dirs.checkpoints import format_epochs
from headrace.storage.files import File, is_passing
from headrace.storage.log import snapshots
from headrace.storage.log.snapshots import Snapshot

if TYPE_CHECKING:
    from headrace.storage.log.log import Log
    from headrace.storage.log.segment import Segment


class Arrival(Protocol):
    """A log's new folder after a move, valid once the first flush there has confirmed it."""

    def confirm(self) -> None:
        """Make durable that this folder is the log; on the flush's thread. Raises OSError."""

    def withdraw(self) -> None:
        """Declare the folder invalid: a sync of it failed."""

    def complete(self) -> None:
        """Give up the old folder; on the logs' thread."""


class Flush:
    """The files to sync so that everything below `end_offset` is durable.

    These are the active file, all others that no sync has covered yet (rolls leave several) and,
    if one of them is new, the folder. A truncation meanwhile lowers `end_offset`: what is appended
    at those offsets afterwards was not synced.
    """

    __slots__ = (
        "_active",
        "_cancelled",
        "_saving",
        "_snapshot",
        "arrival",
        "end_offset",
        "error",
        "files",
        "folder",
        "folders",
        "log",
        "postponed",
    )

    def __init__(
        self,
        log: Log,
        files: dict[File, int],
        folders: dict[str, int],
        snapshot: Snapshot | None,
        arrival: Arrival | None = None,
    ) -> None:
        self.log = log
        self.folder = log.dir
        self.arrival = arrival
        # Each with the number under which Unsynced lists it.
        self.files = files
        self.folders = folders
        self.end_offset = log.end_offset
        #: The disk failed: written data may be lost.
        self.error: OSError | None = None
        #: A passing error: nothing is lost, and the next flush does everything again.
        self.postponed: OSError | None = None
        self._active = log.active.file
        self._snapshot = snapshot
        self._cancelled = False
        self._saving = threading.Lock()

    @property
    def succeeded(self) -> bool:
        return self.error is None and self.postponed is None

    def run(self) -> None:
        """Sync, and keep the error if it fails, unless the log was deleted meanwhile."""
        try:
            self._save()
            for file in (*self.files, self._active):
                file.sync()
            for folder in self.folders:
                self.log.fs.sync_dir(folder)
            if self.arrival is not None:
                self.arrival.confirm()
        except OSError as error:
            if self.log.deleted:
                return
            if is_passing(error):
                self.postponed = error
            else:
                self.error = error
                if self.arrival is not None:
                    self.arrival.withdraw()

    def cancel(self, end_offset: int) -> None:
        """Save nothing from now on, and cover only what is below end_offset.

        Waits for a running save: what it wrote exists when this returns, and can be removed.
        """
        with self._saving:
            self._cancelled = True
        self.end_offset = min(self.end_offset, end_offset)

    def _save(self) -> None:
        """Write the snapshot of a roll; it only spares recovery work, so it may fail.

        An existing one is from a checkpoint, and durable: it stays.
        """
        fs = self.log.fs
        with self._saving, contextlib.suppress(OSError):
            if self._snapshot is not None and not self._cancelled:
                for path, data in self._snapshot.contents(self.log.dir).items():
                    if not fs.exists(path):
                        fs.write(path, data)


class Checkpoint(Flush):
    """A flush that also saves what recovery would otherwise rebuild up to `end_offset`.

    Indexes, epochs and a producer snapshot are durable when it has run; only then may the recovery
    point move to `end_offset`.
    """

    __slots__ = ("_bases", "_epochs")

    def __init__(self, log: Log, files: dict[File, int], folders: dict[str, int]) -> None:
        super().__init__(log, files, folders, Snapshot(log.end_offset, log.producers))
        self._bases = {segment.base_offset for segment in log.segments}
        self._epochs = log.epochs.rows() if log.epochs.changed else None

    def remove_older(self) -> None:
        """Remove the snapshots that this one replaces, once the recovery point is durable.

        Until then a crash falls back to the previous one. May be called on any thread.
        """
        with self._saving, contextlib.suppress(OSError):
            if self.succeeded and not self._cancelled:
                self._remove_older_snapshots()

    def _save(self) -> None:
        fs = self.log.fs
        with self._saving:
            for path, data in [] if self._cancelled else self._contents():
                temporary = path + names.TEMPORARY
                fs.write(temporary, data)
                fs.sync_path(temporary)
                fs.rename(temporary, path)

    def _contents(self) -> list[tuple[str, bytes]]:
        assert self._snapshot is not None
        contents = self._snapshot.contents(self.log.dir)
        if self._epochs is not None:
            contents[os.path.join(self.log.dir, names.EPOCHS)] = format_epochs(self._epochs)
        return list(contents.items())

    def _remove_older_snapshots(self) -> None:
        """Keep the snapshots at the beginning of a segment, and those newer than this one."""
        present = self.log.fs.list(self.log.dir)
        old = {o for o in snapshots.offsets(present) if o < self.end_offset} - self._bases
        snapshots.remove(self.log.fs, self.log.dir, present, old)


class Unsynced:
    """The files of a log that are written but not durable, and the running syncs of them.

    Files and folders are listed with a number until a sync has covered them. One that is listed
    again during a sync has another number by then, and stays.
    """

    __slots__ = (
        "_arrival",
        "_checkpoint",
        "_files",
        "_flush",
        "_folders",
        "_index_files",
        "_listed",
        "_rolled",
        "_sealed",
    )

    def __init__(self) -> None:
        self._files: dict[File, int] = {}  # beside the active segment's
        self._folders: dict[str, int] = {}
        self._index_files: dict[File, int] = {}  # for checkpoints only
        self._listed = 0
        self._sealed: list[Segment] = []  # whose indexes no checkpoint has listed
        self._rolled: Snapshot | None = None  # of the last roll, to be written by a flush
        self._flush: Flush | None = None
        self._checkpoint: Checkpoint | None = None
        self._arrival: Arrival | None = None  # in a new folder, to be confirmed

    @property
    def is_saving(self) -> bool:
        """Whether a checkpoint is running."""
        return self._checkpoint is not None

    def add(self, file: File | None, *folders: str) -> None:
        """Have a new file or folder synced before more batches are acknowledged."""
        self._listed += 1
        if file is not None:
            self._files[file] = self._listed
        for folder in folders:
            self._folders[folder] = self._listed

    def add_sealed(self, segment: Segment, snapshot: Snapshot) -> None:
        """A segment was sealed, and a new one was created in its folder."""
        self._sealed.append(segment)
        self._rolled = snapshot
        self.add(segment.file, segment.folder)

    def forget(self, segment: Segment) -> None:
        """A segment has left the log: its files need no sync."""
        self._files.pop(segment.file, None)
        self._sealed = [each for each in self._sealed if each is not segment]

    def begin_flush(self, log: Log) -> Flush | None:
        if self._flush is not None or (
            log.synced_offset >= log.end_offset
            and not self._folders
            and not self._files
            and self._arrival is None
        ):
            return None
        rolled = None
        if self._checkpoint is None:  # else both might write the same snapshot
            rolled, self._rolled = self._rolled, None
        files, folders = self._files.copy(), self._folders.copy()
        self._flush = Flush(log, files, folders, rolled, self._arrival)
        return self._flush

    def complete_flush(self, log: Log, flush: Flush) -> None:
        if flush is self._flush:
            self._flush = None
        if flush.error is not None and flush.folder != log.dir:
            # The disk that the log has left has failed; the next flush covers the new one.
            flush.postponed, flush.error = flush.error, None
        if flush.error is not None:
            log.offline_error = log.offline_error or flush.error
        elif flush.succeeded:
            self._covered(flush)
            log.synced_offset = max(log.synced_offset, flush.end_offset)
            if flush.arrival is not None:
                self._arrival = None
                flush.arrival.complete()

    def begin_checkpoint(self, log: Log) -> Checkpoint | None:
        if self._arrival is not None:
            return None  # only the flush that confirms the move may make something durable
        if self._checkpoint is not None or not (
            log.recovery_point < log.end_offset
            or log.epochs.changed
            or self._sealed
            or self._index_files
            or self._files
            or self._folders
        ):
            return None
        if log.active.size:
            log.active.seal()  # an empty segment needs no index files
        if self._flush is not None:
            # The checkpoint's snapshot is the better one.
            self._flush.cancel(self._flush.end_offset)
        self._listed += 1
        for segment in (*self._sealed, log.active):
            for file in segment.unsynced_index_files():
                self._index_files[file] = self._listed
        self._sealed = []
        self._checkpoint = Checkpoint(
            log, self._files | self._index_files, {log.dir: 0} | self._folders
        )
        log.epochs.changed = False
        return self._checkpoint

    def complete_checkpoint(self, log: Log, checkpoint: Checkpoint) -> None:
        self._checkpoint = None
        self.complete_flush(log, checkpoint)
        if checkpoint.succeeded:
            log.recovery_point = max(log.recovery_point, checkpoint.end_offset)
        else:
            log.epochs.changed = True

    def cap(self, end_offset: int) -> None:
        """A truncation follows: running syncs cover only what stays."""
        self._rolled = None
        for flush in (self._flush, self._checkpoint):
            if flush is not None:
                flush.cancel(end_offset)

    def moved(self, arrival: Arrival, *folders: str) -> None:
        """The log continues in a copy of it, whose sealed segments are synced.

        A flush of the old files may be running, and what it makes durable there is valid. The next
        one is of the new files and confirms the move.
        """
        assert self._checkpoint is None, "a checkpoint would cover both folders"
        if self._flush is not None:
            self._flush.cancel(self._flush.end_offset)  # or its snapshot would go to the new folder
        self._files, self._folders, self._index_files = {}, {}, {}
        self._sealed, self._rolled = [], None
        self._arrival = arrival
        self.add(None, *folders)

    def _covered(self, flush: Flush) -> None:
        for file, number in flush.files.items():
            for listed in (self._files, self._index_files):
                if listed.get(file) == number:
                    del listed[file]
        for folder, number in flush.folders.items():
            if self._folders.get(folder) == number:
                del self._folders[folder]
