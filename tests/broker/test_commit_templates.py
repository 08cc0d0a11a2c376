"""A commit that fits a template is stored and answered exactly as one that is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from headrace.broker import commit_templates
from headrace.broker.partition import Partition
from headrace.protocol.api.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import AppendInfo
from headrace.testing import BrokerThread

from .wire import Wire

NEWEST = 9


@pytest.fixture
def wire(broker: BrokerThread) -> Iterator[Wire]:
    # The kit's fault hooks see every request, so templates are not used with them.
    broker.call(lambda: setattr(broker.broker.server.router, "_hooks", None))
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("t", 3)
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        wire.call(request, FindCoordinatorResponse, 4)
        yield wire


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each commit that found templates on its connection fitted one."""
    answers: list[bool] = []
    take = commit_templates.CommitTemplates.take

    def noted(*args: object) -> bool:
        answers.append(take(*args))  # type: ignore[arg-type]
        return answers[-1]

    monkeypatch.setattr(commit_templates.CommitTemplates, "take", noted)
    return answers


@pytest.fixture
def appended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each batch had that was appended."""
    counts: list[int] = []
    append = Partition.append

    def noted(self: Partition, *args: Any, **options: Any) -> AppendInfo:
        info = append(self, *args, **options)
        counts.append(info.last_offset - info.base_offset + 1)
        return info

    monkeypatch.setattr(Partition, "append", noted)
    return counts


def commit_request(
    offset: int, *, partitions: int = 3, metadata: str = "m", generation: int = -1, topic: str = "t"
) -> OffsetCommitRequest:
    parts = [
        OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=offset + index,
            committed_leader_epoch=index,
            committed_metadata=metadata,
        )
        for index in range(partitions)
    ]
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=parts)],
    )


def commit(wire: Wire, request: OffsetCommitRequest, version: int = NEWEST) -> list[int]:
    (topic,) = wire.call(request, OffsetCommitResponse, version).topics
    assert [p.partition_index for p in topic.partitions] == list(range(len(topic.partitions)))
    return [partition.error_code for partition in topic.partitions]


def committed(wire: Wire) -> dict[int, tuple[int, int, str | None]]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    (group,) = wire.call(request, OffsetFetchResponse, 8).groups
    return {
        p.partition_index: (p.committed_offset, p.committed_leader_epoch, p.metadata)
        for topic in group.topics
        for p in topic.partitions
    }


@pytest.mark.parametrize("version", range(2, 11))
def test_answers_and_offsets_are_the_same_in_every_version(
    wire: Wire, taken: list[bool], version: int
) -> None:
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    uuid = wire.call(metadata, MetadataResponse, 12).topics[0].topic_id
    for offset in (10, 20, 30):
        request = commit_request(offset)
        request.topics[0].topic_id = uuid
        assert commit(wire, request, version) == [0, 0, 0]
        epochs = (0, 1, 2) if version >= 6 else (-1, -1, -1)
        assert committed(wire) == {n: (offset + n, epochs[n], "m") for n in range(3)}
    assert taken == (
        [True, True] if version >= commit_templates.CommitTemplates.VERSION_MIN else []
    )


def test_commits_on_their_way_are_answered_in_their_order(wire: Wire, taken: list[bool]) -> None:
    commit(wire, commit_request(0))
    sent = [wire.send(commit_request(offset), NEWEST) for offset in range(1, 20)]
    assert [wire.receive(OffsetCommitResponse, NEWEST)[0] for _ in sent] == sent
    assert committed(wire)[0] == (19, 0, "m")
    assert taken == [True] * 19


def in_one_go(wire: Wire, requests: list[OffsetCommitRequest]) -> list[list[int]]:
    """The codes of commits that the broker receives in one turn of its loop."""
    wire.socket.sendall(b"".join(wire.frame(request, NEWEST) for request in requests))
    answers = [wire.receive(OffsetCommitResponse, NEWEST)[1] for _ in requests]
    return [[p.error_code for p in answer.topics[0].partitions] for answer in answers]


def test_commits_of_one_turn_share_a_batch(wire: Wire, appended: list[int]) -> None:
    commit(wire, commit_request(0))
    appended.clear()
    # 21 commits of three records fill a batch to 63 of 64.
    assert in_one_go(wire, [commit_request(n) for n in range(1, 31)]) == [[0, 0, 0]] * 30
    assert appended == [63, 27]
    assert committed(wire) == {n: (30 + n, n, "m") for n in range(3)}


def test_a_batch_is_no_larger_than_the_topic_takes(
    broker: BrokerThread, wire: Wire, appended: list[int], taken: list[bool]
) -> None:
    def limit(size: int) -> None:
        for shard in broker.broker.node.groups.shards():
            log = shard.partition.log
            log.config = replace(log.config, max_message_bytes=size)

    commit(wire, commit_request(0))
    appended.clear()
    broker.call(lambda: limit(350))
    assert in_one_go(wire, [commit_request(n) for n in range(1, 7)]) == [[0, 0, 0]] * 6
    assert appended == [6, 6, 6]
    appended.clear()
    broker.call(lambda: limit(150))
    assert in_one_go(wire, [commit_request(7)]) == [[0, 0, 0]]
    assert appended == [1, 1, 1]
    assert taken == [True] * 6 + [False]
    assert committed(wire) == {n: (7 + n, n, "m") for n in range(3)}


def test_a_decoded_commit_keeps_its_place_among_those_of_templates(
    wire: Wire, taken: list[bool]
) -> None:
    commit(wire, commit_request(0))
    taken.clear()
    order = [(1, "m"), (2, "m"), (3, "n"), (4, "m"), (5, "o")]
    codes = in_one_go(wire, [commit_request(n, metadata=metadata) for n, metadata in order])
    assert codes == [[0, 0, 0]] * 5
    assert committed(wire) == {n: (5 + n, n, "o") for n in range(3)}
    # Another metadata of the same size has taken the template's place.
    assert taken == [True, True, False, False, False]


def test_commits_that_the_disk_refuses_are_refused_and_forgotten(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(wire, commit_request(0))

    def refuse(*_: object, **__: object) -> AppendInfo:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk refused")

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "append", refuse)
        codes = in_one_go(wire, [commit_request(1), commit_request(2)])
    assert codes[0] == codes[1] != [0, 0, 0]
    assert committed(wire)[0] == (0, 0, "m")
    assert commit(wire, commit_request(3)) == [0, 0, 0]
    assert committed(wire)[0] == (3, 0, "m")


def test_another_metadata_or_another_layout_is_decoded(wire: Wire, taken: list[bool]) -> None:
    commit(wire, commit_request(1, metadata="a"))
    commit(wire, commit_request(2, metadata="b"))
    commit(wire, commit_request(3, metadata="b", partitions=1))
    assert committed(wire) == {0: (3, 0, "b"), 1: (3, 1, "b"), 2: (4, 2, "b")}
    assert taken == [False, False]


def test_a_generation_that_is_refused_is_refused_by_template_too(wire: Wire) -> None:
    for _ in range(3):
        codes = commit(wire, commit_request(5, generation=4))
        assert codes == [ErrorCode.GROUP_ID_NOT_FOUND] * 3
    assert committed(wire) == {}


def test_a_topic_that_is_deleted_ends_the_template(wire: Wire, taken: list[bool]) -> None:
    for offset in (1, 2):
        assert commit(wire, commit_request(offset)) == [0, 0, 0]
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
    wire.call(request, DeleteTopicsResponse, 6)
    assert commit(wire, commit_request(3)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
    assert committed(wire) == {}
    wire.create_topic("t", 3)
    assert commit(wire, commit_request(4)) == [0, 0, 0]
    assert committed(wire)[0] == (4, 0, "m")
    assert taken == [True, False, False]


def test_metadata_that_is_too_large_never_becomes_a_template(wire: Wire, taken: list[bool]) -> None:
    for _ in range(2):
        codes = commit(wire, commit_request(1, metadata="x" * 5000))
        assert codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE] * 3
    assert taken == [False]


def test_commits_that_never_look_alike_stop_making_templates(
    broker: BrokerThread, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_templates, "TEMPLATES_MAX", 3)
    for number in range(8):
        assert commit(wire, commit_request(number, metadata="x" * number)) == [0, 0, 0]
    learnt = broker.call(
        lambda: [
            path.learnt
            for connection in broker.broker.server._connections
            for path in connection.fast_paths.values()
            if isinstance(path, commit_templates.CommitTemplates)
        ]
    )
    assert learnt == [3]


def test_commits_from_a_template_survive_a_restart(broker: BrokerThread, wire: Wire) -> None:
    for offset in (1, 2, 3):
        assert commit(wire, commit_request(offset)) == [0, 0, 0]
    before = committed(wire)
    broker.restart()
    with Wire(broker.bootstrap) as again:
        assert committed(again) == before == {n: (3 + n, n, "m") for n in range(3)}
