"""Raw frames to a broker and back, good ones and bad ones."""

from __future__ import annotations

import socket
from struct import Struct
from types import TracebackType
from typing import Self, TypeVar

from headrace.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
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
from headrace.protocol.batch import iter_headers, iter_records
from headrace.protocol.codec import decode, encode
from headrace.protocol.headers import (
    RequestHeader,
    request_header_version,
    response_header_version,
)
from headrace.protocol.schema import Message

ANSWER_SECONDS = 60.0
LENGTH = Struct(">i")
PRODUCE_VERSION = 9
FETCH_VERSION = 12

M = TypeVar("M", bound=Message)


class Hangup(Exception):
    """The broker closed the connection."""


def request_frame(request: Message, version: int, correlation_id: int = 1) -> bytes:
    """A whole request with its length in front."""
    header = RequestHeader(
        request_api_key=request.API_KEY,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id="faults",
    )
    head = encode(header, request_header_version(request.API_KEY, version))
    body = encode(request, version)
    return LENGTH.pack(len(head) + len(body)) + head + body


class Wire:
    """One plain connection."""

    def __init__(self, port: int, timeout_s: float = ANSWER_SECONDS):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Hangup from error

    def receive(self) -> bytes:
        """The next frame, without its length; Hangup at the end of the connection."""
        return self._exactly(LENGTH.unpack(self._exactly(4))[0])

    def ask(self, request: Message, version: int, answer: type[M]) -> M:
        """Send a request and decode its answer."""
        self.send(request_frame(request, version))
        return self.answer(version, answer)

    def answer(self, version: int, answer: type[M]) -> M:
        frame = self.receive()
        skip = 4 + response_header_version(answer.API_KEY, version)
        return decode(answer, version, frame[skip:])

    def produce(
        self, topic: str, partition: int, batch: bytes | bytearray, *, acks: int = -1
    ) -> PartitionProduceResponse:
        """Produce one batch and the answer for its partition."""
        response = self.ask(
            produce_request(topic, partition, batch, acks=acks), PRODUCE_VERSION, ProduceResponse
        )
        return response.responses[0].partition_responses[0]

    def fetch(self, topic: str, partition: int, offset: int, **options: int) -> FetchResponse:
        request = fetch_request(topic, partition, offset, **options)
        return self.ask(request, FETCH_VERSION, FetchResponse)

    def read_values(self, topic: str, partition: int) -> list[tuple[int, bytes]]:
        """All records of a partition; AssertionError on an error code."""
        rows: list[tuple[int, bytes]] = []
        offset = 0
        while True:
            (result,) = self.fetch(topic, partition, offset).responses[0].partitions
            assert result.error_code == 0, result
            data = result.records
            if not data:
                return rows
            assert isinstance(data, memoryview)
            for position, header in iter_headers(data):
                rows += [
                    (record.offset, record.value or b"")
                    for record in iter_records(data[position : position + header.size])
                ]
                offset = header.next_offset

    def create_topic(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Make a topic that keeps everything: the timestamps of these tests are old ones."""
        configs = {"retention_ms": "-1", **configs}
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=[],
                    configs=[
                        CreatableTopicConfig(name=name.replace("_", "."), value=value)
                        for name, value in configs.items()
                    ],
                )
            ],
            timeout_ms=10_000,
        )
        (result,) = self.ask(request, 5, CreateTopicsResponse).topics
        assert result.error_code == 0, result

    def is_answered(self) -> bool:
        """Whether the broker answers a harmless question on this connection."""
        request = ApiVersionsRequest(client_software_name="faults", client_software_version="1")
        return self.ask(request, 3, ApiVersionsResponse).error_code == 0

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self.socket.recv(min(1 << 20, count - len(data)))
            except ConnectionResetError as error:
                raise Hangup from error
            if not piece:
                raise Hangup
            data += piece
        return bytes(data)


def produce_request(
    topic: str, partition: int, batch: bytes | bytearray, *, acks: int = -1
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=partition, records=memoryview(batch))],
            )
        ],
    )


def fetch_request(
    topic: str, partition: int, offset: int, *, max_wait_ms: int = 0, min_bytes: int = 0
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
                    )
                ],
            )
        ],
    )
