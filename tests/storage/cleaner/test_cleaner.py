"""The whole cleaner on real logs: swap, checkpoint, failures, restarts."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from tests.storage.cleaner.logs import (
    CONFIG,
    START_MS,
    Bench,
    at_once,
    end,
    put,
    read_all,
    state,
)

from headrace.broker.worker_processes import WorkerProcesses
from headrace.protocol.control import ControlType
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import Log, names
from headrace.storage.cleaner import Cleaner, CleanerLimits
from headrace.storage.cleaner.cleaner import FAILURES_MAX
from headrace.storage.cleaner.offset_map import SLOT_BYTES
from headrace.storage.dirs.checkpoints import CLEANER
from headrace.storage.log.config import COMPACT, DELETE
from headrace.storage.verify import verify

T = TypeVar("T")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def fill(log: Log, rounds: int = 6, keys: int = 20, start: int = 0) -> dict[str, str]:
    """Write every key again and again; the state that readers must see whatever is cleaned."""
    for number in range(start, start + rounds):
        for key in range(keys):
            put(log, [(f"k{key}", f"v{number}")], codec=key % 5)
    return state(log)


def leftovers(path: str) -> list[str]:
    return [name for name in os.listdir(path) if name.endswith((names.CLEANED, names.SWAP))]


def test_a_log_is_cleaned_and_says_so_after_a_restart(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    log = bench.log()
    expected = fill(log)
    records = {record.offset: record for record in read_all(log)}
    size_bytes = log.size_bytes
    stats = asyncio.run(bench.cleaner().clean_next(START_MS))
    assert stats is not None
    assert stats.records_kept < stats.records_read
    assert log.size_bytes < size_bytes / 2
    assert state(log) == expected
    assert all(records[record.offset] == record for record in read_all(log))
    active = log.active.base_offset
    bench.close()
    assert not leftovers(log.dir)
    assert (tmp_path / CLEANER).read_text().splitlines() == ["0", "1", f"t 0 {active}"]

    bench = Bench(tmp_path)
    assert state(bench.log()) == expected
    (candidate,) = bench.cleaner().candidates(START_MS)
    assert candidate.first_dirty_offset == active
    bench.close()
    assert list(verify(str(tmp_path))) == []


def test_rounds_go_on_until_nothing_is_due(bench: Bench) -> None:
    log = bench.log()
    cleaner = bench.cleaner()
    for number in range(5):
        expected = fill(log, rounds=2, start=number * 2)
        while asyncio.run(cleaner.clean_next(START_MS)) is not None:
            pass
        assert state(log) == expected
    assert asyncio.run(cleaner.clean_next(START_MS)) is None


def test_a_map_smaller_than_the_keys_takes_several_rounds(bench: Bench) -> None:
    log = bench.log()
    expected = fill(log, keys=60)
    cleaner = bench.cleaner(limits=CleanerLimits(dedupe_buffer_bytes=SLOT_BYTES * 23))
    rounds = 0
    while asyncio.run(cleaner.clean_next(START_MS)) is not None:
        rounds += 1
        assert state(log) == expected
    assert rounds > 3
    sealed = [record for record in read_all(log) if record.offset < log.active.base_offset]
    assert len({record.key for record in sealed}) == len(sealed)


def test_tombstones_and_aborted_transactions_are_gone_after_the_retention(bench: Bench) -> None:
    log = bench.log()
    put(log, [("a", "1"), ("b", "1")])
    put(log, [("b", "never")], producer_id=5, base_sequence=0, transactional=True)
    end(log, 5, ControlType.ABORT)
    put(log, [("a", None)])
    log.roll(START_MS)
    put(log, [("c", "1")])
    log.roll(START_MS)
    log.producers.expire(START_MS + 10**9, 1)
    cleaner = bench.cleaner()
    for step in range(5):
        asyncio.run(cleaner.clean_next(START_MS + 1000 * step))
        put(log, [("d", str(step))])
        log.roll(START_MS)
    kept = [(record.key, record.value) for record in read_all(log)]
    assert kept == [(b"b", b"1"), (b"c", b"1"), (b"d", b"3"), (b"d", b"4")]
    assert log.aborted_transactions(0, log.end_offset) == []


def test_producer_sequences_survive_cleaning_and_the_loss_of_snapshots(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    log = bench.log()
    put(log, [("a", "1")], producer_id=5, base_sequence=0)
    put(log, [("a", "2")], producer_id=5, base_sequence=1)
    put(log, [("a", "3")])
    log.roll(START_MS)
    put(log, [("z", "1")])
    asyncio.run(bench.cleaner().clean_next(START_MS))
    assert [record.offset for record in read_all(log)] == [2, 3]
    bench.close()
    # As after a crash that lost everything but the log itself.
    for path in Path(log.dir).iterdir():
        if path.suffix in (names.SNAPSHOT, names.RECENT_BATCHES):
            path.unlink()
    (tmp_path / names.CLEAN_SHUTDOWN).unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    (tmp_path / "checkpoints.crc32c").unlink()

    bench = Bench(tmp_path)
    log = bench.log()
    with pytest.raises(KafkaError) as refused:
        put(log, [("a", "5")], producer_id=5, base_sequence=7)
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    put(log, [("a", "4")], producer_id=5, base_sequence=2)
    bench.close()


def test_delete_and_compact_together(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        config=replace(CONFIG, cleanup_policy=frozenset({COMPACT, DELETE}), retention_ms=10_000),
    )
    log = bench.log()
    put(log, [("old", "1"), ("both", "1")], timestamp=START_MS)
    log.roll(START_MS)
    put(log, [("new", "1"), ("both", "2")], timestamp=START_MS + 9_000)
    log.roll(START_MS)
    put(log, [("last", "1")], timestamp=START_MS + 9_000)
    asyncio.run(bench.cleaner().clean_next(START_MS))
    assert state(log) == {"old": "1", "new": "1", "both": "2", "last": "1"}
    bench.manager.run_retention(START_MS + 30_000)
    assert state(log) == {}
    assert log.start_offset == log.end_offset
    put(log, [("again", "1")], timestamp=START_MS + 30_000)
    assert state(log) == {"again": "1"}
    bench.close()


def test_logs_that_are_not_compacted_are_left_alone(bench: Bench) -> None:
    log = bench.log()
    fill(log)
    log.config = replace(log.config, cleanup_policy=frozenset({DELETE}))
    assert bench.cleaner().candidates(START_MS) == []


def test_a_log_that_changed_meanwhile_keeps_what_it_has(bench: Bench) -> None:
    log = bench.log()
    expected = fill(log)

    async def interrupted(function: Callable[..., T], /, *args: object) -> T:
        result = function(*args)
        log.delete_records(log.segments[2].base_offset)
        bench.manager.run_retention(START_MS)
        return result

    before = len(log.segments)
    asyncio.run(bench.cleaner(run_in_worker=interrupted).clean_next(START_MS))
    assert len(log.segments) == before - 2
    assert state(log) == expected
    assert not leftovers(log.dir)


def test_a_damaged_log_is_marked_reported_and_left_as_it_is(bench: Bench) -> None:
    log, other = bench.log(0), bench.log(1)
    fill(log)
    fill(other)
    path = Path(log.segments[0].file.path)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    cleaner = bench.cleaner()
    for _ in range(3):
        asyncio.run(cleaner.clean_next(START_MS))
    assert list(cleaner.uncleanable) == [log]
    assert "checksum" in cleaner.uncleanable[log]
    assert path.read_bytes() == data
    assert other.size_bytes < log.size_bytes


def test_a_full_disk_is_not_held_against_a_log(bench: Bench) -> None:
    log = bench.log()
    expected = fill(log)

    async def full(function: Callable[..., T], /, *args: object) -> T:
        raise OSError(28, "No space left on device")

    cleaner = bench.cleaner(run_in_worker=full)
    for _ in range(FAILURES_MAX + 1):
        assert asyncio.run(cleaner.clean_next(START_MS)) is None
    assert not cleaner.uncleanable
    assert state(log) == expected


def test_work_that_keeps_dying_is_given_up(bench: Bench) -> None:
    fill(bench.log())

    async def dying(function: Callable[..., T], /, *args: object) -> T:
        raise RuntimeError("killed by signal 9")

    cleaner = bench.cleaner(run_in_worker=dying)
    for _ in range(FAILURES_MAX - 1):
        assert asyncio.run(cleaner.clean_next(START_MS)) is None
        assert not cleaner.uncleanable
    assert asyncio.run(cleaner.clean_next(START_MS)) is None
    assert list(cleaner.uncleanable.values()) == ["killed by signal 9"]


def test_cleaning_in_a_worker_process_that_is_killed_harms_nothing(bench: Bench) -> None:
    log = bench.log()
    expected = fill(log)

    async def body() -> None:
        workers = WorkerProcesses()
        try:
            # Slow enough to be caught in the middle: the limit makes it pause after each batch.
            slow = bench.cleaner(
                run_in_worker=workers.run, limits=CleanerLimits(io_bytes_per_second=1000)
            )
            job = asyncio.ensure_future(slow.clean_next(START_MS))
            while not workers.pids():
                await asyncio.sleep(0.005)
            os.kill(workers.pids()[0], signal.SIGKILL)
            assert await job is None
            assert not slow.uncleanable
            assert state(log) == expected
            stats = await bench.cleaner(run_in_worker=workers.run).clean_next(START_MS)
            assert stats is not None
        finally:
            await workers.close()

    size_bytes = log.size_bytes
    asyncio.run(body())
    assert log.size_bytes < size_bytes
    assert state(log) == expected
    assert not leftovers(log.dir)


def test_a_deleted_topic_does_not_get_its_files_back(bench: Bench) -> None:
    log = bench.log()
    folder = log.dir
    fill(log)

    async def deleting(function: Callable[..., T], /, *args: object) -> T:
        result = function(*args)
        bench.manager.delete("t", 0)
        return result

    cleaner = bench.cleaner(run_in_worker=deleting)
    asyncio.run(cleaner.clean_next(START_MS))
    assert not os.path.exists(folder)
    assert not cleaner.uncleanable


def test_several_logs_are_cleaned_at_once(bench: Bench) -> None:
    logs = [bench.log(number) for number in range(3)]
    states = [fill(log) for log in logs]
    cleaner = bench.cleaner()

    async def body() -> None:
        await asyncio.gather(*(cleaner.clean_next(START_MS) for _ in logs))

    asyncio.run(body())
    assert [state(log) for log in logs] == states
    assert all(candidate.dirty_bytes == 0 for candidate in cleaner.candidates(START_MS))
    assert asyncio.run(at_once(len, logs)) == 3


@pytest.mark.parametrize("recreate", [False, True])
def test_a_topic_deleted_before_its_swap_takes_nothing_with_it(
    bench: Bench, recreate: bool
) -> None:
    log, other = bench.log(), bench.log(1)
    fill(log)

    async def deleting(function: Callable[[], T], /) -> T:
        if not log.deleted:
            bench.manager.delete("t", 0)
            if recreate:
                put(bench.log(), [("new", "value")])
        return function()

    cleaner = Cleaner(bench.manager, at_once, deleting)
    asyncio.run(cleaner.clean_next(START_MS))
    assert log.deleted
    assert other.offline_error is None
    if recreate:
        assert state(bench.log()) == {"new": "value"}
        assert leftovers(bench.log().dir) == []
        (candidate,) = [each for each in cleaner.candidates(START_MS) if each.log is bench.log()]
        assert candidate.first_dirty_offset == 0


def test_a_recreated_topic_is_cleaned_from_its_start(bench: Bench) -> None:
    log = bench.log()
    fill(log)
    cleaner = bench.cleaner()
    asyncio.run(cleaner.clean_next(START_MS))
    bench.manager.delete("t", 0)
    fill(bench.log())
    (candidate,) = cleaner.candidates(START_MS)
    assert candidate.first_dirty_offset == 0
    assert "t 0" not in Path(bench.path, CLEANER).read_text()


def test_a_damaged_log_does_not_keep_others_from_being_cleaned(tmp_path: Path) -> None:
    config = replace(CONFIG, max_compaction_lag_ms=1000)
    bench = Bench(tmp_path, config=config)
    for partition in range(2):
        fill(bench.log(partition))
    bench.close()
    damaged = tmp_path / "t-0" / names.offset_name(0, names.LOG)
    data = bytearray(damaged.read_bytes())
    data[16] = 7  # magic
    damaged.write_bytes(data)

    bench = Bench(tmp_path, config=config)
    cleaner = bench.cleaner()
    assert asyncio.run(cleaner.clean_next(START_MS + 10_000)) is not None
    assert list(cleaner.uncleanable) == [bench.log(0)]
    bench.close()
