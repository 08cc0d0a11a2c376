"""One partition of a coordinator's topic: its log, its timers, and who waits for it to be durable.

A coordinator computes, its shard carries out, in this order and with these promises:

1. Records are appended to the log, and replayed as soon as the write was accepted. So state changes
   in the order of the log, and a write that fails (a full disk) changes nothing.
2. Writes that arrive together may share one batch: they wait in `_open` until the end of the loop's
   turn. Whatever reads or removes what they are about has them written first, and what is written
   at once goes behind them.
3. Whoever waits with `when_durable` is called when everything that was applied before is durable.
   So nobody acts on what a crash could take back, while the next request may already be computed
   on top of it: it is behind it in the log, and is itself not answered before.
4. A sync that fails takes the log offline. Then the memory may be ahead of the disk, and all that
   is left to say is NOT_COORDINATOR.
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

# The most that a record can take beside its key and value: lengths, deltas and attributes.
RECORD_OVERHEAD_BYTES = 24
# Some milliseconds of the loop's time to take in.
LOAD_BYTES = 256 * 1024

# Called with NONE once something is durable, or with what went wrong.
Landing = Callable[[ErrorCode], None]
ChangeT = TypeVar("ChangeT")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Write(Generic[ChangeT]):
    """Records that belong together, and who waits until they are durable, if anybody."""

    changes: Sequence[ChangeT]
    landing: Landing | None = None
    # Whose transaction they are part of; such records share a batch with nobody else's.
    producer: ProducerEpoch | None = None
    # Set when they could not be appended; then nothing of them counts.
    error: ErrorCode = ErrorCode.NONE

    def fail(self, error: ErrorCode) -> None:
        """They could not be appended."""
        self.error = error
        if self.landing is not None:
            self.landing(error)


class Flight(Waiting):
    """What waits until the log is durable up to an offset."""

    __slots__ = ("_shard", "end_offset", "landings")

    def __init__(self, shard: Shard[ChangeT], end_offset: int) -> None:
        super().__init__()
        self._shard = shard
        self.end_offset = end_offset
        self.landings: list[Landing] = []

    def try_complete(self) -> bool:
        partition = self._shard.partition
        durable = partition.log.high_watermark >= self.end_offset
        if durable or partition.error:
            self._land(ErrorCode.NONE if durable else partition.error)
            return True
        return False

    def expire(self) -> None:
        self._land(ErrorCode.REQUEST_TIMED_OUT)

    def _land(self, error: ErrorCode) -> None:
        if self in self._shard.flights:
            self._shard.flights.remove(self)
        # What these set off may write to the same log, and wake it.
        landings, self.landings = self.landings, []
        for landing in landings:
            landing(error)
        if self._shard.partition.error:
            self._shard.unload()


class Batch(Generic[ChangeT]):
    """Records that go to the log in one write, and the writes that are complete with them."""

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
    """The log of one partition of a coordinator, with its timers and its waiting replies."""

    # What the shard keeps, for logs.
    holds = ""
    # How much of the log is read at a time while it is loaded.
    load_bytes = LOAD_BYTES

    def __init__(self, node: Node, partition: Partition, codec: int, timeout_ms: int) -> None:
        self.node = node
        self.partition = partition
        self.is_loaded = False
        # Set when the log could not be read: then nothing is known of what it holds.
        self.is_lost = False
        self.flights: deque[Flight] = deque()
        # Where the log ended after the last write.
        self.end_offset = 0
        self._codec = codec
        self._timeout_ms = timeout_ms
        self._open: list[Write[ChangeT]] = []
        self._timers: dict[Hashable, Timer[Callable[[], None]]] = {}

    # What each kind of coordinator adds.

    @abstractmethod
    def encode(self, change: ChangeT) -> tuple[bytes, bytes | None]:
        """The key and the value of a change's record."""

    @abstractmethod
    def replay(self, change: ChangeT, producer: ProducerEpoch | None) -> None:
        """Have the coordinator take over a record that is in the log."""

    @abstractmethod
    def restore(self, loader: Loader) -> int:
        """Have the coordinator take over a whole log; returns how many records made no sense."""

    @abstractmethod
    def resume(self) -> None:
        """Begin to serve what was loaded."""

    @abstractmethod
    def expire(self) -> None:
        """Remove what has outlived its time."""

    @abstractmethod
    def dismiss(self) -> None:
        """Answer whoever waits for the coordinator itself; the shard serves no more."""

    # State.

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
        """Whether a crash now would take nothing back."""
        return self.partition.log.high_watermark >= self.end_offset

    @property
    def name(self) -> str:
        """The partition's name, for logs."""
        return f"{self.partition.topic}-{self.partition.index}"

    # Writes.

    def write(self, write: Write[ChangeT]) -> None:
        """Append and replay at once, behind what is open; `write.error` says how it went."""
        self._open.append(write)
        self.write_open()

    def write_soon(self, write: Write[ChangeT]) -> None:
        """Do the same at the end of the loop's turn, together with others that arrive in it."""
        if not self._open:
            self.node.loop.call_soon(self.write_open)
        self._open.append(write)

    def when_durable(self, landing: Landing) -> None:
        """Call `landing` once all that is applied now is durable, or with what went wrong."""
        if self.is_durable:
            landing(ErrorCode.NONE)
            return
        if self.flights and self.flights[-1].end_offset == self.end_offset:
            self.flights[-1].landings.append(landing)
            return
        flight = Flight(self, self.end_offset)
        flight.landings.append(landing)
        self.flights.append(flight)
        self.node.produces.park(flight, (self.partition,), self._timeout_ms)
        # It may land at once: another sync may have covered it that is only now being told.
        self.partition.sync()

    def when_surely_durable(self, then: Callable[[], None]) -> None:
        """Call `then` once all that is applied now is durable, however slow the disk.

        Never, if the disk fails: then a restart finds out.
        """

        def landing(error: ErrorCode) -> None:
            if error is ErrorCode.REQUEST_TIMED_OUT:
                self.when_durable(landing)
            elif not error:
                then()

        self.when_durable(landing)

    def write_open(self) -> None:
        """Append and replay what is open, in as few batches as the log takes."""
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
                        # Half of this write is lost; the other half must not follow.
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
            if write.landing is not None:
                self.when_durable(write.landing)
        return ErrorCode.NONE

    # Time.

    def now(self) -> Now:
        """The time, on both of the broker's clocks."""
        clock = self.node.clock
        return Now(clock.now_ms(), clock.monotonic_ms())

    def set_timer(
        self, key: Hashable, delay_ms: int | None, timers: Timers, ring: Callable[[], None]
    ) -> None:
        """Set the timer of a key anew, or (no delay) call it off."""
        earlier = self._timers.pop(key, None)
        if earlier is not None:
            earlier.cancel()
        if delay_ms is not None:

            def rung() -> None:
                self._timers.pop(key, None)
                ring()

            self._timers[key] = timers.call_later(delay_ms, rung)

    # Life.

    async def load(self) -> None:
        """Replay the log, then begin to serve; the loop is not held up by it."""
        try:
            loader = await self._read_log()
        except (KafkaError, OSError) as error:
            self.is_lost = True
            log.error("the %s of %s cannot be loaded: %s", self.holds, self.name, error)
            return
        malformed = self.restore(loader)
        if malformed:
            log.warning("%d records of %s make no sense and were skipped", malformed, self.name)
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
                    offset, self.load_bytes, upto=partition_log.end_offset, wait=False
                )
            except ColdRead as cold:
                await self.node.run_read(cold.warm)
                continue
            if piece is None:
                break
            # What has just been checked is in memory, but for a rare eviction in between.
            data = piece.read_nowait()
            if data is None:
                data = await self.node.run_read(piece.read)
            next_offset = loader.feed(data)
            if next_offset is None:
                break
            await asyncio.sleep(0)  # others have a right to the loop, too
            offset = next_offset
        return loader

    def unload(self) -> None:
        """Stop to serve: whoever waits is sent to look for the coordinator again."""
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
