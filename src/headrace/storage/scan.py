"""Walking the batches of a log file by their headers, without reading records."""

from __future__ import annotations

from collections.abc import Iterator

from crc32c import crc32c

from headrace.protocol.batch import ATTRIBUTES_AT, HEADER_BYTES, MAGIC, BatchHeader, read_header
from headrace.storage.files import Buffer, File, pread

LOOKUP_CHUNK_BYTES = 8 << 10
SCAN_CHUNK_BYTES = 1 << 20


class BadBatch(ValueError):
    """Bytes at a position that are no whole batch in its place."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"position {position}: {reason}")
        self.position = position
        self.reason = reason


def iter_headers(
    file: File,
    position: int,
    end: int,
    *,
    wait: bool = True,
    chunk_bytes: int = LOOKUP_CHUNK_BYTES,
) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers from position to end; raises BadBatch, or BlockingIOError."""
    chunk: bytes | bytearray = b""
    chunk_start = chunk_end = position
    while position < end:
        if position + HEADER_BYTES > chunk_end:
            if position + HEADER_BYTES > end:
                raise BadBatch(position, "cut inside a header")
            # After a jump over a large batch only the next header is worth reading.
            wanted = HEADER_BYTES if position - chunk_end >= chunk_bytes else chunk_bytes
            chunk = pread(file, min(wanted, end - position), position, wait)
            chunk_start, chunk_end = position, position + len(chunk)
            if len(chunk) < HEADER_BYTES:
                raise BadBatch(position, "file is shorter than it should be")
        header = read_header(chunk, position - chunk_start)
        size = header.size
        if (
            header.magic != MAGIC
            or size < HEADER_BYTES
            or position + size > end
            or header.last_offset_delta < 0
        ):
            raise BadBatch(position, _reason(header, end - position))
        yield position, header
        position += size


def iter_checked(
    file: File, position: int, end: int, chunk_bytes: int = SCAN_CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """As iter_headers, with each batch's bytes, whose CRC was found right; raises BadBatch."""
    while position < end:
        chunk = memoryview(file.pread(min(chunk_bytes, end - position), position))
        at = 0
        while at + HEADER_BYTES <= len(chunk):
            header = read_header(chunk, at)
            size = header.size
            if header.magic != MAGIC or size < HEADER_BYTES or position + size > end:
                raise BadBatch(position, _reason(header, end - position))
            if at + size > len(chunk):
                break
            batch = chunk[at : at + size]
            if reason := damage(batch, header):
                raise BadBatch(position, reason)
            yield position, header, batch
            position += size
            at += size
        if at == 0:
            if len(chunk) < HEADER_BYTES or len(chunk) == end - position:
                raise BadBatch(position, "cut inside a batch")
            chunk_bytes = max(chunk_bytes, read_header(chunk, 0).size)


def damage(batch: Buffer, header: BatchHeader) -> str | None:
    """What is wrong with a whole batch as it lies on disk, or None."""
    if crc32c(memoryview(batch)[ATTRIBUTES_AT:]) != header.crc:
        return "checksum differs"
    if header.base_offset < 0 or header.last_offset_delta < 0:
        return "impossible offsets"
    return None


def _reason(header: BatchHeader, room: int) -> str:
    if header.magic != MAGIC:
        return f"magic {header.magic} is not {MAGIC}"
    if header.size < HEADER_BYTES:
        return f"impossible length {header.batch_length}"
    if header.last_offset_delta < 0:
        return f"impossible last offset delta {header.last_offset_delta}"
    return f"length {header.size} goes beyond the {room} bytes left"
