"""Data folders whose disk is not mounted: partitions on them are offline, never made anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker
from tests.broker.transactional import Transactional, committed_offset
from tests.coordinator.clients import JAVA_2, NEWEST, GroupClient, Versions

from headrace.protocol.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headrace.protocol.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from headrace.protocol.api.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.protocol.batch import build_batch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.records import Record
from headrace.storage import LogDirError

UNMOUNTED = 1


class Disks:
    """Two data folders and the metadata apart from them; the second one is taken away."""

    def __init__(self, root: Path) -> None:
        self.one, self.other, self.metadata = root / "one", root / "other", root / "metadata"
        self.away = root / "away"

    def settings(self, **more: object) -> dict[str, object]:
        return {
            "log.dirs": f"{self.one},{self.other}",
            "metadata.log.dir": str(self.metadata),
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def unmount(self) -> None:
        self.other.rename(self.away)
        self.other.mkdir()

    def mount(self) -> None:
        for path in sorted(self.other.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        self.other.rmdir()
        self.away.rename(self.other)


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    """After a life in which partition 0 went to one disk and partition 1 to the other."""
    made = Disks(tmp_path)

    async def scenario(asker: Asker) -> None:
        await asker.create("t", 2)
        for index in range(2):
            await asker.produce("t", index, b"v%d" % index)

    with_broker(tmp_path, scenario, made.settings())
    assert (made.other / f"t-{UNMOUNTED}").is_dir()
    return made


async def produce(asker: Asker, index: int) -> int:
    batch = build_batch([Record(0, 0, b"k", b"v", ())])
    data = PartitionProduceData(index=index, records=memoryview(batch))
    topic = TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
    response = await asker.ask(request, ProduceResponse, 9)
    return response.responses[0].partition_responses[0].error_code


async def fetch(asker: Asker, index: int) -> int:
    partition = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000)
    topic = FetchTopic(topic="t", partitions=[partition])
    request = FetchRequest(max_bytes=1000, session_epoch=-1, topics=[topic])
    response = await asker.ask(request, FetchResponse, 12)
    return response.responses[0].partitions[0].error_code


async def list_offsets(asker: Asker, index: int) -> int:
    partition = ListOffsetsPartition(partition_index=index, timestamp=-1)
    topic = ListOffsetsTopic(name="t", partitions=[partition])
    request = ListOffsetsRequest(replica_id=-1, topics=[topic])
    response = await asker.ask(request, ListOffsetsResponse, 7)
    return response.topics[0].partitions[0].error_code


async def delete_records(asker: Asker, index: int) -> int:
    partition = DeleteRecordsPartition(partition_index=index, offset=0)
    topic = DeleteRecordsTopic(name="t", partitions=[partition])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=5000)
    response = await asker.ask(request, DeleteRecordsResponse)
    return response.topics[0].partitions[0].error_code


def end_offset(asker: Asker, index: int) -> int | None:
    served = asker.node.partitions.get("t", index)
    return None if served is None else served.log.end_offset


def test_its_partitions_are_storage_errors_and_the_others_are_served(
    disks: Disks, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(asker: Asker) -> None:
        for ask in (fetch, list_offsets, produce, delete_records):
            assert await ask(asker, UNMOUNTED) == ErrorCode.KAFKA_STORAGE_ERROR
            assert await ask(asker, 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await list_offsets(asker, 0) == ErrorCode.NONE
        await asker.produce("t", 0, b"more")
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        described = (await asker.ask(request, MetadataResponse)).topics[0]
        leaders = {row.partition_index: row.leader_id for row in described.partitions}
        assert leaders == {0: 1, UNMOUNTED: -1}

    disks.unmount()
    with_broker(disks.one, scenario, disks.settings())
    assert "mount its disk" in caplog.text
    assert f"t-{UNMOUNTED} is offline" in caplog.text
    assert not list(disks.one.glob(f"t-{UNMOUNTED}*"))
    assert not list(disks.other.glob("t-*"))


@pytest.mark.parametrize("versions", [JAVA_2, NEWEST], ids=["by-name", "by-id"])
def test_offsets_of_its_partitions_are_committed(disks: Disks, versions: Versions) -> None:
    async def scenario(asker: Asker) -> None:
        client = GroupClient(asker, versions)
        await client.find()
        errors = await client.commit({("t", 0): 1, ("t", UNMOUNTED): 1, ("t", 7): 1})
        assert errors == {
            ("t", 0): ErrorCode.NONE,
            ("t", UNMOUNTED): ErrorCode.NONE,
            ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert await client.fetch(("t", UNMOUNTED)) == {("t", UNMOUNTED): (1, "")}

    disks.unmount()
    with_broker(disks.one, scenario, disks.settings())


def test_offsets_of_its_partitions_are_committed_in_transactions(disks: Disks) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.node.groups.ensure_topic()
        producer = await Transactional(asker).start()
        assert await producer.send_offset("g", "t", UNMOUNTED, 1) is ErrorCode.NONE
        unknown = await producer.send_offset("g", "t", 7, 1)
        assert unknown is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await producer.end(True) is ErrorCode.NONE
        # The next transaction waits until the offsets of this one count.
        assert await producer.send_offset("g", "t", 0, 1) is ErrorCode.NONE
        assert (await committed_offset(asker, "g", "t", UNMOUNTED)).committed_offset == 1

    disks.unmount()
    with_broker(disks.one, scenario, disks.settings())


def test_it_is_as_it_was_once_it_is_mounted_again(disks: Disks) -> None:
    async def nothing(asker: Asker) -> None:
        assert end_offset(asker, UNMOUNTED) is None

    async def scenario(asker: Asker) -> None:
        assert end_offset(asker, 0) == end_offset(asker, 1) == 1

    disks.unmount()
    with_broker(disks.one, nothing, disks.settings())
    disks.mount()
    with_broker(disks.one, scenario, disks.settings())


def test_a_topic_on_it_can_be_deleted_and_made_again(disks: Disks) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.node.topics.delete("t")
        assert await fetch(asker, UNMOUNTED) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await asker.create("t", 2)
        await asker.produce("t", UNMOUNTED, b"new")

    async def after(asker: Asker) -> None:
        assert end_offset(asker, UNMOUNTED) == 1

    disks.unmount()
    with_broker(disks.one, scenario, disks.settings())
    disks.mount()
    with_broker(disks.one, after, disks.settings())
    assert not (disks.other / f"t-{UNMOUNTED}").exists()


def test_its_partitions_begin_again_when_it_is_given_up(disks: Disks) -> None:
    rows = (disks.other / "meta.properties").read_text().splitlines()
    (lost_id,) = [row.partition("=")[2] for row in rows if row.startswith("directory.id=")]

    async def scenario(asker: Asker) -> None:
        assert (end_offset(asker, 0), end_offset(asker, UNMOUNTED)) == (1, 0)
        await asker.produce("t", UNMOUNTED, b"new")

    async def after(asker: Asker) -> None:
        assert end_offset(asker, UNMOUNTED) == 1

    disks.unmount()
    with_broker(disks.one, scenario, disks.settings(headrace_log_dirs_lost=lost_id))
    # The id is forgotten with its disk, so the setting may stay or go.
    with_broker(disks.one, after, disks.settings(headrace_log_dirs_lost=lost_id))
    with_broker(disks.one, after, disks.settings())


def test_a_start_without_the_metadata_leaves_the_data_alone(disks: Disks) -> None:
    async def nothing(asker: Asker) -> None:
        pytest.fail("it started")

    disks.metadata.rename(disks.away)
    disks.metadata.mkdir()
    with pytest.raises(LogDirError, match="If the metadata is lost"):
        with_broker(disks.one, nothing, disks.settings())
    assert (disks.one / "t-0").is_dir()
    assert (disks.other / "t-1").is_dir()
