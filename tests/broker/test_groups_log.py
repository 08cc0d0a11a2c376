"""Groups and their log: what is stored, when it is answered, what a restart finds."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker
from tests.coordinator.clients import GROUP, NEWEST, GroupClient, turns
from tests.storage.faulty_files import FaultyFileSystem

from headrace.broker.groups_shard import GroupShard
from headrace.broker.partition import Partition
from headrace.broker.partitions import Partitions
from headrace.coordinator.loading import Loader
from headrace.coordinator.partitioning import partition_for
from headrace.coordinator.records import OffsetChange, decode, encode
from headrace.metadata.topic_names import CONSUMER_OFFSETS
from headrace.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from headrace.protocol.batch import iter_headers, iter_records
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import Syncer

SETTINGS: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
}


class HeldSyncs:
    """Syncs that do not end until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._gate = threading.Event()
        run = Syncer._run

        def held(*args: object) -> None:
            assert self._gate.wait(10)
            run(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(Syncer, "_run", held)

    def let_go(self) -> None:
        self._gate.set()


def shard_of(asker: Asker, group: str = GROUP) -> GroupShard:
    return asker.node.groups.shard_of(group)


def stored_batches(shard: GroupShard) -> list[list[tuple[bytes | None, bytes | None]]]:
    """Keys and values of every batch of a shard's log."""
    log = shard.partition.log
    piece = log.read(0, 1 << 30, limit=log.end_offset)
    if piece is None:
        return []
    data = bytes(piece.read())
    return [
        [(record.key, record.value) for record in iter_records(data, position)]
        for position, _ in iter_headers(data)
    ]


def test_groups_and_offsets_survive_a_restart(tmp_path: Path) -> None:
    known: dict[str, int] = {}

    async def before(asker: Asker) -> None:
        await asker.create("t", 2)
        client = GroupClient(asker)
        member_id, generation = await client.settle()
        known[member_id] = generation
        await client.commit({("t", 0): 5, ("t", 1): 6}, member_id, generation, metadata="m")
        await client.commit({("t", 1): 7}, member_id, generation)

    async def after(asker: Asker) -> None:
        client = GroupClient(asker)
        ((member_id, generation),) = known.items()
        assert await client.fetch() == {("t", 0): (5, "m"), ("t", 1): (7, "")}
        assert await client.heartbeat(member_id, generation) is ErrorCode.NONE
        assert (await client.sync(member_id, generation)).assignment == b"share"
        assert await client.leave(member_id) is ErrorCode.NONE

    async def at_last(asker: Asker) -> None:
        listed = await asker.ask(ListGroupsRequest(), ListGroupsResponse)
        assert [(g.group_id, g.group_state) for g in listed.groups] == [(GROUP, "Empty")]

    for scenario in (before, after, at_last):
        with_broker(tmp_path, scenario, SETTINGS)


def test_commits_that_arrive_together_share_a_batch(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", 10)
        client = GroupClient(asker)
        await client.find()
        answers = await asyncio.gather(*(client.commit({("t", n): n}) for n in range(10)))
        assert all(list(answer.values()) == [ErrorCode.NONE] for answer in answers)
        (batch,) = stored_batches(shard_of(asker))
        partitions = []
        for key, value in batch:
            assert key is not None
            change = decode(key, value)
            assert isinstance(change, OffsetChange)
            partitions.append(change.partition)
        assert partitions == list(range(10)), "in the order of their arrival"

    with_broker(tmp_path, scenario, SETTINGS)


def test_a_fetch_sees_the_commits_before_it(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        client = GroupClient(asker)
        await client.find()
        commits = [asyncio.ensure_future(client.commit({("t", 0): n})) for n in range(3)]
        fetch = asyncio.ensure_future(client.fetch(("t", 0)))
        assert await fetch == {("t", 0): (2, "")}
        await asyncio.gather(*commits)

    with_broker(tmp_path, scenario, SETTINGS)


def test_nothing_is_answered_before_it_is_durable_but_heartbeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        client = GroupClient(asker, NEWEST)
        member_id, generation = await client.settle()
        syncs = HeldSyncs(monkeypatch)
        commit = asyncio.ensure_future(client.commit({("t", 0): 3}, member_id, generation))
        await turns()
        fetch = asyncio.ensure_future(client.fetch(("t", 0)))
        share = asyncio.ensure_future(client.sync(member_id, generation))
        await turns()
        assert await client.heartbeat(member_id, generation) is ErrorCode.NONE
        await asker.ask(ListGroupsRequest(), ListGroupsResponse)
        assert not commit.done()
        assert not fetch.done(), "a crash could still take back what it would tell"
        assert not share.done()
        syncs.let_go()
        assert await commit == {("t", 0): ErrorCode.NONE}
        assert await fetch == {("t", 0): (3, "")}
        assert (await share).assignment == b"share"

    with_broker(tmp_path, scenario, SETTINGS)


def test_a_write_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "No space left on device")

    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        client = GroupClient(asker)
        member_id, generation = await client.settle()
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append", full)
            refused = {("t", 0): ErrorCode.NOT_COORDINATOR}
            assert await client.commit({("t", 0): 3}, member_id, generation) == refused
            joined = await client.join(member_id)
            sync = await client.sync(member_id, joined.generation_id, {member_id: b"new"})
            assert sync.error_code == ErrorCode.NOT_COORDINATOR
        assert await client.fetch(("t", 0)) == {("t", 0): (-1, "")}
        joined = await client.join(member_id)
        assert joined.generation_id == generation + 1
        sync = await client.sync(member_id, joined.generation_id, {member_id: b"new"})
        assert sync.assignment == b"new", "it goes on when there is room again"

    with_broker(tmp_path, scenario, SETTINGS)


def test_a_sync_that_fails_ends_the_service_of_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        client = GroupClient(asker)
        member_id, generation = await client.settle()
        newcomer = (await client.join()).member_id
        waiting = asyncio.ensure_future(client.join(newcomer))
        await turns()
        monkeypatch.setattr(Syncer, "request", lambda *args: None)
        commit = asyncio.ensure_future(client.commit({("t", 0): 3}, member_id, generation))
        await turns()
        shard_of(asker).partition._synced(OSError(5, "Input/output error"))
        assert await commit == {("t", 0): ErrorCode.NOT_COORDINATOR}
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
        assert await client.heartbeat(member_id, generation) is ErrorCode.NOT_COORDINATOR
        assert (await client.join()).error_code == ErrorCode.NOT_COORDINATOR

    with_broker(tmp_path, scenario, SETTINGS)


def test_members_who_wait_for_their_leader_are_told_when_the_disk_fails(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        client = GroupClient(asker)
        await client.find()
        first, second = [(await client.join()).member_id for _ in range(2)]
        joins = await asyncio.gather(client.join(first), client.join(second))
        (follower,) = {first, second} - {joins[0].leader}
        share = asyncio.ensure_future(client.sync(follower, joins[0].generation_id))
        await turns()
        assert not share.done(), "the leader has not brought the shares"
        shard = shard_of(asker)
        asker.node.fail_log_dir(shard.partition.log.dir, OSError(5, "Input/output error"))
        await turns()
        assert share.done(), "though nothing is being written"
        assert (await share).error_code == ErrorCode.NOT_COORDINATOR
        assert not shard.is_loaded

    with_broker(tmp_path, scenario, SETTINGS)


def test_a_write_that_finds_the_disk_broken_is_answered_like_all_who_wait(tmp_path: Path) -> None:
    disk = FaultyFileSystem()

    async def scenario(asker: Asker) -> None:
        client = GroupClient(asker)
        await client.find()
        first, second = [(await client.join()).member_id for _ in range(2)]
        joins = await asyncio.gather(client.join(first), client.join(second))
        leader, generation = joins[0].leader, joins[0].generation_id
        (follower,) = {first, second} - {leader}
        newcomer = (await client.join()).member_id
        waiting = asyncio.ensure_future(client.sync(follower, generation))
        await turns()
        disk.fail("append", path_has=CONSUMER_OFFSETS)
        share = await client.sync(leader, generation, {leader: b"share"})
        assert share.error_code == ErrorCode.NOT_COORDINATOR
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
        assert (await client.join(newcomer)).error_code == ErrorCode.NOT_COORDINATOR

    with_broker(tmp_path, scenario, SETTINGS, files=disk)


def test_a_commit_that_the_disk_never_answers_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        client = GroupClient(asker)
        await client.find()
        monkeypatch.setattr(Syncer, "request", lambda *args: None)
        errors = await client.commit({("t", 0): 3})
        assert errors == {("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}
        answer = await asker.ask(
            OffsetFetchRequest(group_id=GROUP, topics=None), OffsetFetchResponse, 7
        )
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, "nor may it be told"

    with_broker(tmp_path, scenario, SETTINGS | {"offsets.commit.timeout.ms": 50})


def test_what_is_too_large_for_one_batch_goes_into_several(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", 40)
        client = GroupClient(asker)
        await client.find()
        offsets = {("t", n): n for n in range(40)}
        errors = await client.commit(offsets, metadata="m" * 50)
        assert errors == dict.fromkeys(offsets, ErrorCode.NONE)
        batches = stored_batches(shard_of(asker))
        assert len(batches) > 1
        assert sum(map(len, batches)) == 40
        assert len(await client.fetch()) == 40

    with_broker(tmp_path, scenario, SETTINGS | {"message.max.bytes": 2_000})


def test_a_commit_that_no_batch_can_hold_is_refused(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", 2)
        client = GroupClient(asker)
        await client.find()
        errors = await client.commit({("t", 0): 1}, metadata="m" * 3_000)
        assert errors == {("t", 0): ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert await client.commit({("t", 1): 1}) == {("t", 1): ErrorCode.NONE}

    with_broker(tmp_path, scenario, SETTINGS | {"message.max.bytes": 2_000})


@pytest.mark.parametrize("codec", range(5))
def test_the_log_may_be_compressed(tmp_path: Path, codec: int) -> None:
    async def before(asker: Asker) -> None:
        await asker.create("t")
        client = GroupClient(asker)
        await client.find()
        await client.commit({("t", 0): 9}, metadata="x" * 500)

    async def after(asker: Asker) -> None:
        assert await GroupClient(asker).fetch() == {("t", 0): (9, "x" * 500)}

    settings = SETTINGS | {"offsets.topic.compression.codec": codec}
    with_broker(tmp_path, before, settings)
    with_broker(tmp_path, after, SETTINGS)


def test_while_groups_are_loaded_clients_are_told_to_come_again(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t")
        client = GroupClient(asker)
        member_id, generation = await client.settle()
        shard_of(asker).is_loaded = False
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await client.join()).error_code == loading
        assert await client.commit({("t", 0): 1}) == {("t", 0): loading}
        assert await client.heartbeat(member_id, generation) is ErrorCode.NONE
        listed = await asker.ask(ListGroupsRequest(), ListGroupsResponse)
        assert listed.error_code == loading

    with_broker(tmp_path, scenario, SETTINGS)


def test_a_log_that_cannot_be_read_loses_its_own_groups_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two partitions: some of these groups live beside GROUP, the others do not.
    others = [f"g{n}" for n in range(20)]
    spared = [name for name in others if partition_for(name, 2) != partition_for(GROUP, 2)]
    key, _ = encode(OffsetChange(GROUP, "t", 0, None))
    feed = Loader.feed

    def corrupt(loader: Loader, batches: bytes) -> int | None:
        if key in batches:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the disk forgot a bit")
        return feed(loader, batches)

    async def before(asker: Asker) -> None:
        await asker.create("t")
        for name in (GROUP, *others):
            client = GroupClient(asker, group=name)
            await client.find()
            await client.commit({("t", 0): 1})

    async def after(asker: Asker) -> None:
        answer = await GroupClient(asker).join()
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        listed = await asker.ask(ListGroupsRequest(), ListGroupsResponse)
        assert sorted(group.group_id for group in listed.groups) == sorted(spared)

    assert spared
    with_broker(tmp_path, before, SETTINGS)
    monkeypatch.setattr(Loader, "feed", corrupt)
    with_broker(tmp_path, after, SETTINGS)


def test_groups_on_a_disk_that_is_offline_have_no_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = partition_for(GROUP, 2)
    get = Partitions.get

    def without(partitions: Partitions, topic: str, index: int) -> Partition | None:
        offline = (topic, index) == (CONSUMER_OFFSETS, missing)
        return None if offline else get(partitions, topic, index)

    async def scenario(asker: Asker) -> None:
        client = GroupClient(asker)
        await client.find()
        assert (await client.join()).error_code == ErrorCode.NOT_COORDINATOR
        listed = await asker.ask(ListGroupsRequest(), ListGroupsResponse)
        assert listed.error_code == ErrorCode.NONE

    monkeypatch.setattr(Partitions, "get", without)
    for _ in range(2):
        with_broker(tmp_path, scenario, SETTINGS)


def test_who_waits_is_answered_when_the_broker_stops(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        client = GroupClient(asker)
        await client.find()
        member_id = (await client.join()).member_id
        waiting = asyncio.ensure_future(client.join(member_id))
        await turns()
        assert not waiting.done()
        await asker.node.groups.close()
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
        assert (await client.join()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    with_broker(tmp_path, scenario, SETTINGS | {"group.initial.rebalance.delay.ms": 60_000})
