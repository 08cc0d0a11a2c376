"""Record batches as they are stored: a raw Fetch, since clients hide the batch from their users."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

# The first version that may carry zstd.
_FETCH_KEY, _FETCH_VERSION = 1, 10
_BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")


class Batch(NamedTuple):
    """The header fields of one stored batch that tests look at."""

    base_offset: int
    codec: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int
    is_transactional: bool
    is_control: bool


def read_batches(bootstrap: str, topic: str) -> list[Batch]:
    """All batches of partition 0 of a topic."""
    host, port = bootstrap.rsplit(":", 1)
    batches: list[Batch] = []
    with socket.create_connection((host, int(port)), timeout=10.0) as connection:
        offset = 0
        while data := _fetch(connection, topic, offset):
            found = _parse(data)
            batches += (batch for batch in found if batch.base_offset >= offset)
            offset = batches[-1].base_offset + batches[-1].records
    return batches


def _fetch(connection: socket.socket, topic: str, offset: int) -> bytes:
    name = topic.encode()
    body = struct.pack(">iiiibii", -1, 0, 0, 1 << 26, 0, 0, -1)
    body += struct.pack(f">ih{len(name)}s", 1, len(name), name)
    body += struct.pack(">iiiqqi", 1, 0, -1, offset, -1, 1 << 26)
    body += struct.pack(">i", 0)
    header = struct.pack(">hhih", _FETCH_KEY, _FETCH_VERSION, 1, -1)
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    answer = _receive(connection, size)
    # correlation id, throttle time, error, session; then one topic with its name, one partition
    partition = 4 + 4 + 2 + 4 + 4 + 2 + len(name) + 4
    _, error, _, _, _, aborted = struct.unpack_from(">ihqqqi", answer, partition)
    assert error == 0, f"fetch of {topic} at {offset} failed with error {error}"
    assert aborted <= 0
    (length,) = struct.unpack_from(">i", answer, partition + 34)
    return answer[partition + 38 : partition + 38 + max(length, 0)]


def _parse(data: bytes) -> list[Batch]:
    batches = []
    position = 0
    while position + _BATCH_HEADER.size <= len(data):
        fields = _BATCH_HEADER.unpack_from(data, position)
        base_offset, length, _, magic, _, attributes, _, _, _, *producer, count = fields
        assert magic == 2
        producer_id, epoch, sequence = producer
        transactional, control = bool(attributes & 0x10), bool(attributes & 0x20)
        batches.append(
            Batch(
                base_offset,
                attributes & 7,
                producer_id,
                epoch,
                sequence,
                count,
                transactional,
                control,
            )
        )
        position += 12 + length
    return batches


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        assert chunk, "the broker closed the connection"
        data += chunk
    return data
