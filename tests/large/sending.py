"""Large messages for the tests: small in fact, cut into many small chunks, some by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer as LibraryProducer
from tests.large.logs import chunks_of

from headrace.large.headers import Chunk, chunk_headers
from headrace.large.large import Large

# So small that a test need not send megabytes.
SIZE = 20_000
_chance = random.Random(6)


def small_large(**settings: Any) -> Large:
    """Large, above 20 kB."""
    return Large(**{"above_bytes": SIZE, "chunk_bytes": SIZE, **settings})


def noise(size: int) -> bytes:
    """Bytes that cannot be compressed."""
    return _chance.randbytes(size)


class ByHand:
    """Sends chunks one by one, as a sender that is slow, dies or lies would."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = LibraryProducer(
            {"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0}
        )
        self._topic = topic

    def begin(self, number: int, parts: Sequence[bytes]) -> list[tuple[Chunk, bytes]]:
        """Write the first chunk; returns the others, which know where it lies."""
        first, *_ = chunks_of(number, parts)
        offset = self.put(*first)
        return chunks_of(number, parts, offset)[1:]

    def put(self, chunk: Chunk, data: bytes) -> int:
        """Write a chunk and return its offset."""
        return self.send(data, chunk_headers(chunk))

    def send(self, value: bytes, headers: list[tuple[str, bytes | None]] | None = None) -> int:
        """Write a record and return its offset."""
        offsets: list[int] = []

        def note(error: Any, record: Any) -> None:
            assert error is None, error
            offsets.append(record.offset())

        self._producer.produce(self._topic, value, b"k", 0, headers=headers or [], on_delivery=note)
        assert self._producer.flush(30) == 0
        return offsets[0]
