"""One connection, and what it says of those who do not speak the protocol."""

from __future__ import annotations

import socket
import threading

import pytest

from headrace.client.security import Security
from headrace.client.wire import Wire


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not the Kafka protocol"),
        (b"\0\0\0\4\0\0\0\x63", "something else than was asked"),
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
            Wire("127.0.0.1", server.getsockname()[1], Security(), timeout_s=10.0)
        thread.join()


def test_silence_ends_in_time() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(TimeoutError),
    ):
        Wire("127.0.0.1", server.getsockname()[1], Security(), timeout_s=0.05)
