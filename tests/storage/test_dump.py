"""What `dump` shows of each kind of file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.storage.cleaner.folders import START_MS, Folder
from tests.storage.cleaner.logs import Bench, put

from headrace.protocol.batch import build_batch
from headrace.protocol.logs import write_key, write_versioned
from headrace.protocol.logs.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from headrace.protocol.records import Record
from headrace.storage import names
from headrace.storage.dump import COLUMNS, Row, dump


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "t-0")


def rows_of(path: str, kind: str, **options: bool | str) -> list[Row]:
    return [row for row in dump(path, **options) if row["type"] == kind]  # type: ignore[arg-type]


def test_a_batch_is_one_row_with_its_header(folder: Folder) -> None:
    folder.append([("a", "1"), ("b", "2")], codec=4, producer_id=5, base_sequence=7)
    folder.append([("c", "3")])
    folder.seal()
    first, second = rows_of(folder.path_of(0, names.LOG), "batch")
    assert tuple(first) == ("file", "type", *COLUMNS["batch"])
    assert (first["base_offset"], first["last_offset"], first["records"]) == (0, 1, 2)
    assert (first["codec"], first["producer_id"], first["base_sequence"]) == ("zstd", 5, 7)
    assert (first["position"], second["position"]) == (0, first["size_bytes"])
    assert first["damage"] is None


def test_deep_adds_keys_values_and_headers(folder: Folder) -> None:
    folder.append([("a", "1"), ("b", None)], codec=1)
    folder.append_raw(build_batch([Record(2, START_MS, None, b"\xff\x00x")], base_offset=2))
    folder.seal()
    records = rows_of(folder.path, "record", deep=True)
    assert [(row["offset"], row["key"], row["value"]) for row in records] == [
        (0, "a", "1"),
        (1, "b", None),
        (2, None, "\\xff\x00x"),
    ]
    assert records[0]["headers"] == {"h": "a"}
    assert rows_of(folder.path, "record") == []


def test_markers_are_named(folder: Folder) -> None:
    folder.append([("a", "1")], producer_id=5, base_sequence=0, transactional=True)
    folder.abort(5)
    folder.seal()
    assert [row["key"] for row in rows_of(folder.path, "record", deep=True)] == ["a", "ABORT"]
    (aborted,) = rows_of(folder.path, "txnindex")
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (5, 0, 1)


def test_indexes_are_shown_with_whole_offsets(folder: Folder) -> None:
    for number in range(40):
        if number == 10:
            folder.roll()
        folder.append([(f"k{number}", "v" * 50)])
    folder.seal()
    entries = rows_of(folder.path_of(10, names.OFFSET_INDEX), "index")
    batches = {
        (row["last_offset"], row["position"])
        for row in rows_of(folder.path_of(10, names.LOG), "batch")
    }
    assert len(entries) > 2
    assert {(row["offset"], row["position"]) for row in entries} <= batches
    times = rows_of(folder.path_of(10, names.TIME_INDEX), "timeindex")
    assert times[-1] | {"file": ""} == {
        "file": "",
        "type": "timeindex",
        "timestamp": START_MS + 39,
        "offset": 39,
    }


def test_room_that_kafka_reserved_in_an_index_is_not_shown(folder: Folder) -> None:
    for number in range(40):
        folder.append([(f"k{number}", "v" * 50)])
    folder.seal()
    path = Path(folder.path_of(0, names.OFFSET_INDEX))
    before = rows_of(str(path), "index")
    path.write_bytes(path.read_bytes() + bytes(800))
    assert rows_of(str(path), "index") == before


def test_a_data_folder_shows_checkpoints_snapshots_and_epochs(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    put(bench.log(), [("a", "1")], producer_id=5, base_sequence=3)
    bench.close()
    (point,) = [
        row
        for row in rows_of(str(tmp_path), "offset")
        if str(row["file"]).endswith("recovery-point-offset-checkpoint")
    ]
    assert (point["topic"], point["partition"], point["offset"]) == ("t", 0, 1)
    producers = rows_of(str(tmp_path), "producer")
    assert {(row["producer_id"], row["last_sequence"]) for row in producers} == {(5, 3)}
    assert [row["start_offset"] for row in rows_of(str(tmp_path), "epoch")] == [0]


def test_damage_is_a_row_and_the_other_files_go_on(folder: Folder) -> None:
    folder.append([("a", "1")])
    folder.append([("b", "1")])
    folder.roll()
    folder.append([("c", "1")])
    folder.seal()
    path = Path(folder.path_of(0, names.LOG))
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data[:-3])
    rows = list(dump(folder.path))
    assert [(row["type"], row.get("damage"), row.get("reason")) for row in rows][:2] == [
        ("batch", "checksum differs", None),
        ("damage", None, rows[1]["reason"]),
    ]
    assert rows[1]["position"] == len(data) // 2
    assert any(row["type"] == "batch" and row["base_offset"] == 2 for row in rows)


def test_records_of_consumer_offsets_are_decoded(folder: Folder) -> None:
    records = [
        (
            write_key(OffsetCommitKey(group="g", topic="t", partition=3)),
            write_versioned(OffsetCommitValue(offset=42, metadata="m", commit_timestamp=7), 3),
        ),
        (
            write_key(GroupMetadataKey(group="g")),
            write_versioned(
                GroupMetadataValue(
                    protocol_type="consumer", generation=4, protocol=None, leader=None, members=[]
                ),
                3,
            ),
        ),
        (write_key(GroupMetadataKey(group="gone")), None),
        (b"\x7f\x00odd", b"?"),
    ]
    folder.append_raw(
        build_batch([Record(n, START_MS, key, value) for n, (key, value) in enumerate(records)])
    )
    folder.seal()
    rows = rows_of(folder.path, "record", decode="offsets")
    commit, group, gone, odd = rows
    assert commit["key"] == {"type": "OffsetCommit", "group": "g", "topic": "t", "partition": 3}
    assert isinstance(commit["value"], dict)
    assert commit["value"]["offset"] == 42
    assert isinstance(group["value"], dict)
    assert group["value"]["generation"] == 4
    assert (gone["key"], gone["value"]) == ({"type": "GroupMetadata", "group": "gone"}, None)
    assert odd["value"] == "?"
    json.dumps(rows)


def test_what_was_set_aside_is_shown_also_behind_its_damage(folder: Folder) -> None:
    for number in range(4):
        folder.append([(f"k{number}", f"v{number}")])
    folder.seal()
    path = Path(folder.path_of(0, names.LOG))
    data = bytearray(path.read_bytes())
    data[8] = 0x7F  # the length of the first batch
    aside = path.with_name(path.name + names.CORRUPT * 2)
    aside.write_bytes(data)
    rows = list(dump(str(aside), deep=True))
    assert [row["type"] for row in rows] == ["damage", *["batch", "record"] * 3]
    assert [row["key"] for row in rows if row["type"] == "record"] == ["k1", "k2", "k3"]
