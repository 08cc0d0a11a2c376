"""The `.snapshot` file, in Kafka's format."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.storage import OsFileSystem
from headrace.storage.log import snapshots
from headrace.storage.log.producers import Producers
from headrace.storage.log.snapshots import CorruptSnapshot, Snapshot

int64 = st.integers(0, 2**63 - 1)


@st.composite
def producers(draw: st.DrawFn) -> Producers:
    made = Producers()
    offset = 0
    for producer_id in draw(st.lists(int64, max_size=5, unique=True)):
        epoch = draw(st.integers(0, 2**15 - 1))
        sequence = draw(st.integers(0, 2**31 - 1))
        for count in draw(st.lists(st.integers(1, 9), max_size=7)):
            made.append_batch(
                producer_id,
                epoch,
                sequence,
                offset,
                offset + count - 1,
                draw(int64),
                draw(st.booleans()),
            )
            offset += count
            sequence = (sequence + count) % 2**31
        if draw(st.booleans()):
            made.append_marker(producer_id, epoch, offset, draw(st.integers(0, 99)), 5, False)
            offset += 1
    return made


def state(made: Producers) -> list[tuple[object, ...]]:
    return [
        (
            p.producer_id,
            p.epoch,
            p.batches[:-1],
            [batch[:4] for batch in p.batches],  # Kafka's format has no timestamp for the last
            p.next_sequence,
            p.last_timestamp,
            p.coordinator_epoch,
            p.txn_first_offset,
        )
        for p in made
    ]


@settings(deadline=None)
@given(producers())
def test_snapshot_and_recent_batches_bring_everything_back(made: Producers) -> None:
    restored = snapshots.decode(snapshots.encode(made))
    snapshots.merge_recent(restored, snapshots.encode_recent(made))
    again = Producers()
    for producer in restored:
        again.restore(producer)
    assert state(again) == state(made)
    made.high_watermark_moved(1 << 62)
    assert again.first_unstable_offset == made.first_unstable_offset


def test_layout_is_kafkas() -> None:
    made = Producers()
    made.append_batch(5, 2, 10, 100, 104, 1234, True)
    data = snapshots.encode(made)
    entry = struct.pack(">qhiqiqiq", 5, 2, 14, 104, 4, 1234, -1, 100)
    covered = struct.pack(">i", 1) + entry
    assert data == struct.pack(">hI", 1, crc32c(covered)) + covered


@settings(deadline=None)
@given(producers(), st.data())
def test_every_flipped_bit_is_found(made: Producers, data: st.DataObject) -> None:
    encoded = bytearray(snapshots.encode(made))
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    encoded[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises(CorruptSnapshot):
        snapshots.decode(bytes(encoded))


def test_torn_snapshots_are_found() -> None:
    made = Producers()
    made.append_batch(5, 2, 10, 100, 104, 1234, True)
    data = snapshots.encode(made)
    for size in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            snapshots.decode(data[:size])


def test_files_are_named_by_offset(tmp_path: Path) -> None:
    fs = OsFileSystem()
    made = Producers()
    for number in range(3):
        made.append_batch(5, 0, number, number, number, 9, False)
    for path, content in snapshots.contents(str(tmp_path), 3, made).items():
        fs.write(path, content)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00000000000000000003.batches",
        "00000000000000000003.snapshot",
    ]
    (producer,) = snapshots.read(fs, str(tmp_path), 3)
    assert len(producer.batches) == 3


def test_snapshot_is_of_the_moment_it_was_taken(tmp_path: Path) -> None:
    made = Producers()
    for number in range(3):
        made.append_batch(5, 0, number, number, number, 9, False)
    expected = snapshots.contents(str(tmp_path), 3, made)
    snapshot = Snapshot(3, made)
    made.append_batch(5, 0, 3, 3, 3, 9, False)
    made.append_batch(6, 0, 0, 4, 4, 9, True)
    assert snapshot.contents(str(tmp_path)) == expected
