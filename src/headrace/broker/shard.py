"""One partition of a coordinator's topic: its log, its timers, and what waits for its syncs.

A coordinator computes the effects of a request; its shard carries them out, in this order:

1. Records are appended to the log, and replayed as soon as the write was accepted. So state changes
   in the order of the log, and a write that fails (a full disk) changes nothing.
2. Writes that arrive together may share one batch: they wait in `_open` until the end of the loop's
   turn. An operation that reads or removes the same state writes them first, and a write that
   does not wait goes after them.
3. A callback of `when_durable` is called when everything that was applied before is durable. So
   nobody acts on state that a crash could undo, while the next request may already be computed on
   top of it: it comes later in the log, and its response leaves later, too.
4. A sync that fails takes the log offline. Then the memory may be ahead of the disk, and every
   response is NOT_COORDINATOR.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.broker.purgatory import Waiting
from headrace.coordinator.effects import Now, ProducerEpoch
from headrace.coordinator.loading import Loader
from headrace.protocol.batch import HEADER_BYTES, build_batch
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.primitives import ProtocolError
from headrace.protocol.records import Record
from headrace.storage import Origin
from headrace.storage.log.reading import ColdRead
from headrace.timing.wheel import Timer

if TYPE_CHECKING:
    from headrace.broker.clock import Timers
    from headrace.broker.node import Node
    from headrace.broker.partition import Partition

# The most bytes of a record besides its key and value: lengths, deltas and attributes.
RECORD_OVERHEAD_BYTES = 24
# Takes some milliseconds of the loop's time.
LOAD_BYTES = 256 * 1024

# Called with NONE once something is durable, or with the error.
OnDurable = Callable[[ErrorCode], None]
ChangeT = TypeVar("ChangeT")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Write(Generic[ChangeT]):
    """Records that belong together, and a callback for when they are durable."""

    changes: Sequence[ChangeT]
    on_durable: OnDurable | None = None
    # The producer of their transaction; such records share no batch with others.
    producer: ProducerEpoch | None = None
    # Set when they could not be appended; then none of them counts.
    error: ErrorCode = ErrorCode.NONE

    def fail(self, error: ErrorCode) -> None:
        """Report that they could not be appended."""
        self.error = error
        if self.on_durable is not None:
            self.on_durable(error)


class SyncWaiting(Waiting):
    """Callbacks that wait until the log is durable up to an offset."""

    __slots__ = ("_shard", "callbacks", "end_offset")

    def __init__(self, shard: Shard[ChangeT], end_offset: int) -> None:
        super().__init__()
        self._shard = shard
        self.end_offset = end_offset
        self.callbacks: list[OnDurable] = []

    def try_complete(self) -> bool:
        partition = self._shard.partition
        durable = partition.log.high_watermark >= self.end_offset
        if durable or partition.error:
            self._complete(ErrorCode.NONE if durable else partition.error)
            return True
        return False

    def expire(self) -> None:
        self._complete(ErrorCode.REQUEST_TIMED_OUT)

    def fail(self) -> None:
        self._complete(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _complete(self, error: ErrorCode) -> None:
        if self in self._shard.sync_waits:
            self._shard.sync_waits.remove(self)
        # They may write to the same log, and so complete this again.
        callbacks, self.callbacks = self.callbacks, []
        for called, on_durable in enumerate(callbacks):
            try:
                on_durable(error)
            except Exception:
                # `fail` calls it again, and those after it.
                self.callbacks = callbacks[called:]
                raise
        if self._shard.partition.error:
            self._shard.unload()


class Batch(Generic[ChangeT]):
    """Records that are appended together, and the writes that are complete with them."""

    __slots__ = ("changes", "done", "producer", "records", "size")

    def __init__(self, producer: ProducerEpoch | None = None) -> None:
        self.changes: list[ChangeT] = []
        self.records: list[Record] = []
        self.done: list[Write[ChangeT]] = []
        self.producer = producer
        self.size = HEADER_BYTES

    def add(self, change: ChangeT, key: bytes, value: bytes | None, now_ms: int) -> None:
        """Add one record."""
        self.records.append(Record(len(self.records), now_ms, key, value))
        self.changes.append(change)
        self.size += size_of(key, value)

    def build(self, codec: int) -> bytearray:
        """The batch as it is appended."""
        if self.producer is None:
            return build_batch(self.records, codec=codec)
        return build_batch(
            self.records,
            codec=codec,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            transactional=True,
        )


class Shard(ABC, Generic[ChangeT]):
    """The log of one partition of a coordinator, with its timers and its waiting responses."""

    # What the shard stores, for log messages.
    holds = ""
    # How much of the log is read at a time while it is loaded.
    load_bytes = LOAD_BYTES

    def __init__(self, node: Node, partition: Partition, codec: int, timeout_ms: int) -> None:
        self.node = node
        self.partition = partition
        self.is_loaded = False
        # Set when the log could not be read: then its content is unknown.
        self.is_lost = False
        self.sync_waits: deque[SyncWaiting] = deque()
        # Where the log ended after the last write.
        self.end_offset = 0
        self._codec = codec
        self._timeout_ms = timeout_ms
        self._open: list[Write[ChangeT]] = []
        self._timers: dict[Hashable, Timer[Callable[[], None]]] = {}

    @abstractmethod
    def encode(self, change: ChangeT) -> tuple[bytes, bytes | None]:
        """The key and the value of a change's record."""

    @abstractmethod
    def replay(self, change: ChangeT, producer: ProducerEpoch | None) -> None:
        """Apply a record that is in the log."""

    @abstractmethod
    def restore(self, loader: Loader) -> int:
        """Apply a whole log; returns how many records were malformed."""

    @abstractmethod
    def resume(self) -> None:
        """Start serving what was loaded."""

    @abstractmethod
    def expire(self) -> None:
        """Remove what has expired."""

    @abstractmethod
    def dismiss(self) -> None:
        """Respond to every request that waits for the coordinator; the shard stops serving."""

    @property
    def error(self) -> ErrorCode:
        """Why this shard cannot serve now, or NONE."""
        if self.is_loaded and not self.partition.error:
            return ErrorCode.NONE
        if self.partition.error:
            return ErrorCode.NOT_COORDINATOR
        if self.is_lost:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    @property
    def is_durable(self) -> bool:
        """Whether a crash now would lose nothing."""
        return self.partition.log.high_watermark >= self.end_offset

    @property
    def name(self) -> str:
        """The partition's name, for log messages."""
        return f"{self.partition.topic}-{self.partition.index}"

    def write(self, write: Write[ChangeT]) -> None:
        """Append and apply now, after what is open; a failure is in `write.error`."""
        self._open.append(write)
        self.write_open()

    def write_soon(self, write: Write[ChangeT]) -> None:
        """Append and apply at the end of the loop's turn, together with other writes."""
        if not self._open:
            self.node.loop.call_soon(self.write_open)
        self._open.append(write)

    def when_durable(self, on_durable: OnDurable) -> None:
        """Call `on_durable` once all that is applied now is durable, or with the error."""
        if self.is_durable:
            on_durable(ErrorCode.NONE)
            return
        if self.sync_waits and self.sync_waits[-1].end_offset == self.end_offset:
            self.sync_waits[-1].callbacks.append(on_durable)
            return
        waiting = SyncWaiting(self, self.end_offset)
        waiting.callbacks.append(on_durable)
        self.sync_waits.append(waiting)
        self.node.produce_purgatory.park(waiting, (self.partition,), self._timeout_ms)
        # It may complete at once: an earlier sync may have covered it already.
        self.partition.sync()

    def when_surely_durable(self, then: Callable[[], None]) -> None:
        """Call `then` once all that is applied now is durable, however slow the disk.

        Never if the disk fails: then a restart decides.
        """

        def on_durable(error: ErrorCode) -> None:
            if error is ErrorCode.REQUEST_TIMED_OUT:
                self.when_durable(on_durable)
            elif not error:
                then()

        self.when_durable(on_durable)

    def write_open(self) -> None:
        """Append and apply what is open, in as few batches as possible."""
        if not self._open:
            return
        writes, self._open = self._open, []
        now_ms = self.node.clock.now_ms()
        size_max = self.partition.log.config.max_message_bytes
        batch: Batch[ChangeT] = Batch(writes[0].producer)
        for write in writes:
            try:
                pairs = [self.encode(change) for change in write.changes]
            except ProtocolError as reason:
                log.warning("%s of %s: %s", self.holds, self.name, reason)
                write.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
                continue
            if write.producer != batch.producer:
                self._append(batch, now_ms)
                batch = Batch(write.producer)
            for number, (change, (key, value)) in enumerate(zip(write.changes, pairs, strict=True)):
                if batch.records and batch.size + size_of(key, value) > size_max:
                    error = self._append(batch, now_ms)
                    batch = Batch(write.producer)
                    if error and number:
                        # Half of this write is lost; the rest must not follow.
                        write.fail(error)
                        break
                batch.add(change, key, value, now_ms)
            else:
                batch.done.append(write)
        self._append(batch, now_ms)

    def _append(self, batch: Batch[ChangeT], now_ms: int) -> ErrorCode:
        if not batch.records:
            return ErrorCode.NONE
        data = batch.build(self._codec)
        try:
            info = self.partition.append(memoryview(data), now_ms, Origin.COORDINATOR)
        except KafkaError as error:
            log.warning("%s of %s: %s", self.holds, self.name, error)
            for write in batch.done:
                write.fail(error.code)
            return error.code
        for change in batch.changes:
            self.replay(change, batch.producer)
        self.end_offset = info.last_offset + 1
        for write in batch.done:
            if write.on_durable is not None:
                self.when_durable(write.on_durable)
        return ErrorCode.NONE

    def now(self) -> Now:
        """The time, on both of the broker's clocks."""
        clock = self.node.clock
        return Now(clock.now_ms(), clock.monotonic_ms())

    def set_timer(
        self, key: Hashable, delay_ms: int | None, timers: Timers, fire: Callable[[], None]
    ) -> None:
        """Replace the timer of a key, or (no delay) cancel it."""
        earlier = self._timers.pop(key, None)
        if earlier is not None:
            earlier.cancel()
        if delay_ms is not None:

            def fired() -> None:
                self._timers.pop(key, None)
                fire()

            self._timers[key] = timers.call_later(delay_ms, fired)

    async def load(self) -> None:
        """Replay the log, then start serving; the loop is not blocked meanwhile."""
        try:
            loader = await self._read_log()
        except (KafkaError, OSError) as error:
            self.is_lost = True
            log.error("cannot load the %s of %s: %s", self.holds, self.name, error)
            return
        malformed = self.restore(loader)
        if malformed:
            log.warning("%d malformed records of %s were skipped", malformed, self.name)
        self.end_offset = self.partition.log.end_offset
        self.is_loaded = True
        self.resume()

    async def _read_log(self) -> Loader:
        loader = Loader()
        partition_log = self.partition.log
        offset = partition_log.start_offset
        while offset < partition_log.end_offset:
            try:
                piece = partition_log.read(
                    offset, self.load_bytes, limit=partition_log.end_offset, wait=False
                )
            except ColdRead as cold:
                await self.node.run_read(cold.warm)
                continue
            if piece is None:
                break
            # It was just found in the page cache, but for a rare eviction in between.
            data = piece.read_nowait()
            if data is None:
                data = await self.node.run_read(piece.read)
            next_offset = loader.feed(data)
            if next_offset is None:
                break
            await asyncio.sleep(0)  # let other work run
            offset = next_offset
        return loader

    def unload(self) -> None:
        """Stop serving: waiting clients are told to look for the coordinator again."""
        self.is_loaded = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        writes, self._open = self._open, []
        for write in writes:
            write.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.dismiss()


def size_of(key: bytes, value: bytes | None) -> int:
    """An upper bound of a record's size."""
    return RECORD_OVERHEAD_BYTES + len(key) + (0 if value is None else len(value))
