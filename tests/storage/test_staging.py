"""Batches that a thread writes ahead of their append end up as if they had just been appended."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
from tests.storage.batches import NOW_MS, append, batch, open_test_log, read_all

from headrace.protocol.errors import KafkaError
from headrace.storage import Log, LogConfig, OsFileSystem

CONFIG = LogConfig(segment_bytes=20_000)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG)
    append(log, b"first")
    return log


def put(log: Log, data: memoryview) -> int:
    return log.append(data, leader_epoch=0, now_ms=NOW_MS).base_offset


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in read_all(log)]


def size_on_disk(log: Log) -> int:
    return os.stat(log.active.file.path).st_size


def test_what_was_staged_is_appended_without_being_written_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = batch([b"large" * 1000])
    stage = log.stage(data[:])
    assert stage is not None
    stage.run()
    written = []
    pwrite = os.pwrite

    def count(fd: int, data: memoryview, position: int) -> int:
        written.append(len(data))
        return pwrite(fd, data, position)

    monkeypatch.setattr(os, "pwrite", count)
    assert put(log, data) == 1
    stage.end()
    assert written == [61]
    assert values(log) == [b"first", b"large" * 1000]
    assert size_on_disk(log) == log.active.size


def test_what_was_staged_and_refused_leaves_nothing(log: Log) -> None:
    data = batch([b"large" * 1000])
    data[100] ^= 1
    stage = log.stage(data[:])
    assert stage is not None
    stage.run()
    with pytest.raises(KafkaError):
        put(log, data)
    stage.end()
    assert size_on_disk(log) == log.active.size
    assert append(log, b"next") == 1
    assert values(log) == [b"first", b"next"]


def test_only_one_batch_is_staged_at_a_time(log: Log) -> None:
    first = log.stage(batch([b"large" * 1000]))
    assert first is not None
    assert log.stage(batch([b"other" * 1000])) is None
    first.run()
    first.end()


def test_an_append_in_between_waits_for_the_write_and_takes_its_place(log: Log) -> None:
    data = batch([b"large" * 1000])
    stage = log.stage(data[:])
    assert stage is not None
    timer = threading.Timer(0.05, stage.run)
    timer.start()
    assert append(log, b"small") == 1
    assert not timer.is_alive()
    assert put(log, data) == 2
    stage.end()
    assert values(log) == [b"first", b"small", b"large" * 1000]
    assert size_on_disk(log) == log.active.size


def test_a_batch_that_opens_the_next_segment_leaves_nothing_in_the_old_one(log: Log) -> None:
    while log.active.size < 16_000:
        append(log, b"v" * 1000)
    old = log.active
    data = batch([b"large" * 1000])
    stage = log.stage(data[:])
    assert stage is not None
    stage.run()
    put(log, data)
    stage.end()
    assert log.active is not old
    assert os.stat(old.file.path).st_size == old.size
    assert values(log)[-1] == b"large" * 1000


def test_what_a_kill_leaves_of_a_staged_batch_is_cut_off(log: Log, tmp_path: Path) -> None:
    inner = bytes(batch([b"inner"], base_offset=1, leader_epoch=0))
    stage = log.stage(batch([inner * 50]))
    assert stage is not None
    stage.run()
    assert size_on_disk(log) > log.active.size
    recovered = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG)
    assert values(recovered) == [b"first"]
    assert recovered.end_offset == 1
    assert size_on_disk(recovered) == recovered.active.size
    assert append(recovered, b"next") == 1


@pytest.mark.parametrize("seed", range(40))
def test_staged_and_plain_appends_in_any_order_give_the_same_log(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    log = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG)
    expected = []
    for number in range(60):
        value = b"%d " % number * rng.choice([1, 100, 1500])
        data = batch([value])
        stage = log.stage(data[:]) if rng.random() < 0.6 else None
        if stage is not None:
            thread = threading.Thread(target=stage.run)
            thread.start()
            if rng.random() < 0.2:
                between = b"between %d" % number
                append(log, between)
                expected.append(between)
        if rng.random() < 0.8 or stage is None:
            put(log, data)
            expected.append(value)
        if stage is not None:
            stage.end()
            thread.join()
        if rng.random() < 0.1:
            log = open_test_log(OsFileSystem(), str(tmp_path), config=CONFIG)
    assert values(log) == expected
    for segment in log.segments:
        assert os.stat(segment.file.path).st_size == segment.size
