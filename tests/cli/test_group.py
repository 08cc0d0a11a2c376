"""`headrace group list` and `describe` with real members."""

from __future__ import annotations

import json
import time

from tests.cli.members import Member
from tests.cli.offsets import commit, fill
from tests.cli.tool import Headrace

from headrace.testing import BrokerThread


def test_groups_are_listed_by_state_and_type(headrace: Headrace, broker: BrokerThread) -> None:
    fill(broker.bootstrap, "orders", [1])
    commit(broker.bootstrap, "sleeping", {("orders", 0): 1})
    with Member(broker.bootstrap, "awake", "orders") as member:
        member.wait_for(lambda member: member.owned == {0})
        rows = json.loads(headrace("group", "list", "-o", "json").stdout)
        common = {"type": "classic", "coordinator": 1}
        assert rows == [
            {"group": "awake", "protocol": "consumer", "state": "Stable", **common},
            {"group": "sleeping", "protocol": "", "state": "Empty", **common},
        ]
        for options, names in {
            ("--state", "stable"): ["awake"],
            ("--state", "EMPTY", "--state", "Stable"): ["awake", "sleeping"],
            ("--type", "classic", "--state", "Empty"): ["sleeping"],
            ("--type", "share"): [],
        }.items():
            rows = json.loads(headrace("group", "list", *options, "-o", "json").stdout)
            assert [row["group"] for row in rows] == names


def test_an_unknown_state_is_refused_with_the_known_ones(headrace: Headrace) -> None:
    done = headrace("group", "list", "--state", "asleep", fails=True)
    assert done.returncode == 2
    assert "'stable'" in done.stderr


def test_a_group_is_described_with_members_offsets_and_lag(
    headrace: Headrace, broker: BrokerThread
) -> None:
    fill(broker.bootstrap, "orders", [10, 6])
    fill(broker.bootstrap, "old", [3])
    commit(broker.bootstrap, "shop", {("orders", 0): 4, ("old", 0): 1})
    settings = {"client_id": "till", "group_instance_id": "till-1", "enable_auto_commit": False}
    with Member(broker.bootstrap, "shop", "orders", **settings) as member:
        member.wait_for(lambda member: member.owned == {0, 1})
        [group] = json.loads(headrace("group", "describe", "shop", "-o", "json").stdout)
        text = headrace("group", "describe", "shop").stdout
    member_id = group["members"][0]["member"]
    assert member_id.startswith("till-1-")
    assert group == {
        "group": "shop",
        "state": "Stable",
        "type": "classic",
        "protocol": "consumer",
        "assignor": "range",
        "coordinator": {"node_id": 1, "host": "127.0.0.1", "port": broker.port},
        "members": [
            {
                "member": member_id,
                "client": "till",
                "host": "127.0.0.1",
                "instance": "till-1",
                "partitions": {"orders": [0, 1]},
            }
        ],
        "partitions": [
            place("old", 0, 1, 3, 2, None),
            place("orders", 0, 4, 10, 6, member_id),
            place("orders", 1, None, 6, None, member_id),
        ],
        "lag": 8,
    }
    assert "state Stable  type classic  assignor range" in text
    assert "members 1  lag 8" in text
    assert "orders:0-1" in text


def place(
    topic: str, partition: int, committed: int | None, end: int, lag: int | None, member: str | None
) -> dict[str, object]:
    return {
        "topic": topic,
        "partition": partition,
        "committed": committed,
        "end": end,
        "lag": lag,
        "member": member,
    }


def test_lag_in_time_is_the_age_of_the_next_record(
    headrace: Headrace, broker: BrokerThread
) -> None:
    hour_ago_ms = round(time.time() * 1000) - 3_600_000
    fill(broker.bootstrap, "orders", [5, 2, 0], from_ms=hour_ago_ms)
    commit(broker.bootstrap, "shop", {("orders", 0): 2, ("orders", 1): 2})
    done = headrace("group", "describe", "shop", "--behind", "-o", "json")
    [group] = json.loads(done.stdout)
    ages = [row["behind"] for row in group["partitions"]]
    assert 3598 <= ages[0] <= 3598 + 60
    assert ages[1] == 0


def test_a_deleted_topic_has_no_lag(headrace: Headrace, broker: BrokerThread) -> None:
    fill(broker.bootstrap, "orders", [5])
    commit(broker.bootstrap, "shop", {("orders", 0): 2})
    headrace("topic", "delete", "orders")
    [group] = json.loads(headrace("group", "describe", "shop", "-o", "json").stdout)
    assert group["lag"] == 0


def test_an_unknown_group_is_refused_with_the_nearest_name(
    headrace: Headrace, broker: BrokerThread
) -> None:
    fill(broker.bootstrap, "orders", [1])
    commit(broker.bootstrap, "shop", {("orders", 0): 1})
    assert "did you mean shop?" in headrace("group", "describe", "shp", fails=True).stderr
    assert "headrace group list" in headrace("group", "describe", "x" * 9, fails=True).stderr


def test_nobody_there_is_said_at_once(headrace: Headrace) -> None:
    errors = headrace("group", "list", "-b", "127.0.0.1:1", fails=True).stderr
    assert "no broker answers at 127.0.0.1:1" in errors
    assert "headrace up" in errors


def test_a_security_that_cannot_be_is_refused(headrace: Headrace) -> None:
    done = headrace("group", "list", "-X", "security.protocol=tls", fails=True)
    assert done.returncode == 2
    assert "sasl_ssl" in done.stderr
