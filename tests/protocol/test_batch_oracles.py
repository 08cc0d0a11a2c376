"""Batches of other implementations are read by us, and ours by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records
from kafka.record import default_records as kafka_python_records
from tests.apache_kafka import java_tool

from headrace.protocol.batch import build_batch, check_batch, check_produced, iter_records
from headrace.protocol.compression import Codec
from headrace.protocol.control import ControlType, EndTransactionMarker, build_marker
from headrace.protocol.records import Record

RECORDS = [
    Record(i, 1_700_000_000_000 + i, b"key-%d" % i, b"value " * i, [("n", b"%d" % i), ("z", None)])
    for i in range(1, 60)
]
# kafka-python needs more packages for the others, all of which aiokafka's have.
LIBRARIES = [(aiokafka_records, codec) for codec in Codec]
LIBRARIES += [(kafka_python_records, codec) for codec in (Codec.NONE, Codec.GZIP)]


@pytest.mark.parametrize(("library", "codec"), LIBRARIES)
def test_batches_of_python_clients_are_read(library: Any, codec: Codec) -> None:
    builder = library.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=1,
        producer_id=5,
        producer_epoch=2,
        base_sequence=10,
        batch_size=1_000_000,
    )
    for i, record in enumerate(RECORDS):
        headers = list(record.headers)
        builder.append(
            i, timestamp=record.timestamp, key=record.key, value=record.value, headers=headers
        )
    batch = bytearray(builder.build())
    header = check_batch(batch, 0, len(batch))
    check_produced(header)
    assert header.codec == codec
    assert [record._replace(offset=0) for record in iter_records(batch)] == [
        record._replace(offset=0) for record in RECORDS
    ]


@pytest.mark.parametrize(("library", "codec"), LIBRARIES)
def test_our_batches_are_read_by_python_clients(library: Any, codec: Codec) -> None:
    batch = library.DefaultRecordBatch(bytes(build_batch(RECORDS, base_offset=1, codec=codec)))
    assert batch.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch] == [
        (r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in RECORDS
    ]


@pytest.mark.timeout(300)  # the first run downloads the jars
def test_our_batches_are_read_by_apache_kafka(tmp_path: Path) -> None:
    data = bytearray()
    for codec in Codec:
        data += build_batch(RECORDS, base_offset=1, codec=codec)
    data += build_batch([], base_offset=60, last_offset=64)
    data += build_batch([Record(65, 7, b"k", None)], base_offset=65, delete_horizon_ms=9)
    data += build_marker(
        EndTransactionMarker(ControlType.COMMIT, 3),
        producer_id=1,
        producer_epoch=0,
        timestamp=8,
        base_offset=66,
    )
    (tmp_path / "batches").write_bytes(data)
    program = Path(__file__).with_name("ReadBatches.java")
    lines = java_tool(str(program), str(tmp_path / "batches")).splitlines()
    each = [f"{r.offset} {r.timestamp} {(r.key or b'').decode()} 2" for r in RECORDS]
    assert lines == [*each * len(Codec), "65 7 k 0", "66 8 COMMIT 3"]
