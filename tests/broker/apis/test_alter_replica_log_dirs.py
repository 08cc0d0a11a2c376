"""AlterReplicaLogDirs: partitions move to another data folder while they are written and read."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker
from tests.storage.batches import read_all
from tests.storage.faulty_files import FaultyFileSystem

from headrace.broker.apis import alter_replica_log_dirs
from headrace.protocol.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from headrace.protocol.api.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from headrace.protocol.errors import ErrorCode
from headrace.storage import names

assert alter_replica_log_dirs

LIMIT = "replica.alter.log.dirs.io.max.bytes.per.second"
Place = tuple[str, int]


class Disks:
    """Two data folders, and questions about them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.one, self.other = root / "one", root / "other"

    def run(
        self,
        scenario: Callable[[Asker], Awaitable[None]],
        settings: dict[str, object] | None = None,
        files: FaultyFileSystem | None = None,
    ) -> None:
        given: dict[str, object] = {
            "log.dirs": f"{self.one},{self.other}",
            "metadata.log.dir": f"{self.root}/meta",
        }
        with_broker(self.root, scenario, given | (settings or {}), files=files)

    def folders(self) -> list[str]:
        """The partition folders on disk that are not to be deleted."""
        found = (*self.one.glob("t-*"), *self.other.glob("t-*"))
        kept = [path for path in found if not path.name.endswith(names.DELETED_FOLDER)]
        return sorted(str(path.relative_to(self.root)) for path in kept)


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


async def alter(asker: Asker, path: Path | str, *places: Place, version: int = 2) -> list[int]:
    """Ask for a move; the error codes, in the order of the places."""
    topics = [AlterReplicaLogDirTopic(name=name, partitions=[index]) for name, index in places]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=topics)])
    answer = await asker.ask(request, AlterReplicaLogDirsResponse, version)
    codes = {
        (topic.topic_name, row.partition_index): row.error_code
        for topic in answer.results
        for row in topic.partitions
    }
    return [codes[place] for place in places]


async def described(asker: Asker) -> dict[tuple[str, int, bool], tuple[str, int, int]]:
    """By topic, partition and whether it is a future one: folder, size and lag."""
    answer = await asker.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    return {
        (topic.name, row.partition_index, row.is_future_key): (
            Path(result.log_dir).name,
            row.partition_size,
            row.offset_lag,
        )
        for result in answer.results
        for topic in result.topics
        for row in topic.partitions
    }


async def until_moved(asker: Asker) -> None:
    while list(asker.node.logs.moves):
        await asyncio.sleep(0.005)


def held(asker: Asker, offset: int = 0) -> list[bytes | None]:
    """The values of t-0 from an offset on that consumers may see."""
    partition = asker.node.partitions.get("t", 0)
    assert partition is not None
    return [r.value for r in read_all(partition.log, offset, partition.log.high_watermark)]


@pytest.mark.parametrize("version", [1, 2])
def test_partition_moves_there_and_back(disks: Disks, version: int) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        await asker.produce("t", 0, *[b"v%d" % n for n in range(100)])
        for folder in (disks.other, disks.one):
            assert await alter(asker, folder, ("t", 0), version=version) == [ErrorCode.NONE]
            await until_moved(asker)
            assert disks.folders() == [f"{folder.name}/t-0"]
            rows = await described(asker)
            assert rows["t", 0, False][0] == folder.name
            assert ("t", 0, True) not in rows
            assert held(asker) == [b"v%d" % n for n in range(100)]

    disks.run(scenario)


def test_records_flow_while_a_partition_moves(disks: Disks) -> None:
    """Produces are answered, readers see every record, and a restart finds them all."""
    sent: list[bytes] = []

    async def scenario(asker: Asker) -> None:
        await asker.create("t", segment_bytes="20000")
        moving = asyncio.Event()

        async def produce() -> None:
            while not moving.is_set() or list(asker.node.logs.moves):
                value = b"%d " % len(sent) + b"x" * 500
                await asker.produce("t", 0, value)
                sent.append(value)

        async def consume() -> list[bytes | None]:
            seen: list[bytes | None] = []
            while not producing.done() or len(seen) < len(sent):
                seen += held(asker, len(seen))
                await asyncio.sleep(0)
            return seen

        producing = asyncio.create_task(produce())
        consuming = asyncio.create_task(consume())
        while len(sent) < 200:
            await asyncio.sleep(0.001)
        for folder in (disks.other, disks.one, disks.other):
            assert await alter(asker, folder, ("t", 0)) == [ErrorCode.NONE]
            await until_moved(asker)
        moving.set()
        await producing
        assert await consuming == sent

    disks.run(scenario)
    assert disks.folders() == ["other/t-0"]

    async def afterwards(asker: Asker) -> None:
        assert held(asker) == sent

    disks.run(afterwards)


def test_many_partitions_move_one_after_the_other(disks: Disks) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", 6)
        places = [("t", index) for index in range(6)]
        for place in places:
            await asker.produce(*place, b"v")
        assert await alter(asker, disks.one, *places) == [ErrorCode.NONE] * 6
        await until_moved(asker)
        assert {row[0] for row in (await described(asker)).values()} == {"one"}

    disks.run(scenario)
    assert disks.folders() == [f"one/t-{index}" for index in range(6)]


def test_what_cannot_be_moved_is_refused_as_kafka_refuses_it(disks: Disks) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        long_name = "n" * 240
        await asker.create(long_name)
        unknown = [("t", 9), ("absent", 0)]
        codes = await alter(asker, disks.other, *unknown)
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
        codes = await alter(asker, disks.root / "elsewhere", ("t", 0), ("absent", 0))
        assert codes == [ErrorCode.LOG_DIR_NOT_FOUND] * 2
        codes = await alter(asker, disks.other, (long_name, 0))
        assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert await alter(asker, disks.one, ("t", 0)) == [ErrorCode.NONE]  # it is there
        assert not list(asker.node.logs.moves)
        asker.node.fail_log_dir(str(disks.other / "x-0"), OSError("broken"))
        codes = await alter(asker, disks.other, ("t", 0), ("absent", 0))
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
        asker.node.fail_log_dir(str(disks.one / "t-0"), OSError("broken"))

    disks.run(scenario)


def test_partition_of_a_failed_folder_cannot_be_moved(disks: Disks) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        asker.node.fail_log_dir(str(disks.one / "t-0"), OSError("broken"))
        codes = await alter(asker, disks.other, ("t", 0))
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR]

    disks.run(scenario)


def test_future_partition_is_described_with_its_lag(disks: Disks) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", segment_bytes="2000")
        for _ in range(20):
            await asker.produce("t", 0, b"x" * 1000)
        assert await alter(asker, disks.other, ("t", 0)) == [ErrorCode.NONE]
        row = (await described(asker))["t", 0, True]
        assert row[0] == "other"
        while (row := (await described(asker))["t", 0, True])[1] == 0:
            await asyncio.sleep(0.01)
        assert 0 < row[2] < 20
        assert (await described(asker))["t", 0, False][0] == "one"
        # Asked for again it goes on; asked for where it is, it is called off.
        assert await alter(asker, disks.other, ("t", 0)) == [ErrorCode.NONE]
        assert len(list(asker.node.logs.moves)) == 1
        assert await alter(asker, disks.one, ("t", 0)) == [ErrorCode.NONE]
        assert not list(asker.node.logs.moves)
        assert ("t", 0, True) not in await described(asker)
        assert disks.folders() == ["one/t-0"]
        await asker.produce("t", 0, b"still there")
        assert len(held(asker)) == 21

    disks.run(scenario, {LIMIT: 200})


def test_second_alter_sends_a_partition_somewhere_else(disks: Disks) -> None:
    third = disks.root / "third"

    async def scenario(asker: Asker) -> None:
        await asker.create("t", segment_bytes="2000")
        for _ in range(5):
            await asker.produce("t", 0, b"x" * 1000)
        await asker.node.topics.alter_broker(
            None, lambda own, _: {**own, LIMIT: "200"}, validate_only=False
        )
        await alter(asker, disks.other, ("t", 0))
        await alter(asker, third, ("t", 0))
        rows = await described(asker)
        assert [key for key in rows if key[2]] == [("t", 0, True)]
        assert rows["t", 0, True][0] == "third"
        # The limit may be lifted while a partition moves.
        await asker.node.topics.alter_broker(None, lambda own, _: {}, validate_only=False)
        await until_moved(asker)
        assert (await described(asker))["t", 0, False][0] == "third"
        assert len(held(asker)) == 5

    disks.run(scenario, {"log.dirs": f"{disks.one},{disks.other},{third}"})
    assert disks.folders() == []
    assert [path.name for path in third.glob("t-0*")] == ["t-0"]


def test_topic_that_is_deleted_while_it_moves_is_gone_from_both_folders(disks: Disks) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", segment_bytes="2000")
        for _ in range(5):
            await asker.produce("t", 0, b"x" * 1000)
        await alter(asker, disks.other, ("t", 0))
        await asker.node.topics.delete("t")
        assert disks.folders() == []
        assert not list(asker.node.logs.moves)
        await asker.create("t")
        await asker.produce("t", 0, b"another")
        assert held(asker) == [b"another"]

    disks.run(scenario, {LIMIT: 200})


def test_topic_that_is_deleted_before_its_move_has_a_folder_leaves_none(disks: Disks) -> None:
    files = FaultyFileSystem()

    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        gate = files.hold("mkdir", path_has=names.FUTURE_FOLDER)
        asking = asyncio.create_task(alter(asker, disks.other, ("t", 0)))
        while not list(asker.node.logs.moves):
            await asyncio.sleep(0.001)
        await asker.node.topics.delete("t")
        gate.set()
        await asking
        assert disks.folders() == []

    disks.run(scenario, files=files)


def test_second_move_waits_for_its_folder(disks: Disks) -> None:
    files = FaultyFileSystem()

    async def scenario(asker: Asker) -> None:
        await asker.create("t", 2)
        await alter(asker, disks.one, ("t", 0), ("t", 1))
        await until_moved(asker)
        gate = files.hold("mkdir", path_has="/t-1.")
        first = asyncio.create_task(alter(asker, disks.other, ("t", 0)))
        second = asyncio.create_task(alter(asker, disks.other, ("t", 1)))
        await first
        while (await described(asker))["t", 0, False][0] != "other":
            await asyncio.sleep(0.001)
        gate.set()
        assert await second == [ErrorCode.NONE]
        await until_moved(asker)

    disks.run(scenario, files=files)
    assert disks.folders() == ["other/t-0", "other/t-1"]


def test_move_that_a_stop_interrupted_begins_again(disks: Disks) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", segment_bytes="2000")
        for _ in range(5):
            await asker.produce("t", 0, b"x" * 1000)
        await alter(asker, disks.other, ("t", 0))

    async def afterwards(asker: Asker) -> None:
        await until_moved(asker)
        assert (await described(asker))["t", 0, False][0] == "other"
        assert len(held(asker)) == 5
        await asker.node.housekeeping.purge()

    disks.run(scenario, {LIMIT: 200})
    assert len(disks.folders()) == 2
    disks.run(afterwards)
    assert disks.folders() == ["other/t-0"]


def test_full_disk_ends_a_move_and_nothing_else(disks: Disks) -> None:
    files = FaultyFileSystem()

    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        await asker.produce("t", 0, b"v")
        files.fail("append", error=errno.ENOSPC, path_has=names.FUTURE_FOLDER, times=100)
        assert await alter(asker, disks.other, ("t", 0)) == [ErrorCode.NONE]
        await until_moved(asker)
        files.heal()
        assert (await described(asker))["t", 0, False][0] == "one"
        assert not asker.node.logs.dirs[1].offline_error
        files.fail("mkdir", error=errno.ENOSPC, path_has=names.FUTURE_FOLDER)
        assert await alter(asker, disks.other, ("t", 0)) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert await alter(asker, disks.other, ("t", 0)) == [ErrorCode.NONE]
        await until_moved(asker)
        assert (await described(asker))["t", 0, False][0] == "other"

    disks.run(scenario, files=files)


def test_compacted_and_internal_topics_move_too(disks: Disks) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", cleanup_policy="compact", segment_bytes="2000")
        for _ in range(10):
            await asker.produce("t", 0, b"x" * 500)
        await asker.node.housekeeping.compact()
        kept = held(asker)
        await alter(asker, disks.other, ("t", 0))
        await until_moved(asker)
        assert held(asker) == kept
        await asker.produce("t", 0, b"y")
        await asker.node.housekeeping.checkpoint()
        await asker.node.housekeeping.compact()

    disks.run(scenario)
    assert disks.folders() == ["other/t-0"]
