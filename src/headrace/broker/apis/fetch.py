"""Fetch (key 1), v4-18. v4: isolation level. v5: log start offset. v7: fetch sessions. v9: leader
epoch. v10: zstd. v11: rack. v12: flexible, diverging epoch. v13: topic ids. v15-v18: for replicas.

Records are not read here: the response has pieces of files, which the connection sends.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable
from contextlib import suppress

from headrace.broker.fetch_sessions import FetchScope, Wanted
from headrace.broker.node import Node
from headrace.broker.partition import Partition
from headrace.broker.purgatory import Pending, Waiting
from headrace.broker.registry import Context, serves
from headrace.protocol.api.fetch import (
    AbortedTransaction,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.protocol.error_responses import failed_response
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage.log.reading import ColdRead

READ_COMMITTED = 1
TOPIC_ID_VERSION = 13
NO_RECORDS = b""
# How many times a fetch warms the page cache on a thread before it waits for the disk itself.
COLD_TRIES = 16
# The longest wait. A client that waits is not read from, so one that is gone is noticed only when
# the response is sent.
WAIT_MS_MAX = 300_000
# Stands for a response that does not have enough records yet; it is never sent.
_NOT_YET = FetchResponse()

log = logging.getLogger(__name__)


class ColdReads(Exception):
    """Some data of a fetch is not in the page cache."""

    def __init__(self, reads: list[ColdRead]) -> None:
        super().__init__(f"{len(reads)} partitions are cold")
        self._reads = reads

    def warm(self) -> None:
        """Read it into the page cache; waits for the disk, so on a thread."""
        for read in self._reads:
            read.warm()


class Fetching:
    """One fetch: reads what is there, and knows whether that is enough for a response."""

    __slots__ = ("_by_id", "_committed", "_node", "_request", "_scope", "_version", "enough")

    def __init__(self, node: Node, ctx: Context, request: FetchRequest, scope: FetchScope) -> None:
        self._node = node
        self._request = request
        self._scope = scope
        self._committed = request.isolation_level == READ_COMMITTED
        self._version = ctx.api_version
        self._by_id = ctx.api_version >= TOPIC_ID_VERSION
        self.enough = False

    def read(self, wait: bool = False) -> FetchResponse:
        """Read every wanted partition up to the limits, and make the response.

        Raises ColdReads if it would have to wait for the disk, unless `wait` is set.
        """
        request = self._request
        room = min(request.max_bytes, self._node.fetch_bytes_max)
        total = 0
        failed = False
        cold: list[ColdRead] = []
        results = []
        for wanted in self._scope.wanted:
            data = PartitionData(
                partition_index=wanted.key[2],
                records=NO_RECORDS,
                aborted_transactions=[] if self._committed else None,
            )
            results.append(data)
            try:
                size = self._read_partition(wanted, data, room - total, total == 0, wait)
            except ColdRead as read:
                cold.append(read)
            except KafkaError as error:
                data.error_code = error.code
                data.high_watermark = -1
                failed = True
            except OSError as error:
                log.error("cannot read partition %s-%d: %s", *wanted.key[::2], error)
                data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                failed = True
            else:
                total += size
        if cold:
            raise ColdReads(cold)
        self.enough = failed or total >= request.min_bytes or not self._scope.wanted
        return self._scope.respond(results) if self.enough else _NOT_YET

    def read_anyway(self, wait: bool = False) -> FetchResponse:
        """The response with what there is, even if that is nothing."""
        self._request.min_bytes = 0
        return self.read(wait)

    def failure(self) -> FetchResponse:
        """The response after an exception."""
        return failed_response(
            self._request, FetchResponse, self._version, ErrorCode.UNKNOWN_SERVER_ERROR
        )

    def partitions(self) -> list[Partition]:
        """The partitions whose growth would make this fetch complete."""
        found = []
        for wanted in self._scope.wanted:
            with suppress(KafkaError):
                found.append(self._find(wanted))
        return found

    def _find(self, wanted: Wanted) -> Partition:
        name, topic_id, index = wanted.key
        partitions = self._node.partitions
        return partitions.find(partitions.name_of(topic_id) if self._by_id else name, index)

    def _read_partition(
        self, wanted: Wanted, data: PartitionData, room: int, first: bool, wait: bool
    ) -> int:
        partition = self._find(wanted)
        partition.check(wanted.leader_epoch)
        records = partition.log
        stable = records.last_stable_offset
        limit = stable if self._committed else records.high_watermark
        data.high_watermark = records.high_watermark
        data.last_stable_offset = stable
        data.log_start_offset = records.start_offset
        offset = wanted.offset
        if room <= 0 and not first:
            return 0
        if offset == limit or (records.start_offset <= limit < offset <= records.end_offset):
            return 0  # at the end, or ahead of what is durable: nothing to read yet
        piece = records.read(
            offset, min(wanted.max_bytes, room), limit=limit, min_one=first, wait=wait
        )
        if piece is None:
            return 0
        data.records = piece
        if self._committed:
            # Only those of the piece: a reader far behind has no use for later ones.
            behind = min(limit, records.offset_behind(piece))
            data.aborted_transactions = [
                AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in records.aborted_transactions(offset, behind)
            ]
        return len(piece)


class FetchWaiting(Waiting):
    """A fetch that found too little and waits for more."""

    __slots__ = ("_fetching", "_node", "_pending")

    def __init__(self, node: Node, fetching: Fetching, pending: Pending) -> None:
        super().__init__()
        self._node = node
        self._fetching = fetching
        self._pending = pending

    def try_complete(self) -> bool:
        try:
            response = self._fetching.read()
        except ColdReads as cold:
            self._node.spawn(self._finish_cold(cold))
            return True
        if self._fetching.enough:
            self._pending.resolve(response)
        return self._fetching.enough

    def expire(self) -> None:
        try:
            self._pending.resolve(self._fetching.read_anyway())
        except ColdReads as cold:
            self._node.spawn(self._finish_cold(cold))

    def fail(self) -> None:
        self._pending.resolve(self._fetching.failure())

    async def _finish_cold(self, cold: ColdReads) -> None:
        try:
            response = await read_cold(self._node, self._fetching, cold)
        except Exception:
            log.exception("a fetch that waited for the disk failed")
            response = self._fetching.failure()
        self._pending.resolve(response)


async def _behind_syncs(
    node: Node, fetching: Fetching, partitions: list[Partition]
) -> FetchResponse:
    """Respond to a fetch that does not wait for records once those already written are durable.

    Its sender may have written them itself, with acks=1.
    """
    for partition in partitions:
        partition.sync()
    for partition in partitions:
        # The response has the error of a partition that fails.
        with contextlib.suppress(KafkaError):
            await partition.durable_end()
    try:
        return fetching.read_anyway()
    except ColdReads as cold:
        return await read_cold(node, fetching, cold)


async def read_cold(node: Node, fetching: Fetching, cold: ColdReads) -> FetchResponse:
    """Respond with what there is once a thread has read it into the page cache."""
    for _ in range(COLD_TRIES):
        node.metrics.cold_reads.value += 1
        await node.run_read(cold.warm)
        try:
            return fetching.read_anyway()
        except ColdReads as next_cold:
            cold = next_cold
    # The cache loses pages as fast as they come: wait for the disk.
    return fetching.read_anyway(wait=True)


@serves(FetchRequest, 4, 18, sends_records=True)
def fetch(
    node: Node, ctx: Context, request: FetchRequest
) -> FetchResponse | Pending | Awaitable[FetchResponse]:
    """Respond with at least `min_bytes` of records, or with what there is after `max_wait_ms`."""
    scope = node.fetch_sessions.open(request, ctx.api_version)
    if isinstance(scope, ErrorCode):
        return FetchResponse(error_code=scope)
    fetching = Fetching(node, ctx, request, scope)
    try:
        response = fetching.read()
        if not fetching.enough and request.max_wait_ms <= 0:
            unsynced = [each for each in fetching.partitions() if each.has_unsynced]
            if unsynced:
                return _behind_syncs(node, fetching, unsynced)
            response = fetching.read_anyway()
    except ColdReads as cold:
        return read_cold(node, fetching, cold)
    if fetching.enough:
        return response
    node.metrics.fetch_waits.value += 1
    pending = Pending()
    partitions = fetching.partitions()
    wait_ms = min(request.max_wait_ms, WAIT_MS_MAX)
    node.fetch_purgatory.park(FetchWaiting(node, fetching, pending), partitions, wait_ms)
    for partition in partitions:
        # A reader waits at the end: sync now instead of at the flush timer.
        if partition.has_unsynced:
            partition.sync()
    return pending
