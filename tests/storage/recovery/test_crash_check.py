"""What recovery cuts after a crash, what it keeps, and what it leaves in place."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.storage.batches import (
    NOW_MS,
    append,
    batch,
    checkpoint,
    flush,
    open_test_log,
    values,
)
from tests.storage.recovery.crashed_logs import (
    CONFIG,
    FIRST,
    FLIPS,
    after_crash,
    embedded,
    fill,
    flip,
    readable,
)

from headrace.protocol.batch import HEADER_BYTES
from headrace.storage import OsFileSystem, names
from headrace.storage.log.scan import iter_headers
from headrace.storage.recovery.recovery import Opening, open_log


@pytest.mark.parametrize("field", FLIPS)
@pytest.mark.parametrize("segment", [0, 1, -1])
def test_flipped_bit_is_left_in_place_while_the_machine_runs_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str, segment: int
) -> None:
    log = fill(tmp_path, 70)
    everything = dict(values(log))
    first, after = flip(log, segment, 2, FLIPS[field])
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.log")}
    recovered = after_crash(tmp_path, same_boot=True)
    assert recovered.end_offset == log.end_offset
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.log")} == {
        **{names.offset_name(s.base_offset, ".log"): b"" for s in recovered.segments},
        **before,
    }
    assert "not by a torn end" in caplog.text
    assert "headrace log verify" in caplog.text
    found, corrupt = readable(recovered)
    assert corrupt >= set(range(first, after))
    assert found.items() <= everything.items()
    # Nothing is out of reach but the damaged batch and, at most, its neighbours.
    assert len(found) >= len(everything) - 9
    assert append(recovered, b"next") == log.end_offset
    again = after_crash(tmp_path, same_boot=True)
    assert dict(values(again, log.end_offset)) == {log.end_offset: b"next"}


@pytest.mark.parametrize("field", FLIPS)
def test_flipped_bit_after_a_power_loss_is_cut_with_a_copy_of_what_goes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str
) -> None:
    log = fill(tmp_path, 70)
    assert len(log.segments) > 2
    everything = values(log)
    first, _ = flip(log, 1, 3, FLIPS[field])
    damaged = {path.name: path.read_bytes() for path in tmp_path.glob("*.log")}
    cut, *dropped = sorted(damaged)[1:]
    recovered = after_crash(tmp_path, same_boot=False)
    assert values(recovered) == everything[:first]
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("*.corrupt")}
    copy = names.offset_name(first, ".log.corrupt")
    assert kept.pop(copy) + (tmp_path / cut).read_bytes() == (
        damaged[cut][recovered.segments[-1].size :] + damaged[cut][: recovered.segments[-1].size]
    )
    assert kept == {f"{name}.corrupt": damaged[name] for name in dropped}
    assert "more than a torn end" in caplog.text
    assert str(tmp_path / copy) in caplog.text
    assert append(recovered, b"next") == first
    # The copies stay: neither the next recovery nor another cut touches them.
    flip(after_crash(tmp_path, same_boot=False), -1, 0, FLIPS["crc"])
    assert {path.name for path in tmp_path.glob("*.corrupt")} >= {copy, *kept}


def test_producers_behind_a_flipped_bit_are_known(tmp_path: Path) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG)
    for sequence in range(12):
        data = batch([b"v"], producer_id=7, epoch=0, sequence=sequence)
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
    flip(log, 0, 4, FLIPS["length"])
    recovered = after_crash(tmp_path, same_boot=True)
    producer = recovered.producers.get(7)
    assert producer is not None
    assert producer.next_sequence == 12


def test_torn_append_of_a_killed_process_is_cut_without_a_copy(tmp_path: Path) -> None:
    log = fill(tmp_path, 8)
    size = log.size_bytes
    position = append(log, b"torn" * 100)
    os.truncate(log.active.file.path, size + 80)
    recovered = after_crash(tmp_path, same_boot=True)
    assert recovered.end_offset == position
    assert not list(tmp_path.glob("*.corrupt"))


def test_last_batch_that_was_whole_and_is_damaged_is_cut_with_a_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = fill(tmp_path, 8)
    first, _ = flip(log, 0, 7, FLIPS["records"])
    recovered = after_crash(tmp_path, same_boot=True)
    assert recovered.end_offset == first
    assert (tmp_path / names.offset_name(first, ".log.corrupt")).exists()
    assert "more than a torn end" in caplog.text


def test_batches_behind_damage_below_the_recovery_point_are_not_lost(tmp_path: Path) -> None:
    log = fill(tmp_path, 8)
    point = checkpoint(log)
    for number in range(60):
        append(log, b"after %d" % number)
    everything = dict(values(log))
    first, after = flip(log, 0, 7, FLIPS["length"])
    (tmp_path / (FIRST + ".index")).unlink()  # so that the damage is met at all
    recovered = after_crash(tmp_path, same_boot=False, recovery_point=point)
    assert recovered.end_offset == log.end_offset
    found, corrupt = readable(recovered)
    assert corrupt >= set(range(first, after))
    assert {offset: everything[offset] for offset in range(point, log.end_offset)}.items() <= (
        found.items()
    )
    assert not list(tmp_path.glob("*.corrupt"))


def test_hole_that_a_power_loss_left_between_segments_is_no_part_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = fill(tmp_path, 60)
    everything = dict(values(log))
    first = log.segments[0]
    *_, (position, header) = iter_headers(first.file, 0, first.size)
    os.truncate(first.file.path, position)
    recovered = after_crash(tmp_path, same_boot=True)  # a machine that runs on loses no tail
    assert recovered.end_offset == log.end_offset
    assert dict(values(recovered, header.next_offset)).items() <= everything.items()
    assert f"nothing is between {header.base_offset}" in caplog.text
    recovered = after_crash(tmp_path, same_boot=False)
    assert recovered.end_offset == header.base_offset
    assert len(list(tmp_path.glob("*.corrupt"))) >= 1


@pytest.mark.parametrize("same_boot", [True, False])
@pytest.mark.parametrize("kept_bytes", [HEADER_BYTES + 5, 300, 500])
def test_batches_within_a_torn_batch_are_no_part_of_the_log(
    tmp_path: Path, same_boot: bool, kept_bytes: int
) -> None:
    log = fill(tmp_path, 4)
    everything, size = values(log), log.size_bytes
    append(log, b"x" * 100 + embedded(log.end_offset, 10))
    os.truncate(log.active.file.path, size + kept_bytes)
    recovered = after_crash(tmp_path, same_boot=same_boot)
    assert values(recovered) == everything
    assert not list(tmp_path.glob("*.corrupt"))


@pytest.mark.parametrize("same_boot", [True, False])
def test_batches_within_a_damaged_batch_are_no_part_of_the_log(
    tmp_path: Path, same_boot: bool
) -> None:
    log = fill(tmp_path, 4)
    everything = values(log)
    first = append(log, b"x" * 100 + embedded(log.end_offset))
    append(log, b"behind")
    flip(log, 0, 4, HEADER_BYTES + 20)
    recovered = after_crash(tmp_path, same_boot=same_boot)
    found, corrupt = readable(recovered)
    if same_boot:
        assert found.items() <= {**dict(everything), first + 1: b"behind"}.items()
        assert found[first + 1] == b"behind"
        assert first in corrupt
    else:
        assert (found, corrupt) == (dict(everything), set())


@pytest.mark.parametrize("same_boot", [True, False])
@pytest.mark.parametrize("value", [b"v" * 500, embedded(7)], ids=["plain", "batches"])
def test_batch_whose_head_never_reached_the_disk_is_cut(
    tmp_path: Path, same_boot: bool, value: bytes
) -> None:
    log = fill(tmp_path, 4)
    everything = values(log)
    headless = bytes(HEADER_BYTES) + bytes(batch([value]))[HEADER_BYTES:]
    with (tmp_path / (FIRST + ".log")).open("ab") as file:
        file.write(headless)
    recovered = after_crash(tmp_path, same_boot=same_boot)
    has_batches = value.startswith(bytes(7))
    if same_boot and has_batches:
        # Appends write from the front: no kill leaves that, so nothing of it is cut.
        assert recovered.end_offset == len(everything) + 3
        assert readable(recovered)[1]  # the batch before it is in doubt, too
        return
    assert values(recovered) == everything
    # What a crash explains is gone. The rest may be anything, so it is kept.
    assert len(list(tmp_path.glob("*.corrupt"))) == (same_boot or has_batches)


@pytest.mark.parametrize("same_boot", [True, False])
def test_leftovers_behind_a_segment_that_is_whole_cost_nothing(
    tmp_path: Path, same_boot: bool
) -> None:
    log = fill(tmp_path, 60)
    everything = values(log)
    assert len(log.segments) > 1
    unfinished = bytes(batch([b"of a batch that went to the next segment" * 9]))[:-1]
    with Path(log.segments[0].file.path).open("ab") as file:
        file.write(unfinished)
    recovered = after_crash(tmp_path, same_boot=same_boot)
    assert values(recovered) == everything
    assert recovered.size_bytes == log.size_bytes
    assert not list(tmp_path.glob("*.corrupt"))


@pytest.mark.parametrize("known_by", ["a checkpoint", "its epochs", "nothing"])
def test_log_whose_beginning_a_crash_took_begins_again(tmp_path: Path, known_by: str) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG)
    for sequence in range(60):
        data = batch([b"v" * 40], producer_id=7, epoch=0, sequence=sequence)
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
    flush(log)  # which also saves the producers at the last roll
    first, second = log.segments[:2]
    Path(first.file.path).unlink()
    if known_by == "its epochs":  # as of a folder that a person has put here
        log.epochs.save(log.fs, log.dir)
    opening = Opening(
        topic="t",
        partition=0,
        config=CONFIG,
        now_ms=NOW_MS,
        is_saved=known_by == "a checkpoint",
        rng=random.Random(1),
    )
    recovered = open_log(OsFileSystem(), str(tmp_path), opening)
    if known_by != "nothing":  # then retention may have taken it
        assert (recovered.start_offset, recovered.end_offset) == (second.base_offset, 60)
        return
    assert (recovered.start_offset, recovered.end_offset) == (0, 0)
    assert list(tmp_path.glob("*.log.corrupt"))
    # A log without the first batch does not recognise a retry of it.
    data = batch([b"v" * 40], producer_id=7, epoch=0, sequence=0)
    assert not recovered.append(data, leader_epoch=0, now_ms=NOW_MS).duplicate
