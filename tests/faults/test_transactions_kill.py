"""The broker is killed, or the power fails, at every step of a transaction's way to the disk.

A scenario is run once on a disk that tells of each operation: every append, every sync, every new
name. Before each of them the disk is copied as it would be found after a kill of the process (all
that was written is there) and after a power loss (what was not synced is gone: all of it, any part,
or all but that of one log). Then a broker is started on each copy, and asked for what its clients
had been promised by that moment.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker
from tests.broker.transactional import Transactional, committed_offset, read_committed
from tests.faults.power_loss_workload import WatchedDisk
from tests.storage.faulty_files import PowerLossFileSystem
from tests.waiting import WAIT_SECONDS

from headrace.broker import Broker
from headrace.broker.transactions_markers import Markers
from headrace.broker.transactions_shard import TransactionShard
from headrace.config import BROKER_ROWS, Settings
from headrace.coordinator.transactions.effects import Ending
from headrace.coordinator.transactions.states import SETTLING
from headrace.protocol.errors import ErrorCode

PARTITIONS = 2
GROUP = "g"
NONE = ErrorCode.NONE
CRASH_POINTS_MIN = 100
DATA = "/data"
LOGS = ("__transaction_state-0", "__consumer_offsets-0", "t-0", "t-1")


@dataclass(frozen=True)
class Promises:
    """What clients know: by number, the transactions that were committed and aborted."""

    committed: frozenset[int] = frozenset()
    aborted: frozenset[int] = frozenset()
    # (producer id, epoch) that a newer one has fenced.
    fenced: tuple[tuple[int, int], ...] = ()


@dataclass
class Story:
    """A scenario as it goes on, and the disks it would leave if it stopped."""

    disk: WatchedDisk = field(default_factory=WatchedDisk)
    promises: Promises = field(default_factory=Promises)
    random: random.Random = field(default_factory=lambda: random.Random(1))
    # By what is on the disk: many crashes leave the same.
    found: dict[str, tuple[str, Promises, PowerLossFileSystem]] = field(default_factory=dict)

    def watch(self) -> None:
        self.disk.before_operation = self.look

    def look(self) -> None:
        """The next operation is about to happen; called under the disk's lock."""
        at = self.disk.operations
        killed = self.disk.crash(self.random, keep_probability=1)
        disks = {
            "kill": killed,
            "power loss": self.disk.crash(),
            "torn power loss": self.disk.crash(self.random, keep_probability=0.5),
        }
        for log in LOGS:
            # Syncs of different files overlap: any of them may have been the first.
            disks[f"power loss that {log} survived"] = disk = self.disk.crash()
            keep(disk, killed, f"{DATA}/{log}")
        for name, disk in disks.items():
            # Whoever comes last has been promised the most.
            self.found[contents(disk)] = (f"{name} at operation {at}", self.promises, disk)

    def committed(self, number: int) -> None:
        told = self.promises
        self.promises = Promises(told.committed | {number}, told.aborted, told.fenced)

    def aborted(self, number: int) -> None:
        told = self.promises
        self.promises = Promises(told.committed, told.aborted | {number}, told.fenced)

    def fenced(self, producer: Transactional) -> None:
        told = self.promises
        gone = (producer.producer_id, producer.epoch)
        self.promises = Promises(told.committed, told.aborted, (*told.fenced, gone))


def keep(disk: PowerLossFileSystem, source: PowerLossFileSystem, folder: str) -> None:
    """Bring a folder to what it is on another disk."""
    for name in source.list(folder):
        path = f"{folder}/{name}"
        if not disk.exists(path) or disk.read(path) != source.read(path):
            disk.write(path, source.read(path))


def contents(disk: PowerLossFileSystem, folder: str = "") -> str:
    """A text that is the same for disks with the same files."""
    digest = hashlib.sha256()
    for name in sorted(disk.list(folder)):
        path = f"{folder}/{name}"
        inner = contents(disk, path).encode() if disk.is_dir(path) else disk.read(path)
        digest.update(b"%d %s %d " % (len(name), name.encode(), len(inner)) + inner)
    return digest.hexdigest()


def run(
    disk: PowerLossFileSystem, metadata: Path, scenario: Callable[[Asker], Awaitable[None]]
) -> None:
    """Start a broker on a disk, run the scenario, stop the broker."""

    async def served() -> None:
        settings = Settings.parse(
            BROKER_ROWS,
            {
                "log.dirs": DATA,
                "metadata.log.dir": str(metadata),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "transaction.state.log.num.partitions": 1,
                "offsets.topic.num.partitions": 1,
            },
        )
        async with Broker(settings, files=disk) as broker:
            await scenario(Asker(broker.node))

    asyncio.run(asyncio.wait_for(served(), WAIT_SECONDS))


async def settled(asker: Asker) -> None:
    """Wait until no transaction is open anywhere, and everything written is durable."""
    while any(
        transaction.state in SETTLING
        for shard in asker.node.transactions.shards()
        for transaction in shard.coordinator.transactions.values()
    ) or any(
        partition.log.first_unstable_offset is not None
        or partition.log.synced_offset < partition.log.end_offset
        for partition in asker.node.partitions
    ):
        for partition in asker.node.partitions:
            partition.sync()
        await asyncio.sleep(0)


async def write(producer: Transactional, number: int) -> None:
    """Write one value to each partition, and an offset that is the transaction's number."""
    for index in range(PARTITIONS):
        assert await producer.send("t", index, b"%d" % number) is NONE
    assert await producer.send_offset(GROUP, "t", 0, number) is NONE


async def told(asker: Asker, story: Story, since: bool) -> None:
    """A commit, an abort, a producer that is fenced with its transaction open, and a commit."""
    producer = await Transactional(asker, since=since).start()
    story.watch()
    await write(producer, 1)
    assert await producer.end(True) is NONE
    story.committed(1)
    await write(producer, 2)
    assert await producer.end(False) is NONE
    story.aborted(2)
    await write(producer, 3)
    successor = Transactional(asker, since=since)
    assert await successor.init() is NONE
    story.fenced(producer)
    story.aborted(3)
    await write(successor, 4)
    assert await successor.end(True) is NONE
    story.committed(4)
    await settled(asker)
    story.disk.before_operation = None


async def check(asker: Asker, promises: Promises, since: bool) -> None:
    """What a restarted broker shows: all of each transaction, or nothing of it."""
    for producer_id, epoch in promises.fenced:
        zombie = Transactional(asker, since=since)
        zombie.producer_id, zombie.epoch = producer_id, epoch
        assert await zombie.add("t", 0) is ErrorCode.PRODUCER_FENCED
        assert await zombie.produce("t", 0, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    # The application comes back: what it left open is aborted, what was decided comes to its end.
    producer = Transactional(asker, since=since)
    assert await producer.init() is NONE
    for producer_id, epoch in promises.fenced:
        assert (producer.producer_id, producer.epoch) > (producer_id, epoch)
    await settled(asker)
    shown = [await read_committed(asker, "t", index) for index in range(PARTITIONS)]
    assert shown[0] == shown[1], "a transaction is torn"
    visible = [int(value) for value in shown[0]]
    assert visible == sorted(set(visible))
    assert promises.committed <= set(visible), "a committed transaction is hidden"
    assert not promises.aborted & set(visible), "an aborted transaction is shown"
    offset = await committed_offset(asker, GROUP, "t", 0)
    assert offset.error_code == NONE
    assert offset.committed_offset == max(visible, default=-1), "offsets went another way"
    # And life goes on.
    await write(producer, 9)
    assert await producer.end(True) is NONE
    await settled(asker)
    for index in range(PARTITIONS):
        assert (await read_committed(asker, "t", index))[-1] == b"9"


def prepare(disk: PowerLossFileSystem, metadata: Path) -> None:
    """Topics are made in peace: only transactions are under test."""

    async def scenario(asker: Asker) -> None:
        await asker.node.groups.ensure_topic()
        await asker.node.transactions.ensure_topic()
        await asker.create("t", PARTITIONS)

    run(disk, metadata, scenario)


def disks_of(story: Story, metadata: Path, since: bool) -> None:
    prepare(story.disk, metadata)
    run(story.disk, metadata, lambda asker: told(asker, story, since))


@pytest.mark.parametrize("since", [False, True], ids=["v1", "v2"])
@pytest.mark.timeout(300)
def test_every_transaction_is_whole_or_nothing_after_a_crash_at_any_point(
    tmp_path: Path, since: bool
) -> None:
    story = Story()
    disks_of(story, tmp_path / "metadata", since)
    assert len(story.found) > CRASH_POINTS_MIN
    for crash, promises, disk in story.found.values():
        # Only producer ids are taken from it meanwhile, and those are never given twice.
        try:
            run(disk, tmp_path / "metadata", partial(check, promises=promises, since=since))
        except Exception as error:
            raise AssertionError(f"after a {crash}, with {promises}") from error


class TestMutants:
    """The same test must fail on a broken coordinator, or it proves nothing."""

    def anomaly(self, tmp_path: Path, since: bool) -> str:
        """The first thing that is found wrong."""
        story = Story()
        tmp_path.mkdir(exist_ok=True)
        disks_of(story, tmp_path / "metadata", since)
        for _, promises, disk in story.found.values():
            try:
                run(disk, tmp_path / "metadata", partial(check, promises=promises, since=since))
            except AssertionError as error:
                return str(error)
        return ""

    def is_caught(self, tmp_path: Path, since: bool) -> bool:
        """Which sync ends first is the threads' choice: the moment is not in every story."""
        return any(self.anomaly(tmp_path / str(number), since) for number in range(8))

    @pytest.mark.parametrize("since", [False, True], ids=["v1", "v2"])
    def test_markers_that_do_not_wait_for_the_decision_are_caught(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: bool
    ) -> None:
        def at_once(shard: TransactionShard, then: Callable[[], None]) -> None:
            then()

        monkeypatch.setattr(TransactionShard, "when_surely_durable", at_once)
        assert self.is_caught(tmp_path, since)

    def test_records_that_do_not_wait_for_the_end_before_them_are_caught(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def settled(shard: TransactionShard, ending: Ending) -> None:
            shard.carry_out(shard.coordinator.settled(ending, shard.now()))
            shard._parked.check(ending.transactional_id)

        monkeypatch.setattr(TransactionShard, "_settled", settled)
        assert self.is_caught(tmp_path, since=False)

    def test_markers_that_are_written_twice_are_caught(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Markers, "_is_settled", lambda *_: False)
        assert self.is_caught(tmp_path, since=True)
