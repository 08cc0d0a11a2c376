"""One request at a time over a plain socket, for what real clients do not let a test do."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from headrace.protocol.api import RESPONSES
from headrace.protocol.codec import decode, encode
from headrace.protocol.headers import RequestHeader, request_header_version, response_header_version
from headrace.protocol.schema import Message

TIMEOUT_SECONDS = 60.0


class Wire:
    """A connection that sends a request and waits for its answer."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_SECONDS)

    def call(self, request: Message, version: int) -> Any:
        """Send and wait; ConnectionError if the broker hangs up instead."""
        key = request.API_KEY
        header = RequestHeader(
            request_api_key=key, request_api_version=version, correlation_id=1, client_id="wire"
        )
        frame = encode(header, request_header_version(key, version)) + encode(request, version)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._receive(4))
        body = self._receive(size)
        skipped = 5 if response_header_version(key, version) else 4
        return decode(RESPONSES[key], version, body[skipped:])

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError("the broker hung up")
            data += chunk
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()
