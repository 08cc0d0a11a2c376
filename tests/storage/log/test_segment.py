"""When a log begins a new segment, and what its index files hold."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from tests.storage.batches import NOW_MS, append, batch, open_test_log, values

from headrace.storage import LogConfig, Origin, OsFileSystem
from headrace.storage.log.scan import iter_headers
from headrace.storage.recovery.recovery import Opening, open_log

HOUR_MS = 3_600_000


def bases(log) -> list[int]:  # type: ignore[no-untyped-def]
    return [segment.base_offset for segment in log.segments]


def test_segment_rolls_before_it_would_exceed_its_bytes(tmp_path: Path) -> None:
    size = len(batch([b"x" * 100]))
    config = LogConfig(segment_bytes=3 * size)
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    for _ in range(7):
        append(log, b"x" * 100)
    assert bases(log) == [0, 3, 6]
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [
        f"{base:020d}.log" for base in (0, 3, 6)
    ]


def test_segment_rolls_by_the_timestamp_of_its_first_batch(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path), config=LogConfig(segment_ms=HOUR_MS))
    append(log, b"a", timestamp=NOW_MS - 5 * HOUR_MS)
    append(log, b"b", timestamp=NOW_MS - 4 * HOUR_MS)
    assert bases(log) == [0]
    append(log, b"c", timestamp=NOW_MS - 4 * HOUR_MS + 1)
    assert bases(log) == [0, 2]


def test_segment_without_timestamps_rolls_by_the_clock(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path), config=LogConfig(segment_ms=HOUR_MS))
    append(log, b"a", timestamp=-1)
    append(log, b"b", timestamp=-1, now_ms=NOW_MS + HOUR_MS)
    assert bases(log) == [0]
    append(log, b"c", timestamp=-1, now_ms=NOW_MS + HOUR_MS + 1)
    assert bases(log) == [0, 2]


def test_roll_time_survives_a_restart(tmp_path: Path) -> None:
    config = LogConfig(segment_ms=HOUR_MS)
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    append(log, b"a")
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    append(log, b"b", timestamp=NOW_MS + HOUR_MS + 1, now_ms=NOW_MS + HOUR_MS + 1)
    assert bases(log) == [0, 1]


def test_jitter_rolls_earlier_by_a_random_part(tmp_path: Path) -> None:
    config = LogConfig(segment_ms=HOUR_MS, segment_jitter_ms=HOUR_MS // 2)
    rolled_after = set()
    for seed in range(20):
        opening = Opening(
            topic="t", partition=0, config=config, now_ms=NOW_MS, rng=random.Random(seed)
        )
        folder = tmp_path / str(seed)
        folder.mkdir()
        log = open_log(OsFileSystem(), str(folder), opening)
        elapsed = 0
        while len(log.segments) == 1:
            append(log, b"v", timestamp=NOW_MS + elapsed, now_ms=NOW_MS + elapsed)
            elapsed += HOUR_MS // 20
        rolled_after.add(elapsed)
    assert len(rolled_after) > 3
    assert max(rolled_after) <= HOUR_MS + HOUR_MS // 10
    assert min(rolled_after) > HOUR_MS // 2


def test_segment_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=1, segment_index_bytes=8 * 10)
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    for number in range(40):
        append(log, b"v", timestamp=NOW_MS - number)  # time does not grow: only offsets fill up
    assert bases(log) == [0, 11, 22, 33]
    other = tmp_path / "other"
    log = open_test_log(OsFileSystem(), str(other), config=config)
    for number in range(20):
        append(log, b"v", timestamp=NOW_MS + number)
    assert bases(log) == [0, 6, 12, 18]
    assert len(values(log)) == 20


def test_segment_rolls_when_a_relative_offset_would_not_fit(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))

    def replicate(offset: int) -> None:
        data = batch([b"v"], base_offset=offset, leader_epoch=0)
        log.append(data, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICA)

    replicate(0)
    replicate((1 << 31) - 1)
    assert bases(log) == [0]
    replicate(1 << 31)
    assert bases(log) == [0, 1 << 31]
    assert [offset for offset, _ in values(log)] == [0, (1 << 31) - 1, 1 << 31]


def test_gap_beyond_a_relative_offset_begins_a_segment_within_reach(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    for offset in (0, 1 << 33):
        data = batch([b"v"], base_offset=offset, leader_epoch=0)
        log.append(data, leader_epoch=0, now_ms=NOW_MS, origin=Origin.REPLICA)
    assert [offset for offset, _ in values(log)] == [0, 1 << 33]
    for segment in log.segments:
        for _, header in iter_headers(segment.file, 0, segment.size):
            assert header.last_offset - segment.base_offset < 1 << 31


def test_index_entries_are_kafkas(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path), config=LogConfig(index_interval_bytes=300))
    for number in range(30):
        append(log, *[b"value"] * (1 + number % 4), timestamp=NOW_MS + (number % 7) * 10)
    log.roll(NOW_MS)
    by_position = dict(iter_headers(log.segments[0].file, 0, log.segments[0].size))
    entries = list(struct.iter_unpack(">ii", (tmp_path / f"{0:020d}.index").read_bytes()))
    positions = [position for _, position in entries]
    assert len(entries) > 3
    for offset, position in entries:
        assert by_position[position].last_offset == offset
    assert all(b - a > 300 for a, b in zip([0, *positions], positions, strict=False))
    times = list(struct.iter_unpack(">qi", (tmp_path / f"{0:020d}.timeindex").read_bytes()))
    by_last_offset = {header.last_offset: header for header in by_position.values()}
    assert times == sorted(times)
    for timestamp, offset in times:
        assert by_last_offset[offset].max_timestamp == timestamp
        earlier = [h for h in by_position.values() if h.last_offset < offset]
        assert all(h.max_timestamp <= timestamp for h in earlier)
    assert times[-1][0] == max(h.max_timestamp for h in by_position.values())


def test_failed_roll_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    from tests.storage.faulty_files import FaultyFileSystem

    size = len(batch([b"x" * 100]))
    for operation, suffix in (("open", ".log"), ("append", "index")):
        fs = FaultyFileSystem()
        folder = tmp_path / (operation + suffix)
        log = open_test_log(
            fs, str(folder), config=LogConfig(segment_bytes=2 * size, index_interval_bytes=1)
        )
        append(log, b"x" * 100)
        append(log, b"y" * 100)
        fs.fail(operation, path_has=suffix)
        with pytest.raises(OSError, match="Input/output"):
            append(log, b"z" * 100)
        assert bases(log) == [0]
        assert append(log, b"z" * 100) == 2
        assert bases(log) == [0, 2]
        assert [value[:1] for _, value in values(log) if value] == [b"x", b"y", b"z"]


def reserved(folder: Path) -> dict[str, bool]:
    """Which log files hold much more room than they have bytes."""
    return {
        path.name.lstrip("0"): path.stat().st_blocks * 512 > path.stat().st_size + (256 << 10)
        for path in sorted(folder.glob("*.log"))
    }


def test_preallocated_segment_has_its_room_until_it_is_full_or_closed(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1 << 20, preallocate=True)
    log = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    append(log, b"x" * 600_000)
    assert reserved(tmp_path) == {".log": True}
    append(log, b"y" * 600_000)
    assert reserved(tmp_path) == {".log": False, "1.log": True}
    everything = values(log)
    # A killed process leaves the room reserved, and no bytes that recovery would have to cut.
    recovered = open_test_log(OsFileSystem(), str(tmp_path), config=config)
    assert values(recovered) == everything
    assert recovered.size_bytes == log.size_bytes
    recovered.close()
    assert reserved(tmp_path) == {".log": False, "1.log": False}


def test_preallocation_follows_a_change_of_the_setting(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path), config=LogConfig(segment_bytes=1 << 20))
    append(log, b"v")
    assert reserved(tmp_path) == {".log": False}
    log.config = LogConfig(segment_bytes=1 << 20, preallocate=True)
    assert reserved(tmp_path) == {".log": True}
    log.config = LogConfig(segment_bytes=1 << 20)
    assert reserved(tmp_path) == {".log": False}
    assert values(log) == [(0, b"v")]


def test_config_change_applies_to_the_active_segment(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path))
    append(log, b"x" * 100)
    log.config = LogConfig(segment_bytes=200)
    append(log, b"y" * 100)
    assert bases(log) == [0, 1]
