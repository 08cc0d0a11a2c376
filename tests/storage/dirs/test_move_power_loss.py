"""A move that a crash interrupts, at every operation on the disk: one log, with all that counts."""

from __future__ import annotations

import contextlib
import random
from copy import copy

import pytest
from tests.storage.batches import NOW_MS, append_marker, batch, flush, values
from tests.storage.dirs.moving import CONFIG, TOPIC_ID, begin_move, manager_on
from tests.storage.faulty_files import PowerCut, PowerLossFileSystem

from headrace.storage import Log, LogManager, names
from headrace.storage.dirs.log_move import LogMove
from headrace.storage.dirs.move_recovery import read_note


class Story:
    """What was written and what was acknowledged, by whom."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.written: dict[int, bytes] = {}
        self.acknowledged = 0
        self.sequence = 0

    def live(self, fs: PowerLossFileSystem, moves: int) -> None:
        """Write, and move the log from one log dir to the other and on."""
        manager = manager_on(fs)
        log = manager.get("t", 0) or manager.create("t", 0, TOPIC_ID)
        for _ in range(8):
            self.step(manager, log)
        for _ in range(moves):
            self.move(manager, log)
        manager.close()
        self.acknowledged = log.end_offset

    def move(self, manager: LogManager, log: Log) -> None:
        move = begin_move(manager, log)
        while True:
            turn = move.next_step(NOW_MS)
            if turn is None:
                break
            turn()
            if self.rng.random() < 0.3:
                self.step(manager, log)
        in_flight = log.begin_flush() if self.rng.random() < 0.5 else None
        manager.moves.swap(move)
        for _ in range(self.rng.randint(0, 3)):
            self.append(log)
        if in_flight is not None:
            in_flight.run()
            log.complete_flush(in_flight)
            self.acknowledged = max(self.acknowledged, log.synced_offset)
        self.end(manager, log, move)

    def end(self, manager: LogManager, log: Log, move: LogMove) -> None:
        while not move.has_arrived:
            self.step(manager, log)
        self.step(manager, log)
        manager.moves.finish(move)
        manager.moves.forget(move)

    def step(self, manager: LogManager, log: Log) -> None:
        choice = self.rng.random()
        if choice < 0.5:
            self.append(log)
        elif choice < 0.8:
            flush(log)
            log.high_watermark = log.synced_offset
            self.acknowledged = max(self.acknowledged, log.synced_offset)
        elif choice < 0.9:
            manager.checkpoint()
            self.acknowledged = max(self.acknowledged, log.recovery_point)
        else:
            purge = manager.begin_purge(NOW_MS + CONFIG.file_delete_delay_ms)
            if purge is not None:
                purge.run()

    def append(self, log: Log) -> None:
        if self.rng.random() < 0.2:
            producer = log.producers.get(8)
            if producer is not None and producer.txn_first_offset >= 0:
                self.written[log.end_offset] = b""
                append_marker(log, 8, 0, commit=False)
                return
            sequence = producer.next_sequence if producer else 0
            value = self.rng.randbytes(20)
            self.written[log.end_offset] = value
            data = batch([value], producer_id=8, epoch=0, sequence=sequence, transactional=True)
            log.append(data, leader_epoch=0, now_ms=NOW_MS)
            return
        value = self.rng.randbytes(self.rng.randint(1, 150))
        self.written[log.end_offset] = value
        data = batch([value], producer_id=7, epoch=0, sequence=self.sequence)
        assert not log.append(data, leader_epoch=0, now_ms=NOW_MS).duplicate
        self.sequence += 1

    def check(self, fs: PowerLossFileSystem, *, all_written: bool) -> LogManager:
        """The log is there once, and holds what it must and nothing else."""
        manager = manager_on(fs)
        found = [
            f"{folder}/{name}"
            for folder in ("/a", "/b")
            for name in fs.list(folder)
            if names.parse_folder(name) is not None
        ]
        log = manager.get("t", 0)
        assert (log is None and not found) or (log is not None and found == [log.dir])
        if log is None:
            assert self.acknowledged == 0
            return manager
        assert log.end_offset >= self.acknowledged
        assert read_note(fs, log.dir) is None
        held = dict(values(log))
        for offset, value in held.items():
            assert self.written[offset] == value
        assert {o for o, value in self.written.items() if value and o < log.end_offset} == set(held)
        if all_written:
            # The write that was cut short is the only one that may be missing.
            assert log.end_offset >= max(self.written, default=-1)
        self.written = {o: value for o, value in self.written.items() if o < log.end_offset}
        producer = log.producers.get(7)
        self.sequence = producer.next_sequence if producer else 0
        return manager


def operations(seed: int) -> int:
    fs = PowerLossFileSystem()
    Story(random.Random(seed)).live(fs, 2)
    return fs.operations


KINDS = ["kill", "power loss", "synced only", "names in any order"]


def crashed(fs: PowerLossFileSystem, kind: str, seed: int) -> PowerLossFileSystem:
    rng = random.Random(seed)
    if kind == "kill":
        return fs.crash(rng, keep_probability=1)
    if kind == "power loss":
        return fs.crash(rng)
    if kind == "synced only":
        return fs.crash()
    return fs.crash(rng, reorder_names=True)


@pytest.mark.parametrize("kind", KINDS)
def test_log_is_there_once_and_whole_after_a_crash(kind: str) -> None:
    seed = KINDS.index(kind)
    crash_at(kind, seed, range(seed, operations(seed), 6))


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_log_is_there_once_and_whole_after_a_crash_anywhere(kind: str, seed: int) -> None:
    crash_at(kind, seed, range(operations(seed)))


def crash_at(kind: str, seed: int, points: range) -> None:
    """Crash at each of these operations, look at what is left, and go on with it."""
    for cut_at in points:
        fs = PowerLossFileSystem()
        fs.cut_at = cut_at
        story = Story(random.Random(seed))
        with contextlib.suppress(PowerCut):
            story.live(fs, 2)
        after = crashed(fs, kind, cut_at)
        manager = story.check(after, all_written=kind == "kill")
        log = manager.get("t", 0)
        if log is None:
            continue
        # What was begun is known, begins again and comes to its end.
        for place, log_dir in manager.moves.wanted:
            assert place == ("t", 0)
            assert manager.dir_of(log) is not log_dir
        story.move(manager, log)
        flush(log)
        story.acknowledged = log.end_offset
        again = story.check(after.crash(), all_written=False)
        purge = again.begin_purge(NOW_MS)
        if purge is not None:
            purge.run()
        left = [name for folder in ("/a", "/b") for name in again.fs.list(folder) if "t-0" in name]
        assert left == ["t-0"]


@pytest.mark.parametrize("kind", KINDS)
def test_start_that_sorts_out_a_crash_may_crash_itself(kind: str) -> None:
    seed = 1
    for cut_at in range(KINDS.index(kind), operations(seed), 24):
        fs = PowerLossFileSystem()
        fs.cut_at = cut_at
        story = Story(random.Random(seed))
        with contextlib.suppress(PowerCut):
            story.live(fs, 2)
        after = crashed(fs, kind, cut_at)
        for again_at in range(0, 60, 5):
            second = after.crash(random.Random(1), keep_probability=1)
            second.cut_at = second.operations + again_at
            with contextlib.suppress(PowerCut):
                manager_on(second)
            left = crashed(second, KINDS[again_at % 4], again_at)
            copy(story).check(left, all_written=False)
