"""A log on a disk that loses power: what was acknowledged is there, what is there was appended."""

from __future__ import annotations

import contextlib
import random

import pytest
from tests.storage.batches import NOW_MS, append_marker, batch, checkpoint, flush, read_all
from tests.storage.faulty_files import PowerCut, PowerLossFileSystem

from headrace.protocol.control import parse_marker
from headrace.storage import Log, LogConfig, LogManager
from headrace.storage.files import FileSystem
from headrace.storage.log.flush import Checkpoint
from headrace.storage.log.scan import iter_headers

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, max_message_bytes=600)
TOPIC_ID = bytes(range(16))


class History:
    """What a run did: every value by offset, what was acknowledged, what may have been deleted."""

    def __init__(self) -> None:
        self.written: dict[int, bytes] = {}
        self.acknowledged = 0
        self.deleted_below = 0
        self.sequence = 0
        self.markers: set[int] = set()

    def copy(self) -> History:
        other = History()
        other.written = dict(self.written)
        other.acknowledged = self.acknowledged
        other.deleted_below = self.deleted_below
        other.markers = set(self.markers)
        return other

    def forget_above(self, end_offset: int) -> None:
        """What a crash took may be written again, and otherwise."""
        self.written = {o: v for o, v in self.written.items() if o < end_offset}
        self.markers = {offset for offset in self.markers if offset < end_offset}


def manager_on(fs: FileSystem) -> LogManager:
    manager = LogManager(fs, ["/data"], CONFIG, lambda: NOW_MS, rng=random.Random(0))
    manager.open()
    manager.load()
    return manager


def run_workload(fs: FileSystem, history: History, rng: random.Random, steps: int) -> None:
    """Open the folder and do random things until the end or until the power fails."""
    manager = manager_on(fs)
    log = manager.get("t", 0) or manager.create("t", 0, TOPIC_ID)
    check(log, history)
    producer = log.producers.get(7)
    history.sequence = producer.next_sequence if producer else 0
    history.forget_above(log.end_offset)
    for _ in range(steps):
        _step(manager, log, history, rng)
    manager.close()
    history.acknowledged = log.end_offset


def _step(manager: LogManager, log: Log, history: History, rng: random.Random) -> None:
    choice = rng.random()
    if choice < 0.45:
        values = [rng.randbytes(rng.randint(1, 60)) for _ in range(rng.randint(1, 3))]
        for delta, value in enumerate(values):
            history.written[log.end_offset + delta] = value
        idempotent = rng.random() < 0.5
        data = batch(
            values,
            producer_id=7 if idempotent else -1,
            epoch=0 if idempotent else -1,
            sequence=history.sequence if idempotent else -1,
        )
        info = log.append(data, leader_epoch=0, now_ms=NOW_MS)
        assert not info.duplicate
        if idempotent:
            history.sequence += len(values)
    elif choice < 0.6:
        _transact(log, history, rng)
    elif choice < 0.8:
        flush(log)
        log.high_watermark = log.synced_offset
        history.acknowledged = max(history.acknowledged, log.synced_offset)
    elif choice < 0.85:
        _interleave(log, history, rng)
    elif choice < 0.9:
        manager.checkpoint()
        history.acknowledged = max(history.acknowledged, log.recovery_point)
    elif choice < 0.93:
        log.roll(NOW_MS)
    elif choice < 0.96:
        history.deleted_below = max(history.deleted_below, rng.randint(0, log.synced_offset))
        log.high_watermark = log.synced_offset
        log.delete_records(history.deleted_below)
        manager.run_retention(NOW_MS)
    else:
        purge = manager.begin_purge(NOW_MS + CONFIG.file_delete_delay_ms)
        if purge is not None:
            purge.run()


def _transact(log: Log, history: History, rng: random.Random) -> None:
    """Go on with a transaction of one of two producers, or end it."""
    producer_id = rng.choice([8, 9])
    producer = log.producers.get(producer_id)
    if producer is not None and producer.txn_first_offset >= 0 and rng.random() < 0.5:
        history.markers.add(log.end_offset)
        append_marker(log, producer_id, 0, commit=rng.random() < 0.3)
        return
    value = rng.randbytes(20)
    history.written[log.end_offset] = value
    sequence = producer.next_sequence if producer else 0
    data = batch([value], producer_id=producer_id, epoch=0, sequence=sequence, transactional=True)
    log.append(data, leader_epoch=0, now_ms=NOW_MS)


def _interleave(log: Log, history: History, rng: random.Random) -> None:
    """A flush and a checkpoint at the same time, with appends and rolls between their steps."""
    pending = [log.begin_flush(), log.begin_checkpoint()]
    rng.shuffle(pending)
    for sync in pending:
        if rng.random() < 0.5:
            log.roll(NOW_MS)
        history.written[log.end_offset] = b"between"
        log.append(batch([b"between"]), leader_epoch=0, now_ms=NOW_MS)
        if sync is None:
            continue
        sync.run()
        if isinstance(sync, Checkpoint):
            log.complete_checkpoint(sync)
        else:
            log.complete_flush(sync)
        history.acknowledged = max(history.acknowledged, log.synced_offset)


def aborted_in(log: Log) -> list[tuple[int, int]]:
    """The aborted transactions as the batches of a log tell them."""
    begun: dict[int, int] = {}
    aborted = []
    for segment in log.segments:
        for position, header in iter_headers(segment.file, 0, segment.size):
            if header.is_control:
                marker = parse_marker(segment.file.pread(header.size, position))
                first_offset = begun.pop(header.producer_id, None)
                if marker and first_offset is not None and not marker.control_type:
                    aborted.append((header.producer_id, first_offset))
            elif header.is_transactional:
                begun.setdefault(header.producer_id, header.base_offset)
    return aborted


def check(log: Log, history: History) -> None:
    """Acknowledged records are there, and all that is there is what was written."""
    assert log.end_offset >= history.acknowledged
    assert log.start_offset <= history.deleted_below
    assert log.synced_offset == log.end_offset
    found = {record.offset: record.value for record in read_all(log)}
    for offset, value in found.items():
        assert history.written[offset] == value
    for offset in range(max(log.start_offset, history.deleted_below), log.end_offset):
        assert offset in found or offset in history.markers, f"{offset} is missing"
    if log.segments[0].base_offset == 0:
        assert log.aborted_transactions(0, log.end_offset) == aborted_in(log)
    for segment, following in zip(log.segments, log.segments[1:], strict=False):
        assert segment.base_offset < following.base_offset


def count_operations(seed: int, steps: int) -> int:
    fs = PowerLossFileSystem()
    run_workload(fs, History(), random.Random(seed), steps)
    return fs.operations


def crash_everywhere(seed: int, steps: int, states: int) -> int:
    """Crash at every operation of a run, in several ways; how many crashes were survived."""
    total = count_operations(seed, steps)
    crashes = 0
    for cut_at in range(total + 1):
        fs = PowerLossFileSystem()
        fs.cut_at = cut_at
        history = History()
        with contextlib.suppress(PowerCut):
            run_workload(fs, history, random.Random(seed), steps)
        rng = random.Random(seed * 100_003 + cut_at)
        for state in range(states):
            if state == 0:
                after = fs.crash()
            elif state == 1:
                after = fs.crash(rng, keep_probability=1)
            else:
                after = fs.crash(rng, keep_probability=rng.choice([0.1, 0.5, 0.9]))
            crashes += 1 + survive(after, history, rng)
    return crashes


def survive(fs: PowerLossFileSystem, history: History, rng: random.Random) -> int:
    """Recover, with the power failing again on the way now and then, and write some more."""
    crashes = 0
    copy = history.copy()
    while rng.random() < 0.3:
        fs.cut_at = rng.randint(0, 12)
        with contextlib.suppress(PowerCut):
            run_workload(fs, copy, rng, 2)
        fs = fs.crash(rng, keep_probability=rng.choice([0.0, 0.5, 1]))
        crashes += 1
    run_workload(fs, copy, rng, 3)
    return crashes


@pytest.mark.parametrize("seed", range(3))
def test_acknowledged_records_survive_a_crash_at_every_operation(seed: int) -> None:
    assert crash_everywhere(seed, steps=30, states=4) > 100


@pytest.mark.parametrize("seed", range(40))
def test_new_log_whose_first_files_a_power_loss_took_begins_again(seed: int) -> None:
    rng = random.Random(seed)
    fs = PowerLossFileSystem()
    manager = manager_on(fs)
    log = manager.create("t", 0, TOPIC_ID)
    history = History()
    flushed = rng.choice([-1, -1, rng.randint(0, 59)])  # mostly never
    for sequence in range(60):
        history.written[sequence] = b"%d" % sequence + b"v" * 40
        data = batch([history.written[sequence]], producer_id=7, epoch=0, sequence=sequence)
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
        if sequence == flushed:
            flush(log)
            history.acknowledged = log.synced_offset
    assert len(log.segments) > 4
    after = manager_on(fs.crash(rng, reorder_names=True)).get("t", 0)
    if after is None:
        assert not history.acknowledged
        return
    check(after, history)
    # What is missing was not acknowledged, so a producer sends it again: it is not a duplicate.
    data = batch([b"again"], producer_id=7, epoch=0, sequence=after.end_offset)
    assert not after.append(data, leader_epoch=0, now_ms=NOW_MS).duplicate


@pytest.mark.long
def test_twenty_thousand_crash_points_lose_nothing() -> None:
    crashes = 0
    seed = 1000
    while crashes < 20_000:
        crashes += crash_everywhere(seed, steps=60, states=6)
        seed += 1


def test_transactions_are_rebuilt_after_a_crash() -> None:
    fs = PowerLossFileSystem()
    manager = manager_on(fs)
    log = manager.create("t", 0, TOPIC_ID)
    for sequence in range(3):
        data = batch([b"v"], producer_id=1, epoch=0, sequence=sequence, transactional=True)
        log.append(data, leader_epoch=0, now_ms=NOW_MS)
    append_marker(log, 1, 0, commit=False)
    manager.checkpoint()
    data = batch([b"w"], producer_id=1, epoch=0, sequence=3, transactional=True)
    log.append(data, leader_epoch=0, now_ms=NOW_MS)
    append_marker(log, 1, 0, commit=False)
    data = batch([b"x"], producer_id=2, epoch=0, sequence=0, transactional=True)
    log.append(data, leader_epoch=0, now_ms=NOW_MS)
    flush(log)
    checkpoint(log)
    after = manager_on(fs.crash()).get("t", 0)
    assert after is not None
    assert after.aborted_transactions(0, 7) == [(1, 0), (1, 4)]
    assert after.first_unstable_offset == 6
    producer = after.producers.get(1)
    assert producer is not None
    assert producer.next_sequence == 4


def test_an_index_of_aborted_transactions_that_was_made_again_outlives_a_power_loss() -> None:
    fs = PowerLossFileSystem()
    manager = manager_on(fs)
    log = manager.create("t", 0, TOPIC_ID)
    data = batch([b"v"], producer_id=7, epoch=0, sequence=0, transactional=True)
    log.append(data, leader_epoch=0, now_ms=NOW_MS)
    append_marker(log, 7, 0, commit=False)
    log.roll(NOW_MS)
    manager.checkpoint()
    expected = [(7, 0)]
    (name,) = (name for name in fs.list(log.dir) if name.endswith(".txnindex"))

    # The power fails in the middle of a write, and the index is found torn.
    torn = fs.crash()
    index = torn.open(f"{log.dir}/{name}")
    index.truncate(index.size - 2)
    index.sync()
    again = manager_on(torn).get("t", 0)
    assert again is not None
    assert again.aborted_transactions(0, again.end_offset) == expected

    # It fails once more, and any part of what was not synced is gone.
    for seed in range(40):
        last = manager_on(torn.crash(random.Random(seed))).get("t", 0)
        assert last is not None
        assert last.aborted_transactions(0, last.end_offset) == expected
