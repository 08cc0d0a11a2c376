"""Instances of a ledger's service on the model of Kafka, in steps that a crash may come between.

The order of the steps is that of `intake.py` and `owner.py`; the rest is the real code.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError
from tests.ledger.kafka_model import Kafka, Producer

from headrace.client.message import Message
from headrace.ledger.clients import AbortedTransaction, FailedRecord
from headrace.ledger.entries import EntryCache
from headrace.ledger.machine import InvalidCommand, LedgerMachine
from headrace.ledger.records import partition_of, state_key, state_value
from headrace.ledger.state_partition import PlannedTransaction, StatePartition
from headrace.ledger.targets import TargetTopics, handle_abort
from headrace.ledger.topics import ServiceTopics

BATCH = 3

_writers = count(1)

Steps = Iterator[str]


class Clock:
    """The wall clock of everybody here; it may be set back."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000


class Brokers:
    """What brokers say of topics, by name: missing, denied, taking nothing, or not this."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.missing: set[str] = set()
        # Error codes by topic: of each record that is sent there, or of whole transactions.
        self.refusals: dict[str, int] = {}

    def list_topics(self, topic: str | None = None, timeout: float = 0.0) -> Any:
        return SimpleNamespace(topics=self)

    def __contains__(self, topic: str) -> bool:
        return topic not in self.missing

    def __getitem__(self, topic: str) -> Any:
        error = None if topic in self else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(error=error, partitions={})

    def refuse(self, plan: PlannedTransaction) -> AbortedTransaction | None:
        """What a transaction comes to; None if all is taken."""
        bad = [
            FailedRecord(outgoing.topic, tag, KafkaError(self.refusals[outgoing.topic]))
            for tag, (_, action) in enumerate(plan.items)
            for outgoing in action.send
            if outgoing.topic in self.refusals
        ]
        if not bad:
            return None
        # Who is denied a topic is not told which.
        is_told = bad[0].error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED
        return AbortedTransaction(bad[0].error, tuple(bad) if is_told else ())


class Intake:
    """Owner of one partition of the input."""

    def __init__(
        self, kafka: Kafka, machine: LedgerMachine, clock: Clock, partition: int, states: int
    ) -> None:
        self._kafka = kafka
        self._machine = machine
        self._clock = clock
        self._partition = partition
        self._states = states
        self._names = ServiceTopics(machine.name)
        self._producer = kafka.producer(self._names.intake_id(partition))
        self._position = kafka.offsets.get((self._names.input, partition), 0)

    def run(self) -> Steps:
        """Move a few commands into the state; ends when there are none."""
        names = self._names
        log = self._kafka.log(names.input, self._partition)
        records = [*log.committed(self._position)][:BATCH]
        if not records:
            return
        self._producer.begin()
        yield "intake has begun"
        for record in records:
            message = Message(
                names.input,
                self._partition,
                record.offset,
                record.key,
                record.value,
                record.headers,
                record.at_ms,
            )
            entry = self._machine.read(message, self._clock.now_ms)
            if isinstance(entry, InvalidCommand):
                self._producer.send(names.dead_letters, 0, record.key, record.value)
            else:
                state = partition_of(entry.id, self._states)
                key = state_key(entry.id, entry.position)
                self._producer.send(names.state, state, key, state_value(entry))
            yield "intake has sent"
        position = records[-1].offset + 1
        self._producer.send_offset(names.input, self._partition, position)
        yield "intake has sent its offsets"
        self._producer.commit()
        self._position = position
        yield "intake has committed"


class StateOwner:
    """Owner of one partition of the state."""

    def __init__(
        self,
        kafka: Kafka,
        machine: LedgerMachine,
        clock: Clock,
        partition: int,
        brokers: Brokers | None = None,
    ) -> None:
        self._kafka = kafka
        self._clock = clock
        self._partition = partition
        self._names = ServiceTopics(machine.name)
        self._brokers = said = brokers or Brokers()
        self._targets = TargetTopics(said, self._names, lambda: said.now_s)
        self._producer: Producer = kafka.producer(self._names.owner_id(partition))
        self._log = kafka.log(self._names.state, partition)
        self._until = self._log.end
        self._position = 0
        self.state = StatePartition(machine, EntryCache(), next(_writers), clock.now_ms)

    def run(self) -> Steps:
        """Read what is there, and do what is due in one transaction."""
        self._read()
        if self._position < self._until:
            return
        # The clock may be set back while the rest is under way.
        now_ms = self._clock.now_ms
        self.state.retry_waiting(self._targets.must_wait)
        plan = self.state.plan(now_ms, BATCH, self._targets)
        if not plan:
            return
        self._producer.begin()
        yield "owner has begun"
        for outgoing in plan.sends:
            self._producer.send(
                outgoing.topic,
                0,
                outgoing.key,
                outgoing.value,
                outgoing.headers,
                now_ms,
            )
            yield "owner has sent"
        for key, value in plan.writes(self.state.writer):
            self._producer.send(self._names.state, self._partition, key, value)
            yield "owner has written its state"
        failed = self._brokers.refuse(plan)
        if failed is not None:
            self._producer.abort()
            handle_abort(self.state, self._targets, plan, failed, self._names)
            yield "owner has aborted"
            return
        self._producer.commit()
        yield "owner has committed"
        self._targets.accepted(outgoing.topic for outgoing in plan.sends)
        self.state.committed(plan)

    def _read(self) -> None:
        self.state.apply(
            (record.key or b"", record.value) for record in self._log.committed(self._position)
        )
        self._position = max(self._position, self._log.stable_end)
