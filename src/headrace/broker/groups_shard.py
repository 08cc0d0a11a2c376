"""One partition of `__consumer_offsets` and the coordinator that lives in it.

The coordinator computes, the shard carries out, in this order and with these promises:

1. A result's records are appended to the log, and replayed as soon as the write was accepted. So
   state changes in the order of the log, and a write that fails (a full disk) changes nothing.
2. Commits that arrive together share one batch: they wait in `_open` until the end of the loop's
   turn. Whatever reads or removes offsets has them written first, and a generation that is stored
   goes behind them.
3. A reply leaves when everything that was applied before it is durable. So nobody acts on a share,
   an offset or a deletion that a crash could take back, while the next request may already be
   computed on top of it: it is behind it in the log, and is itself not answered before.
4. Heartbeats, joins that store nothing, and descriptions for administrators are answered at once.
   They tell only what lives in memory; a crash takes it back anyway, and heartbeats must not wait
   for a slow disk.
5. A sync that fails takes the log offline. Then the memory may be ahead of the disk, and all that
   is left to say is NOT_COORDINATOR.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.pending import Pending
from headrace.broker.purgatory import Waiting
from headrace.coordinator.coordinator import GroupCoordinator
from headrace.coordinator.effects import Now, Reply, Result, Timer, TimerKey, TimerKind
from headrace.coordinator.loading import Loader
from headrace.coordinator.records import Change, encode
from headrace.coordinator.refusals import refused
from headrace.protocol.api.sync_group import SyncGroupResponse
from headrace.protocol.batch import HEADER_BYTES, build_batch
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.primitives import ProtocolError
from headrace.protocol.records import Record
from headrace.storage import Origin
from headrace.storage.reading import ColdRead
from headrace.timing.wheel import Entry

if TYPE_CHECKING:
    from headrace.broker.groups import GroupService
    from headrace.broker.partition import Partition

# The most that a record can take beside its key and value: lengths, deltas and attributes.
RECORD_OVERHEAD_BYTES = 24
# What is read of a log at a time while it is loaded: some milliseconds of the loop's time.
LOAD_BYTES = 256 * 1024

log = logging.getLogger(__name__)


class Flight(Waiting):
    """What waits until the log is durable up to an offset."""

    __slots__ = ("_shard", "end_offset", "landings")

    def __init__(self, shard: Shard, end_offset: int) -> None:
        super().__init__()
        self._shard = shard
        self.end_offset = end_offset
        # Called with NONE, or with what went wrong.
        self.landings: list[Callable[[ErrorCode], None]] = []

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
        self._shard.flights.remove(self)
        for landing in self.landings:
            landing(error)
        if self._shard.partition.error:
            self._shard.unload()


class Batch:
    """Records that go to the log in one write, and the results that are complete with them."""

    __slots__ = ("changes", "done", "records", "size")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.records: list[Record] = []
        self.done: list[Result] = []
        self.size = HEADER_BYTES

    def add(self, change: Change, key: bytes, value: bytes | None, now_ms: int) -> None:
        """Add one record."""
        self.records.append(Record(len(self.records), now_ms, key, value))
        self.changes.append(change)
        self.size += size_of(key, value)


class Shard:
    """The coordinator of one partition, with its log, its timers and its waiting replies."""

    def __init__(
        self, service: GroupService, partition: Partition, coordinator: GroupCoordinator
    ) -> None:
        self._service = service
        self._node = service.node
        self.partition = partition
        self.coordinator = coordinator
        self.is_loaded = False
        # Set when the log could not be read: then nothing is known of its groups.
        self.is_lost = False
        self.flights: deque[Flight] = deque()
        # Where the log ended after the last write.
        self._end_offset = 0
        self._open: list[Result] = []
        self._timers: dict[TimerKey, Entry[Callable[[], None]]] = {}

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
        return self.partition.log.high_watermark >= self._end_offset

    # Effects.

    def carry_out(self, result: Result) -> None:
        """Store, apply and answer, in the order that is written above."""
        self._set_timers(result.timers)
        self._service.note(result.rebalances)
        if result.records:
            self._open.append(result)
            self.write_open()
        else:
            for reply in result.replies:
                if isinstance(reply.response, SyncGroupResponse) and not reply.response.error_code:
                    self._reply_when_durable([reply])
                else:
                    resolve(reply, ErrorCode.NONE)

    def carry_out_soon(self, result: Result) -> None:
        """Do the same for a commit, together with others that arrive in this turn of the loop."""
        if not result.records:
            self.carry_out(result)
            return
        if not self._open:
            self._node.loop.call_soon(self.write_open)
        self._open.append(result)

    def when_durable(self, landing: Callable[[ErrorCode], None]) -> None:
        """Call `landing` once all that is applied now is durable, or with what went wrong."""
        if self.is_durable:
            landing(ErrorCode.NONE)
            return
        if self.flights and self.flights[-1].end_offset == self._end_offset:
            self.flights[-1].landings.append(landing)
            return
        flight = Flight(self, self._end_offset)
        flight.landings.append(landing)
        self.flights.append(flight)
        timeout_ms = self._service.commit_timeout_ms
        self._node.produces.park(flight, (self.partition,), timeout_ms)
        # It may land at once: another sync may have covered it that is only now being told.
        self.partition.sync()

    def write_open(self) -> None:
        """Append and replay what is open, in as few batches as the log takes."""
        if not self._open:
            return
        results, self._open = self._open, []
        now_ms = self._node.clock.now_ms()
        size_max = self.partition.log.config.max_message_bytes
        batch = Batch()
        for result in results:
            try:
                pairs = [encode(change) for change in result.records]
            except ProtocolError as reason:
                log.warning("groups of %s: %s", self.name, reason)
                refuse(result, ErrorCode.UNKNOWN_SERVER_ERROR)
                continue
            for number, (change, (key, value)) in enumerate(
                zip(result.records, pairs, strict=True)
            ):
                if batch.records and batch.size + size_of(key, value) > size_max:
                    error = self._write(batch, now_ms)
                    batch = Batch()
                    if error and number:
                        # Half of this result is lost; the other half must not follow.
                        refuse(result, error)
                        break
                batch.add(change, key, value, now_ms)
            else:
                batch.done.append(result)
        self._write(batch, now_ms)

    def _write(self, batch: Batch, now_ms: int) -> ErrorCode:
        if not batch.records:
            return ErrorCode.NONE
        data = build_batch(batch.records, codec=self._service.codec)
        try:
            info = self.partition.append(memoryview(data), now_ms, Origin.COORDINATOR)
        except KafkaError as error:
            log.warning("groups of %s: %s", self.name, error)
            for result in batch.done:
                refuse(result, error.code)
            return error.code
        for change in batch.changes:
            self.coordinator.replay(change)
        self._end_offset = info.last_offset + 1
        for result in batch.done:
            self._reply_when_durable(result.replies)
        return ErrorCode.NONE

    def _reply_when_durable(self, replies: list[Reply]) -> None:
        def landing(error: ErrorCode) -> None:
            for reply in replies:
                resolve(reply, error)

        if replies:
            self.when_durable(landing)

    # Time.

    def now(self) -> Now:
        """The time, on both of the broker's clocks."""
        clock = self._node.clock
        return Now(clock.now_ms(), clock.monotonic_ms())

    def _set_timers(self, timers: list[Timer]) -> None:
        for key, delay_ms in timers:
            earlier = self._timers.pop(key, None)
            if earlier is not None:
                earlier.cancel()
            if delay_ms is not None:
                # Sessions follow the broker's clock, which tests move; rebalances stay real, so
                # that real clients are not kept waiting.
                node = self._node
                timers_of = node.timers if key.kind is TimerKind.SESSION else node.real_timers
                self._timers[key] = timers_of.call_later(delay_ms, partial(self._ring, key))

    def _ring(self, key: TimerKey) -> None:
        self._timers.pop(key, None)
        self.carry_out(self.coordinator.on_timer(key, self.now()))

    def expire_offsets(self) -> None:
        """Remove what is past its retention."""
        self.write_open()
        for result in self.coordinator.expire(self.now()):
            self.carry_out(result)

    # Life.

    async def load(self) -> None:
        """Replay the log, then begin to serve; the loop is not held up by it."""
        try:
            loader = await self._read_log()
        except (KafkaError, OSError) as error:
            self.is_lost = True
            log.error("the groups of %s cannot be loaded: %s", self.name, error)
            return
        malformed = loader.replay_into(self.coordinator)
        if malformed:
            log.warning("%d records of %s make no sense and were skipped", malformed, self.name)
        self._end_offset = self.partition.log.end_offset
        self.is_loaded = True
        self.carry_out(self.coordinator.resume(self.now()))

    async def _read_log(self) -> Loader:
        loader = Loader()
        partition_log = self.partition.log
        offset = partition_log.start_offset
        while offset < partition_log.end_offset:
            try:
                piece = partition_log.read(
                    offset, LOAD_BYTES, upto=partition_log.end_offset, wait=False
                )
            except ColdRead as cold:
                await self._node.run_read(cold.warm)
                continue
            if piece is None:
                break
            next_offset = loader.feed(await self._node.run_read(piece.read))
            if next_offset is None:
                break
            offset = next_offset
        return loader

    def unload(self) -> None:
        """Stop to serve: whoever waits is sent to look for the coordinator again."""
        self.is_loaded = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        results, self._open = self._open, []
        for result in results:
            refuse(result, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for reply in self.coordinator.unload(ErrorCode.NOT_COORDINATOR).replies:
            resolve(reply, ErrorCode.NONE)

    @property
    def name(self) -> str:
        """The partition's name, for logs."""
        return f"{self.partition.topic}-{self.partition.index}"


def size_of(key: bytes, value: bytes | None) -> int:
    """An upper bound of a record's size."""
    return RECORD_OVERHEAD_BYTES + len(key) + (0 if value is None else len(value))


def resolve(reply: Reply, log_error: ErrorCode) -> None:
    """Answer whoever waits; with a refusal if the log failed them."""
    assert isinstance(reply.token, Pending)
    try:
        reply.token.resolve(refused(reply.response, log_error) if log_error else reply.response)
    except Exception:
        # One answer that cannot be sent must not keep the others from theirs.
        log.exception("an answer of a group could not be sent")


def refuse(result: Result, log_error: ErrorCode) -> None:
    """Refuse everything that a result would have answered."""
    for reply in result.replies:
        resolve(reply, log_error)
