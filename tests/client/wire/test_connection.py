"""One connection, and what it says of those who do not speak the protocol."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from headrace.client.wire.connection import BrokerConnection
from headrace.client.wire.security import Security
from headrace.protocol.api.api_versions import ApiVersion, ApiVersionsResponse
from headrace.protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.protocol.api_keys import ApiKey
from headrace.protocol.codec import encode


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak the Kafka protocol"),
        (b"\0\0\0\4\0\0\0\x63", "answered another request"),
        (b"\0\0", "closed the connection"),
    ],
)
def test_who_does_not_speak_the_protocol_is_found_out(said: bytes, message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectionError, match=message):
            BrokerConnection("127.0.0.1", server.getsockname()[1], Security(), timeout_s=10.0)
        thread.join()


def test_silence_ends_in_time() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(TimeoutError),
    ):
        BrokerConnection("127.0.0.1", server.getsockname()[1], Security(), timeout_s=0.05)


def test_a_connection_that_breaks_in_the_middle_of_a_request_is_of_no_use() -> None:
    known = ApiVersion(api_key=ApiKey.PRODUCE, min_version=0, max_version=9)
    said = struct.pack(">i", 1) + encode(ApiVersionsResponse(api_keys=[known]), 0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reset_after_the_first_answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(struct.pack(">i", len(said)) + said)
                connection.recv(1024)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        thread = threading.Thread(target=reset_after_the_first_answer)
        thread.start()
        # More than the buffers of a socket take, so that it breaks while it is being sent.
        data = PartitionProduceData(index=0, records=memoryview(bytes(64 << 20)))
        request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[data])])
        with BrokerConnection(
            "127.0.0.1", server.getsockname()[1], Security(), timeout_s=30.0
        ) as wire:
            with pytest.raises(ConnectionError):
                wire.send(request)
            assert wire.is_closed
        thread.join()
