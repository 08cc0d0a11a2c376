"""`headrace group seek` against a real broker."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.cli.members import Member
from tests.cli.offsets import commit, committed, fill
from tests.cli.tool import Headrace

from headrace.testing import BrokerThread


@pytest.fixture
def shop(broker: BrokerThread) -> str:
    """A group at 4 of 10 and 6 of 6 in `orders`; its third partition is empty and unread."""
    fill(broker.bootstrap, "orders", [10, 6, 0])
    commit(broker.bootstrap, "shop", {("orders", 0): 4, ("orders", 1): 6})
    return broker.bootstrap


def test_a_group_goes_where_it_is_sent(headrace: Headrace, shop: str) -> None:
    for to, expected in {
        "current": [4, 6, None],
        "+3": [7, 6, None],
        "-3": [4, 3, None],
        "earliest": [0, 0, 0],
        "latest": [10, 6, 0],
        "5": [5, 5, 0],
        "-1d": [10, 6, 0],
        "@4500": [4, 4, 0],
        "1970-01-01T00:00:08Z": [7, 6, 0],
        "1970-01-01T01:00:03+01:00": [2, 2, 0],
    }.items():
        headrace("group", "seek", "shop", "--to", to)
        assert committed(shop, "shop", "orders", 3) == expected, to


def test_a_marker_of_a_sink_is_not_moved(headrace: Headrace, shop: str) -> None:
    commit(shop, "headrace.sink.query.0", {("orders", 0): 4})
    marker = "headrace.sink.query.0"
    errors = headrace("group", "seek", marker, "--to", "latest", fails=True).stderr
    assert "the number of the batch" in errors
    assert committed(shop, "headrace.sink.query.0", "orders", 1) == [4]


def test_a_duration_counts_back_from_now(headrace: Headrace, broker: BrokerThread) -> None:
    fill(broker.bootstrap, "orders", [3600], from_ms=round(time.time() * 1000) - 3_600_000)
    commit(broker.bootstrap, "shop", {("orders", 0): 3600})
    headrace("group", "seek", "shop", "--to", "-15m")
    [place] = committed(broker.bootstrap, "shop", "orders", 1)
    assert place is not None
    # A slow machine may take some seconds from the first record to the seek.
    assert 2700 <= place <= 2760


def test_the_plan_says_old_new_change_and_what_was_held_back(headrace: Headrace, shop: str) -> None:
    rows = json.loads(headrace("group", "seek", "shop", "--to", "+3", "-o", "json").stdout)
    assert rows == [
        row(0, 4, 7, 3, 3, ""),
        row(1, 6, 6, 0, 0, "9 is after the end"),
        row(2, None, None, None, None, "no offset to shift from"),
    ]
    text = headrace("group", "seek", "shop", "--to", "-300").stdout
    assert "-293 is before the start" in text
    assert "moved shop in 2 of 3 partitions" in text


def row(
    partition: int,
    old: int | None,
    new: int | None,
    change: int | None,
    lag: int | None,
    note: str,
) -> dict[str, object]:
    return {
        "topic": "orders",
        "partition": partition,
        "from": old,
        "to": new,
        "change": change,
        "lag": lag,
        "note": note,
    }


def test_a_dry_run_changes_nothing(headrace: Headrace, shop: str) -> None:
    done = headrace("group", "seek", "shop", "--to", "earliest", "--dry-run")
    assert "would move shop in 3 of 3 partitions" in done.stdout
    assert committed(shop, "shop", "orders", 3) == [4, 6, None]


def test_only_the_topics_and_partitions_named_are_moved(headrace: Headrace, shop: str) -> None:
    fill(shop, "payments", [5])
    headrace("group", "seek", "shop", "--to", "earliest", "-t", "orders:1-2", "-t", "payments")
    assert committed(shop, "shop", "orders", 3) == [4, 0, 0]
    assert committed(shop, "shop", "payments", 1) == [0]


def test_a_plan_can_be_written_and_read_back(headrace: Headrace, shop: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    headrace("group", "seek", "shop", "--to", "current", "--dry-run", "--export", str(plan))
    assert plan.read_text() == "orders,0,4\norders,1,6\n"
    headrace("group", "seek", "shop", "--to", "earliest")
    headrace("group", "seek", "shop", "--to", f"file:{plan}")
    assert committed(shop, "shop", "orders", 3) == [4, 6, 0]


def test_a_group_takes_the_places_of_another(headrace: Headrace, shop: str) -> None:
    errors = headrace("group", "seek", "copy", "--to", "group:shop", fails=True).stderr
    assert "there is no group 'copy'" in errors
    assert "--new" in errors
    headrace("group", "seek", "copy", "--to", "group:shop", "--new")
    assert committed(shop, "copy", "orders", 3) == [4, 6, None]


def test_a_group_with_members_is_not_moved(headrace: Headrace, shop: str) -> None:
    with Member(shop, "shop", "orders") as member:
        member.wait_for(lambda member: len(member.owned) == 3)
        errors = headrace("group", "seek", "shop", "--to", "earliest", fails=True).stderr
        assert "group 'shop' has members" in errors
        assert "headrace group describe shop" in errors
        headrace("group", "seek", "shop", "--to", "earliest", "--dry-run")


def test_places_in_a_deleted_topic_are_left_alone(headrace: Headrace, shop: str) -> None:
    fill(shop, "gone", [5])
    commit(shop, "shop", {("gone", 0): 2})
    headrace("topic", "delete", "gone")
    text = headrace("group", "seek", "shop", "--to", "earliest").stdout
    assert "moved shop in 3 of" in text
    assert committed(shop, "shop", "orders", 3) == [0, 0, 0]


def test_what_cannot_be_is_refused_with_a_hint(headrace: Headrace, shop: str) -> None:
    for arguments, message in {
        ("--to", "sometime"): "use earliest, latest",
        ("--to", "earliest", "-t", "order"): "did you mean orders?",
        ("--to", "earliest", "-t", "orders:7"): "it has orders:0-2",
        ("--to", "earliest", "-t", "orders:x"): "orders:0,2-4",
        ("--to", "file:nowhere.csv"): "No such file",
        ("--to", "group:nobody"): "no committed offsets",
        ("--to", "current", "--export", "no/where.csv", "-n"): "cannot write",
    }.items():
        assert message in headrace("group", "seek", "shop", *arguments, fails=True).stderr


def test_a_new_group_needs_a_topic(headrace: Headrace, shop: str) -> None:
    errors = headrace("group", "seek", "new", "--to", "latest", "--new", fails=True).stderr
    assert "--topic" in errors
    headrace("group", "seek", "new", "--to", "latest", "--new", "--topic", "orders")
    assert committed(shop, "new", "orders", 3) == [10, 6, 0]
