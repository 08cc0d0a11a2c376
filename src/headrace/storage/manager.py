"""All logs of a broker: found on start, made, deleted, kept in bounds, saved on stop."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from headrace.storage import checkpoints, names, retention
from headrace.storage.checkpoints import Offsets, format_partition_metadata
from headrace.storage.config import LogConfig
from headrace.storage.dirs import LogDir, LogDirError
from headrace.storage.epochs import EpochCache
from headrace.storage.files import FileSystem, is_passing
from headrace.storage.flush import Checkpoint
from headrace.storage.log import Log
from headrace.storage.producers import Producers
from headrace.storage.recovery import Opening, open_log
from headrace.storage.segment import Segment

_log = logging.getLogger(__name__)

CLOSING_THREADS = 8
PRODUCER_EXPIRATION_MS = 24 * 3_600_000


class LogManager:
    """The logs of some log dirs; all methods but the `run` of what they return are one thread's.

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
        self._deleted: list[tuple[int, str]] = []  # due time, folder on its way out
        self._renamed: set[LogDir] = set()  # with deletions that are not durable
        # Guards the checkpoint files; counts truncations, which outdate a checkpoint under way.
        self._saving = threading.Lock()
        self._truncations = 0

    def __iter__(self) -> Iterator[Log]:
        return iter(self._logs.values())

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, topic: str, partition: int) -> Log | None:
        return self._logs.get((topic, partition))

    def open(self) -> None:
        """Lock every folder and check its format; before anything in them is touched.

        Raises LogDirError when a folder is in use or of another format, or none can be used; then
        none is held.
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

    def release(self) -> None:
        """Let go of the folders as they are, nothing saved; for those that were not all loaded."""
        for log_dir in self.dirs:
            log_dir.close()

    def load(self, config_for: Callable[[str], LogConfig] | None = None) -> None:
        """Open every log; those of a folder that was not closed cleanly are recovered.

        Raises LogDirError when one partition is in two folders, or no folder can be used.
        """
        for log_dir in self.dirs:
            if log_dir.offline is not None:
                continue
            try:
                self._load_dir(log_dir, config_for or (lambda _: self.default_config))
                log_dir.forget_clean_shutdown()
            except LogDirError:
                raise
            except OSError as error:
                self._fail(log_dir, error)
        self._require_some_dir()

    def _require_some_dir(self) -> None:
        if all(log_dir.offline for log_dir in self.dirs):
            reasons = "; ".join(f"{each.path}: {each.offline}" for each in self.dirs)
            raise LogDirError(f"no log dir can be used: {reasons}")

    def _load_dir(self, log_dir: LogDir, config_for: Callable[[str], LogConfig]) -> None:
        recovery_points, damage = log_dir.read_checkpoint(checkpoints.RECOVERY_POINT)
        if damage:
            _log.error("%s; every log of this folder is checked in full", damage)
            log_dir.was_clean = False
        starts, damage = log_dir.read_checkpoint(checkpoints.LOG_START)
        if damage:
            _log.error("%s; deleted records may be seen again", damage)
        now_ms = self._now()
        for name in self.fs.list(log_dir.path):
            folder = os.path.join(log_dir.path, name)
            if names.is_deleted_folder(name) and self.fs.is_dir(folder):
                self._deleted.append((now_ms, folder))
                continue
            key = names.parse_folder(name)
            if key is None or not self.fs.is_dir(folder):
                continue
            if key in self._logs:
                raise LogDirError(
                    f"{name} is in {log_dir.path} and in {self._logs[key].dir}; move one away"
                )
            opening = Opening(
                topic=key[0],
                partition=key[1],
                config=config_for(key[0]),
                now_ms=now_ms,
                clean=log_dir.was_clean,
                recovery_point=recovery_points.get(key, 0),
                start_offset=starts.get(key, 0),
                on_truncation=self._save_truncation,
                rng=self._rng,
            )
            self._add(open_log(self.fs, folder, opening), log_dir)

    def create(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig | None = None
    ) -> Log:
        """A new, empty log in the folder with the fewest; durable with its first flush.

        Raises OSError when the disk fails or no folder is online.
        """
        online = [log_dir for log_dir in self.dirs if log_dir.offline is None]
        if not online:
            raise LogDirError("all log dirs are offline")
        if (topic, partition) in self._logs:
            raise LogDirError(f"the log of {topic}-{partition} exists already")
        counts = dict.fromkeys(online, 0)
        for log_dir in self._dir_of.values():
            if log_dir in counts:
                counts[log_dir] += 1
        log_dir = min(online, key=lambda each: counts[each])
        folder = os.path.join(log_dir.path, names.folder_name(topic, partition))
        if self.fs.exists(folder) and self.fs.list(folder):
            raise LogDirError(f"{folder} is there already, though no log was found in it")
        self._forget_namesake(topic, partition, log_dir)
        try:
            self.fs.mkdir(folder)
            metadata = self.fs.open(os.path.join(folder, names.PARTITION_METADATA), create=True)
            metadata.append(format_partition_metadata(topic_id))
            segment = Segment.create(self.fs, folder, 0, self._now())
        except OSError:
            with contextlib.suppress(OSError):
                self.fs.rmtree(folder)  # or a second try would find it in the way
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
            on_truncation=self._save_truncation,
            rng=self._rng,
        )
        log.unsynced.add(metadata, folder, log_dir.path)
        self._add(log, log_dir)
        return log

    def _forget_namesake(self, topic: str, partition: int, log_dir: LogDir) -> None:
        """Make durable that no checkpoint speaks of a new log: one of the same name was deleted."""
        with self._saving:
            if log_dir.checkpoints.knows((topic, partition)):
                log_dir.checkpoints.keep(self._logs.keys())

    def delete(self, topic: str, partition: int) -> None:
        """Rename a log's folder out of the way; its files go with a later purge. Raises OSError.

        Waits for what writes into the folder by its name. Durable after `sync_deletions`, or with
        the first flush of a log of the same name.
        """
        log = self._logs[topic, partition]
        log.deleted = True
        log.unsynced.cap(0)
        if log.swap is not None:
            log.swap.wait()
        unique = f"{self._rng.getrandbits(128):032x}"
        name = names.deleted_folder_name(topic, partition, unique)
        target = os.path.join(os.path.dirname(log.dir), name)
        self.fs.rename(log.dir, target)
        del self._logs[topic, partition]
        self._renamed.add(self._dir_of.pop(log))
        log.close()
        log.moved(target)
        self._deleted.append((self._now() + log.config.file_delete_delay_ms, target))

    def sync_deletions(self) -> None:
        """Make all deletions durable; may be called on any thread. Raises OSError."""
        while self._renamed:
            log_dir = self._renamed.pop()
            try:
                self.fs.sync_dir(log_dir.path)
            except OSError:
                self._renamed.add(log_dir)
                raise

    def dir_of(self, log: Log) -> LogDir:
        return self._dir_of[log]

    def fail_dir_of(self, partition_dir: str, error: OSError) -> str:
        """Take the log dir of a partition's folder offline, with all its logs; its path."""
        parent = os.path.dirname(partition_dir)
        for log_dir in self.dirs:
            if log_dir.path == parent:
                self._fail(log_dir, error)
        return parent

    def run_retention(self, now_ms: int) -> int:
        """Delete segments that are too old, too many or below their log's start; how many."""
        count = 0
        for log in list(self._logs.values()):
            if log.offline is not None:
                continue
            try:
                count += retention.apply(log, now_ms)
            except OSError as error:
                self._trouble(self._dir_of[log], error)
            log.producers.expire(now_ms, self.producer_expiration_ms)
        return count

    def begin_purge(self, now_ms: int) -> Purge | None:
        """The files and folders whose time to go has come; None when there are none."""
        segments = [segment for log in self for segment in log.take_doomed(now_ms)]
        folders = [folder for due_ms, folder in self._deleted if due_ms <= now_ms]
        self._deleted = [row for row in self._deleted if row[0] > now_ms]
        return Purge(self.fs, segments, folders) if segments or folders else None

    def begin_checkpoint(self, logs: Sequence[Log] | None = None) -> ManagerCheckpoint:
        """A checkpoint of every log, or of some: run it on another thread, then complete it.

        To begin the checkpoint of one log takes a few file operations on this thread, so with many
        logs it is better done a few at a time.
        """
        return ManagerCheckpoint(self, list(self) if logs is None else logs)

    def checkpoint(self) -> None:
        """Save all logs and wait for it; failing ones are offline afterwards."""
        checkpoint = self.begin_checkpoint()
        checkpoint.run()
        checkpoint.complete()

    def close(self) -> None:
        """Save all logs, mark their folders as cleanly closed and let go of everything."""
        checkpoint = self.begin_checkpoint()
        checkpoint.run(CLOSING_THREADS)
        checkpoint.complete()
        for log in self:
            log.close()
        for log_dir in self.dirs:
            saved = all(
                log.offline is None and log.recovery_point == log.end_offset
                for log in self
                if self._dir_of[log] is log_dir
            )
            if log_dir.offline is None and saved and log_dir not in checkpoint.unsaved:
                try:
                    log_dir.mark_clean_shutdown()
                except OSError as error:
                    _log.error("%s is not marked as closed: %s", log_dir.path, error)
            log_dir.close()

    def _add(self, log: Log, log_dir: LogDir) -> None:
        self._logs[log.topic, log.partition] = log
        self._dir_of[log] = log_dir

    def _trouble(self, log_dir: LogDir, error: OSError) -> None:
        """Leave what a full disk or the like hindered to the next round; else go offline."""
        if is_passing(error):
            _log.warning("housekeeping in %s is put off: %s", log_dir.path, error)
        else:
            self._fail(log_dir, error)

    def _fail(self, log_dir: LogDir, error: OSError) -> None:
        if log_dir.offline is None:
            _log.error("log dir %s is offline: %s", log_dir.path, error)
            log_dir.offline = error
        for log, its_dir in self._dir_of.items():
            if its_dir is log_dir:
                log.offline = log.offline or error

    def offsets_of(self, log_dir: LogDir) -> dict[str, Offsets]:
        """The content of the checkpoint files of a log dir as the logs stand now."""
        logs = [log for log in self if self._dir_of[log] is log_dir]
        return {
            checkpoints.RECOVERY_POINT: {(g.topic, g.partition): g.recovery_point for g in logs},
            checkpoints.LOG_START: {
                (g.topic, g.partition): g.start_offset
                for g in logs
                if g.start_offset > g.segments[0].base_offset
            },
            checkpoints.HIGH_WATERMARK: {(g.topic, g.partition): g.high_watermark for g in logs},
        }

    def _save_truncation(self, log: Log) -> None:
        """Make a lowered recovery point durable before the log is cut."""
        log_dir = self._dir_of[log]
        with self._saving:
            self._truncations += 1
            log_dir.checkpoints.write(self.offsets_of(log_dir))


class ManagerCheckpoint:
    """One round of saving: logs first, then the recovery points that rely on it."""

    def __init__(self, manager: LogManager, logs: Sequence[Log]) -> None:
        self._manager = manager
        self._truncations = manager._truncations
        self._logs: list[Checkpoint] = []
        for log in logs:
            if log.offline is not None or log.deleted:
                continue
            try:
                if (checkpoint := log.begin_checkpoint()) is not None:
                    self._logs.append(checkpoint)
            except OSError as error:
                manager._trouble(manager.dir_of(log), error)
        self._known = dict(manager._logs)
        self._offsets = [
            (log_dir, manager.offsets_of(log_dir))
            for log_dir in manager.dirs
            if log_dir.offline is None
        ]
        #: Log dirs whose checkpoint files could not be written, each with the reason.
        self.unsaved: dict[LogDir, OSError] = {}

    def run(self, threads: int = 1) -> None:
        """Save the logs and then the recovery points; may be called on any thread."""
        if threads > 1 and len(self._logs) > 1:
            with ThreadPoolExecutor(threads, thread_name_prefix="headrace-close") as pool:
                list(pool.map(Checkpoint.run, self._logs))
        else:
            for checkpoint in self._logs:
                checkpoint.run()
        for log_dir, offsets in self._offsets:
            points = offsets[checkpoints.RECOVERY_POINT]
            for checkpoint in self._logs:
                key = checkpoint.log.topic, checkpoint.log.partition
                if checkpoint.succeeded and key in points:
                    points[key] = checkpoint.end_offset
            with self._manager._saving:
                self._drop_deleted(offsets)
                if self._truncations != self._manager._truncations:
                    return  # these recovery points may be above what was cut since
                try:
                    log_dir.checkpoints.write(offsets)
                except OSError as error:
                    self.unsaved[log_dir] = error

    def _drop_deleted(self, offsets: dict[str, Offsets]) -> None:
        """Leave out logs that are gone by now: their names may belong to others already."""
        current = self._manager._logs
        for name, rows in offsets.items():
            offsets[name] = {
                key: offset for key, offset in rows.items() if current.get(key) is self._known[key]
            }

    def complete(self) -> None:
        """Move the recovery points in memory; on the thread of the logs."""
        manager = self._manager
        for checkpoint in self._logs:
            checkpoint.log.complete_checkpoint(checkpoint)
            error = checkpoint.error or checkpoint.postponed
            if error is not None and not checkpoint.log.deleted:
                manager._trouble(manager.dir_of(checkpoint.log), error)
        for log_dir, error in self.unsaved.items():
            manager._trouble(log_dir, error)


class Purge:
    """Files and folders to remove; large files take the disk a while, so on another thread."""

    def __init__(self, fs: FileSystem, segments: list[Segment], folders: list[str]) -> None:
        self._fs = fs
        self._segments = segments
        self._folders = folders

    def run(self) -> None:
        """Remove them; what cannot be removed is logged, and tried again on the next start."""
        for segment in self._segments:
            try:
                segment.remove(self._fs)
            except OSError as error:
                _log.warning("%s cannot be removed: %s", segment.file.path, error)
        for folder in self._folders:
            try:
                self._fs.rmtree(folder)
            except OSError as error:
                _log.warning("%s cannot be removed: %s", folder, error)
