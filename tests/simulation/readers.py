"""Readers of committed records: they skip what was aborted, as real consumers do."""

from __future__ import annotations

from tests.simulation.clients import Client, Lost
from tests.simulation.history import History, Reading, Shown
from tests.simulation.network import Network
from tests.simulation.offsets import TOPIC
from tests.simulation.world import Process

from headrace.protocol.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headrace.protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.batch import iter_headers, iter_records
from headrace.protocol.control import ControlType, parse_marker

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
LATEST = -1
FETCH_VERSION = 11
# One batch, a few, or all.
FETCH_BYTES = (1, 200, 1 << 20)


class Reader:
    """Reads partitions from their start, and remembers what it was shown."""

    def __init__(self, process: Process, network: Network, partitions: int) -> None:
        self.process = process
        self.client = Client(process, network)
        self.readings = [Reading(process.name, partition) for partition in range(partitions)]

    def follow(self, history: History) -> None:
        """Read on and on, as records come."""
        history.readings += self.readings
        self.process.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            try:
                for reading in self.readings:
                    await self.read(reading, self.client.world.chance.choice(FETCH_BYTES))
            except Lost:
                pass
            await self.client.pause(50, 3_000)

    async def read(self, reading: Reading, max_bytes: int = FETCH_BYTES[-1]) -> bool:
        """Read once from where the reading has come to; whether there was anything."""
        answer = await self.client.ask(
            FetchRequest(
                max_wait_ms=20,
                min_bytes=1,
                max_bytes=max_bytes,
                isolation_level=READ_COMMITTED,
                topics=[
                    FetchTopic(
                        topic=TOPIC,
                        partitions=[
                            FetchPartition(
                                partition=reading.partition,
                                fetch_offset=reading.position,
                                partition_max_bytes=1 << 20,
                            )
                        ],
                    )
                ],
            ),
            FetchResponse,
            FETCH_VERSION,
        )
        if not answer.responses:
            return False
        found = answer.responses[0].partitions[0]
        if found.error_code or not found.records:
            return False
        self._take(reading, found)
        return True

    def _take(self, reading: Reading, found: PartitionData) -> None:
        now_us = self.client.world.now_us
        assert isinstance(found.records, memoryview)
        data = bytes(found.records)
        aborted = sorted((a.first_offset, a.producer_id) for a in found.aborted_transactions or ())
        skipped: set[int] = set()
        for position, header in iter_headers(data):
            while aborted and aborted[0][0] <= header.last_offset:
                skipped.add(aborted.pop(0)[1])
            if header.next_offset <= reading.position:
                continue
            if header.is_control:
                marker = parse_marker(data, position)
                if marker is not None and marker.control_type is ControlType.ABORT:
                    skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                reading.shown += [
                    Shown((record.value or b"").decode(), reading.partition, record.offset, now_us)
                    for record in iter_records(data, position)
                    if record.offset >= reading.position
                ]
            reading.position = header.next_offset

    async def end_offset(self, partition: int, isolation_level: int) -> int | None:
        """Where a partition ends for such a reader; None if that cannot be told now."""
        answer = await self.client.ask(
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation_level,
                topics=[
                    ListOffsetsTopic(
                        name=TOPIC,
                        partitions=[
                            ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
                        ],
                    )
                ],
            ),
            ListOffsetsResponse,
            5,
        )
        result = answer.topics[0].partitions[0]
        return None if result.error_code else result.offset

    async def read_all(self) -> bool:
        """Read everything there is; False if some transaction is still open."""
        for reading in self.readings:
            end = await self.end_offset(reading.partition, READ_UNCOMMITTED)
            stable = await self.end_offset(reading.partition, READ_COMMITTED)
            if end is None or stable != end:
                return False
            while reading.position < end:
                if not await self.read(reading):
                    return False
        return True
