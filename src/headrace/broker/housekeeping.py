"""Background work of a broker: retention, checkpoints, compaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterator
from typing import TYPE_CHECKING

from headrace.storage.cleaner import Cleaner, CleanerLimits

if TYPE_CHECKING:
    from headrace.broker.node import Node
    from headrace.config import Settings
    from headrace.storage import Log
    from headrace.storage.checkpoint_round import CheckpointRound
    from headrace.timing.wheel import Timer

log = logging.getLogger(__name__)

PURGE_INTERVAL_MS_MIN = 1_000
# How many logs are handled before the loop does other work.
TURN_LOGS = 16
# The checkpoint files list every log, so they are not written for a few changed ones.
SAVED_LOGS_MAX = 1_000

BackgroundTask = Callable[[], Coroutine[object, object, None]]


class Housekeeping:
    """Runs each task again and again, one run at a time, on the broker's clock."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._timers: dict[int, Timer[Callable[[], None]]] = {}
        self._checkpointing = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False
        self._first_delay_ms = node.settings.int("log.initial.task.delay.ms")
        self._cleaner = Cleaner(
            node.logs, node.workers.run, node.run_read, cleaner_limits(node.settings)
        )

    def start(self) -> None:
        """Start; a task first runs after its interval or `log.initial.task.delay.ms`."""
        settings = self._node.settings
        self._every(settings.int("log.retention.check.interval.ms"), self.retain)
        delete_delay_ms = settings.int("log.segment.delete.delay.ms")
        self._every(max(delete_delay_ms, PURGE_INTERVAL_MS_MIN), self.purge)
        self._every(settings.int("log.flush.offset.checkpoint.interval.ms"), self.checkpoint)
        if settings.bool("log.cleaner.enable"):
            for _ in range(settings.int("log.cleaner.threads")):
                self._every(settings.int("log.cleaner.backoff.ms"), self.compact)

    async def close(self) -> None:
        """Start no more runs and wait for those under way: their files are closed next."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        # A cleaning in a worker is abandoned; it has not touched the log yet.
        await self._node.workers.close()
        while self._running:
            await asyncio.wait(self._running)

    async def retain(self) -> None:
        """Delete segments beyond the retention limits; a later purge removes their files."""
        deleted = 0
        for some in self._in_turns():
            deleted += self._node.logs.run_retention(self._node.clock.now_ms(), some)
            await asyncio.sleep(0)
        if deleted:
            log.info("retention deleted %d segments", deleted)

    async def purge(self) -> None:
        """Remove the files of deleted segments and topics whose delay is over."""
        purge = self._node.logs.begin_purge(self._node.clock.now_ms())
        if purge is not None:
            await self._node.run_read(purge.run)

    async def checkpoint(self, logs: Collection[Log] | None = None) -> None:
        """Save how far all logs, or some, are known to be good, so that recovery is short."""
        # One at a time: an older one that ends later would overwrite newer offsets.
        async with self._checkpointing:
            checkpoint = self._node.logs.begin_checkpoint()
            for some in self._in_turns(logs):
                if checkpoint.begin(some):
                    await self._node.run_read(checkpoint.run)
                    if len(checkpoint) >= SAVED_LOGS_MAX:
                        await self._save(checkpoint)
                        checkpoint = self._node.logs.begin_checkpoint()
                else:
                    await asyncio.sleep(0)
            await self._save(checkpoint)

    async def _save(self, checkpoint: CheckpointRound) -> None:
        await self._node.run_read(checkpoint.save)
        checkpoint.complete()

    def _in_turns(self, of: Collection[Log] | None = None) -> Iterator[list[Log]]:
        """All logs or some, a few at a time, so that other work can run in between."""
        logs = list(self._node.logs if of is None else of)
        for start in range(0, len(logs), TURN_LOGS):
            yield logs[start : start + TURN_LOGS]

    async def compact(self) -> None:
        """Clean the dirtiest logs until none is due."""
        # Nothing above a recovery point is cleaned, and the next checkpoint may be far away.
        rolled = [
            log
            for log in self._node.logs
            if log.config.is_compacted and log.recovery_point < log.active.base_offset
        ]
        if rolled:
            await self.checkpoint(rolled)
        while await self._cleaner.clean_next(self._node.clock.now_ms()) is not None:
            self._node.metrics.cleanings.value += 1

    def _every(self, interval_ms: int, task: BackgroundTask) -> None:
        def begin() -> None:
            run = self._node.spawn(task())
            self._running.add(run)
            run.add_done_callback(ended)

        def ended(run: asyncio.Task[None]) -> None:
            self._running.discard(run)
            schedule(interval_ms)

        def schedule(delay_ms: int) -> None:
            if not self._closed:
                self._timers[number] = self._node.timers.call_later(delay_ms, begin)

        number = len(self._timers)
        schedule(min(interval_ms, self._first_delay_ms))


def cleaner_limits(settings: Settings) -> CleanerLimits:
    """The `log.cleaner.*` settings, divided among the cleaner's workers."""
    workers = settings.int("log.cleaner.threads")
    return CleanerLimits(
        dedupe_buffer_bytes=settings.int("log.cleaner.dedupe.buffer.size") // workers,
        load_factor=settings.float("log.cleaner.io.buffer.load.factor"),
        io_buffer_bytes=settings.int("log.cleaner.io.buffer.size") // workers,
        io_bytes_per_second=settings.float("log.cleaner.io.max.bytes.per.second") / workers,
    )
