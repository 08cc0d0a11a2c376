"""Which batches a log refuses to append, and why.

The fast path in `log.py` only finds out that something is wrong; these functions say what.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, NoReturn

from headrace.protocol.batch import (
    BatchHeader,
    InvalidBatch,
    InvalidRecords,
    check_batch,
    check_produced,
    iter_records,
)
from headrace.protocol.compression import Codec
from headrace.protocol.control import parse_marker
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage.files import Buffer
from headrace.storage.log.config import LogConfig
from headrace.storage.log.producers import Producers


class Origin(IntEnum):
    """Who appends: decides what is checked and who assigns offsets."""

    CLIENT = 0
    COORDINATOR = 1
    REPLICA = 2


class AppendInfo(NamedTuple):
    """The offsets of an append, or of the batch that it repeats."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    start_offset: int
    duplicate: bool = False


# What a client must not set: log-append time, control, an unknown codec. Bits without a meaning are
# masked out: Kafka stores them unchanged.
MEANINGFUL_ATTRIBUTES = 0x3F
REFUSED_ATTRIBUTES = frozenset(
    attributes
    for attributes in range(MEANINGFUL_ATTRIBUTES + 1)
    if attributes & 0x28 or attributes & 0x07 > 4
)

_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def codec_wanted(header: BatchHeader, config: LogConfig) -> Codec | None:
    """The codec that `compression.type` asks for, if the batch has another; call before append."""
    wanted = _CODECS.get(config.compression_type)
    return wanted if wanted != header.codec else None


def refuse_produced(data: Buffer) -> NoReturn:
    """Raise the KafkaError for what is wrong with a client's batch."""
    header = check_batch(data, 0, len(data))
    if header.size != len(data):
        raise InvalidBatch(
            f"{len(data) - header.size} bytes follow the batch; only one batch is allowed"
        )
    check_produced(header)
    if header.log_append_time:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "clients must not set the timestamp type to LogAppendTime"
        )
    if header.base_offset != 0:
        raise InvalidBatch(f"the base offset of a produced batch is 0, not {header.base_offset}")
    raise InvalidBatch(f"a batch with attributes {header.attributes:#x} is not accepted")


def refuse_size(size: int, config: LogConfig) -> NoReturn:
    """Raise the KafkaError for a batch that is too large for a segment or the topic."""
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes is above max.message.bytes={config.max_message_bytes}",
        )
    raise KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"a batch of {size} bytes is above segment.bytes={config.segment_bytes}",
    )


def check_create_time(
    base_timestamp: int, max_timestamp: int, now_ms: int, config: LogConfig
) -> None:
    """Raise KafkaError when a create time is too far from now (KIP-937)."""
    if max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {max_timestamp} is more than "
            f"{config.message_timestamp_after_max_ms} ms after now ({now_ms})",
        )
    if base_timestamp >= 0 and now_ms - base_timestamp > config.message_timestamp_before_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {base_timestamp} is more than "
            f"{config.message_timestamp_before_max_ms} ms before now ({now_ms})",
        )


def check_keys(batch: Buffer) -> None:
    """Raise InvalidBatch when records of a compacted topic have no key or cannot be read."""
    keyless = [place for place, record in enumerate(iter_records(batch)) if record.key is None]
    if keyless:
        raise InvalidRecords("a record of a compacted topic needs a key", tuple(keyless))


def split_batches(data: Buffer) -> list[tuple[int, BatchHeader]]:
    """Positions and headers of one or more whole, undamaged batches; raises KafkaError."""
    batches: list[tuple[int, BatchHeader]] = []
    position, end = 0, len(data)
    while position < end or not batches:
        header = check_batch(data, position, end)
        batches.append((position, header))
        position += header.size
    return batches


def check_internal(
    batch: Buffer, header: BatchHeader, config: LogConfig, producers: Producers
) -> None:
    """Raise KafkaError for a coordinator's batch that is too large, or a fenced marker."""
    if header.size > min(config.max_message_bytes, config.segment_bytes):
        refuse_size(header.size, config)
    marker = parse_marker(batch) if header.is_control else None
    if marker is not None:
        producers.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)


def check_follows(header: BatchHeader, end_offset: int) -> None:
    """Raise InvalidBatch when a leader's batch is below the end of the log."""
    if header.base_offset < end_offset:
        raise InvalidBatch(f"offset {header.base_offset} is below the end of the log {end_offset}")
