"""A node's two consumers: of the work topic in a group, and of TOPIC.done for its own outcomes.

Each polls in a thread of its own that never waits for jobs or for the token store, and starts
again when the brokers fail.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaException

from headrace.client.consumer.consumer import Consumer
from headrace.client.errors import CommitFailed
from headrace.client.message import ConsumedRecord
from headrace.dispatch.records import Outcome, parse_outcome
from headrace.dispatch.topic_admin import TopicAdmin

RESTART_SECONDS = 0.5

WORK_POLL_RECORDS = 500
WORK_POLL_SECONDS = 0.05
COMMIT_SECONDS = 0.2
# How long a revocation waits for outcomes that are being written, so that the commit covers them.
FLUSH_SECONDS = 1.0

# There are few jobs at a time, and each should arrive soon.
WORK_SETTINGS = {
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "cooperative-sticky",
    # Until the group misses a dead node, jobs are still sent to its idle partitions.
    "session.timeout.ms": 10_000,
    "queued.min.messages": 100,
    "fetch.error.backoff.ms": 50,
}

DONE_POLL_RECORDS = 1000
DONE_POLL_SECONDS = 0.2
# How often TOPIC.done is checked for new partitions.
GROWTH_SECONDS = 10.0
# How long a first job waits for the brokers to say where TOPIC.done ends.
PLACE_SECONDS = 2.0

DONE_SETTINGS = {
    "auto.offset.reset": "earliest",
    "fetch.error.backoff.ms": 50,
    # The library would wait for a second before it fills a full queue again.
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 16_384,
}

_METADATA_MAGIC = b"CGMDv2:"
_GENERATION = struct.Struct("=i")

_log = logging.getLogger("headrace.dispatch")


class _RestartingThread(ABC):
    """A thread that runs `_read` until it is stopped, and again after every error."""

    def __init__(self, topic: str, name: str) -> None:
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def stop(self) -> None:
        """Stop; returns when the thread has ended."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read()
            except (KafkaException, OSError) as error:
                _log.warning("the consumer of %s starts again: %s", self._topic, error)
                self._stopping.wait(RESTART_SECONDS)
            except Exception:
                _log.exception("the consumer of %s starts again", self._topic)
                self._stopping.wait(RESTART_SECONDS)

    @abstractmethod
    def _read(self) -> None:
        """Read until `_stopping` is set, or raise an error."""


class AssignedPartition(NamedTuple):
    """A partition that was assigned: in which generation, from where, and where its log ends."""

    partition: int
    epoch: int
    next_offset: int
    end_offset: int


class ConsumerOrders(NamedTuple):
    """What only the polling thread may do: commits that are waited for, and seeks."""

    claims: dict[int, int]
    seeks: dict[int, int]


class PartitionOwner(Protocol):
    """The owner service, as the consumer of the work topic sees it."""

    def assigned(self, assigned: Sequence[AssignedPartition]) -> None: ...

    def revoked(self, partitions: Sequence[int]) -> None: ...

    def records(self, records: Sequence[ConsumedRecord]) -> None: ...

    def flush(self, timeout_s: float) -> None: ...

    def take_orders(self) -> ConsumerOrders | None: ...

    def take_commits(self, partitions: Sequence[int] | None = None) -> dict[int, int]: ...

    def restore_commits(self, commits: Mapping[int, int]) -> None: ...

    def claimed(self, partition: int) -> None: ...


class WorkConsumer(_RestartingThread):
    """A member of the workers' group; passes assignments and records to the owner."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        group: str,
        admin: TopicAdmin,
        owner: PartitionOwner,
    ) -> None:
        super().__init__(topic, "headrace-dispatch")
        self.ready = threading.Event()
        self.owned: set[int] = set()
        self._settings = {**WORK_SETTINGS, **settings, "enable.auto.commit": False}
        if str(settings.get("group.protocol")).lower() == "consumer":
            del self._settings["partition.assignment.strategy"]
            if "session.timeout.ms" not in settings:
                # The brokers decide it.
                del self._settings["session.timeout.ms"]
        self._group = group
        self._admin = admin
        self._owner = owner
        self._consumer: Consumer | None = None

    def start(self) -> None:
        """Join the group; `stop` leaves it."""
        self._thread.start()

    def _read(self) -> None:
        consumer = Consumer(self._settings, group=self._group, start="latest")
        self._consumer = consumer
        commit_at_s = 0.0
        try:
            consumer.subscribe(
                self._topic,
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._lost,
            )
            while not self._stopping.is_set():
                records = consumer.poll_batch(WORK_POLL_RECORDS, WORK_POLL_SECONDS)
                if records:
                    self._owner.records(records)
                # An accepted claim orders a seek, and nothing may be read before it.
                while (orders := self._owner.take_orders()) is not None:
                    self._obey(consumer, orders)
                now_s = time.monotonic()
                if now_s >= commit_at_s:
                    commit_at_s = now_s + COMMIT_SECONDS
                    self._commit(consumer)
        finally:
            try:
                consumer.close()
            finally:
                self._consumer = None
                # A consumer that failed does not call `on_lost`.
                self._leave(sorted(self.owned))

    def _assigned(self, partitions: list[Any]) -> None:
        consumer = self._consumer
        if not partitions or consumer is None:
            self.ready.set()
            return
        epoch = generation(consumer.group_metadata())
        if epoch < 0:
            # The library forgets it when the group has gone on without this member.
            raise OSError(f"the group {self._group} has removed this member")
        ends = self._admin.ends(self._topic, [it.partition for it in partitions])
        starts = {it.partition: it.offset for it in partitions}
        if any(offset < 0 for offset in starts.values()):
            oldest = self._admin.oldest(self._topic, starts)
            starts = {p: oldest[p] if offset < 0 else offset for p, offset in starts.items()}
        self.owned |= starts.keys()
        self._owner.assigned(
            [
                AssignedPartition(p, epoch, offset, max(ends[p], offset))
                for p, offset in starts.items()
            ]
        )
        self.ready.set()

    def _revoked(self, partitions: list[Any]) -> None:
        numbers = [it.partition for it in partitions]
        self._owner.flush(FLUSH_SECONDS)
        commits = self._owner.take_commits(numbers)
        self._leave(numbers)
        if commits and self._consumer is not None:
            try:
                self._consumer.commit_sync(self._offsets(commits))
            except CommitFailed as error:
                _log.info("%s", error)

    def _lost(self, partitions: list[Any]) -> None:
        self._leave([it.partition for it in partitions])

    def _leave(self, numbers: list[int]) -> None:
        self.owned -= set(numbers)
        self._owner.revoked(numbers)

    def _obey(self, consumer: Consumer, orders: ConsumerOrders) -> None:
        for partition, offset in orders.seeks.items():
            if partition in self.owned:
                consumer.seek(self._topic, partition, offset)
        for partition, next_offset in orders.claims.items():
            if partition not in self.owned:
                continue
            try:
                consumer.commit_sync({(self._topic, partition): next_offset})
            except CommitFailed as error:
                _log.info("%s", error)
            else:
                self._owner.claimed(partition)

    def _commit(self, consumer: Consumer) -> None:
        commits = {p: at for p, at in self._owner.take_commits().items() if p in self.owned}
        if not commits:
            return

        def answered(error: CommitFailed | None, _partitions: list[Any]) -> None:
            if error is not None:
                _log.info("%s", error)
                self._owner.restore_commits(commits)

        consumer.commit_async(self._offsets(commits), answered)

    def _offsets(self, offsets: Mapping[int, int]) -> dict[tuple[str, int], int]:
        return {(self._topic, partition): at for partition, at in offsets.items()}


def generation(metadata: bytes) -> int:
    """The group's generation (KIP-848: the member's epoch) from the library's own encoding."""
    if not metadata.startswith(_METADATA_MAGIC):
        raise RuntimeError(
            f"this version of the client library encodes its group as {metadata[:16]!r}, which "
            "is not known"
        )
    (found,) = _GENERATION.unpack_from(metadata, len(_METADATA_MAGIC))
    return int(found)


# The outcomes of own jobs, and how far TOPIC.done has been read.
OnOutcomes = Callable[[Sequence[Outcome], Mapping[int, int]], None]


class DoneReader(_RestartingThread):
    """Reads all of TOPIC.done and passes on the outcomes of the jobs in `mine`."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        admin: TopicAdmin,
        *,
        mine: Container[str],
        on_outcomes: OnOutcomes,
    ) -> None:
        super().__init__(topic, "headrace-done")
        self.position: dict[int, int] = {}
        self._settings = {**DONE_SETTINGS, **settings}
        self._admin = admin
        self._mine = mine
        self._on_outcomes = on_outcomes
        self._rewound = threading.Event()
        self._lock = threading.Lock()
        self._is_placed = threading.Event()

    def place(self, known: Mapping[int, int]) -> None:
        """Begin where it stopped reading, or else at the end; nothing may be sent before."""
        count = self._admin.partitions(self._topic)
        unknown = [number for number in range(count) if number not in known]
        # A partition that was added since the last time has to be read from its beginning.
        ends = dict.fromkeys(unknown, 0) if known else self._admin.ends(self._topic, unknown)
        self.position = {**ends, **known}

    def start(self, *, at_end: bool = False) -> bool:
        """Start to read; False if it was started before. Later outcomes are not missed.

        With `at_end`, what was written before is skipped, if the brokers say in time where the
        topic ends.
        """
        if self._thread.ident is not None:
            return False
        if not at_end:
            self._is_placed.set()
        self._thread.start()
        self._is_placed.wait(PLACE_SECONDS)
        with self._lock:
            self._is_placed.set()
        return True

    def rewind(self, offsets: Mapping[int, int]) -> None:
        """Read again from further back, for jobs that were taken over."""
        with self._lock:
            for partition, offset in offsets.items():
                self.position[partition] = min(offset, self.position.get(partition, offset))
            self._rewound.set()

    def _skip_to_end(self) -> None:
        try:
            ends = self._admin.ends(self._topic, list(self.position))
        except (KafkaException, OSError) as error:
            _log.info("%s is read from where this node started: %s", self._topic, error)
            ends = {}
        with self._lock:
            # Once `start` has returned, something may have been sent already.
            if not self._is_placed.is_set() and not self._rewound.is_set():
                self.position.update(ends)
            self._is_placed.set()

    def _read(self) -> None:
        if not self._is_placed.is_set():
            self._skip_to_end()
        self._rewound.clear()
        with Consumer(self._settings, start="earliest") as consumer:
            consumer.assign([(self._topic, *at) for at in self.position.items()])
            check_at_s = time.monotonic() + GROWTH_SECONDS
            while not self._stopping.is_set() and not self._rewound.is_set():
                records = consumer.poll_batch(DONE_POLL_RECORDS, DONE_POLL_SECONDS)
                if records:
                    self._pass_on(records)
                if time.monotonic() >= check_at_s:
                    check_at_s = time.monotonic() + GROWTH_SECONDS
                    new = range(len(self.position), self._admin.partitions(self._topic))
                    if new:
                        self.rewind(dict.fromkeys(new, 0))

    def _pass_on(self, records: Sequence[ConsumedRecord]) -> None:
        position = dict(self.position)
        for record in records:
            position[record.partition()] = record.offset() + 1
        self._on_outcomes(outcomes_of(records, self._mine), position)
        with self._lock:
            if not self._rewound.is_set():
                self.position = position


def outcomes_of(records: Sequence[ConsumedRecord], ids: Container[str]) -> list[Outcome]:
    """The outcomes of these jobs among records of TOPIC.done; others are not decoded."""
    found: list[Outcome] = []
    for record in records:
        key = record.key()
        if key is not None and key.decode("utf-8", "replace") in ids:
            outcome = parse_outcome(key, record.value(), record.headers())
            if outcome is not None:
                found.append(outcome)
    return found
