"""Flushes and the pool that runs them."""

from __future__ import annotations

import errno
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
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
from tests.storage.faulty_files import FaultyFileSystem, PowerLossFileSystem

from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import Log, LogConfig, OsFileSystem, Syncer
from headrace.storage.log.sync import Threads

SIZE = len(batch([b"x" * 100]))


class Loop:
    """Stands for the event loop: calls come from threads and run on this one."""

    def __init__(self) -> None:
        self._calls: queue.Queue[tuple[Callable[..., object], tuple[object, ...]]] = queue.Queue()

    def post(self, function: Callable[..., object], *args: object) -> None:
        self._calls.put((function, args))

    def run_one(self) -> None:
        function, args = self._calls.get(timeout=10)
        function(*args)


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def log(fs: FaultyFileSystem, tmp_path: Path) -> Log:
    return open_test_log(fs, str(tmp_path), config=LogConfig(segment_bytes=2 * SIZE))


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def syncer(loop: Loop) -> Iterator[Syncer]:
    syncer = Syncer(2, loop.post)
    yield syncer
    syncer.close()


def test_flush_covers_rolls_and_the_new_files_folder(fs: FaultyFileSystem, log: Log) -> None:
    for _ in range(5):
        append(log, b"x" * 100)
    fs.calls.clear()
    flush(log)
    synced = [path[-10:] for operation, path in fs.calls if operation == "sync"]
    assert synced == ["000000.log", "000002.log", "000004.log"]
    assert ("sync_dir", log.dir) in fs.calls
    assert log.synced_offset == 5
    assert log.begin_flush() is None


def test_append_during_a_flush_is_not_taken_for_synced(log: Log) -> None:
    append(log, b"a")
    pending = log.begin_flush()
    assert pending is not None
    append(log, b"b")
    assert log.begin_flush() is None  # one at a time
    pending.run()
    log.complete_flush(pending)
    assert log.synced_offset == 1
    flush(log)
    assert log.synced_offset == 2


def test_truncation_during_a_flush_lowers_what_it_synced(log: Log) -> None:
    for value in (b"a", b"b", b"c"):
        append(log, value)
    pending = log.begin_flush()
    assert pending is not None
    log.truncate_to(1, NOW_MS)
    append(log, b"other")
    pending.run()
    log.complete_flush(pending)
    assert log.synced_offset == 1
    flush(log)
    assert log.synced_offset == 2


def test_segments_may_be_removed_while_they_are_synced(tmp_path: Path) -> None:
    log = open_test_log(
        OsFileSystem(),
        str(tmp_path),
        config=LogConfig(segment_bytes=2 * SIZE, index_interval_bytes=1),
    )
    for _ in range(6):
        append(log, b"x" * 100)
    pending, saving = log.begin_flush(), log.begin_checkpoint()
    assert pending is not None
    assert saving is not None
    log.truncate_to(1, NOW_MS)
    pending.run()
    log.complete_flush(pending)
    saving.run()
    log.complete_checkpoint(saving)
    assert log.offline_error is None
    assert log.synced_offset == log.recovery_point == 1
    # Nothing is left about offsets that other batches will get.
    assert not (tmp_path / "00000000000000000006.snapshot").exists()


def test_roll_during_a_flush_is_left_to_the_next(log: Log) -> None:
    append(log, b"x" * 100)
    append(log, b"x" * 100)
    pending = log.begin_flush()
    assert pending is not None
    append(log, b"x" * 100)
    pending.run()
    log.complete_flush(pending)
    assert log.synced_offset == 2
    flush(log)
    assert log.synced_offset == 3


@pytest.mark.parametrize("operation", ["sync", "sync_dir"])
def test_failed_flush_takes_the_log_offline(fs: FaultyFileSystem, log: Log, operation: str) -> None:
    append(log, b"x" * 100)
    flush(log)
    for _ in range(3):
        append(log, b"y" * 100)
    fs.fail(operation)
    flush(log)
    assert log.offline_error is not None
    assert log.synced_offset == 1
    with pytest.raises(KafkaError) as caught:
        append(log, b"z")
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert values(log)[0] == (0, b"x" * 100)


def test_flush_of_a_log_deleted_meanwhile_is_no_failure(fs: FaultyFileSystem, log: Log) -> None:
    append(log, b"a")
    pending = log.begin_flush()
    assert pending is not None
    log.deleted = True
    fs.fail("sync")
    pending.run()
    log.complete_flush(pending)
    assert log.offline_error is None


def test_checkpoint_during_a_flush_syncs_the_same_files_itself() -> None:
    fs = PowerLossFileSystem()
    log = open_test_log(fs, config=LogConfig(segment_bytes=2 * SIZE))
    fs.sync_dir("/")
    fs.sync_dir("/data")
    for _ in range(5):
        append(log, b"x" * 100)
    under_way = log.begin_flush()
    saving = log.begin_checkpoint()
    assert saving is not None
    saving.run()
    log.complete_checkpoint(saving)
    assert log.recovery_point == log.synced_offset == 5
    recovered = open_test_log(fs.crash(), recovery_point=5)
    assert len(values(recovered)) == 5
    assert under_way is not None


def test_many_requests_share_one_sync(
    fs: FaultyFileSystem, log: Log, loop: Loop, syncer: Syncer
) -> None:
    done: list[tuple[str, OSError | None, int]] = []

    def note(name: str) -> Callable[[OSError | None], None]:
        return lambda error: done.append((name, error, log.synced_offset))

    flush(log)
    gate = fs.hold("sync")
    append(log, b"a")
    syncer.request(log, note("first"))
    append(log, b"b")
    syncer.request(log, note("second"))
    append(log, b"c")
    syncer.request(log, note("third"))
    assert done == []
    gate.set()
    loop.run_one()
    assert done == [("first", None, 1)]
    loop.run_one()
    assert done[1:] == [("second", None, 3), ("third", None, 3)]


def test_request_for_a_durable_log_is_answered_at_once(log: Log, syncer: Syncer) -> None:
    flush(log)
    done: list[OSError | None] = []
    syncer.request(log, done.append)
    assert done == [None]


def test_failed_sync_is_reported_and_never_tried_again(
    fs: FaultyFileSystem, log: Log, loop: Loop, syncer: Syncer
) -> None:
    flush(log)
    append(log, b"a")
    fs.fail("sync")
    done: list[OSError | None] = []
    syncer.request(log, done.append)
    loop.run_one()
    assert done[0] is not None
    calls = len(fs.calls)
    syncer.request(log, done.append)
    assert done[1] is done[0]
    assert len(fs.calls) == calls


def test_what_a_checkpoint_synced_is_not_synced_again(fs: FaultyFileSystem, log: Log) -> None:
    for _ in range(5):
        append(log, b"x" * 100)
    checkpoint(log)
    assert log.begin_flush() is None
    append(log, b"y")
    fs.calls.clear()
    flush(log)
    assert [path[-10:] for operation, path in fs.calls if operation == "sync"] == ["000004.log"]


def test_file_that_grows_during_a_checkpoint_is_synced_again(
    fs: FaultyFileSystem, log: Log
) -> None:
    append(log, b"x" * 100)
    saving = log.begin_checkpoint()
    assert saving is not None
    saving.run()
    for _ in range(3):
        append(log, b"x" * 100)  # the second batch of the first segment, and a roll
    log.complete_checkpoint(saving)
    fs.calls.clear()
    flush(log)
    synced = [path[-10:] for operation, path in fs.calls if operation == "sync"]
    assert synced == ["000000.log", "000002.log"]


def test_segments_that_left_the_log_are_not_synced(fs: FaultyFileSystem, log: Log) -> None:
    for _ in range(5):
        append(log, b"x" * 100)
    log.truncate_to(1, NOW_MS)
    fs.calls.clear()
    append(log, b"y")
    flush(log)
    checkpoint(log)
    assert not [path for operation, path in fs.calls if operation == "sync" and "2.log" in path]
    assert log.offline_error is None


def refuse_open(*_: object) -> int:
    raise OSError(errno.EMFILE, "Too many open files")


def test_too_few_descriptors_only_put_a_flush_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path), config=LogConfig(segment_bytes=2 * SIZE))
    for _ in range(3):
        append(log, b"x" * 100)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse_open)  # the folder cannot be opened to be synced
        flush(log)
    assert log.offline_error is None
    assert log.synced_offset == 0
    flush(log)
    assert log.synced_offset == 3


def test_request_is_made_again_after_passing_trouble(
    tmp_path: Path, loop: Loop, syncer: Syncer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_test_log(OsFileSystem(), str(tmp_path), config=LogConfig(segment_bytes=2 * SIZE))
    for _ in range(3):
        append(log, b"x" * 100)
    done: list[OSError | None] = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse_open)
        syncer.request(log, done.append)
        loop.run_one()
    assert done == [None]
    assert log.synced_offset == 0
    syncer.request(log, done.append)
    loop.run_one()
    assert done == [None, None]
    assert log.synced_offset == 3


@pytest.mark.parametrize("full", [False, True])
def test_snapshot_of_a_roll_is_written_by_a_flush_if_there_is_room(
    fs: FaultyFileSystem, log: Log, full: bool
) -> None:
    for _ in range(2):
        append(log, b"x" * 100)
    fs.calls.clear()
    append(log, b"x" * 100)
    assert not [path for operation, path in fs.calls if operation == "write"]
    if full:
        fs.fail("write", error=errno.ENOSPC, path_has=".snapshot")
    flush(log)
    assert log.synced_offset == 3
    assert fs.exists(os.path.join(log.dir, "00000000000000000002.snapshot")) is not full


def test_snapshot_of_a_checkpoint_is_not_written_over(fs: FaultyFileSystem, log: Log) -> None:
    for _ in range(2):
        append(log, b"x" * 100)
    pending = log.begin_flush()
    assert pending is not None
    log.roll(NOW_MS)
    checkpoint(log)
    pending.run()
    log.complete_flush(pending)
    fs.calls.clear()
    append(log, b"y")
    flush(log)
    assert not [path for operation, path in fs.calls if operation == "write"]


def test_snapshot_of_a_roll_is_not_written_after_a_truncation(
    fs: FaultyFileSystem, log: Log
) -> None:
    for _ in range(3):
        append(log, b"x" * 100)
    pending = log.begin_flush()
    assert pending is not None
    log.truncate_to(1, NOW_MS)
    pending.run()
    log.complete_flush(pending)
    assert not fs.exists(os.path.join(log.dir, "00000000000000000002.snapshot"))


def test_an_idle_thread_keeps_nothing_of_what_it_did() -> None:
    class Held:
        """Stands for a file, which stays open as long as anybody has it."""

    threads, gone, held = Threads(1), threading.Event(), Held()
    weakref.finalize(held, gone.set)
    threads.submit(repr, held)
    del held
    assert gone.wait(10)
    threads.shutdown()


def test_one_job_that_fails_is_not_the_end_of_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    threads, done = Threads(1), threading.Event()
    threads.submit(int, "no number")
    threads.submit(done.set)
    assert done.wait(10)
    threads.shutdown()
    assert "unexpected error" in caplog.text
