"""`headrace group rebalance` with real members."""

from __future__ import annotations

import threading
from typing import Any, Self

import pytest
from tests.cli.members import Member
from tests.cli.offsets import commit, committed, fill
from tests.cli.tool import Headrace

from headrace.client.admin.groups import find_groups
from headrace.client.admin.rebalance import Rebalance
from headrace.client.wire.cluster import ClusterClient, CoordinatorOf
from headrace.client.wire.connection import BrokerConnection
from headrace.client.wire.security import Security
from headrace.protocol.api.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headrace.protocol.api.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from headrace.protocol.errors import ErrorCode
from headrace.testing import BrokerThread

TIMEOUT_SECONDS = 60.0


def test_members_hand_over_in_good_order_and_once(headrace: Headrace, broker: BrokerThread) -> None:
    fill(broker.bootstrap, "orders", [1, 1])
    with (
        Member(broker.bootstrap, "shop", "orders", group_instance_id="a") as first,
        Member(broker.bootstrap, "shop", "orders") as second,
    ):
        for member in (first, second):
            member.wait_for(lambda member: len(member.owned) == 1)
        before = [(member.assigned, member.revoked) for member in (first, second)]
        done = headrace("group", "rebalance", "shop")
        assert done.stdout.startswith("rebalanced shop: 2 members, ")
        for member, (assigned, revoked) in zip((first, second), before, strict=True):
            member.wait_for(lambda member, n=assigned + 1: member.assigned == n)  # type: ignore[misc]
            assert member.revoked == revoked + 1
            assert member.lost == 0
        assert first.owned | second.owned == {0, 1}


def test_no_round_ends_with_the_visitor_in_it(
    broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ClusterClient([(broker.host, broker.port)], Security(), TIMEOUT_SECONDS) as cluster:
        coordinator = cluster.coordinator(CoordinatorOf.GROUP, "shop")
        with QuickMember(cluster.connect(coordinator.host, coordinator.port)) as member:
            assert member.join() == (1, 1)
            enter = Rebalance._wait

            def enter_and_linger(self: Rebalance, *arguments: Any) -> Any:
                group = enter(self, *arguments)
                # The member is back before the visitors have gone, and still the round is open.
                member.rejoin()
                assert not member.is_answered_within(0.2)
                return group

            monkeypatch.setattr(Rebalance, "_wait", enter_and_linger)
            rebalance = Rebalance(cluster, find_groups(cluster, ["shop"])[0])
            assert rebalance.start()
            assert member.is_answered_within(TIMEOUT_SECONDS)
            assert member.round == (2, 1), "the second generation, with nobody else in it"


class QuickMember:
    """A member that is its group's leader and joins again whenever the test says so."""

    def __init__(self, wire: BrokerConnection) -> None:
        self.round: tuple[int, int] | None = None
        self._wire = wire
        self._waiting: threading.Thread | None = None
        self._request = JoinGroupRequest(
            group_id="shop",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0" + bytes(8))],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()

    def join(self) -> tuple[int, int]:
        """Enter the group and share out; the generation and how many members it has."""
        answer = self._wire.ask(self._request, JoinGroupResponse)
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        self._request.member_id = answer.member_id
        joined = self._wire.ask(self._request, JoinGroupResponse)
        shares = [SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"")]
        sync = SyncGroupRequest(
            group_id="shop",
            generation_id=joined.generation_id,
            member_id=answer.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )
        assert self._wire.ask(sync, SyncGroupResponse).error_code == 0
        return joined.generation_id, len(joined.members)

    def rejoin(self) -> None:
        """Join again; `round` is set when the joining is over."""
        self._waiting = threading.Thread(target=self._await_round, daemon=True)
        self._waiting.start()

    def is_answered_within(self, seconds: float) -> bool:
        """Whether the joining that `rejoin` began is over in time."""
        assert self._waiting is not None
        self._waiting.join(seconds)
        return self.round is not None

    def _await_round(self) -> None:
        answer = self._wire.ask(self._request, JoinGroupResponse)
        self.round = answer.generation_id, len(answer.members)


def test_a_static_member_that_is_gone_is_taken_out(
    headrace: Headrace, broker: BrokerThread
) -> None:
    fill(broker.bootstrap, "orders", [3])
    with Member(broker.bootstrap, "shop", "orders", group_instance_id="till-1") as member:
        member.wait_for(lambda member: member.owned == {0})
    # A static member does not leave when it is closed: it is expected back (KIP-345).
    errors = headrace("group", "seek", "shop", "-t", "orders", "--to", "2", fails=True).stderr
    assert "headrace group rebalance shop --remove MEMBER" in errors
    errors = headrace("group", "rebalance", "shop", "--remove", "till-2", fails=True).stderr
    assert "has no member 'till-2'" in errors
    done = headrace("group", "rebalance", "shop", "--remove", "till-1")
    assert done.stdout.startswith("rebalanced shop: 0 members, ")
    headrace("group", "seek", "shop", "-t", "orders", "--to", "2")
    assert committed(broker.bootstrap, "shop", "orders", 1) == [2]


@pytest.mark.headrace({"group.max.size": 1})
def test_a_full_group_lets_no_visitor_in(headrace: Headrace, broker: BrokerThread) -> None:
    fill(broker.bootstrap, "orders", [1])
    with Member(broker.bootstrap, "shop", "orders") as member:
        member.wait_for(lambda member: member.owned == {0})
        errors = headrace("group", "rebalance", "shop", fails=True).stderr
        assert "group 'shop' is full" in errors
        assert member.assigned == 1


def test_a_group_without_members_has_nothing_to_share_out(
    headrace: Headrace, broker: BrokerThread
) -> None:
    fill(broker.bootstrap, "orders", [1])
    commit(broker.bootstrap, "shop", {("orders", 0): 1})
    errors = headrace("group", "rebalance", "shop", fails=True).stderr
    assert "group 'shop' has no members" in errors


def test_a_duration_without_a_unit_is_refused(headrace: Headrace) -> None:
    errors = headrace("group", "rebalance", "shop", "--timeout", "10", fails=True).stderr
    assert "1h30m" in errors
