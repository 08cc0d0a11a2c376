"""Topics over their life: restarts, crashes in between, full disks, impatient clients."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker

from headrace.broker.stray_folders import rename_stray_folders
from headrace.metadata import FILE_NAME, Catalog, SqliteStore, Topic
from headrace.metadata.planning import NewTopic
from headrace.protocol.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import LogDirError, OsFileSystem

NODE = 1


def change_catalog(folder: Path, change: Callable[[Catalog], Awaitable[object]]) -> None:
    """Change the catalog of a stopped broker, as a crash right after the change would leave it."""

    async def run() -> None:
        catalog = await Catalog.open(await SqliteStore.open(folder / FILE_NAME), "c")
        await change(catalog)
        await catalog.close()

    asyncio.run(run())


def folders(folder: Path) -> list[str]:
    """Partition folders, with what makes a renamed one unique taken out of its name."""
    names = [each.name for each in folder.iterdir() if each.is_dir()]
    return sorted(
        f"{head}{'-' + tail.rpartition('-')[2] if tail else ''}"
        for head, _, tail in (name.partition(".") for name in names)
    )


def end_offset(asker: Asker, topic: str, partition: int = 0) -> int | None:
    served = asker.node.partitions.get(topic, partition)
    return None if served is None else served.log.end_offset


async def one_topic(asker: Asker) -> None:
    await asker.create("t", 2, retention_ms="-1")
    await asker.produce("t", 0, b"a", b"b")


# -- restarts --------------------------------------------------------------------------------


def test_topics_ids_settings_and_records_survive_a_restart(tmp_path: Path) -> None:
    ids: list[bytes] = []

    async def before(asker: Asker) -> None:
        await one_topic(asker)
        ids.append(asker.node.catalog.topics["t"].id)

    async def after(asker: Asker) -> None:
        topic = asker.node.catalog.topics["t"]
        assert [topic.id] == ids
        assert asker.node.partitions.name_of(topic.id) == "t"
        assert (end_offset(asker, "t", 0), end_offset(asker, "t", 1)) == (2, 0)
        served = asker.node.partitions.get("t", 0)
        assert served is not None
        assert served.log.config.retention_ms == -1
        (again,) = await asker.node.topics.create([NewTopic("t")])
        assert isinstance(again, KafkaError)
        assert again.code == ErrorCode.TOPIC_ALREADY_EXISTS

    with_broker(tmp_path, before)
    with_broker(tmp_path, after)


def test_folders_that_a_crash_kept_from_being_are_made_at_start(tmp_path: Path) -> None:
    topic = Topic("late", os.urandom(16), 3, {"segment.bytes": "1000"})

    async def after(asker: Asker) -> None:
        assert [end_offset(asker, "late", index) for index in range(3)] == [0, 0, 0]
        await asker.produce("late", 2, b"x")
        served = asker.node.partitions.get("late", 2)
        assert served is not None
        assert served.log.topic_id == topic.id
        assert served.log.config.segment_bytes == 1000

    with_broker(tmp_path, one_topic)
    change_catalog(tmp_path, lambda catalog: catalog.create_topics([topic], NODE))
    with_broker(tmp_path, after)
    assert folders(tmp_path) == ["late-0", "late-1", "late-2", "t-0", "t-1"]


def test_a_deletion_that_a_crash_interrupted_is_finished_at_start(tmp_path: Path) -> None:
    async def after(asker: Asker) -> None:
        assert asker.node.catalog.topics == {}
        assert asker.node.catalog.deleted == {}
        assert end_offset(asker, "t") is None

    with_broker(tmp_path, one_topic)
    change_catalog(tmp_path, lambda catalog: catalog.delete_topic("t"))
    with_broker(tmp_path, after)
    assert "t-0" not in folders(tmp_path)
    assert not any(name.endswith("-stray") for name in folders(tmp_path))


def test_a_topic_made_again_never_serves_the_folders_of_its_forerunner(tmp_path: Path) -> None:
    async def again(catalog: Catalog) -> None:
        await catalog.delete_topic("t")
        await catalog.create_topics([Topic("t", os.urandom(16), 1)], NODE)

    async def after(asker: Asker) -> None:
        assert (end_offset(asker, "t", 0), end_offset(asker, "t", 1)) == (0, None)

    with_broker(tmp_path, one_topic)
    change_catalog(tmp_path, again)
    with_broker(tmp_path, after)


def test_folders_of_no_topic_are_set_aside_with_their_data(tmp_path: Path) -> None:
    async def after(asker: Asker) -> None:
        assert end_offset(asker, "t") is None
        await asker.create("t")
        assert end_offset(asker, "t") == 0

    with_broker(tmp_path, one_topic)
    size = (tmp_path / "t-0" / "00000000000000000000.log").stat().st_size
    # A lost catalog must not cost the records as well.
    (tmp_path / FILE_NAME).unlink()
    with pytest.raises(LogDirError, match=r"If the metadata is lost, remove .*/meta.properties"):
        with_broker(tmp_path, after)
    assert folders(tmp_path) == ["t-0", "t-1"]
    (tmp_path / "meta.properties").unlink()
    with_broker(tmp_path, after)
    assert folders(tmp_path) == ["t-0", "t-0-stray", "t-1-stray"]
    (stray,) = tmp_path.glob("t-0.*-stray")
    assert (stray / "00000000000000000000.log").stat().st_size == size > 0
    with_broker(tmp_path, lambda asker: asyncio.sleep(0))
    assert folders(tmp_path) == ["t-0", "t-0-stray", "t-1-stray"]


def test_a_folder_without_its_id_belongs_to_the_topic_of_its_name(tmp_path: Path) -> None:
    async def after(asker: Asker) -> None:
        assert end_offset(asker, "t", 1) == 0
        served = asker.node.partitions.get("t", 1)
        assert served is not None
        assert served.log.topic_id == asker.node.catalog.topics["t"].id

    with_broker(tmp_path, one_topic)
    (tmp_path / "t-1" / "partition.metadata").unlink()
    with_broker(tmp_path, after)


def test_sorting_leaves_alone_what_is_no_partition(tmp_path: Path) -> None:
    async def run() -> None:
        catalog = await Catalog.open(await SqliteStore.open(tmp_path / "m"), "c")
        dir_ = tmp_path / "logs"
        for name in ("lost+found", "t-0.0123-delete", "t-1.0123-stray", "no-partition-"):
            (dir_ / name).mkdir(parents=True)
        (dir_ / "file-0").write_text("not a folder")
        (dir_ / ("x" * 249 + "-0")).mkdir()
        before = sorted(each.name for each in dir_.iterdir())
        rename_stray_folders(OsFileSystem(), str(dir_), catalog)
        after = sorted(each.name for each in dir_.iterdir())
        assert len(set(after) - set(before)) == 1
        rename_stray_folders(OsFileSystem(), str(tmp_path / "nowhere"), catalog)
        await catalog.close()

    asyncio.run(run())


class BrokenDisk(OsFileSystem):
    """A file system on which some paths cannot be listed, made or written."""

    def __init__(self, *, broken: str = "", full: str = "") -> None:
        super().__init__()
        self.broken = broken
        self.full = full

    def list(self, path: str) -> list[str]:
        if self.broken and path.startswith(self.broken):
            raise OSError(errno.EIO, "broken", path)
        return super().list(path)

    def mkdir(self, path: str) -> None:
        if self.full and path.endswith(self.full):
            raise OSError(errno.ENOSPC, "full", path)
        super().mkdir(path)


def test_partitions_on_a_missing_disk_are_not_made_anew(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    dirs: dict[str, object] = {"log.dirs": f"{one},{other}"}
    gone = Topic("gone", os.urandom(16), 1)

    async def before(asker: Asker) -> None:
        await asker.create("t", 2)

    async def delete(catalog: Catalog) -> None:
        await catalog.create_topics([gone], NODE)
        await catalog.delete_topic("gone")

    async def after(asker: Asker) -> None:
        served = [index for index in range(2) if asker.node.partitions.get("t", index)]
        assert len(served) == 1
        # Its folders may be on the disk that is not there.
        assert set(asker.node.catalog.deleted) == {gone.id}

    with_broker(one, before, dirs)
    change_catalog(one, delete)
    with_broker(one, after, dirs, files=BrokenDisk(broken=str(other)))
    assert len([*one.glob("t-*")]) == 1


# -- a full disk -----------------------------------------------------------------------------


def test_a_topic_that_the_disk_refuses_is_not_made_at_all(tmp_path: Path) -> None:
    disk = BrokenDisk(full="t-2")

    async def scenario(asker: Asker) -> None:
        refused, made = await asker.node.topics.create([NewTopic("t", 3), NewTopic("u")])
        assert isinstance(refused, KafkaError)
        assert refused.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert isinstance(made, Topic)
        assert set(asker.node.catalog.topics) == {"u"}
        assert end_offset(asker, "t") is None
        disk.full = ""
        await asker.create("t", 3)
        assert end_offset(asker, "t", 2) == 0

    with_broker(tmp_path, scenario, files=disk)


def test_a_topic_that_cannot_grow_stays_as_it_is(tmp_path: Path) -> None:
    disk = BrokenDisk(full="t-3")

    async def scenario(asker: Asker) -> None:
        await one_topic(asker)
        with pytest.raises(KafkaError) as caught:
            await asker.node.topics.add_partitions("t", 4)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert asker.node.catalog.topics["t"].partitions == 2
        assert (end_offset(asker, "t", 0), end_offset(asker, "t", 2)) == (2, None)
        disk.full = ""
        await asker.node.topics.add_partitions("t", 4)
        assert end_offset(asker, "t", 3) == 0

    with_broker(tmp_path, scenario, files=disk)


# -- clients ---------------------------------------------------------------------------------


def test_a_client_that_goes_away_does_not_stop_what_it_asked_for(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        topics = asker.node.topics
        creating = asyncio.ensure_future(topics.create([NewTopic("t", 20)]))
        while "t" not in asker.node.catalog.topics:
            await asyncio.sleep(0)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        # The next change waits for it.
        await topics.add_partitions("t", 21)
        assert end_offset(asker, "t", 19) == 0

    with_broker(tmp_path, scenario)


def test_changes_to_one_name_happen_one_after_the_other(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        topics = asker.node.topics

        async def delete_until_gone() -> int:
            for count in itertools.count():
                try:
                    await topics.delete("t")
                except KafkaError:
                    return count
            raise AssertionError

        for _ in range(5):
            creating = asyncio.gather(*(topics.create([NewTopic("t", 3)]) for _ in range(3)))
            # Begun after the first creation, so it waits for it and finds the topic.
            while not creating.done():
                await asyncio.sleep(0)
                await delete_until_gone()
            made = [outcome for (outcome,) in await creating if isinstance(outcome, Topic)]
            assert made
            assert len({topic.id for topic in made}) == len(made)
            await delete_until_gone()
        assert asker.node.catalog.topics == {}
        assert end_offset(asker, "t") is None

    with_broker(tmp_path, scenario)


def test_a_reader_waiting_at_the_end_learns_that_the_topic_is_gone(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await one_topic(asker)
        wanted = FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1000)
        request = FetchRequest(
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=1000,
            session_epoch=-1,
            topics=[FetchTopic(topic="t", partitions=[wanted])],
        )
        waiting = asyncio.ensure_future(asker.ask(request, FetchResponse, 12))
        while not asker.node.fetch_purgatory.size:
            await asyncio.sleep(0)
        await asker.node.topics.delete("t")
        (topic,) = (await waiting).responses
        assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    with_broker(tmp_path, scenario)


# -- kill -9 ---------------------------------------------------------------------------------

KILLS = 5
CHANGER = """
import asyncio, sys
from headrace.broker.broker import Broker
from headrace.config import BROKER_ROWS, Settings
from headrace.metadata.planning import NewTopic

async def main():
    given = {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}
    async with Broker(Settings.parse(BROKER_ROWS, given)) as broker:
        topics = broker.node.topics
        if broker.node.catalog.get("again"):  # from before the last kill
            await topics.delete("again")
        number = 0
        while True:
            number += 1
            await topics.create([NewTopic("kept-%d-%s" % (number, sys.argv[2]), 2)])
            print("kept-%d-%s" % (number, sys.argv[2]), flush=True)
            await topics.create([NewTopic("again", 3)])
            await topics.add_partitions("again", 5)
            await topics.delete("again")

asyncio.run(main())
"""


def test_a_kill_at_any_point_leaves_every_acknowledged_topic_and_a_broker_that_starts(
    tmp_path: Path,
) -> None:
    acknowledged: set[str] = set()
    for kill in range(KILLS):
        changer = subprocess.Popen(
            [sys.executable, "-c", CHANGER, str(tmp_path), str(kill)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert changer.stdout is not None
        acknowledged.add(changer.stdout.readline().strip())
        deadline = time.monotonic() + 0.017 * kill
        while time.monotonic() < deadline:
            acknowledged.add(changer.stdout.readline().strip())
        os.kill(changer.pid, signal.SIGKILL)
        changer.stdout.close()
        changer.wait()

    async def check(asker: Asker) -> None:
        assert acknowledged <= set(asker.node.catalog.topics)
        for topic in asker.node.catalog.topics.values():
            for index in range(topic.partitions):
                assert end_offset(asker, topic.name, index) == 0
        await asker.create("after")

    with_broker(tmp_path, check)
    assert not [name for name in folders(tmp_path) if name.endswith("-stray")]
