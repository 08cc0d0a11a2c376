"""A transactional producer and a read_committed consumer, without a socket."""

from __future__ import annotations

from tests.broker.apis.asking import Asker

from headrace.broker.apis.fetch import fetch
from headrace.broker.purgatory import Pending
from headrace.broker.registry import Context
from headrace.protocol.api.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from headrace.protocol.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headrace.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from headrace.protocol.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.protocol.api.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartitions,
)
from headrace.protocol.api.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from headrace.protocol.batch import build_batch, iter_headers, iter_records
from headrace.protocol.control import ControlType, parse_marker
from headrace.protocol.errors import ErrorCode
from headrace.protocol.records import Record
from headrace.storage.log.slices import Slice

TIMEOUT_MS = 60_000
# What clients of before and since KIP-890's second part send.
VERSIONS_BEFORE = {"init": 4, "add": 3, "offsets": 3, "end": 3, "commit": 3, "produce": 9}
VERSIONS_SINCE = {"init": 5, "add": 3, "offsets": 3, "end": 5, "commit": 5, "produce": 12}
READ_COMMITTED = 1
CODES = {int(code): code for code in ErrorCode}


def code_of(number: int) -> ErrorCode:
    """The error with this number."""
    return CODES[number]


class Transactional:
    """One producer; every call returns its error, and raises nothing."""

    def __init__(self, asker: Asker, transactional_id: str = "tx", *, since: bool = True) -> None:
        self.asker = asker
        self.transactional_id = transactional_id
        self.since = since
        self.versions = VERSIONS_SINCE if since else VERSIONS_BEFORE
        self.producer_id = -1
        self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    async def find(self) -> ErrorCode:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
        response = await self.asker.ask(request, FindCoordinatorResponse, 4)
        return code_of(response.coordinators[0].error_code)

    async def init(
        self, timeout_ms: int = TIMEOUT_MS, expected: tuple[int, int] = (-1, -1)
    ) -> ErrorCode:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        answer = await self.asker.ask(request, InitProducerIdResponse, self.versions["init"])
        if not answer.error_code:
            self._become(answer.producer_id, answer.producer_epoch)
        return code_of(answer.error_code)

    async def start(self, timeout_ms: int = TIMEOUT_MS) -> Transactional:
        """Find the coordinator and get an id; must succeed."""
        assert await self.find() is ErrorCode.NONE
        assert await self.init(timeout_ms) is ErrorCode.NONE
        return self

    async def add(self, topic: str, *indexes: int) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[*indexes])],
        )
        answer = await self.asker.ask(request, AddPartitionsToTxnResponse, self.versions["add"])
        (result,) = answer.results_by_topic_v3_and_below
        return code_of(result.results_by_partition[0].partition_error_code)

    def batch(self, topic: str, index: int, *values: bytes) -> bytearray:
        """The next batch for a partition; its sequence counts as sent."""
        sequence = self._sequences.get((topic, index), 0)
        self._sequences[topic, index] = sequence + len(values)
        return build_batch(
            [Record(n, 0, b"k", value, ()) for n, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    async def produce(self, topic: str, index: int, *values: bytes) -> ErrorCode:
        """Write without adding first."""
        return await self.produce_batch(topic, index, self.batch(topic, index, *values))

    async def produce_batch(self, topic: str, index: int, batch: bytearray) -> ErrorCode:
        data = PartitionProduceData(index=index, records=memoryview(bytearray(batch)))
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = await self.asker.ask(request, ProduceResponse, self.versions["produce"])
        return code_of(answer.responses[0].partition_responses[0].error_code)

    async def send(self, topic: str, index: int, *values: bytes) -> ErrorCode:
        """Write as a client does: before KIP-890, the partition is added first."""
        if not self.since:
            error = await self.add(topic, index)
            if error:
                return error
        return await self.produce(topic, index, *values)

    async def add_offsets(self, group: str) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        answer = await self.asker.ask(request, AddOffsetsToTxnResponse, self.versions["offsets"])
        return code_of(answer.error_code)

    async def commit_offset(self, group: str, topic: str, index: int, offset: int) -> ErrorCode:
        """Commit without adding the group first."""
        partition = TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata="m"
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        answer = await self.asker.ask(request, TxnOffsetCommitResponse, self.versions["commit"])
        return code_of(answer.topics[0].partitions[0].error_code)

    async def send_offset(self, group: str, topic: str, index: int, offset: int) -> ErrorCode:
        """Commit as a client does."""
        if not self.since:
            error = await self.add_offsets(group)
            if error:
                return error
        return await self.commit_offset(group, topic, index, offset)

    async def end(self, committed: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        answer = await self.asker.ask(request, EndTxnResponse, self.versions["end"])
        if not answer.error_code and self.since:
            self._become(answer.producer_id, answer.producer_epoch)
        return code_of(answer.error_code)

    def zombie(self) -> Transactional:
        """A producer that thinks it is who this one is now."""
        twin = Transactional(self.asker, self.transactional_id, since=self.since)
        twin.producer_id, twin.epoch = self.producer_id, self.epoch
        twin._sequences = dict(self._sequences)
        return twin

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch


async def read_committed(asker: Asker, topic: str, index: int) -> list[bytes]:
    """Every value that a read_committed consumer is shown, from the start."""
    values: list[bytes] = []
    served = asker.node.partitions.get(topic, index)
    assert served is not None
    offset = served.log.start_offset
    while True:
        partition = FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            isolation_level=READ_COMMITTED,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[partition])],
        )
        answer = fetch(asker.node, Context(1, 12, "test"), request)
        if isinstance(answer, Pending):
            answer = await answer.wait()
        assert isinstance(answer, FetchResponse)
        (data,) = answer.responses[0].partitions
        assert not data.error_code
        if not isinstance(data.records, Slice):
            return values
        aborted = sorted(
            (entry.first_offset, entry.producer_id) for entry in data.aborted_transactions or ()
        )
        hidden: set[int] = set()
        view = memoryview(data.records.read())
        for position, header in iter_headers(view):
            while aborted and aborted[0][0] <= header.last_offset:
                hidden.add(aborted.pop(0)[1])
            if header.is_control:
                marker = parse_marker(view, position)
                if marker is not None and marker.control_type is ControlType.ABORT:
                    hidden.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in hidden):
                values += [record.value or b"" for record in iter_records(view, position)]
            offset = header.next_offset


async def committed_offset(
    asker: Asker, group: str, topic: str, index: int, *, require_stable: bool = True
) -> OffsetFetchResponsePartitions:
    """What a group has committed for a partition."""
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[index])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)],
        require_stable=require_stable,
    )
    answer = await asker.ask(request, OffsetFetchResponse, 8)
    return answer.groups[0].topics[0].partitions[0]


async def latest(asker: Asker, topic: str, index: int, isolation_level: int) -> int:
    """The end of a partition for readers of an isolation level."""
    partition = ListOffsetsPartition(partition_index=index, timestamp=-1)
    request = ListOffsetsRequest(
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=[partition])],
    )
    answer = await asker.ask(request, ListOffsetsResponse, 7)
    return answer.topics[0].partitions[0].offset
