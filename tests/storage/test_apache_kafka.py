"""Apache Kafka reads our folders, and we read its."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.apache_kafka import QUICK_JVM, ApacheKafka, java_tool
from tests.storage.batches import NOW_MS, append_marker, batch, read_all, values

from headrace.protocol.batch import read_header
from headrace.storage import Log, LogConfig, LogManager, OsFileSystem

# What DumpLogSegments says when something is wrong with a file.
COMPLAINTS = re.compile(
    r"mismatch|non-consecutive|error|exception|not found|out of order|corrupt|invalid|trailing",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition with several segments, every codec, a producer and two aborted transactions."""
    path = tmp_path_factory.mktemp("ours")
    config = LogConfig(segment_bytes=6000, index_interval_bytes=300)
    logs = LogManager(OsFileSystem(), [str(path)], config, lambda: NOW_MS)
    logs.open()
    logs.load()
    log = logs.create("t", 0, bytes(range(16)))
    for number in range(120):
        log.append(
            batch(
                [b"value %d" % number] * (1 + number % 4),
                timestamp=NOW_MS + (number * 7) % 50,
                codec=number % 5,
            ),
            leader_epoch=number // 50,
            now_ms=NOW_MS,
        )
        if number % 25 == 0:
            _transaction(log, number)
    logs.close()
    return path / "t-0"


def _transaction(log: Log, number: int) -> None:
    sequence = log.producers.get(7).next_sequence if log.producers.get(7) else 0  # type: ignore[union-attr]
    data = batch([b"in"] * 2, producer_id=7, epoch=0, sequence=sequence, transactional=True)
    log.append(data, leader_epoch=number // 50, now_ms=NOW_MS)
    append_marker(log, 7, 0, commit=number % 2 == 0)


def dump(folder: Path, suffix: str, *options: str) -> str:
    files = ",".join(str(path) for path in sorted(folder.glob("*" + suffix)))
    assert files
    return java_tool("dump-log", "--files", files, *options)


def complaints(output: str) -> list[str]:
    return [
        line
        for line in output.splitlines()
        if COMPLAINTS.search(line) and not line.startswith(("Dumping", "baseOffset", "| offset"))
    ]


def test_kafka_reads_our_segments_down_to_the_records(folder: Path) -> None:
    output = dump(folder, ".log", "--deep-iteration", "--print-data-log")
    assert complaints(output) == []
    assert "isvalid: false" not in output
    ours = LogManager(OsFileSystem(), [str(folder.parent)], LogConfig(), lambda: NOW_MS)
    ours.open()
    ours.load()
    log = ours.get("t", 0)
    assert log is not None
    dumped = re.findall(r"^\| offset: (\d+) .*payload: (\S.*)$", output, re.MULTILINE)
    expected = [(str(offset), value.decode()) for offset, value in values(log) if value]
    assert [row for row in dumped if not row[1].startswith("endTxnMarker")] == expected
    assert output.count("endTxnMarker: ABORT") == 2
    ours.close()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_kafka_finds_no_fault_in_our_indexes(folder: Path, suffix: str) -> None:
    assert complaints(dump(folder, suffix, "--deep-iteration")) == []
    assert complaints(dump(folder, suffix, "--index-sanity-check")) == []


def test_kafka_reads_our_transaction_index_and_snapshots(folder: Path) -> None:
    aborted = dump(folder, ".txnindex")
    assert aborted.count("producerId: 7") == 2
    snapshots = dump(folder, ".snapshot")
    assert complaints(snapshots) == []
    assert "producerId: 7 producerEpoch: 0" in snapshots


def test_we_read_what_kafka_wrote(tmp_path: Path) -> None:
    lines = [f"line {number} {'x' * 50}" for number in range(600)]
    settings = {"log.segment.bytes": "1048576", "log.index.interval.bytes": "1000"}
    with ApacheKafka(data_dir=tmp_path, settings=settings, heap="256m", jvm=QUICK_JVM) as kafka:
        java_tool(
            "console-producer",
            *("--bootstrap-server", kafka.bootstrap),
            *("--topic", "theirs"),
            *("--compression-codec", "zstd"),
            *("--batch-size", "2000"),
            stdin="\n".join(lines) + "\n",
        )
    logs = LogManager(OsFileSystem(), [str(tmp_path / "logs")], LogConfig(), lambda: NOW_MS)
    logs.open()
    assert logs.dirs[0].was_clean
    logs.load()
    log = logs.get("theirs", 0)
    assert log is not None
    assert log.topic_id is not None
    records = read_all(log)
    assert [record.value for record in records] == [line.encode() for line in lines]
    assert len(log.producers) == 1
    for record in (records[0], records[250], records[599]):
        piece = log.read(record.offset, 1, limit=log.end_offset)
        assert piece is not None
        header = read_header(piece.read())
        assert header.base_offset <= record.offset <= header.last_offset
        found = log.offset_for_timestamp(record.timestamp)
        assert found is not None
        assert found.timestamp == record.timestamp
    append_offset = log.append(batch([b"ours"]), leader_epoch=1, now_ms=NOW_MS).base_offset
    assert append_offset == 600
    logs.close()
    theirs = tmp_path / "logs" / "theirs-0"
    assert complaints(dump(theirs, ".log", "--deep-iteration")) == []
    assert complaints(dump(theirs, ".index", "--deep-iteration")) == []
    assert os.path.exists(tmp_path / "logs" / "meta.properties")
