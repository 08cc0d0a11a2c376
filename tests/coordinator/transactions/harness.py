"""A transaction coordinator with a log in memory and a clock that tests move."""

from __future__ import annotations

from headrace.coordinator.effects import Now
from headrace.coordinator.transactions.coordinator import TransactionCoordinator
from headrace.coordinator.transactions.effects import Ending, Producer, Result, SetTimer
from headrace.coordinator.transactions.records import (
    NO_PRODUCER_ID,
    Transaction,
    TransactionChange,
    decode,
    encode,
)
from headrace.coordinator.transactions.settings import TransactionSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.partitions import TopicPartition

ID = "tx"
P0: TopicPartition = ("t", 0)
P1: TopicPartition = ("t", 1)
TIMEOUT_MS = 10_000
V1, V2 = 0, 2  # what a client says of itself: before, or since KIP-890's second part


class Harness:
    """Requests to one coordinator; every result is carried out unless a test keeps it back."""

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.settings = settings or TransactionSettings()
        self.coordinator = TransactionCoordinator(self.settings)
        self.log: list[TransactionChange] = []
        self.now = Now(1_000_000, 0)
        self.endings: list[Ending] = []
        self.timers: dict[str, int] = {}
        self.next_producer_id = 1_000

    @property
    def known(self) -> Transaction:
        return self.coordinator.transactions[ID]

    @property
    def producer(self) -> Producer:
        """Whom the coordinator takes for the present producer."""
        return Producer(self.known.producer_id, self.known.producer_epoch)

    def carry_out(self, result: Result) -> Result:
        for change in result.records:
            assert decode(*encode(change)) == forgetful(change), "the log keeps what is stored"
            self.log.append(change)
            self.coordinator.replay(change)
        self.endings.extend(result.endings)
        for timer in result.timers:
            self._set(timer)
        return result

    def _set(self, timer: SetTimer) -> None:
        self.timers.pop(timer.transactional_id, None)
        if timer.delay_ms is not None:
            self.timers[timer.transactional_id] = self.now.monotonic_ms + timer.delay_ms

    def new_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    # Steps.

    def init(
        self, expected: Producer | None = None, *, fresh: bool = True, timeout_ms: int = TIMEOUT_MS
    ) -> Result:
        new_id = self.new_id() if fresh else NO_PRODUCER_ID
        return self.carry_out(self.coordinator.init(ID, timeout_ms, expected, new_id, self.now))

    def add(
        self, *partitions: TopicPartition, producer: Producer | None = None, version: int = V1
    ) -> Result:
        who = producer or self.producer
        return self.carry_out(self.coordinator.add(ID, who, partitions, version, self.now))

    def end(
        self,
        committed: bool,
        *,
        producer: Producer | None = None,
        version: int = V1,
        fresh: bool = True,
    ) -> Result:
        new_id = self.new_id() if fresh else NO_PRODUCER_ID
        who = producer or self.producer
        return self.carry_out(self.coordinator.end(ID, who, committed, version, new_id, self.now))

    def settle(self) -> None:
        """Every marker is written."""
        for ending in self.endings:
            self.carry_out(self.coordinator.settled(ending, self.now))
        self.endings.clear()

    def initialized(self) -> Producer:
        """What a new producer, or one that comes back, is given; open transactions are aborted."""
        result = self.init()
        if result.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            self.settle()
            result = self.init()
        assert not result.error
        return result.producer

    def pass_time(self, delay_ms: int) -> None:
        """Move both clocks and ring the timers that are due."""
        self.now = Now(self.now.wall_ms + delay_ms, self.now.monotonic_ms + delay_ms)
        for transactional_id, due_ms in list(self.timers.items()):
            if due_ms <= self.now.monotonic_ms:
                del self.timers[transactional_id]
                self.carry_out(self.coordinator.on_timer(transactional_id, self.now))

    def restart(self) -> None:
        """Lose everything but the log, and load it."""
        self.coordinator = TransactionCoordinator(self.settings)
        self.timers.clear()
        self.endings.clear()
        for change in self.log:
            replayed = decode(*encode(change))
            assert replayed is not None
            self.coordinator.replay(replayed)
        self.carry_out(self.coordinator.resume(self.now))


def forgetful(change: TransactionChange) -> TransactionChange:
    """A change as the log keeps it."""
    if change.transaction is None:
        return change
    return change._replace(transaction=change.transaction._replace(last_producer_epoch=-1))
