"""Whole record batches of one partition, as the leader keeps them, from one offset to another."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from headrace.client.wire.cluster import PAUSE_SECONDS, Cluster
from headrace.client.wire.connection import Wire
from headrace.client.wire.errors import refused
from headrace.client.wire.leaders import FETCH_VERSION, Isolation
from headrace.protocol.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headrace.protocol.batch import BatchHeader, check_batch, iter_headers
from headrace.protocol.control import ControlType, parse_marker
from headrace.protocol.errors import ErrorCode, KafkaError

FETCH_BYTES_MAX = 4 << 20
FETCH_WAIT_MS_MAX = 500
AROUND_BYTES = 1 << 16
"""What an answer may take beside the batches."""
SILENCE_SECONDS = 30.0
"""So long a leader brings nothing of what it says can be read before that is believed."""
GONE_SECONDS = 5.0
"""So long a partition is not known to the cluster before it is believed to be deleted."""
GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
BYTES = (bytes, bytearray, memoryview)

_log = logging.getLogger("headrace.client")

Batches = list[tuple[int, BatchHeader]]
"""Where each batch begins in a buffer, and its header."""


class OffsetOutOfRange(KafkaError):
    """The partition does not hold the offset (any more); `log_start_offset` is -1 if not known."""

    def __init__(self, topic: str, partition: int, offset: int, log_start_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic}/{partition} does not hold offset {offset}"
        )
        self.log_start_offset = log_start_offset


class Fetched(NamedTuple):
    """Batches that one answer brought, aborted transactions among them; good until the next."""

    buffer: memoryview
    batches: Batches
    aborted: Sequence[tuple[int, int]]
    """Producer id and first offset of transactions that were aborted."""
    next_offset: int
    """What is before it has been brought, as far as it is there."""

    def committed(self) -> Iterator[tuple[int, BatchHeader]]:
        """Checked batches without markers and without those of aborted transactions."""
        ahead = sorted(self.aborted, key=lambda row: row[1], reverse=True)
        open_aborted: set[int] = set()
        for position, header in self.batches:
            check_batch(self.buffer, position, position + header.size)
            while ahead and ahead[-1][1] <= header.last_offset:
                open_aborted.add(ahead.pop()[0])
            if header.is_control:
                marker = parse_marker(self.buffer, position)
                if marker is not None and marker.control_type is ControlType.ABORT:
                    open_aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in open_aborted):
                yield position, header


class RawReader:
    """Fetches from whoever leads a partition; a context manager with a connection of its own.

    It asks again for `timeout_s` while a leader moves or does not answer. The next answer is asked
    for before the last one is given out, so that the broker works while the caller does.
    """

    def __init__(
        self,
        cluster: Cluster,
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
        self._wire: Wire | None = None
        self._room = bytearray(fetch_bytes_max + AROUND_BYTES)
        self._gone_since: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hang_up()

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
                    self._hang_up()  # It is asked for again after this part is given out.
            yield Fetched(
                buffer,
                [it for it in batches if it[1].base_offset < end],
                [(it.producer_id, it.first_offset) for it in data.aborted_transactions or ()],
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
        """What the leader says; None when it says nothing for now, as a throttling one does."""
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
        """Let a passing problem pass; the leader is looked for anew."""
        self._hang_up()
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

    def _hang_up(self) -> None:
        if self._wire is not None:
            self._wire.close()
        self._wire = None
