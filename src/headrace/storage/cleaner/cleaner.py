"""The cleaner: picks logs, has them cleaned in a worker, swaps the result in, saves progress."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from headrace.storage.cleaner.clean import Uncleanable, clean
from headrace.storage.cleaner.options import (
    DEDUPE_BUFFER_BYTES,
    IO_BUFFER_BYTES,
    CleanedGroup,
    CleanOptions,
    CleanResult,
    CleanStats,
    SegmentFacts,
)
from headrace.storage.cleaner.output import remove_cleaned
from headrace.storage.cleaner.planning import (
    Candidate,
    dirtiest,
    examine,
    last_records,
    segment_facts,
)
from headrace.storage.dirs import checkpoints
from headrace.storage.files import is_passing
from headrace.storage.log.log import Log
from headrace.storage.log.scan import BadBatch
from headrace.storage.manager import LogManager

_log = logging.getLogger(__name__)

FAILURES_MAX = 3
"""How often in a row the cleaning of a log may fail for unknown reasons before it is given up."""

T = TypeVar("T")


class RunInWorker(Protocol):
    """Calls a function in a worker process, as `Workers.run` does."""

    def __call__(self, function: Callable[..., T], /, *args: object) -> Awaitable[T]: ...


class RunInThread(Protocol):
    """Calls a function that waits for the disk, in a thread."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerLimits:
    """The `log.cleaner.*` settings, for one worker."""

    dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES
    load_factor: float = 0.9
    io_buffer_bytes: int = IO_BUFFER_BYTES
    io_bytes_per_second: float = float("inf")


class Cleaner:
    """Compaction of the logs of a manager; all methods are called on the logs' thread."""

    def __init__(
        self,
        logs: LogManager,
        run_in_worker: RunInWorker,
        run_in_thread: RunInThread,
        limits: CleanerLimits | None = None,
    ) -> None:
        self._logs = logs
        self._run_in_worker = run_in_worker
        self._run_in_thread = run_in_thread
        self._limits = limits or CleanerLimits()
        self._cleaned = _read_checkpoints(logs)
        self._in_progress: set[Log] = set()
        self._failures: dict[Log, int] = {}
        #: Logs that are no longer cleaned, each with the reason.
        self.uncleanable: dict[Log, str] = {}

    def candidates(self, now_ms: int) -> list[Candidate]:
        """All logs that could be cleaned, due or not; for choosing and for metrics."""
        self._forget_deleted()
        found = []
        for log in self._logs:
            if (
                log.config.is_compacted
                and log.offline_error is None
                and log not in self._in_progress
                and log not in self.uncleanable
            ):
                try:
                    found.append(examine(log, self._cleaned.get(log), now_ms))
                except (BadBatch, OSError) as error:
                    self._failed(log, error)
        return found

    def _forget_deleted(self) -> None:
        """Forget deleted logs; new ones may have their names."""
        self._cleaned = {log: row for log, row in self._cleaned.items() if not log.deleted}
        self._failures = {log: row for log, row in self._failures.items() if not log.deleted}
        self.uncleanable = {log: row for log, row in self.uncleanable.items() if not log.deleted}

    async def clean_next(self, now_ms: int) -> CleanStats | None:
        """Clean the dirtiest log that is due; None without one, or if it failed.

        May be awaited several times at once: each call takes another log. On cancel the log is as
        it was or has its first groups swapped; `*.cleaned` files that are left go later.
        """
        candidate = dirtiest(self.candidates(now_ms))
        return None if candidate is None else await self.clean(candidate, now_ms)

    async def clean(self, candidate: Candidate, now_ms: int) -> CleanStats | None:
        """Clean one log; None if that failed, which is logged."""
        log, folder = candidate.log, candidate.log.dir
        self._in_progress.add(log)
        try:
            segments = segment_facts(candidate)
            result = await self._run_in_worker(
                clean, folder, segments, self._options(candidate, now_ms)
            )
            if await self._swap_all(log, folder, segments, result, now_ms):
                await self._remember(log, result.end_offset)
        except Exception as error:
            self._failed(log, error)
            return None
        finally:
            self._in_progress.discard(log)
        self._failures.pop(log, None)
        _log.info(
            "%s-%d is clean up to %d: %d of %d bytes are left",
            log.topic,
            log.partition,
            result.end_offset,
            result.stats.bytes_kept,
            result.stats.bytes_read,
        )
        return result.stats

    def _options(self, candidate: Candidate, now_ms: int) -> CleanOptions:
        config = candidate.log.config
        limits = self._limits
        return CleanOptions(
            first_dirty_offset=candidate.first_dirty_offset,
            first_uncleanable_offset=candidate.first_uncleanable_offset,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            last_records=last_records(candidate.log),
            dedupe_buffer_bytes=limits.dedupe_buffer_bytes,
            load_factor=limits.load_factor,
            io_buffer_bytes=limits.io_buffer_bytes,
            io_bytes_per_second=limits.io_bytes_per_second,
        )

    async def _swap_all(
        self,
        log: Log,
        folder: str,
        segments: Iterable[SegmentFacts],
        result: CleanResult,
        now_ms: int,
    ) -> bool:
        """Swap group by group, oldest first; False if the log has changed or moved meanwhile.

        The order matters: a tombstone may go only after all older values of its key have gone, so
        when one group cannot be swapped none after it may be.
        """
        sizes = {segment.base_offset: segment.log_bytes for segment in segments}
        for group in result.groups:
            if log.dir != folder:
                return False  # the cleaned files are removed with the old folder
            if not _is_unchanged(log, group, sizes):
                await self._run_in_thread(partial(remove_cleaned, self._logs.fs, folder))
                return False
            swap = log.begin_swap(group.sources, [group.base_offset])
            await self._run_in_thread(swap.run)
            swap.complete(now_ms)
            if log.deleted:
                return False
            if swap.error is not None:
                if log.offline_error is not None:
                    self._logs.fail_dir_of(log.dir, swap.error)
                raise swap.error
        return True

    async def _remember(self, log: Log, end_offset: int) -> None:
        """Save how far a log is clean."""
        if log.deleted:
            return
        self._cleaned[log] = end_offset
        log_dir = self._logs.dir_of(log)
        offsets = {
            (each.topic, each.partition): self._cleaned[each]
            for each in self._logs
            if self._logs.dir_of(each) is log_dir and each in self._cleaned
        }
        save = self._logs.checkpoint_files.write
        await self._run_in_thread(partial(save, log_dir, checkpoints.CLEANER, offsets))

    def _failed(self, log: Log, error: Exception) -> None:
        name = f"{log.topic}-{log.partition}"
        if log.deleted or log.offline_error is not None:
            return
        if isinstance(error, OSError) and is_passing(error):
            _log.warning("%s cannot be compacted now: %s", name, error)
            return
        failures = self._failures.get(log, 0) + 1
        self._failures[log] = failures
        if isinstance(error, Uncleanable | BadBatch) or failures >= FAILURES_MAX:
            self.uncleanable[log] = str(error)
            _log.error(
                "%s is not compacted any more: %s; `headrace log verify` tells more", name, error
            )
        else:
            _log.warning("the compaction of %s failed and is retried: %r", name, error)


def _is_unchanged(log: Log, group: CleanedGroup, sizes: dict[int, int]) -> bool:
    """Whether the segments that a group was made from are still those of the log."""
    if log.deleted or log.offline_error is not None or log.swap is not None:
        return False
    now = {segment.base_offset: segment.size for segment in log.segments[:-1]}
    return all(now.get(base) == sizes[base] for base in group.sources)


def _read_checkpoints(logs: LogManager) -> dict[Log, int]:
    cleaned: dict[Log, int] = {}
    for log_dir in logs.dirs:
        if log_dir.offline_error is None:
            offsets, damage = log_dir.read_checkpoint(checkpoints.CLEANER)
            for key, offset in offsets.items():
                log = logs.get(*key)
                if log is not None and logs.dir_of(log) is log_dir:
                    cleaned[log] = offset
            if damage:
                _log.warning("%s; the logs of this folder are cleaned from their start", damage)
    return cleaned
