"""Walking the batches of a log file by their headers, without reading records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from headrace.protocol.batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    read_header,
)
from headrace.storage.files import Buffer, File, pread

LOOKUP_CHUNK_BYTES = 8 << 10
SCAN_CHUNK_BYTES = 1 << 20
_OFFSET_GAP_MAX = (1 << 31) - 1
_MAGIC_BYTE = bytes([MAGIC])


class BadBatch(ValueError):
    """Bytes at a position that are not a complete batch."""

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
    """As iter_headers, with each batch's bytes, after a check of its CRC; raises BadBatch."""
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


def next_batch(file: File, position: int, end: int, offset_min: int) -> int | None:
    """Where, at or after position, the next complete batch begins that could follow an offset.

    Its CRC is right and its offset is not below; None without such a batch. This distinguishes
    damage in the middle of a log from a torn end.
    """
    # The upper half of an offset hardly ever changes: it rules out nearly all false starts.
    highs = {(offset_min + gap >> 32).to_bytes(4, "big") for gap in (0, _OFFSET_GAP_MAX)}
    while position + HEADER_BYTES <= end:
        chunk = bytes(file.pread(min(SCAN_CHUNK_BYTES, end - position), position))
        at = chunk.find(_MAGIC_BYTE, MAGIC_AT)
        while at >= 0 and (start := at - MAGIC_AT) + HEADER_BYTES <= len(chunk):
            if chunk[start : start + 4] in highs and _is_whole(
                file, position + start, end, read_header(chunk, start), offset_min
            ):
                return position + start
            at = chunk.find(_MAGIC_BYTE, at + 1)
        if len(chunk) < HEADER_BYTES:
            break  # the file is shorter than it was
        position += len(chunk) - HEADER_BYTES + 1
    return None


def behind_damage(file: File, position: int, end: int, offset_min: int) -> int | None:
    """Where a log continues after the damaged batch at a position; None if it ends there.

    A batch inside the damaged one is not taken for a part of the log: it may be a record's value.
    """
    room = end - position
    if room < HEADER_BYTES:
        return None
    header = read_header(file.pread(HEADER_BYTES, position))
    after = position + header.size
    if header.magic == MAGIC and after == end:
        return None
    if header.magic == MAGIC and header.size > room:
        # Cut short, or its length is wrong; its CRC, which does not cover the length, decides.
        return _end_by_crc(file, position + ATTRIBUTES_AT, end, header.crc, offset_min)
    if header.magic == MAGIC and header.size >= HEADER_BYTES and after + HEADER_BYTES <= end:
        following = read_header(file.pread(HEADER_BYTES, after))
        if following.magic == MAGIC and _is_whole(file, after, end, following, offset_min):
            return after
    return next_batch(file, position + 1, end, offset_min)


def _end_by_crc(file: File, start: int, end: int, crc: int, offset_min: int) -> int | None:
    """The first complete batch before which the bytes from start on have this CRC."""
    found = next_batch(file, start, end, offset_min)
    actual = 0
    while found is not None:
        while start < found:
            data = file.pread(min(SCAN_CHUNK_BYTES, found - start), start)
            actual = crc32c(data, actual)
            start += len(data)
        if actual == crc:
            return found
        found = next_batch(file, found + 1, end, offset_min)
    return None


class Salvaged(NamedTuple):
    """A batch as it is on disk or, without a header, bytes that are not a batch."""

    position: int
    header: BatchHeader | None
    batch: Buffer
    damage: str | None
    is_last: bool


def iter_salvaged(file: File, end: int, offset_min: int) -> Iterator[Salvaged]:
    """All batches that can be found in a file, damaged ones too, also after damage."""
    position = 0
    while position < end:
        following = end
        try:
            for at, header in iter_headers(file, position, end, chunk_bytes=SCAN_CHUNK_BYTES):
                position, following = at, at + header.size
                batch = file.pread(header.size, at)
                reason = damage(batch, header)
                yield Salvaged(at, header, batch, reason, False)
                if reason is not None:
                    break  # its length may be the wrong part
                offset_min = max(offset_min, header.next_offset)
            else:
                return
            position = next_batch(file, position + 1, end, offset_min) or following
        except BadBatch as error:
            behind = next_batch(file, error.position + 1, end, offset_min)
            yield Salvaged(error.position, None, b"", error.reason, behind is None)
            position = end if behind is None else behind


def _is_whole(file: File, position: int, end: int, header: BatchHeader, offset_min: int) -> bool:
    return (
        HEADER_BYTES <= header.size <= end - position
        and offset_min <= header.base_offset <= offset_min + _OFFSET_GAP_MAX
        and 0 <= header.record_count <= header.last_offset_delta + 1
        and damage(file.pread(header.size, position), header) is None
    )


def damage(batch: Buffer, header: BatchHeader) -> str | None:
    """What is wrong with a complete batch on disk, or None."""
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
