"""The move of one log to another log dir while it is written and read.

1. Its files are copied to `TOPIC-PARTITION.UNIQUE-future` in the other log dir, step by step on
   another thread; each step is synced.
2. When little is missing, the log is rolled. Everything below is copied, with the producers and
   epochs at that offset, and synced: this is the copy's recovery point, in its checkpoint file.
   An empty note (`move_recovery`) is synced too.
3. On the logs' thread, the last bytes are copied, the present boot of the machine is added to the
   note, the folder gets its final name, and the log continues in it. None of this waits for the
   disk.
4. The next flush syncs the new files and then replaces the note by one that says that the copy is
   complete. Until then, nothing that was appended since is reported as durable.
5. The old folder is renamed to be deleted and, when that is durable, the note is removed.

So until 4 a power loss finds everything acknowledged in the old folder, and after 4 in the new one.
From 3 to 5 both have the partition's name, and the note says which is the log: the new one if it is
complete, or if the machine has not been restarted and so everything written is there. A folder
without its final name is never the log.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.storage import names
from headrace.storage.dirs.checkpoints import format_epochs
from headrace.storage.dirs.move_recovery import MoveNote, add_boot_id, read_note
from headrace.storage.dirs.segment_copy import SegmentCopy, SourceChanged, append_upto
from headrace.storage.files import FileSystem
from headrace.storage.log.segment import Segment
from headrace.storage.log.snapshots import Snapshot
from headrace.storage.log.swap import PLAN

if TYPE_CHECKING:
    from headrace.storage.dirs.log_dir import LogDir
    from headrace.storage.log.log import Log

TAIL_BYTES_MAX = 1 << 20
"""How much may be left to copy on the logs' thread: less than a millisecond."""

# What a copy must not have: incomplete files, and files about the old folder only.
_LEFT_BEHIND = (names.TEMPORARY, names.DELETED, names.CLEANED, names.SWAP, names.ARRIVED, PLAN)

Step = Callable[[], None]

_log = logging.getLogger(__name__)


class LogMove:
    """One move; all methods are called on the logs' thread, the steps on any other."""

    def __init__(
        self,
        log: Log,
        source: LogDir,
        target: LogDir,
        unique: str,
        save_checkpoints: Callable[[LogDir], None],
        on_arrival: Callable[[LogMove], None],
    ) -> None:
        self.log = log
        self.source = source
        self.target = target
        self.old_folder = log.dir
        self.old_segments: list[Segment] = []
        self.old_recovery_point = log.recovery_point
        name = names.future_folder_name(log.topic, log.partition, unique)
        self.folder = os.path.join(target.path, name)
        #: Set by the caller once the folder exists durably.
        self.has_folder = False
        self.is_cancelled = False
        self.has_swapped = False
        #: Whether the new folder is the log for good.
        self.has_arrived = False
        self._fs: FileSystem = log.fs
        self._save_checkpoints = save_checkpoints
        self._on_arrival = on_arrival
        self._truncations = log.truncations
        self._number = 1
        self._copies: dict[Segment, SegmentCopy] = {}
        self._point: _Point | None = None

    @property
    def recovery_point(self) -> int | None:
        """Below this, the copy need not be checked after a crash; None if not known yet."""
        return self._point.offset if self._point is not None else None

    @property
    def copied_bytes(self) -> int:
        return sum(copy.size for copy in list(self._copies.values()))

    @property
    def copied_offset(self) -> int:
        """Everything below this offset is copied."""
        for segment in self.log.segments:
            copy = self._copies.get(segment)
            if copy is None or copy.size < segment.size:
                return segment.base_offset
        return self.log.end_offset

    def make_folder(self) -> None:
        """Create the folder, which also records that the move was requested; on any thread.

        Durable once the log dir is synced. Raises OSError.
        """
        self._fs.mkdir(self.folder)

    def next_step(self, now_ms: int) -> Step | None:
        """What to copy next; None when the log can be swapped.

        Raises OSError, as the step does: then the move has failed.
        """
        log = self.log
        if log.truncations != self._truncations:
            raise SourceChanged(f"{log.dir} was truncated while it was copied")
        while True:
            stale = self._copies.keys() - set(log.segments)
            if stale:
                copies = [self._copies.pop(segment) for segment in stale]
                return lambda: _remove(copies)
            *sealed, active = log.segments
            for segment in sealed:
                if self._copy_of(segment).segment is None:
                    return self._copy_of(segment).copy_sealed
            if active.size - self._copy_of(active).size > TAIL_BYTES_MAX:
                return self._copy_of(active).copy_some
            if self._point is None or not self._point.covers(sealed):
                log.roll(now_ms)  # its content, if any, is in a sealed segment then
                self._point = _Point(log)
                self._copy_of(log.active)
            elif not self._point.is_saved:
                return self._save
            else:
                return None

    def _copy_of(self, segment: Segment) -> SegmentCopy:
        copy = self._copies.get(segment)
        if copy is None:
            copy = self._copies[segment] = SegmentCopy(self._fs, segment, self.folder)
        return copy

    def _save(self) -> None:
        """Write the files that belong to the recovery point, and the recovery point itself."""
        fs, point = self._fs, self._point
        assert point is not None
        for name in fs.list(self.old_folder):
            if not name.endswith((*names.SEGMENT_SUFFIXES, *_LEFT_BEHIND)):
                self._copy_file(name)
        earlier = read_note(fs, self.old_folder)  # kept while a log dir is missing
        self._number = earlier.number + 1 if earlier is not None else 1
        self._copies[point.active].open()  # here, not on the logs' thread
        # There must be a note, even an empty one, before the folder gets its final name.
        contents = point.contents(self.folder)
        contents[os.path.join(self.folder, names.ARRIVED)] = MoveNote(self._number, "").encode()
        for path, data in contents.items():
            fs.write(path, data)
            fs.sync_path(path)
        fs.sync_dir(self.folder)
        self._save_checkpoints(self.target)
        point.is_saved = True

    def _copy_file(self, name: str) -> None:
        try:
            source = self._fs.open(os.path.join(self.old_folder, name))
        except FileNotFoundError:
            return  # a snapshot that a newer one has replaced
        copy = self._fs.open(os.path.join(self.folder, name), create=True)
        try:
            copy.truncate(0)
            append_upto(copy, source, source.size)
            copy.trim()
            copy.sync()
        finally:
            copy.close()
            source.close()

    @property
    def can_swap(self) -> bool:
        """Whether no compaction or checkpoint uses the log's files now."""
        return self.log.swap is None and not self.log.unsynced.is_saving

    def swap(self) -> None:
        """Let the log continue in the new folder, right after `next_step` returned None.

        Raises OSError; then the log is unchanged. Durable with the next flush.
        """
        fs, log, point = self._fs, self.log, self._point
        assert point is not None, "nothing is copied yet"
        segments = [
            self._copies[old].segment or self._copies[old].finish_active() for old in log.segments
        ]
        final = os.path.join(self.target.path, names.folder_name(log.topic, log.partition))
        add_boot_id(fs, self.folder)
        fs.rename(self.folder, final)
        self.folder = final
        self.has_swapped = True
        self.old_segments = log.segments
        self.old_recovery_point = log.recovery_point
        for segment in segments:
            segment.moved(final)
        log.continue_in(final, segments, point.offset, self)

    def close(self) -> None:
        """Close the copies of a move that failed; no step is running."""
        for copy in self._copies.values():
            copy.close()

    def confirm(self) -> None:
        """Mark the new folder as complete, durably; its files are synced by now. Raises OSError."""
        note = MoveNote(self._number)
        self._fs.write_atomic(os.path.join(self.folder, names.ARRIVED), note.encode())

    def withdraw(self) -> None:
        """Make the old folder the log after a restart: a failed sync lost data in the new one."""
        try:
            path = os.path.join(self.folder, names.ARRIVED)
            self._fs.write(path, MoveNote(self._number, "").encode())
        except OSError as error:
            _log.error(
                "%s may be mistaken for the log though its sync failed: %s", self.folder, error
            )

    def complete(self) -> None:
        """Give up the old folder."""
        self.has_arrived = True
        self._on_arrival(self)


class _Point:
    """The log at the roll for the move: its producers, epochs and sealed segments."""

    def __init__(self, log: Log) -> None:
        self.offset = log.end_offset
        self.is_saved = False
        self.active = log.active
        self._sealed = frozenset(log.segments[:-1])
        self._snapshot = Snapshot(log.end_offset, log.producers)
        self._epochs = log.epochs.rows()

    def covers(self, sealed: list[Segment]) -> bool:
        """Whether compaction has not replaced a segment since."""
        return all(each.base_offset >= self.offset or each in self._sealed for each in sealed)

    def contents(self, folder: str) -> dict[str, bytes]:
        files = self._snapshot.contents(folder)
        return files | {os.path.join(folder, names.EPOCHS): format_epochs(self._epochs)}


def _remove(copies: list[SegmentCopy]) -> None:
    """Remove the copies of segments that are no longer in the log."""
    for copy in copies:
        copy.remove()
