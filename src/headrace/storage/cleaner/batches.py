"""Batches as the cleaner reads and writes them: unpacked, made smaller, made empty."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from headrace.protocol.batch import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_AT,
    LOG_OVERHEAD_BYTES,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
    RECORD_COUNT_AT,
    UNPACKED_BYTES_MAX,
    BatchHeader,
    InvalidBatch,
    read_header,
    seal,
)
from headrace.protocol.compression import compress, decompress
from headrace.protocol.primitives import Buffer
from headrace.protocol.records import decode_records
from headrace.storage.cleaner.raw_records import RawRecord, with_timestamp_delta

_int16 = Struct(">h")
_int32 = Struct(">i")
_int64 = Struct(">q")


def payload_of(batch: memoryview, header: BatchHeader, limit_bytes: int) -> bytes:
    """The records of a batch, unpacked; ValueError if that fails."""
    return bytes(decompress(header.codec, batch[HEADER_BYTES:], limit_bytes))


def rebuilt(
    batch: memoryview,
    header: BatchHeader,
    payload: bytes,
    records: Sequence[RawRecord],
    horizon_ms: int | None,
) -> bytearray:
    """The batch with only these records, same codec, offsets and timestamps.

    The last offset delta stays that of the original, and with it the producer's last sequence.
    """
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    max_timestamp = header.max_timestamp
    if not header.log_append_time:
        max_timestamp = base_timestamp + max(record.timestamp_delta for record in records)
    if horizon_ms is None:
        data = b"".join([payload[record.start : record.end] for record in records])
    else:
        shift = base_timestamp - horizon_ms
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = horizon_ms
        data = b"".join(
            [
                with_timestamp_delta(payload, record, record.timestamp_delta + shift)
                for record in records
            ]
        )
    packed = compress(header.codec, data)
    return _patched(batch, packed, attributes, base_timestamp, max_timestamp, len(records))


def emptied(batch: memoryview, header: BatchHeader) -> bytearray:
    """The batch without records, kept for its offsets, its producer and its sequence."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return _patched(batch, b"", attributes, NO_TIMESTAMP, header.max_timestamp, 0)


def repacked(
    batch: memoryview, header: BatchHeader, payload: Buffer, codec: int, level: int | None
) -> bytearray:
    """The batch with the same records under another codec, at a level or (None) its usual one."""
    return _patched(
        batch,
        compress(codec, payload, level),
        header.attributes & ~CODEC_MASK | codec,
        header.base_timestamp,
        header.max_timestamp,
        header.record_count,
    )


def _patched(
    batch: memoryview,
    packed: Buffer,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
) -> bytearray:
    """The batch with another payload; the other fields of its header stay."""
    out = bytearray(batch[:HEADER_BYTES])
    out += packed
    _int32.pack_into(out, LENGTH_AT, len(out) - LOG_OVERHEAD_BYTES)
    _int16.pack_into(out, ATTRIBUTES_AT, attributes)
    _int64.pack_into(out, BASE_TIMESTAMP_AT, base_timestamp)
    _int64.pack_into(out, MAX_TIMESTAMP_AT, max_timestamp)
    _int32.pack_into(out, RECORD_COUNT_AT, record_count)
    seal(out, 0)
    return out


def recompress(
    batch: Buffer, codec: int, level: int | None = None, limit_bytes: int = UNPACKED_BYTES_MAX
) -> bytearray:
    """One batch with another codec and a new CRC, for `compression.type`.

    The records are checked, since the broker is responsible for a batch that it packed itself:
    their number and their offsets must be those of the header. InvalidBatch if they are not, or if
    the batch does not unpack.
    """
    header = read_header(batch, 0)
    view = memoryview(batch)[: header.size]
    try:
        payload = payload_of(view, header, limit_bytes)
        for index, record in enumerate(decode_records(payload, header.record_count, 0, 0, None)):
            if record.offset != index:
                raise InvalidBatch(f"record {index} of the batch has offset delta {record.offset}")
    except ValueError as error:
        raise InvalidBatch(str(error)) from error
    return repacked(view, header, payload, codec, level)
