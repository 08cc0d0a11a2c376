"""Fetches whole record batches of one partition, from one offset to another."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.client.wire.cluster import PAUSE_SECONDS, ClusterClient
from headrace.client.wire.committed import Aborted, PlacedBatch, aborted_in, committed_batches
from headrace.client.wire.connection import BrokerConnection
from headrace.client.wire.errors import GONE, OffsetOutOfRange, refused
from headrace.client.wire.leaders import FETCH_VERSION, Isolation
from headrace.closing import Closing
from headrace.protocol.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headrace.protocol.batch import check_batch, iter_headers
from headrace.protocol.errors import ErrorCode, KafkaError

FETCH_BYTES_MAX = 4 << 20
FETCH_WAIT_MS_MAX = 500
# How many bytes a response may have beside the batches.
AROUND_BYTES = 1 << 16
# How long a leader may send nothing of a readable range before the range is taken to be empty.
SILENCE_SECONDS = 30.0
# How long the cluster may not know a partition before it is taken to be deleted.
GONE_SECONDS = 5.0
BYTES = (bytes, bytearray, memoryview)

_log = logging.getLogger("headrace.client")


class Fetched(NamedTuple):
    """The batches of one response, aborted transactions included; valid until the next one."""

    buffer: memoryview
    batches: list[PlacedBatch]
    aborted: Sequence[Aborted]
    # All records before it have been fetched.
    next_offset: int

    def committed(self) -> Iterator[PlacedBatch]:
        """Checked batches without markers and without those of aborted transactions."""
        return committed_batches(self.buffer, self._checked(), self.aborted)

    def _checked(self) -> Iterator[PlacedBatch]:
        for position, header in self.batches:
            check_batch(self.buffer, position, position + header.size)
            yield position, header


class BatchReader(Closing):
    """Fetches from the leader of a partition; a context manager with a connection of its own.

    It asks again for `timeout_s` while a leader moves or does not answer. The next answer is asked
    for before the last one is given out, so that the broker works while the caller does.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        topic: str,
        partition: int,
        *,
        isolation: Isolation = Isolation.COMMITTED,
        fetch_bytes_max: int = FETCH_BYTES_MAX,
        timeout_s: float = 60.0,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._isolation = isolation
        self._fetch_bytes_max = fetch_bytes_max
        self._timeout_s = timeout_s
        self._wire: BrokerConnection | None = None
        self._room = bytearray(fetch_bytes_max + AROUND_BYTES)
        self._gone_since: float | None = None

    def fetch(self, start: int, end: int) -> Iterator[Fetched]:
        """What holds the offsets from `start` up to, and without, `end`.

        The first and the last batch may reach beyond. OffsetOutOfRange if `start` is not held; a
        KafkaError of one of the codes in GONE if the partition is deleted; a TimeoutError if what
        should be there does not come.
        """
        offset = start
        deadline = time.monotonic() + self._timeout_s
        silent_since: float | None = None
        asked: FetchRequest | None = None
        while offset < end:
            try:
                asked = asked or self._ask(offset)
                data = self._answer(asked)
            except (OSError, KafkaError) as problem:
                asked = None
                self._wait_or_raise(problem, deadline)
                continue
            asked = None
            if data is None:
                continue
            if data.error_code not in GONE:
                self._gone_since = None
            if data.error_code:
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    start_now = data.log_start_offset
                    raise OffsetOutOfRange(self._topic, self._partition, offset, start_now)
                self._wait_or_raise(refused(data.error_code), deadline)
                continue
            records = data.records
            buffer = memoryview(records if isinstance(records, BYTES) else b"")
            batches = [it for it in iter_headers(buffer) if it[1].next_offset > offset]
            if not batches:
                now = time.monotonic()
                if self._readable_to(data) >= end:
                    # A leader that fetches from elsewhere first (KIP-405) brings nothing when that
                    # takes long: only if it stays so has compaction left nothing before the end.
                    silent_since = silent_since or now
                    if now - silent_since >= SILENCE_SECONDS:
                        _log.warning(
                            "%s/%d: nothing is left of offsets %d to %d",
                            self._topic, self._partition, offset, end - 1,
                        )  # fmt: skip
                        return
                    continue
                if now > deadline:
                    raise TimeoutError(
                        f"{self._topic}/{self._partition} has no offset {offset} to read yet "
                        f"after {self._timeout_s:g} s"
                    )
                continue
            silent_since = None
            offset = batches[-1][1].next_offset
            if offset < end:
                try:
                    asked = self._ask(offset)
                except (OSError, KafkaError):
                    self.close()  # Sent again after this part has been yielded.
            yield Fetched(
                buffer,
                [it for it in batches if it[1].base_offset < end],
                aborted_in(data),
                offset,
            )
            deadline = time.monotonic() + self._timeout_s

    def _ask(self, offset: int) -> FetchRequest:
        if self._wire is None or self._wire.is_closed:
            leader = self._cluster.leader(self._topic, self._partition)
            self._wire = self._cluster.connect(leader.host, leader.port)
        place = FetchPartition(
            partition=self._partition,
            fetch_offset=offset,
            partition_max_bytes=self._fetch_bytes_max,
        )
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS_MAX,
            min_bytes=1,
            max_bytes=self._fetch_bytes_max,
            isolation_level=self._isolation,
            topics=[FetchTopic(topic=self._topic, partitions=[place])],
        )
        self._wire.send(request, FETCH_VERSION)
        return request

    def _answer(self, request: FetchRequest) -> PartitionData | None:
        """The leader's answer; None if it has none for now, as when it throttles."""
        assert self._wire is not None
        answer = self._wire.receive(request, FetchResponse, FETCH_VERSION, self._room)
        if answer.error_code:
            raise refused(answer.error_code)
        for topic in answer.responses:
            for data in topic.partitions:
                return data
        time.sleep(max(PAUSE_SECONDS, answer.throttle_time_ms / 1000))
        return None

    def _readable_to(self, data: PartitionData) -> int:
        committed = self._isolation is Isolation.COMMITTED
        return data.last_stable_offset if committed else data.high_watermark

    def _wait_or_raise(self, problem: Exception, deadline: float) -> None:
        """Wait after a passing problem, and look up the leader again."""
        self.close()
        now = time.monotonic()
        lasting = isinstance(problem, KafkaError) and not problem.code.retriable
        if isinstance(problem, KafkaError) and problem.code in GONE:
            self._gone_since = self._gone_since or now
            lasting = now - self._gone_since >= GONE_SECONDS
        else:
            self._gone_since = None
        if lasting or now > deadline:
            raise problem
        time.sleep(PAUSE_SECONDS)

    def close(self) -> None:
        """Close the connection; the next fetch opens another one."""
        if self._wire is not None:
            self._wire.close()
        self._wire = None
