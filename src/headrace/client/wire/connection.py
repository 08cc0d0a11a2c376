"""One blocking connection to a broker."""

from __future__ import annotations

import socket
import struct
from typing import TypeVar

from headrace.client.wire.errors import refused
from headrace.client.wire.security import Security
from headrace.closing import Closing
from headrace.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.api_keys import ApiKey
from headrace.protocol.codec import decode, encode
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_header_version,
)
from headrace.protocol.schema import VERSION_MAX, Message

CLIENT_ID = "headrace"
FRAME_BYTES_MAX = 1 << 30
ROOM_BYTES_MAX = 1 << 26

AnswerT = TypeVar("AnswerT", bound=Message)


class BrokerConnection(Closing):
    """A secured connection to one broker, with agreed versions; one request at a time.

    After an OSError (also TimeoutError) it is closed and cannot be used again.
    """

    def __init__(self, host: str, port: int, security: Security, timeout_s: float) -> None:
        self.address = f"{host}:{port}"
        self._correlation_id = 0
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = security.wrap(self._socket, host)
            self._versions = self._agree()
            security.authenticate(self)
        except BaseException:
            self.close()
            raise

    def ask(
        self, request: Message, answer: type[AnswerT], version_max: int = VERSION_MAX
    ) -> AnswerT:
        """Send a request in the newest version that both sides support, and wait for its answer."""
        self.send(request, version_max)
        return self.receive(request, answer, version_max)

    def send(self, request: Message, version_max: int = VERSION_MAX) -> None:
        """Send a request; `receive` waits for its answer."""
        version = self.version(request, version_max)
        try:
            self._send(request, version)
        except OSError:
            # The next request would be written in the middle of this one.
            self.close()
            raise

    def receive(
        self,
        request: Message,
        answer: type[AnswerT],
        version_max: int = VERSION_MAX,
        room: bytearray | None = None,
    ) -> AnswerT:
        """The answer to the request that was sent last.

        Its bytes are in `room` if they fit: allocating costs more than receiving.
        """
        version = self.version(request, version_max)
        try:
            return self._receive(request, answer, version, room)
        except OSError:
            # A late answer would be taken for that of the next request.
            self.close()
            raise

    def version(self, request: Message, version_max: int = VERSION_MAX) -> int:
        """The newest version of a request that both sides support; UNSUPPORTED_VERSION if none."""
        assert request.API_KEY is not None
        ours_min, ours_max = type(request).VERSIONS
        theirs_min, theirs_max = self._versions.get(request.API_KEY, (0, -1))
        version = min(ours_max, theirs_max, version_max)
        if version < max(ours_min, theirs_min):
            name = ApiKey(request.API_KEY).name.title().replace("_", "")
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.address} has no version of {name} that this client supports",
            )
        return version

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self._socket.fileno() < 0

    def close(self) -> None:
        """Close it; a request that was sent may still be carried out."""
        self._socket.close()

    def _agree(self) -> dict[int, tuple[int, int]]:
        # Version 0 is the one that every broker answers, whatever its age.
        request = ApiVersionsRequest()
        self._send(request, 0)
        answer = self._receive(request, ApiVersionsResponse, 0)
        if answer.error_code:
            raise refused(answer.error_code)
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def _send(self, request: Message, version: int) -> None:
        assert request.API_KEY is not None
        self._correlation_id += 1
        header = RequestHeader(
            request_api_key=request.API_KEY,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=CLIENT_ID,
        )
        frame = encode(header, request_header_version(request.API_KEY, version))
        frame += encode(request, version)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def _receive(
        self,
        request: Message,
        answer: type[AnswerT],
        version: int,
        room: bytearray | None = None,
    ) -> AnswerT:
        assert request.API_KEY is not None
        (size,) = struct.unpack(">i", self._exactly(4))
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise ConnectionError(f"{self.address} does not speak the Kafka protocol")
        frame = self._exactly(size, room)
        header_version = response_header_version(request.API_KEY, version)
        body = len(encode(ResponseHeader(), header_version))
        header = decode(ResponseHeader, header_version, frame[:body])
        if header.correlation_id != self._correlation_id:
            raise ConnectionError(f"{self.address} answered another request")
        return decode(answer, version, frame, body)

    def _exactly(self, size: int, room: bytearray | None = None) -> bytearray | memoryview:
        # Received in place, so that batches are not copied before they are decoded. The buffer
        # grows as it fills, since the size is only what the other side claims.
        filled = 0
        if room is not None and size <= len(room):
            view = memoryview(room)[:size]
            while filled < size:
                filled += self._some(view[filled:])
            return view
        data = bytearray(min(size, ROOM_BYTES_MAX))
        while filled < size:
            if filled == len(data):
                data += bytes(min(size - filled, len(data)))
            filled += self._some(memoryview(data)[filled:])
        return data

    def _some(self, place: memoryview) -> int:
        count = self._socket.recv_into(place)
        if not count:
            raise ConnectionError(f"{self.address} closed the connection")
        return count
