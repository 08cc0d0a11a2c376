"""A move between log dirs while a disk fails, an index is broken, or it is called off."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from tests.storage.batches import NOW_MS, append, flush, values
from tests.storage.dirs.moving import TOPIC_ID, begin_move, copy_all, manager_on, move_log
from tests.storage.faulty_files import FaultyFileSystem

from headrace.storage import Log, LogConfig, LogManager, OsFileSystem, names


def new_log(manager: LogManager, batches: int = 30) -> Log:
    log = manager.create("t", 0, TOPIC_ID)
    for number in range(batches):
        append(log, b"v%d" % number, b"w" * 50)
    flush(log)
    return log


def test_old_folder_is_the_log_when_the_sync_of_the_new_one_failed(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    manager = manager_on(fs, str(tmp_path))
    log = new_log(manager)
    move = begin_move(manager, log)
    copy_all(move)
    append(log, b"acknowledged from the old folder")
    flush(log)
    acknowledged = log.synced_offset
    assert move.next_step(NOW_MS) is None
    manager.moves.swap(move)
    append(log, b"never acknowledged")
    active = log.active.file.path
    fs.fail("sync", path_has=active)
    flush(log)
    assert log.offline_error is not None
    manager.release()
    os.truncate(active, 0)  # the kernel drops pages that it failed to write
    found = manager_on(OsFileSystem(), str(tmp_path)).get("t", 0)
    assert found is not None
    assert found.dir == str(tmp_path / "a" / "t-0")
    assert found.end_offset == acknowledged


def test_failing_disk_that_a_log_has_left_is_not_its_fault(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    manager = manager_on(fs, str(tmp_path))
    log = new_log(manager)
    move = begin_move(manager, log)
    copy_all(move)
    append(log, b"written in both")
    assert move.next_step(NOW_MS) is None
    late = log.begin_flush()
    assert late is not None
    manager.moves.swap(move)
    fs.fail("sync", path_has=str(tmp_path / "a") + "/")
    late.run()
    log.complete_flush(late)
    assert late.error is None
    assert log.offline_error is None
    assert log.synced_offset < log.end_offset
    flush(log)
    assert move.has_arrived
    assert log.synced_offset == log.end_offset


def test_log_with_a_broken_index_can_be_moved(tmp_path: Path) -> None:
    manager = manager_on(OsFileSystem(), str(tmp_path))
    log = new_log(manager)
    before = values(log)
    folder = Path(log.dir)
    manager.close()
    with sorted(folder.glob("*.timeindex"))[1].open("ab") as index:
        index.write(b"xyz")
    manager = manager_on(OsFileSystem(), str(tmp_path))
    found = manager.get("t", 0)
    assert found is not None
    move_log(manager, found)
    assert found.dir == str(tmp_path / "b" / "t-0")
    found.high_watermark = found.synced_offset
    assert values(found) == before


def test_note_stays_until_the_old_folder_is_gone_for_good(tmp_path: Path) -> None:
    entered, gate = threading.Event(), threading.Event()

    class SlowDisk(OsFileSystem):
        is_slow = False

        def sync_dir(self, path: str) -> None:
            if self.is_slow and path.endswith("/a"):
                entered.set()
                gate.wait(30)
            super().sync_dir(path)

    fs = SlowDisk()
    manager = manager_on(fs, str(tmp_path))
    log = new_log(manager)
    move = begin_move(manager, log)
    copy_all(move)
    manager.moves.swap(move)
    flush(log)
    assert move.has_arrived
    fs.is_slow = True
    other = threading.Thread(target=manager.sync_deletions)
    other.start()
    entered.wait(30)
    finishing = threading.Thread(target=manager.moves.finish, args=(move,))
    finishing.start()
    finishing.join(0.1)
    assert (Path(log.dir) / names.ARRIVED).exists()
    gate.set()
    other.join(30)
    finishing.join(30)
    assert not (Path(log.dir) / names.ARRIVED).exists()


def test_move_that_was_called_off_gives_its_space_back(tmp_path: Path) -> None:
    fs = OsFileSystem()
    manager = manager_on(fs, str(tmp_path), LogConfig(segment_bytes=64 << 20))
    log = manager.create("t", 0, TOPIC_ID)
    for _ in range(30):
        append(log, b"k", b"w" * 300_000)
    flush(log)
    move = begin_move(manager, log)
    turn = move.next_step(NOW_MS)
    assert turn is not None
    turn()
    manager.moves.cancel(move)
    move.close()
    purge = manager.begin_purge(NOW_MS + 10**9)
    assert purge is not None
    purge.run()
    still_open = [file.path for file in fs._open_files if "future" in file.path]
    assert still_open == []
