"""Fetch sessions remember what a client fetches and answer only what is new (KIP-227)."""

from __future__ import annotations

from headrace.broker.fetch_sessions import UNUSED_MS_MIN, FetchScope, FetchSessions
from headrace.protocol.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from headrace.protocol.errors import ErrorCode

V = 12


def request(session_id: int, epoch: int, *partitions: tuple[int, int]) -> FetchRequest:
    wanted = [
        FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=9) for p, o in partitions
    ]
    topics = [FetchTopic(topic="t", partitions=wanted)] if wanted else []
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics)


def opened(sessions: FetchSessions, asked: FetchRequest) -> FetchScope:
    scope = sessions.open(asked, V)
    assert isinstance(scope, FetchScope)
    return scope


def empty(index: int, high_watermark: int = 5) -> PartitionData:
    return PartitionData(
        partition_index=index, high_watermark=high_watermark, log_start_offset=0, records=b""
    )


def test_a_full_fetch_opens_a_session_and_answers_every_partition() -> None:
    sessions = FetchSessions(10, lambda: 0)
    scope = opened(sessions, request(0, 0, (0, 5), (1, 5)))
    response = scope.respond([empty(0), empty(1)])
    assert response.session_id > 0
    assert [p.partition_index for p in response.responses[0].partitions] == [0, 1]


def test_an_incremental_fetch_answers_only_what_changed() -> None:
    sessions = FetchSessions(10, lambda: 0)
    session_id = (
        opened(sessions, request(0, 0, (0, 5), (1, 5))).respond([empty(0), empty(1)]).session_id
    )
    scope = opened(sessions, request(session_id, 1))
    assert len(scope.wanted) == 2
    response = scope.respond([empty(0), empty(1, high_watermark=6)])
    assert [p.partition_index for p in response.responses[0].partitions] == [1]
    assert opened(sessions, request(session_id, 2)).respond([empty(0), empty(1, 6)]).responses == []


def test_changed_added_and_forgotten_partitions_update_the_session() -> None:
    sessions = FetchSessions(10, lambda: 0)
    session_id = (
        opened(sessions, request(0, 0, (0, 5), (1, 5))).respond([empty(0), empty(1)]).session_id
    )
    asked = request(session_id, 1, (1, 7), (2, 0))
    asked.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[0])]
    scope = opened(sessions, asked)
    assert [(w.key[2], w.offset) for w in scope.wanted] == [(1, 7), (2, 0)]


def test_unknown_sessions_and_wrong_epochs_are_refused() -> None:
    sessions = FetchSessions(10, lambda: 0)
    session_id = opened(sessions, request(0, 0, (0, 5))).respond([empty(0)]).session_id
    assert sessions.open(request(session_id + 1, 1), V) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.open(request(session_id, 7), V) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert isinstance(sessions.open(request(session_id, 1), V), FetchScope)


def test_the_final_epoch_closes_the_session() -> None:
    sessions = FetchSessions(10, lambda: 0)
    session_id = opened(sessions, request(0, 0, (0, 5))).respond([empty(0)]).session_id
    assert opened(sessions, request(session_id, -1, (0, 5))).respond([empty(0)]).session_id == 0
    assert len(sessions) == 0


def test_no_session_in_use_gives_way_to_a_new_one() -> None:
    sessions = FetchSessions(1, lambda: now_ms)
    now_ms = 0
    first = opened(sessions, request(0, 0, (0, 5))).respond([empty(0)]).session_id
    assert opened(sessions, request(0, 0, (0, 5))).respond([empty(0)]).session_id == 0
    assert isinstance(sessions.open(request(first, 1), V), FetchScope)


def test_the_least_recently_used_session_gives_way_when_it_is_old() -> None:
    now_ms = 0
    sessions = FetchSessions(2, lambda: now_ms)
    ids = [opened(sessions, request(0, 0, (0, 5))).respond([empty(0)]).session_id for _ in range(2)]
    opened(sessions, request(ids[0], 1)).respond([empty(0)])
    now_ms = UNUSED_MS_MIN
    assert opened(sessions, request(0, 0, (0, 5))).respond([empty(0)]).session_id
    assert sessions.open(request(ids[1], 1), V) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(sessions.open(request(ids[0], 2), V), FetchScope)


def test_a_partition_that_gave_data_goes_to_the_end_of_the_line() -> None:
    sessions = FetchSessions(10, lambda: 0)
    scope = opened(sessions, request(0, 0, (0, 5), (1, 5)))
    session_id = scope.respond([empty(0), empty(1)]).session_id
    full = empty(0)
    full.records = b"records"
    opened(sessions, request(session_id, 1)).respond([full, empty(1)])
    assert [w.key[2] for w in opened(sessions, request(session_id, 2)).wanted] == [1, 0]


def test_old_versions_and_sessionless_fetches_open_nothing() -> None:
    sessions = FetchSessions(10, lambda: 0)
    assert isinstance(sessions.open(request(0, 0, (0, 5)), 4), FetchScope)
    assert isinstance(sessions.open(request(0, -1, (0, 5)), V), FetchScope)
    assert len(sessions) == 0
