"""The consumer of the work topic: it polls without a pause, whatever runs and whoever is away."""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaException

from headrace.client.consumer.consumer import Consumer
from headrace.client.errors import CommitFailed
from headrace.dispatch.cluster import Cluster

POLL_RECORDS = 500
POLL_SECONDS = 0.05
COMMIT_SECONDS = 0.2
RESTART_SECONDS = 0.5
# Outcomes on their way get so long before their partition goes, so that the commit covers them.
FLUSH_SECONDS = 1.0

# Work is little and wanted soon.
SETTINGS = {
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "cooperative-sticky",
    # Until a dead node is missed, its idle tokens go on attracting jobs.
    "session.timeout.ms": 10_000,
    "queued.min.messages": 100,
    "fetch.error.backoff.ms": 50,
}

_METADATA_MAGIC = b"CGMDv2:"
_GENERATION = struct.Struct("=i")

_log = logging.getLogger("headrace.dispatch")


class Given(NamedTuple):
    """A partition that was assigned: in which generation, from where, and where its log ends."""

    partition: int
    epoch: int
    next_offset: int
    end_offset: int


class Orders(NamedTuple):
    """What only the polling thread may do: commits that are waited for, and seeks."""

    claims: dict[int, int]
    seeks: dict[int, int]


class Listener(Protocol):
    """The node, as the consumer sees it."""

    def assigned(self, given: Sequence[Given]) -> None: ...

    def revoked(self, partitions: Sequence[int]) -> None: ...

    def records(self, records: Sequence[Any]) -> None: ...

    def flush(self, timeout_s: float) -> None: ...

    def take_orders(self) -> Orders | None: ...

    def take_commits(self, partitions: Sequence[int] | None = None) -> dict[int, int]: ...

    def restore_commits(self, commits: Mapping[int, int]) -> None: ...

    def claimed(self, partition: int) -> None: ...


class WorkConsumer:
    """A member of the group in a thread of its own; begins anew when the brokers fail."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        group: str,
        cluster: Cluster,
        node: Listener,
    ) -> None:
        self.ready = threading.Event()
        self.owned: set[int] = set()
        self._settings = {**SETTINGS, **settings, "enable.auto.commit": False}
        if str(settings.get("group.protocol")).lower() == "consumer":
            del self._settings["partition.assignment.strategy"]
            if "session.timeout.ms" not in settings:
                # The brokers say it.
                del self._settings["session.timeout.ms"]
        self._topic = topic
        self._group = group
        self._cluster = cluster
        self._node = node
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-dispatch", daemon=True)
        self._consumer: Consumer | None = None

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    def stop(self) -> None:
        """Leave the group; returns when it is left."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._live()
            except (KafkaException, OSError) as error:
                _log.warning("the consumer of %s begins anew: %s", self._topic, error)
                self._stopping.wait(RESTART_SECONDS)
            except Exception:
                _log.exception("the consumer of %s begins anew", self._topic)
                self._stopping.wait(RESTART_SECONDS)

    def _live(self) -> None:
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
                records = consumer.poll_batch(POLL_RECORDS, POLL_SECONDS)
                if records:
                    self._node.records(records)
                # A claim that is accepted orders a seek, without which nothing may be read.
                while (orders := self._node.take_orders()) is not None:
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
                # A consumer that broke does not tell its listener.
                self._leave(sorted(self.owned))

    def _assigned(self, partitions: list[Any]) -> None:
        consumer = self._consumer
        if not partitions or consumer is None:
            self.ready.set()
            return
        epoch = generation(consumer.group_metadata())
        if epoch < 0:
            # The library forgets it when the group has gone on without this member.
            raise OSError(f"the group {self._group} has let this member go")
        ends = self._cluster.ends(self._topic, [it.partition for it in partitions])
        starts = {it.partition: it.offset for it in partitions}
        if any(offset < 0 for offset in starts.values()):
            oldest = self._cluster.oldest(self._topic, starts)
            starts = {p: oldest[p] if offset < 0 else offset for p, offset in starts.items()}
        self.owned |= starts.keys()
        self._node.assigned(
            [Given(p, epoch, offset, max(ends[p], offset)) for p, offset in starts.items()]
        )
        self.ready.set()

    def _revoked(self, partitions: list[Any]) -> None:
        numbers = [it.partition for it in partitions]
        self._node.flush(FLUSH_SECONDS)
        commits = self._node.take_commits(numbers)
        self._leave(numbers)
        if commits and self._consumer is not None:
            try:
                self._consumer.commit_sync(self._places(commits))
            except CommitFailed as error:
                _log.info("%s", error)

    def _lost(self, partitions: list[Any]) -> None:
        self._leave([it.partition for it in partitions])

    def _leave(self, numbers: list[int]) -> None:
        self.owned -= set(numbers)
        self._node.revoked(numbers)

    def _obey(self, consumer: Consumer, orders: Orders) -> None:
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
                self._node.claimed(partition)

    def _commit(self, consumer: Consumer) -> None:
        commits = {p: at for p, at in self._node.take_commits().items() if p in self.owned}
        if not commits:
            return

        def answered(error: CommitFailed | None, _partitions: list[Any]) -> None:
            if error is not None:
                _log.info("%s", error)
                self._node.restore_commits(commits)

        consumer.commit_async(self._places(commits), answered)

    def _places(self, offsets: Mapping[int, int]) -> dict[tuple[str, int], int]:
        return {(self._topic, partition): at for partition, at in offsets.items()}


def generation(metadata: bytes) -> int:
    """The group's generation, or the member's epoch under KIP-848, from the library's own bytes."""
    if not metadata.startswith(_METADATA_MAGIC):
        raise RuntimeError(
            f"the client library describes its group in a new way: {metadata[:16]!r}"
        )
    (found,) = _GENERATION.unpack_from(metadata, len(_METADATA_MAGIC))
    return int(found)
