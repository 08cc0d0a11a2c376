"""Moves a manager's logs between its log dirs: begins, cancels and completes moves."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.protocol.partitions import TopicPartition
from headrace.storage import names
from headrace.storage.dirs.log_dir import LogDir
from headrace.storage.dirs.log_move import LogMove
from headrace.storage.dirs.move_recovery import remove_note, settle

if TYPE_CHECKING:
    from headrace.storage.log.log import Log
    from headrace.storage.manager import LogManager

_log = logging.getLogger(__name__)


class LogMover:
    """Has at most one move for each log; all methods but `finish` are for the logs' thread."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._by_log: dict[Log, LogMove] = {}
        #: Held while a log changes its log dir, and while log dirs are read with recovery points.
        self.placing = threading.Lock()
        #: Moves that a crash or a stop interrupted, to be started again.
        self.wanted: list[tuple[TopicPartition, LogDir]] = []

    def __iter__(self) -> Iterator[LogMove]:
        return iter(self._by_log.copy().values())

    def get(self, log: Log) -> LogMove | None:
        return self._by_log.get(log)

    def settle(self) -> list[str]:
        """Sort out what a crash left, before logs are opened; returns the folders to remove."""
        manager = self._manager
        settlement = settle(manager.fs, manager.dirs, manager.all_here, manager.unique)
        self.wanted = settlement.wanted
        return settlement.leftovers

    def places(self) -> list[tuple[Log, LogDir, int]]:
        """Both log dirs of each moving log, with the recovery point there; hold `placing`."""
        places = []
        for move in self:
            places.append((move.log, move.source, move.old_recovery_point))
            if (point := move.recovery_point) is not None:
                places.append((move.log, move.target, point))
        return places

    def begin(self, log: Log, target: LogDir) -> LogMove:
        """Begin to move a log; its folder is created later."""
        manager = self._manager
        move = LogMove(
            log,
            manager.dir_of(log),
            target,
            manager.unique(),
            manager.checkpoint_files.save_dir,
            self._arrived,
        )
        self._by_log[log] = move
        return move

    def cancel(self, move: LogMove) -> None:
        """Cancel a move, unless the log has already moved; the copy is removed later."""
        if not move.has_swapped and self._by_log.get(move.log) is move:
            del self._by_log[move.log]
            move.is_cancelled = True
            self.remove_copy(move)

    def remove_copy(self, move: LogMove) -> None:
        """Remove the folder of a cancelled move, which may have been created since."""
        self._discard(move, move.target, move.folder)

    def swap(self, move: LogMove) -> None:
        """Let a log continue in its new log dir; on OSError it has not moved."""
        with self.placing:
            move.swap()
            self._manager.on_moved(move.log, move.target)

    def _arrived(self, move: LogMove) -> None:
        """Give up the old folder; durable when `finish` has run."""
        if not move.log.deleted:  # or it is gone by now
            self._discard(move, move.source, move.old_folder)

    def finish(self, move: LogMove) -> None:
        """Forget durably that a log has moved, once its old folder cannot be mistaken for it.

        May be called on any thread. Raises OSError.
        """
        manager = self._manager
        manager.sync_deletions()
        if manager.all_here and not manager.fs.exists(move.old_folder):
            remove_note(manager.fs, move.folder)

    def forget(self, move: LogMove) -> None:
        """Remove a finished move from the list."""
        if self._by_log.get(move.log) is move:
            del self._by_log[move.log]

    def log_deleted(self, log: Log) -> None:
        """Remove the second folder of a deleted log."""
        move = self._by_log.pop(log, None)
        if move is not None:
            move.is_cancelled = True
            if not move.has_swapped:
                self._discard(move, move.target, move.folder)
            elif not move.has_arrived:
                self._discard(move, move.source, move.old_folder)

    def _discard(self, move: LogMove, log_dir: LogDir, folder: str) -> None:
        manager, log = self._manager, move.log
        name = names.deleted_folder_name(log.topic, log.partition, manager.unique())
        target = os.path.join(log_dir.path, name)
        try:
            if not manager.fs.exists(folder):
                return  # it was not created yet
            manager.fs.rename(folder, target)
        except OSError as error:
            # The next start finds it, and recognises that it is not the log.
            _log.error("%s is left over: %s", folder, error)
            return
        manager.on_renamed(log_dir, target, log, move.old_segments)
