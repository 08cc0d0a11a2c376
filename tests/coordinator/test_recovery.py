"""What a coordinator knows after a restart, and how fast it reads it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.coordinator.harness import GROUP, Harness

from headrace.coordinator.coordinator import GroupCoordinator
from headrace.coordinator.loading import Loader
from headrace.coordinator.records import (
    Change,
    Commit,
    Generation,
    GroupChange,
    OffsetChange,
    encode,
)
from headrace.coordinator.settings import GroupSettings
from headrace.coordinator.states import State
from headrace.protocol.api.join_group import JoinGroupResponse
from headrace.protocol.batch import InvalidBatch, build_batch, seal
from headrace.protocol.control import ControlType, EndTransactionMarker, build_marker
from headrace.protocol.errors import ErrorCode
from headrace.protocol.records import Record


def batch(
    changes: Iterable[Change], base_offset: int = 0, producer_id: int = -1, codec: int = 0
) -> bytearray:
    """Changes as one batch of the log."""
    records = [
        Record(base_offset + number, 1_700_000_000_000, *encode(change))
        for number, change in enumerate(changes)
    ]
    return build_batch(
        records,
        base_offset=base_offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=producer_id >= 0,
    )


def coordinator() -> GroupCoordinator:
    return GroupCoordinator(GroupSettings(), lambda: "id")


def loaded(*batches: bytearray) -> GroupCoordinator:
    loader, found = Loader(), coordinator()
    for data in batches:
        loader.feed(bytes(data))
    loader.replay_into(found)
    return found


# A crash in each state.


def test_a_stable_group_goes_on_as_if_nothing_had_happened() -> None:
    harness = Harness()
    leader, follower = harness.stable(session_ms=10_000)
    harness.commit({("t", 0): 5}, leader, 1)
    harness.restart()
    assert harness.state() is State.STABLE
    assert harness.heartbeat(follower, 1) is ErrorCode.NONE
    assert harness.sync(follower, 1).synced.assignment == follower.encode()
    assert harness.commit({("t", 0): 6}, leader, 1) == [ErrorCode.NONE]
    harness.advance(9_999)
    assert harness.state() is State.STABLE, "sessions start anew"
    harness.advance(1)
    assert harness.state() is State.EMPTY, "all of them ended"


def test_a_group_that_was_joining_is_the_one_before() -> None:
    harness = Harness()
    leader, follower = harness.stable()
    third, _ = harness.new_member()
    harness.join(leader)
    harness.restart()
    assert harness.state() is State.STABLE
    assert harness.heartbeat(leader, 1) is ErrorCode.NONE
    assert harness.heartbeat(follower, 1) is ErrorCode.NONE
    assert harness.join(third).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_generation_whose_shares_were_not_stored_never_was() -> None:
    harness = Harness()
    leader, follower = harness.stable()
    harness.join(leader)
    assert harness.join(follower).joined.generation_id == 2
    harness.restart()
    assert harness.sync(leader, 2).error is ErrorCode.ILLEGAL_GENERATION
    assert harness.heartbeat(follower, 2) is ErrorCode.ILLEGAL_GENERATION
    harness.join(leader)
    assert harness.join(follower).joined.generation_id == 2
    harness.share_out([leader, follower])


def test_an_empty_group_remembers_its_generation() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    harness.leave((member, None))
    harness.restart()
    assert harness.state() is State.EMPTY
    _, join = harness.new_member()
    harness.advance(0)
    assert join.joined.generation_id == 3


def test_static_members_are_known_after_a_restart() -> None:
    harness = Harness()
    join = harness.join(instance="a")
    harness.advance(0)
    harness.share_out([join.joined.member_id])
    harness.restart()
    again = harness.join(instance="a").joined
    assert (again.error_code, again.generation_id) == (ErrorCode.NONE, 1)
    assert harness.sync(again.member_id, 1).synced.assignment == join.joined.member_id.encode()


def test_who_waits_is_sent_away_when_the_coordinator_stops() -> None:
    harness = Harness()
    leader, follower = harness.stable()
    join = harness.join(leader)
    harness.carry_out(harness.coordinator.unload(ErrorCode.NOT_COORDINATOR))
    assert join.answer(JoinGroupResponse).error_code == ErrorCode.NOT_COORDINATOR
    assert not harness.coordinator.groups
    assert harness.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_waits_for_a_share_is_sent_away_too() -> None:
    harness = Harness()
    (_, _), (follower, _) = harness.new_member(), harness.new_member()
    harness.advance(0)
    sync = harness.sync(follower, 1)
    harness.carry_out(harness.coordinator.unload(ErrorCode.NOT_COORDINATOR))
    assert sync.error is ErrorCode.NOT_COORDINATOR


# Reading the log.

GROUPS = ("a", "b")
commits = st.builds(
    OffsetChange,
    st.sampled_from(GROUPS),
    st.sampled_from(("t", "u" * 70)),
    st.integers(0, 2),
    st.none()
    | st.builds(
        Commit, st.integers(0, 9), st.just(0), st.text(max_size=90), st.just(1), st.just(-1)
    ),
)
generations = st.builds(
    GroupChange,
    st.sampled_from(GROUPS),
    st.none()
    | st.builds(
        Generation,
        st.integers(1, 9),
        st.just("consumer"),
        st.none(),
        st.none(),
        st.just(1),
        st.just(()),
    ),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just(-1), st.lists(st.one_of(commits, generations), min_size=1, max_size=5)),
        st.tuples(st.sampled_from((1, 2)), st.lists(commits, min_size=1, max_size=3)),
        st.tuples(st.sampled_from((1, 2)), st.booleans()),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(steps, st.integers(0, 4))
def test_the_fast_way_to_read_a_log_comes_to_the_same_as_replaying_it(
    script: list[tuple[int, list[Change] | bool]], codec: int
) -> None:
    slow, loader, fast = coordinator(), Loader(), coordinator()
    offset = 0
    for producer_id, what in script:
        if isinstance(what, bool):
            kind = ControlType.COMMIT if what else ControlType.ABORT
            data = build_marker(
                EndTransactionMarker(kind, 0),
                producer_id=producer_id,
                producer_epoch=0,
                timestamp=1,
                base_offset=offset,
            )
            slow.offsets.end_transaction(producer_id, committed=what)
            offset += 1
        else:
            data = batch(what, offset, producer_id, codec)
            for change in what:
                slow.replay(change, producer_id)
            offset += len(what)
        assert loader.feed(bytes(data)) == offset
    loader.replay_into(fast)
    assert fast.stored() == slow.stored()
    for group in GROUPS:
        assert fast.offsets.has_unstable(group) is slow.offsets.has_unstable(group)


def test_offsets_of_an_open_transaction_wait_for_its_end() -> None:
    change = OffsetChange(GROUP, "t", 0, Commit(5, 0, "", 1))
    found = loaded(batch([change], producer_id=7))
    assert found.offsets.get(GROUP, "t", 0) is None
    assert found.offsets.is_unstable(GROUP, "t", 0)
    found.offsets.end_transaction(7, committed=True)
    assert found.offsets.get(GROUP, "t", 0) == change.commit


def test_records_of_other_kinds_are_skipped() -> None:
    record = Record(0, 1, b"\x00\x03\x00\x01g", b"\x00\x00\x00\x00\x00\x01")
    keyless = Record(1, 1, None, b"value")
    offset = Record(2, 1, *encode(OffsetChange(GROUP, "t", 0, Commit(5, 0, "", 1))))
    found = loaded(build_batch([record, keyless, offset]))
    assert set(found.groups) == {GROUP}


def test_records_that_make_no_sense_are_skipped_and_counted() -> None:
    garbage = Record(0, 1, b"\x00", b"value")
    cut = Record(1, 1, b"\x00\x01\x00\x09g", b"\x00\x03")
    no_value = Record(2, 1, encode(OffsetChange(GROUP, "u", 0, None))[0], b"\x00")
    offset = Record(3, 1, *encode(OffsetChange(GROUP, "t", 0, Commit(5, 0, "", 1))))
    loader, found = Loader(), coordinator()
    loader.feed(bytes(build_batch([garbage, cut, no_value, offset])))
    assert loader.replay_into(found) == 3
    assert list(found.offsets.of_group(GROUP)) == ["t"]


def test_a_batch_with_malformed_records_is_an_error() -> None:
    data = batch([OffsetChange(GROUP, "t", 0, Commit(5, 0, "", 1))])
    data[57:61] = (9).to_bytes(4, "big")
    seal(data, 0)
    with pytest.raises(InvalidBatch, match="malformed"):
        loaded(data)


def test_an_empty_log_has_no_groups() -> None:
    assert Loader().feed(b"") is None
    assert not loaded().groups
