"""Every rebalance says what brought it about, in words that a counter can have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.coordinator.stage import Stage, subscription

from headrace.coordinator.effects import Cause
from headrace.coordinator.states import State

OTHER = {"range": subscription("t", "u")}


def joined_by_another(stage: Stage, members: list[str]) -> None:
    stage.new_member()


def metadata_change(stage: Stage, members: list[str]) -> None:
    stage.join(members[1], protocols=OTHER)


def leader_joins_again(stage: Stage, members: list[str]) -> None:
    stage.join(members[0])


def one_leaves(stage: Stage, members: list[str]) -> None:
    stage.leave((members[1], None))


def one_is_silent(stage: Stage, members: list[str]) -> None:
    for _ in range(3):
        stage.advance(4_000)
        stage.heartbeat(members[0], 1)


def one_does_not_ask_for_its_share(stage: Stage, members: list[str]) -> None:
    joins = [stage.join(member_id) for member_id in members]
    assert not any(join.waits for join in joins)
    stage.sync(members[0], 2, {})
    for _ in range(10):
        stage.advance(6_000)
        for member_id in members:
            stage.heartbeat(member_id, 2)


def limit_is_lowered(stage: Stage, members: list[str]) -> None:
    stage.settings = replace(stage.settings, group_size_max=1)
    stage.restart()


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
def test_a_rebalance_has_a_cause(happens: Callable[[Stage, list[str]], None], cause: Cause) -> None:
    stage = Stage()
    members = stage.stable(2)
    assert stage.causes == [Cause.NEW_MEMBER]
    happens(stage, members)
    assert stage.causes[-1] is cause
    assert stage.rebalances[-1]
    assert stage.group.state is not State.STABLE


def test_a_static_member_that_comes_back_with_another_protocol_is_a_cause() -> None:
    stage = Stage()
    join = stage.join(instance="a", protocols=OTHER)
    stage.advance(0)
    member_id = join.joined.member_id
    stage.sync(member_id, 1, {member_id: b""}, instance="a")
    stage.join(instance="a", protocols={"sticky": subscription("t"), **OTHER})
    assert stage.causes[-1] is Cause.STATIC_MEMBER_RETURNED
