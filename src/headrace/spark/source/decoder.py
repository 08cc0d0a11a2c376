"""Record batches of one partition into Arrow record batches, within a range of offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from headrace.client.wire.batch_reader import Fetched
from headrace.protocol.batch import HEADER_BYTES, UNPACKED_BYTES_MAX, BatchHeader, InvalidBatch
from headrace.protocol.compression import Codec, CompressionError, decompress, decompress_into
from headrace.protocol.primitives import Buffer

CHUNK_BYTES_MAX = 8 << 20
"""Unpacked bytes after which an Arrow batch is given out; one Kafka batch may exceed it."""

ROWS_MAX = 4_000_000
"""Of an Arrow batch: the names of a topic in so many rows are less than 2 GB, as they must be."""
RECORD_BYTES_MIN = 7
"""The length, attributes, time, offset, key, value and number of headers take a byte each."""

Segment = tuple[int, int, int, int, int, int, int, int]
"""Where the records of a batch are and what its header says of them; fields as in kernel.py."""


class Part(NamedTuple):
    """Unpacked bytes, and the records of batches in them."""

    buffer: Buffer
    segments: list[Segment]

    @property
    def rows_max(self) -> int:
        """No more rows than this come of it."""
        return sum(segment[2] for segment in self.segments)

    @property
    def size_bytes(self) -> int:
        """No more bytes than this come of it."""
        return sum(segment[1] - segment[0] for segment in self.segments)


class Build(Protocol):
    """Makes an Arrow record batch of the parts' records whose offsets are in [first, end).

    It may be good only until the next is made.
    """

    def __call__(
        self,
        parts: Sequence[Part],
        columns: Sequence[str],
        topic: str,
        partition: int,
        first: int,
        end: int,
    ) -> Any: ...


def best_build() -> Build:
    """The compiled one where numba is installed, else the plain one."""
    try:
        from headrace.spark.source.compiled import Builder
    except ImportError:
        from headrace.spark.source.plain import build

        return build
    return Builder()


def cuts(parts: Sequence[Part], first: int, end: int) -> Iterator[tuple[int, int]]:
    """The offsets of parts in [first, end), cut so that none has more rows than an Arrow batch."""
    if sum(part.rows_max for part in parts) <= ROWS_MAX:
        yield first, end
        return
    segments = [segment for part in parts for segment in part.segments]
    low = max(first, min(segment[3] for segment in segments))
    high = min(end, max(segment[3] + segment[4] for segment in segments) + 1)
    for start in range(low, high, ROWS_MAX):
        yield start, min(start + ROWS_MAX, high)


class Unpacker:
    """Unpacks batches into room that it uses again: fresh memory costs more than the unpacking."""

    def __init__(self, chunk_bytes_max: int = CHUNK_BYTES_MAX) -> None:
        self._chunk_bytes_max = chunk_bytes_max
        self._room = bytearray(chunk_bytes_max)
        self._used = 0

    def chunks(self, fetched: Fetched) -> Iterator[list[Part]]:
        """The committed batches of an answer, in portions that are worth an Arrow batch.

        A portion is good until the next is asked for. A damaged or malformed batch is a
        CorruptBatch or an InvalidBatch.
        """
        parts: list[Part] = []
        chunk_bytes = self._used = 0
        for position, header in fetched.committed():
            place = self._unpack(fetched.buffer, position, header)
            if place is None:
                yield parts
                parts, chunk_bytes, self._used = [], 0, 0
                place = self._unpack(fetched.buffer, position, header)
            assert place is not None
            buffer, start, stop = place
            if not parts or parts[-1].buffer is not buffer:
                parts.append(Part(buffer, []))
            parts[-1].segments.append(_segment(start, stop, header))
            chunk_bytes += stop - start
            if chunk_bytes >= self._chunk_bytes_max:
                yield parts
                parts, chunk_bytes, self._used = [], 0, 0
        if parts:
            yield parts

    def _unpack(
        self, buffer: memoryview, position: int, header: BatchHeader
    ) -> tuple[Buffer, int, int] | None:
        """Where the records are; None if there is no room beside those that are not taken yet."""
        start, stop = position + HEADER_BYTES, position + header.size
        if header.codec == Codec.NONE:
            return buffer, start, stop
        packed = buffer[start:stop]
        try:
            if header.codec == Codec.SNAPPY:
                data = decompress(header.codec, packed, UNPACKED_BYTES_MAX)
                return data, 0, len(data)
            while (size := self._try(header.codec, packed)) is None:
                if self._used:
                    return None
                if len(self._room) >= UNPACKED_BYTES_MAX:
                    raise InvalidBatch(f"a batch unpacks to more than {UNPACKED_BYTES_MAX} bytes")
                self._room = bytearray(min(4 * len(self._room), UNPACKED_BYTES_MAX))
        except CompressionError as error:
            raise InvalidBatch(str(error)) from error
        start, self._used = self._used, self._used + size
        return self._room, start, self._used

    def _try(self, codec: int, packed: memoryview) -> int | None:
        return decompress_into(codec, packed, memoryview(self._room)[self._used :])


def _segment(start: int, stop: int, header: BatchHeader) -> Segment:
    # Room is made for as many rows as the header says, so it must not say more than can be.
    if header.record_count > (stop - start) // RECORD_BYTES_MIN:
        raise InvalidBatch(f"{header.record_count} records do not fit in {stop - start} bytes")
    return (
        start,
        stop,
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        int(header.log_append_time),
    )
