"""A log that moves to another log dir: nothing is lost, and it is written and read meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest
from tests.storage.batches import (
    NOW_MS,
    append,
    append_marker,
    batch,
    checkpoint,
    flush,
    read_all,
    values,
)
from tests.storage.dirs.moving import (
    CONFIG,
    TOPIC_ID,
    begin_move,
    copy_all,
    finish_move,
    manager_on,
    move_log,
)
from tests.storage.faulty_files import FaultyFileSystem

from headrace.storage import Log, LogConfig, LogManager, OsFileSystem, names
from headrace.storage.cleaner.cleaner import Cleaner
from headrace.storage.dirs.move_recovery import MoveNote, read_note
from headrace.storage.dirs.segment_copy import SourceChanged
from headrace.storage.log.swap import PLAN, compacted_upto

T = TypeVar("T")


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    return manager_on(OsFileSystem(), str(tmp_path))


def new_log(manager: LogManager, batches: int = 30) -> Log:
    log = manager.create("t", 0, TOPIC_ID)
    for number in range(batches):
        append(log, b"v%d" % number, b"w" * 50)
    flush(log)
    log.high_watermark = log.synced_offset
    return log


def folders(tmp_path: Path) -> list[str]:
    """The partition folders, deleted ones left out."""
    found = [*tmp_path.glob("*/t-*")]
    return sorted(
        str(path.relative_to(tmp_path))
        for path in found
        if not path.name.endswith(names.DELETED_FOLDER)
    )


def test_moved_log_is_all_there_and_nowhere_else(manager: LogManager, tmp_path: Path) -> None:
    log = new_log(manager)
    before = values(log)
    number = count()
    move_log(manager, log, lambda: (append(log, b"meanwhile %d" % next(number)), None)[1])
    assert next(number) > 3
    assert manager.dir_of(log).path == str(tmp_path / "b")
    assert log.dir == str(tmp_path / "b" / "t-0")
    assert folders(tmp_path) == ["b/t-0"]
    assert values(log)[: len(before)] == before
    append(log, b"after")
    flush(log)
    written = values(log)
    assert [offset for offset, _ in written] == list(range(log.end_offset))
    manager.close()
    again = manager_on(OsFileSystem(), str(tmp_path))
    found = again.get("t", 0)
    assert found is not None
    assert values(found) == written
    assert read_note(again.fs, found.dir) is None


def test_moved_log_needs_little_recovery(manager: LogManager, tmp_path: Path) -> None:
    log = new_log(manager)
    move = move_log(manager, log)
    assert log.recovery_point == move.recovery_point == 60
    written = values(log)
    manager.release()  # as a kill would
    again = manager_on(OsFileSystem(), str(tmp_path))
    found = again.get("t", 0)
    assert found is not None
    assert values(found) == written
    assert found.recovery_point == 60


def test_log_goes_there_and_back(manager: LogManager, tmp_path: Path) -> None:
    log = new_log(manager)
    for place in ("b/t-0", "a/t-0", "b/t-0"):
        move_log(manager, log, lambda: (append(log, b"more"), None)[1])
        assert folders(tmp_path) == [place]
    flush(log)
    written = values(log)
    purge = manager.begin_purge(NOW_MS + CONFIG.file_delete_delay_ms)
    assert purge is not None
    purge.run()
    assert [path.name for path in tmp_path.glob("*/t-*")] == ["t-0"]
    assert values(log) == written


def test_producers_transactions_and_epochs_move_with_the_log(
    manager: LogManager, tmp_path: Path
) -> None:
    log = new_log(manager, 3)

    def idempotent(sequence: int) -> bool:
        data = batch([b"i"], producer_id=7, epoch=0, sequence=sequence)
        return log.append(data, leader_epoch=2, now_ms=NOW_MS).duplicate

    def transaction(producer_id: int) -> None:
        data = batch([b"t"], producer_id=producer_id, epoch=0, sequence=0, transactional=True)
        log.append(data, leader_epoch=2, now_ms=NOW_MS)
        append_marker(log, producer_id, 0, commit=False)

    idempotent(0)
    transaction(8)
    number = count(10)
    move = begin_move(manager, log)
    copy_all(move, lambda: transaction(next(number)))
    transaction(9)
    idempotent(1)
    assert move.next_step(NOW_MS) is None
    manager.moves.swap(move)
    assert idempotent(1)
    finish_move(manager, move)
    aborted = log.aborted_transactions(0, log.end_offset)
    assert {8, 9, 10} <= {producer_id for producer_id, _ in aborted}
    epochs = log.epochs.rows()
    for clean in (True, False):
        manager.close() if clean else manager.release()
        manager = manager_on(OsFileSystem(), str(tmp_path))
        found = manager.get("t", 0)
        assert found is not None
        log = found
        assert idempotent(1)
        assert log.aborted_transactions(0, log.end_offset) == aborted
        assert log.epochs.rows() == epochs


def test_large_segment_is_copied_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.storage.dirs.segment_copy.TURN_BYTES", 1000)
    monkeypatch.setattr("headrace.storage.dirs.segment_copy._CHUNK_BYTES", 300)
    monkeypatch.setattr("headrace.storage.dirs.log_move.TAIL_BYTES_MAX", 500)
    manager = manager_on(OsFileSystem(), str(tmp_path), LogConfig())
    log = new_log(manager, 100)
    move = begin_move(manager, log)
    assert (move.copied_bytes, move.copied_offset) == (0, 0)
    sizes = []
    copy_all(move, lambda: sizes.append(move.copied_bytes))
    assert sizes == sorted(sizes)
    assert len(sizes) > log.size_bytes // 1000
    assert (move.copied_bytes, move.copied_offset) == (log.size_bytes, log.end_offset)
    assert len(log.segments) == 2  # it was rolled at the end, and not before
    manager.moves.swap(move)
    finish_move(manager, move)
    assert len(values(log)) == 200


def test_log_that_was_never_written_to_moves(manager: LogManager, tmp_path: Path) -> None:
    log = new_log(manager, 0)
    move_log(manager, log)
    assert folders(tmp_path) == ["b/t-0"]
    append(log, b"first")
    assert values(log) == [(0, b"first")]


def test_retention_goes_on_while_a_log_is_copied(manager: LogManager) -> None:
    log = new_log(manager)
    move = begin_move(manager, log)
    turn = move.next_step(NOW_MS)
    assert turn is not None
    turn()
    checkpoint(log)
    log.delete_records(40)
    assert manager.run_retention(NOW_MS) > 2
    copy_all(move)
    manager.moves.swap(move)
    finish_move(manager, move)
    assert log.segments[0].base_offset <= 40
    assert len(list(Path(log.dir).glob("*.log"))) == len(log.segments)
    assert [offset for offset, _ in values(log)] == list(range(40, 60))


def test_segment_that_retention_takes_in_the_middle_of_its_copy_is_no_trouble(
    tmp_path: Path,
) -> None:
    fs = FaultyFileSystem()
    manager = manager_on(fs, str(tmp_path))
    log = new_log(manager)
    checkpoint(log)
    move = begin_move(manager, log)
    turn = move.next_step(NOW_MS)
    assert turn is not None
    log.delete_records(40)
    manager.run_retention(NOW_MS)
    purge = manager.begin_purge(NOW_MS + CONFIG.file_delete_delay_ms)
    assert purge is not None
    purge.run()  # its files are gone before the turn has begun
    turn()
    copy_all(move)
    manager.moves.swap(move)
    finish_move(manager, move)
    assert [offset for offset, _ in values(log)] == list(range(40, 60))


def compact(log: Log) -> None:
    """Put a copy of the first segment in its place, as compaction would."""
    first = log.segments[0]
    for path in (first.file.path, first.offsets.path, first.times.path):
        Path(path + names.CLEANED).write_bytes(Path(path).read_bytes())
    swap = log.begin_swap([first.base_offset], [first.base_offset])
    swap.run()
    swap.complete(NOW_MS)
    assert swap.error is None


def test_segment_that_compaction_replaced_is_copied_again(manager: LogManager) -> None:
    log = new_log(manager)
    before = values(log)
    checkpoint(log)
    move = begin_move(manager, log)
    copy_all(move)
    point = move.recovery_point
    append(log, b"later")
    compact(log)
    turn = move.next_step(NOW_MS)
    assert turn is not None
    turn()
    copy_all(move)
    assert move.recovery_point != point  # for what compaction leaves beside the segments
    manager.moves.swap(move)
    finish_move(manager, move)
    assert values(log)[:-1] == before
    assert compacted_upto(manager.fs, log.dir) == log.segments[1].base_offset
    assert not (Path(log.dir) / PLAN).exists()


def test_log_is_not_swapped_while_its_files_are_exchanged_or_saved(manager: LogManager) -> None:
    log = new_log(manager)
    move = begin_move(manager, log)
    copy_all(move)
    pending = log.begin_checkpoint()
    assert pending is not None
    assert not move.can_swap
    pending.run()
    log.complete_checkpoint(pending)
    assert move.can_swap


def test_checkpoint_waits_until_the_new_folder_is_confirmed(manager: LogManager) -> None:
    log = new_log(manager)
    move = begin_move(manager, log)
    copy_all(move)
    manager.moves.swap(move)
    append(log, b"new")
    assert log.begin_checkpoint() is None
    manager.checkpoint()
    assert log.recovery_point < log.end_offset
    finish_move(manager, move)
    assert checkpoint(log) == log.end_offset


def test_flush_under_way_speaks_of_the_old_files_only(manager: LogManager) -> None:
    log = new_log(manager)
    move = begin_move(manager, log)
    copy_all(move)
    append(log, b"in both")
    pending = log.begin_flush()
    assert pending is not None
    assert move.next_step(NOW_MS) is None
    manager.moves.swap(move)
    append(log, b"in the new one")
    pending.run()
    log.complete_flush(pending)
    assert not move.has_arrived
    assert log.synced_offset == log.end_offset - 1
    finish_move(manager, move)
    assert log.synced_offset == log.end_offset


def test_other_files_of_the_folder_move_but_not_what_speaks_of_the_old_one(
    manager: LogManager,
) -> None:
    log = new_log(manager)
    kept = Path(log.dir, "00000000000000000005.log.corrupt")
    kept.write_bytes(b"kept for somebody")
    Path(log.dir, PLAN).write_bytes(b"of a swap")
    Path(log.dir, names.ARRIVED).write_bytes(MoveNote(4).encode())
    Path(log.dir, "x.snapshot.tmp").write_bytes(b"half")
    move = begin_move(manager, log)
    copy_all(move)
    present = {path.name for path in Path(move.folder).iterdir()}
    assert kept.name in present
    assert names.PARTITION_METADATA in present
    assert not {PLAN, "x.snapshot.tmp"} & present
    assert read_note(manager.fs, move.folder) == MoveNote(5, "")  # above that of the earlier move
    manager.moves.swap(move)
    assert read_note(manager.fs, log.dir) == MoveNote(5, manager.fs.boot_id())
    finish_move(manager, move)
    assert read_note(manager.fs, log.dir) is None


def test_note_stays_while_a_log_dir_is_missing(manager: LogManager) -> None:
    log = new_log(manager)
    manager.lost = {"/gone": "id"}
    move_log(manager, log)
    assert read_note(manager.fs, log.dir) == MoveNote(1)


def test_damage_stays_where_it_is_when_a_log_moves(tmp_path: Path) -> None:
    manager = manager_on(OsFileSystem(), str(tmp_path))
    log = new_log(manager)
    checkpoint(log)
    manager.close()
    path = Path(log.segments[0].file.path)
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    manager = manager_on(OsFileSystem(), str(tmp_path))
    found = manager.get("t", 0)
    assert found is not None
    move_log(manager, found)
    assert Path(found.segments[0].file.path).read_bytes() == data
    assert len(read_all(found, 20)) == 40


@pytest.mark.parametrize("is_made", [True, False])
def test_cancelled_move_leaves_the_log_alone(
    manager: LogManager, tmp_path: Path, is_made: bool
) -> None:
    log = new_log(manager)
    move = manager.moves.begin(log, manager.dirs[1])
    if is_made:
        move.make_folder()
        turn = move.next_step(NOW_MS)
        manager.moves.cancel(move)
        assert turn is not None
        turn()  # it was under way: what it finds missing it takes for a change of the log
    else:
        manager.moves.cancel(move)
    assert move.is_cancelled
    assert manager.moves.get(log) is None
    assert folders(tmp_path) == ["a/t-0"]
    assert len(values(log)) == 60
    move_log(manager, log)
    assert folders(tmp_path) == ["b/t-0"]


@pytest.mark.parametrize("has_swapped", [True, False])
def test_deletion_takes_both_folders(
    manager: LogManager, tmp_path: Path, has_swapped: bool
) -> None:
    log = new_log(manager)
    move = begin_move(manager, log)
    copy_all(move)
    if has_swapped:
        manager.moves.swap(move)
        pending = log.begin_flush()
        assert pending is not None
        manager.delete("t", 0)
        pending.run()
        log.complete_flush(pending)
    else:
        manager.delete("t", 0)
    assert folders(tmp_path) == []
    assert manager.moves.get(log) is None
    manager.create("t", 0, TOPIC_ID)
    purge = manager.begin_purge(NOW_MS + CONFIG.file_delete_delay_ms)
    assert purge is not None
    purge.run()
    assert len(list(tmp_path.glob("*/t-0*"))) == 1


@pytest.mark.parametrize("operation", ["open", "append", "write", "sync", "sync_path", "rename"])
def test_disk_that_refuses_the_copy_leaves_the_log_alone(tmp_path: Path, operation: str) -> None:
    fs = FaultyFileSystem()
    manager = manager_on(fs, str(tmp_path))
    log = new_log(manager)
    move = begin_move(manager, log)
    fs.fail(operation, error=errno.ENOSPC, path_has=names.FUTURE_FOLDER, times=100)

    def move_on() -> None:
        copy_all(move)
        manager.moves.swap(move)

    with pytest.raises(OSError, match="No space"):
        move_on()
    manager.moves.cancel(move)
    assert log.offline_error is None
    append(log, b"goes on")
    flush(log)
    assert log.synced_offset == log.end_offset == 61
    assert len(values(log)) == 61


def test_new_folder_that_cannot_be_confirmed_takes_the_log_offline(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    manager = manager_on(fs, str(tmp_path))
    log = new_log(manager)
    move = begin_move(manager, log)
    copy_all(move)
    manager.moves.swap(move)
    append(log, b"never durable")
    fs.fail("sync_path", path_has=names.ARRIVED)
    flush(log)
    assert log.offline_error is not None
    assert not move.has_arrived
    assert log.synced_offset == 60


def test_confirmation_that_a_full_disk_put_off_is_tried_again(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    manager = manager_on(fs, str(tmp_path))
    log = new_log(manager)
    move = begin_move(manager, log)
    copy_all(move)
    manager.moves.swap(move)
    append(log, b"durable later")
    fs.fail("write", error=errno.ENOSPC, path_has=names.ARRIVED)
    flush(log)
    assert (log.offline_error, log.synced_offset) == (None, 60)
    finish_move(manager, move)
    assert log.synced_offset == 61


def test_old_folder_that_cannot_be_renamed_is_no_trouble(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    manager = manager_on(fs, str(tmp_path))
    log = new_log(manager)
    fs.fail("rename", path_has="/a/t-0", times=100)
    move_log(manager, log)
    append(log, b"only here")
    flush(log)
    assert folders(tmp_path) == ["a/t-0", "b/t-0"]
    fs.heal()
    manager.close()
    again = manager_on(fs, str(tmp_path))
    found = again.get("t", 0)
    assert found is not None
    assert values(found)[-1] == (60, b"only here")
    assert folders(tmp_path) == ["b/t-0"]


def test_truncation_ends_a_move(manager: LogManager) -> None:
    log = new_log(manager)
    move = begin_move(manager, log)
    turn = move.next_step(NOW_MS)
    assert turn is not None
    turn()
    log.truncate_to(10, NOW_MS)
    with pytest.raises(SourceChanged):
        move.next_step(NOW_MS)


def test_readers_go_on_with_what_they_hold_of_the_old_files(manager: LogManager) -> None:
    log = new_log(manager)
    piece = log.read(3, 200, limit=60)
    assert piece is not None
    before = bytes(piece.read())
    move_log(manager, log)
    assert bytes(piece.read()) == before


def test_what_was_cleaned_for_the_old_folder_is_not_swapped_in(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, cleanup_policy=frozenset({"compact"}))
    manager = manager_on(OsFileSystem(), str(tmp_path), config)
    log = new_log(manager)
    checkpoint(log)

    async def run_in_worker(function: Callable[..., T], /, *args: object) -> T:
        result = function(*args)
        move_log(manager, log)
        return result

    async def run_in_thread(function: Callable[[], T], /) -> T:
        return function()

    cleaner = Cleaner(manager, run_in_worker, run_in_thread)
    before = values(log)
    (candidate,) = cleaner.candidates(NOW_MS)
    asyncio.run(cleaner.clean(candidate, NOW_MS))
    assert values(log) == before
    assert log.dir == str(tmp_path / "b" / "t-0")
    (candidate,) = cleaner.candidates(NOW_MS)
    assert candidate.first_dirty_offset == 0  # nothing of it counts as clean
