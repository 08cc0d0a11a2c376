"""Groups as administrators see them."""

from __future__ import annotations

from tests.coordinator.harness import GROUP, Harness

from headrace.coordinator.describe import described, listed, not_described
from headrace.protocol.errors import ErrorCode


def test_a_stable_group_with_its_members() -> None:
    harness = Harness()
    leader, follower = harness.stable(protocols={"range": b"meta"})
    group = described(harness.group)
    assert (group.group_id, group.group_state) == (GROUP, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    assert {m.member_id: (m.member_metadata, m.member_assignment) for m in group.members} == {
        member: (b"meta", member.encode()) for member in (leader, follower)
    }
    assert {(m.client_id, m.client_host) for m in group.members} == {("client", "/127.0.0.1")}


def test_a_rebalancing_group_has_no_protocol_yet() -> None:
    harness = Harness()
    leader, _ = harness.stable()
    harness.join(leader)
    group = described(harness.group)
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [m.member_metadata for m in group.members] == [b"", b""]


def test_a_group_that_is_not_there_is_dead_or_an_error() -> None:
    assert not_described("x", 5).group_state == "Dead"
    assert not_described("x", 5).error_code == ErrorCode.NONE
    assert not_described("x", 6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "x" in (not_described("x", 6).error_message or "")


def test_groups_are_listed_by_state_and_type() -> None:
    harness = Harness()
    harness.stable(1, group=GROUP)
    harness.commit({("t", 0): 1}, group="simple")
    groups = list(harness.coordinator.groups.values())
    found = {g.group_id: (g.group_state, g.protocol_type, g.group_type) for g in listed(groups)}
    assert found == {GROUP: ("Stable", "consumer", "classic"), "simple": ("Empty", "", "classic")}
    assert [g.group_id for g in listed(groups, ["stable"])] == [GROUP]
    assert [g.group_id for g in listed(groups, ["Empty", "Dead"])] == ["simple"]
    assert len(listed(groups, [], ["Classic"])) == 2
    assert listed(groups, [], ["consumer"]) == []
