"""The checkpoint files of all log dirs: which offsets they have, and when they may be written."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.storage.dirs import checkpoints
from headrace.storage.dirs.checkpoints import Offsets
from headrace.storage.dirs.log_dir import LogDir
from headrace.storage.log.flush import Checkpoint
from headrace.storage.log.log import Log

if TYPE_CHECKING:
    from headrace.storage.manager import LogManager


class CheckpointFiles:
    """Writes the checkpoint files of a manager's log dirs; usable from any thread."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._lock = threading.Lock()
        #: How many truncations there were; each outdates a round of saving that has begun.
        self.truncations = 0

    def write(self, log_dir: LogDir, name: str, offsets: Offsets) -> None:
        """Replace one checkpoint file of a log dir. Raises OSError."""
        with self._lock:
            log_dir.checkpoints.write({name: offsets})

    def save_dir(self, log_dir: LogDir) -> None:
        """Replace the checkpoint files of a log dir by the present state. Raises OSError."""
        with self._lock:
            if log_dir.offline_error is None:
                log_dir.checkpoints.write(self._offsets({})[log_dir])

    def save_truncation(self, log: Log) -> None:
        """Make a lowered recovery point durable before the log is cut. Raises OSError."""
        with self._lock:
            self.truncations += 1
        self.save_dir(self._manager.dir_of(log))

    def save_round(
        self, done: Iterable[Checkpoint], truncations: int
    ) -> dict[LogDir, OSError] | None:
        """Write the recovery points of a round; the log dirs that failed.

        Writes nothing, and returns None, if a log was truncated since the round began: its
        recovery point may be above the cut.
        """
        unsaved: dict[LogDir, OSError] = {}
        with self._lock:
            if truncations != self.truncations:
                return None
            points = {each.log: each.end_offset for each in done if each.succeeded}
            for log_dir, offsets in self._offsets(points).items():
                try:
                    log_dir.checkpoints.write(offsets)
                except OSError as error:
                    unsaved[log_dir] = error
        return unsaved

    def forget(self, places: Collection[tuple[str, int]], log_dir: LogDir) -> None:
        """Remove the rows of deleted logs with these names, durably. Raises OSError."""
        with self._lock:
            if any(log_dir.checkpoints.knows(place) for place in places):
                logs = self._manager.log_dirs()
                log_dir.checkpoints.keep({(log.topic, log.partition) for log in logs})

    def _offsets(self, points: Mapping[Log, int]) -> dict[LogDir, dict[str, Offsets]]:
        """The present content of the files, with recovery points that are not in the logs yet."""
        manager = self._manager
        files: dict[LogDir, dict[str, Offsets]] = {
            log_dir: {
                checkpoints.RECOVERY_POINT: {},
                checkpoints.LOG_START: {},
                checkpoints.HIGH_WATERMARK: {},
            }
            for log_dir in manager.dirs
            if log_dir.offline_error is None
        }
        with manager.moves.placing:
            placed = manager.moves.places()
            for log, log_dir in manager.log_dirs().items():
                placed.append((log, log_dir, points.get(log, log.recovery_point)))
        # Moving logs come first, with their other place: a crash decides which of the two counts.
        for log, log_dir, point in placed:
            if log_dir in files:
                rows, key = files[log_dir], (log.topic, log.partition)
                rows[checkpoints.RECOVERY_POINT][key] = point
                if log.start_offset > log.segments[0].base_offset:
                    rows[checkpoints.LOG_START][key] = log.start_offset
                rows[checkpoints.HIGH_WATERMARK][key] = log.high_watermark
        return files
