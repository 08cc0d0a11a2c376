"""`headrace group delete` against a real broker."""

from __future__ import annotations

from tests.cli.members import Member
from tests.cli.offsets import commit, committed, fill
from tests.cli.tool import Headrace

from headrace.testing import BrokerThread


def test_groups_are_deleted(headrace: Headrace, broker: BrokerThread) -> None:
    fill(broker.bootstrap, "orders", [2])
    for group in ("a", "b", "c"):
        commit(broker.bootstrap, group, {("orders", 0): 1})
    assert headrace("group", "delete", "a", "b").stdout == "deleted a\ndeleted b\n"
    assert headrace("group", "list").stdout.split()[5:6] == ["c"]
    errors = headrace("group", "delete", "c", "d", fails=True).stderr
    assert "there is no group 'd'" in errors
    assert committed(broker.bootstrap, "c", "orders", 1) == [1], "all are checked before any goes"


def test_offsets_of_one_topic_are_forgotten(headrace: Headrace, broker: BrokerThread) -> None:
    fill(broker.bootstrap, "orders", [2, 2])
    fill(broker.bootstrap, "old", [2])
    places = {("orders", 0): 1, ("orders", 1): 1, ("old", 0): 1}
    commit(broker.bootstrap, "shop", places)
    done = headrace("group", "delete", "shop", "--topic", "orders:1", "--topic", "old")
    assert done.stdout == "deleted offsets of shop: 2\n"
    assert committed(broker.bootstrap, "shop", "orders", 2) == [1, None]
    assert committed(broker.bootstrap, "shop", "old", 1) == [None]
    errors = headrace("group", "delete", "shop", "--topic", "old", fails=True).stderr
    assert "has no offsets in the selected partitions" in errors


def test_a_group_that_is_read_keeps_what_it_reads(headrace: Headrace, broker: BrokerThread) -> None:
    fill(broker.bootstrap, "orders", [2])
    fill(broker.bootstrap, "old", [2])
    commit(broker.bootstrap, "shop", {("orders", 0): 1, ("old", 0): 1})
    with Member(broker.bootstrap, "shop", "orders") as member:
        member.wait_for(lambda member: member.owned == {0})
        assert "has members" in headrace("group", "delete", "shop", fails=True).stderr
        errors = headrace("group", "delete", "shop", "--topic", "orders", fails=True).stderr
        assert "has members that read orders" in errors
        headrace("group", "delete", "shop", "--topic", "old")
    assert committed(broker.bootstrap, "shop", "old", 1) == [None]
