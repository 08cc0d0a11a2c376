"""A client that speaks the wire byte by byte, for tests of what happens between the frames."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self, TypeVar

from headrace.protocol.api import RESPONSES
from headrace.protocol.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.protocol.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.batch import build_batch
from headrace.protocol.codec import decode, encode
from headrace.protocol.errors import ErrorCode
from headrace.protocol.headers import RequestHeader, request_header_version, response_header_version
from headrace.protocol.records import Record
from headrace.protocol.schema import Message

ResponseT = TypeVar("ResponseT", bound=Message)

PRODUCE_VERSION = 9
FETCH_VERSION = 12


class Wire:
    """One blocking connection; requests may be pipelined with `send` and `receive`."""

    def __init__(self, bootstrap: str, timeout: float = 10.0) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def frame(self, request: Message, version: int) -> bytes:
        """A request as bytes, its length in front."""
        assert request.API_KEY is not None
        self._correlation_id += 1
        header = RequestHeader(
            request_api_key=request.API_KEY,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id="wire",
        )
        body = encode(header, request_header_version(request.API_KEY, version))
        body += encode(request, version)
        return struct.pack(">i", len(body)) + body

    def send(self, request: Message, version: int) -> int:
        """Send a request; its correlation id."""
        self.socket.sendall(self.frame(request, version))
        return self._correlation_id

    def receive_frame(self) -> bytes:
        """The next answer's bytes; EOFError when the broker has hung up."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def receive(self, response: type[ResponseT], version: int) -> tuple[int, ResponseT]:
        """The next answer with its correlation id."""
        data = self.receive_frame()
        (correlation_id,) = struct.unpack_from(">i", data)
        assert response.API_KEY is not None
        offset = 4 + response_header_version(response.API_KEY, version)
        return correlation_id, decode(response, version, data, offset)

    def call(self, request: Message, response: type[ResponseT], version: int) -> ResponseT:
        """Send a request and wait for its answer."""
        assert request.API_KEY is not None
        assert RESPONSES[request.API_KEY] is response
        sent = self.send(request, version)
        answered, message = self.receive(response, version)
        assert answered == sent
        return message

    def hung_up(self) -> bool:
        """Wait until the broker closes the connection; False if it answers instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Make a topic; settings are given with `_` for `.`."""
        configs = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in config.items()
        ]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=configs
        )
        response = self.call(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 7)
        assert response.topics[0].error_code == 0, response

    def produce(
        self, topic: str, batch: bytes | bytearray, acks: int = -1, partition: int = 0
    ) -> PartitionProduceResponse:
        """Produce one batch and return its partition's result."""
        request = produce_request(topic, batch, acks, partition)
        response = self.call(request, ProduceResponse, PRODUCE_VERSION)
        return response.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, **options: int) -> FetchResponse:
        """Fetch partition 0 from an offset."""
        return self.call(fetch_request(topic, offset, **options), FetchResponse, FETCH_VERSION)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError("the broker hung up")
            data += piece
        return bytes(data)


def batch_of(
    *values: bytes,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A batch with one record a value."""
    return build_batch(
        [Record(n, 0, b"k", value, ()) for n, value in enumerate(values)],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def records_of(response: FetchResponse) -> memoryview:
    """The records of a fetch of one partition, which must not have failed."""
    (topic,) = response.responses
    (data,) = topic.partitions
    assert data.error_code == ErrorCode.NONE
    assert isinstance(data.records, memoryview)
    return data.records


def produce_request(
    topic: str, batch: bytes | bytearray, acks: int = -1, partition: int = 0
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)


def fetch_request(
    topic: str,
    offset: int,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 26,
    partition_max_bytes: int = 1 << 26,
) -> FetchRequest:
    partition = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=partition_max_bytes
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
