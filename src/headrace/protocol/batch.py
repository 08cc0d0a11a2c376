"""Record batch v2: the unit that producers send, logs store and consumers fetch.

The base offset (bytes 0-7) and the leader epoch (bytes 12-15) are not covered by the CRC, so that a
broker can set the offset of a batch without touching the rest of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from headrace.protocol.compression import Codec, CompressionError, compress, decompress
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.primitives import Buffer, ProtocolError
from headrace.protocol.records import Record, decode_records, encode_records

HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""The base offset and the length, which the length itself does not count."""
LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES
MAGIC = 2
OLD_MAGICS = (0, 1)

LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
"""Where the part that the CRC covers begins."""
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORD_COUNT_AT = 57

CODEC_MASK = 0x07
CODEC_MAX = int(Codec.ZSTD)
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
"""The base timestamp is when a compacted log may drop the batch's tombstones (KIP-534)."""

UNPACKED_BYTES_MAX = 128 * 1024 * 1024
"""What a batch may unpack to unless the caller says otherwise."""
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

_header = Struct(">qiibIhiqqqhii")
_unpack_header = _header.unpack_from
_new_tuple = tuple.__new__
_base_offset = Struct(">q")
_leader_epoch = Struct(">i")
_crc = Struct(">I")
_attributes = Struct(">h")
_timestamp = Struct(">q")


class CorruptBatch(KafkaError):
    """The bytes are not a batch: they are damaged, or never were one."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class InvalidBatch(KafkaError):
    """The bytes are not one whole batch, or a field has an invalid value."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INVALID_RECORD) -> None:
        super().__init__(code, message)


class InvalidRecords(InvalidBatch):
    """Some records of a batch are invalid; their indexes are in `record_indexes` (KIP-467)."""

    def __init__(self, message: str, record_indexes: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.record_indexes = record_indexes


class BatchHeader(NamedTuple):
    """The fixed part of a batch, in the order of the wire."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The bytes of the whole batch."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers in the batch may be dropped, if compaction set it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap after 2^31 - 1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return self.base_sequence + self.last_offset_delta & 0x7FFF_FFFF


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Read the header at `pos`; only its presence is checked."""
    return _new_tuple(BatchHeader, _unpack_header(buf, pos))


def check_batch(buf: Buffer, pos: int, end: int) -> BatchHeader:
    """Check that one whole, undamaged batch starts at `pos`: length, magic, CRC, arithmetic.

    The choice of error follows Apache Kafka, where bytes that end too early are not a batch at all,
    and so not the one that a produce must have.
    """
    if end - pos < HEADER_BYTES:
        raise InvalidBatch(f"{end - pos} bytes are too few for a batch header")
    header: BatchHeader = _new_tuple(BatchHeader, _unpack_header(buf, pos))
    _, length, _, magic, crc, attributes, last_offset_delta, _, _, _, _, _, count = header
    if magic != MAGIC:
        error = InvalidBatch if magic in OLD_MAGICS else CorruptBatch
        raise error(f"magic is {magic}; only record batches of magic {MAGIC} are supported")
    stop = pos + LOG_OVERHEAD_BYTES + length
    if length < LENGTH_MIN:
        raise CorruptBatch(f"a batch length of {length} is too small")
    if stop > end:
        raise InvalidBatch(f"a batch of length {length} does not fit in {end - pos} bytes")
    view = buf if type(buf) is memoryview else memoryview(buf)
    if crc32c(view[pos + ATTRIBUTES_AT : stop]) != crc:
        raise CorruptBatch("the batch does not match its CRC")
    if last_offset_delta < 0 or not 0 <= count <= last_offset_delta + 1:
        raise InvalidBatch(f"{count} records do not fit in {last_offset_delta + 1} offsets")
    if attributes & CODEC_MASK > CODEC_MAX:
        raise InvalidBatch(
            f"compression codec {attributes & CODEC_MASK} is not known",
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
    return header


def check_produced(header: BatchHeader) -> None:
    """Check what holds for every batch that comes from a producer, but not for compacted ones."""
    if header.attributes & CONTROL_BIT:
        raise InvalidBatch("clients must not write control batches")
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidBatch(
            f"{header.record_count} records have {header.last_offset_delta + 1} offsets"
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidBatch(
            f"producer {header.producer_id} sent epoch {header.producer_epoch}, "
            f"sequence {header.base_sequence}"
        )
    if header.attributes & TRANSACTIONAL_BIT and header.producer_id < 0:
        raise InvalidBatch("a transactional batch needs a producer id")


def iter_headers(buf: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch; a batch cut short at the end is left out."""
    pos, end = 0, len(buf)
    while end - pos >= HEADER_BYTES:
        header = read_header(buf, pos)
        if header.batch_length < LENGTH_MIN:
            raise CorruptBatch(f"a batch length of {header.batch_length} is too small")
        if pos + header.size > end:
            return
        yield pos, header
        pos += header.size


def assign(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Set the base offset and leader epoch of the batch at `pos`, in place."""
    _base_offset.pack_into(buf, pos, base_offset)
    _leader_epoch.pack_into(buf, pos + LEADER_EPOCH_AT, leader_epoch)


def restamp(buf: bytearray | memoryview, pos: int, append_time_ms: int) -> None:
    """Set the batch at `pos` to log-append time, in place, with a new CRC."""
    (attributes,) = _attributes.unpack_from(buf, pos + ATTRIBUTES_AT)
    _attributes.pack_into(buf, pos + ATTRIBUTES_AT, attributes | LOG_APPEND_TIME_BIT)
    _timestamp.pack_into(buf, pos + MAX_TIMESTAMP_AT, append_time_ms)
    seal(buf, pos)


def seal(buf: bytearray | memoryview, pos: int) -> None:
    """Recompute the CRC of the batch at `pos` after a change."""
    stop = pos + read_header(buf, pos).size
    _crc.pack_into(buf, pos + CRC_AT, crc32c(memoryview(buf)[pos + ATTRIBUTES_AT : stop]))


def iter_records(
    buf: Buffer, pos: int = 0, *, limit_bytes: int = UNPACKED_BYTES_MAX
) -> Iterator[Record]:
    """Yield the records of the batch at `pos` as they are decoded; the CRC is not checked again.

    Malformed records, or a batch that unpacks to more than `limit_bytes`, raise InvalidBatch.
    """
    if len(buf) - pos < HEADER_BYTES:
        raise CorruptBatch(f"{len(buf) - pos} bytes are too few for a batch header")
    header = read_header(buf, pos)
    packed = memoryview(buf)[pos + HEADER_BYTES : pos + header.size]
    base_timestamp = header.base_timestamp
    append_time_ms = header.max_timestamp if header.log_append_time else None
    try:
        data = bytes(decompress(header.codec, packed, limit_bytes))
        for record in decode_records(
            data, header.record_count, header.base_offset, base_timestamp, append_time_ms
        ):
            if record.offset > header.last_offset:
                raise ProtocolError("a record's offset is beyond its batch")
            yield record
    except (CompressionError, ProtocolError) as error:
        raise InvalidBatch(str(error)) from error


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = Codec.NONE,
    timestamp_type: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    last_offset: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Build a batch from records with growing offsets from `base_offset`.

    `last_offset` keeps the end of a batch whose last records were compacted away; with it, the
    batch may even be empty. `timestamp_type` 1 is log-append time: the largest timestamp counts.
    """
    records = list(records)
    if not records and last_offset is None:
        raise ValueError("a batch without records needs a last_offset")
    if last_offset is None:
        last_offset = records[-1].offset
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    attributes = codec
    attributes |= LOG_APPEND_TIME_BIT if timestamp_type else 0
    attributes |= TRANSACTIONAL_BIT if transactional else 0
    attributes |= CONTROL_BIT if control else 0
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    body, count = encode_records(records, base_offset, base_timestamp)
    packed = compress(codec, body)
    batch = bytearray(
        _header.pack(
            base_offset,
            LENGTH_MIN + len(packed),
            leader_epoch,
            MAGIC,
            0,
            attributes,
            last_offset - base_offset,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
    )
    batch += packed
    seal(batch, 0)
    return batch


def frame_records(records: bytes, count: int, timestamp: int) -> bytearray:
    """Build a batch from offset 0 with encoded records that all have the same time."""
    batch = bytearray(
        _header.pack(
            0,
            LENGTH_MIN + len(records),
            -1,
            MAGIC,
            0,
            0,
            count - 1,
            timestamp,
            timestamp,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            count,
        )
    )
    batch += records
    _crc.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return batch
