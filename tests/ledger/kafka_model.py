"""A model of Kafka's topics and transactions: offsets, fencing, read_committed, compaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from headrace.ledger.machine import Headers


class Outcome(Enum):
    """What became of a transaction."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


class Fenced(Exception):
    """Another producer has taken the transactional id."""


@dataclass(eq=False)
class Transaction:
    """What a producer writes together."""

    outcome: Outcome = Outcome.OPEN


@dataclass(frozen=True)
class Record:
    """One record of a log; without a transaction it is there at once."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    at_ms: int = 0
    transaction: Transaction | None = None

    @property
    def outcome(self) -> Outcome:
        return Outcome.COMMITTED if self.transaction is None else self.transaction.outcome


@dataclass
class Log:
    """One partition."""

    records: list[Record] = field(default_factory=list)
    end: int = 0

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        at_ms: int = 0,
        transaction: Transaction | None = None,
    ) -> Record:
        record = Record(self.end, key, value, headers, at_ms, transaction)
        self.records.append(record)
        self.end += 1
        return record

    def mark(self) -> None:
        """The marker of a transaction takes an offset, too."""
        self.end += 1

    @property
    def stable_end(self) -> int:
        """The last stable offset."""
        for record in self.records:
            if record.outcome is Outcome.OPEN:
                return record.offset
        return self.end

    def committed(self, position: int = 0) -> Iterator[Record]:
        """What a reader with `read_committed` gets."""
        stable_end = self.stable_end
        for record in self.records:
            if record.offset >= stable_end:
                return
            if record.offset >= position and record.outcome is Outcome.COMMITTED:
                yield record

    def compact(self) -> None:
        """Keep the newest of each key, and no deletions, of what is stable."""
        stable_end = self.stable_end
        newest: dict[bytes | None, int] = {}
        for record in self.records:
            if record.offset < stable_end and record.outcome is Outcome.COMMITTED:
                newest[record.key] = record.offset
        self.records = [
            record
            for record in self.records
            if record.offset >= stable_end
            or (newest.get(record.key) == record.offset and record.value is not None)
        ]


class Kafka:
    """Topics by name and partition, transactional ids with their epochs, committed offsets."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], Log] = {}
        self.offsets: dict[tuple[str, int], int] = {}
        self._epochs: dict[str, int] = {}
        self._open: dict[str, Producer] = {}

    def log(self, topic: str, partition: int = 0) -> Log:
        return self.logs.setdefault((topic, partition), Log())

    def producer(self, transactional_id: str) -> Producer:
        """InitProducerId: fences the previous producer and aborts its open transaction."""
        old = self._open.pop(transactional_id, None)
        if old is not None:
            old.finish(Outcome.ABORTED)
        epoch = self._epochs[transactional_id] = self._epochs.get(transactional_id, 0) + 1
        return Producer(self, transactional_id, epoch)

    def check(self, producer: Producer) -> None:
        if self._epochs[producer.id] != producer.epoch:
            raise Fenced(producer.id)

    def opened(self, producer: Producer) -> None:
        self._open[producer.id] = producer

    def ended(self, producer: Producer) -> None:
        self._open.pop(producer.id, None)


class Producer:
    """A transactional producer."""

    def __init__(self, kafka: Kafka, id: str, epoch: int) -> None:
        self.id = id
        self.epoch = epoch
        self._kafka = kafka
        self._transaction: Transaction | None = None
        self._logs: list[Log] = []
        self._offsets: dict[tuple[str, int], int] = {}

    def begin(self) -> None:
        self._kafka.check(self)
        self._transaction = Transaction()
        self._logs, self._offsets = [], {}
        self._kafka.opened(self)

    def send(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        at_ms: int = 0,
    ) -> None:
        self._kafka.check(self)
        log = self._kafka.log(topic, partition)
        log.append(key, value, headers, at_ms, self._transaction)
        if log not in self._logs:
            self._logs.append(log)

    def send_offset(self, topic: str, partition: int, offset: int) -> None:
        self._kafka.check(self)
        self._offsets[topic, partition] = offset

    def commit(self) -> None:
        self._kafka.check(self)
        self._kafka.ended(self)
        self.finish(Outcome.COMMITTED)

    def abort(self) -> None:
        self._kafka.check(self)
        self._kafka.ended(self)
        self.finish(Outcome.ABORTED)

    def finish(self, outcome: Outcome) -> None:
        """As the coordinator does it."""
        assert self._transaction is not None
        self._transaction.outcome = outcome
        if outcome is Outcome.COMMITTED:
            self._kafka.offsets.update(self._offsets)
        for log in self._logs:
            log.mark()
