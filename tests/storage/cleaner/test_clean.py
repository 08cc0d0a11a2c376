"""What cleaning keeps, drops and rewrites, file to file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.storage.cleaner.folders import START_MS, Folder

from headrace.protocol.batch import HEADER_BYTES, build_batch, iter_records, seal
from headrace.protocol.records import Record
from headrace.storage import names
from headrace.storage.cleaner.clean import Uncleanable
from headrace.storage.cleaner.offset_map import SLOT_BYTES
from headrace.storage.cleaner.options import LastRecord

CODECS = [0, 1, 2, 3, 4]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "t-0")


@pytest.mark.parametrize("codec", CODECS)
def test_the_last_record_of_each_key_stays_with_offset_time_headers_and_codec(
    folder: Folder, codec: int
) -> None:
    folder.append([("a", "1"), ("b", "1"), ("c", "1")], codec=codec)
    folder.roll()
    folder.append([("a", "2"), ("d", "1")], codec=codec)
    before = {record.offset: record for record in folder.records()}
    folder.clean()
    after = folder.records()
    assert [record.offset for record in after] == [1, 2, 3, 4]
    assert all(record == before[record.offset] for record in after)
    assert {header.codec for header in folder.headers()} == {codec}


def test_a_batch_that_loses_nothing_is_copied_byte_by_byte(folder: Folder) -> None:
    folder.append([("a", "1"), ("b", "1")], codec=4)
    original = bytes(next(folder.batches())[1])
    folder.clean()
    assert bytes(next(folder.batches())[1]) == original


def test_a_smaller_batch_keeps_its_offsets_producer_and_epoch(folder: Folder) -> None:
    folder.append([("a", "1"), ("b", "1"), ("a", "2"), ("b", "2")], producer_id=5, base_sequence=9)
    (before,) = folder.headers()
    folder.clean()
    (after,) = folder.headers()
    assert after.record_count == 2
    for field in (
        "base_offset",
        "last_offset_delta",
        "leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "base_timestamp",
        "max_timestamp",
        "attributes",
    ):
        assert getattr(after, field) == getattr(before, field), field


def test_the_max_timestamp_of_a_smaller_batch_is_that_of_what_stays(folder: Folder) -> None:
    folder.append([("a", "1"), ("b", "1")], timestamp=START_MS)
    folder.append([("b", "2")], timestamp=START_MS + 50)
    folder.clean()
    assert [header.max_timestamp for header in folder.headers()] == [START_MS, START_MS + 50]


def test_log_append_time_is_kept(folder: Folder) -> None:
    folder.append([("a", "1"), ("b", "1"), ("b", None)], timestamp_type=1)
    (stamp,) = {record.timestamp for record in folder.records()}
    folder.clean()
    assert [(record.offset, record.timestamp) for record in folder.records()] == [
        (0, stamp),
        (2, stamp),
    ]


def test_segments_are_joined_up_to_the_segment_size(folder: Folder) -> None:
    for number in range(6):
        folder.roll()
        folder.append([(f"k{number}", "v" * 100)])
    folder.seal()
    size = folder.facts()[0].log_bytes
    folder.clean(segment_bytes=3 * size)
    assert folder.bases == [0, 3]
    assert [offset for offset, _, _ in folder.pairs()] == [0, 1, 2, 3, 4, 5]


def test_indexes_of_the_cleaned_segment_point_at_batches(folder: Folder) -> None:
    for number in range(200):
        if number % 50 == 0:
            folder.roll()
        folder.append([(f"k{number % 150}", "v" * 50)])
    folder.clean()
    (base,) = folder.bases
    positions = {}
    position = 0
    for header in folder.headers():
        positions[header.last_offset] = position
        position += header.size
    with Path(folder.path_of(base, names.OFFSET_INDEX)).open("rb") as file:
        data = file.read()
    entries = [
        (int.from_bytes(data[i : i + 4], "big"), int.from_bytes(data[i + 4 : i + 8], "big"))
        for i in range(0, len(data), 8)
    ]
    assert len(entries) > 10
    assert all(positions[base + relative] == position for relative, position in entries)


class TestTombstones:
    def test_one_stays_until_the_retention_after_the_first_clean_is_over(
        self, folder: Folder
    ) -> None:
        folder.append([("a", "1")])
        folder.append([("a", None)])
        folder.append([("z", "1")])
        folder.clean(now_ms=START_MS, delete_retention_ms=1000)
        assert folder.pairs() == [(1, "a", None), (2, "z", "1")]
        assert folder.headers()[0].delete_horizon_ms == START_MS + 1000
        folder.clean(now_ms=START_MS + 999, delete_retention_ms=1000)
        assert folder.pairs() == [(1, "a", None), (2, "z", "1")]
        assert folder.headers()[0].delete_horizon_ms == START_MS + 1000
        folder.clean(now_ms=START_MS + 1000, delete_retention_ms=1000)
        assert folder.pairs() == [(2, "z", "1")]

    def test_setting_the_horizon_leaves_timestamps_alone(self, folder: Folder) -> None:
        folder.append([("a", "1"), ("b", None), ("c", "1")], codec=1)
        before = folder.records()
        folder.clean(now_ms=START_MS + 10**9)
        assert folder.records() == before
        assert folder.headers()[0].delete_horizon_ms == START_MS + 10**9 + 1000
        assert folder.headers()[0].max_timestamp == before[-1].timestamp

    def test_a_tombstone_overwritten_later_goes_at_once(self, folder: Folder) -> None:
        folder.append([("a", None)])
        folder.append([("a", "2")])
        folder.clean()
        assert folder.pairs() == [(1, "a", "2")]

    def test_values_beside_an_expired_tombstone_stay(self, folder: Folder) -> None:
        folder.append([("a", None), ("b", "1")])
        folder.append([("z", "1")])
        folder.clean(now_ms=START_MS, delete_retention_ms=0)
        folder.clean(now_ms=START_MS + 1, delete_retention_ms=0)
        assert folder.pairs() == [(1, "b", "1"), (2, "z", "1")]


class TestDirtyPart:
    def test_keys_below_the_dirty_part_only_lose_to_keys_in_it(self, folder: Folder) -> None:
        folder.append([("a", "1"), ("b", "1")])
        folder.roll()
        folder.append([("a", "2")])
        folder.clean(first_dirty_offset=2)
        assert folder.pairs() == [(1, "b", "1"), (2, "a", "2")]

    def test_a_full_map_ends_the_range_at_a_batch_and_a_second_round_does_the_rest(
        self, folder: Folder
    ) -> None:
        for round_number in range(2):
            for number in range(0, 40, 2):
                folder.append(
                    [
                        (f"k{number}", f"v{round_number}"),
                        (f"k{number + 1}", f"v{round_number}"),
                    ]
                )
        rounds = 0
        dirty = 0
        while dirty < folder.next_offset:
            result = folder.clean(first_dirty_offset=dirty, dedupe_buffer_bytes=SLOT_BYTES * 23)
            assert result.end_offset > dirty
            assert result.end_offset % 2 == 0 or result.end_offset == folder.next_offset
            dirty = result.end_offset
            rounds += 1
        assert rounds > 2
        assert folder.pairs() == [(40 + n, f"k{n}", "v1") for n in range(40)]

    def test_a_batch_with_more_keys_than_the_map_is_an_error_with_a_hint(
        self, folder: Folder
    ) -> None:
        folder.append([(f"k{n}", "v") for n in range(50)])
        with pytest.raises(Uncleanable, match=r"log\.cleaner\.dedupe\.buffer\.size"):
            folder.clean(dedupe_buffer_bytes=SLOT_BYTES * 10)

    def test_the_end_of_the_range_stays_as_an_empty_batch(self, folder: Folder) -> None:
        folder.append([("a", "1")])
        folder.append([("a", None)])
        folder.clean(delete_retention_ms=0)
        folder.clean(now_ms=START_MS + 1)
        (header,) = folder.headers()
        assert (header.record_count, header.next_offset) == (0, 2)

    def test_the_clean_end_covers_offsets_that_earlier_cleanings_removed(
        self, folder: Folder
    ) -> None:
        folder.append([("a", "1")])
        folder.next_offset = 50
        result = folder.clean()
        assert result.end_offset == 50


class TestProducers:
    def test_the_last_batch_of_an_active_producer_stays_empty(self, folder: Folder) -> None:
        folder.append([("a", "1")], producer_id=5, producer_epoch=3, base_sequence=0)
        folder.append([("a", "2"), ("b", "1")], producer_id=5, producer_epoch=3, base_sequence=1)
        folder.append([("a", "3"), ("b", "2")])
        folder.clean(last_records={5: LastRecord(2, 3)})
        kept, _ = folder.headers()
        assert (kept.record_count, kept.base_offset, kept.last_offset) == (0, 1, 2)
        assert (kept.producer_id, kept.producer_epoch, kept.base_sequence) == (5, 3, 1)
        assert kept.last_sequence == 2
        assert kept.size == HEADER_BYTES

    def test_it_goes_once_the_producer_is_no_longer_active(self, folder: Folder) -> None:
        folder.append([("a", "1")], producer_id=5, base_sequence=0)
        folder.append([("a", "2")])
        folder.clean(last_records={5: LastRecord(0, 0)})
        assert len(folder.headers()) == 2
        folder.clean()
        assert len(folder.headers()) == 1


class TestTransactions:
    def test_aborted_records_go_and_do_not_hide_older_ones(self, folder: Folder) -> None:
        folder.append([("a", "1")])
        folder.append([("a", "never")], producer_id=5, base_sequence=0, transactional=True)
        folder.abort(5)
        folder.append([("z", "1")])
        folder.clean()
        assert folder.pairs() == [(0, "a", "1"), (3, "z", "1")]

    def test_the_marker_of_a_removed_transaction_goes_after_its_horizon(
        self, folder: Folder
    ) -> None:
        folder.append([("a", "never")], producer_id=5, base_sequence=0, transactional=True)
        marker = folder.abort(5)
        folder.append([("z", "1")])
        # The first pass removes the data; its marker and index row stay, readers may need them.
        folder.clean(now_ms=START_MS)
        assert [header.base_offset for header in folder.headers()] == [marker, 2]
        assert folder.headers()[0].delete_horizon_ms is None
        assert [row.last_offset for row in folder.aborted()] == [marker]
        # The second finds no data: the horizon starts, and the row has nothing left to say.
        folder.clean(now_ms=START_MS + 10)
        assert folder.headers()[0].delete_horizon_ms == START_MS + 1010
        assert folder.aborted() == []
        folder.clean(now_ms=START_MS + 1009)
        assert len(folder.headers()) == 2
        folder.clean(now_ms=START_MS + 1010)
        assert [header.base_offset for header in folder.headers()] == [2]

    def test_a_commit_marker_stays_while_its_data_does(self, folder: Folder) -> None:
        folder.append([("a", "1")], producer_id=5, base_sequence=0, transactional=True)
        folder.commit(5)
        folder.append([("z", "1")])
        for step in range(4):
            folder.clean(now_ms=START_MS + 10_000 * step)
        assert [header.base_offset for header in folder.headers()] == [0, 1, 2]
        folder.append([("a", "2")])
        for step in range(4):
            folder.clean(now_ms=START_MS + 10_000 * step)
        assert folder.pairs() == [(2, "z", "1"), (3, "a", "2")]
        assert [header.base_offset for header in folder.headers()] == [2, 3]

    def test_a_marker_with_a_horizon_still_reads_as_the_same_marker(self, folder: Folder) -> None:
        folder.append([("a", "1")], producer_id=5, base_sequence=0, transactional=True)
        folder.commit(5)
        folder.append([("a", "2")])
        original = next(list(iter_records(b)) for h, b in folder.batches() if h.is_control)
        folder.clean()
        folder.clean()
        marker = next(b for h, b in folder.batches() if h.is_control)
        assert list(iter_records(marker)) == original

    def test_the_last_marker_of_a_producer_without_data_stays_for_its_epoch(
        self, folder: Folder
    ) -> None:
        folder.append([("a", "1")], producer_id=5, base_sequence=0, transactional=True)
        folder.commit(5)
        folder.append([("a", "2")])
        for step in range(4):
            folder.clean(now_ms=START_MS + 10_000 * step, last_records={5: LastRecord(None, 0)})
        empty, _ = folder.headers()
        assert (empty.is_control, empty.record_count, empty.base_offset) == (True, 0, 1)

    def test_a_transaction_over_two_segments_of_two_groups_goes_as_a_whole(
        self, folder: Folder
    ) -> None:
        folder.append([("a", "no")], producer_id=5, base_sequence=0, transactional=True)
        folder.roll()
        folder.append([("b", "no")], producer_id=5, base_sequence=1, transactional=True)
        folder.append([("b", "yes")], producer_id=6, base_sequence=0, transactional=True)
        folder.abort(5)
        folder.roll()
        folder.commit(6)
        folder.append([("z", "1")])
        folder.clean(segment_bytes=1)
        assert folder.pairs() == [(2, "b", "yes"), (5, "z", "1")]

    def test_data_after_an_abort_of_the_same_producer_is_not_swallowed(
        self, folder: Folder
    ) -> None:
        folder.append([("a", "no")], producer_id=5, base_sequence=0, transactional=True)
        folder.abort(5)
        folder.roll()
        folder.append([("a", "yes")], producer_id=5, base_sequence=1, transactional=True)
        folder.commit(5)
        folder.append([("z", "1")])
        folder.clean(first_dirty_offset=2)
        folder.clean(first_dirty_offset=2)
        assert (2, "a", "yes") in folder.pairs()


class TestDamage:
    def test_a_batch_that_does_not_unpack_is_kept_whole_and_counted(self, folder: Folder) -> None:
        folder.append([("a", "1"), ("b", "1")])
        good = build_batch([Record(2, START_MS, b"a", b"x")], base_offset=2)
        for position in (HEADER_BYTES, HEADER_BYTES + 4, HEADER_BYTES + 6):
            bad = bytearray(good)
            bad[position] = 0x7F
            bad[7] = folder.next_offset
            seal(bad, 0)
            folder.append_raw(bad)
        before = [bytes(batch) for header, batch in folder.batches() if header.base_offset >= 2]
        result = folder.clean()
        after = [bytes(batch) for header, batch in folder.batches() if header.base_offset >= 2]
        assert after == before
        assert result.stats.malformed_batches == 3
        assert [header.record_count for header in folder.headers()] == [2, 1, 1, 1]

    def test_a_bomb_is_kept_whole_and_counted(self, folder: Folder) -> None:
        bomb = build_batch(
            [Record(0, START_MS, b"a", bytes(200 * 1024 * 1024))], base_offset=0, codec=4
        )
        folder.append_raw(bomb)
        result = folder.clean()
        assert result.stats.malformed_batches == 1
        assert next(folder.batches())[1] == bomb

    def test_a_wrong_crc_ends_the_cleaning_and_leaves_nothing_behind(self, folder: Folder) -> None:
        folder.append([("a", "1")])
        folder.append([("a", "2")])
        folder.seal()
        path = Path(folder.path_of(0, names.LOG))
        data = bytearray(path.read_bytes())
        data[-2] ^= 1
        path.write_bytes(data)
        with pytest.raises(Uncleanable):
            folder.clean()
        assert not [name for name in os.listdir(folder.path) if name.endswith(names.CLEANED)]
        assert path.read_bytes() == data

    def test_keyless_records_are_dropped_and_counted(self, folder: Folder) -> None:
        folder.append_raw(
            build_batch([Record(0, START_MS, None, b"x"), Record(1, START_MS, b"a", b"y")])
        )
        result = folder.clean()
        assert folder.pairs() == [(1, "a", "y")]
        assert result.stats.keyless_records == 1

    def test_leftovers_of_a_killed_cleaning_are_removed_first(self, folder: Folder) -> None:
        folder.append([("a", "1")])
        for base in (0, 999):
            Path(folder.path_of(base, names.LOG) + names.CLEANED).write_bytes(b"half")
        result = folder.clean(swap=False)
        assert [group.base_offset for group in result.groups] == [0]
        assert not os.path.exists(folder.path_of(999, names.LOG) + names.CLEANED)


def test_an_unknown_kind_of_control_record_is_left_alone(folder: Folder) -> None:
    folder.append_raw(
        build_batch([Record(0, START_MS, b"\0\0\0\x04", b"")], control=True, producer_id=-1)
    )
    folder.append([("a", "1")])
    folder.clean(now_ms=START_MS)
    folder.clean(now_ms=START_MS * 2)
    assert [header.is_control for header in folder.headers()] == [True, False]
