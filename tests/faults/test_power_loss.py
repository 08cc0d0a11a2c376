"""The power fails at any operation: what was acknowledged is there, once, and producers go on."""

from __future__ import annotations

import random
import traceback

import pytest
from tests.faults.checker import Anomaly, Operation, check
from tests.faults.disks import append, batch_of, make_durable, open_manager, read_all
from tests.faults.power_loss_workload import LyingDisk, RecoveredDisk, WatchedDisk, Workload
from tests.storage.faulty_files import PowerLossFileSystem

from headrace.storage import Log

SHORT_CRASH_POINTS = 1_200
LONG_CRASH_POINTS = 20_000
STEPS_PER_WORLD = 120


class Crashes:
    """Looks at crashes before the operations of a workload, this many in all."""

    def __init__(self, seed: int, limit: int, every: int):
        self.random = random.Random(seed)
        self.limit = limit
        self.every = every
        self.points = 0
        self.found: list[Anomaly] = []

    def run(self, disk_class: type[WatchedDisk] = WatchedDisk) -> None:
        while self.points < self.limit and not self.found:
            disk = disk_class()
            workload = Workload(disk, self.random.getrandbits(32))

            def look(workload: Workload = workload, disk: WatchedDisk = disk) -> None:
                self.look(workload, disk)

            disk.before_operation = look
            for _ in range(STEPS_PER_WORLD):
                workload.step()
                if self.points >= self.limit or self.found:
                    break
            disk.before_operation = None

    def look(self, workload: Workload, disk: WatchedDisk) -> None:
        if self.points >= self.limit or self.found or self.random.randrange(self.every):
            return
        self.points += 1
        recovered = RecoveredDisk(self.crashed(disk), list(workload.promises.values()))
        try:
            recovered.recover(self.random, crashes=self.random.choice([0, 0, 1, 2]))
            self.found = recovered.anomalies()
            if not self.found:
                recovered.retry()
                self.found = recovered.anomalies()
        except Exception:
            # Not raised here: this runs inside the workload's own file operations.
            self.found = [Anomaly("failed-recovery", "", traceback.format_exc())]

    def crashed(self, disk: WatchedDisk) -> PowerLossFileSystem:
        """One of the disks that the crash could leave: nothing, some or all of the unsynced."""
        choice = self.random.random()
        if choice < 0.3:
            return disk.crash()
        if choice < 0.4:
            return disk.crash(self.random, keep_probability=1)
        return disk.crash(
            self.random,
            keep_probability=self.random.choice([0.2, 0.5, 0.9]),
            reorder_names=choice > 0.7,
        )


def test_nothing_acknowledged_is_lost_at_any_crash_point() -> None:
    crashes = Crashes(seed=1, limit=SHORT_CRASH_POINTS, every=4)
    crashes.run()
    assert crashes.found == []
    assert crashes.points == SHORT_CRASH_POINTS


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_nothing_acknowledged_is_lost_at_twenty_thousand_crash_points() -> None:
    crashes = Crashes(seed=2, limit=LONG_CRASH_POINTS, every=2)
    crashes.run()
    assert crashes.found == []
    assert crashes.points == LONG_CRASH_POINTS


class TestMutants:
    """The same tests must fail on a broken broker, or they prove nothing."""

    def test_a_disk_that_lies_about_syncs_is_caught(self) -> None:
        names: set[str] = set()
        for seed in range(20):
            crashes = Crashes(seed, limit=SHORT_CRASH_POINTS, every=4)
            crashes.run(LyingDisk)
            names |= {anomaly.name for anomaly in crashes.found}
        assert names & {"unseen", "lost-write"}

    def test_a_log_that_reuses_an_offset_is_caught(self) -> None:
        log = fresh_log()
        history = [sent(log, "a"), sent(log, "b")]
        log.truncate_to(1, 0)
        history += [sent(log, "c"), Operation(9, "final", "t-0", list(read_all(log)))]
        assert {anomaly.name for anomaly in check(history)} >= {"inconsistent-offsets", "unseen"}

    def test_a_log_that_forgets_its_producers_is_caught(self) -> None:
        disk = WatchedDisk()
        workload = Workload(disk, seed=4)
        workload.send()
        workload.send()
        workload.send()
        recovered = RecoveredDisk(
            disk.crash(random.Random(1), keep_probability=1), list(workload.promises.values())
        )
        recovered.recover(random.Random(1))
        assert recovered.manager is not None
        for log in recovered.manager:
            log.producers.clear()
        recovered.retry()
        assert {anomaly.name for anomaly in recovered.anomalies()} == {"duplicate"}

    def test_a_reader_that_skips_a_batch_is_caught(self) -> None:
        log = fresh_log()
        history = [sent(log, value) for value in "abc"]
        rows = [row for row in read_all(log) if row[1] != "b"]
        history += [
            Operation(9, "final", "t-0", list(read_all(log))),
            Operation(8, "poll", "t-0", list(rows)),
        ]
        assert {anomaly.name for anomaly in check(history)} == {"poll-skip"}


def fresh_log() -> Log:
    return open_manager(PowerLossFileSystem()).create("t", 0, bytes(16))


def sent(log: Log, value: str) -> Operation:
    """Send one value and wait for its acknowledgement."""
    info = append(log, batch_of([value]))
    make_durable(log)
    return Operation(0, "send", "t-0", [(info.base_offset, value)])
