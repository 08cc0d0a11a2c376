"""All logs of a broker: loaded at start, created, deleted, trimmed, saved at stop."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from headrace.storage import names
from headrace.storage.checkpoint_files import CheckpointFiles
from headrace.storage.checkpoint_round import CheckpointRound
from headrace.storage.dirs import checkpoints
from headrace.storage.dirs.checkpoints import format_partition_metadata
from headrace.storage.dirs.inventory import DirInventory
from headrace.storage.dirs.log_dir import LogDir, LogDirError
from headrace.storage.dirs.log_mover import LogMover
from headrace.storage.files import FileSystem, is_passing
from headrace.storage.log import retention
from headrace.storage.log.config import LogConfig
from headrace.storage.log.deleted import DeletedFolder, Purge
from headrace.storage.log.epochs import EpochCache
from headrace.storage.log.log import Log
from headrace.storage.log.producers import Producers
from headrace.storage.log.segment import Segment
from headrace.storage.recovery.recovery import Opening, open_log

_log = logging.getLogger(__name__)

CLOSING_THREADS = 8
PRODUCER_EXPIRATION_MS = 24 * 3_600_000


class LogManager:
    """The logs of some log dirs; used by one thread, except for the `run` of what methods return.

    A log dir whose disk fails goes offline with its logs; the others go on.
    """

    def __init__(
        self,
        fs: FileSystem,
        dirs: Sequence[str],
        default_config: LogConfig,
        now: Callable[[], int],
        *,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        rng: random.Random | None = None,
    ) -> None:
        self.fs = fs
        self.dirs = [LogDir(fs, os.path.abspath(path)) for path in dirs]
        self.default_config = default_config
        self.producer_expiration_ms = producer_expiration_ms
        self._now = now
        self._rng = rng or random.Random()
        self._logs: dict[tuple[str, int], Log] = {}
        self._dir_of: dict[Log, LogDir] = {}
        #: Log dirs that this broker had and that no folder has now, by the path of the last time.
        self.lost: dict[str, str] = {}
        self.moves = LogMover(self)
        self._deleted: list[DeletedFolder] = []
        self._renamed: set[LogDir] = set()  # those with deletions that are not durable
        self._syncing = threading.Lock()
        self.checkpoint_files = CheckpointFiles(self)

    def __iter__(self) -> Iterator[Log]:
        return iter(self._logs.values())

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, topic: str, partition: int) -> Log | None:
        return self._logs.get((topic, partition))

    def open(self) -> None:
        """Lock every folder and check its format, before anything in them is touched.

        Raises LogDirError when a folder is in use or has another format, or when no folder can be
        used; then no lock is held.
        """
        try:
            for log_dir in self.dirs:
                try:
                    log_dir.open()
                except LogDirError:
                    raise
                except OSError as error:
                    self._fail(log_dir, error)
            self._require_some_dir()
        except LogDirError:
            self.release()
            raise

    def identify(
        self,
        cluster_id: str,
        node_id: int,
        known: Mapping[str, str],
        partitions: Collection[tuple[str, int]],
        given_up: Collection[str] = (),
    ) -> dict[str, str]:
        """Tell missing log dirs from new ones, and give each new one an id; see `inventory`.

        `known` are ids by path, as this returned them the last time, and `partitions` all that must
        exist. Raises LogDirError for folders of another cluster or node, or if no folder can be
        used. Durable when this returns. Call it before `load`, which formats new folders.
        """
        inventory = DirInventory(self.dirs, cluster_id, node_id, known)
        self.lost = inventory.missing(partitions, given_up)
        ids = inventory.identify(self._rng.getrandbits)
        self._require_some_dir()
        return self.lost | ids

    def release(self) -> None:
        """Unlock the folders without saving anything, when not all of them could be loaded."""
        for log_dir in self.dirs:
            log_dir.close()

    def load(self, config_for: Callable[[str], LogConfig] | None = None) -> None:
        """Open every log, and recover those in a folder that was not closed cleanly.

        Raises LogDirError when a partition is in two folders, or when no folder can be used.
        """
        self._deleted += [DeletedFolder(self._now(), path) for path in self.moves.settle()]
        for log_dir in self.dirs:
            if log_dir.offline_error is not None:
                continue
            try:
                log_dir.format()
                self._load_dir(log_dir, config_for or (lambda _: self.default_config))
                log_dir.forget_clean_shutdown()
                log_dir.remember_boot()
            except LogDirError:
                raise
            except OSError as error:
                self._fail(log_dir, error)
        self._require_some_dir()

    def _require_some_dir(self) -> None:
        if all(log_dir.offline_error for log_dir in self.dirs):
            reasons = "; ".join(f"{each.path}: {each.offline_error}" for each in self.dirs)
            raise LogDirError(f"no log dir can be used: {reasons}")

    def _load_dir(self, log_dir: LogDir, config_for: Callable[[str], LogConfig]) -> None:
        recovery_points, damage = log_dir.read_checkpoint(checkpoints.RECOVERY_POINT)
        points_lost = damage is not None
        if damage:
            _log.error("%s; every log in this folder is checked in full", damage)
            log_dir.was_clean = False
        starts, damage = log_dir.read_checkpoint(checkpoints.LOG_START)
        if damage:
            _log.error("%s; deleted records may become visible again", damage)
        now_ms = self._now()
        for name in self.fs.list(log_dir.path):
            folder = os.path.join(log_dir.path, name)
            if names.is_deleted_folder(name) and self.fs.is_dir(folder):
                self._deleted.append(DeletedFolder(now_ms, folder))
                continue
            key = names.parse_folder(name)
            if key is None or not self.fs.is_dir(folder):
                continue
            if key in self._logs:
                raise LogDirError(
                    f"{name} is in {log_dir.path} and in {self._logs[key].dir}; "
                    "move one of them elsewhere"
                )
            opening = Opening(
                topic=key[0],
                partition=key[1],
                config=config_for(key[0]),
                now_ms=now_ms,
                clean=log_dir.was_clean,
                same_boot=log_dir.same_boot,
                recovery_point=recovery_points.get(key, 0),
                is_saved=points_lost or key in recovery_points,
                start_offset=starts.get(key, 0),
                on_truncation=self.checkpoint_files.save_truncation,
                rng=self._rng,
            )
            self._add(open_log(self.fs, folder, opening), log_dir)

    def create(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig | None = None
    ) -> Log:
        """Create an empty log in the log dir with the fewest; durable with its first flush.

        Raises OSError when the disk fails or no folder is online.
        """
        online = [log_dir for log_dir in self.dirs if log_dir.offline_error is None]
        if not online:
            raise LogDirError("all log dirs are offline")
        if (topic, partition) in self._logs:
            raise LogDirError(f"the log of {topic}-{partition} already exists")
        counts = dict.fromkeys(online, 0)
        for log_dir in self._dir_of.values():
            if log_dir in counts:
                counts[log_dir] += 1
        log_dir = min(online, key=lambda each: counts[each])
        folder = os.path.join(log_dir.path, names.folder_name(topic, partition))
        if self.fs.exists(folder) and self.fs.list(folder):
            raise LogDirError(f"{folder} already exists, but no log was found in it")
        self.checkpoint_files.forget([(topic, partition)], log_dir)
        try:
            self.fs.mkdir(folder)
            metadata = self.fs.open(os.path.join(folder, names.PARTITION_METADATA), create=True)
            metadata.append(format_partition_metadata(topic_id))
            segment = Segment.create(self.fs, folder, 0, self._now())
        except OSError:
            with contextlib.suppress(OSError):
                self.fs.rmtree(folder)  # or it would make a second try fail
            raise
        log = Log(
            self.fs,
            folder,
            topic,
            partition,
            config or self.default_config,
            [segment],
            start_offset=0,
            end_offset=0,
            epochs=EpochCache([]),
            producers=Producers(),
            topic_id=topic_id,
            on_truncation=self.checkpoint_files.save_truncation,
            rng=self._rng,
        )
        log.unsynced.add(metadata, folder, log_dir.path)
        self._add(log, log_dir)
        return log

    def forget_deleted(self, places: Collection[tuple[str, int]]) -> None:
        """Spare `create` a wait for the disk if such logs were deleted before; on any thread."""
        for log_dir in self.dirs:
            if log_dir.offline_error is None:
                self.checkpoint_files.forget(places, log_dir)

    def delete(self, topic: str, partition: int) -> None:
        """Rename a log's folder; a later purge removes its files. Raises OSError.

        Waits for a swap that writes into the folder. Durable after `sync_deletions`, or with the
        first flush of a log with the same name.
        """
        log = self._logs[topic, partition]
        log.deleted = True
        log.unsynced.cap(0)
        if log.swap is not None:
            log.swap.wait()
        name = names.deleted_folder_name(topic, partition, self.unique())
        target = os.path.join(os.path.dirname(log.dir), name)
        self.fs.rename(log.dir, target)
        del self._logs[topic, partition]
        log_dir = self._dir_of.pop(log)
        log.close()
        log.moved(target)
        self.on_renamed(log_dir, target, log)
        self.moves.log_deleted(log)

    def sync_deletions(self) -> None:
        """Make all deletions durable; may be called on any thread. Raises OSError."""
        with self._syncing:  # or a second caller could return before the first has synced
            while self._renamed:
                log_dir = self._renamed.pop()
                try:
                    self.fs.sync_dir(log_dir.path)
                except OSError:
                    self._renamed.add(log_dir)
                    raise

    def dir_of(self, log: Log) -> LogDir:
        return self._dir_of[log]

    def log_dirs(self) -> dict[Log, LogDir]:
        """The log dir of each log: a copy, made in one step, for any thread."""
        return self._dir_of.copy()

    @property
    def all_here(self) -> bool:
        """Whether no log dir is missing or offline."""
        return not self.lost and all(log_dir.offline_error is None for log_dir in self.dirs)

    def unique(self) -> str:
        """A unique part for a folder's name."""
        return f"{self._rng.getrandbits(128):032x}"

    def on_moved(self, log: Log, log_dir: LogDir) -> None:
        """A log has moved to another log dir."""
        self._dir_of[log] = log_dir

    def on_renamed(
        self, log_dir: LogDir, folder: str, log: Log, segments: Sequence[Segment] = ()
    ) -> None:
        """A folder of a log was renamed, and is deleted later."""
        self._renamed.add(log_dir)
        due_ms = self._now() + log.config.file_delete_delay_ms
        self._deleted.append(DeletedFolder(due_ms, folder, segments))

    def fail_dir_of(self, partition_dir: str, error: OSError) -> str:
        """Take the log dir of a partition's folder offline, with all its logs; returns its path."""
        parent = os.path.dirname(partition_dir)
        for log_dir in self.dirs:
            if log_dir.path == parent:
                self._fail(log_dir, error)
        return parent

    def run_retention(self, now_ms: int, logs: Iterable[Log] | None = None) -> int:
        """Delete the segments of all logs, or some, that are too old, too large or below the start.

        Returns how many were deleted.
        """
        count = 0
        for log in list(self) if logs is None else logs:
            if log.offline_error is not None or log.deleted:
                continue
            try:
                count += retention.apply(log, now_ms)
            except OSError as error:
                self.on_disk_error(self._dir_of[log], error)
            log.producers.expire(now_ms, self.producer_expiration_ms)
        return count

    def begin_purge(self, now_ms: int) -> Purge | None:
        """The files and folders that are due to be removed; None if there are none."""
        segments = [segment for log in self for segment in log.deleted_segments.take(now_ms)]
        folders = [folder for folder in self._deleted if folder.due_ms <= now_ms]
        self._deleted = [folder for folder in self._deleted if folder.due_ms > now_ms]
        return Purge(self.fs, segments, folders) if segments or folders else None

    def begin_checkpoint(self) -> CheckpointRound:
        """An empty round: begin and run some logs at a time, then save and complete it."""
        return CheckpointRound(self)

    def checkpoint(self, threads: int = 1) -> CheckpointRound:
        """Save all logs and wait; those that fail are offline afterwards."""
        checkpoint = self.begin_checkpoint()
        checkpoint.begin(self)
        checkpoint.run(threads)
        checkpoint.save()
        checkpoint.complete()
        return checkpoint

    def close(self) -> None:
        """Save all logs, mark their folders as cleanly closed, and close everything."""
        checkpoint = self.checkpoint(CLOSING_THREADS)
        for log in self:
            log.close()
        for log_dir in self.dirs:
            saved = all(
                log.offline_error is None and log.recovery_point == log.end_offset
                for log in self
                if self._dir_of[log] is log_dir
            )
            if log_dir.offline_error is None and saved and log_dir not in checkpoint.unsaved:
                try:
                    log_dir.mark_clean_shutdown()
                except OSError as error:
                    _log.error("%s is not marked as closed: %s", log_dir.path, error)
            log_dir.close()

    def _add(self, log: Log, log_dir: LogDir) -> None:
        self._logs[log.topic, log.partition] = log
        self._dir_of[log] = log_dir

    def on_disk_error(self, log_dir: LogDir, error: OSError) -> None:
        """Retry in the next round after a passing error, such as a full disk; else go offline."""
        if is_passing(error):
            _log.warning("housekeeping in %s is postponed: %s", log_dir.path, error)
        else:
            self._fail(log_dir, error)

    def _fail(self, log_dir: LogDir, error: OSError) -> None:
        log_dir.fail(error)
        for log, its_dir in self._dir_of.items():
            if its_dir is log_dir:
                log.offline_error = log.offline_error or error
