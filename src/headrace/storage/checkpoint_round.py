"""One round of saving logs: their data first, then the recovery points that rely on it."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from headrace.storage.dirs.log_dir import LogDir
from headrace.storage.log.flush import Checkpoint
from headrace.storage.log.log import Log

if TYPE_CHECKING:
    from headrace.storage.manager import LogManager


class CheckpointRound:
    """One round: begun a few logs at a time on the logs' thread, run on another thread.

    Beginning takes file operations, so it is done in small steps. All logs are saved and completed
    together.
    """

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._truncations = manager.checkpoint_files.truncations
        self._begun: list[Checkpoint] = []
        self._done: list[Checkpoint] = []
        #: Log dirs whose checkpoint files could not be written, each with the reason.
        self.unsaved: dict[LogDir, OSError] = {}

    def __len__(self) -> int:
        """How many logs had something new."""
        return len(self._begun) + len(self._done)

    def begin(self, logs: Iterable[Log]) -> bool:
        """Begin the checkpoints of some logs; returns whether there is something to run."""
        manager = self._manager
        for log in logs:
            if log.offline_error is not None or log.deleted:
                continue
            try:
                if (checkpoint := log.begin_checkpoint()) is not None:
                    self._begun.append(checkpoint)
            except OSError as error:
                manager.on_disk_error(manager.dir_of(log), error)
        return bool(self._begun)

    def run(self, threads: int = 1) -> None:
        """Save the logs that were begun; may be called on any thread."""
        begun, self._begun = self._begun, []
        if threads > 1 and len(begun) > 1:
            with ThreadPoolExecutor(threads, thread_name_prefix="headrace-close") as pool:
                list(pool.map(Checkpoint.run, begun))
        else:
            for checkpoint in begun:
                checkpoint.run()
        self._done += begun

    def save(self) -> None:
        """Write the recovery points of the logs that were run; may be called on any thread."""
        manager = self._manager
        unsaved = manager.checkpoint_files.save_round(self._done, self._truncations)
        if unsaved is None:
            return
        self.unsaved = unsaved
        dir_of = manager.log_dirs()
        for checkpoint in self._done:
            if dir_of.get(checkpoint.log) not in unsaved:
                checkpoint.remove_older()

    def complete(self) -> None:
        """Move the recovery points in memory; on the logs' thread."""
        manager = self._manager
        for checkpoint in self._done:
            log = checkpoint.log
            if not log.deleted:
                unsaved = self.unsaved.get(manager.dir_of(log))
                checkpoint.postponed = checkpoint.postponed or unsaved
            log.complete_checkpoint(checkpoint)
            error = checkpoint.error or checkpoint.postponed
            if error is not None and not log.deleted:
                manager.on_disk_error(manager.dir_of(log), error)
        for log_dir, error in self.unsaved.items():
            manager.on_disk_error(log_dir, error)
