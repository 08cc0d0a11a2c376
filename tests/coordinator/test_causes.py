"""Every rebalance has a cause that a counter can have as its label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.coordinator.harness import Harness, subscription

from headrace.coordinator.effects import Cause
from headrace.coordinator.states import State

OTHER = {"range": subscription("t", "u")}


def joined_by_another(harness: Harness, members: list[str]) -> None:
    harness.new_member()


def metadata_change(harness: Harness, members: list[str]) -> None:
    harness.join(members[1], protocols=OTHER)


def leader_joins_again(harness: Harness, members: list[str]) -> None:
    harness.join(members[0])


def one_leaves(harness: Harness, members: list[str]) -> None:
    harness.leave((members[1], None))


def one_is_silent(harness: Harness, members: list[str]) -> None:
    for _ in range(3):
        harness.advance(4_000)
        harness.heartbeat(members[0], 1)


def one_does_not_ask_for_its_share(harness: Harness, members: list[str]) -> None:
    joins = [harness.join(member_id) for member_id in members]
    assert not any(join.waits for join in joins)
    harness.sync(members[0], 2, {})
    for _ in range(10):
        harness.advance(6_000)
        for member_id in members:
            harness.heartbeat(member_id, 2)


def limit_is_lowered(harness: Harness, members: list[str]) -> None:
    harness.settings = replace(harness.settings, group_size_max=1)
    harness.restart()


@pytest.mark.parametrize(
    ("happens", "cause"),
    [
        (joined_by_another, Cause.NEW_MEMBER),
        (metadata_change, Cause.REJOINED),
        (leader_joins_again, Cause.REJOINED),
        (one_leaves, Cause.LEFT),
        (one_is_silent, Cause.SESSION_TIMEOUT),
        (one_does_not_ask_for_its_share, Cause.SYNC_TIMEOUT),
        (limit_is_lowered, Cause.GROUP_TOO_LARGE),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_rebalance_has_a_cause(
    happens: Callable[[Harness, list[str]], None], cause: Cause
) -> None:
    harness = Harness()
    members = harness.stable(2)
    assert harness.causes == [Cause.NEW_MEMBER]
    happens(harness, members)
    assert harness.causes[-1] is cause
    assert harness.rebalances[-1]
    assert harness.group.state is not State.STABLE


def test_a_static_member_that_comes_back_with_another_protocol_is_a_cause() -> None:
    harness = Harness()
    join = harness.join(instance="a", protocols=OTHER)
    harness.advance(0)
    member_id = join.joined.member_id
    harness.sync(member_id, 1, {member_id: b""}, instance="a")
    harness.join(instance="a", protocols={"sticky": subscription("t"), **OTHER})
    assert harness.causes[-1] is Cause.STATIC_MEMBER_RETURNED
