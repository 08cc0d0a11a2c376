"""Which batches are refused, and with which error."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.storage.batches import (
    NOW_MS,
    append,
    batch,
    open_test_log,
    values,
)

from headrace.protocol.batch import read_header
from headrace.protocol.compression import Codec
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import LogConfig, OsFileSystem
from headrace.storage.log.appending import codec_wanted


def refused(log, data: memoryview, now_ms: int = NOW_MS) -> ErrorCode:  # type: ignore[no-untyped-def]
    end_offset, size = log.end_offset, log.size_bytes
    with pytest.raises(KafkaError) as caught:
        log.append(data, leader_epoch=0, now_ms=now_ms)
    assert (log.end_offset, log.size_bytes) == (end_offset, size)
    return caught.value.code


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda b: b[:0], ErrorCode.INVALID_RECORD),
        (lambda b: b[:40], ErrorCode.INVALID_RECORD),
        (lambda b: b[:-1], ErrorCode.INVALID_RECORD),
        (lambda b: _flip(b, 70), ErrorCode.CORRUPT_MESSAGE),
        (lambda b: _flip(b, 16), ErrorCode.CORRUPT_MESSAGE),
        (lambda b: memoryview(bytearray(b) * 2), ErrorCode.INVALID_RECORD),
        (lambda b: _flip(b, 7), ErrorCode.INVALID_RECORD),
    ],
)
def test_damaged_batches_are_refused(tmp_path: Path, damage, code: ErrorCode) -> None:  # type: ignore[no-untyped-def]
    log = open_test_log(OsFileSystem(), str(tmp_path))
    append(log, b"before")
    assert refused(log, damage(batch([b"value"]))) == code
    append(log, b"after")
    assert values(log) == [(0, b"before"), (1, b"after")]


def _flip(data: memoryview, byte: int) -> memoryview:
    data[byte] ^= 1
    return data


def test_control_batches_of_clients_are_refused(tmp_path: Path) -> None:
    from tests.storage.batches import marker

    log = open_test_log(OsFileSystem(), str(tmp_path))
    assert refused(log, marker(1, 0, commit=True)) == ErrorCode.INVALID_RECORD


def test_too_large_batches_are_refused(tmp_path: Path) -> None:
    log = open_test_log(
        OsFileSystem(), str(tmp_path), config=LogConfig(max_message_bytes=200, segment_bytes=1000)
    )
    assert refused(log, batch([b"x" * 200])) == ErrorCode.MESSAGE_TOO_LARGE
    log.config = LogConfig(max_message_bytes=2000, segment_bytes=1000)
    assert refused(log, batch([b"x" * 1500])) == ErrorCode.RECORD_LIST_TOO_LARGE
    append(log, b"x" * 500)


def test_keyless_records_are_refused_by_compacted_topics_only(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    log.append(batch([b"v"], key=None), leader_epoch=0, now_ms=NOW_MS)
    log.config = LogConfig(cleanup_policy=frozenset({"compact"}))
    for codec in range(5):
        assert refused(log, batch([b"v"], key=None, codec=codec)) == ErrorCode.INVALID_RECORD
        log.append(batch([b"v"], codec=codec), leader_epoch=0, now_ms=NOW_MS)


def test_create_time_too_far_from_now_is_refused(tmp_path: Path) -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=2000)
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    for timestamp in (NOW_MS - 1001, NOW_MS + 2001):
        assert refused(log, batch([b"v"], timestamp=timestamp)) == ErrorCode.INVALID_TIMESTAMP
    append(log, b"a", timestamp=NOW_MS - 1000)
    append(log, b"b", timestamp=NOW_MS + 2000)


def test_recompression_is_asked_for_only_when_codecs_differ() -> None:
    gzipped = read_header(batch([b"v"], codec=1))
    assert codec_wanted(gzipped, LogConfig(compression_type="producer")) is None
    assert codec_wanted(gzipped, LogConfig(compression_type="gzip")) is None
    assert codec_wanted(gzipped, LogConfig(compression_type="zstd")) == Codec.ZSTD
    assert codec_wanted(gzipped, LogConfig(compression_type="uncompressed")) == Codec.NONE
